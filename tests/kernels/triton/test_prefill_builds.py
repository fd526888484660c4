"""What the prefill kernel is compiled as, and what its stored code objects say of the shipped configurations."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels.triton.configs import PREFILL_FORWARD, load
from kernels.triton.prefill_builds import PrefillForwardKernel
from pytest_attnperf.baselines.code_store import CodeStore
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelBuild, KernelRegistry, TritonSource

ROOT = Path(__file__).parents[3]
KERNEL = PrefillForwardKernel()
SPILLING = {"gfx1100": {"d256-f16", "d256-bf16", "d256-f32"}, "gfx1201": {"d256-f32"}}
"""Configurations without a tile that does not spill; gfx1151 has those of gfx1100."""


def stored_spills(arch: str) -> dict[str, int]:
    """Spilled registers by configuration, as stored."""
    kernels_stored = CodeStore(ROOT / "baselines").load(arch)
    return {
        entry.partition("/")[2]: (found.kernel.code.vgpr_spills or 0) + (found.kernel.code.sgpr_spills or 0)
        for entry, found in kernels_stored.items()
    }


def test_registered_under_its_name() -> None:
    """The registry holds the kernel, and the backend that launches it."""
    registry = KernelRegistry()
    kernels.register_kernels(registry)
    assert [kernel.name for kernel in registry] == ["triton.prefill_forward"]
    assert registry.get("triton.prefill_forward").backends == ("triton.flash",)


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90", "gfx908"])
def test_every_rule_is_built(arch: str) -> None:
    """Each rule of the architecture, or of 'default', in every element type and mask, under an id of its own."""
    rules = load(PREFILL_FORWARD)
    builds = KERNEL.builds(arch)
    assert len({build.id for build in builds}) == len(builds)
    built = {(source(build).constants["HEAD_DIM"], source(build).signature["q_ptr"]) for build in builds}
    for rule in rules.get(arch, rules["default"]):
        for element in ("*fp16", "*bf16") if rule.element_bits == 16 else ("*fp32",):
            assert (rule.head_dim_max, element) in built
    assert {source(build).constants["CAUSAL"] for build in builds} == {True, False}


def source(build: KernelBuild) -> TritonSource:
    """What is compiled."""
    assert isinstance(build.source, TritonSource)
    return build.source


def test_signature_and_constants_are_the_kernels_own() -> None:
    """Every argument of the kernel has a type or a value, and nothing else is given."""
    tree = (ROOT / "kernels/triton/prefill_forward.py").read_text().partition("def prefill_forward_kernel(")[2]
    arguments = {
        word.partition(":")[0].strip()
        for line in tree.partition("):")[0].splitlines()
        for word in line.partition("#")[0].split(",")
        if word.strip()
    }
    for build in KERNEL.builds("gfx942"):
        assert source(build).signature.keys() | source(build).constants.keys() == arguments
        assert set(source(build).divisible_by_16) <= source(build).signature.keys()


@pytest.mark.parametrize(("arch", "config", "promised"), [
    ("gfx942", "d128-f32-full-ragged", True),
    ("gfx1100", "d128-f32-full-ragged", False),
    ("gfx1100", "d128-bf16-full-ragged", True),
    ("sm_90", "d128-f32-full-ragged", False),
])  # fmt: skip
def test_matrix_instructions_are_promised_where_there_are_some(arch: str, config: str, promised: bool) -> None:
    """16-bit products everywhere, exact 32-bit ones on CDNA only."""
    (build,) = [one for one in KERNEL.builds(arch) if one.config == config]
    assert build.matrix == promised


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_a_code_object_is_stored_of_every_build(arch: str) -> None:
    """The baseline of an architecture holds exactly what the suite compiles for it."""
    assert stored_spills(arch).keys() == {build.config for build in KERNEL.builds(arch)}


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_no_shipped_configuration_spills(arch: str) -> None:
    """Zero spilled registers; only where no tile is known that does not spill, they are stored with the reason."""
    allowed = SPILLING.get(arch, SPILLING["gfx1100"] if arch == "gfx1151" else set())
    spilling = {config.rsplit("-", 2)[0] for config, count in stored_spills(arch).items() if count}
    assert spilling == allowed
    assert not spilling or arch.startswith("gfx1")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The kernels, their suite and its baseline, in a folder where they can be edited."""
    for name in ("kernels", "suites", "baselines/gfx942"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_larger_tile_at_d256_fails_without_a_gpu(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The MI300X report's default tile, 128x64 instead of 64x32, fails its test on any CI runner.

    The message names what spills, the settings and their file, LDS and its limit, and the command that repeats it.
    """
    triton = pytest.importorskip("triton")
    if "amd" not in pytest.importorskip("triton.backends").backends:
        pytest.skip("this triton was built without its AMD backend")
    path = tree / "kernels/triton/configs/prefill_forward.json"
    text = path.read_text()
    edited = text.replace(
        '"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": true', '"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": true'
    )
    assert edited != text
    path.write_text(edited)
    monkeypatch.delenv("CI", raising=False)
    command = [sys.executable, "-m", "pytest", "--attnperf", "suites/test_code_objects.py", "-p", "no:randomly"]
    done = subprocess.run(
        [*command, "-k", "d256-f16-causal-ragged"], cwd=tree, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (result,) = json.loads((tree / ".attnperf/results.json").read_text())["code"]
    assert result["verdict"] == "WORSE"
    assert result["compiler"] == f"triton {triton.__version__}"
    for said in (
        "WORSE: code_objects/triton.prefill_forward/d256-f16-causal-ragged/gfx942",
        "spills ",
        "BLOCK_M 64 -> 128, BLOCK_N 32 -> 64 in kernels/triton/configs/prefill_forward.json",
        'pytest --attnperf --attnperf-arch=gfx942 "suites/test_code_objects.py::test_code_object',
    ):
        assert said in done.stdout

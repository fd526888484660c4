"""What the prefill kernel is compiled as, and what its stored code objects say of the shipped configurations."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels.triton.prefill.builds import FEATURES, PrefillForwardKernel, PrefillPersistentKernel
from kernels.triton.prefill.space import PERSISTENT, SPACE
from kernels.triton.varlen.builds import VarlenForwardKernel
from pytest_attnperf.backends import Registry
from pytest_attnperf.baselines.code_store import CodeStore
from pytest_attnperf.kernel_builds import ALL_ARCHS, Kernel, KernelBuild, KernelRegistry, TritonSource
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.testing.project import full_results

ROOT = Path(__file__).parents[3]
KERNEL = PrefillForwardKernel()
KERNELS = (KERNEL, PrefillPersistentKernel(), VarlenForwardKernel())


def stored(arch: str, kernel: str = "triton.prefill_forward") -> dict[str, KernelCode]:
    """Code objects of a kernel by configuration, as stored."""
    found = CodeStore(ROOT / "baselines").load(arch).items()
    held = {entry.partition("/"): entry_stored.kernel.code for entry, entry_stored in found}
    return {config: code for (name, _, config), code in held.items() if name == kernel}


def spills(code: KernelCode) -> int:
    """Registers of either kind."""
    return (code.vgpr_spills or 0) + (code.sgpr_spills or 0)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_registered_under_its_name(kernel: Kernel) -> None:
    """The registry holds the kernel, and the backend that launches it."""
    registry, backends = KernelRegistry(), Registry()
    kernels.register_kernels(registry)
    kernels.register(backends)
    (backend,) = registry.get(kernel.name).backends
    assert backends.get(backend).name == backend


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90", "gfx908"])
def test_every_plain_rule_is_built(arch: str) -> None:
    """Each plain rule of the architecture, or of 'default', in every element type and mask, under an id of its own."""
    builds = KERNEL.builds(arch)
    assert len({build.id for build in builds}) == len(builds)
    built = {(source(build).constants["HEAD_DIM"], source(build).signature["q_ptr"]) for build in builds}
    for rule in SPACE.load_rules(arch):
        if rule.when["element_bits"] != 8 and rule.when.get("plain", True):
            for element in ("*fp16", "*bf16") if rule.when["element_bits"] == 16 else ("*fp32",):
                assert (rule.when["head_dim_max"], element) in built
    assert {source(build).constants["CAUSAL"] for build in builds} == {True, False}


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90"])
def test_every_feature_is_built_under_the_rule_that_its_launch_takes(arch: str) -> None:
    """Each feature has a build, with the constants of the rule chosen for it; fp8 where the matrix units have it."""
    builds = {build.config: source(build) for build in KERNEL.builds(arch)}
    for variant in FEATURES:
        rule = SPACE.choose(arch, variant.problem).rule
        assert rule.constants.items() <= builds[variant.config].constants.items()
        assert builds[variant.config].options == rule.options
    fp8 = {name for name in builds if "f8" in name}
    assert len(fp8) == (arch in ("gfx942", "gfx950", "gfx1201", "sm_90"))
    assert all("PROGRAMS_PER_SM" in rule.constants for rule in PERSISTENT.load_rules(arch))


def source(build: KernelBuild) -> TritonSource:
    """What is compiled."""
    assert isinstance(build.source, TritonSource)
    return build.source


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_signature_and_constants_are_the_kernels_own(kernel: Kernel) -> None:
    """Every argument of the kernel has a type or a value, and nothing else is given."""
    pytest.importorskip("triton")
    for build in kernel.builds("gfx942"):
        given = source(build)
        function = getattr(importlib.import_module(given.module), given.function)
        assert given.signature.keys() | given.constants.keys() == set(function.arg_names)
        assert set(given.divisible_by_16) <= given.signature.keys()


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
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_code_object_is_stored_of_every_build(kernel: Kernel, arch: str) -> None:
    """The baseline of an architecture holds exactly what the suite compiles for it."""
    assert stored(arch, kernel.name).keys() == {build.config for build in kernel.builds(arch)}


@pytest.mark.parametrize("arch", ALL_ARCHS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_no_shipped_configuration_spills(kernel: Kernel, arch: str) -> None:
    """Nothing spills to memory, and at most 10 scalar registers to lanes of a vector register, which no key loop reads;
    on RDNA, where no tile is known that does not spill, its rule says why."""
    wheres = {build.config: build for build in kernel.builds(arch)}
    spilling = {
        config for config, code in stored(arch, kernel.name).items()
        if code.vgpr_spills or code.scratch_bytes or (code.sgpr_spills or 0) > 10
    }  # fmt: skip
    assert not spilling or arch.startswith("gfx1")
    for config in spilling:
        settings = wheres[config].settings
        rules = json.loads((ROOT / wheres[config].where).read_text(encoding="utf-8"))["rules"]
        of_it = [rule for rule in rules if {n: str(v) for n, v in rule["config"].items()} == dict(settings)]
        assert any("fewest spills" in rule["source"] for rule in of_it)


@pytest.mark.parametrize(("arch", "lds_most"), [("gfx942", 32 << 10), ("gfx950", 80 << 10)])
def test_no_larger_than_the_published_kernel_at_d128(arch: str, lds_most: int) -> None:
    """Causal bf16 at a head dimension of 128 takes no more than aiter's default Triton kernel on gfx942: 256 VGPRs, 19
    of them spilled, 80 bytes of scratch, 32 KiB of LDS, half of a CU's; on gfx950, which has 160, half of these."""
    for config in ("d128-bf16-causal-ragged", "d128-bf16-causal-even"):
        code = stored(arch)[config]
        assert (code.unified_vgprs or 0) <= 256
        assert spills(code) <= 19
        assert (code.scratch_bytes or 0) <= 80
        assert (code.lds_static_bytes or 0) + (code.lds_dynamic_bytes or 0) <= lds_most


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The kernels, their suite and its baseline, in a folder where they can be edited."""
    for name in ("kernels", "suites", "baselines/gfx942"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.usefixtures("lean_processes")
def test_a_larger_tile_at_d256_fails_without_a_gpu(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The MI300X report's default tile, 128x64 instead of 64x32, fails its test on any CI runner.

    The message names what spills, the settings and their file, LDS and its limit, and the command that repeats it.
    """
    triton = pytest.importorskip("triton")
    if "amd" not in pytest.importorskip("triton.backends").backends:
        pytest.skip("this triton was built without its AMD backend")
    path = tree / "kernels/triton/configs/prefill_forward/gfx942.json"
    text = path.read_text()
    edited = text.replace(
        '"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": true', '"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": true'
    )
    assert edited != text
    path.write_text(edited)
    monkeypatch.delenv("CI", raising=False)
    command = [sys.executable, "-m", "pytest", "--attnperf", "suites/test_code_objects.py", "-p", "no:randomly", "-k"]
    chosen = "prefill_forward and d256-f16-causal-ragged"
    done = subprocess.run([*command, chosen], cwd=tree, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    (result,) = full_results(tree / ".attnperf/results.json")["code"]
    assert result["verdict"] == "WORSE"
    assert result["compiler"] == f"triton {triton.__version__}"
    for said in (
        "WORSE: code_objects/triton.prefill_forward/d256-f16-causal-ragged/gfx942",
        "spills ",
        "BLOCK_M 64 -> 128, BLOCK_N 32 -> 64",
        " in kernels/triton/configs/prefill_forward/gfx942.json",
        'pytest --attnperf --attnperf-arch=gfx942 "suites/test_code_objects.py::test_code_object',
    ):
        assert said in done.stdout

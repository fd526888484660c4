"""What a user types to have compiled kernels executed without a GPU: honest ones, and twins that compute wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels import register, register_kernels
from kernels.hip.sources import FOLDER
from pytest_attnperf.backends import Registry
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.codeobject.triton_installation import triton_reasons
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelRegistry
from pytest_attnperf.testing.project import full_results

ARCH = "gfx942"

pytestmark = pytest.mark.skipif(
    bool(hip_reasons(ARCH) or triton_reasons(ARCH)), reason="needs clang and Triton with AMD's code generators"
)

HIP = f"""
#include "{FOLDER / "gpu.h"}"

// Each wave copies what the other one has loaded.
KERNEL(128) copy_across(const float* __restrict__ from, float* __restrict__ to, int count) {{
    LDS float tile[128];
    const int place = thread_index(), start = 128 * block_index_x();
    if (start + (place ^ 64) < count) tile[place ^ 64] = from[start + (place ^ 64)];
#if WAITS
    barrier();
#endif
    if (start + place < count) to[start + place] = tile[place];
}}
"""

TRITON = """
import triton
import triton.language as tl

@triton.jit
def copy_kernel(from_ptr, to_ptr, count, SHORT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offsets, tl.load(from_ptr + offsets, offsets < count), offsets < count - SHORT)
"""

CONFTEST = """
import functools
from dataclasses import dataclass
from pathlib import Path

from kernels.hip.builds import make_build
from kernels.hip.sources import HipKernel
from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, Proof, TritonSource
from pytest_attnperf.workloads.bandwidth import Bandwidth

PROBLEM = Bandwidth("copy", kib=1)

def hip_kernel(waits):
    return HipKernel(str(Path(__file__).parent / "copy.hip"), "copy_across", 128, {"WAITS": str(waits)})

def triton_source(short):
    signature = {"from_ptr": "*fp32", "to_ptr": "*fp32", "count": "i32"}
    return TritonSource("copying", "copy_kernel", signature, {"SHORT": short, "BLOCK": 128}, ("from_ptr", "to_ptr"))

@dataclass(frozen=True)
class Copy(Backend):
    wrong: bool = False
    families = ("bandwidth",)

    def prepare(self, workload, inputs):
        call = functools.partial(self.copy, self.load(inputs[0].device))
        outputs = lambda out: {"out": out.view(__import__("torch").int32)}
        return Prepared(call, tuple(one.clone() for one in inputs), lambda new: new, outputs)

    def copy(self, launch, b):
        out = b.new_empty(b.shape)
        launch(b, out, b.numel())
        return out

class HipCopy(Copy):
    def load(self, device):
        from kernels.hip.compiler import load

        launch = load(hip_kernel(0 if self.wrong else 1), device)
        return lambda b, out, count: launch((-(-count // 128), 1, 1), b, out, count)

class TritonCopy(Copy):
    def load(self, device):
        from copying import copy_kernel

        return lambda b, out, count: copy_kernel[(-(-count // 128),)](b, out, count, SHORT=int(self.wrong), BLOCK=128)

class TorchCopy(Copy):
    def load(self, device):
        return lambda b, out, count: out.copy_(b)

class Copies(Kernel):
    def builds(self, arch):
        wrong = self.name.endswith("liar")
        proofs = (Proof(self.backends[0], PROBLEM),) if "unproven" not in self.name else ()
        if self.name.startswith("hip"):
            return [make_build(self.name, "plain", arch, hip_kernel(0 if wrong else 1), proofs=proofs)]
        source = triton_source(2 if "other" in self.name else int(wrong))
        return [KernelBuild(self.name, "plain", arch, source, proofs=proofs)]

BACKENDS = (HipCopy("hip.copy"), HipCopy("hip.lied", wrong=True), TritonCopy("triton.copy"),
            TritonCopy("triton.lied", wrong=True), TorchCopy("torch.copy"))

def pytest_attnperf_register_backends(registry):
    registry.add(*BACKENDS)

def pytest_attnperf_register_kernels(kernels):
    kernels.add(
        Copies("hip.honest", ("hip.copy",)), Copies("hip.liar", ("hip.lied",)), Copies("hip.unproven", ("hip.copy",)),
        Copies("triton.honest", ("triton.copy",)), Copies("triton.liar", ("triton.lied",)),
        Copies("triton.other", ("triton.copy",)),
    )
"""

SUITE = """
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build{how})
"""


def write_project(folder: Path, how: str = "") -> None:
    """Write the copy kernels, right and wrong, with a suite that gates them."""
    for name, text in {
        "copy.hip": HIP,
        "copying.py": TRITON,
        "conftest.py": CONFTEST,
        "test_objects.py": SUITE.format(how=how),
        "pytest.ini": "[pytest]\n",
    }.items():
        (folder / name).write_text(text)


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project."""
    for name in ("CI", "PYTEST_ADDOPTS", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    write_project(pytester.path)
    return pytester.path


def judged(folder: Path) -> dict[str, dict[str, Any]]:
    """Kernel -> its result."""
    loaded = full_results(folder / ".attnperf" / "results.json")["code"]
    return {found["key"]["backend"]: found for found in loaded}


def test_wrong_machine_code_is_incorrect(pytester: pytest.Pytester, folder: Path) -> None:
    """A missing barrier and a wrong mask are INCORRECT, their honest twins are not; an object that no call launches is
    an ERROR that says what was launched; one without a proof is said not to be executed."""
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf", "--attnperf-execute", timeout=200)
    found = judged(folder)
    assert {name: one["verdict"] for name, one in found.items()} == {
        "hip.honest": "NO_BASELINE",
        "hip.liar": "INCORRECT",
        "hip.unproven": "NO_BASELINE",
        "triton.honest": "NO_BASELINE",
        "triton.liar": "INCORRECT",
        "triton.other": "ERROR",
    }
    assert "reads byte 0 of the LDS, which nothing wrote" in found["hip.liar"]["summary"]
    assert "bandwidth-copy-kib1-f32: timed inputs: 'out'" in found["triton.liar"]["summary"]
    assert "copy_kernel was with SHORT: 0 launched, 2 built" in found["triton.other"]["summary"]
    assert "not executed: no proof declared" in found["hip.unproven"]["notes"]
    honest = found["triton.honest"]["executed"]
    assert (honest["outcome"], honest["workloads"], honest["launches"]) == ("right", ["bandwidth-copy-kib1-f32"], 2)
    assert honest["lane_instructions"] > 0
    result.stdout.fnmatch_lines(["*; executed: 2 wrong, 1 unproven, 2 right, 1 not executed"])
    assert result.ret == 1


def test_nothing_is_executed_unless_asked_for(pytester: pytest.Pytester, folder: Path) -> None:
    """The same wrong kernels pass a run that only compiles them."""
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf", timeout=200)
    assert {(one["verdict"], one.get("executed")) for one in judged(folder).values()} == {("NO_BASELINE", None)}
    result.stdout.no_fnmatch_line("*; executed: *")
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.soak
def test_a_test_may_ask_for_it(pytester: pytest.Pytester, folder: Path) -> None:
    """`code_object.gate(kernel_build, execute=True)` executes without the option."""
    write_project(folder, ", execute=True")
    pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf", "-k", "hip.honest or hip.liar", timeout=200)
    assert {name: one["verdict"] for name, one in judged(folder).items()} == {
        "hip.honest": "NO_BASELINE",
        "hip.liar": "INCORRECT",
    }


@pytest.mark.parametrize(
    ("backend", "status", "said"),
    [
        ("triton.copy", 0, ["one call is right", "copy_kernel: grid (2, 1, 1), block (256, 1, 1), 0 bytes of LDS"]),
        (
            "torch.copy",
            1,
            ["one call is right", "no kernel was launched as machine code of gfx942, so this says nothing"],
        ),
        pytest.param("hip.lied", 1, ["one call is wrong", "which nothing wrote"], marks=pytest.mark.soak),
    ],
)
def test_one_call_is_executed(folder: Path, backend: str, status: int, said: list[str]) -> None:
    """`attnperf kernel run BACKEND --arch gfx942` executes and judges one call, and says that it timed nothing.
    A call that torch computes on the CPU is right, and no success."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "kernel", "run", backend, "--arch", ARCH]
    ran = subprocess.run(
        [*command, "--workload", "kind=copy,kib=1"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == status, ran.stderr
    for line in ("executed by the interpreter of machine code; counted, not timed: gfx942", *said):
        assert line in ran.stdout


def test_every_shipped_build_has_a_proof() -> None:
    """On every architecture: a small problem of a backend that launches it, in the build's own configuration."""
    kernels, backends = KernelRegistry(), Registry()
    register_kernels(kernels)
    register(backends)
    builds = kernels.list_builds(ALL_ARCHS)
    assert [build.id for build in builds if not build.proofs] == []
    launching = {kernel.name: kernel.backends for kernel in kernels}
    proven = {(build.kernel, proof.backend) for build in builds for proof in build.proofs}
    assert [found for found in proven if found[1] not in launching[found[0]]] == []
    largest = max((proof.workload.bytes_min or 0) for build in builds for proof in build.proofs)
    assert largest < 10e6  # small enough for an interpreter


@pytest.mark.parametrize("archs", [(ARCH,), pytest.param(ALL_ARCHS, marks=pytest.mark.soak)], ids=["default", "all"])
def test_every_shipped_build_is_launched_by_a_proof(archs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher passes the constants, types and divisibility that the build declares; else the object that is gated
    is not the one that runs."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    command = [sys.executable, str(Path(__file__).with_name("launched_proofs.py")), *archs]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    *missed, count = ran.stdout.splitlines() or [ran.stderr]
    assert missed == []
    assert int(count.split()[0]) >= 200 * len(archs)


@pytest.mark.soak
def test_every_shipped_object_is_right(tmp_path: Path) -> None:
    """`pytest suites/test_code_objects.py --attnperf-execute --attnperf-arch=gfx942` finds none wrong, and none that no
    proof launches."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "pytest", "suites/test_code_objects.py", "-p", "no:randomly", "--attnperf"]
    options = ["--attnperf-execute", f"--attnperf-arch={ARCH}", f"--attnperf-results={results}"]
    ran = subprocess.run([*command, *options], cwd=FOLDER.parents[1], capture_output=True, text=True, check=False)
    outcomes = {one["nodeid"]: one["executed"] for one in full_results(results)["code"]}
    assert len(outcomes) > 100, ran.stdout
    assert {name: one for name, one in outcomes.items() if one["outcome"] != "right"} == {}

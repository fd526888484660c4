"""The adapter on a real GPU, AMD or NVIDIA."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels.hip import compiler
from kernels.hip.compiler import load
from kernels.hip.kernel_source import ROOT
from kernels.hip.launching import GpuKernel
from kernels.hip.sources import HipKernel
from pytest_attnperf.codeobject.object_manifest import PrebuiltObject, write_manifest
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.measure.ran_code import RanCode, record_code

pytestmark = pytest.mark.gpu

ADD = """#include "gpu.h"
KERNEL(256) add(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ sum, int count) {
    const long long place = block_index_x() * 256ll + thread_index();
    if (place < count) sum[place] = left[place] + right[place] * FACTOR;
}
"""
REVERSE = """#include "gpu.h"
KERNEL(256) reverse(const float* __restrict__ x, float* __restrict__ out, int count) {
    DYNAMIC_LDS(float, held);
    for (int place = thread_index(); place < count; place += 256) held[place] = x[place];
    barrier();
    for (int place = thread_index(); place < count; place += 256) out[place] = held[count - 1 - place];
}
"""
COUNT = 1000
Written = Callable[..., HipKernel]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Writes k.hip and gives the kernel in it; the cache is empty."""
    monkeypatch.setattr(compiler, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.delenv("ATTNPERF_HIP_OBJECTS", raising=False)

    def write(source: str = ADD, function: str = "add", lds_bytes: int = 0) -> HipKernel:
        (tmp_path / "k.hip").write_text(source)
        return HipKernel(str(tmp_path / "k.hip"), function, 256, {"FACTOR": "2"}, lds_bytes)

    return write


def on_gpu(kernel: HipKernel) -> GpuKernel:
    """The kernel on the current device."""
    found = load(kernel, torch.device("cuda"))
    assert isinstance(found, GpuKernel)
    return found


def added(kernel: GpuKernel) -> None:
    """Assert that it adds, on a stream that is not the default one."""
    left, right = torch.randn(COUNT, device="cuda"), torch.randn(COUNT, device="cuda")
    total = torch.full_like(left, float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        kernel((4, 1, 1), left, right, total, COUNT)
        torch.cuda.current_stream().synchronize()
    assert torch.equal(total, left + right * 2)


def test_two_vectors_are_added(written: Written) -> None:
    """A kernel is compiled, loaded and launched on torch's current stream, and its object is known."""
    kernel = on_gpu(written())
    added(kernel)
    assert kernel.loaded.data.startswith(b"\x7fELF")
    assert kernel.loaded.handle


def test_more_than_48_kib_of_dynamic_lds(written: Written) -> None:
    """A launch may ask for 60 KiB, which every AMD GPU and every NVIDIA GPU since sm_80 has."""
    count = 15 * 1024
    x = torch.randn(count, device="cuda")
    out = torch.empty_like(x)
    on_gpu(written(REVERSE, "reverse", 4 * count))((1, 1, 1), x, out, count)
    assert torch.equal(out, x.flip(0))


def test_a_launch_is_captured_and_its_code_known(written: Written) -> None:
    """A graph replays the launch on new inputs, and the launch that it holds is known by its object."""
    kernel, ran = on_gpu(written()), RanCode()
    left, right = torch.ones(COUNT, device="cuda"), torch.ones(COUNT, device="cuda")
    total = torch.zeros_like(left)
    with record_code(ran):
        kernel((4, 1, 1), left, right, total, COUNT)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        kernel((4, 1, 1), left, right, total, COUNT)
    left.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert total.eq(7).all()
    if torch.version.hip is None:
        from pytest_attnperf.measure.graph_nodes import read_graph_content

        held = read_graph_content(graph)
        (launch,) = ran.identify_launches(held.launches, held.functions)
        assert (launch.name, launch.grid, launch.block) == ("add", (4, 1, 1), (256, 1, 1))
        assert launch.object_id == hashlib.sha256(kernel.loaded.data).hexdigest()[:32]


def test_a_compile_error_names_the_line(written: Written) -> None:
    """The message shows the file, the line and what is wrong there."""
    with pytest.raises(CodeObjectError, match=r"add in k\.hip does not compile for [\s\S]*k\.hip[(:]4[):][\s\S]*nope"):
        on_gpu(written(ADD.replace("right[place] * FACTOR", "nope")))


def test_a_misaligned_tensor_is_refused(written: Written) -> None:
    """A tensor that begins between two 16-byte words is named, and nothing is launched."""
    x = torch.zeros(COUNT + 1, device="cuda")
    with pytest.raises(UsageError, match=r"left \(argument 1\) must begin at a multiple of 16 bytes"):
        on_gpu(written())((4, 1, 1), x[1:], x[:-1], x[:-1], COUNT)


PROGRAM = """
import sys
from pathlib import Path
import torch
from kernels.hip import compiler
from kernels.hip.sources import HipKernel
compiler.CACHE = Path(sys.argv[2])
print(compiler.load(HipKernel(sys.argv[1], "add", 256, {"FACTOR": "2"}), torch.device("cuda")).loaded.origin)
"""


def test_a_second_process_compiles_nothing(written: Written, tmp_path: Path) -> None:
    """What one process has compiled the next one reads from the cache."""
    kernel = written()
    assert on_gpu(kernel).loaded.origin.startswith("compiled by torch")
    command = [sys.executable, "-c", PROGRAM, kernel.file, str(compiler.CACHE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cached, compiled by torch")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_a_prebuilt_object_is_loaded(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An object that nvcc made is loaded instead of compiling; of PTX the machine code is not known."""
    if torch.version.hip is not None:
        pytest.skip("nvcc makes nothing for an AMD GPU")
    kernel = written()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    folder = tmp_path / "build" / arch
    folder.mkdir(parents=True)
    made = folder / f"add.{kind}"
    options = [f"-arch={arch}", f"-{kind}", "-std=c++17", "-DFACTOR=2", f"-I{ROOT / 'kernels' / 'hip'}"]
    subprocess.run(["nvcc", "-x", "cu", *options, kernel.file, "-o", str(made)], check=True)
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    sources = {"k.hip": hashlib.sha256(ADD.encode()).hexdigest()}
    entry = PrebuiltObject(made.name, digest, "hip.add", "f2", "add", "k.hip", sources, {"FACTOR": "2"}, 256)
    write_manifest(folder, arch, [entry])
    monkeypatch.setenv("ATTNPERF_HIP_OBJECTS", str(tmp_path / "build"))
    loaded = on_gpu(kernel)
    added(loaded)
    assert loaded.loaded.origin == f"prebuilt {made.name}"
    assert bool(loaded.loaded.data) is (kind == "cubin")
    assert not (tmp_path / "cache").exists()


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("nvcc") is None and shutil.which("hipcc") is None, reason="needs nvcc or hipcc")
def test_an_extension_does_the_same(written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Built as a C++ extension, a kernel adds, and may ask for much dynamic LDS."""
    monkeypatch.setenv(compiler.COMPILER, "extension")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    added(on_gpu(written()))
    test_more_than_48_kib_of_dynamic_lds(written)

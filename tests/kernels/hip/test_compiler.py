"""With a stand-in for torch's private functions, which records what it is given; real files, cache and errors."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.hip import compiler, emulator, extension, torch_gpu
from kernels.hip.compiler import load
from kernels.hip.launching import GpuKernel, LoadedObject
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import CodeObjectError, UsageError

CUBIN = (Path(__file__).parents[2] / "data" / "code_objects" / "kernels.sm_90.cubin").read_bytes()
FUNCTION, STATIC_LDS = "reversed", 1024
"""A kernel of that object, and what the driver says of it."""

SOURCE = '#include "gpu.h"\nKERNEL(64) reversed(const float* x, int count) {}\n'
GPU = torch.device("cuda")


class FakeKernel:
    """torch's `_CudaKernel`."""

    def __init__(self, launches: list[Any]) -> None:
        self.func = ctypes.c_void_p(4711)
        self._max_shared_mem_bytes = 0
        self._launches = launches

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int) -> None:
        """Record it."""
        self._launches.append((grid, block, args, shared_mem))


class FakeUtils:
    """`torch.cuda._utils` of a CUDA build; `made` is what the compiler gives, or raises."""

    _CudaKernel = FakeKernel

    def __init__(self) -> None:
        self.made: Any = (CUBIN, FUNCTION)
        self.compiled: list[tuple[str, str, list[str]]] = []
        self.loaded: list[bytes] = []
        self.launches: list[Any] = []
        self.attributes: list[tuple[int, int]] = []
        self.status = 0
        self.capabilities: list[str | None] = []
        self.driver = SimpleNamespace(
            cuDriverGetVersion=lambda version: 0,
            cuFuncGetAttribute=self._attribute,
            cuFuncSetAttribute=lambda function, name, value: self.attributes.append((name, value)) or self.status,
        )

    def _attribute(self, value: Any, name: int, function: Any) -> int:
        assert (name, function.value) == (1, 4711)
        value._obj.value = STATIC_LDS
        return 0

    def _nvrtc_compile(
        self,
        kernel_source: str,
        kernel_name: str,
        compute_capability: str | None = None,
        header_code: str = "",
        nvcc_options: list[str] | None = None,
    ) -> Any:
        self.capabilities.append(compute_capability)
        self.compiled.append((kernel_source, kernel_name, list(nvcc_options or [])))
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def _cuda_load_module(self, ptx: bytes, kernel_names: list[str]) -> dict[str, FakeKernel]:
        self.loaded.append(ptx)
        if kernel_names != [FUNCTION]:
            raise RuntimeError("CUDA error: named symbol not found")
        return {name: FakeKernel(self.launches) for name in kernel_names}

    def _check_cuda(self, status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA error: status {status}")

    def _get_cuda_library(self) -> Any:
        return self.driver

    def _get_nvrtc_library(self) -> Any:
        return SimpleNamespace(nvrtcVersion=lambda major, minor: 0)


Written = Callable[..., HipKernel]


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeUtils:
    """A machine with an sm_90, an empty cache, and nothing loaded."""
    fake = FakeUtils()
    properties = SimpleNamespace(major=9, minor=0, shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch_gpu, "_load_utils", lambda: fake)
    monkeypatch.setattr(compiler, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    for name in (compiler.COMPILER, "ATTNPERF_HIP_OBJECTS"):
        monkeypatch.delenv(name, raising=False)
    return fake


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes k.hip and gives a kernel of it."""

    def write(source: str = SOURCE, lds_bytes: int = 0, **defines: str) -> HipKernel:
        (tmp_path / "k.hip").write_text(source)
        return HipKernel(str(tmp_path / "k.hip"), FUNCTION, 64, defines, lds_bytes)

    return write


def loaded_on_gpu(kernel: HipKernel) -> GpuKernel:
    """`load` for the GPU."""
    found = load(kernel, GPU)
    assert isinstance(found, GpuKernel)
    return found


def test_a_kernel_is_compiled_with_its_macros(utils: FakeUtils, written: Written) -> None:
    """The compiler gets one text with relative names, C++17, and the macros in the order of their names."""
    found = loaded_on_gpu(written(HEAD_DIM="64", CAUSAL="1"))
    ((source, function, options),) = utils.compiled
    assert source.startswith('extern "C" {}\n#line 1 "k.hip"\n#line 1 "kernels/hip/gpu.h"')
    assert function == FUNCTION
    assert options == ["-std=c++17", "-DCAUSAL=1", "-DHEAD_DIM=64", *compiler.NVRTC_ONLY]
    assert (found.loaded.data, found.loaded.static_lds_bytes, found.loaded.handle) == (CUBIN, STATIC_LDS, 4711)
    assert [parameter.name for parameter in found.parameters or ()] == ["x", "count"]


def test_what_one_architecture_has_is_compiled_for_it_alone(utils: FakeUtils, written: Written) -> None:
    """A kernel with instructions that later architectures lack is compiled for sm_90a, any other for the device."""
    loaded_on_gpu(written())
    loaded_on_gpu(replace(written(), specific=True))
    assert utils.capabilities == [None, "90a"]


def test_a_launch_has_blocks_threads_and_lds(utils: FakeUtils, written: Written) -> None:
    """What is called reaches torch's launch with the kernel's threads and its dynamic LDS."""
    found = loaded_on_gpu(written(lds_bytes=256))
    found.loaded.start((3, 2, 1), (5, 6))
    assert utils.launches == [((3, 2, 1), (64, 1, 1), [5, 6], 256)]
    assert not utils.attributes


def test_loading_again_gives_the_same(utils: FakeUtils, written: Written) -> None:
    """In one process a kernel is loaded once for each source, macros, launch size and device."""
    first = load(written(), GPU)
    assert load(written(), torch.device("cuda", 0)) is first
    others = [load(written(X="1"), GPU), load(written(lds_bytes=16), GPU), load(written(), torch.device("cuda", 1))]
    others.append(load(written(SOURCE + "// changed\n"), GPU))
    assert len({id(one) for one in (first, *others)}) == 5


def test_the_cache_is_used_by_the_next_process(
    utils: FakeUtils, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compiled is read from disk, and compiled again for other macros, another header or compiler."""
    load(written(), GPU)
    monkeypatch.setattr(compiler, "_loaded", {})
    assert loaded_on_gpu(written()).loaded.origin.startswith("cached, compiled by torch")
    assert len(utils.compiled) == 1
    load(written(X="1"), GPU)
    load(written('#define Y\n#include "gpu.h"\nKERNEL(64) reversed(int count) {}\n'), GPU)
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr(torch_gpu, "_rtc_version", lambda: "99.9")
    load(written(), GPU)
    assert len(utils.compiled) == 4
    assert utils.loaded == [CUBIN] * 5


def test_a_damaged_cache_is_compiled_again(
    utils: FakeUtils, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-written object of the cache counts as absent."""
    load(written(), GPU)
    (stored,) = (tmp_path / "cache").glob("*.object")
    stored.write_bytes(stored.read_bytes()[:100])
    monkeypatch.setattr(compiler, "_loaded", {})
    load(written(), GPU)
    assert len(utils.compiled) == 2


NVRTC_LOG = """Kernel compilation failed:
k.hip(1): warning #1: this is nothing
k.hip(2): error: identifier "nope" is undefined
  KERNEL(64) reversed(int count) { nope; }
                                   ^
"""


def test_a_compile_error_names_file_line_and_macros(utils: FakeUtils, written: Written, tmp_path: Path) -> None:
    """The message begins at the compiler's first error, with the macros behind it, and nothing is cached."""
    utils.made = RuntimeError(NVRTC_LOG)
    with pytest.raises(CodeObjectError) as raised:
        load(written(HEAD_DIM="64"), GPU)
    lines = str(raised.value).splitlines()
    assert lines[0] == "reversed in k.hip does not compile for sm_90:"
    assert lines[1] == 'k.hip(2): error: identifier "nope" is undefined'
    assert lines[-1].endswith("-DHEAD_DIM=64)")
    assert not (tmp_path / "cache").exists()


def test_ptx_is_linked_to_a_cubin(utils: FakeUtils, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch gives PTX (up to 2.11), what is loaded and known is the cubin that the driver makes of it."""
    linked: list[bytes] = []
    utils.made = "// PTX\n\0"
    monkeypatch.setattr(torch_gpu, "_link_ptx", lambda ptx: linked.append(ptx) or CUBIN)
    assert loaded_on_gpu(written()).loaded.data == CUBIN
    assert linked == [b"// PTX\n"]
    assert utils.loaded == [CUBIN]


def test_linking_calls_the_driver(utils: FakeUtils, monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX is handed to the driver as text, the cubin copied before it is freed, and a failure still frees."""
    seen: list[Any] = []
    buffer = ctypes.create_string_buffer(CUBIN, len(CUBIN))

    def complete(state: Any, cubin: Any, size: Any) -> int:
        cubin._obj.value, size._obj.value = ctypes.addressof(buffer), len(CUBIN)
        return utils.status

    utils.driver.cuLinkCreate_v2 = lambda count, options, values, state: seen.append((options[0], values[0])) or 0
    utils.driver.cuLinkAddData_v2 = lambda state, kind, text, size, *rest: seen.append((kind, text, size.value)) or 0
    utils.driver.cuLinkComplete = complete
    utils.driver.cuLinkDestroy = lambda state: seen.append("destroyed")
    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    assert torch_gpu._link_ptx(b"ptx") == CUBIN
    assert seen == [(13, 1), (1, b"ptx\0", 4), "destroyed"]
    utils.status = 218
    with pytest.raises(RuntimeError, match="status 218"):
        torch_gpu._link_ptx(b"ptx")
    assert seen.count("destroyed") == 2


def test_much_lds_is_announced(utils: FakeUtils, written: Written) -> None:
    """From 48 KiB on NVIDIA's driver is told, and a refusal says how much was asked for."""
    load(written(lds_bytes=49152), GPU)
    assert utils.attributes == [(8, 49152)]
    utils.status = 1
    with pytest.raises(CodeObjectError, match=r"cannot be loaded on this sm_90, with 65536 bytes of LDS .* status 1"):
        load(written(lds_bytes=65536), GPU)


def test_lds_beyond_the_device_is_refused(utils: FakeUtils, written: Written) -> None:
    """More than the device has is refused before anything is compiled; with the kernel's own, before it is launched."""
    with pytest.raises(UsageError, match="a workgroup of sm_90 may have 0 to 232448"):
        load(written(lds_bytes=232449), GPU)
    assert not utils.compiled
    with pytest.raises(UsageError, match=r"asks for 233472 bytes of LDS \(232448 of them"):
        load(written(lds_bytes=232448), GPU)


def test_amd_announces_no_lds(utils: FakeUtils, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gfx950 with its features in its name may use 160 KiB: nothing is asked of the driver, torch's check is met."""
    monkeypatch.setattr(torch.version, "hip", "7.1")
    properties = SimpleNamespace(gcnArchName="gfx950:sramecc+:xnack-")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    kernel = FakeKernel([])
    torch_gpu.allow_dynamic_lds(kernel, 160 * 1024)
    assert (kernel._max_shared_mem_bytes, utils.attributes) == (160 * 1024, [])
    assert compiler._lds_limit(GPU, "gfx950") == 160 * 1024
    assert compiler._lds_limit(GPU, "gfx942") == 64 * 1024


def test_another_signature_is_named(utils: FakeUtils, written: Written) -> None:
    """A torch whose compiler takes no options is refused with what it takes and the way out."""
    utils._nvrtc_compile = lambda kernel_source, kernel_name, flags: None  # type: ignore[method-assign, assignment]
    with pytest.raises(CodeObjectError, match="takes no nvcc_options but kernel_source, kernel_name, flags; set"):
        load(written(), GPU)


@pytest.mark.parametrize("forced", [True, False])
def test_the_extension_is_used(
    utils: FakeUtils, written: Written, monkeypatch: pytest.MonkeyPatch, *, forced: bool
) -> None:
    """Where it is asked for, and where torch lacks the private functions."""
    built = LoadedObject(lambda grid, arguments: None, origin="built as an extension")
    monkeypatch.setattr(extension, "build_extension", lambda kernel, text, arch: built)
    if forced:
        monkeypatch.setenv(compiler.COMPILER, "extension")
    else:
        monkeypatch.setattr(torch_gpu, "NEEDED", ("_nvrtc_compile", "_absent"))
    assert loaded_on_gpu(written()).loaded is built
    assert not utils.compiled


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("nvcc", "ATTNPERF_HIP_COMPILER='nvcc' must be 'rtc' or 'extension'"),
        ("rtc", "=rtc, but this torch has no torch.cud"),
    ],
)
def test_a_way_that_is_not_there(
    utils: FakeUtils, written: Written, monkeypatch: pytest.MonkeyPatch, way: str, message: str
) -> None:
    """An unknown way, and one that this torch cannot go, are errors."""
    monkeypatch.setenv(compiler.COMPILER, way)
    monkeypatch.setattr(torch_gpu, "NEEDED", ("_absent",))
    with pytest.raises(UsageError, match=message):
        load(written(), GPU)


def test_a_kernel_that_is_not_in_the_object(utils: FakeUtils, written: Written) -> None:
    """A function that the object does not hold is named, with what the driver says."""
    kernel = HipKernel(written().file, "absent", 64)
    with pytest.raises(
        CodeObjectError, match=r"absent of k\.hip .* cannot be loaded on this sm_90.*named symbol not found"
    ):
        load(kernel, GPU)


def test_this_torch_has_what_is_needed() -> None:
    """The installed torch has every private function that is used, and its compiler takes the options."""
    assert torch_gpu.list_missing() == []
    utils: Any = importlib.import_module("torch.cuda._utils")
    assert {"kernel_source", "kernel_name", "nvcc_options"} <= set(utils._nvrtc_compile.__annotations__)


def test_on_a_cpu_the_emulator_runs(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU `load` gives what the emulator loads."""
    monkeypatch.setattr(emulator, "load", lambda kernel: ("emulated", kernel))
    kernel = written()
    assert load(kernel, torch.device("cpu")) == ("emulated", kernel)

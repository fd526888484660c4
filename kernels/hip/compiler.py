"""`load`: makes a callable kernel for a device from a HIP source; BUILD.md describes it.

On a GPU it takes a prebuilt object (ATTNPERF_HIP_OBJECTS), one from the disk cache, or compiles with torch's runtime
compiler (hipRTC, NVRTC). Where this torch cannot do that, it builds a C++ extension. On a CPU the emulator runs the
same source, or an interpreter its machine code.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kernels.hip import emulator, prebuilt
from kernels.hip.builds import make_source
from kernels.hip.faces import arch_of
from kernels.hip.kernel_source import (
    ROOT,
    STANDARD,
    compile_message,
    defines_of,
    flatten_includes,
    format_path,
    parse_parameters,
)
from kernels.hip.missing import COMPILER, missing_hip
from kernels.hip.sources import HipKernel
from pytest_attnperf.codeobject.object_cache import ObjectCache, cache_key
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.measure.executing import current_executor, executing_arch

if TYPE_CHECKING:
    import torch

    from kernels.hip.launching import LoadedObject

__all__ = ["LaunchableKernel", "load", "missing_hip"]

CHOICES = ("", "rtc", "extension")
CACHE = ROOT / ".attnperf" / "cache" / "compiled"
NVRTC_ONLY = ("--generate-line-info", "--device-as-default-execution-space")
"""Options for a line table and for `constexpr` functions without annotation, which clang and nvcc accept by default.
hipRTC gets no line table option, because that was never tried."""


class LaunchableKernel(Protocol):
    """A kernel that can be launched."""

    def __call__(self, grid: tuple[int, int, int], *arguments: torch.Tensor | int) -> None:
        """Launches the kernel on `grid` workgroups in x, y and z. On a GPU it does not wait for the end."""


_loaded: dict[tuple[str, ...], LaunchableKernel] = {}


def load(kernel: HipKernel, device: torch.device) -> LaunchableKernel:
    """Returns the kernel as a callable for a device, compiled if necessary; the same object while source, macros and
    environment stay equal.

    Raises CodeObjectError where it does not compile or load, UsageError where its workgroup or its LDS exceed what the
    device allows, and for an invalid environment variable.
    """
    if device.type == "cpu":
        return load_executed(kernel, device) if executing_arch() else emulator.load(kernel)
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    text = flatten_includes(kernel.path)
    identity = (
        text,
        kernel.function,
        *defines_of(kernel),
        f"{kernel.threads} {kernel.lds_bytes} {index} {kernel.specific}",
    )
    key = (*identity, os.environ.get(COMPILER, ""), os.environ.get(prebuilt.OBJECTS, ""))
    if key not in _loaded:
        with torch.cuda.device(index):
            _loaded[key] = _load_on_gpu(kernel, text, torch.device("cuda", index))
    return _loaded[key]


def load_executed(kernel: HipKernel, device: torch.device) -> LaunchableKernel:
    """Returns the kernel as a callable for CPU tensors that launches its machine code through this process's executor.
    Raises UsageError where its workgroup or its LDS exceed what the executed architecture allows."""
    from kernels.hip.launching import ExecutedKernel, LoadedObject, check_lds, check_threads
    from pytest_attnperf.codeobject.arch import lds_limit_bytes

    check_threads(kernel)
    arch = executing_arch()
    check_lds(kernel, 0, lds_limit_bytes(arch), arch)
    source = make_source(kernel)

    def start_kernel(grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        current_executor().launch_source(source, kernel.function, grid, arguments)

    loaded = LoadedObject(start_kernel, origin=f"compiled for {arch}")
    return ExecutedKernel(kernel, device, loaded, parse_parameters(flatten_includes(kernel.path), kernel.function))


def _load_on_gpu(kernel: HipKernel, text: str, device: torch.device) -> LaunchableKernel:
    from kernels.hip.launching import GpuKernel, check_lds, check_threads

    check_threads(kernel)
    arch = arch_of(device)
    limit = _lds_limit(device, arch)
    check_lds(kernel, 0, limit, arch)
    found = _load_object(kernel, text, arch, limit)
    return GpuKernel(kernel, device, found, parse_parameters(text, kernel.function))


def _load_object(kernel: HipKernel, text: str, arch: str, lds_limit: int) -> LoadedObject:
    """Compiles or finds the kernel as ATTNPERF_HIP_COMPILER and ATTNPERF_HIP_OBJECTS say, and loads it on the current
    device. `lds_limit` is in bytes. Raises UsageError for an impossible setting, CodeObjectError if that fails."""
    from kernels.hip import extension, torch_gpu

    way = os.environ.get(COMPILER, "")
    if way not in CHOICES:
        raise UsageError(f"{COMPILER}={way!r} must be 'rtc' or 'extension', or unset")
    lacking = torch_gpu.list_missing()
    if way == "rtc" and lacking:
        raise UsageError(f"{COMPILER}=rtc, but this torch has no {', '.join(lacking)}; set {COMPILER}=extension")
    if way == "extension" or lacking:
        return extension.build_extension(kernel, text, arch)
    ready = prebuilt.find_prebuilt(kernel, arch, os.environ)
    if ready is not None:
        return _load_on_device(kernel, ready.data, arch, f"prebuilt {ready.path.name}", lds_limit)
    data, origin = compile_kernel(kernel, text, arch)
    return _load_on_device(kernel, data, arch, origin, lds_limit)


def compile_kernel(kernel: HipKernel, text: str, arch: str) -> tuple[bytes, str]:
    """Returns (the object for the current device, its origin in words: cached or compiled now, by which versions).

    Raises CodeObjectError with the compiler's first error where it does not compile.
    """
    from kernels.hip import torch_gpu

    version = torch_gpu.compiler_version()
    target = f"{arch}a" if kernel.specific else arch
    options = [STANDARD, *defines_of(kernel), *(() if torch_gpu.is_hip() else NVRTC_ONLY)]
    cache = ObjectCache(CACHE)
    key = cache_key("hip-rtc", version, target, kernel.function, *options, text)
    data = cache.load(key)
    if data is not None:
        return data, f"cached, compiled by {version}"
    try:
        data = torch_gpu.compile_object(text, kernel.function, options, target if kernel.specific else "")
    except (RuntimeError, OSError) as error:
        raise CodeObjectError(compile_message(kernel, arch, str(error), version)) from error
    cache.store(key, data)
    return data, f"compiled by {version}"


def _load_on_device(kernel: HipKernel, data: bytes, arch: str, origin: str, lds_limit: int) -> LoadedObject:
    """Loads an object on the current device. Raises CodeObjectError if refused, UsageError for too much LDS."""
    from kernels.hip import torch_gpu
    from kernels.hip.launching import LoadedObject, check_lds

    try:
        function = torch_gpu.load_function(data, kernel.function)
        static = torch_gpu.static_lds_bytes(function)
        check_lds(kernel, static, lds_limit, arch)
        torch_gpu.allow_dynamic_lds(function, kernel.lds_bytes)
    except RuntimeError as error:
        raise CodeObjectError(
            f"{kernel.function} of {format_path(kernel.path)} ({origin}) cannot be loaded on this {arch}, with "
            f"{kernel.lds_bytes} bytes of LDS by its launch: {error}"
        ) from error

    def start_kernel(grid: tuple[int, int, int], arguments: Sequence[object]) -> None:
        torch_gpu.launch_function(function, grid, kernel.threads, arguments, kernel.lds_bytes)

    known = data if data.startswith(torch_gpu.ELF) else b""
    return LoadedObject(start_kernel, known, static, torch_gpu.handle_of(function), origin)


def _lds_limit(device: torch.device, arch: str) -> int:
    """Returns the most LDS bytes of a workgroup: from torch on NVIDIA, else from a table of architectures."""
    from kernels.hip import torch_gpu
    from pytest_attnperf.codeobject.arch import lds_limit_bytes

    said = torch_gpu.lds_limit_bytes(device)
    return lds_limit_bytes(arch) if said is None else said

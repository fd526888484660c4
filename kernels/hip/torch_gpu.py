"""Compiles, loads and launches kernels through torch's private API. No other module of this project uses that API.

Read from torch 2.8 to 2.13. `_nvrtc_compile` calls NVRTC in a CUDA build and hipRTC in a ROCm one. Depending on the
version it returns PTX or a cubin; the bytes show which.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import CodeObjectError

if TYPE_CHECKING:
    import torch

NEEDED = ("_nvrtc_compile", "_cuda_load_module", "_CudaKernel")
ELF = b"\x7fELF"

LINKED_FROM_PTX = 1
GENERATE_LINE_INFO = 13
STATIC_SHARED_SIZE = 1
MAX_DYNAMIC_SHARED_SIZE = 8
"""cuda.h: CU_JIT_INPUT_PTX, CU_JIT_GENERATE_LINE_INFO, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES and
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; hip_runtime_api.h gives the first attribute the same number."""

OPT_IN_BYTES = 48 * 1024
"""From this size on NVIDIA requires a kernel's dynamic shared memory to be announced; AMD never does."""


def is_hip() -> bool:
    """Returns whether this torch is a ROCm build."""
    import torch

    return torch.version.hip is not None


def list_missing() -> list[str]:
    """Returns the names of the private functions that this torch lacks; if any, its runtime compiler cannot be used."""
    utils = _load_utils()
    needed = (*NEEDED, *(("_get_gpu_rtc_library", "_get_gpu_runtime_library") if is_hip() else ()))
    return [f"torch.cuda._utils.{name}" for name in needed if not hasattr(utils, name)]


def compile_object(source: str, function: str, options: Sequence[str], arch: str = "") -> bytes:
    """Returns `source` compiled for `arch`, e.g. 'sm_90a', or the current device, as ELF. Raises RuntimeError with the
    compiler's messages.

    torch 2.8 inserts text before a source that does not begin with `extern "C"`, which would break the line directives.
    So the source begins with an empty `extern "C"` block.
    """
    compiler = _load_utils()._nvrtc_compile
    known = inspect.signature(compiler).parameters
    if "nvcc_options" not in known:
        raise CodeObjectError(
            f"torch.cuda._utils._nvrtc_compile takes no nvcc_options but {', '.join(known)}; "
            "set ATTNPERF_HIP_COMPILER=extension"
        )
    with _include_folder():
        capability = {"compute_capability": arch.removeprefix("sm_")} if arch else {}
        made = compiler(f'extern "C" {{}}\n{source}', function, nvcc_options=[*options], **capability)
    code = made[0] if isinstance(made, tuple) else made
    data = code.encode() if isinstance(code, str) else bytes(code)
    return data if data.startswith(ELF) else _link_ptx(data.rstrip(b"\0"))


def load_function(data: bytes, function: str) -> Any:
    """Returns the kernel `function` of a code object, loaded on the current device. Raises RuntimeError where the
    driver refuses it."""
    return _load_utils()._cuda_load_module(data, [function])[function]


def static_lds_bytes(kernel: Any) -> int:
    """Returns the static LDS (shared memory) bytes of a loaded kernel. Raises RuntimeError where the driver fails."""
    size, driver = ctypes.c_int(), _load_driver()
    get = driver.hipFuncGetAttribute if is_hip() else driver.cuFuncGetAttribute
    _check_status(get(ctypes.byref(size), STATIC_SHARED_SIZE, kernel.func))
    return size.value


def allow_dynamic_lds(kernel: Any, size_bytes: int) -> None:
    """Allows launches of a loaded kernel `size_bytes` of dynamic shared memory. Raises RuntimeError where the driver
    refuses it.

    This replaces torch's own method, which compares AMD's architecture name, with feature suffixes, to 'gfx950', and
    allows others 64 KiB.
    """
    if size_bytes < OPT_IN_BYTES:
        return
    if not is_hip():
        _check_status(_load_driver().cuFuncSetAttribute(kernel.func, MAX_DYNAMIC_SHARED_SIZE, size_bytes))
    kernel._max_shared_mem_bytes = size_bytes


def launch_function(kernel: Any, grid: Sequence[int], threads: int, arguments: Sequence[Any], lds_bytes: int) -> None:
    """Launches a loaded kernel on torch's current stream, without waiting, with `grid` workgroups in x, y and z of
    `threads` threads each."""
    kernel(tuple(grid), (threads, 1, 1), [*arguments], lds_bytes)


def handle_of(kernel: Any) -> int:
    """Returns the driver's handle of a loaded kernel; 0 if it has none."""
    return int(kernel.func.value or 0)


def lds_limit_bytes(device: torch.device) -> int | None:
    """Returns the most shared memory of a block in bytes on NVIDIA; None on AMD and where torch does not say."""
    import torch

    limit = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", None)
    return None if limit is None or is_hip() else int(limit)


def compiler_version() -> str:
    """Returns as text the versions that compiling depends on: torch, its toolkit, the runtime compiler, NVIDIA's
    driver."""
    import torch

    parts = [f"torch {torch.__version__}"]
    parts.append(f"ROCm {torch.version.hip}" if is_hip() else f"CUDA {torch.version.cuda}")
    parts.append(f"{'hipRTC' if is_hip() else 'NVRTC'} {_rtc_version()}")
    return ", ".join([*parts, *([] if is_hip() else [f"driver {_driver_version()}"])])


def _rtc_version() -> str:
    utils = _load_utils()
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        if is_hip():
            failed = utils._get_gpu_rtc_library().hiprtcVersion(ctypes.byref(major), ctypes.byref(minor))
        else:
            failed = utils._get_nvrtc_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    except (OSError, AttributeError):
        return "of an unknown version"
    return "of an unknown version" if failed else f"{major.value}.{minor.value}"


def _driver_version() -> int:
    version = ctypes.c_int()
    _check_status(_load_driver().cuDriverGetVersion(ctypes.byref(version)))
    return version.value


def _link_ptx(ptx: bytes) -> bytes:
    """Returns the cubin that the driver makes of PTX for the current device, with its line table. Raises RuntimeError.

    Loading PTX would make the same cubin but not return it; linking here makes the code that runs known.
    """
    import torch

    torch.cuda.current_stream().synchronize()  # makes the device's context current
    driver = _load_driver()
    state, cubin, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    options, values = (ctypes.c_int * 1)(GENERATE_LINE_INFO), (ctypes.c_void_p * 1)(1)
    _check_status(driver.cuLinkCreate_v2(1, options, values, ctypes.byref(state)))
    try:
        text = ptx + b"\0"
        added = (state, LINKED_FROM_PTX, text, ctypes.c_size_t(len(text)), b"kernel.ptx", 0, None, None)
        _check_status(driver.cuLinkAddData_v2(*added))
        _check_status(driver.cuLinkComplete(state, ctypes.byref(cubin), ctypes.byref(size)))
        return ctypes.string_at(cubin.value or 0, size.value)
    finally:
        driver.cuLinkDestroy(state)


@contextmanager
def _include_folder() -> Iterator[None]:
    """Sets a toolkit folder for `_nvrtc_compile` while the block runs, if torch has none: it raises without one,
    although our sources include nothing."""
    extension: Any = importlib.import_module("torch.utils.cpp_extension")
    before = extension.CUDA_HOME
    if before is None:  # a ROCm build without a ROCm folder asks for it too
        extension.CUDA_HOME = os.path.dirname(__file__)
    try:
        yield
    finally:
        extension.CUDA_HOME = before


def _check_status(status: int) -> None:
    _load_utils()._check_cuda(status)


def _load_driver() -> Any:
    utils = _load_utils()
    return utils._get_gpu_runtime_library() if hasattr(utils, "_get_gpu_runtime_library") else utils._get_cuda_library()


def _load_utils() -> Any:
    return importlib.import_module("torch.cuda._utils")

"""A kernel as a C++ extension of torch: slow to build, but through torch's public API only.

Used where torch lacks the private functions of `torch_gpu` (before 2.8; before 2.9 on ROCm), or with
ATTNPERF_HIP_COMPILER=extension. Needs nvcc or hipcc, and a C++ compiler. The object is inside the extension, so the
record of a case cannot say which code ran.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from kernels.hip.kernel_source import STANDARD, compile_message, defines_of
from kernels.hip.launching import Grid, LoadedObject
from kernels.hip.sources import HipKernel
from pytest_attnperf.codeobject.object_cache import cache_key
from pytest_attnperf.errors import CodeObjectError

NAME_DIGITS = 16

DECLARATION = (
    "#include <cstdint>\n#include <vector>\n"
    "void launch(std::vector<int64_t> values, std::vector<int64_t> is_pointer, std::vector<int64_t> grid, "
    "int64_t stream);\n"
)

LAUNCHER = """
#if defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define GPU(NAME) hip##NAME
#else
#include <cuda_runtime.h>
#define GPU(NAME) cuda##NAME
#endif
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__HIP__) && !defined(__HIP_DEVICE_COMPILE__)
extern "C" __global__ void FUNCTION() {}  // the host's stand-in: the kernel's own text is the device's only
#else
SOURCE
#endif

static void checked(GPU(Error_t) status) {
    if (status != GPU(Success)) throw std::runtime_error(GPU(GetErrorString)(status));
}

void launch(std::vector<int64_t> values, std::vector<int64_t> is_pointer, std::vector<int64_t> grid, int64_t stream) {
    std::vector<void*> pointers(values.size());
    std::vector<int> integers(values.size());
    std::vector<void*> arguments(values.size());
    for (size_t place = 0; place < values.size(); ++place) {
        pointers[place] = reinterpret_cast<void*>(values[place]);
        integers[place] = static_cast<int>(values[place]);
        arguments[place] = is_pointer[place] ? static_cast<void*>(&pointers[place]) : &integers[place];
    }
    const void* kernel = reinterpret_cast<const void*>(&FUNCTION);
#if !defined(__HIP__)
    checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, LDS_BYTES));
#endif
    const dim3 blocks(grid[0], grid[1], grid[2]), threads(THREADS_OF_BLOCK, 1, 1);
    checked(GPU(LaunchKernel)(kernel, blocks, threads, arguments.data(), LDS_BYTES,
                              reinterpret_cast<GPU(Stream_t)>(stream)));
}
"""


def build_extension(kernel: HipKernel, text: str, arch: str) -> LoadedObject:
    """Returns the kernel in a C++ extension of torch, built for the visible devices or loaded from torch's folder of
    extensions.

    Raises CodeObjectError with the build's messages.
    """
    target = arch.removeprefix("sm_")
    specific = [f"-gencode=arch=compute_{target}a,code={arch}a"] if kernel.specific else []
    options = [STANDARD, "-O3", *defines_of(kernel), *specific]
    name = f"attnperf_hip_{cache_key(render_program(kernel, text), arch, *options)[:NAME_DIGITS]}"
    try:
        module = _load_inline(name, render_program(kernel, text), options)
    except (RuntimeError, OSError, ImportError) as error:
        raise CodeObjectError(compile_message(kernel, arch, str(error), "built as an extension")) from error

    def start_kernel(grid: Grid, arguments: Sequence[Any]) -> None:
        import torch

        tensors = [isinstance(argument, torch.Tensor) for argument in arguments]
        values = [one.data_ptr() if isinstance(one, torch.Tensor) else one for one in arguments]
        module.launch(values, tensors, list(grid), torch.cuda.current_stream().cuda_stream)

    return LoadedObject(start_kernel, origin="built as an extension")


def render_program(kernel: HipKernel, text: str) -> str:
    """Returns the device source of the extension: the kernel's text, and a function that launches it."""
    filled = LAUNCHER.replace("FUNCTION", kernel.function).replace("THREADS_OF_BLOCK", str(kernel.threads))
    return filled.replace("LDS_BYTES", str(kernel.lds_bytes)).replace("SOURCE", f'{text}\n#line 1 "launcher"')


def _load_inline(name: str, source: str, options: list[str]) -> Any:
    load_inline: Any = importlib.import_module("torch.utils.cpp_extension").load_inline
    known = inspect.signature(load_inline).parameters
    leaner = {"no_implicit_headers": True} if "no_implicit_headers" in known else {}
    return load_inline(
        name=name,
        cpp_sources=[_render_headers(bool(leaner)) + DECLARATION],
        cuda_sources=[source],
        functions=["launch"],
        extra_cuda_cflags=options,
        with_cuda=True,
        **leaner,
    )


def _render_headers(needed: bool) -> str:
    """Returns the #include of torch's Python bindings if `needed`, because torch does not add it itself; else ''."""
    return "#include <torch/extension.h>\n" if needed else ""

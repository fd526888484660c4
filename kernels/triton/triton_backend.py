"""Shared by the Triton backends: their requirements, and compiling before timing.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.configs import ConfigChoice, KernelConfigError, Space
from pytest_attnperf.measure.executing import executing_arch

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

INTERPRETER = "interpreter"
"""The name that configuration files have for Triton's interpreter on a CPU."""

INTERPRETER_FLOPS_MAX = 6e7
"""Floating-point operations that Triton's interpreter does in about a second, in tiles of 32 x 32."""

INTERPRETER_ROWS_FLOPS_MAX = 5e6
"""The same for a kernel that mostly moves data: a million elements in tiles of a few rows."""


def missing_triton(device: DeviceInfo) -> list[str]:
    """Returns why no Triton kernel can run here: missing Triton or, without a GPU, its interpreter. Else empty."""
    found = []
    if importlib.util.find_spec("triton") is None:
        found.append("triton is not installed")
    if device.kind == "cpu" and not device.interpreted:
        found.append("Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported")
    return found


def compile_ahead(call: Callable[..., Any], tensors: Tensors, space: Space, choice: ConfigChoice) -> None:
    """Calls `call` once if the tensors are on a GPU, so that nothing is compiled while timing; does nothing on a CPU.

    Raises KernelConfigError before the launch for a configuration that needs more shared memory, or other resources,
    than the device has.
    """
    if not tensors[0].is_cuda:
        return
    from triton.runtime.errors import OutOfResources

    try:
        call(*tensors)
    except OutOfResources as error:
        settings = ", ".join(f"{name}={value}" for name, value in choice.config.items())
        raise KernelConfigError(
            f"{space.config_path(choice.arch)}: {space.kernel} with {settings} needs {error.required} of "
            f"{error.name}, and "
            f"this device has {error.limit}; take smaller tiles or fewer stages"
        ) from error


def config_arch(device: DeviceInfo) -> str:
    """Returns what `arch_of` does, for the device of a run: its architecture, or 'interpreter' for a CPU."""
    return INTERPRETER if device.kind == "cpu" else device.arch


def count_multiprocessors(device: torch.device) -> int:
    """Returns the device's multiprocessors (AMD's compute units); 3 for a CPU, so that a persistent grid of small
    problems has several items per program."""
    import torch

    return 3 if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


def is_interpreted(tensor: torch.Tensor) -> bool:
    """Returns whether Triton's interpreter runs a kernel on this tensor: not on a GPU, and not if the process executes
    machine code. Its products of narrow floats need wider operands, see `kernels.triton.primitives.dot`."""
    return not tensor.is_cuda and not executing_arch()


def arch_of(device: torch.device) -> str:
    """Returns the device's name in configuration files: e.g. 'sm_90' or 'gfx942'; for a CPU the architecture whose
    machine code is executed, or 'interpreter'."""
    import torch

    if device.type == "cpu":
        return executing_arch() or INTERPRETER
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).split(":", maxsplit=1)[0]
    return f"sm_{properties.major}{properties.minor}"

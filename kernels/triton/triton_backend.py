"""What the Triton backends share: what they need, and the compile before timing.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.configs import ConfigChoice, KernelConfigError, Space

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

INTERPRETER_FLOPS_MAX = 6e7
"""Triton's interpreter takes about a second for this much, in tiles of 32 x 32."""

INTERPRETER_ROWS_FLOPS_MAX = 5e6
"""And for this much of a kernel that mostly moves data: a million elements in tiles of a few rows."""


def missing_triton(device: DeviceInfo) -> list[str]:
    """Why no Triton kernel can run here: Triton is needed and, without a GPU, its interpreter."""
    found = []
    if importlib.util.find_spec("triton") is None:
        found.append("triton is not installed")
    if device.kind == "cpu" and not device.interpreted:
        found.append("Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported")
    return found


def compile_ahead(call: Callable[..., Any], tensors: Tensors, space: Space, choice: ConfigChoice) -> None:
    """Run once on a GPU, so that nothing is compiled while timing; does nothing without one.

    Raises KernelConfigError for a configuration that asks for more shared memory, or other resources, than the device
    has, before anything is launched.
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


def arch_of(device: torch.device) -> str:
    """The name of the configuration files: sm_90, gfx942, or 'interpreter' where there is no GPU."""
    import torch

    if device.type == "cpu":
        return "interpreter"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).split(":", maxsplit=1)[0]
    return f"sm_{properties.major}{properties.minor}"

"""Replaces Triton's GPU driver in a process that interprets kernels; it does not pretend to be a GPU.

Libraries ask Triton's active driver for its target when they are imported, and for the device when they launch. Without
a GPU Triton has no driver and raises `0 active drivers`. This driver answers what an interpreter can. For all else it
raises NeedsGpuError, which marks a case that needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_attnperf.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

ARCH = "interpreter"

PROPERTIES = {"multiprocessor_count": 1, "warpSize": 1}
"""The interpreter runs one program of a grid at a time and has no warps."""


class NeedsGpuError(UnsupportedError, RuntimeError):
    """Interpreted code used something that only a GPU's driver or compiler has.

    It is a RuntimeError, too, because Triton raises that without a driver, and libraries catch it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was requested, but only a GPU has it")


class Properties(dict[str, int]):
    """Properties of the device, in the form of Triton's drivers."""

    def __missing__(self, name: str) -> NoReturn:
        """Raises NeedsGpuError that names the property."""
        raise NeedsGpuError(f"{name!r} of the device's properties (an interpreter has {', '.join(self)})")


class _Absent:
    """An object without attributes: every access raises NeedsGpuError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        """Raises NeedsGpuError, but AttributeError for names that Python itself looks up."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsGpuError(f"{self._what}.{name}")


class NotCompiled(_Absent):
    """What a warm-up of an interpreted kernel returns instead of the compiled kernel."""

    def __init__(self, kernel: str) -> None:
        super().__init__(f"the compiled kernel {kernel}")


class InterpreterUtils(_Absent):
    """Replaces `driver.active.utils`."""

    def __init__(self) -> None:
        super().__init__("triton.runtime.driver.active.utils")

    def get_device_properties(self, device: int = 0) -> Properties:
        """Returns 1 multiprocessor and a warp size of 1; asking for another property raises NeedsGpuError."""
        return Properties(PROPERTIES)


class InterpreterDriver(_Absent):
    """Replaces `triton.runtime.driver.active`; its target is `cpu` with the architecture `interpreter`."""

    def __init__(self) -> None:
        super().__init__("triton.runtime.driver.active")
        self.utils = InterpreterUtils()

    def get_current_target(self) -> Any:
        """Returns Triton's GPUTarget with backend 'cpu', architecture 'interpreter' and warp size 1."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", ARCH, 1)

    def get_active_torch_device(self) -> torch.device:
        """Returns the CPU, where the tensors are."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Returns 0, the number of the only device."""
        return 0

    def get_benchmarker(self) -> Callable[..., Any]:
        """Returns a function that refuses to time; autotuners up to Triton 3.2 request it when they are made."""
        return _no_benchmark


def activate_interpreter(config: Any) -> Any:
    """Makes an InterpreterDriver the active driver of `config`, Triton's DriverConfig, and returns `config`."""
    config.set_active(InterpreterDriver())
    return config


def _no_benchmark(*args: Any, **kwargs: Any) -> NoReturn:
    raise NeedsGpuError("a benchmark")

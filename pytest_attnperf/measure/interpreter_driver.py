"""What stands where Triton's driver of a GPU would, in a process that interprets: it says so, and claims no GPU.

Libraries ask Triton's active driver for its target when they are imported, and for the device when they launch. Without
a GPU Triton has none and raises `0 active drivers`. What an interpreter has is answered here; whatever only a GPU has
raises NeedsGpuError, by which such a case is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_attnperf.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

ARCH = "interpreter"

PROPERTIES = {"multiprocessor_count": 1, "warpSize": 1}
"""The interpreter runs one program of a grid at a time, and knows no warps."""


class NeedsGpuError(UnsupportedError, RuntimeError):
    """A GPU's driver or compiler was asked for where kernels are interpreted.

    A RuntimeError, too: that is what Triton raises without a driver, and what libraries look out for.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was asked for, which only a GPU has")


class Properties(dict[str, int]):
    """Properties of the device, as Triton's drivers give them."""

    def __missing__(self, name: str) -> NoReturn:
        """Raise NeedsGpuError."""
        raise NeedsGpuError(f"{name!r} of the device's properties (an interpreter has {', '.join(self)})")


class _Absent:
    """Has no attribute: each that is asked for raises NeedsGpuError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        """Raise NeedsGpuError, and AttributeError for what Python itself looks for."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsGpuError(f"{self._what}.{name}")


class NotCompiled(_Absent):
    """What a warm-up of an interpreted kernel gives in place of the compiled kernel."""

    def __init__(self, kernel: str) -> None:
        super().__init__(f"the compiled kernel {kernel}")


class InterpreterUtils(_Absent):
    """`driver.active.utils`."""

    def __init__(self) -> None:
        super().__init__("triton.runtime.driver.active.utils")

    def get_device_properties(self, device: int = 0) -> Properties:
        """Say what an interpreter has."""
        return Properties(PROPERTIES)


class InterpreterDriver(_Absent):
    """`triton.runtime.driver.active`; of the target `cpu`, whose architecture is `interpreter`."""

    def __init__(self) -> None:
        super().__init__("triton.runtime.driver.active")
        self.utils = InterpreterUtils()

    def get_current_target(self) -> Any:
        """Name the interpreter as Triton names a GPU."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", ARCH, 1)

    def get_active_torch_device(self) -> torch.device:
        """Name the CPU: tensors lie there."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Number the only device."""
        return 0

    def get_benchmarker(self) -> Callable[..., Any]:
        """Give what refuses to time; autotuners up to Triton 3.2 ask for it when they are made."""
        return _no_benchmark


def activate_interpreter(config: Any) -> Any:
    """Make an interpreter the active driver of Triton's `DriverConfig`."""
    config.set_active(InterpreterDriver())
    return config


def _no_benchmark(*args: Any, **kwargs: Any) -> NoReturn:
    raise NeedsGpuError("a benchmark")

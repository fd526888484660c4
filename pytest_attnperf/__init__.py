"""pytest-attnperf: proves attention kernels right, times them, and gates pull requests on both.

The names of `__all__` are what test suites annotate with and call. Each is imported when it is first used, so that
`import pytest_attnperf` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Declares, Prepared, Registry
    from pytest_attnperf.correctness import assert_within_budget
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.measure.gpu_timer import TimerResult
    from pytest_attnperf.measure.tensor_launch import execute
    from pytest_attnperf.plugin.fixtures import CaseHandle, CodeObjectHandle, TimerFunction
    from pytest_attnperf.records import DeviceInfo, Samples, Tolerance, Verdict
    from pytest_attnperf.results import CaseResult, RunResult

__version__ = "0.2.0"
__all__ = [
    "Backend",
    "CaseHandle",
    "CaseResult",
    "CodeObjectHandle",
    "Declares",
    "DeviceInfo",
    "KernelBuild",
    "Prepared",
    "Registry",
    "RunResult",
    "Samples",
    "TimerFunction",
    "TimerResult",
    "Tolerance",
    "Verdict",
    "__version__",
    "assert_within_budget",
    "execute",
]

_PLACES = {
    "backends": ("Backend", "Declares", "Prepared", "Registry"),
    "correctness": ("assert_within_budget",),
    "kernel_builds": ("KernelBuild",),
    "plugin.fixtures": ("CaseHandle", "CodeObjectHandle", "TimerFunction"),
    "records": ("DeviceInfo", "Samples", "Tolerance", "Verdict"),
    "results": ("CaseResult", "RunResult"),
    "measure.gpu_timer": ("TimerResult",),
    "measure.tensor_launch": ("execute",),
}
"""Module -> the names of `__all__` that it defines."""


def __getattr__(name: str) -> Any:
    """Imports and returns an exported name. Raises AttributeError for any other."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it exports {', '.join(__all__)}")

"""Makes a `Prepared` from one aiter function that has one implementation: calls it once and watches what runs.

For functions that aiter's dispatchers call, or that have none. Never run on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernels.aiter.importing import environment_entries, import_aiter
from kernels.aiter.package import missing_aiter, version_entries
from kernels.aiter.paths import LOW_LEVEL
from kernels.aiter.signatures import match_arguments
from kernels.layouts import own_copies
from pytest_attnperf.backends import Declares, Prepared

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload

__all__ = ["Direct", "Function", "device_reasons", "prepare_direct"]


@dataclass(frozen=True)
class Function:
    """A function of aiter, looked up in its module at every call, so that a run can be watched.

    module, name    where it was imported from
    path            what a call of it runs, e.g. 'triton'
    """

    module: ModuleType
    name: str
    path: str

    @classmethod
    def import_named(cls, module: str, name: str, path: str, old: str = "") -> Function:
        """Returns the function `name` of an aiter module; `old` is that module in earlier versions. Raises
        UnsupportedError where aiter or the function cannot be imported."""
        import_aiter(module, name, old=old)
        return cls(import_aiter(module, old=old), name, path)

    def bind_tensors(
        self, tensors: tuple[str, ...], fixed: Mapping[str, object], optional: Mapping[str, object] | None = None
    ) -> Callable[..., Any]:
        """Returns a function of tensors, named `tensors` in order, that passes them and `fixed` by name.

        `optional` is passed where this version takes it. Raises UnsupportedError where the version does not take the
        other arguments, or requires more.
        """
        function = getattr(self.module, self.name)
        values = {**(optional or {}), **fixed, **dict.fromkeys(tensors)}
        _, taken = match_arguments(function, values, needed=(*tensors, *fixed))
        further = {name: value for name, value in taken.items() if name not in tensors}

        def call_function(*given: Any) -> Any:
            return getattr(self.module, self.name)(**dict(zip(tensors, given, strict=True)), **further)

        return call_function

    @property
    def full_name(self) -> str:
        """Module and function name for messages, e.g. 'aiter.ops.norm.layer_norm'."""
        return f"{self.module.__name__}.{self.name}"

    @property
    def watch_entries(self) -> dict[tuple[str, str], str]:
        """The `also` for `which_path` to report this function's path; empty if LOW_LEVEL already lists it."""
        key = (self.module.__name__, self.name)
        return {} if key in LOW_LEVEL else {key: self.path}


@dataclass(frozen=True)
class Direct:
    """A call of aiter and what is recorded about it.

    function    the function to call, and the path that must run
    call        takes the tensors
    convert     canonical inputs -> tensors in the function's layout, in memory of their own
    outputs     what the call returns -> canonical outputs
    config      entries beside the version, the environment and the path
    declares    names of kernels that must, and must not, run
    """

    function: Function
    call: Callable[..., Any]
    outputs: Callable[[Any], Outputs]
    convert: Callable[[Tensors], Tensors] = own_copies
    config: Mapping[str, str] = field(default_factory=dict)
    declares: Declares = field(default_factory=Declares)


def prepare_direct(bound: Direct, inputs: Tensors) -> Prepared:
    """Converts the inputs, runs the call once, so that aiter builds what it needs untimed, and returns it prepared.
    Records which path (implementation) ran.

    Raises UnsupportedError where aiter has no kernel for these inputs, AttnperfError where another path ran than the
    function names. Converting may call aiter too: a backward pass takes the results of aiter's own forward pass.
    """
    from kernels.aiter.warm import warm_up

    function = bound.function
    tensors = warm_up(partial(bound.convert, inputs), f"what {function.full_name} is given").result
    warm = warm_up(partial(bound.call, *tensors), function.full_name, function.watch_entries)
    warm.require_path(function.path, function.full_name)
    config = {**version_entries(), **environment_entries(), **bound.config, **warm.entries}
    return Prepared(bound.call, tensors, bound.convert, bound.outputs, config, bound.declares)


def device_reasons(device: DeviceInfo) -> list[str]:
    """Returns why aiter cannot run on this device: no ROCm, or not installed. Else empty. Does not import aiter."""
    found = []
    if device.kind != "rocm":
        found.append(f"aiter runs on ROCm devices, this one is {device.kind} ({device.arch})")
    return found + missing_aiter()


def reasons_if_installed(backend: Backend[Any], workload: Workload, device: DeviceInfo) -> list[str]:
    """Returns why a backend could not run the workload on the device even with aiter installed; empty if it could."""
    missing = missing_aiter()
    return [reason for reason in backend.unsupported_reasons(workload, device) if reason not in missing]

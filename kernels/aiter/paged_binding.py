"""Shared by aiter's backends over caches: device checks, imports, and a first run on a result filled with NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernels.aiter.importing import environment_entries, import_aiter
from kernels.aiter.package import missing_aiter, version_entries
from kernels.layouts import own_copies
from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.errors import AttnperfError, UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

FP8_CACHES = {"gfx942": "kvf8e4m3fnuz", "gfx950": "kvf8e4m3"}
"""Architecture -> its 8-bit floating-point format, as workload ids name a cache of it."""

NO_KERNEL = ("cannot get heuristic kernel", "not supported this kernel", "not find kernel")
"""Parts of the error texts of aiter's assembly launchers when their table has no kernel for a shape."""


def device_reasons(device: DeviceInfo) -> list[str]:
    """Returns why aiter cannot run on this device: no ROCm, or not installed. Reads files only, because importing aiter
    may start a build."""
    found = [] if device.kind == "rocm" else [f"aiter runs on ROCm devices, this one is {device.kind} ({device.arch})"]
    return found + missing_aiter()


def import_aiter_module(function: str, module: str, old: str = "") -> ModuleType:
    """Imports and returns a module of aiter; `old` is its name in earlier versions. Callers must look `function` up in
    it at every call, so that `which_path` can watch it.

    Raises UnsupportedError where the module cannot be imported or lacks the function.
    """
    import_aiter(module, function, old=old)
    found: ModuleType = import_aiter(module, old=old)
    return found


def select_values(values: Mapping[str, Any], taken: Mapping[str, object]) -> dict[str, Any]:
    """Returns those of `values` whose names are in `taken`, the arguments that a function of aiter takes."""
    return {name: values[name] for name in taken}


def prepare_paged_call(
    who: str,
    call: Callable[..., Any],
    inputs: Tensors,
    convert: Callable[[Tensors], Tensors],
    outputs: Callable[[Any], Outputs],
    *,
    promised: str,
    written: torch.Tensor,
    config: Mapping[str, str],
    also: tuple[str, str] | None = None,
    arguments: Callable[[Tensors], Tensors] | None = None,
) -> Prepared:
    """Converts the inputs, runs once so that aiter builds before timing, and records what ran.

    who         the function of aiter, as errors name it
    promised    the only path that may run
    written     the result's memory; the call must fill all of it with numbers
    also        module and name of the function, where `paths.LOW_LEVEL` does not have it
    arguments   `Prepared.arguments`

    Raises UnsupportedError where aiter has no kernel for this, and AttnperfError where another path ran or where part
    of the result was not written.
    """
    from kernels.aiter.warm import warm_up

    tensors = own_copies(convert(inputs))
    written.fill_(float("nan"))
    try:
        warm = warm_up(lambda: call(*tensors), who, {also: promised} if also else None)
    except RuntimeError as error:
        if any(text in str(error) for text in NO_KERNEL):
            raise UnsupportedError(f"{who} has no kernel for this shape ({type(error).__name__}: {error})") from error
        raise
    warm.require_path(promised, who)
    require_written(who, written)
    return Prepared(
        call=call,
        tensors=tensors,
        convert=convert,
        outputs=outputs,
        config={**version_entries(), **environment_entries(), **config, **warm.entries},
        declares=Declares(never=("scaled_dot_product",)),
        arguments=arguments,
    )


def require_written(who: str, result: torch.Tensor) -> None:
    """Raises AttnperfError if a result that was filled with NaN before a call still contains NaN after it."""
    missing = int(result.isnan().sum())
    if missing:
        raise AttnperfError(
            f"{who} left {missing} of {result.numel()} elements of its result unwritten or NaN, on finite inputs"
        )

"""What aiter's backends over caches share: where they run, their function, and the first run with a result of NaN."""

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
"""The 8-bit floating-point format that an architecture computes with, as ids of workloads name a cache of it."""

NO_KERNEL = ("cannot get heuristic kernel", "not supported this kernel", "not find kernel")
"""In what aiter's assembly launchers raise where their table has no kernel for a shape."""


def device_reasons(device: DeviceInfo) -> list[str]:
    """Why aiter cannot run on this device or is not there; read from files, for importing it may start a build."""
    found = [] if device.kind == "rocm" else [f"aiter runs on ROCm devices, this one is {device.kind} ({device.arch})"]
    return found + missing_aiter()


def import_aiter_module(function: str, module: str, old: str = "") -> ModuleType:
    """A module of aiter, to look the function up in at every call: so a run can be watched.

    Raises UnsupportedError where it cannot be imported or lacks the function.
    """
    import_aiter(module, function, old=old)
    found: ModuleType = import_aiter(module, old=old)
    return found


def select_values(values: Mapping[str, Any], taken: Mapping[str, object]) -> dict[str, Any]:
    """The values whose names are in `taken`, as `signatures.match_arguments` gives them."""
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
) -> Prepared:
    """Convert, run once so that what aiter builds on first use is built before timing, and record what ran.

    who         the function of aiter, as errors name it
    promised    the only path that may run
    written     where the call puts its result; it must fill all of it, with numbers
    also        module and name of the function, where `paths.LOW_LEVEL` does not have it

    Raises UnsupportedError where aiter says that it has no kernel for this, and AttnperfError where another path ran or
    the result was not written whole.
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
    )


def require_written(who: str, result: torch.Tensor) -> None:
    """Raise AttnperfError where a result that was NaN before a call is not a number everywhere after it."""
    missing = int(result.isnan().sum())
    if missing:
        raise AttnperfError(
            f"{who} left {missing} of {result.numel()} elements of its result unwritten or NaN, on finite inputs"
        )

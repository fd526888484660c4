"""Shared by the adapters to aiter's compiled attention: three routes into it, their limits, and how a call is bound.

Aiter's public functions choose between Composable Kernel, assembly and others by themselves, and no argument forces
one. The functions below them do one thing each, so a forced route calls those, and a run in `prepare` proves that
nothing else ran. Written from aiter's source, v0.1.5 to e4048607a5 (2026-08); never run on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.aiter.importing import environment_entries, import_aiter, without_ck
from kernels.aiter.package import UNKNOWN, missing_aiter, version_entries
from kernels.aiter.signatures import match_arguments
from kernels.aiter.warm import warm_up
from kernels.layouts import own_copies
from kernels.limits import join_names
from pytest_attnperf.backends import Declares, Prepared

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

MHA = "aiter.ops.mha"

HEAD_DIM_MAX = 256
HEAD_DIM_STEP = 8
"""Both are checked in C++ of every function below (mha_fwd_kernels.cu, asm_mha_fwd.cu and their varlen and backward
siblings); the public functions pad to the step inside the call."""

ROUNDING = 1
"""`how_v3_bf16_cvt`, how assembly rounds to bf16: 0 to nearest even, 1 to nearest away from zero, 2 towards zero. 1 is
the default of every public function."""

WITHOUT_CK_OTHERWISE = frozenset({"ck", "asm"})
"""Paths that aiter's own functions skip with ENABLE_CK=0: they call Triton instead."""

_CK_ARCHS = frozenset({"gfx90a", "gfx942", "gfx950"})


@dataclass(frozen=True)
class Route:
    """One way into aiter's compiled attention.

    label    in front of the function's name, in reasons
    archs    GPUs it is offered on
    path     the one implementation that may run; '' where aiter's dispatcher chooses, and the choice is recorded
    """

    label: str
    archs: frozenset[str]
    path: str

    def format_function(self, function: str) -> str:
        """Returns the name of an aiter function with this route's label, for messages, e.g. "aiter's mha_fwd (CK)"."""
        return f"aiter's {function} ({self.label})" if self.label else f"aiter's {function}"


CK = Route("CK", _CK_ARCHS, "ck")
"""Composable Kernel. Its instances use CDNA's matrix instructions; no build for RDNA is known."""

ASM = Route("assembly", frozenset({"gfx942", "gfx950"}), "asm")
"""Hand-written assembly, which exists as binaries for these two architectures only (hsa/gfx942, hsa/gfx950)."""

AUTO = Route("", _CK_ARCHS | {"gfx1250"}, "")
"""The public functions. For gfx1250 they have separate assembly."""


def route_reasons(route: Route, who: str, device: DeviceInfo) -> list[str]:
    """Returns why a route cannot run on this device, for any workload; empty if it can. `who` names the function."""
    found = []
    if device.kind != "rocm":
        found.append(f"aiter runs on ROCm devices, this one is {device.kind} ({device.arch})")
    elif device.arch not in route.archs:
        found.append(f"{who} is offered on {join_names(route.archs)}; on {device.arch} it was not verified")
    found.extend(missing_aiter())
    if route.path in WITHOUT_CK_OTHERWISE:
        found.extend(without_ck())
    return found


def head_dim_reasons(who: str, head_dims: Sequence[int], *, padded: bool) -> list[str]:
    """Returns why aiter's C++ refuses these head dimensions, or nothing. `padded`: aiter itself rounds them up."""
    found = []
    if max(head_dims) > HEAD_DIM_MAX:
        found.append(f"{who} takes head_dim up to {HEAD_DIM_MAX}, not {max(head_dims)}")
    if not padded and any(one % HEAD_DIM_STEP for one in head_dims):
        odd = next(one for one in head_dims if one % HEAD_DIM_STEP)
        found.append(f"{who} needs head_dim to be a multiple of {HEAD_DIM_STEP}, not {odd}")
    return found


def window_sizes(causal: bool, window: int) -> tuple[int, int]:
    """Returns FlashAttention's `window_size` (left, right): how many keys before and after its own position a row sees;
    -1 means all."""
    return (window - 1, 0) if causal and window else (-1, -1)


def bind_by_position(
    module: ModuleType, function: str, names: Sequence[str], values: Mapping[str, object]
) -> Callable[..., Any]:
    """Returns a function that takes tensors, named `names` in order, and calls aiter's `function` with them and
    `values` as positional arguments.

    Aiter's own callers pass positions, too. Its compiled functions differ between versions: values that this version
    does not take are left out, but it must take every tensor. The function is looked up at each call, so that
    `which_path` can record that it ran. Raises UnsupportedError where the signature does not fit.
    """
    slots = [object() for _ in names]
    all_values = {**values, **dict(zip(names, slots, strict=True))}
    template, keywords = match_arguments(getattr(module, function), all_values, positional=True, needed=names)
    places = [next(place for place, value in enumerate(template) if value is slot) for slot in slots]

    def call_function(*tensors: Any) -> Any:
        filled = list(template)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return getattr(module, function)(*filled, **keywords)

    return call_function


def bind_by_keyword(
    module: ModuleType, function: str, names: Sequence[str], values: Mapping[str, object]
) -> Callable[..., Any]:
    """Returns a function that takes tensors, named `names` in order, and calls a public function of aiter with them and
    `values` as keyword arguments. Raises UnsupportedError where it does not take all of them."""
    _, keywords = match_arguments(
        getattr(module, function), {**values, **dict.fromkeys(names)}, needed=[*names, *values]
    )
    fixed = {name: value for name, value in keywords.items() if name not in names}

    def call_function(*tensors: Any) -> Any:
        return getattr(module, function)(**dict(zip(names, tensors, strict=True)), **fixed)

    return call_function


def without_lse(result: Any) -> Outputs:
    """Returns 'out' of a low-level function's result, which is always (out, lse, dropout mask, random state)."""
    return {"out": result[0]}


def with_lse(result: Any) -> Outputs:
    """Returns 'out' and 'lse' of a result (out, lse, ...), which public functions return when lse is requested."""
    return {"out": result[0], "lse": result[1]}


def out_only(result: Any) -> Outputs:
    """Returns as 'out' the result of a public function that returns no log-sum-exp."""
    return {"out": result}


def import_attention_module(function: str) -> ModuleType:
    """Imports and returns aiter's attention module. Raises UnsupportedError where that fails or the module lacks
    `function`.

    With ENABLE_CK=0 aiter's public functions import its Triton attention at their first call. This function imports it
    earlier, so that `which_path` can watch it.
    """
    import_aiter(MHA, function)
    if without_ck():
        import_aiter("aiter.ops.triton.attention.mha", old="aiter.ops.triton.mha")
    module: ModuleType = import_aiter(MHA)
    return module


@dataclass(frozen=True)
class Binding:
    """A call of aiter with its conversions and what is recorded about it.

    what       the function, for messages
    call       takes the tensors
    convert    canonical inputs -> tensors
    outputs    what the call returns -> canonical outputs
    config     entries beside versions, environment and path
    declares   names of kernels that must run, and that must not
    """

    what: str
    call: Callable[..., Any]
    convert: Callable[[Tensors], Tensors]
    outputs: Callable[[Any], Outputs]
    config: Mapping[str, str]
    declares: Declares


def prepare_binding(route: Route, binding: Binding, inputs: Tensors) -> Prepared:
    """Runs the call of `binding` once on copies of the inputs, so that aiter builds all it needs, and returns it
    prepared. Records which path (implementation, e.g. 'ck') ran.

    No tensor requires a gradient, so aiter keeps nothing for a backward pass. Raises UnsupportedError where aiter has
    no kernel for the shape, and AttnperfError where another path ran than the route names.
    """
    tensors = own_copies(binding.convert(inputs))
    warm = warm_up(partial(binding.call, *tensors), binding.what)
    if route.path:
        warm.require_path(route.path, binding.what)
    config = {"path": UNKNOWN, **version_entries(), **environment_entries(), **warm.entries, **binding.config}
    return Prepared(binding.call, tensors, binding.convert, binding.outputs, config, binding.declares)

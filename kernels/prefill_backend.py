"""What every prefill backend shares: its description, what it refuses, and the step from `Workload` to `Prefill`."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pytest_attnperf.records import DeviceInfo, Tolerance

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.prefill import Prefill


HALVES = frozenset({"f16", "bf16"})
INT8_MODES = frozenset({"", "pv16", "kv8"})
"""Values of `Prefill.int8`."""
FLOATS = HALVES | {"f32", "tf32"}
"""Dtypes of a kernel for ordinary floats; one that computes in f32 takes tf32 too, for it may be more exact."""


@dataclass(frozen=True)
class Limits:
    """Which properties of a workload a backend takes; the rest is refused by `refusals`, in one wording for all.

    who                  what has the limits, as a reason names it
    dtypes               workload dtypes it takes; None means all
    window               whether it takes a sliding window
    rows_without_keys    whether rows that see no key give 0 and -inf
    head_dim_v           whether v may have another head dimension than q and k
    alibi                whether it takes ALiBi slopes
    bias                 whether it takes a bias matrix
    int8                 the modes of i8 it takes, for one that takes i8 at all
    no_lse               why it gives no log-sum-exp; '' where it does
    """

    who: str
    dtypes: frozenset[str] | None = None
    window: bool = True
    rows_without_keys: bool = True
    head_dim_v: bool = True
    alibi: bool = True
    bias: bool = True
    int8: frozenset[str] = INT8_MODES
    no_lse: str = ""


def refusals(workload: Prefill, limits: Limits) -> list[str]:
    """A reason for each property of the workload that the limits exclude."""
    found = []
    if limits.dtypes is not None and workload.dtype not in limits.dtypes:
        found.append(f"{limits.who} takes {listed(limits.dtypes)}, not {workload.dtype}")
    elif workload.dtype == "i8" and workload.int8 not in limits.int8:
        found.append(f"{limits.who} takes i8 only as {_modes(limits.int8)}, not as {_modes([workload.int8])}")
    found.extend(_refused_scores(workload, limits))
    if workload.head_dim_v != workload.head_dim and not limits.head_dim_v:
        found.append(
            f"{limits.who} takes one head dimension for q, k and v, not {workload.head_dim} and {workload.head_dim_v}"
        )
    if workload.lse and limits.no_lse:
        found.append(limits.no_lse)
    return found


def _refused_scores(workload: Prefill, limits: Limits) -> list[str]:
    """The reasons that lie in what is done to the scores."""
    found = []
    if workload.window and not limits.window:
        found.append(f"{limits.who} takes no sliding window, this workload has one of {workload.window} keys")
    if workload.rows_without_keys and not limits.rows_without_keys:
        found.append(
            f"{limits.who} is not known to give 0 for rows that see no key, and the first "
            f"{workload.rows_without_keys} rows of this workload see none"
        )
    if workload.alibi and not limits.alibi:
        found.append(f"{limits.who} takes no ALiBi slopes, this workload has them")
    if workload.bias and not limits.bias:
        found.append(f"{limits.who} takes no bias matrix, this workload has one")
    return found


def _modes(modes: Iterable[str]) -> str:
    """'kv8, qkv8': the modes of i8 for reasons, where the one without a name is that of q, k and v in 8 bits."""
    return listed(mode or "qkv8" for mode in modes)


def listed(names: Iterable[str]) -> str:
    """'bf16, f16': in alphabetical order, for reasons."""
    return ", ".join(sorted(names))


@dataclass(frozen=True)
class PrefillBackend(abc.ABC):
    """One way to do dense attention prefill; subclasses give `limits`, `reasons` and `bind`.

    name             as registered, e.g. 'native.eager'
    cpu_flops_max    largest workload offered where there is no GPU, in useful floating-point operations; 0 means none
    times_on_cpu     whether a time taken without a GPU says anything
    tolerance        error budget against the plain computation's own error
    """

    name: str
    cpu_flops_max: float = 0.0
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)
    families: frozenset[str] = frozenset({"prefill"})

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Why this workload cannot run on this device; empty means it can. Imports nothing."""
        prefill = cast("Prefill", workload)
        return self.reasons(prefill, device) + refusals(prefill, self.limits(device))

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Bind to one workload; `inputs` are as `Prefill` states them, contiguous, on the device."""
        return self.bind(cast("Prefill", workload), inputs)

    @abc.abstractmethod
    def limits(self, device: DeviceInfo) -> Limits:
        """What it takes on this device."""

    @abc.abstractmethod
    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Why this workload cannot run on this device, beyond `limits`."""

    @abc.abstractmethod
    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """As `prepare`, for the one family these backends have."""


def heads_first(inputs: Tensors) -> Tensors:
    """(B, S, H, D) to contiguous (B, H, S, D), each in its own memory; scales, slopes and a bias are copied."""
    import torch

    ordered = (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor for tensor in inputs)
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in ordered)


def heads_last(out: torch.Tensor) -> torch.Tensor:
    """(B, H, S, D) to the canonical (B, S, H, D), a view."""
    return out.transpose(1, 2)


def own_copies(inputs: Tensors) -> Tensors:
    """The canonical layout in memory of the backend's own, so that nobody else's writes reach the timed call."""
    return tuple(tensor.clone() for tensor in inputs)

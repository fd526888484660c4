"""The properties of attention that a backend accepts, and one wording for its refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_attnperf.workloads.prefill import Prefill


HALVES = frozenset({"f16", "bf16"})
INT8_MODES = frozenset({"", "pv16", "kv8"})
"""Values of `Prefill.int8`."""
FP8_SUMS = "the tensor cores add fp8 products with about 14 bits (arXiv:2412.19437, section 3.3.2)"
"""Why no fp32 result of fp8 products is right on NVIDIA."""
FLOATS = HALVES | {"f32", "tf32"}
"""Dtypes of a kernel for ordinary floats. It computes tf32 in f32, because more precision is allowed."""


@dataclass(frozen=True)
class AttentionLimits:
    """The properties of a workload that a backend accepts; `refusal_reasons` says why it refuses one that exceeds them.

    who                  name of the implementation in reasons
    dtypes               workload dtypes it takes; None means all
    window               whether it takes a sliding window
    rows_without_keys    whether rows that see no key give 0 and -inf
    head_dim_v           whether v may have another head dimension than q and k
    alibi                whether it takes ALiBi slopes
    bias                 whether it takes a bias matrix
    int8                 the modes of i8 it takes, for one that takes i8 at all
    out                  whether 'out' of 8-bit inputs may have another dtype than bf16 (`Prefill.out`)
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
    out: bool = False
    no_lse: str = ""


def refusal_reasons(workload: Prefill, limits: AttentionLimits) -> list[str]:
    """Returns one sentence for each property of the workload that the limits exclude; empty if they allow all."""
    found = []
    if limits.dtypes is not None and workload.dtype not in limits.dtypes:
        found.append(f"{limits.who} takes {join_names(limits.dtypes)}, not {workload.dtype}")
    elif workload.dtype == "i8" and workload.int8 not in limits.int8:
        found.append(
            f"{limits.who} takes i8 only as {_format_modes(limits.int8)}, not as {_format_modes([workload.int8])}"
        )
    elif workload.out and not limits.out:
        found.append(f"{limits.who} returns bf16 for 8-bit inputs, not {workload.out}")
    found.extend(_refused_scores(workload, limits))
    if workload.head_dim_v != workload.head_dim and not limits.head_dim_v:
        found.append(
            f"{limits.who} takes one head dimension for q, k and v, not {workload.head_dim} and {workload.head_dim_v}"
        )
    if workload.lse and limits.no_lse:
        found.append(limits.no_lse)
    return found


def _refused_scores(workload: Prefill, limits: AttentionLimits) -> list[str]:
    """Returns why the limits exclude what changes the scores: a window, rows without keys, ALiBi slopes, a bias."""
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


def _format_modes(modes: Iterable[str]) -> str:
    """Returns names of i8 modes for messages, e.g. 'kv8, qkv8'; '' (q, k and v in 8 bits) is written 'qkv8'."""
    return join_names(mode or "qkv8" for mode in modes)


def join_names(names: Iterable[str]) -> str:
    """Returns the names in alphabetical order for messages, e.g. 'bf16, f16'."""
    return ", ".join(sorted(names))

"""Attention of aiter over packed sequences: `ck` and `aiter.asm`, each forced, and `aiter.auto`.

Layout (T, H, D) with int32 offsets, and log-sum-exp (H, Tq), as `Varlen` has them. A `block_table` is never passed:
aiter's packed functions fail on it (issue 4456) or fault (issue 4455). Written from aiter's source; never run on an AMD
GPU.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kernels.aiter.attention import (
    ASM,
    AUTO,
    CK,
    HEAD_DIM_STEP,
    MHA,
    ROUNDING,
    Binding,
    Route,
    bind_by_keyword,
    bind_by_position,
    head_dim_reasons,
    import_attention_module,
    out_only,
    prepare_binding,
    route_reasons,
    window_sizes,
    with_lse,
    without_lse,
)
from kernels.aiter.dense import DECLARES
from kernels.aiter.importing import without_ck
from kernels.aiter.signatures import EntryPoint
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from pytest_attnperf.backends import Backend
from pytest_attnperf.workloads.varlen import Varlen

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

ASM_HEAD_DIM = 128

_PACKED = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")
_LENGTHS = ("max_seqlen_q", "max_seqlen_k")
_LOW_LEVEL = (
    *_LENGTHS,
    "min_seqlen_q",
    "dropout_p",
    "softmax_scale",
    "logits_soft_cap",
    "zero_tensors",
    "is_causal",
    "window_size_left",
    "window_size_right",
)


@dataclass(frozen=True)
class AiterVarlen(Backend[Varlen]):
    """One route into aiter's packed forward pass. Subclasses name the function and add what it refuses."""

    route: ClassVar[Route]
    function: ClassVar[str]

    families = ("varlen",)

    @property
    def display_name(self) -> str:
        """Name of the aiter function for messages, with the route's label."""
        return self.route.format_function(self.function)

    def make_limits(self) -> AttentionLimits:
        """Returns what the function accepts for every sequence: fp16 and bf16. One bias for all sequences was not
        tried."""
        return AttentionLimits(self.display_name, dtypes=HALVES, bias=False)

    def unsupported_reasons(self, workload: Varlen, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse; empty if nothing. What several sequences share is reported once."""
        found = route_reasons(self.route, self.display_name, device)
        found += head_dim_reasons(self.display_name, (workload.head_dim,), padded=not self.route.path)
        if workload.lse and workload.rows_without_keys:
            found.append(
                f"{self.display_name} is not known to give -inf as log-sum-exp of rows that see no key (aiter's "
                f"tests look at "
                f"'out' alone), and {workload.rows_without_keys} rows of this workload see none"
            )
        return found + refusal_reasons(workload.make_sequence(0), self.make_limits())

    def prepare(self, workload: Varlen, inputs: Tensors) -> Prepared:
        """Returns aiter's call on copies of the inputs, run once; its config records which path (e.g. 'ck') ran."""
        return prepare_binding(self.route, self.bind_call(workload), inputs)

    @abc.abstractmethod
    def bind_call(self, workload: Varlen) -> Binding:
        """Returns the call of aiter's function for one workload, which passes the longest lengths as Python ints."""


@dataclass(frozen=True)
class ForcedVarlen(AiterVarlen):
    """A route that calls a low-level function with positional arguments."""

    def bind_call(self, workload: Varlen) -> Binding:
        """Returns the call of the low-level function. `min_seqlen_q` is 0, the default of aiter's public function
        without chunked prefill."""
        left, right = window_sizes(workload.causal, workload.window)
        values = {
            "max_seqlen_q": workload.max_q,
            "max_seqlen_k": workload.max_kv,
            "min_seqlen_q": 0,
            "dropout_p": 0.0,
            "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
            "logits_soft_cap": 0.0,
            "zero_tensors": False,
            "is_causal": workload.causal,
            "window_size_left": left,
            "window_size_right": right,
            "sink_size": 0,
            "return_softmax_lse": workload.lse,
            "return_dropout_randval": False,
            "how_v3_bf16_cvt": ROUNDING,
        }
        call = bind_by_position(import_attention_module(self.function), self.function, tensor_names(workload), values)
        config = {"function": self.function, "padded_in_call": "False", **self.choice_entries()}
        outputs = with_lse if workload.lse else without_lse
        return Binding(f"aiter's {self.function}", call, _keep_inputs, outputs, config, DECLARES[self.route.path])

    def choice_entries(self) -> dict[str, str]:
        """Returns further entries to record in `Prepared.config`; empty unless a subclass overrides it."""
        return {}


@dataclass(frozen=True)
class CkVarlen(ForcedVarlen):
    """`mha_varlen_fwd`, whose module contains Composable Kernel only."""

    route = CK
    function = "mha_varlen_fwd"


@dataclass(frozen=True)
class AsmVarlen(ForcedVarlen):
    """`fmha_v3_varlen_fwd`: bf16, head dimension 128, any number of queries."""

    route = ASM
    function = "fmha_v3_varlen_fwd"

    def make_limits(self) -> AttentionLimits:
        """Returns what the function accepts: bf16, and no change of the scores except a causal mask."""
        return AttentionLimits(self.display_name, dtypes=frozenset({"bf16"}), window=False, alibi=False, bias=False)

    def unsupported_reasons(self, workload: Varlen, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse, and head dimensions other than 128. The pair 192 and 128 for v, which
        `can_impl_fmha_v3_fwd` allows, cannot occur in a `Varlen`."""
        found = super().unsupported_reasons(workload, device)
        if workload.head_dim != ASM_HEAD_DIM:
            found.append(f"{self.display_name} takes head_dim {ASM_HEAD_DIM}, not {workload.head_dim}")
        return found

    def choice_entries(self) -> dict[str, str]:
        """Returns the entry that records how results are rounded, which selects the kernel on gfx942."""
        return {"how_v3_bf16_cvt": str(ROUNDING)}


@dataclass(frozen=True)
class AutoVarlen(AiterVarlen):
    """`flash_attn_varlen_func`. The implementation that it takes is recorded. Since 2026 it imports flydsl when called,
    on any GPU."""

    route = AUTO
    function = "flash_attn_varlen_func"

    def unsupported_reasons(self, workload: Varlen, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse, and what aiter's dispatcher gets wrong or passes to an implementation that
        cannot compute it."""
        found = super().unsupported_reasons(workload, device)
        if workload.window == 1:
            found.append(
                f"{self.display_name} takes windows of at least 2 keys: its dispatcher asks whether window_size "
                f"is above 0, and "
                "gives a window of one key to kernels that know none"
            )
        if without_ck() and (workload.window or workload.lse or workload.rows_without_keys):
            found.append(
                f"{self.display_name} takes Triton with ENABLE_CK=0, which knows no such window, whose "
                f"log-sum-exp is laid out "
                "another way, and which writes past the end of a sequence whose first rows see no key"
            )
        return found

    def bind_call(self, workload: Varlen) -> Binding:
        """Returns the call of aiter's public function. It passes only arguments that every version since v0.1.5 takes,
        and the window size if there is a window."""
        values: dict[str, object] = {
            "max_seqlen_q": workload.max_q,
            "max_seqlen_k": workload.max_kv,
            "dropout_p": 0.0,
            "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
            "causal": workload.causal,
            "return_lse": workload.lse,
        }
        if workload.window:
            values["window_size"] = window_sizes(workload.causal, workload.window)
        call = bind_by_keyword(import_attention_module(self.function), self.function, tensor_names(workload), values)
        config = {"function": self.function, "padded_in_call": str(workload.head_dim % HEAD_DIM_STEP != 0)}
        outputs = with_lse if workload.lse else out_only
        return Binding(f"aiter's {self.function}", call, _keep_inputs, outputs, config, DECLARES[""])


PARTS: tuple[tuple[str, str, Backend], ...] = (
    ("ck", "varlen", CkVarlen("ck")),
    ("aiter.asm", "varlen", AsmVarlen("aiter.asm")),
    ("aiter.auto", "varlen", AutoVarlen("aiter.auto")),
)
"""(name of a backend, family, its part of the backend)."""

_OFFERED = ("return_softmax_lse", "return_dropout_randval", "alibi_slopes")
ENTRY_POINTS = (
    EntryPoint(MHA, "mha_varlen_fwd", offered=("sink_size", *_OFFERED), positional=(*_PACKED, *_LOW_LEVEL)),
    EntryPoint(MHA, "fmha_v3_varlen_fwd", offered=("how_v3_bf16_cvt", *_OFFERED), positional=(*_PACKED, *_LOW_LEVEL)),
    EntryPoint(
        MHA,
        "flash_attn_varlen_func",
        needed=(
            *(*_PACKED, *_LENGTHS),
            *("dropout_p", "softmax_scale", "causal", "window_size", "alibi_slopes", "return_lse"),
        ),
    ),
)
"""The aiter functions called here. The middle positional parameters differ by version and are read at run time."""


def tensor_names(workload: Varlen) -> list[str]:
    """Returns the names of aiter's arguments for the workload's inputs, in their order."""
    return [*_PACKED, *["alibi_slopes"] * workload.alibi]


def _keep_inputs(inputs: Tensors) -> Tensors:
    return inputs

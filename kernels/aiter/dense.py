"""Dense attention of aiter: `ck` and `aiter.asm`, each forced, and `aiter.auto`, which is what users call.

Layout (B, S, H, D), bottom-right causal masks, windows as FlashAttention counts them: all as `Prefill` has them.
aiter's int8 attention (mha_v4) quantises bf16 tensors inside its call, but an i8 workload stores 8-bit tensors, so no
backend here offers i8. Written from aiter's source; never run on an AMD GPU.
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
from kernels.aiter.importing import without_ck
from kernels.aiter.signatures import EntryPoint
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from pytest_attnperf.backends import Backend, Declares
from pytest_attnperf.workloads.base import QUANTISED

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

FP8 = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3"}
"""Architecture -> its 8-bit format, `aiter.dtypes.fp8`."""

FP8_FUNCTION = "flash_attn_fp8_pertensor_func"

ASM_HEAD_DIMS = frozenset({(128, 128), (192, 128)})
ASM_FP8_HEAD_DIMS = {"gfx942": frozenset({(128, 128)}), "gfx950": frozenset({(128, 128), (256, 256)})}
ASM_FP8_GROUPS = frozenset({1, 2, 4, 8, 16})
"""Query heads per key head: aiter's fp8 assembly has a table of shifts for these numbers only (ops/mha.py)."""

ASM_QUERIES_MIN = 129
"""With fewer, aiter's dispatcher takes CK ("Prefer CK for decode cases"), and its tests never run assembly."""

ASM_KEY_BYTES_END = 1 << 32
"""From this many bytes on, offsets within a sequence's keys overflow; aiter's dispatcher checks it for 192/128."""

ASM_KERNEL = r"fmha_fwd_hd\d"
"""Part of every assembly kernel's name, dense and packed, from v0.1.5 (.co files) to 2026-08 (fmha_fwd.csv)."""

DECLARES = {
    "ck": Declares(never=("scaled_dot_product", ASM_KERNEL), matrix=True),
    "asm": Declares(kernels=(ASM_KERNEL,), never=("scaled_dot_product", "ck_tile"), matrix=True),
    "": Declares(never=("scaled_dot_product",)),
}
"""By `Route.path`."""

_QKV = ("q", "k", "v")
_DESCALES = ("q_descale", "k_descale", "v_descale")
_LOW_LEVEL = ("dropout_p", "softmax_scale", "is_causal", "window_size_left", "window_size_right")


@dataclass(frozen=True)
class AiterPrefill(Backend["Prefill"]):
    """One route into aiter's dense forward pass. Subclasses name the function and add what it refuses."""

    route: ClassVar[Route]
    function: ClassVar[str]

    families = ("prefill",)

    @property
    def display_name(self) -> str:
        """Name of the aiter function for messages, with the route's label."""
        return self.route.format_function(self.function)

    def make_limits(self, device: DeviceInfo) -> AttentionLimits:
        """Returns what the function accepts: fp16, bf16 and the architecture's fp8. It does not limit a bias."""
        return AttentionLimits(self.display_name, dtypes=HALVES | {FP8[arch] for arch in (device.arch,) if arch in FP8})

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse: what aiter's C++ checks, and what neither aiter nor we verified. Empty if
        nothing."""
        found = route_reasons(self.route, self.display_name, device)
        head_dims = (workload.head_dim, workload.head_dim_v)
        found += head_dim_reasons(self.display_name, head_dims, padded=not self.route.path)
        if workload.bias and workload.heads > 1:
            found.append(
                f"{self.display_name} takes one bias of (Sq, Skv) for all heads, this workload has one for each of its "
                f"{workload.heads} heads"
            )
        if workload.lse and workload.rows_without_keys:
            found.append(
                f"{self.display_name} is not known to give -inf as log-sum-exp of rows that see no key (aiter's "
                f"tests look at "
                f"'out' alone), and the first {workload.rows_without_keys} rows of this workload see none"
            )
        if workload.dtype in QUANTISED:
            found += self._fp8_reasons(workload)
        return found + refusal_reasons(workload, self.make_limits(device))

    def _fp8_reasons(self, workload: Prefill) -> list[str]:
        """Returns what aiter's fp8 function has no argument for, and what aiter's tests of it do not cover."""
        who = f"aiter's {FP8_FUNCTION}"
        no_lse = f"{who} gives no log-sum-exp"
        return refusal_reasons(
            workload,
            AttentionLimits(
                who,
                window=False,
                rows_without_keys=False,
                head_dim_v=False,
                alibi=False,
                bias=False,
                out=True,  # said by the limits of the route
                no_lse=no_lse,
            ),
        )

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Returns aiter's call on copies of the inputs, run once; its config records which path (e.g. 'ck') ran."""
        return prepare_binding(self.route, self.bind_call(workload), inputs)

    @abc.abstractmethod
    def bind_call(self, workload: Prefill) -> Binding:
        """Returns the call of aiter's function for one workload, with its conversions and what is recorded."""


@dataclass(frozen=True)
class ForcedPrefill(AiterPrefill):
    """A route that calls a low-level function with positional arguments."""

    def bind_call(self, workload: Prefill) -> Binding:
        """Returns the call of the low-level function. Nothing is padded: it refuses what would need padding."""
        left, right = window_sizes(workload.causal, workload.window)
        values = {
            "dropout_p": 0.0,
            "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
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
        return Binding(f"aiter's {self.function}", call, _convert_inputs, outputs, config, DECLARES[self.route.path])

    def choice_entries(self) -> dict[str, str]:
        """Returns further entries to record in `Prepared.config`; empty unless a subclass overrides it."""
        return {}


@dataclass(frozen=True)
class CkPrefill(ForcedPrefill):
    """`mha_fwd`, whose module contains Composable Kernel only."""

    route = CK
    function = "mha_fwd"

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse, and what `folded_reasons` refuses; empty if it can run."""
        return super().unsupported_reasons(workload, device) + folded_reasons(self.display_name, workload)


@dataclass(frozen=True)
class AsmPrefill(ForcedPrefill):
    """`fmha_v3_fwd`, limited as in aiter's dispatcher: bf16 or fp8, two head dimensions."""

    route = ASM
    function = "fmha_v3_fwd"

    def make_limits(self, device: DeviceInfo) -> AttentionLimits:
        """Returns what the function accepts: bf16 and the architecture's fp8, and of score changes only a causal
        mask."""
        dtypes = {"bf16"} | {FP8[arch] for arch in (device.arch,) if arch in FP8}
        return AttentionLimits(self.display_name, dtypes=frozenset(dtypes), window=False, alibi=False, bias=False)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse, and what `can_impl_fmha_v3_fwd` in aiter refuses."""
        found = super().unsupported_reasons(workload, device)
        head_dims = (workload.head_dim, workload.head_dim_v)
        quantised = workload.dtype in QUANTISED
        offered = ASM_FP8_HEAD_DIMS.get(device.arch, frozenset({(128, 128)})) if quantised else ASM_HEAD_DIMS
        if head_dims not in offered:
            pairs = ", ".join(f"{first}/{second}" for first, second in sorted(offered))
            found.append(
                f"{self.display_name} takes head_dim {pairs} of {workload.dtype}, not {head_dims[0]}/{head_dims[1]}"
            )
        if workload.seq_q < ASM_QUERIES_MIN:
            found.append(
                f"{self.display_name} was not verified below {ASM_QUERIES_MIN} queries, where aiter itself "
                f"takes CK; this "
                f"workload has {workload.seq_q}"
            )
        group = workload.heads // workload.kv_heads
        if quantised and group not in ASM_FP8_GROUPS:
            found.append(f"{self.display_name} takes 1, 2, 4, 8 or 16 query heads per key head of fp8, not {group}")
        key_bytes = workload.seq_kv * workload.kv_heads * workload.head_dim * 2
        if head_dims == (192, 128) and key_bytes >= ASM_KEY_BYTES_END:
            found.append(f"{self.display_name} takes keys of less than 4 GiB per sequence, not {key_bytes} bytes")
        return found

    def choice_entries(self) -> dict[str, str]:
        """Returns the entry that records how results are rounded, which selects the kernel on gfx942."""
        return {"how_v3_bf16_cvt": str(ROUNDING)}


@dataclass(frozen=True)
class AutoPrefill(AiterPrefill):
    """`flash_attn_func`, or its fp8 variant. The implementation that it takes is recorded. It may change with aiter,
    the environment, the number of CUs, or with `lse`."""

    route = AUTO
    function = "flash_attn_func"

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns what all routes refuse, and what aiter's dispatcher gets wrong or passes to an implementation that
        cannot compute it."""
        found = super().unsupported_reasons(workload, device) + folded_reasons(self.display_name, workload)
        if workload.window == 1:
            found.append(
                f"{self.display_name} takes windows of at least 2 keys: its dispatcher asks whether window_size "
                f"is above 0, and "
                "gives a window of one key to kernels that know none"
            )
        if without_ck() and (workload.window or workload.bias or workload.dtype in QUANTISED):
            found.append(
                f"{self.display_name} takes Triton with ENABLE_CK=0, which knows neither such a window nor a "
                f"bias, and whose "
                "fp8 was not verified"
            )
        return found

    def bind_call(self, workload: Prefill) -> Binding:
        """Returns the call of aiter's public function. It passes only arguments that every version since v0.1.5 takes,
        and the window size if there is a window."""
        quantised = workload.dtype in QUANTISED
        function = FP8_FUNCTION if quantised else self.function
        values: dict[str, object] = {
            "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
            "causal": workload.causal,
        }
        if not quantised:
            values |= {"dropout_p": 0.0, "return_lse": workload.lse}
        if workload.window:
            values["window_size"] = window_sizes(workload.causal, workload.window)
        call = bind_by_keyword(import_attention_module(function), function, tensor_names(workload), values)
        padded = bool(workload.head_dim % HEAD_DIM_STEP or workload.head_dim_v % HEAD_DIM_STEP)
        config = {"function": function, "padded_in_call": str(padded)}
        outputs = with_lse if workload.lse else out_only
        return Binding(f"aiter's {function}", call, _convert_inputs, outputs, config, DECLARES[""])


PARTS: tuple[tuple[str, str, Backend], ...] = (
    ("ck", "prefill", CkPrefill("ck")),
    ("aiter.asm", "prefill", AsmPrefill("aiter.asm")),
    ("aiter.auto", "prefill", AutoPrefill("aiter.auto")),
)
"""(name of a backend, family, its part of the backend)."""

_RETURNS = ("return_softmax_lse", "return_dropout_randval")
ENTRY_POINTS = (
    EntryPoint(
        MHA,
        "mha_fwd",
        offered=("sink_size", *_RETURNS, "bias", "alibi_slopes", *_DESCALES),
        positional=(*_QKV, *_LOW_LEVEL),
    ),
    EntryPoint(MHA, "fmha_v3_fwd", offered=(*_RETURNS, "how_v3_bf16_cvt", *_DESCALES), positional=(*_QKV, *_LOW_LEVEL)),
    EntryPoint(
        MHA,
        "flash_attn_func",
        needed=(*_QKV, "dropout_p", "softmax_scale", "causal", "window_size", "bias", "alibi_slopes", "return_lse"),
    ),
    EntryPoint(MHA, FP8_FUNCTION, needed=(*_QKV, *_DESCALES, "softmax_scale", "causal"), since="v0.1.8"),
)
"""The aiter functions called here. The middle positional parameters differ by version and are read at run time."""


def folded_reasons(who: str, workload: Prefill) -> list[str]:
    """Returns why CK refuses two head dimensions: it folds one query's heads into rows, and shapes 'out' like q. Empty
    for other workloads."""
    folded = workload.seq_q == 1 and workload.heads > workload.kv_heads
    if not folded or workload.head_dim == workload.head_dim_v or workload.alibi or workload.bias or workload.window:
        return []
    return [
        f"{who} takes one head dimension for q, k and v where one query meets grouped heads, not {workload.head_dim} "
        f"and {workload.head_dim_v}"
    ]


def tensor_names(workload: Prefill) -> list[str]:
    """Returns the names of aiter's arguments for the workload's inputs, in their order."""
    added = ["alibi_slopes"] * workload.alibi + ["bias"] * workload.bias
    return [*_QKV, *(_DESCALES if workload.dtype in QUANTISED else ()), *added]


def _convert_inputs(inputs: Tensors) -> Tensors:
    """Returns the inputs unchanged, except a bias (1, Sq, Skv), which becomes (Sq, Skv), as aiter takes it."""
    return tuple(tensor[0] if tensor.dim() == 3 else tensor for tensor in inputs)

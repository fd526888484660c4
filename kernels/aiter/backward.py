"""The backward pass of aiter's attention, dense and packed: `ck` and `aiter.asm`, each forced, and `aiter.auto`.

Only the backward pass is timed. It reads the workload's own 'out' and 'lse', which have the layouts of aiter's forward
pass (lse (B, H, Sq), and (H, Tq) packed, natural logarithm, fp32). The pass is not deterministic, as in training: with
`deterministic` aiter never takes assembly on gfx942. Written from aiter's source; never run on an AMD GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kernels.aiter.attention import (
    ASM,
    AUTO,
    CK,
    MHA,
    ROUNDING,
    Binding,
    Route,
    bind_by_position,
    head_dim_reasons,
    import_attention_module,
    prepare_binding,
    route_reasons,
)
from kernels.aiter.importing import import_aiter, without_ck
from kernels.aiter.signatures import EntryPoint
from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

TOLERANCE = Tolerance(
    source="ROCm/aiter op_tests/test_mha.py: dq_tol, dk_tol and dv_tol are 10 x the plain error",
    outputs=(("dq", 10.0), ("dk", 10.0), ("dv", 10.0)),
)
"""From aiter's own gradient tests. They also allow 0.01 where that is larger; this tolerance does not."""

ASM_QUERIES_MIN = 17
"""With fewer, aiter's dense dispatcher takes CK, which has kernels for them (ops/mha.py, _flash_attn_backward)."""

ONE_BLOCK_KEYS_MAX = 256
"""On gfx950, with 64 < D <= 128, so many keys make one block, and aiter adds to dq in 16 bits."""

ASM_KERNEL = r"fmha_bwd_hd\d"
"""Part of every assembly kernel's name, for dq, dk and dv, from v0.1.9 to 2026-08 (fmha_bwd_dqdkdv.csv)."""

_DECLARES = {
    "ck": Declares(never=("scaled_dot_product", ASM_KERNEL), matrix=True),
    "asm": Declares(kernels=(ASM_KERNEL,), never=("scaled_dot_product", "FmhaBwdDQDKDV"), matrix=True),
    "": Declares(never=("scaled_dot_product",)),
}
_FUNCTIONS = {
    ("ck", "backward"): "mha_bwd",
    ("asm", "backward"): "fmha_v3_bwd",
    ("", "backward"): "_flash_attn_backward",
    ("ck", "varlen_backward"): "mha_varlen_bwd",
    ("asm", "varlen_backward"): "fmha_v3_varlen_bwd",
    ("", "varlen_backward"): "_flash_attn_varlen_backward",
}
"""Functions by `Route.path` and family. The '' ones are what autograd calls below aiter's public functions."""

_GIVEN = ("dout", "q", "k", "v", "out", "softmax_lse")
_OFFSETS = ("cu_seqlens_q", "cu_seqlens_k")


@dataclass(frozen=True)
class AiterBackward(Backend[Backward | VarlenBackward]):
    """One route into aiter's backward pass, for one family.

    route     CK, ASM or AUTO
    family    'backward' or 'varlen_backward'
    """

    tolerance: Tolerance = TOLERANCE
    route: Route = CK
    family: str = "backward"

    @property
    def families(self) -> tuple[str, ...]:
        """The op family that this backend implements, as a tuple of one."""
        return (self.family,)

    @property
    def function_name(self) -> str:
        """Name of the aiter function that this route calls for this family."""
        return _FUNCTIONS[self.route.path, self.family]

    def unsupported_reasons(self, workload: Backward | VarlenBackward, device: DeviceInfo) -> list[str]:
        """Returns what aiter's C++ refuses, and what was never verified; empty if it can run. Head dimensions are not
        padded: aiter pads them in its autograd function, which is not called here."""
        who = self.route.format_function(self.function_name)
        found = route_reasons(self.route, who, device)
        if workload.dtype not in HALVES:
            found.append(f"{who} takes {join_names(HALVES)}, not {workload.dtype}")
        found += head_dim_reasons(who, (workload.head_dim,), padded=False)
        if any(seq_q > seq_kv for seq_q, seq_kv in _sequence_lengths(workload)) and workload.causal:
            found.append(f"{who} is not known to give zero gradients for rows that see no key, and some rows see none")
        if self.route is AUTO and without_ck():
            found.append(
                f"{who} is not what aiter's public functions run with ENABLE_CK=0: they take Triton, whose backward "
                "pass aiter.triton times; unset it"
            )
        return found + (_assembly_reasons(who, workload, device) if self.route is ASM else [])

    def prepare(self, workload: Backward | VarlenBackward, inputs: Tensors) -> Prepared:
        """Returns aiter's call on copies of the inputs, run once; its config records which path (e.g. 'ck') ran."""
        return prepare_binding(self.route, self._bind_call(workload, inputs[0]), inputs)

    def _bind_call(self, workload: Backward | VarlenBackward, q: torch.Tensor) -> Binding:
        import torch

        module = import_attention_module(self.function_name)
        atomic32, rounding = _assembly_choice(workload)
        values = {
            "dropout_p": 0.0,
            "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
            "is_causal": workload.causal,
            "causal": workload.causal,
            "window_size_left": -1,
            "window_size_right": -1,
            "deterministic": False,
            "is_v3_atomic_fp32": atomic32,
            "how_v3_bf16_cvt": rounding,
            # C++ takes its address even without dropout.
            "rng_state": torch.zeros(2, dtype=torch.int64, device=q.device),
            "dbias": None,
            "bias": None,
            "alibi_slopes": None,
        }
        if isinstance(workload, VarlenBackward):
            values |= {"max_seqlen_q": workload.max_q, "max_seqlen_k": workload.max_kv, "zero_tensors": False}
        config = {"function": self.function_name, "padded_in_call": "False", "deterministic": "False"}
        if self.route is ASM:
            config |= {"is_v3_atomic_fp32": str(atomic32), "how_v3_bf16_cvt": str(rounding)}
        call = self._bind_function(
            module, [*_GIVEN, *(_OFFSETS if isinstance(workload, VarlenBackward) else ())], values
        )
        declares = _DECLARES[self.route.path]
        return Binding(f"aiter's {self.function_name}", call, _reorder_inputs, _canonical_outputs, config, declares)

    def _bind_function(self, module: ModuleType, names: Sequence[str], values: dict[str, Any]) -> Callable[..., Any]:
        """Returns a function of tensors, named `names` in order, that returns the gradients. On every route each call
        allocates new ones, as autograd does."""
        if not self.route.path:
            return partial(_into_new, bind_by_position(module, self.function_name, [*names, "dq", "dk", "dv"], values))
        if (self.route.path, self.family) == ("asm", "backward"):
            return partial(_into_zeros, bind_by_position(module, self.function_name, [*names, "dq"], values))
        return bind_by_position(module, self.function_name, names, values)


def _list_parts() -> tuple[tuple[str, str, Backend], ...]:
    routes = (("ck", CK), ("aiter.asm", ASM), ("aiter.auto", AUTO))
    families = ("backward", "varlen_backward")
    return tuple(
        (name, family, AiterBackward(name, route=route, family=family)) for name, route in routes for family in families
    )


PARTS: tuple[tuple[str, str, Backend], ...] = _list_parts()
"""(name of a backend, family, its part of the backend)."""

_MASK = ("is_causal", "window_size_left", "window_size_right")
_MASK_OF_DISPATCHER = ("causal", "window_size_left", "window_size_right")
_PACKED = (*_OFFSETS, "max_seqlen_q", "max_seqlen_k")
_SCALE = ("dropout_p", "softmax_scale")
_NEW = ("dq", "dk", "dv")
_LAST = ("alibi_slopes", "deterministic")
_ROUNDED = ("deterministic", "is_v3_atomic_fp32", "how_v3_bf16_cvt")
ENTRY_POINTS = (
    EntryPoint(MHA, "get_gfx"),
    EntryPoint(MHA, "mha_bwd", offered=("rng_state",), positional=(*_GIVEN, *_SCALE, *_MASK, "deterministic")),
    EntryPoint(MHA, "fmha_v3_bwd", offered=("rng_state",), positional=(*_GIVEN, *_SCALE, *_MASK, *_ROUNDED, "dq")),
    EntryPoint(
        MHA,
        "_flash_attn_backward",
        offered=("rng_state",),
        positional=(*_GIVEN, *_NEW, "dbias", *_SCALE, *_MASK_OF_DISPATCHER, "bias", *_LAST),
    ),
    EntryPoint(
        MHA,
        "mha_varlen_bwd",
        offered=("rng_state",),
        positional=(*_GIVEN, *_PACKED, *_SCALE, "zero_tensors", *_MASK, "deterministic"),
    ),
    EntryPoint(
        MHA,
        "fmha_v3_varlen_bwd",
        offered=("rng_state",),
        positional=(*_GIVEN, *_PACKED, *_SCALE, "zero_tensors", *_MASK, *_ROUNDED),
    ),
    EntryPoint(
        MHA,
        "_flash_attn_varlen_backward",
        offered=("rng_state",),
        positional=(*_GIVEN, *_NEW, *_PACKED, *_SCALE, *_MASK_OF_DISPATCHER, *_LAST),
    ),
)
"""The aiter functions that this module calls."""


def _sequence_lengths(workload: Backward | VarlenBackward) -> list[tuple[int, int]]:
    """Returns (number of queries, number of keys) of every sequence; one pair for a dense workload."""
    if isinstance(workload, VarlenBackward):
        return list(zip(workload.seqs_q, workload.seqs_kv, strict=True))
    return [(workload.seq_q, workload.seq_kv)]


def _assembly_reasons(who: str, workload: Backward | VarlenBackward, device: DeviceInfo) -> list[str]:
    """Returns what `can_impl_fmha_v3_bwd` and its gfx950 variant refuse, and masks that we never verified."""
    found = []
    first, last = (72, 128) if device.arch == "gfx950" else (64, 192)
    if not first <= workload.head_dim <= last:
        found.append(f"{who} takes head_dim {first} to {last} on {device.arch}, not {workload.head_dim}")
    if isinstance(workload, Backward) and workload.seq_q < ASM_QUERIES_MIN:
        found.append(f"{who} was not verified below {ASM_QUERIES_MIN} queries, where aiter itself takes CK")
    if workload.causal and any(seq_q != seq_kv for seq_q, seq_kv in _sequence_lengths(workload)):
        found.append(
            f"{who} was not verified with causal masks where a sequence has not as many keys as queries: aiter's "
            'source says of some kernels that they align masks top-left ("v3 kernel only support mask_enum::top_left")'
        )
    return found


def _assembly_choice(workload: Backward | VarlenBackward) -> tuple[bool, int]:
    """Returns (whether dq is summed in fp32, how results are rounded as `how_v3_bf16_cvt`), as aiter's dispatchers
    choose for this GPU."""
    arch = import_aiter(MHA, "get_gfx")()
    one_block = (
        arch == "gfx950"
        and isinstance(workload, Backward)
        and workload.seq_kv <= ONE_BLOCK_KEYS_MAX
        and 64 < workload.head_dim <= 128
    )
    return not one_block, 0 if arch == "gfx950" else ROUNDING


def _reorder_inputs(inputs: Tensors) -> Tensors:
    """Returns (q, k, v, dout, out, lse, offsets) in aiter's order: (dout, q, k, v, out, lse, offsets)."""
    q, k, v, dout, *rest = inputs
    return (dout, q, k, v, *rest)


def _into_new(call: Callable[..., Any], *tensors: torch.Tensor) -> Tensors:
    """Allocates dq, dk and dv as the autograd of aiter's public functions does, passes them to `call` after `tensors`,
    and returns them filled."""
    import torch

    gradients = tuple(torch.empty_like(tensor) for tensor in tensors[1:4])
    call(*tensors, *gradients)
    return gradients


def _into_zeros(call: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    """Returns the result of `call` on `tensors` and a dq of zeros, as aiter's dispatcher calls it: dense assembly may
    add to dq."""
    import torch

    return call(*tensors, torch.zeros_like(tensors[1]))


def _canonical_outputs(result: Any) -> Outputs:
    return dict(zip(("dq", "dk", "dv"), cast("Tensors", tuple(result[:3])), strict=True))

"""Rotary embedding of aiter with tables of cosines and sines: HIP (`aiter.hip`) and Triton (`aiter.triton`).

Layout (S, B, H, D), contiguous, tables (S, 1, 1, D / 2) in fp32 as the workload has them. The functions that compute
the tables from angles would do other work. Written from aiter's source, v0.1.5 to e4048607a5 (2026-08-22); never run on
an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter.direct import Direct, Function, device_reasons, prepare_direct
from kernels.aiter.signatures import EntryPoint
from pytest_attnperf.backends import Backend, Declares
from pytest_attnperf.workloads.rope import Rope

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

HIP = "aiter.ops.rope"
TRITON, OLD_TRITON = "aiter.ops.triton.rope.rope", "aiter.ops.triton.rope"
NEOX, GPTJ = 0, 1
"""`rotate_style`: pairs are the two halves of a head, or neighbouring elements."""


@dataclass(frozen=True)
class AiterRope(Backend[Rope]):
    """q and k in one launch (`rope_cached_2c_fwd`, HIP), or in one each (`rope_cached_fwd`, Triton).

    path    'hip' or 'triton'
    """

    path: str = "hip"

    families = ("rope",)

    def unsupported_reasons(self, workload: Rope, device: DeviceInfo) -> list[str]:
        """Returns why this path cannot run the workload. Triton needs a head dimension that is a power of 2."""
        found = device_reasons(device)
        if self.path == "triton" and workload.head_dim & (workload.head_dim - 1):
            found.append(f"aiter's Triton rope takes a head_dim that is a power of 2, not {workload.head_dim}")
        return found

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Copies q and k to (S, B, H, D), untimed, and runs the call once."""
        style = GPTJ if workload.interleaved else NEOX
        fixed = {"rotate_style": style, "reuse_freqs_front_part": True, "nope_first": False}
        optional = {"transpose_output": False}
        if self.path == "hip":
            function = Function.import_named(HIP, "rope_cached_2c_fwd", "hip")
            call = function.bind_tensors(("input_x", "input_y", "cos", "sin"), fixed, optional)
        else:
            function = Function.import_named(TRITON, "rope_cached_fwd", "triton", old=OLD_TRITON)
            call = _call_each(function.bind_tensors(("x", "cos", "sin"), fixed, optional))
        return prepare_direct(
            Direct(
                function,
                call,
                outputs=_canonical_outputs,
                convert=_sequence_first,
                config={"function": function.name, "layout": "sbhd", "allocated_in_call": "outputs"},
                declares=Declares(never=("aten::mul",)),
            ),
            inputs,
        )


def _call_each(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (q, k, cos, sin) that calls `call` for q, then for k, and returns both results."""
    return lambda q, k, cos, sin: (call(q, cos, sin), call(k, cos, sin))


def _sequence_first(inputs: Tensors) -> Tensors:
    """Returns contiguous copies of q and k (B, S, H, D) as (S, B, H, D), and of both tables as (S, 1, 1, D / 2)."""
    import torch

    q, k, cos, sin = inputs
    heads = (x.transpose(0, 1).clone(memory_format=torch.contiguous_format) for x in (q, k))
    return (*heads, *(table[:, None, None, :].clone() for table in (cos, sin)))


def _canonical_outputs(result: Any) -> Outputs:
    q, k = result
    return {"q": q.transpose(0, 1), "k": k.transpose(0, 1)}


PARTS: tuple[tuple[str, str, Backend], ...] = tuple(
    (name, "rope", AiterRope(name, path=path)) for name, path in (("aiter.hip", "hip"), ("aiter.triton", "triton"))
)

_STYLE = ("rotate_style", "reuse_freqs_front_part", "nope_first")
ENTRY_POINTS = (
    EntryPoint(
        HIP, "rope_cached_2c_fwd", needed=("input_x", "input_y", "cos", "sin", *_STYLE), offered=("transpose_output",)
    ),
    EntryPoint(
        TRITON, "rope_cached_fwd", needed=("x", "cos", "sin", *_STYLE), offered=("transpose_output",), old=OLD_TRITON
    ),
)

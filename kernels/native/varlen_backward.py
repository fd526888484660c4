"""The backward pass over packed sequences as torch operators, one sequence after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from kernels.native.backward import CPU_HALF_FLOPS_MAX, eager_backward
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo


@dataclass(frozen=True)
class EagerVarlenBackward(Backend[VarlenBackward]):
    """`eager_backward` on each sequence, the only way if no kernel takes offsets.

    The host knows the lengths. The timed call includes transposing a sequence to (1, H, S, D) and writing the
    gradients back, because that is a cost of working without a packed kernel.
    """

    families = ("varlen_backward",)

    def unsupported_reasons(self, workload: VarlenBackward, device: DeviceInfo) -> list[str]:
        """Returns a reason against a sequence of one key, because the dense family does not allow it; else empty."""
        if 1 in workload.seqs_kv:
            return ["takes sequences of at least 2 keys, this workload has one of 1"]
        return []

    def prepare(self, workload: VarlenBackward, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds the causal masks, untimed."""
        device = inputs[0].device
        sequences = [
            (rows, keys, eager_backward(one, device))
            for (rows, keys), one in zip(workload.iterate_slices(), workload.sequences, strict=True)
            if one is not None
        ]

        def call_operators(*given: torch.Tensor) -> Outputs:
            import torch

            gradients = dict(zip(("dq", "dk", "dv"), map(torch.empty_like, given[:3]), strict=True))
            for rows, keys, backward in sequences:
                found = backward(*_cut_sequence(given, rows, keys))
                for name, place, gradient in zip(gradients, (rows, keys, keys), found, strict=True):
                    gradients[name][place] = gradient[0].transpose(0, 1)
            return gradients

        return Prepared(
            call=call_operators,
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=lambda result: result,
            config={"compute_dtype": workload.dtype, "weights": "softmax", "sequences": "in a loop"},
            declares=Declares(never=("scaled_dot_product",)),
        )


def _cut_sequence(packed: Tensors, rows: slice, keys: slice) -> Tensors:
    """Returns (q, k, v, dout, out) of one sequence as contiguous (1, H, S, D), and lse (1, H, Sq)."""
    q, k, v, dout, out, lse, *_ = packed
    places = ((q, rows), (k, keys), (v, keys), (dout, rows), (out, rows))
    return (*(tensor[None, place].transpose(1, 2).contiguous() for tensor, place in places), lse[None, :, rows])


BACKENDS: tuple[Backend, ...] = (EagerVarlenBackward("native.eager_varlen_backward", CPU_HALF_FLOPS_MAX),)

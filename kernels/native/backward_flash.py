"""The backward pass of torch's flash attention on CUDA (FlashAttention-2), dense and packed, called directly.

torch's autograd calls `aten::_flash_attention_backward` below scaled_dot_product_attention, with the results of its own
forward pass. Here that forward pass runs untimed. Both operators take the canonical layout (B, S, H, D), and packed
(T, H, D).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

HEAD_DIM_MAX = 256
HEAD_DIM_STEP = 8
"""torch pads other head dimensions above these operators (pad_last_dim in transformers/attention.cpp)."""


@dataclass(frozen=True)
class FlashBackward(Backend[Backward | VarlenBackward]):
    """`aten::_flash_attention_backward` on the results of its own forward pass of the same q, k and v.

    Its causal mask is bottom-right, and a row that sees no key gives zero gradients (flash-attention's README, 2.1).

    family    'backward' or 'varlen_backward'
    """

    family: str = "backward"

    @property
    def families(self) -> tuple[str, ...]:
        """The op family that this backend implements, as a tuple of one; dense and packed sequences have a backend
        each, because both are common baselines."""
        return (self.family,)

    def unsupported_reasons(self, workload: Backward | VarlenBackward, device: DeviceInfo) -> list[str]:
        """Returns what the operator refuses: devices other than CUDA, dtypes other than f16 and bf16, and head
        dimensions above 256 or not divisible by 8."""
        found = []
        if device.kind != "cuda":
            found.append(f"torch's FlashAttention-2 is built for CUDA, this device is {device.kind}")
        if workload.dtype not in HALVES:
            found.append(f"torch's flash attention takes {join_names(HALVES)}, not {workload.dtype}")
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"torch's flash attention takes head dimensions to {HEAD_DIM_MAX}, not {workload.head_dim}")
        if workload.head_dim % HEAD_DIM_STEP:
            found.append(
                f"torch's flash attention takes head dimensions that are multiples of {HEAD_DIM_STEP}, not "
                f"{workload.head_dim}"
            )
        return found

    def prepare(self, workload: Backward | VarlenBackward, inputs: Tensors) -> Prepared:
        """Runs the forward pass, untimed; the timed tensors are (q, k, v, dout, out, lse, offsets of q and k)."""
        import torch

        convert = _bind_forward(workload)
        tensors = convert(inputs)
        return Prepared(
            call=_bind_backward(workload, tensors[0].device),
            tensors=tensors,
            convert=convert,
            outputs=_canonical_outputs,
            config={"torch": torch.__version__, "forward": "aten::_flash_attention_forward, untimed"},
            declares=Declares(operators=("aten::_flash_attention_backward",), matrix=True, own_forward=True),
        )


BACKENDS: tuple[Backend, ...] = (
    FlashBackward("native.sdpa_backward"),
    FlashBackward("native.sdpa_varlen_backward", family="varlen_backward"),
)


def _longest_lengths(workload: Backward | VarlenBackward) -> tuple[int, int]:
    """Returns (queries of the sequence with most queries, keys of the one with most keys)."""
    if isinstance(workload, VarlenBackward):
        return workload.max_q, workload.max_kv
    return workload.seq_q, workload.seq_kv


def _bind_forward(workload: Backward | VarlenBackward) -> Callable[[Tensors], Tensors]:
    """Returns a function from canonical inputs to the timed tensors (q, k, v, dout, out, lse, offsets): it copies the
    inputs, and runs the forward operator, whose 'out' and 'lse' replace the given ones."""
    import torch

    max_q, max_kv = _longest_lengths(workload)

    def run_forward(inputs: Tensors) -> Tensors:
        q, k, v, dout = (tensor.clone() for tensor in inputs[:4])
        offsets = tuple(tensor.clone() for tensor in inputs[6:])
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, *(offsets or (None, None)), max_q, max_kv, 0.0, workload.causal, False
        )
        return (q, k, v, dout, out, lse, *offsets)

    return run_forward


def _bind_backward(workload: Backward | VarlenBackward, device: torch.device) -> Callable[..., Tensors]:
    import torch

    operator = torch.ops.aten._flash_attention_backward
    max_q, max_kv = _longest_lengths(workload)
    # Read only where there is dropout.
    state, unused = (torch.zeros(shape, dtype=torch.uint64, device=device) for shape in ((2,), ()))

    def run_backward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dout: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        *offsets: torch.Tensor,
    ) -> Tensors:
        cumulative = offsets or (None, None)
        arguments = (dout, q, k, v, out, lse, *cumulative, max_q, max_kv, 0.0, workload.causal, state, unused)
        return cast("Tensors", operator(*arguments))

    return run_backward


def _canonical_outputs(result: Tensors) -> Outputs:
    """Returns the operator's (dq, dk, dv), which have the canonical layout, by name."""
    return dict(zip(("dq", "dk", "dv"), result, strict=True))

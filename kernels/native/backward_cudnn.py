"""The backward pass of cuDNN's attention on CUDA, called directly.

torch's autograd calls `aten::_scaled_dot_product_cudnn_attention_backward` below scaled_dot_product_attention, with the
results of its own forward pass. Here that forward pass runs untimed. Both operators take (B, H, S, D) with any strides:
they get views of the canonical layout (B, S, H, D).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import heads_last
from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.backward import Backward

HEAD_DIM_MAX = 256
HEAD_DIM_STEP = 8
"""What cuDNN takes on an H200 with torch 2.11; on older GPUs it has no backward pass above 128."""


@dataclass(frozen=True)
class CudnnBackward(Backend["Backward"]):
    """`aten::_scaled_dot_product_cudnn_attention_backward` on the results of its own forward pass of the same q, k and
    v. Its causal mask is top-left."""

    families = ("backward",)

    def unsupported_reasons(self, workload: Backward, device: DeviceInfo) -> list[str]:
        """Returns what the operator refuses: devices other than CUDA, dtypes other than f16 and bf16, head dimensions
        above 256 or not divisible by 8; and a causal mask over different numbers of queries and keys."""
        found = []
        if device.kind != "cuda":
            found.append(f"cuDNN is built for CUDA, this device is {device.kind}")
        if workload.dtype not in HALVES:
            found.append(f"torch's cuDNN attention takes {join_names(HALVES)}, not {workload.dtype}")
        if workload.head_dim > HEAD_DIM_MAX or workload.head_dim % HEAD_DIM_STEP:
            found.append(
                f"torch's cuDNN attention takes head dimensions to {HEAD_DIM_MAX} that are multiples of "
                f"{HEAD_DIM_STEP}, not {workload.head_dim}"
            )
        if workload.causal and workload.seq_q != workload.seq_kv:
            found.append(
                f"torch's cuDNN attention has a top-left causal mask, this workload a bottom-right one over "
                f"{workload.seq_q} queries and {workload.seq_kv} keys"
            )
        return found

    def prepare(self, workload: Backward, inputs: Tensors) -> Prepared:
        """Runs the forward pass, untimed; the timed tensors are (q, k, v, dout, out, lse, both of the random state)."""
        import torch

        convert = _bind_forward(workload)
        return Prepared(
            call=_bind_backward(workload),
            tensors=convert(inputs),
            convert=convert,
            outputs=_canonical_outputs,
            config={
                "torch": torch.__version__,
                "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
                "forward": "aten::_scaled_dot_product_cudnn_attention, untimed",
            },
            declares=Declares(
                operators=("aten::_scaled_dot_product_cudnn_attention_backward",), matrix=True, own_forward=True
            ),
        )


BACKENDS: tuple[Backend, ...] = (CudnnBackward("native.cudnn_backward"),)


def _bind_forward(workload: Backward) -> Callable[[Tensors], Tensors]:
    """Returns a function from canonical inputs to the timed tensors, (B, H, S, D) views of copies: it runs the forward
    operator, whose 'out' and 'lse' replace the given ones."""
    import torch

    def run_forward(inputs: Tensors) -> Tensors:
        q, k, v, dout = (heads_last(tensor.clone()) for tensor in inputs[:4])
        out, lse, _, _, _, _, seed, offset, _ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, workload.causal, False
        )
        return (q, k, v, dout, out, lse, seed, offset)

    return run_forward


def _bind_backward(workload: Backward) -> Callable[..., Tensors]:
    import torch

    operator = torch.ops.aten._scaled_dot_product_cudnn_attention_backward

    def run_backward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dout: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        seed: torch.Tensor,
        offset: torch.Tensor,
    ) -> Tensors:
        # Without a bias and packed sequences there are no tensors of them.
        given = (dout, q, k, v, out, lse, seed, offset, None, None, None, workload.seq_q, workload.seq_kv)
        result: Tensors = operator(*given, 0.0, workload.causal)
        return result

    return run_backward


def _canonical_outputs(result: Tensors) -> Outputs:
    """Returns 'dq', 'dk' and 'dv' as (B, S, H, D) views of the operator's (B, H, S, D)."""
    return {name: heads_last(gradient) for name, gradient in zip(("dq", "dk", "dv"), result, strict=True)}

"""Attention that torch compiles: FlexAttention, and torch.compile of the plain form. Both compile before timing."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.native.prefill_eager import canonical_outputs, eager_attention
from kernels.prefill_backend import FLOATS, Limits, PrefillBackend, heads_first
from pytest_attnperf.backends import Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

NOT_ON_CPU = "compiled by Inductor and offered on GPUs only: for a CPU that takes a C++ compiler and minutes"


@dataclass(frozen=True)
class Compiled(PrefillBackend):
    """torch.compile of `native.eager`'s function."""

    def limits(self, device: DeviceInfo) -> Limits:
        """What `native.eager` computes in the workload's own dtype."""
        return Limits(self.name, dtypes=FLOATS)

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Offered on GPUs only."""
        return [f"{self.name} is {NOT_ON_CPU}"] if device.kind == "cpu" else []

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Compile for exactly these shapes, and run once so that nothing is left to compile.

        Inductor knows softmax(q k^T * number) v and puts scaled_dot_product_attention in its place
        (torch/_inductor/fx_passes/fuse_attention.py), which is another backend. It does not where the scale is a
        tensor, nor where a mask stands in between.
        """
        import torch

        call = compiled(eager_attention(workload, inputs[0].device))
        if not workload.causal:
            call = partial(call, score_scale=torch.tensor(workload.head_dim**-0.5, device=inputs[0].device))
        return _prepared(call, heads_first(inputs), {"compiled": "torch.compile, dynamic=False, fullgraph=True"})


@dataclass(frozen=True)
class Flex(PrefillBackend):
    """FlexAttention, compiled, with a block mask built before timing."""

    def limits(self, device: DeviceInfo) -> Limits:
        """The log-sum-exp argument differs between torch releases and is not used."""
        return Limits(
            self.name,
            dtypes=FLOATS,
            no_lse=f"{self.name} gives no log-sum-exp: FlexAttention's argument for it differs between releases",
        )

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Offered on GPUs only."""
        return [f"{self.name} is {NOT_ON_CPU}"] if device.kind == "cpu" else []

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Build the block mask for the bottom-right diagonal, compile, and run once."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q = inputs[0]
        shift = workload.seq_kv - workload.seq_q
        window = workload.window
        grouped = workload.heads != workload.kv_heads

        def below_diagonal(b: torch.Tensor, h: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return key <= row + shift

        def in_window(b: torch.Tensor, h: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= row + shift) & (key > row + shift - window)

        block_mask = None
        if workload.causal:
            visible = in_window if window else below_diagonal
            block_mask = create_block_mask(visible, None, None, workload.seq_q, workload.seq_kv, device=str(q.device))

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=grouped)

        config = {"compiled": "flex_attention, dynamic=False, fullgraph=True", "block_mask": str(workload.causal)}
        return _prepared(compiled(attention), heads_first(inputs), config)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled for the shapes it is first called with; whatever cannot be compiled raises.

    Dynamo keeps what it compiled on the code object and gives up after eight shapes, so every workload gets a code
    object of its own. Gradient and inference mode are fixed inside: with another state outside it would compile again.
    """
    import torch

    assert isinstance(function, types.FunctionType)
    own = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    fast = torch.compile(own, dynamic=False, fullgraph=True)

    def call(*tensors: torch.Tensor, **further: torch.Tensor) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return fast(*tensors, **further)

    return call


def _prepared(call: Callable[..., Any], tensors: Tensors, config: dict[str, str]) -> Prepared:
    call(*tensors)
    return Prepared(
        call=call,
        tensors=tensors,
        convert=heads_first,
        outputs=canonical_outputs,
        config=config,
        declares=Declares(kernels=("triton_",), never=("scaled_dot_product",)),
    )

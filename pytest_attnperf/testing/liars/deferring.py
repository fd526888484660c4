"""Lies about when the work is done: after the clock has stopped, while the result is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import WHILE_READ, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.testing.liars.liar import Kernel

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)


def _lazy_closure(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    honest = prepare_attention(workload, inputs)
    return lambda *qkv: [lambda: honest(*qkv)]


def _call_result(raw: Any) -> Outputs:
    return {"out": raw[0]()}


def _lazy_copies(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    return lambda *qkv: [tensor.clone() for tensor in qkv]


def _compute_result(raw: Any) -> Outputs:
    return {"out": attend(*raw, causal=SQUARE.causal)[0]}


def _lazy_behind_decoy(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that returns [zeros, function]; the function computes the right result from copies of the inputs
    when it is called."""
    import torch

    honest = prepare_attention(workload, inputs)

    def call(*qkv: torch.Tensor) -> Any:
        copies = tuple(tensor.clone() for tensor in qkv)
        return [torch.zeros_like(qkv[0]), lambda: honest(*copies)]

    return call


def _added_to_decoy(raw: Any) -> Outputs:
    return {"out": raw[0] + raw[1]()}


def _lazy_tensor(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that returns a tensor with the result's shape, dtype and device, but without values: the first
    operator that reads it computes them."""
    import torch

    honest = prepare_attention(workload, inputs)

    class LazyTensor(torch.Tensor):
        """Holds copies of the inputs."""

        copies: tuple[torch.Tensor, ...]

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            read = [honest(*x.copies) if isinstance(x, LazyTensor) else x for x in args]
            return func(*read, **(kwargs or {}))

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        q = qkv[0]
        lazy = torch.Tensor._make_wrapper_subclass(LazyTensor, q.shape, dtype=q.dtype, device=q.device)
        assert isinstance(lazy, LazyTensor)
        lazy.copies = tuple(tensor.clone() for tensor in qkv)
        return lazy

    return call


def _own_method(name: str) -> Kernel:
    """Returns a kernel whose call returns a plain tensor of zeros that has an attribute `name` of its own: a function
    that computes the result from copies of the inputs."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
        import torch

        honest = prepare_attention(workload, inputs)

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            out, copies = torch.zeros_like(qkv[0]), tuple(tensor.clone() for tensor in qkv)
            setattr(out, name, lambda: honest(*copies))
            return out

        return call

    return prepare_kernel


def _own_attribute(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns honest attention whose result has an attribute that no tensor of torch has."""
    honest = prepare_attention(workload, inputs)

    def call(*qkv: torch.Tensor) -> Any:
        out = honest(*qkv)
        out.origin = "attention"
        return out

    return call


DEFERRING = (
    make_liar(
        "lazy_closure",
        "The call returns a closure that computes the result when it is read.",
        SQUARE,
        _lazy_closure,
        WHILE_READ,
        outputs=_call_result,
    ),
    make_liar(
        "lazy_copies",
        "The call copies its inputs, and the result is computed from the copies when it is read.",
        SQUARE,
        _lazy_copies,
        WHILE_READ,
        outputs=_compute_result,
    ),
    make_liar(
        "lazy_behind_decoy",
        "The call returns zeros, to which the result is added when it is read.",
        SQUARE,
        _lazy_behind_decoy,
        WHILE_READ,
        outputs=_added_to_decoy,
    ),
    make_liar(
        "tensor_subclass",
        "The result is a tensor of a class of its own that computes itself when it is read.",
        SQUARE,
        _lazy_tensor,
        r"LazyTensor, not a plain torch\.Tensor",
    ),
    make_liar(
        "overrides_a_method",
        "The result is a plain tensor of zeros, one of whose methods has been replaced by a function that computes.",
        SQUARE,
        _own_method("resolve_conj"),
        "the call has replaced resolve_conj",
        twin=_own_attribute,
    ),
)

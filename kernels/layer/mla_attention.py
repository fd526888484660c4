"""Turns a backend of latent attention into the stage of a layer that attends over its caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kernels.layer.attention import BoundAttention, make_stages, memory_address
from kernels.native.mla import NAIVE_DECLARES

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Backend, Tensors, Values
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.mla import Mla
    from pytest_attnperf.workloads.mla_block import MlaBlock

QUERIES = ("q_nope", "q_pe")
"""Names of the values that attention alone reads."""

ARGUMENTS = (*QUERIES, "kv_cache", "pe_cache", "wkv_b")
"""Names of the layer's values that the inputs of family `mla` are made of, in order."""


@runtime_checkable
class OverHeads(Protocol):
    """A backend of latent attention that also attends over cached keys and values of heads."""

    def attend_heads(self, workload: Mla, device: torch.device) -> Callable[..., torch.Tensor]:
        """Returns a function of q (B, S, H, D + R), k (B, T, H, D + R), v (B, T, H, Dv) and an optional mask (S, T)
        that returns (B, H, S, Dv)."""


def attention_reasons(attention: Backend, block: MlaBlock, device: DeviceInfo) -> list[str]:
    """Returns why `attention` cannot compute the attention of `block`: the mask, the kind of caches, or its own
    reasons for the problem inside; empty if it can."""
    found = []
    if block.mask and not takes_mask(attention):
        found.append(
            f"{attention.name} has a causal mask or none, and this layer's mask is an input; layers over "
            "native.mla_naive and native.mla_absorb take one"
        )
    if not block.expanded:
        return found + attention.unsupported_reasons(block.attention, device)
    if not isinstance(attention, OverHeads):
        found.append(
            f"{attention.name} attends over cached latents, and these caches hold keys and values of heads "
            "(expanded); the layer over native.mla_naive takes them"
        )
    return found


def takes_mask(attention: Backend) -> bool:
    """Returns whether calls of `attention` take an additive mask (S, T) as one more argument."""
    return bool(getattr(attention, "takes_mask", False))


def bind_latent_attention(attention: Backend, block: MlaBlock, example: Values) -> BoundAttention:
    """Prepares `attention` and returns it as stages of a layer, which read the values ARGUMENTS, or expanded k_cache
    and v_cache in place of the latter three, and the mask; they add RESULT and free QUERIES.

    example    tensors of the layer's inputs and queries by name; only shapes and dtypes matter, but values are finite
    """
    if block.expanded:
        return _bind_over_heads(attention, block, example["x"].device)
    given = _collect_inputs(block, example)
    # Only the prepared call is kept; the backend's own copies of a cache are freed.
    prepared = attention.prepare(block.attention, tuple(tensor.contiguous() for tensor in given))
    take = prepared.arguments or prepared.convert
    taken = {memory_address(tensor) for tensor in take(given)}
    copied = [name for name, tensor in zip(ARGUMENTS, given, strict=True) if memory_address(tensor) not in taken]

    def collect_arguments(values: Values) -> Tensors:
        return (*take(_collect_inputs(block, values)), *_mask_of(block, values))

    stages = make_stages(prepared.call, collect_arguments, prepared.outputs, QUERIES)
    return BoundAttention(stages, prepared.config, prepared.declares, ", ".join(copied))


def _collect_inputs(block: MlaBlock, values: Values) -> Tensors:
    """Returns the queries, views of the first T rows of both caches, and wkv_b (H, D + Dv, C): the inputs of `mla`."""
    q_nope, q_pe, kv_cache, pe_cache, wkv_b = (values[name] for name in ARGUMENTS)
    by_head = wkv_b.view(block.heads, block.nope_dim + block.value_dim, block.latent_dim)
    return q_nope, q_pe, kv_cache[:, : block.length], pe_cache[:, : block.length], by_head


def _mask_of(block: MlaBlock, values: Values) -> Tensors:
    return (values["mask"],) if block.mask else ()


def _bind_over_heads(attention: Backend, block: MlaBlock, device: torch.device) -> BoundAttention:
    """Returns attention over caches of keys and values of heads, read where they lie."""
    import torch

    assert isinstance(attention, OverHeads), "unsupported_reasons refuses other backends"
    attend = attention.attend_heads(block.attention, device)

    def collect_arguments(values: Values) -> Tensors:
        q = torch.cat([values[name] for name in QUERIES], dim=-1)
        keys, rows = (values[name][:, : block.length] for name in block.cache_shapes)
        return (q, keys, rows, *_mask_of(block, values))

    stages = make_stages(attend, collect_arguments, lambda out: {"out": out.transpose(1, 2)}, QUERIES)
    config = {"form": "naive", "cached": "keys and values of heads", "torch": torch.__version__}
    return BoundAttention(stages, config, NAIVE_DECLARES, "")

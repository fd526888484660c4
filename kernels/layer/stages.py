"""The stages of a layer around its attention, as functions of the values of earlier stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.layer.attention import RESULT
from kernels.layer.cache import KeyValueCache
from pytest_attnperf.backends import Stage
from pytest_attnperf.workloads.rope import Rope

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors, Values
    from pytest_attnperf.workloads.block import Block

    Rotate = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def stages_of(block: Block, rotate: Rotate, attention: tuple[Stage, ...], *, copies: bool) -> tuple[Stage, ...]:
    """Returns all stages of a layer in order, from the projection of q, k and v to that of the output.

    rotate       q (B, S, H, D), k (B, S, Hk, D), cos and sin (S, D / 2) -> both rotated, contiguous
    attention    reads q, k_cache and v_cache, adds RESULT and frees q
    copies       whether q and k must be contiguous before they are rotated
    """

    def rotate_heads(values: Values) -> Values:
        q, k = rotate(values["q"], values["k"], *tables_of(block, values["cos"], values["sin"]))
        return {"q": q, "k": k}

    def append_to_cache(values: Values) -> Values:
        KeyValueCache(values["k_cache"], values["v_cache"]).append(values["k"], values["v"], block.past)
        return {}

    def flatten_heads(values: Values) -> Values:
        return {"flat": values[RESULT].reshape(block.batch * block.seq, block.heads * block.head_dim)}

    return (
        Stage("qkv_projection", _qkv_projection),
        Stage("split", lambda values: _split_qkv(block, values["qkv"], copies=copies), frees=("qkv",)),
        Stage("rope", rotate_heads),
        Stage("cache_append", append_to_cache, frees=("k", "v")),
        *attention,
        Stage("flatten", flatten_heads, frees=(RESULT,)),
        Stage("output_projection", lambda values: _output_projection(block, values), frees=("flat",)),
    )


def stack_stages(layers: int, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Returns the stages of `layers` layers, each 'layerN.NAME', N from 1, between which x becomes x + out; those of a
    single layer as they are. Later layers get what torch's allocator has back from earlier ones."""
    if layers == 1:
        return stages
    sums = (*((Stage("residual", _add_residual, frees=("out",)),) for _ in range(layers - 1)), ())
    return tuple(
        replace(stage, name=f"layer{number}.{stage.name}")
        for number, last in enumerate(sums, 1)
        for stage in (*stages, *last)
    )


def canonical_outputs(block: Block, result: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Outputs:
    """Returns the layer's result (out, k_cache, v_cache) as 'out' (B, S, E), and views 'k' and 'v' of the caches' new
    rows."""
    out, k_cache, v_cache = result
    rows = slice(block.past, block.length)
    return {"out": out, "k": k_cache[:, rows], "v": v_cache[:, rows]}


def rope_of(block: Block) -> Rope:
    """Returns the rope workload that rotates a block's new queries and keys."""
    return Rope(block.batch, block.seq, block.heads, block.head_dim, block.kv_heads, block.dtype)


def tables_of(block: Block, cos: torch.Tensor, sin: torch.Tensor) -> Tensors:
    """Returns the rows of cos and sin for the new tokens, two views (S, D / 2)."""
    return cos[block.past : block.length], sin[block.past : block.length]


def _qkv_projection(values: Values) -> Values:
    """Returns 'qkv', the product of x (B, S, E) and w_qkv, plus b_qkv if given: (B, S, (H + 2 Hk) D)."""
    from torch.nn.functional import linear

    return {"qkv": linear(values["x"], values["w_qkv"], values.get("b_qkv"))}


def _split_qkv(block: Block, qkv: torch.Tensor, *, copies: bool) -> Values:
    """Returns 'q' (B, S, H, D), 'k' and 'v' (B, S, Hk, D) as views of qkv; with `copies`, q and k are contiguous
    copies."""
    heads = qkv.view(block.batch, block.seq, block.heads + 2 * block.kv_heads, block.head_dim)
    first_v = block.heads + block.kv_heads
    q, k, v = heads[:, :, : block.heads], heads[:, :, block.heads : first_v], heads[:, :, first_v:]
    return {"q": q.contiguous(), "k": k.contiguous(), "v": v} if copies else {"q": q, "k": k, "v": v}


def _output_projection(block: Block, values: Values) -> Values:
    """Returns 'out' (B, S, E), the product of 'flat' (B * S, H D) and w_out, plus b_out if given."""
    from torch.nn.functional import linear

    out = linear(values["flat"], values["w_out"], values.get("b_out"))
    return {"out": out.view(block.batch, block.seq, block.hidden)}


def _add_residual(values: Values) -> Values:
    """Returns 'x' of the next layer, x + out (B, S, E)."""
    return {"x": values["x"] + values["out"]}

"""The stages of a layer of latent attention around its attention, as functions of the values of earlier stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kernels.layer.attention import RESULT
from pytest_attnperf.backends import Stage
from pytest_attnperf.workloads.block_scales import dequantise_blocks
from pytest_attnperf.workloads.rmsnorm import EPS
from pytest_attnperf.workloads.rope import Rope

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors, Values
    from pytest_attnperf.workloads.mla_block import MlaBlock

    Rotate = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def stages_of(block: MlaBlock, rotate: Rotate, attention: tuple[Stage, ...], *, copies: bool) -> tuple[Stage, ...]:
    """Returns all stages of a layer in order, from the weights' scales to the projection of the output.

    rotate       q_pe (B, S, H, R), k_pe (B, S, 1, R), cos and sin (S, R / 2) -> both rotated, contiguous
    attention    reads q_nope, q_pe, the caches, wkv_b and the mask, adds RESULT and frees q_nope and q_pe
    copies       whether q_nope, and q_pe and k_pe before they are rotated, must be contiguous
    """

    def rotate_parts(values: Values) -> Values:
        q_pe, k_pe = rotate(values["q_pe"], values["k_pe"], *tables_of(block, values["cos"], values["sin"]))
        return {"q_pe": q_pe, "k_pe": k_pe}

    def split(values: Values) -> Values:
        return _split_heads(block, values["q"], values["kv_a"], copies=copies)

    def flatten_heads(values: Values) -> Values:
        return {"flat": values[RESULT].reshape(block.batch * block.seq, block.heads * block.value_dim)}

    def project_out(values: Values) -> Values:
        return {"out": _project(values["flat"], values["wo"]).view(block.batch, block.seq, block.hidden)}

    return (
        *_projections(block),
        Stage("split", split, frees=("q", "kv_a")),
        Stage("rope", rotate_parts),
        *_cache_stages(block),
        *attention,
        Stage("flatten", flatten_heads, frees=(RESULT,)),
        Stage("output_projection", project_out, frees=("flat",)),
    )


def canonical_outputs(block: MlaBlock, result: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Outputs:
    """Returns the layer's result (out, both caches) as 'out' (B, S, E), and views of the caches' new rows: 'kv' and
    'pe', or 'k' and 'v'."""
    out, *caches = result
    names = ("k", "v") if block.expanded else ("kv", "pe")
    return {
        "out": out,
        **{name: cache[:, block.past : block.length] for name, cache in zip(names, caches, strict=True)},
    }


def rope_of(block: MlaBlock) -> Rope:
    """Returns the rope workload that rotates the new queries and the key that all heads share."""
    return Rope(block.batch, block.seq, block.heads, block.rope_dim, 1, block.dtype, interleaved=True)


def tables_of(block: MlaBlock, cos: torch.Tensor, sin: torch.Tensor) -> Tensors:
    """Returns the rows of cos and sin for the new tokens, two views (S, R / 2)."""
    return cos[block.past : block.length], sin[block.past : block.length]


def _projections(block: MlaBlock) -> Iterator[Stage]:
    """Yields the stages from x to 'q' (B, S, H (D + R)), 'kv_a' (B, S, C + R) and 'kv', the normalised latents (B, S,
    C)."""
    if block.fp8w:
        yield Stage("weight_dequant", lambda values: _dequantise(block, values))
    if block.q_rank:
        yield Stage("q_a_projection", lambda values: {"q_a": _project(values["x"], values["wq_a"])})
        yield Stage("q_norm", lambda values: {"q_a": _normalise(values["q_a"], values["q_norm"])})
        yield Stage("q_b_projection", lambda values: {"q": _project(values["q_a"], values["wq_b"])}, frees=("q_a",))
    else:
        yield Stage("q_projection", lambda values: {"q": _project(values["x"], values["wq"])})
    yield Stage("kv_a_projection", lambda values: {"kv_a": _project(values["x"], values["wkv_a"])})
    yield Stage(
        "kv_norm", lambda values: {"kv": _normalise(values["kv_a"][..., : block.latent_dim], values["kv_norm"])}
    )


def _dequantise(block: MlaBlock, values: Values) -> Values:
    """Returns all weights in the layer's dtype under their names: `weight_dequant`."""
    return {
        name: dequantise_blocks(values[name], values[f"{name}_scale"], values["x"].dtype)
        for name in block.weight_shapes
    }


def _project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import linear

    return linear(x, weight)


def _normalise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import rms_norm

    return rms_norm(x, (x.shape[-1],), weight, EPS)


def _split_heads(block: MlaBlock, q: torch.Tensor, kv_a: torch.Tensor, *, copies: bool) -> Values:
    """Returns 'q_nope' (B, S, H, D), 'q_pe' (B, S, H, R) and 'k_pe' (B, S, 1, R) as views, or contiguous copies."""
    heads = q.view(block.batch, block.seq, block.heads, block.key_dim)
    found = {
        "q_nope": heads[..., : block.nope_dim],
        "q_pe": heads[..., block.nope_dim :],
        "k_pe": kv_a[:, :, None, block.latent_dim :],
    }
    return {name: part.contiguous() for name, part in found.items()} if copies else found


def _cache_stages(block: MlaBlock) -> Iterator[Stage]:
    """Yields the stages that write the new rows of the caches."""
    rows = slice(block.past, block.length)

    def append_latents(values: Values) -> Values:
        values["kv_cache"][:, rows].copy_(values["kv"])
        values["pe_cache"][:, rows].copy_(values["k_pe"][:, :, 0])
        return {}

    def append_heads(values: Values) -> Values:
        up = values["kv_b"].view(block.batch, block.seq, block.heads, block.nope_dim + block.value_dim)
        values["k_cache"][:, rows, :, : block.nope_dim].copy_(up[..., : block.nope_dim])
        values["k_cache"][:, rows, :, block.nope_dim :].copy_(values["k_pe"])
        values["v_cache"][:, rows].copy_(up[..., block.nope_dim :])
        return {}

    if not block.expanded:
        yield Stage("cache_append", append_latents, frees=("kv", "k_pe"))
        return
    yield Stage("kv_b_projection", lambda values: {"kv_b": _project(values["kv"], values["wkv_b"])}, frees=("kv",))
    yield Stage("cache_append", append_heads, frees=("kv_b", "k_pe"))

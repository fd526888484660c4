"""The computation of a latent-attention layer in its naive form: the definition, and the yardstick of its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.workloads.attention_math import Added, AttentionProblem, compute_plain
from pytest_attnperf.workloads.block import project_tokens
from pytest_attnperf.workloads.block_scales import dequantise_blocks
from pytest_attnperf.workloads.precision import full_fp32_matmul, wide_dtype
from pytest_attnperf.workloads.rmsnorm import EPS
from pytest_attnperf.workloads.rope import rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.mla_block import MlaBlock


def compute_layer(block: MlaBlock, inputs: Tensors, dtype: torch.dtype) -> Outputs:
    """Computes the outputs of `MlaBlock`: each step in fp32, or in fp64 if `dtype` is fp64, with its result rounded to
    `dtype`. Attention rounds as `attention_math.compute_plain` does; one sequence at a time, to bound the memory."""
    import torch

    given = block.name_inputs(inputs)
    weights = load_weights(block, given, dtype)
    with full_fp32_matmul(), torch.no_grad():
        queries = project_queries(block, given, weights, dtype)
        latents, k_pe = project_latents(block, given, weights, dtype)
        out = torch.empty((*queries.shape[:3], block.value_dim), dtype=dtype, device=queries.device)
        new = {"k": [], "v": []} if block.expanded else {"kv": [latents], "pe": [k_pe]}
        for b in range(block.batch):
            keys, values, own = collect_keys(block, given, weights["wkv_b"], (latents[b], k_pe[b]), b)
            problem = AttentionProblem(causal=not block.mask, lse=False, added=_added(block, given))
            out[b] = compute_plain(queries[b][None], keys[None], values[None], problem)["out"][0]
            for name, rows in own.items():
                new[name].append(rows[None])
        result = project_tokens(out.flatten(2), weights["wo"], None, dtype)
    return {"out": result, **{name: torch.cat(rows).contiguous() for name, rows in new.items()}}


def load_weights(block: MlaBlock, given: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Returns the projections by name in `dtype`; stored fp8 times its scales, rounded once."""
    if not block.fp8w:
        return {name: given[name].to(dtype) for name in block.weight_shapes}
    return {name: dequantise_blocks(given[name], given[f"{name}_scale"], dtype) for name in block.weight_shapes}


def project_queries(
    block: MlaBlock, given: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """Returns queries (B, S, H, D + R) in `dtype`, whose last R elements are rotated."""
    import torch

    if block.q_rank:
        latents = normalise(project_tokens(given["x"], weights["wq_a"], None, dtype), given["q_norm"])
        flat = project_tokens(latents, weights["wq_b"], None, dtype)
    else:
        flat = project_tokens(given["x"], weights["wq"], None, dtype)
    queries = flat.view(block.batch, block.seq, block.heads, block.key_dim)
    q_pe = rotate_new(block, given, queries[..., block.nope_dim :])
    return torch.cat([queries[..., : block.nope_dim], q_pe], dim=-1)


def project_latents(
    block: MlaBlock, given: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the new tokens' normalised latents (B, S, C) and rotated k_pe (B, S, R), in `dtype`."""
    both = project_tokens(given["x"], weights["wkv_a"], None, dtype)
    k_pe = rotate_new(block, given, both[..., None, block.latent_dim :])
    return normalise(both[..., : block.latent_dim], given["kv_norm"]), k_pe[..., 0, :]


def normalise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns RMSNorm of rows: x / sqrt(mean of x^2 + EPS) times `weight`, rounded once to the dtype of x."""
    import torch

    wide = x.to(wide_dtype(x.dtype))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight.to(wide.dtype)).to(x.dtype)


def rotate_new(block: MlaBlock, given: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Rotates x (B, S, heads, R) of the new tokens by their positions, pairs (2 i, 2 i + 1); rounds once."""
    wide = wide_dtype(x.dtype)
    cos, sin = (given[name][block.past : block.length].to(wide) for name in ("cos", "sin"))
    return rotate(x.to(wide), cos, sin, interleaved=True).to(x.dtype)


def expand_latents(block: MlaBlock, wkv_b: torch.Tensor, latents: torch.Tensor, k_pe: torch.Tensor) -> Tensors:
    """Returns keys (rows, H, D + R) and values (rows, H, Dv) of latents (rows, C) and k_pe (rows, R)."""
    import torch

    up = project_tokens(latents[None], wkv_b, None, latents.dtype)[0]
    up = up.view(len(latents), block.heads, block.nope_dim + block.value_dim)
    shared = k_pe[:, None].expand(-1, block.heads, -1)
    return torch.cat([up[..., : block.nope_dim], shared], dim=-1), up[..., block.nope_dim :]


def collect_keys(
    block: MlaBlock, given: dict[str, torch.Tensor], wkv_b: torch.Tensor, new: Tensors, b: int
) -> tuple[torch.Tensor, torch.Tensor, Outputs]:
    """Returns all keys (T, H, D + R) and values (T, H, Dv) of sequence b, the filled ones first, and, expanded, the new
    ones as 'k' and 'v'."""
    import torch

    first, second = (given[name][b, : block.past].to(wkv_b.dtype) for name in block.cache_shapes)
    if block.expanded:
        k, v = expand_latents(block, wkv_b, *new)
        return torch.cat([first, k]), torch.cat([second, v]), {"k": k, "v": v}
    keys, values = expand_latents(block, wkv_b, torch.cat([first, new[0]]), torch.cat([second, new[1]]))
    return keys, values, {}


def _added(block: MlaBlock, given: dict[str, torch.Tensor]) -> Added:
    return Added(bias=given["mask"].expand(block.heads, -1, -1)) if block.mask else Added()

"""One attention layer written out plainly, in chunks of tokens and a sequence at a time, so that memory stays bounded.

`reference` is the truth a backend is held against; `plain` is the same with every step's result rounded to the working
dtype, whose error against the reference is the yardstick of the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.workloads import attention_math
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.rope import rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.block import Block

TOKENS_AT_ONCE = 8192
"""Rows of one product: 8192 times (H + 2 Hk) D in fp32 are 200 MB in LLaMA-3 8B."""


def reference(block: Block, inputs: Tensors) -> Outputs:
    """'out', 'k' and 'v' in `reference_dtype`; with `hostref` computed from copies on the CPU, and copied back."""
    device = inputs[0].device
    if block.hostref:
        inputs = tuple(tensor.cpu() for tensor in inputs)
    # Tables are fp32 in every dtype, and say nothing of the precision of the rest.
    dtype = reference_dtype(inputs[:-2])
    return {name: output.to(device) for name, output in _layer(block, inputs, dtype).items()}


def plain(block: Block, inputs: Tensors) -> Outputs:
    """'out', 'k' and 'v' in the workload's dtype: products are summed in fp32 and rounded once, rotation is fp32 and
    rounded once, attention rounds as `attention_math.plain` does."""
    return _layer(block, inputs, inputs[0].dtype)


def _layer(block: Block, inputs: Tensors, dtype: torch.dtype) -> Outputs:
    """Every step in fp32 or, if `dtype` is, in fp64, its result in `dtype`."""
    import torch

    parts = block.parts(inputs)
    with full_fp32_matmul(), torch.no_grad():
        qkv = _projected(parts.x, parts.w_qkv, parts.b_qkv, dtype)
        heads = qkv.view(block.batch, block.seq, -1, block.head_dim)
        q, k, v = torch.split(heads, [block.heads, block.kv_heads, block.kv_heads], dim=2)
        cos, sin = (table[block.past : block.length] for table in (parts.cos, parts.sin))
        q, k = (_rotated(part, cos, sin, dtype) for part in (q, k))
        attended = torch.empty_like(q)
        for b in range(block.batch):
            keys, values = (
                torch.cat([cache[b : b + 1, : block.past].to(dtype), new[b : b + 1]], dim=1)
                for cache, new in ((parts.k_cache, k), (parts.v_cache, v))
            )
            attended[b] = attention_math.plain(q[b : b + 1], keys, values, causal=True, lse=False)["out"][0]
        out = _projected(attended.flatten(2), parts.w_out, None, dtype)
        return {"out": out, "k": k.contiguous(), "v": v.contiguous()}


def _projected(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """x (B, S, K) times weight (N, K) transposed, plus bias (N,) -> (B, S, N) in `dtype`."""
    import torch

    wide = _wide(dtype)
    tokens, columns = x.flatten(0, 1), weight.to(wide).t()
    out = torch.empty((len(tokens), len(weight)), dtype=dtype, device=x.device)
    for start in range(0, len(tokens), TOKENS_AT_ONCE):
        rows = slice(start, start + TOKENS_AT_ONCE)
        product = tokens[rows].to(wide) @ columns
        out[rows] = product if bias is None else product.add_(bias.to(wide))
    return out.view(*x.shape[:2], -1)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x (B, S, H, D) rotated, a sequence at a time, in `dtype`."""
    import torch

    wide = _wide(dtype)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    for b, one in enumerate(x):
        out[b] = rotate(one.to(wide), cos.to(wide), sin.to(wide), interleaved=False)
    return out


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums are in."""
    import torch

    return torch.float64 if dtype == torch.float64 else torch.float32

"""Decodes token by token with one growing cache, so that the result can be compared with one call for all tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.layer.cache import KeyValueCache

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Outputs, Tensors
    from pytest_attnperf.workloads.block import Block


def decode_token_by_token(backend_for: Callable[[Block], Backend], block: Block, inputs: Tensors) -> Outputs:
    """Computes the result of `block` for `inputs` with one call per token. The inputs stay unchanged.

    backend_for    returns the backend for a block of one token; at position 0 that block is no decode step
                   (`Block.is_decode`), and needs a backend that attends over whole prompts

    All calls write to one copy of the caches, so each reads the rows of earlier calls. Returns 'out' (B, S, E), and 'k'
    and 'v' (B, S, Hk, D), the rows that the calls have written.
    """
    import torch

    parts = block.split_inputs(inputs)
    cache = KeyValueCache(parts.k_cache.clone(), parts.v_cache.clone())
    rows = []
    for token in range(block.seq):
        step = replace(block, seq=1, past=block.past + token)
        x = parts.x[:, token : token + 1].contiguous()
        given = parts._replace(x=x, k_cache=cache.k, v_cache=cache.v)
        tensors = tuple(tensor for tensor in given if tensor is not None)
        prepared = backend_for(step).prepare(step, tensors)
        # Call it on our tensors, not on the prepared ones, which include a separate cache.
        rows.append(prepared.outputs(prepared.call(*tensors))["out"])
    written = slice(block.past, block.length)
    return {"out": torch.cat(rows, dim=1), "k": cache.k[:, written], "v": cache.v[:, written]}

"""The kernel over transposed values under `triton.autotune`: Triton times the configurations and takes the fastest.

It does so at the first call of a problem in each process, which compiles every configuration. Another process may
choose another one, since the times of near-equal configurations change places: see `kernels.configs` for why tables are
the default.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import triton

from kernels.configs import OPTIONS
from kernels.triton.trans_v.kernel import check_inputs, trans_v_kernel
from kernels.triton.trans_v.space import tile_head_dim
from kernels.triton.triton_backend import is_interpreted

if TYPE_CHECKING:
    import torch

KEYS = ("heads", "kv_heads", "seq_q", "seq_kv", "CAUSAL", "WITH_LSE", "HEAD_DIM")
"""Arguments whose values, with the tensors' dtypes, say what is tuned anew."""

Config = tuple[tuple[str, int | bool], ...]
"""(name, value) of each constant and option, in the order in which they are told."""


@functools.cache
def autotuned_kernel(configs: tuple[Config, ...], batch: int) -> Any:
    """Returns the kernel under an autotuner of these configurations, the same one for equal arguments.

    batch   of the problem, which decides the grid and is no argument of the kernel, so that Triton cannot see it
    """

    def has_even_keys(arguments: Mapping[str, Any]) -> bool:
        return bool(arguments["seq_kv"] % arguments["BLOCK_N"] == 0)

    offered = []
    for config in map(dict, configs):
        own = {name: value for name, value in config.items() if name not in OPTIONS}
        offered.append(triton.Config(own, num_warps=config["num_warps"], num_stages=config["num_stages"]))
    with_heuristics: Any = triton.heuristics({"EVEN_N": has_even_keys})(trans_v_kernel)
    return triton.autotune(configs=offered, key=list(KEYS))(with_heuristics)


def trans_v_autotuned(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    with_lse: bool,
    configs: Sequence[Mapping[str, int | bool]],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (out, lse or None) as `kernels.triton.trans_v.kernel.trans_v` does, with its arguments and errors, in the
    configuration that Triton finds the fastest of `configs`, each as trans_v's `config`."""
    import torch

    check_inputs(q, k, v, causal=causal)
    batch, seq_q, heads, head_dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=q.device) if with_lse else None
    kernel = autotuned_kernel(tuple(tuple(config.items()) for config in configs), batch)
    kernel[lambda meta: (batch * heads, triton.cdiv(seq_q, meta["BLOCK_M"]))](
        q, k, v, out, lse, heads, kv_heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(head_dim),
        CAUSAL=causal, WITH_LSE=with_lse, HEAD_DIM=head_dim,
        BLOCK_D=tile_head_dim(head_dim), IN_FP32=q.dtype == torch.bfloat16 and is_interpreted(q),
    )  # fmt: skip
    return out, lse

"""The launcher of `gluon.flash`: checks the arguments and calls the kernel of the architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernels.gluon.prefill.space import SINCE
from kernels.triton.prefill.launch import check_dense, dtype_name
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

DTYPES = ("float16", "bfloat16")


def prefill_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    arch: str,
    causal: bool,
    with_lse: bool,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends from q (B, Sq, H, D) to k and v (B, Skv, Hk, D); contiguous, all fp16 or all bf16, D at most 256.

    arch      e.g. 'gfx950': whose kernel is launched
    causal    bottom-right aligned: row i sees keys up to i + Skv - Sq
    config    BLOCK_M, BLOCK_N and the compiler's options

    Returns out like q and, when asked, the natural log-sum-exp (B, H, Sq) in fp32. Rows that see no key get 0 and -inf.
    Raises UsageError naming the argument, its value and what is allowed.
    """
    import torch

    launch = choose_launcher(arch)
    shape = check_dense(q, k, v, causal, 0, "", (), None, None)
    if dtype_name(q) not in DTYPES:
        raise UsageError(f"q, k and v are {dtype_name(q)}; they must be {' or '.join(DTYPES)}")
    if shape.head_dim_v != shape.head_dim:
        raise UsageError(f"q has head dimension {shape.head_dim} and v {shape.head_dim_v}; both must be the same")
    out = torch.empty_like(q)
    rows = (shape.batch, shape.heads, shape.seq_q)
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if with_lse else None
    launch(q, k, v, out, lse, shape, causal=causal, config=config)
    return out, lse


def choose_launcher(arch: str) -> Callable[..., None]:
    """Returns the function that launches the kernel for `arch`; imports Triton. Raises UsageError for an architecture
    without a kernel."""
    if arch == "gfx950":
        from kernels.gluon.prefill.gfx950 import launch_gfx950

        return launch_gfx950
    if arch == "sm_90":
        from kernels.gluon.prefill.launch_sm_90 import launch_sm_90

        return launch_sm_90
    raise UsageError(f"there is no Gluon kernel for {arch}; there is one for {', '.join(SINCE)}; use triton.flash")

"""The launchers of `gluon.softmax`, `gluon.rmsnorm` and `gluon.layernorm`: they check arguments and call the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels.gluon.rows.space import VECTOR_BYTES
from kernels.triton.launch_checks import require_floats, require_same
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


def softmax(x: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Computes the softmax of every row of x (R, C), contiguous, fp32, fp16 or bf16; returns (R, C) in x's dtype.

    `config` holds SHARE, SLICE, SLOTS, HOLD and TURNS (see `sm_90` and `space`), and the compiler's options. Raises
    UsageError for another x, for rows that are no multiple of 16 bytes, and for more columns than SHARE * SLICE.
    """
    return _launch("softmax", x, None, None, None, 0.0, config)[0]


def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (norm of x or of x + residual, that sum or None): x, residual (R, C), weight (C,), contiguous, one dtype.

    `config` and errors are as of `softmax`; also raises UsageError for another weight or residual.
    """
    return _launch("rmsnorm", x, residual, weight, None, eps, config)


def layernorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As `rmsnorm`, for LayerNorm: weight and bias (C,)."""
    return _launch("layernorm", x, residual, weight, bias, eps, config)


def _launch(
    kind: str,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    import torch

    from kernels.gluon.rows.sm_90 import rows_sm_90_kernel

    _check(kind, x, residual, weight, bias, config)
    rows, columns = x.shape
    vector = VECTOR_BYTES // x.element_size()
    out = torch.empty_like(x)
    summed = torch.empty_like(x) if residual is not None else None
    constants = {name: value for name, value in config.items() if name != "TURNS"}
    # Two numbers for each row and CTA, and a place for the turn behind the last row.
    shape = (rows + 1, config["SHARE"], 2)
    told = torch.empty(shape, dtype=torch.float32, device=x.device) if config["SHARE"] > 1 else None
    grid = (-(-rows // config["TURNS"]),)
    rows_sm_90_kernel[grid](
        x, residual, weight, bias, out, summed, told, rows, columns // vector, eps,
        KIND=kind, VECTOR=vector, num_ctas=config["SHARE"], **constants,
    )  # fmt: skip
    return out, summed


def _check(
    kind: str,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    config: Mapping[str, Any],
) -> None:
    require_floats(kind, "x", x, dims=2)
    columns = x.shape[1]
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:
            require_same(kind, name, tensor, x, shape=(columns,))
    if residual is not None:
        require_same(kind, "residual", residual, x)
    if columns * x.element_size() % VECTOR_BYTES:
        raise UsageError(
            f"{kind}: x has rows of {columns * x.element_size()} bytes, which must be a multiple of {VECTOR_BYTES}; "
            f"use kernels.triton.rows.{kind}"
        )
    if columns > (most := config["SHARE"] * config["SLICE"]):
        raise UsageError(
            f"{kind}: x has {columns} columns, this configuration takes at most {most}: SHARE={config['SHARE']} times "
            f"SLICE={config['SLICE']}"
        )

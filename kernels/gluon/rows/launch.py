"""The launchers of `gluon.softmax`, `gluon.rmsnorm` and `gluon.layernorm`: they check arguments and call the kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels.gluon.rows.space import VECTOR_BYTES
from kernels.triton.launch_checks import require_floats, require_same
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


def softmax(x: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Computes the softmax of every row of x (R, C), contiguous, fp32, fp16 or bf16; returns (R, C) in x's dtype.

    `config` holds SHARE, SLICE, SLOTS, TURNS, STREAM and maxnreg (see `space`), and num_warps. Raises UsageError for
    another x, for rows that are no multiple of 16 bytes, for more columns than SHARE * SLICE, and for more warps than
    SLICE has elements for, 16 bytes a lane.
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
    constants = {name: value for name, value in config.items() if name != "TURNS" and (name != "maxnreg" or value)}
    even = columns == config["SHARE"] * config["SLICE"]
    constants |= {"KIND": kind, "VECTOR": vector, "EVEN": even, "num_ctas": config["SHARE"]}
    arguments = (x, residual, weight, bias, out, summed, rows, columns // vector, eps)
    types = tuple(one.dtype if isinstance(one, torch.Tensor) else one for one in arguments)
    resident = count_resident(x.device, types, tuple(constants.items())) if x.is_cuda else 1
    rows_sm_90_kernel[(count_clusters(rows, config["TURNS"], resident),)](*arguments, **constants)
    return out, summed


def count_clusters(rows: int, turns: int, resident: int) -> int:
    """Returns how many clusters share the rows: as many as are `resident`, or so many that none has more than `turns`
    (0: any number), and at most one for each row."""
    return min(rows, max(resident, -(-rows // turns) if turns else 0))


@functools.cache
def count_resident(device: torch.device, types: tuple[object, ...], constants: tuple[tuple[str, Any], ...]) -> int:
    """Returns how many clusters of the kernel run at once on a GPU, by its driver. A cluster is within one of its
    processing clusters of some 16 multiprocessors, which differ, so that a division would often say too many; those
    beyond would begin when all others have ended."""
    import torch
    from triton.runtime import driver

    from kernels.gluon.rows.sm_90 import rows_sm_90_kernel

    with torch.cuda.device(device):
        compiled = rows_sm_90_kernel.warmup(*types, grid=(1,), **dict(constants))
        compiled._init_handles()
        shared, share = compiled.metadata.shared, compiled.metadata.num_ctas
        return max(1, int(driver.active.utils.cuOccupancyMaxActiveClusters(compiled.function, shared, share)))


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
    for name, tensor in (("x", x), ("residual", residual), ("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.data_ptr() % VECTOR_BYTES:
            raise UsageError(f"{kind}: {name} must begin at a multiple of {VECTOR_BYTES} bytes; call .clone() on it")
    if columns * x.element_size() % VECTOR_BYTES:
        raise UsageError(
            f"{kind}: x has rows of {columns * x.element_size()} bytes, which must be a multiple of {VECTOR_BYTES}; "
            f"use kernels.triton.rows.{kind}"
        )
    if config["SLICE"] < (at_once := 32 * config["num_warps"] * VECTOR_BYTES // x.element_size()):
        raise UsageError(
            f"{kind}: SLICE={config['SLICE']} is less than the {at_once} columns that num_warps={config['num_warps']} "
            "holds at once; raise SLICE, or lower num_warps"
        )
    if columns > (most := config["SHARE"] * config["SLICE"]):
        raise UsageError(
            f"{kind}: x has {columns} columns, this configuration takes at most {most}: SHARE={config['SHARE']} times "
            f"SLICE={config['SLICE']}"
        )

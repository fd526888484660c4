"""Where the suites of this folder run, and what of a GPU's sizes is left where there is none."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest
import torch

Size = TypeVar("Size")

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"

# Triton's interpreter computes on bf16's bits as if they were integers, and cuts where a GPU rounds: what keeps a bf16
# tile as it is comes out as nonsense there. With fp32 it proves the same logic.
DTYPE = torch.bfloat16 if HAS_GPU else torch.float32

# Triton's interpreter runs one element of work after the other: it proves small shapes only.
TRITON = pytest.mark.skipif(
    not HAS_GPU and os.environ.get("TRITON_INTERPRET") != "1",
    reason="no GPU, and Triton compiles for none: set TRITON_INTERPRET=1",
)


def sizes(on_gpu: Size, interpreted: Size) -> Size:
    """The shape to take here."""
    return on_gpu if HAS_GPU else interpreted


def needs_gpu(why: str) -> pytest.MarkDecorator:
    """Skip without a GPU, saying what of the package asks for one."""
    return pytest.mark.skipif(not HAS_GPU, reason=f"needs a GPU: {why}")


def normal(*shape: int, dtype: torch.dtype = DTYPE, scale: float = 1.0) -> torch.Tensor:
    """From N(0, scale**2), by torch's generator, which the caller has seeded."""
    return (torch.randn(*shape, device=DEVICE) * scale).to(dtype)


def uniform(*shape: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    """From [0, 1)."""
    return torch.rand(*shape, device=DEVICE).to(dtype)


def classes(rows: int, count: int) -> torch.Tensor:
    """A class for each row."""
    return torch.randint(count, (rows,), device=DEVICE)

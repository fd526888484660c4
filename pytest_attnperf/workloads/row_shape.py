"""Shared code of softmax and the norms: the shape (rows, columns), its grammar, and rows that show a lost element.

A row of 4,096 random elements hardly changes when a kernel drops one of them: less than the rounding of bf16. A planted
row has one element, at a possible edge of a tile, which holds most of the row's divisor: dropping it, or counting it
twice, moves every element of the row by about its own size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16")
"""Dtypes of rows; sums are always at least fp32."""
CHUNK_ELEMENTS = 2**24
"""Elements that a reference computes at once: 128 MiB each in fp64."""
SMALLEST_TILE = 16


def make_grammar(family: str, flags: tuple[str, ...] = ()) -> Grammar:
    """Returns the grammar of ids of a family over rows: r (rows), c (columns), a dtype and `flags`."""
    return Grammar(
        family=family,
        numbers={"r": "rows", "c": "columns"},
        required=("r", "c"),
        flags=flags,
        dtypes=DTYPES,
        id_required=(),
    )


@dataclass(frozen=True)
class RowProblem(FamilyWorkload):
    """One operation over the last dimension of (rows, columns); subclasses define the operation.

    rows       R
    columns    C, length of a row, over which it is reduced
    dtype      'f32', 'f16' or 'bf16': inputs and outputs

    Raises WorkloadError naming the field for sizes that are not positive integers, for fewer columns than
    `columns_min`, and for another dtype.
    """

    is_cold = True
    """They are cold: the layers between two norms move more than a cache holds."""
    row_field, row_inputs = "rows", 1
    row_outputs: ClassVar[Mapping[str, int]] = {"out": 0, "residual_out": 0}
    columns_min: ClassVar[int] = 1
    """Least number of columns for which the result depends on the values."""

    rows: int
    columns: int
    dtype: str = "f16"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns < self.columns_min:
            raise WorkloadError(
                f"{self.family} workload: columns must be at least {self.columns_min}, got {self.columns}: the result "
                "of a single column is the same whatever it holds, and proves nothing"
            )

    @property
    def elements(self) -> int:
        """R C, the number of elements of x."""
        return self.rows * self.columns


def list_edges(columns: int) -> list[int]:
    """Returns columns at tile edges, ordered: 0, the last, both sides of the first and last multiple of 16, 32 ..."""
    found = {0, columns - 1}
    tile = SMALLEST_TILE
    while tile < columns:
        for edge in (tile, (columns - 1) // tile * tile):
            found |= {edge - 1, edge}
        tile *= 2
    return sorted(found)


def planted_columns(rows: int, columns: int, seed: int) -> list[int]:
    """Returns for each row the column that gets a large element: the last one and other tile edges in turn, in an order
    that the seed decides."""
    *others, last = list_edges(columns)
    random.Random(seed).shuffle(others)
    order = [last, *others]
    first = 0 if seed % 2 else len(order) // 2  # so that seeds differ in a single row, too
    return [order[(first + row) % len(order)] for row in range(rows)]


def plant_columns(x: torch.Tensor, value: float, seed: int) -> None:
    """Sets one element of every row of x (R, C), at the column from `planted_columns`, to `value`, in place."""
    import torch

    rows, columns = x.shape
    places = torch.tensor(planted_columns(rows, columns, seed), device=x.device)
    x[torch.arange(rows, device=x.device), places] = value


def row_numbers(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns (R, 1) int64 on the device of x (R, C): row number plus seed, so that rows of different kinds alternate
    and differ by seed."""
    import torch

    return torch.arange(x.shape[0], device=x.device)[:, None] + seed


def compute_in_chunks(compute: Callable[..., Outputs], x: torch.Tensor, others: Tensors) -> Outputs:
    """Calls `compute(rows of x, rows of each of others)` for chunks of rows, to bound memory; returns its outputs,
    joined along rows, by name."""
    import torch

    parts = [compute(*held) for held in _iterate_chunks((x, *others))]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _iterate_chunks(tensors: Tensors) -> Iterator[Tensors]:
    rows, columns = tensors[0].shape
    length = max(1, CHUNK_ELEMENTS // columns)
    for first in range(0, rows, length):
        yield tuple(tensor[first : first + length] for tensor in tensors)

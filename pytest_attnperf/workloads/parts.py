"""Problems taken apart: some rows of a problem as a problem of its own, whose results must be those of the whole.

A row is whatever is computed independently of others of its kind: a batch entry, a sequence, a request, a row of a norm
or of a GEMM. Op families say how they are taken apart (`FamilyWorkload.take_rows`, `take_chunk`). For a function, the
reference tells which dimension holds rows (`find_rows`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import WorkloadError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload

ALIKE = 1e-4
"""Largest difference between the reference's results of a row alone and among others, in units of their rms: both are
computed in fp32 or wider."""

CHUNK = 3
"""A chunk has the last rows of each sequence, one of so many: its length is rarely a multiple of a tile."""


@dataclass(frozen=True)
class Part:
    """Some rows of a problem as a problem of its own.

    inputs    inputs of the whole -> its own, contiguous
    outputs   outputs of the whole, by name -> those that it must give; outputs without such rows are left out
    """

    workload: Workload
    inputs: Callable[[Tensors], Tensors]
    outputs: Callable[[Outputs], Outputs]


def name_rows(count: int) -> dict[str, tuple[int, ...]]:
    """Returns which of `count` rows each variant takes, in its order: the last one 'alone', all 'reversed', the first
    'half', all 'doubled'. Variants that `count` is too small for are left out."""
    every = tuple(range(count))
    found = {"alone": every[-1:], "reversed": every[::-1]} if count > 1 else {}
    return {**found, **({"half": every[: count // 2]} if count > 3 else {}), "doubled": every + every}


def take(tensor: torch.Tensor, rows: Sequence[int], dim: int) -> torch.Tensor:
    """Returns a copy of these rows along `dim`, in their order, with the dimensions in memory as `tensor` has them."""
    import torch

    rows_there = torch.tensor(rows, device=tensor.device)
    bytes_there = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor  # fp8 has no such operator
    taken = bytes_there.index_select(dim, rows_there).view(tensor.dtype)
    order = sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True)
    laid = torch.empty_permuted(taken.shape, order, dtype=taken.dtype, device=taken.device)
    return laid.copy_(taken)


def take_along(workload: Workload, rows: Sequence[int], inputs: Mapping[int, int], outputs: Mapping[str, int]) -> Part:
    """Returns the part of these rows.

    workload   the problem of so many rows
    inputs     number of an input -> its dimension that holds rows; others belong to all rows
    outputs    name of an output -> its dimension that holds rows
    """

    def take_inputs(whole: Tensors) -> Tensors:
        return tuple(
            take(tensor, rows, inputs[number]) if number in inputs else tensor for number, tensor in enumerate(whole)
        )

    def take_outputs(whole: Outputs) -> Outputs:
        return {name: take(whole[name], rows, dim) for name, dim in outputs.items() if name in whole}

    return Part(workload, take_inputs, take_outputs)


def last_rows(count: int) -> range:
    """Returns the numbers of the rows of a chunk of a sequence of `count` rows: the last third, at least one."""
    return range(count - max(1, count // CHUNK), count)


def last_of_each(lengths: Sequence[int], numbers: Sequence[int], *, chunk: bool) -> list[int]:
    """Returns the packed rows of the sequences `numbers`, in this order, of sequences of these lengths that lie end to
    end; with `chunk` only the last rows of each."""
    starts = [0, *itertools.accumulate(lengths)]
    found: list[int] = []
    for number in numbers:
        rows = last_rows(lengths[number]) if chunk else range(lengths[number])
        found += [starts[number] + row for row in rows]
    return found


@dataclass(frozen=True)
class Rows:
    """Where the tensors of a function hold its rows.

    count     number of rows
    inputs    number of an input -> its dimension that holds rows
    outputs   name of an output -> its dimension that holds rows
    """

    count: int
    inputs: Mapping[int, int]
    outputs: Mapping[str, int]

    def take_rows(self, workload: Workload, rows: Sequence[int]) -> Part:
        """Returns these rows as a part of `workload`, whose inputs say its sizes."""
        return take_along(workload, rows, self.inputs, self.outputs)


def find_rows(compute: Callable[[Tensors], Outputs], inputs: Tensors) -> Rows:
    """Finds the first dimension of the first input along which `compute`, the reference, treats rows independently.

    It gives the last row alone, and all rows in reversed order, and compares their results with the whole's. Raises
    WorkloadError if there is no such dimension.
    """
    whole = compute(inputs)
    for dim, count in enumerate(inputs[0].shape):
        for numbers in _list_holders(inputs, dim) if count > 1 else ():
            found = _try_rows(compute, inputs, whole, count, dict.fromkeys(numbers, dim))
            if found is not None:
                return found
    raise WorkloadError("the reference computes no dimension of its first input row by row")


def _list_holders(inputs: Tensors, dim: int) -> list[tuple[int, ...]]:
    """Returns which inputs may hold rows along `dim`, as alternatives: those of the first one's size there and as many
    dimensions, all of its size there, or the first one alone."""
    first = inputs[0]
    sized = [n for n, tensor in enumerate(inputs) if tensor.dim() > dim and tensor.shape[dim] == first.shape[dim]]
    alike = [number for number in sized if inputs[number].dim() == first.dim()]
    return list(dict.fromkeys([tuple(alike), tuple(sized), (0,)]))


def _try_rows(
    compute: Callable[[Tensors], Outputs], inputs: Tensors, whole: Outputs, count: int, held: Mapping[int, int]
) -> Rows | None:
    """Returns where outputs hold the rows that these inputs hold; None if results show that they are no rows."""
    orders = [rows for name, rows in name_rows(count).items() if name in ("alone", "reversed")]
    try:
        parts = [(rows, compute(_take_inputs(inputs, rows, held))) for rows in orders]
    except Exception:  # a shape that the reference does not accept
        return None
    dims = dict.fromkeys([*held.values(), *range(max((one.dim() for one in whole.values()), default=0))])
    outputs: dict[str, int] = {}
    for name, one in whole.items():
        fits = (dim for dim in dims if dim < one.dim() and one.shape[dim] == count)
        alike = (dim for dim in fits if all(_is_alike(part.get(name), take(one, rows, dim)) for rows, part in parts))
        at = next(alike, None)
        if at is None:
            return None
        outputs[name] = at
    return Rows(count, held, outputs) if outputs else None


def _take_inputs(inputs: Tensors, rows: Sequence[int], held: Mapping[int, int]) -> Tensors:
    return tuple(take(one, rows, held[n]) if n in held else one for n, one in enumerate(inputs))


def _is_alike(got: torch.Tensor | None, expected: torch.Tensor) -> bool:
    import torch

    if got is None or got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(got, expected)
    size = float(expected.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) if expected.numel() else 0.0
    return torch.allclose(got, expected, rtol=0.0, atol=ALIKE * size, equal_nan=True)


def list_parts(workload: Workload, found: Rows | None = None) -> Iterator[tuple[str, Callable[[], Part | None]]]:
    """Yields (variant, function that makes the part of that name; it returns None where there is none).

    found   rows of a function; families know theirs. Nothing is yielded for a family that does not say
    """
    count = int(getattr(workload, "row_count", 0)) if found is None else found.count
    take_rows: Callable[[Sequence[int]], Part] | None = getattr(workload, "take_rows", None)
    if found is not None:
        take_rows = lambda rows: found.take_rows(workload, rows)  # noqa: E731
    if not count or take_rows is None:
        return
    for variant, rows in name_rows(count).items():
        yield variant, lambda rows=rows: take_rows(rows)  # type: ignore[misc]
    take_chunk: Callable[[], Part | None] | None = getattr(workload, "take_chunk", None)
    if take_chunk is not None:
        yield "chunk", take_chunk

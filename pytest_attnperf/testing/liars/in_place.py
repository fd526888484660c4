"""Lies about inputs that a call should write to: a cache whose rows of new tokens are written in place.

No suite runs these; `IN_PLACE` and `HONEST` test the judge itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Outputs, Prepared, Tensors
from pytest_attnperf.workloads.precision import reference_dtype

if TYPE_CHECKING:
    import torch

FILL = 30000.0
"""The content of rows that were never written."""

CACHE = 2
"""Index of the input that is written to."""


@dataclass(frozen=True)
class CachedRows:
    """x * weight into rows past ... past + S - 1 of every sequence's cache; 'out' is the mean of all rows so far.

    Inputs x (B, S, C), weight (C,), cache (B, room, C) in f16, contiguous. Outputs 'out' (B, C), 'rows' (B, S, C).
    """

    batch: int = 2
    past: int = 6
    seq: int = 3
    room: int = 12
    columns: int = 32
    family: str = "cached_rows"
    dtype: str = "f16"
    cache_state: str = "hot"
    flops: float | None = None
    bytes_min: float | None = None
    non_finite_outputs: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """Readable id with all sizes, e.g. `cached_rows-b2-p6-s3-room12-c32`."""
        return f"cached_rows-b{self.batch}-p{self.past}-s{self.seq}-room{self.room}-c{self.columns}"

    @property
    def in_place(self) -> Mapping[int, Callable[[torch.Tensor], torch.Tensor]]:
        """{number of the cache among the inputs: function that gives its new rows, which a call may write}."""
        return {CACHE: self.new_rows}

    def new_rows(self, cache: torch.Tensor) -> torch.Tensor:
        """Returns a view of the S rows of the cache behind the first `past` rows, which a call writes."""
        return cache[:, self.past : self.past + self.seq]

    def definition(self) -> dict[str, Any]:
        """Returns the five sizes by name."""
        return {"batch": self.batch, "past": self.past, "seq": self.seq, "room": self.room, "columns": self.columns}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Returns (x, weight, cache) in f16 from N(0, 1), with FILL in rows of the cache not written yet; `planted`
        changes nothing."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        shapes = ((self.batch, self.seq, self.columns), (self.columns,), (self.batch, self.room, self.columns))
        x, weight, cache = (torch.randn(s, generator=generator, device=device).half() for s in shapes)
        cache[:, self.past :] = FILL
        return x, weight, cache

    def reference(self, inputs: Tensors) -> Outputs:
        """Returns 'out', the mean over the cached and new rows, and 'rows', the new rows, computed in `reference_dtype`
        (fp64 on a CPU)."""
        dtype = reference_dtype(inputs)
        return self.plain(tuple(tensor.to(dtype) for tensor in inputs))

    def plain(self, inputs: Tensors) -> Outputs:
        """Returns 'out', the mean over the cached and new rows, and 'rows', the new rows, in the dtype of the inputs,
        which stay unchanged."""
        import torch

        x, weight, cache = inputs
        rows = x * weight
        return {"out": torch.cat((cache[:, : self.past], rows), dim=1).mean(dim=1), "rows": rows}


WORKLOAD = CachedRows()
Read = Callable[[Any], Outputs]


@dataclass(frozen=True)
class InPlaceLiar:
    """One trick with a cache.

    trick     its name
    says      the trick in one sentence
    clue      regular expression for the judge's text; empty for an honest one
    make      makes the call, for each preparation again
    read      makes outputs of what the call returned
    convert   makes the call's tensors of canonical inputs
    """

    trick: str
    says: str
    clue: str
    make: Callable[[], Callable[..., Any]]
    read: Read
    convert: Callable[[Tensors], Tensors] = tuple

    def prepare(self, inputs: Tensors) -> Prepared:
        """Returns a prepared backend whose call is a new one from `make`, and whose tensors are copies of the converted
        inputs."""
        own = tuple(tensor.clone() for tensor in self.convert(inputs))
        return Prepared(call=self.make(), tensors=own, convert=self.convert, outputs=self.read)


def _mean_of_rows(cache: torch.Tensor) -> torch.Tensor:
    return cache[:, : WORKLOAD.past + WORKLOAD.seq].float().mean(dim=1).to(cache.dtype)


def _write_rows(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    WORKLOAD.new_rows(cache).copy_(x * weight)
    return _mean_of_rows(cache), cache


def _write_to_copy(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (right 'out', copy of the cache with right new rows); the cache itself is not written."""
    return _write_rows(x, weight, cache.clone())


def _new_rows(raw: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"out": raw[0], "rows": WORKLOAD.new_rows(raw[1])}


def _as_named(raw: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"out": raw[0], "rows": raw[1]}


def _leaves_the_cache(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    return _write_to_copy(x, weight, cache)[0], cache


def _one_row_more(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    returned = _write_rows(x, weight, cache)
    cache[:, WORKLOAD.past + WORKLOAD.seq] = x[:, 0] * weight
    return returned


def _scales_x(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    WORKLOAD.new_rows(cache).copy_(x.mul_(weight))
    return _mean_of_rows(cache), cache


def _spoils_rows(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    out, _ = _write_rows(x, weight, cache)
    WORKLOAD.new_rows(cache)[:, -1].neg_()
    return out, cache


def _writes_once() -> Callable[..., Any]:
    calls = itertools.count()
    return lambda *given: (_leaves_the_cache if next(calls) else _write_rows)(*given)


def _adds_to_rows(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    new = WORKLOAD.new_rows(cache)
    out = _write_to_copy(x, weight, cache)[0]
    new.copy_((x * weight).where(new == FILL, new + x * weight))
    return out, cache


def _works_on_fresh_inputs() -> Callable[..., Any]:
    """Returns a call that computes only where the cache's new rows are as they were loaded; else it returns its old
    result and writes nothing."""
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
        if not kept or bool((WORKLOAD.new_rows(cache) == FILL).all()):
            out, _ = _write_rows(x, weight, cache)
            kept[:] = [kept[0].copy_(out) if kept else out]
        return kept[0], cache

    return call


def _into_x(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    out, _ = _write_rows(x, weight, cache)
    return x[:, 0].copy_(out), cache


def _into_the_cache(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    out, _ = _write_rows(x, weight, cache)
    return cache[:, -1].copy_(out), cache


def _for_later(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    out, right = _write_to_copy(x, weight, cache)
    return out, cache, WORKLOAD.new_rows(right)


def _writes_while_read(raw: Tensors) -> Outputs:
    out, cache, rows = raw
    return {"out": out, "rows": WORKLOAD.new_rows(cache).copy_(rows)}


def _written_beforehand(inputs: Tensors) -> Tensors:
    return *inputs[:CACHE], _write_to_copy(*inputs)[1]


def _transpose_inputs(inputs: Tensors) -> Tensors:
    return *inputs[:CACHE], inputs[CACHE].transpose(0, 1).contiguous()


def _in_its_layout(x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor) -> Tensors:
    return _write_rows(x, weight, cache.transpose(0, 1))


_LIAR = partial(InPlaceLiar, read=_new_rows)

IN_PLACE = (
    _LIAR(
        "one_row_too_many",
        "A row behind the new ones is written, too.",
        "tensor 2.*outside the part",
        lambda: _one_row_more,
    ),
    _LIAR("scales_x_in_place", "An input that is only to be read is changed.", "tensor 0 of 3", lambda: _scales_x),
    _LIAR(
        "leaves_the_cache",
        "The result is right, and the cache is left as it was.",
        "'rows' is off by",
        lambda: _leaves_the_cache,
    ),
    _LIAR("writes_once", "The first call writes to the cache, and no other.", "'rows' is off by", _writes_once),
    _LIAR(
        "spoils_the_cache",
        "The result is right, but the last new row of the cache is not.",
        "'rows' is off by",
        lambda: _spoils_rows,
    ),
    _LIAR(
        "copy_of_the_cache",
        "The right rows are returned, and were never put into the cache.",
        "'rows' is not what the call wrote",
        lambda: _write_to_copy,
    ),
    _LIAR(
        "adds_to_the_cache",
        "New rows are added to what an earlier call has left.",
        "called twice: .*'rows' is off by",
        lambda: _adds_to_rows,
    ),
    _LIAR(
        "works_on_fresh_inputs",
        "Where the cache is as a call has left it, as in timed calls, nothing is done.",
        "called twice: 'out' holds .* NaN",
        _works_on_fresh_inputs,
    ),
    _LIAR("result_in_x", "The result is written over x.", "memory of an input", lambda: _into_x),
    _LIAR(
        "result_in_the_cache",
        "The result is written into the cache, behind the new rows.",
        "'out' lies in the memory of an input",
        lambda: _into_the_cache,
    ),
    _LIAR(
        "shows_the_whole_cache",
        "All of the cache is called its new rows.",
        "'rows' is not what the call wrote",
        lambda: _write_rows,
        read=_as_named,
    ),
    _LIAR(
        "writes_while_read",
        "The cache is written when the result is read.",
        "'rows' is off by",
        lambda: _for_later,
        read=_writes_while_read,
    ),
    _LIAR(
        "written_beforehand",
        "The cache holds its new rows before the call.",
        "convert changes input 2",
        lambda: _write_rows,
        convert=_written_beforehand,
    ),
    _LIAR(
        "another_layout",
        "The cache is kept in a layout of its own.",
        "must be as the input",
        lambda: _in_its_layout,
        convert=_transpose_inputs,
    ),
)
"""Every trick that the judge must detect."""

HONEST = (
    _LIAR("returns_the_cache", "The whole cache is returned.", "", lambda: _write_rows),
    _LIAR(
        "returns_its_rows",
        "A view of the new rows is returned.",
        "",
        lambda: lambda *given: _new_rows(_write_rows(*given)),
        read=dict,
    ),
    _LIAR(
        "returns_the_result_only",
        "What was written is not returned.",
        "",
        lambda: lambda *given: _write_rows(*given)[0],
        read=lambda out: {"out": out},
    ),
)
"""Honest calls: they write what they should, and differ in how much of it they return."""

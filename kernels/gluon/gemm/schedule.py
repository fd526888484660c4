"""Which tiles of a result are cut along K, because they do not fill a wave of programs. Pure arithmetic.

A data-parallel schedule leaves programs idle in its last wave. Stream-K (arXiv:2301.03598) gives every program the same
number of K tiles, wherever they begin: programs then read different K at a time, share less in the L2 cache, and
`triton.gemm_stream_k` is slower than whole tiles on an H200 unless the last wave is nearly empty. Here the tiles of the
last wave are cut in equal parts along K, so that programs on the same part read the same K:

    132 programs, 196 tiles    132 whole tiles, then 64 tiles in 2 parts each: 1.5 waves for 2
"""

from __future__ import annotations

from dataclasses import dataclass

SAVED_MIN = 12
"""Least K tiles of 256 columns that cutting must save in the last wave. An estimate of what storing and adding the
parts takes: a K tile takes 0.8 us of a program (660 TFLOP/s on 132), a kernel and its traffic about 8 us."""

PARTS_MAX = 8
"""More parts would save no more than another eighth, and are added one after another."""


@dataclass(frozen=True)
class Schedule:
    """What programs compute, one item after another: `whole` tiles, then the rest of `tiles` in `parts` along K."""

    tiles: int
    whole: int
    parts: int

    @property
    def cut(self) -> int:
        """Tiles that are cut along K."""
        return self.tiles - self.whole

    @property
    def items(self) -> int:
        """Whole tiles and parts of tiles."""
        return self.whole + self.cut * self.parts

    def __str__(self) -> str:
        """Returns e.g. '132 whole tiles, 64 in 2 parts'."""
        return f"{self.whole} whole tiles" + (f", {self.cut} in {self.parts} parts" if self.cut else "")


def choose_schedule(tiles: int, programs: int, tiles_k: int, block_n: int) -> Schedule:
    """Returns the schedule of a result of `tiles` tiles, `block_n` columns wide, with sums of `tiles_k` K tiles.

    The tiles of an incomplete last wave are cut in as many parts as programs there are for each, if there are two or
    more, but at most PARTS_MAX, and if that saves SAVED_MIN K tiles (twice as many of 128 columns).
    """
    last = tiles % programs
    parts = min(programs // last, tiles_k, PARTS_MAX) if last else 1
    saved = tiles_k - -(-tiles_k // parts)
    if saved * block_n < SAVED_MIN * 256:
        return Schedule(tiles, tiles, 1)
    return Schedule(tiles, tiles - last, parts)

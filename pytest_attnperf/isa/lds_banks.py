"""Bank conflicts in LDS: how many cycles an access takes because lanes want different words of one bank.

A cycle serves as many lanes as fill the banks, neighbours but for reads of 16 bytes on CDNA, whose groups are
FIRST_PHASE and its images (github.com/triton-lang/triton/pull/11365). Lanes that read one word share it.

Banks: 32 on CDNA2 and CDNA3, 64 on CDNA4 (their ISA documents, "LDS"); 64 on RDNA's work-group processor, of which a
wave in CU mode has 32 (RDNA3 ISA document, "LDS"). The groups of RDNA's wide accesses are not documented: neighbours
are assumed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pytest_attnperf.isa.memory import Array

BANKS = {"gfx90a": 32, "gfx942": 32, "gfx950": 64, "gfx1100": 32, "gfx1151": 32, "gfx1201": 32}

_NARROW = (0, 1, 2, 3, 20, 21, 22, 23)
FIRST_PHASE = {
    "gfx90a": _NARROW,
    "gfx942": _NARROW,
    "gfx950": (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27),
}
"""Lanes whose 16-byte reads are served at once; the other phases are those of lanes ^ 4, 8 and 32."""


@lru_cache(maxsize=64)
def list_phases(arch: str, size: int, lanes: int, *, writes: bool) -> tuple[tuple[int, ...], ...]:
    """Returns the lanes that are served at once, by cycle, in accesses of `size` bytes a lane."""
    if size == 16 and not writes and arch in FIRST_PHASE:
        first = FIRST_PHASE[arch]
        return tuple(sorted({tuple(sorted(lane ^ flip for lane in first)) for flip in (0, 4, 8, 12, 32, 36, 40, 44)}))
    together = min(lanes, max(1, 4 * BANKS[arch] // max(size, 4)))
    return tuple(tuple(range(start, min(start + together, lanes))) for start in range(0, lanes, together))


def count_cycles(arch: str, size: int, lanes: int, active: Array, offsets: Array, *, writes: bool) -> tuple[int, int]:
    """Returns (cycles without conflicts, cycles that conflicts add) of one access.

    active     numbers of the lanes that take part, of `lanes`
    offsets    the byte of each
    """
    words = np.full((lanes, max(1, size // 4)), -1, np.int64)
    words[active] = (offsets.astype(np.int64)[:, None] + np.arange(0, max(size, 4), 4)) // 4
    least = extra = 0
    for phase in list_phases(arch, size, lanes, writes=writes):
        wanted = np.unique(words[list(phase)])
        wanted = wanted[wanted >= 0]
        if len(wanted):
            least += 1
            extra += int(np.bincount(wanted % BANKS[arch]).max()) - 1
    return least, extra

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.lds_banks import BANKS, FIRST_PHASE, count_cycles, list_phases

LANES = np.arange(64)


def cycles(arch: str, size: int, offsets: np.ndarray, *, writes: bool = False) -> tuple[int, int]:
    """Cycles without conflicts, and what conflicts add, of all 64 lanes."""
    return count_cycles(arch, size, 64, LANES, offsets, writes=writes)


@pytest.mark.parametrize(
    ("arch", "size", "stride", "expected"),
    [
        ("gfx942", 4, 4, (2, 0)),
        ("gfx950", 4, 4, (1, 0)),
        ("gfx942", 8, 8, (4, 0)),
        ("gfx942", 16, 16, (8, 0)),
        ("gfx950", 16, 16, (4, 0)),
        ("gfx942", 4, 8, (2, 2)),
        ("gfx942", 4, 128, (2, 62)),
        ("gfx942", 8, 128, (4, 60)),
        ("gfx942", 8, 136, (4, 0)),
        ("gfx942", 2, 2, (2, 0)),
        ("gfx942", 4, 0, (2, 0)),
    ],
)
def test_strides(arch: str, size: int, stride: int, expected: tuple[int, int]) -> None:
    """Neighbours fill the banks; rows of 128 bytes hit one bank, with 8 bytes of padding none; one word is shared."""
    assert cycles(arch, size, LANES * stride) == expected


@pytest.mark.parametrize("arch", BANKS)
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
def test_every_lane_is_served_once(arch: str, size: int, writes: bool) -> None:
    """The groups of an access hold each lane once, and no more lanes than fill the banks."""
    lanes = 64 if arch in FIRST_PHASE else 32
    phases = list_phases(arch, size, lanes, writes=writes)
    assert sorted(lane for phase in phases for lane in phase) == list(range(lanes))
    assert all(len(phase) * max(size, 4) <= 4 * BANKS[arch] for phase in phases)


def test_against_a_count_by_hand() -> None:
    """Drawn addresses cost what counting the different words of each bank by hand says."""
    random = Random(3)
    for _ in range(200):
        arch, size = random.choice(("gfx942", "gfx950")), random.choice((4, 8, 16))
        writes = random.random() < 0.5
        active = np.array(sorted(random.sample(range(64), random.randint(1, 64))))
        offsets = np.array([random.randrange(64) * size for _ in active])
        byte_of = dict(zip(active.tolist(), offsets.tolist(), strict=True))
        least = extra = 0
        for phase in list_phases(arch, size, 64, writes=writes):
            words = {byte_of[lane] // 4 + at for lane in phase if lane in byte_of for at in range(size // 4)}
            per_bank = [sum(word % BANKS[arch] == bank for word in words) for bank in range(BANKS[arch])]
            least += bool(words)
            extra += max(max(per_bank) - 1, 0)
        assert count_cycles(arch, size, 64, active, offsets, writes=writes) == (least, extra)

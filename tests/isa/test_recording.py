from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pytest_attnperf.codeobject.simd import BARRIER_CYCLES
from pytest_attnperf.errors import UsageError
from pytest_attnperf.isa.cycle_model import Latencies, estimate_cycles
from pytest_attnperf.isa.program import make_program
from pytest_attnperf.isa.recording import BANKS, FIRST_PHASE, Recorder, Tally, count_cycles, list_phases
from tests.isa.one_wave import instruction, make_wave, set_vector

LANES = np.arange(64, dtype=np.uint32)


def record(*texts: str, waves: int = 1, rows: np.ndarray = LANES * 4) -> Recorder:
    """What waves with `rows` in v0, an address in v[2:3] and data in v1 do; the texts run once, without branches."""
    listed = tuple(instruction(text, 4 * place) for place, text in enumerate(texts))
    program = make_program(listed)
    recorder = Recorder("gfx942", listed)
    for number in range(waves):
        wave = make_wave(lds_bytes=65536, number=number)
        buffer = wave.memory.add("in", 4096, bytes(4096))
        set_vector(wave, 0, rows)
        set_vector(wave, 1, LANES)
        addresses = buffer.base + LANES.astype(np.uint64) * 8
        set_vector(wave, 2, (addresses & 0xFFFFFFFF).astype(np.uint32))
        set_vector(wave, 3, (addresses >> np.uint64(32)).astype(np.uint32))
        recorder.watch(wave, (0, 0, 0))
        assert wave.recorder is not None
        for index, step in enumerate(program.steps):
            wave.recorder.run(index, step)
    return recorder


def test_lanes_and_times() -> None:
    """An instruction counts once per wave, with the lanes that were active at it."""
    found = record("v_mov_b32_e32 v4, v0", "s_mov_b64 exec, 7", "v_mov_b32_e32 v4, v0", waves=2)
    assert [(one.executed, one.lanes) for one in found.tallies] == [(2, 128), (2, 128), (2, 6)]


def test_memory_in_pieces() -> None:
    """4 of every 8 bytes use half of the pieces of 64 bytes; a wait knows what it completed, and how soon."""
    found = record("global_load_dword v4, v[2:3], off", "v_mov_b32_e32 v5, v0", "s_waitcnt vmcnt(0)")
    assert (found.tallies[0].bytes, found.tallies[0].segments) == (256, 8)
    assert found.tallies[2] == Tally(1, 64, completed=1, distance=2)


def test_bank_conflicts_belong_to_their_instruction() -> None:
    """Rows of 128 bytes meet in one bank: the write and the read each, and the wave's trace knows where."""
    texts = ("ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v4, v0", "s_waitcnt lgkmcnt(0)")
    found = record(*texts, rows=LANES * 128)
    assert [(one.lds_bytes, one.lds_cycles, one.lds_conflict_cycles) for one in found.tallies] == [
        (256, 2, 62), (0, 0, 0), (256, 2, 62), (0, 0, 0),
    ]  # fmt: skip
    assert found.traces[0].conflicts == {0: 62, 2: 62}
    assert record(*texts).traces[0].conflicts == {}


def test_cycles_count_conflicts_and_latency() -> None:
    """Conflicts and a longer latency make the estimate longer by what they are; a second workgroup fills gaps."""
    texts = ("ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v4, v0", "s_waitcnt lgkmcnt(0)")
    free, held = (estimate_cycles(record(*texts, rows=LANES * stride), 1) for stride in (4, 128))
    assert held.cycles - free.cycles == held.conflict_cycles == 4 * 124
    slow = estimate_cycles(record(*texts), 1, Latencies(lds_cycles=164))
    assert slow.cycles - free.cycles == 200
    twice = estimate_cycles(record(*texts), 2)
    assert free.cycles < twice.cycles < 2 * free.cycles
    assert twice.spent.keys() == {0, 1, 2, 3}


def test_waves_of_a_simd_meet_at_barriers() -> None:
    """Waves 0 and 4 share a SIMD; a barrier costs them once what it costs."""
    plain = ("v_mov_b32_e32 v4, v0",) * 4
    alone = estimate_cycles(record(*plain, waves=5), 1)
    meeting = estimate_cycles(record(*plain, "s_barrier", waves=5), 1)
    assert (alone.waves, alone.cycles) == (2, 32)
    assert 32 + BARRIER_CYCLES <= meeting.cycles <= 32 + BARRIER_CYCLES + 12


def test_what_has_no_model_is_refused() -> None:
    """RDNA has no model, and without a recorded wave there is nothing to play."""
    found = record("s_nop 0")
    found.arch = "gfx1100"
    with pytest.raises(UsageError, match="gfx90a, gfx942, gfx950, not for gfx1100"):
        estimate_cycles(found, 1)
    with pytest.raises(UsageError, match="record=True"):
        estimate_cycles(Recorder("gfx942", ()), 1)


ALL = np.arange(64)


def cycles(arch: str, size: int, offsets: np.ndarray, *, writes: bool = False) -> tuple[int, int]:
    """Cycles without conflicts, and what conflicts add, of all 64 lanes."""
    return count_cycles(arch, size, 64, ALL, offsets, writes=writes)


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
    assert cycles(arch, size, ALL * stride) == expected


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

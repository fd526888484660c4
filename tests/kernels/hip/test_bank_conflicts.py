"""Bank conflicts of the matrix steps in LDS, computed from the addresses that the emulator sees."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.hip import emulator, prefill
from kernels.hip.emulator import EmulatedKernel, LdsAccess
from kernels.hip.sources import FOLDER, HipKernel
from pytest_attnperf.isa.recording import count_cycles
from pytest_attnperf.workloads.prefill import Prefill

ARCHS = ("gfx942", "gfx950")
WAVE, ROOM = 64, 400_000
PIECES_BETWEEN = 4
STEP = next(backend for backend in prefill.BACKENDS if backend.name == "hip.best")


def conflict_cycles(arch: str, size: int, writes: bool, offsets: Mapping[int, int]) -> int:
    """Cycles that conflicts add; `offsets` is lane -> byte."""
    lanes = np.array(sorted(offsets))
    return count_cycles(arch, size, WAVE, lanes, np.array([offsets[lane] for lane in lanes]), writes=writes)[1]


def whole_accesses(accesses: Iterable[LdsAccess]) -> list[tuple[LdsAccess, int, int]]:
    """Each access with its offset and bytes: a CPU takes 16 bytes in pieces, with those of another one between."""
    found: list[tuple[LdsAccess, int, int]] = []
    of_thread: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for one in accesses:
        own = of_thread[one.block, one.thread, one.writes]
        for index in own[: -PIECES_BETWEEN - 1 : -1]:
            first, offset, size = found[index]
            begin, end = min(offset, one.offset), max(offset + size, one.offset + one.bytes)
            if end - begin == size + one.bytes and begin // 16 == (end - 1) // 16:
                found[index] = (first, begin, end - begin)
                break
        else:
            own.append(len(found))
            found.append((one, one.offset, one.bytes))
    return found


def conflicts(arch: str, accesses: Iterable[LdsAccess]) -> Counter[tuple[str, int, int]]:
    """How many instructions of waves there are of each ("read" or "write", bytes of a lane, cycles of conflicts)."""
    turns: Counter[tuple[int, int, int]] = Counter()
    together: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for one, offset, size in whole_accesses(accesses):
        turn = (one.block, one.thread, one.place)
        key = (one.block, one.thread // WAVE, one.place, turns[turn], size, one.writes)
        together[key][one.thread % WAVE] = offset
        turns[turn] += 1
    found: Counter[tuple[str, int, int]] = Counter()
    for (*_, width, writes), offsets in together.items():
        found["write" if writes else "read", width, conflict_cycles(arch, width, bool(writes), offsets)] += 1
    return found


Recorded = Callable[..., Sequence[LdsAccess]]


@pytest.fixture
def recorded(emulate: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorded:
    """`recorded(arch, head_dim, change)`: the accesses of `hip.best` in its own configuration, two tiles of keys;
    `change` is text of matrix.h and what stands in its place."""

    def run(arch: str, head_dim: int, change: tuple[str, str] = ("", "")) -> Sequence[LdsAccess]:
        kernels: list[EmulatedKernel] = []

        def load(kernel: HipKernel, device: Any) -> EmulatedKernel:
            if change[0]:
                for name in ("07_best.hip", "matrix.h"):
                    text = (FOLDER / name).read_text()
                    assert name != "matrix.h" or change[0] in text
                    (tmp_path / name).write_text(text.replace(*change))
                kernel = replace(kernel, file=str(tmp_path / "07_best.hip"))
            kernels.append(emulator.load(kernel, cache=tmp_path))
            kernels[-1].lds_room = ROOM
            return kernels[-1]

        emulate(arch)
        monkeypatch.setattr(prefill, "load", load)
        workload = Prefill.parse(f"prefill-b1-s16-kv128-h1-d{head_dim}-f16")
        STEP.prepare(workload, workload.make_inputs(1, "cpu", planted=False)).run()
        assert 0 < len(kernels[-1].lds_accesses) < ROOM, "all are recorded"
        return kernels[-1].lds_accesses

    return run


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_no_access_meets_another_in_a_bank(arch: str, head_dim: int, recorded: Recorded) -> None:
    """K and V are written and read without conflicts, on 32 and on 64 banks."""
    found = conflicts(arch, recorded(arch, head_dim))
    assert {extra for _, _, extra in found} == {0}, found
    turned = ("read", 8) if arch == "gfx950" else ("write", 8)  # V: read_transposed, or turned around when written
    assert {(kind, size) for kind, size, _ in found} == {("read", 16), ("write", 16), turned}


def test_rows_that_all_begin_in_one_bank_conflict(recorded: Recorded) -> None:
    """Where the pieces of a row keep their places, reads and writes conflict."""
    found = conflicts("gfx942", recorded("gfx942", 128, ("(column ^ 8 * moved)", "column + 0 * moved")))
    assert max(extra for kind, _, extra in found if kind == "read") >= 8, found

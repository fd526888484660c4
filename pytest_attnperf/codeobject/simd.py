"""Plays the waves of one SIMD of CDNA2 to CDNA4: what each instruction occupies, and when it can start.

Waves issue their instructions in order. One starts when the wave's previous one was issued, its registers are ready,
the counters that it waits for have come down, and its unit is free; of several waves the one that can start first does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.codeobject import amdgcn
from pytest_attnperf.codeobject.amdgcn import CYCLES_PER_PASS, MatrixStep, read_matrix_step
from pytest_attnperf.codeobject.instructions import width_bytes

ISSUE_CYCLES = 4
"""A CU serves its four SIMDs in turn, one cycle each, so that a wave issues at most one instruction in four."""

TRANSCENDENTAL_CYCLES = {"gfx90a": 16, "gfx942": 16, "gfx950": 8}
LDS_READ_BYTES_PER_CYCLE = {"gfx90a": 128, "gfx942": 128, "gfx950": 256}
"""Of a CU: 32 and 64 banks of 4 bytes."""
LDS_WRITE_BYTES_PER_CYCLE = 128
GLOBAL_BYTES_PER_CYCLE = 64
"""Of a CU's vector L1 cache: CDNA3 white paper."""
LDS_LATENCY_CYCLES = 64
GLOBAL_LATENCY_CYCLES = 500
BARRIER_CYCLES = 20
MFMA_RESULT_CYCLES = 16
"""From the last pass until another instruction can read the sums; llvm-mca's latency is four passes more."""

LANES = 64
SIMDS = 4

_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_REGISTERS = re.compile(r"\b([va])(?:(\d+)|\[(\d+):(\d+)\])")
_COUNTER = re.compile(r"\b(vmcnt|lgkmcnt)\((\d+)\)")
_NEVER = 1 << 30


@dataclass(frozen=True)
class Step:
    """One instruction as the model sees it.

    unit        'vector', 'matrix', 'lds', 'global', 'scalar', 'wait', 'barrier'
    cycles      that it occupies its unit
    latency     cycles until its result is there, after those
    reads       registers that must be ready, results included: 'v12', 'a3'
    writes      registers that get its result
    sums        the registers of an MFMA's accumulator, if it adds in place; '' elsewhere. The next one that does the
                same need not wait for `latency`
    limits      of a wait: counter -> operations that may still run
    bytes       of LDS or memory that a wave moves
    """

    unit: str
    cycles: int
    latency: int = 0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    sums: str = ""
    limits: tuple[tuple[str, int], ...] = ()
    matrix: MatrixStep | None = None
    kind: str = ""
    bytes: int = 0


@dataclass
class SimdWave:
    """A wave: its steps, and its state.

    steps      in the order in which they are executed
    group      the workgroup whose barriers it meets at
    endless    whether it begins again after the last step
    at         steps executed
    met        barriers passed
    ready      cycle at which it may issue
    registers  -> cycle at which they are ready; `chained` the same for an accumulator that the next product adds to
    pending    counter -> cycles at which operations are done
    arrived    cycle at which it came to a barrier; -1 elsewhere
    """

    steps: Sequence[Step]
    group: int
    endless: bool = False
    at: int = 0
    met: int = 0
    ready: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    chained: dict[str, tuple[str, int]] = field(default_factory=dict)
    pending: dict[str, list[int]] = field(default_factory=lambda: {"vmcnt": [], "lgkmcnt": []})
    arrived: int = -1

    @property
    def ended(self) -> bool:
        """Whether it has executed its last step."""
        return not self.endless and self.at == len(self.steps)

    @property
    def step(self) -> Step:
        """The next one."""
        return self.steps[self.at % len(self.steps)]


@dataclass(frozen=True)
class Issued:
    """One instruction was issued: of which wave, its place among the wave's steps, the cycles that the wave spent on
    it (waiting included), the cycle at which the wave is ready again, and whether it moved on: a barrier is issued a
    second time when the waves have met."""

    wave: SimdWave
    at: int
    cycles: int
    ready: int
    moved: bool


def play(simd: Sequence[SimdWave]) -> Iterator[Issued]:
    """Yields what the waves of a SIMD issue, in order of time, until all have ended."""
    free = dict.fromkeys(("vector", "matrix", "lds", "global", "scalar"), 0)
    running = [wave for wave in simd if not wave.ended]
    while running:
        starts = [(_find_start(wave, wave.step, free, simd), wave.ready) for wave in running]
        # Of waves that could start in the same cycle, the one that has waited longest does.
        number = min(range(len(running)), key=starts.__getitem__)
        wave = running[number]
        at, before = wave.at, wave.ready
        _issue(wave, wave.step, starts[number][0], free)
        yield Issued(wave, at, wave.ready - before, wave.ready, wave.at > at)
        if wave.ended:
            running.remove(wave)


def _find_start(wave: SimdWave, step: Step, free: dict[str, int], simd: Sequence[SimdWave]) -> int:
    """Returns the cycle at which the wave can start its next step; _NEVER while it waits at a barrier."""
    start = wave.ready
    if step.unit == "wait":
        for counter, left in step.limits:
            running = sorted(wave.pending[counter])
            if len(running) > left:
                start = max(start, running[len(running) - left - 1])
        return start
    if step.unit == "barrier":
        if wave.arrived < 0:
            return start
        others = [other for other in simd if other.group == wave.group]
        here = [other.arrived for other in others if other.met == wave.met and not other.ended]
        met = min(here) >= 0
        return max(start, *here) + BARRIER_CYCLES if met else _NEVER
    for register in step.reads:
        ready = wave.registers.get(register, 0)
        if step.sums and register in wave.chained and wave.chained[register][0] == step.sums:
            ready = wave.chained[register][1]
        start = max(start, ready)
    start = max(start, free["vector" if step.unit == "matrix" else step.unit])
    return max(start, free["matrix"]) if step.unit == "matrix" else start


def _issue(wave: SimdWave, step: Step, start: int, free: dict[str, int]) -> None:
    """Issues the wave's next step at cycle `start`: occupies its unit, and moves the wave on."""
    wave.ready = start + ISSUE_CYCLES
    if step.unit == "barrier":
        if wave.arrived < 0:
            wave.arrived = start
            return
        wave.arrived, wave.met, wave.at = -1, wave.met + 1, wave.at + 1
        return
    wave.at += 1
    if step.unit == "wait":
        wave.pending = {name: [end for end in ends if end > start] for name, ends in wave.pending.items()}
        return
    if step.unit == "scalar":
        wave.ready = start + step.cycles
        return
    done = start + step.cycles
    free[step.unit] = done
    if step.unit == "matrix":
        free["vector"] = start + ISSUE_CYCLES
    if step.unit in ("lds", "global"):
        wave.pending["lgkmcnt" if step.unit == "lds" else "vmcnt"].append(done + step.latency)
        return
    for register in step.writes:
        wave.registers[register] = done + step.latency
        if step.sums:
            wave.chained[register] = (step.sums, done)
        else:
            wave.chained.pop(register, None)


@functools.lru_cache(maxsize=8192)
def read_step(mnemonic: str, operands: str, arch: str) -> Step:
    """Returns an instruction as a step; a matrix instruction that is not known has no `matrix`."""
    name = amdgcn.classify(mnemonic, operands)
    first, _, rest = operands.partition(",")
    written, every = _list_registers(first), _list_registers(operands)
    if name == "matrix":
        product = read_matrix_step(mnemonic, operands, arch)
        cycles = product.cycles if product else CYCLES_PER_PASS
        sums = first.strip() if re.sub(r"\s.*", "", rest.split(",")[-1].strip()) == first.strip() else ""
        return Step("matrix", cycles, MFMA_RESULT_CYCLES, every, written, sums, matrix=product, kind="matrix")
    if name in ("valu", "dot", "agpr_move") or (name == "cross_lane" and mnemonic.startswith("v_")):
        if _TRANSCENDENTAL.match(mnemonic):
            return Step("vector", TRANSCENDENTAL_CYCLES[arch], 0, every, written, kind="transcendental")
        swapped = every if "swap" in mnemonic else written
        return Step("vector", ISSUE_CYCLES, 0, every, swapped, kind="valu")
    if name.startswith(("lds_", "cross_lane")):
        rate = LDS_READ_BYTES_PER_CYCLE[arch] if not name.startswith("lds_write") else LDS_WRITE_BYTES_PER_CYCLE
        cycles = (width_bytes(name) or 4) * LANES * SIMDS // rate
        result = () if name.startswith("lds_write") else written
        kind = next((kind for kind in ("lds_read", "lds_write") if name.startswith(kind)), "lds")
        size = (width_bytes(name) or 4) * LANES
        return Step("lds", cycles, LDS_LATENCY_CYCLES, every, result, kind=kind, bytes=size)
    if name.startswith(("global_", "scratch_", "image_")):
        loads = "load" in name
        straight = name.startswith("global_load_lds")
        cycles = (width_bytes(name) or 4) * LANES * SIMDS // GLOBAL_BYTES_PER_CYCLE
        result = written if loads and not straight else ()
        size = (width_bytes(name) or 4) * LANES
        return Step("global", cycles, GLOBAL_LATENCY_CYCLES, every, result, kind="global", bytes=size)
    if name == "wait":
        limits = tuple((counter, int(left)) for counter, left in _COUNTER.findall(operands))
        return Step("wait", ISSUE_CYCLES, limits=limits, kind="wait")
    if name == "barrier":
        return Step("barrier", ISSUE_CYCLES, kind="barrier")
    idle = int(first) * ISSUE_CYCLES if mnemonic == "s_nop" and first.strip().isdigit() else 0
    return Step("scalar", ISSUE_CYCLES + idle, kind="salu" if name in ("salu", "scalar_load", "branch") else "")


def _list_registers(operands: str) -> tuple[str, ...]:
    found: list[str] = []
    for file, one, low, high in _REGISTERS.findall(operands):
        found += [f"{file}{number}" for number in ([one] if one else range(int(low), int(high) + 1))]
    return tuple(found)

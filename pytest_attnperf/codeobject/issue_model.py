"""Estimates how many cycles an iteration of a kernel's key loop takes on CDNA2 to CDNA4, without a GPU.

A SIMD's waves issue the loop's instructions in order, as many waves as occupancy allows. An instruction starts when the
wave's previous one was issued, its registers are ready, the counters that it waits for have come down, and its unit is
free; of several waves the one that can start first does. Units of a SIMD, in cycles per instruction of a wave:

    VALU            4: 64 lanes, 16 at a time
    exp and others  16, on gfx950 8 (transcendental, quarter and half rate)
    MFMA            4 of the VALU, and its passes of the matrix unit, which runs beside the VALU
    LDS, memory     bytes / the SIMD's quarter of what the CU moves per cycle

**Everything here is estimated, +-30 %, and was never compared with an AMD GPU.** Assumed are hits in L2 and LDS without
bank conflicts (`GLOBAL_LATENCY_CYCLES`, `LDS_LATENCY_CYCLES`), waves of all SIMDs that reach a barrier together, no
instruction cache misses, and that every branch inside of the loop falls through.

A product that several waves compute counts each time, unless the kernel declares what a tile needs (`KeyTile`): 64 rows
on 8 waves at D = 128 are 51 % of all products, and 21 % of useful ones.

The key loop is, of the innermost loops with matrix instructions, the one with the most of the matrix units' peak: with
causal masks a long sequence spends its time in the loop without a mask.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from pytest_attnperf.codeobject import amdgcn
from pytest_attnperf.codeobject.amdgcn import CYCLES_PER_PASS, PEAK_FLOPS_PER_CYCLE, MatrixStep, read_matrix_step
from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.instructions import Instruction, Place, width_bytes
from pytest_attnperf.codeobject.line_table import read_source_line
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, LoopEstimate, LoopInstruction

ESTIMATED = "estimated by a static issue model, +-30 %, never run"
"""Words that stand beside every figure of the model."""

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

WARM_ITERATIONS, COUNTED_ITERATIONS = 6, 8
HEAVIEST = 6
"""Lines that an estimate lists."""

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
class _Wave:
    """State of one wave: next step, when it may issue, when registers and pending operations are done."""

    group: int
    at: int = 0
    iteration: int = 0
    ready: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    chained: dict[str, tuple[str, int]] = field(default_factory=dict)
    pending: dict[str, list[int]] = field(default_factory=lambda: {"vmcnt": [], "lgkmcnt": []})
    arrived: int = -1


def estimate_key_loop(code: KernelCode, loops: Iterable[Sequence[Instruction]]) -> LoopEstimate | None:
    """Returns the estimate of a kernel's key loop. `loops` are the instructions of its innermost loops, in order of
    address.

    None for an architecture that is not in PEAK_FLOPS_PER_CYCLE, if no loop has matrix instructions or one of them is
    not known, and if no workgroup fits.
    """
    if code.arch not in PEAK_FLOPS_PER_CYCLE:
        return None
    try:
        occupancy = occupancy_of(code)
    except CodeObjectError:
        return None
    if occupancy is None or not occupancy.fits:
        return None
    waves = max(1, int(occupancy.whole_waves_per_simd))
    group = max(1, -(-occupancy.waves_per_workgroup // limits_of(code.arch).simds))
    found = [
        estimate_loop(steps, code.arch, waves, group, loop)
        for loop in loops
        if (steps := read_steps(loop, code.arch)) and any(step.unit == "matrix" for step in steps)
    ]
    return max(found, key=lambda one: one.peak_share, default=None)


def estimate_loop(
    steps: Sequence[Step], arch: str, waves: int, group: int = 1, instructions: Sequence[Instruction] = ()
) -> LoopEstimate:
    """Returns the estimate of a loop of `steps` for `waves` waves of one SIMD, of which `group` at a time belong to one
    workgroup and meet at its barriers. `instructions` are those of `steps`, to list the heaviest."""
    counts = _count_kinds(steps)
    cycles, spent = _play(steps, waves, group)
    peaks = PEAK_FLOPS_PER_CYCLE[arch]
    products = [step.matrix for step in steps if step.matrix]
    return LoopEstimate(
        waves=waves,
        cycles=round(cycles, 1),
        peak_cycles=round(sum(one.flops / peaks[one.bits] for one in products), 1),
        matrix_cycles=sum(one.cycles for one in products),
        vector_cycles=sum(step.cycles for step in steps if step.unit == "vector"),
        lds_cycles=sum(step.cycles for step in steps if step.unit == "lds"),
        matrix=counts["matrix"],
        valu=counts["valu"],
        transcendental=counts["transcendental"],
        salu=counts["salu"],
        lds=counts["lds"] + counts["lds_read"] + counts["lds_write"],
        loads=counts["global"],
        waits=counts["wait"],
        barriers=counts["barrier"],
        flops=sum(one.flops for one in products),
        lds_reads=counts["lds_read"],
        lds_writes=counts["lds_write"],
        lds_read_bytes=sum(step.bytes for step in steps if step.kind == "lds_read"),
        lds_write_bytes=sum(step.bytes for step in steps if step.kind == "lds_write"),
        load_bytes=sum(step.bytes for step in steps if step.unit == "global"),
        load_cycles=sum(step.cycles for step in steps if step.unit == "global"),
        heaviest=_find_heaviest(instructions, spent),
    )


def read_steps(instructions: Sequence[Instruction], arch: str) -> tuple[Step, ...]:
    """Returns the steps of a loop; () if it has a matrix instruction that is not known."""
    steps = tuple(_read_step(one.mnemonic, one.operands, arch) for one in instructions)
    return () if any(step.unit == "matrix" and step.matrix is None for step in steps) else steps


def _count_kinds(steps: Sequence[Step]) -> dict[str, int]:
    kinds = ("matrix", "valu", "transcendental", "salu", "lds", "lds_read", "lds_write", "global", "wait", "barrier")
    return {kind: sum(step.kind == kind for step in steps) for kind in kinds}


def _find_heaviest(instructions: Sequence[Instruction], spent: Sequence[float]) -> tuple[LoopInstruction, ...]:
    """Returns the instructions, by mnemonic (waits with their limits) and source line, at which a wave spends most
    time. `spent` are the cycles of each."""
    groups: dict[tuple[str, Place | None], list[float]] = {}
    for one, cycles in zip(instructions, spent, strict=False):
        name = f"{one.mnemonic} {one.operands}" if one.mnemonic == "s_waitcnt" else one.mnemonic
        groups.setdefault((name, one.place if one.place and one.place[1] else None), []).append(cycles)
    longest = sorted(groups.items(), key=lambda group: -sum(group[1]))[:HEAVIEST]
    found = []
    for (name, place), cycles_of in longest:
        path, line = place or ("", 0)
        text = read_source_line(path, line) if path else ""
        found.append(LoopInstruction(name, len(cycles_of), round(sum(cycles_of), 1), PurePath(path).name, line, text))
    return tuple(found)


@functools.lru_cache(maxsize=8192)
def _read_step(mnemonic: str, operands: str, arch: str) -> Step:
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


def _play(steps: Sequence[Step], waves: int, group: int) -> tuple[float, list[float]]:
    """Returns SIMD cycles per wave and iteration, over COUNTED_ITERATIONS of each wave after WARM_ITERATIONS; and the
    cycles that a wave spends at each step of one, waiting for it included."""
    simd = [_Wave(number // group) for number in range(waves)]
    free = dict.fromkeys(("vector", "matrix", "lds", "global", "scalar"), 0)
    ends: list[int] = []
    spent = [0] * len(steps)
    while len(ends) < (WARM_ITERATIONS + COUNTED_ITERATIONS) * waves:
        starts = [(_find_start(wave, steps[wave.at], free, simd), wave.ready) for wave in simd]
        # Of waves that could start in the same cycle, the one that has waited longest does.
        number = min(range(waves), key=starts.__getitem__)
        wave, at, before = simd[number], simd[number].at, simd[number].ready
        _issue(wave, steps[at], starts[number][0], free)
        if WARM_ITERATIONS <= wave.iteration < WARM_ITERATIONS + COUNTED_ITERATIONS:
            spent[at] += wave.ready - before
        if wave.at == len(steps):
            wave.at = 0
            wave.iteration += 1
            ends.append(wave.ready)
    counted = COUNTED_ITERATIONS * waves
    return (ends[-1] - ends[WARM_ITERATIONS * waves - 1]) / counted, [cycles / counted for cycles in spent]


def _find_start(wave: _Wave, step: Step, free: dict[str, int], simd: Sequence[_Wave]) -> int:
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
        here = [other.arrived for other in others if (other.iteration, other.at) == (wave.iteration, wave.at)]
        ahead = [other for other in others if (other.iteration, other.at) > (wave.iteration, wave.at)]
        met = len(here) + len(ahead) == len(others) and min(here) >= 0
        return max(start, *here) + BARRIER_CYCLES if met else _NEVER
    for register in step.reads:
        ready = wave.registers.get(register, 0)
        if step.sums and register in wave.chained and wave.chained[register][0] == step.sums:
            ready = wave.chained[register][1]
        start = max(start, ready)
    start = max(start, free["vector" if step.unit == "matrix" else step.unit])
    return max(start, free["matrix"]) if step.unit == "matrix" else start


def _issue(wave: _Wave, step: Step, start: int, free: dict[str, int]) -> None:
    """Issues the wave's next step at cycle `start`: occupies its unit, and moves the wave on."""
    wave.ready = start + ISSUE_CYCLES
    if step.unit == "barrier":
        if wave.arrived < 0:
            wave.arrived = start
            return
        wave.arrived, wave.at = -1, wave.at + 1
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

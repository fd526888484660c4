"""Estimates how many cycles an iteration of a kernel's key loop takes on CDNA2 to CDNA4, without a GPU.

As many waves as occupancy allows issue the loop's instructions, as `simd.play` has it. Units of a SIMD, in cycles per
instruction of a wave:

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

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE
from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.instructions import Instruction, Place
from pytest_attnperf.codeobject.line_table import read_source_line
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.codeobject.simd import SimdWave, Step, play, read_step
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, LoopEstimate, LoopInstruction

ESTIMATED = "estimated by a static issue model, +-30 %, never run"
"""Words that stand beside every figure of the model."""

WARM_ITERATIONS, COUNTED_ITERATIONS = 6, 8
HEAVIEST = 6
"""Lines that an estimate lists."""


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
    steps = tuple(read_step(one.mnemonic, one.operands, arch) for one in instructions)
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


def _play(steps: Sequence[Step], waves: int, group: int) -> tuple[float, list[float]]:
    """Returns SIMD cycles per wave and iteration, over COUNTED_ITERATIONS of each wave after WARM_ITERATIONS; and the
    cycles that a wave spends at each step of one, waiting for it included."""
    simd = [SimdWave(steps, number // group, endless=True) for number in range(waves)]
    ends: list[int] = []
    spent = [0] * len(steps)
    counted = COUNTED_ITERATIONS * waves
    for issued in play(simd):
        iteration, at = divmod(issued.at, len(steps))
        if WARM_ITERATIONS <= iteration < WARM_ITERATIONS + COUNTED_ITERATIONS:
            spent[at] += issued.cycles
        if issued.moved and at == len(steps) - 1:
            ends.append(issued.ready)
            if len(ends) == (WARM_ITERATIONS + COUNTED_ITERATIONS) * waves:
                break
    return (ends[-1] - ends[WARM_ITERATIONS * waves - 1]) / counted, [cycles / counted for cycles in spent]

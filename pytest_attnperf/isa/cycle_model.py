"""Estimates the cycles of a workgroup from what its waves executed: `codeobject.simd` plays their instructions once.

Beyond the static issue model it has the branches that were taken, loops as often as they ran, and the bank conflicts of
LDS. **Estimated, +-30 %, never compared with an AMD GPU.** Memory answers after the given latency, whatever the caches
hold; not modelled are limits of L2 and memory, instruction cache misses, clocks, and workgroups that begin while others
run: every resident workgroup of a SIMD does what the recorded one did, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.simd import (
    GLOBAL_LATENCY_CYCLES,
    LDS_LATENCY_CYCLES,
    SIMDS,
    SimdWave,
    Step,
    play,
    read_step,
)
from pytest_attnperf.errors import UsageError
from pytest_attnperf.isa.recording import Recorder, WaveTrace

ESTIMATED = "estimated from executed instructions, +-30 %, never compared with an AMD GPU"
"""Words that stand beside every figure of the model."""

UNITS = ("matrix", "vector", "lds", "global", "scalar")


@dataclass(frozen=True)
class Latencies:
    """Cycles from the end of an access until its result is there."""

    global_cycles: int = GLOBAL_LATENCY_CYCLES
    lds_cycles: int = LDS_LATENCY_CYCLES


@dataclass(frozen=True)
class CycleEstimate:
    """What a SIMD needs for its waves of the resident workgroups.

    workgroups       resident on the SIMD, each with `waves` waves
    cycles           until the last wave has ended
    busy             unit -> cycles
    conflict_cycles  of 'lds' in `busy`, that bank conflicts add
    peak_share       of the matrix units' peak, for all products that were executed
    spent            number of an instruction -> cycles that waves spent at it, waiting included
    """

    workgroups: int
    waves: int
    cycles: int
    busy: dict[str, int]
    conflict_cycles: int
    peak_share: float
    spent: dict[int, int]


def estimate_cycles(record: Recorder, workgroups: int, latencies: Latencies | None = None) -> CycleEstimate:
    """Returns the estimate for a SIMD with `workgroups` resident workgroups, each as the first recorded one.

    A SIMD has every fourth wave of a workgroup. Raises UsageError for an architecture without a model (RDNA, whose
    matrix instructions run on the VALU) and where nothing was recorded.
    """
    if record.arch not in PEAK_FLOPS_PER_CYCLE:
        raise UsageError(f"cycles are modelled for {', '.join(PEAK_FLOPS_PER_CYCLE)}, not for {record.arch}")
    if not record.traces:
        raise UsageError("no wave was recorded; execute with record=True")
    own = [
        trace for trace in record.traces if trace.workgroup == record.traces[0].workgroup and trace.wave % SIMDS == 0
    ]
    steps = _read_steps(record.instructions, record.arch, latencies or Latencies())
    simd = [SimdWave(_list_steps(trace, steps), group) for group in range(workgroups) for trace in own]
    traces = [trace for _ in range(workgroups) for trace in own]
    places = {id(wave): trace for wave, trace in zip(simd, traces, strict=True)}
    spent: dict[int, int] = {}
    end = 0
    for issued in play(simd):
        number = places[id(issued.wave)].steps[issued.at]
        spent[number] = spent.get(number, 0) + issued.cycles
        end = max(end, issued.ready)
    every = [step for wave in simd for step in wave.steps]
    peaks = PEAK_FLOPS_PER_CYCLE[record.arch]
    ideal = sum(step.matrix.flops / peaks[step.matrix.bits] for step in every if step.matrix)
    return CycleEstimate(
        workgroups,
        len(own),
        end,
        {unit: sum(step.cycles for step in every if step.unit == unit) for unit in UNITS},
        sum(sum(trace.conflicts.values()) for trace in traces) * SIMDS,
        ideal / end if end else 0.0,
        spent,
    )


def _read_steps(instructions: Sequence[Instruction], arch: str, latencies: Latencies) -> list[Step]:
    known = {"global": latencies.global_cycles, "lds": latencies.lds_cycles}
    steps = [read_step(one.mnemonic, one.operands, arch) for one in instructions]
    return [replace(step, latency=known[step.unit]) if step.unit in known else step for step in steps]


def _list_steps(trace: WaveTrace, steps: Sequence[Step]) -> list[Step]:
    """Returns what a wave executed; an LDS access with conflicts takes longer, its SIMD's quarter of the CU's LDS."""
    found = [steps[number] for number in trace.steps]
    for place, extra in trace.conflicts.items():
        if found[place].unit == "lds":
            found[place] = replace(found[place], cycles=found[place].cycles + SIMDS * extra)
    return found

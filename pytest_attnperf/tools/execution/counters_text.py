"""What the interpreter of machine code counted, as text: the instruction mix, LDS, memory, waits, source lines.

The counters are those that rocprofv3 samples on a GPU, counted instead: every instruction of every wave. What depends
on time (cache hits, stalls, occupancy reached) is not among them; cycles are estimated by `isa.cycle_model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_attnperf.codeobject import amdgcn
from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE
from pytest_attnperf.codeobject.instructions import Instruction, Place
from pytest_attnperf.codeobject.line_table import read_source_line
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.wide_tables import plain_table

if TYPE_CHECKING:
    from pytest_attnperf.isa.cycle_model import CycleEstimate
    from pytest_attnperf.isa.launch import Execution
    from pytest_attnperf.isa.recording import Tally

COUNTED = "counted by the interpreter of machine code, not sampled"

KINDS = {
    "matrix": "MFMA and WMMA", "dot": "VALU", "valu": "VALU", "agpr_move": "VALU", "cross_lane": "between lanes",
    "salu": "SALU", "branch": "SALU", "call": "SALU", "scalar_load": "scalar loads", "scalar_store": "scalar stores",
    "wait": "waits", "barrier": "barriers", "lds_atomic": "LDS", "scratch_load": "scratch", "scratch_store": "scratch",
}  # fmt: skip
"""Class of an instruction -> row of the mix; classes by width and the others are below."""

SOON = 20
"""Instructions: a wait for an access that was issued fewer before it hides little of its latency."""

LINES = 12
TEXT_COLUMNS = 40

Counted = tuple[Instruction, "Tally", str]


def format_counters(execution: Execution) -> str:
    """Returns the text on a launch that was recorded; for CDNA with an estimate of its cycles.

    Raises UsageError if it was not recorded.
    """
    record, lanes = execution.record, execution.code.wave_size
    if record is None:
        raise UsageError("nothing was counted; execute with record=True")
    counted = [
        (one, tally, _kind_of(one))
        for one, tally in zip(record.instructions, record.tallies, strict=True)
        if tally.executed
    ]
    total = sum(tally.executed for _, tally, _ in counted)
    active = sum(tally.lanes for _, tally, _ in counted)
    head = f"{total:,} instructions, {100 * active / (total * lanes):.0f} % of their lanes active ({COUNTED})"
    parts = [head, _render_mix(counted, total), "\n".join(_describe_traffic(counted)), _render_lines(counted)]
    if execution.code.arch in PEAK_FLOPS_PER_CYCLE:
        from pytest_attnperf.isa.cycle_model import estimate_cycles

        occupancy = occupancy_of(execution.code)
        resident = max(1, occupancy.workgroups) if occupancy else 1
        parts.append(_describe_estimate(estimate_cycles(record, resident)))
    return "\n\n".join(parts)


def _kind_of(instruction: Instruction) -> str:
    name = amdgcn.classify(instruction.mnemonic, instruction.operands)
    if name in KINDS:
        return KINDS[name]
    for begin, kind in (("lds_", "LDS"), ("global_load", "loads"), ("global_", "stores")):
        if name.startswith(begin):
            return kind
    return "others"


def _render_mix(counted: Sequence[Counted], total: int) -> str:
    sums: dict[str, int] = {}
    for _, tally, kind in counted:
        sums[kind] = sums.get(kind, 0) + tally.executed
    rows = [(kind, f"{count:,}", f"{100 * count / total:.1f} %") for kind, count in sorted(sums.items(), key=_by_count)]
    return plain_table(("kind", "executed", "share"), rows, ("left", "right", "right"))


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _describe_traffic(counted: Sequence[Counted]) -> Iterator[str]:
    from pytest_attnperf.isa.recording import SEGMENT_BYTES

    lds, extra = (
        sum(getattr(tally, name) for _, tally, _ in counted) for name in ("lds_cycles", "lds_conflict_cycles")
    )
    if lds:
        share = f"{100 * extra / (lds + extra):.0f} %" if extra else "none"
        moved = sum(tally.lds_bytes for _, tally, _ in counted)
        yield f"LDS: {moved:,} bytes in {lds + extra:,} cycles, {extra:,} of them for bank conflicts ({share})"
    for name in ("loads", "stores"):
        moved, pieces = (
            sum(getattr(tally, field) for _, tally, kind in counted if kind == name) for field in ("bytes", "segments")
        )
        if pieces:
            used = 100 * moved / (pieces * SEGMENT_BYTES)
            yield f"{name}: {moved:,} bytes in {pieces:,} pieces of {SEGMENT_BYTES} bytes ({used:.0f} % of them)"
    waits = [tally for _, tally, kind in counted if kind == "waits"]
    soon = sum(tally.executed for tally in waits if 0 <= tally.distance < SOON)
    if waits:
        executed = sum(tally.executed for tally in waits)
        yield f"waits: {executed:,}, {soon:,} of them where an access was issued fewer than {SOON} instructions before"


def _render_lines(counted: Sequence[Counted]) -> str:
    groups: dict[Place | None, list[Counted]] = {}
    for each in counted:
        place = each[0].place
        groups.setdefault(place if place and place[1] else None, []).append(each)
    heaviest = sorted(groups.items(), key=lambda item: -sum(tally.executed for _, tally, _ in item[1]))[:LINES]
    headers = ("executed", "MFMA", "LDS cycles", "conflicts", "bytes", "waits", "line", "")
    rows = [_line_cells(place, group) for place, group in heaviest]
    return plain_table(headers, rows, (*["right"] * 6, "left", "left"))


def _line_cells(place: Place | None, group: Sequence[Counted]) -> tuple[str, ...]:
    def add(name: str, *kinds: str) -> str:
        found = sum(getattr(tally, name) for _, tally, kind in group if not kinds or kind in kinds)
        return f"{found:,}" if found else ""

    numbers = (
        add("executed"), add("executed", "MFMA and WMMA"), add("lds_cycles"), add("lds_conflict_cycles"), add("bytes"),
        add("executed", "waits"),
    )  # fmt: skip
    if place is None:
        return (*numbers, "no line", "")
    path, line = place
    return (*numbers, f"{one_line(PurePath(path).name)}:{line}", one_line(read_source_line(path, line), TEXT_COLUMNS))


def _describe_estimate(estimate: CycleEstimate) -> str:
    from pytest_attnperf.isa.cycle_model import ESTIMATED

    units = {"matrix": "MFMA", "vector": "VALU", "lds": "LDS", "global": "memory"}
    busy = ", ".join(f"{name} {100 * estimate.busy[unit] / estimate.cycles:.0f} %" for unit, name in units.items())
    return (
        f"{estimate.cycles:,} cycles of a SIMD for {estimate.workgroups} workgroups at once ({ESTIMATED})\n"
        f"busy: {busy}; {100 * estimate.peak_share:.0f} % of MFMA peak for all products that were computed\n"
        f"bank conflicts: {estimate.conflict_cycles:,} of {estimate.busy['lds']:,} LDS cycles"
    )

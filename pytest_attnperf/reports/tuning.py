"""What a tuning run shows: what was tried, the best candidates, and the winner against the default by workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_attnperf.reports.figures import ABSENT, format_change, format_interval, format_us, one_line
from pytest_attnperf.reports.wide_tables import Column, Table
from pytest_attnperf.tuning_records import (
    STATIC_ONLY,
    Candidate,
    Excluded,
    StaticFigures,
    TuneResult,
    Value,
    WorkloadChange,
)

SHOWN = 10
"""Candidates of the ranking that a table holds, the default beside them."""

REASONS_SHOWN = 4
NAME_LIMIT = 90
NOT_TIMED = "NOTHING WAS TIMED: candidates are ranked by their code objects, which says what to time first, no more"


def header_lines(result: TuneResult) -> list[str]:
    """The verdict first, then what was tuned where, what was tried, and what was left out before timing."""
    device = result.device
    where = f"{device.name or device.product} ({result.arch})" if device is not None else f"{result.arch}, not present"
    timed = {(trial.candidate.id) for trial in result.trials}
    lines = [f"{result.verdict}: {one_line(result.summary, 400)}"]
    if result.verdict == STATIC_ONLY:
        lines.append(NOT_TIMED)
    lines.append(f"tuned: {result.backend}, kernel {result.kernel}, on {one_line(where)}")
    lines.append(f"workloads: {', '.join(one_line(name, NAME_LIMIT) for name in result.workloads)}")
    lines.append(
        f"searched ({result.strategy}): {result.candidates} candidates, {len(timed)} of them timed in "
        f"{len(result.trials)} trials (one candidate on one workload in one process), {result.seconds:.0f} s in all"
    )
    lines += _excluded_lines(result.excluded)
    return [*lines, *(one_line(note, 400) for note in result.notes)]


def tables(result: TuneResult) -> list[Table]:
    """The best candidates, and the changes by workload."""
    found = [ranking_table(result)] if result.ranking else []
    return [*found, changes_table(result.changes)] if result.changes else found


def ranking_table(result: TuneResult) -> Table:
    """The best candidates beside the default: cost, and what their code objects say. Parameters that all share are
    left out of the names, and said below.
    """
    shown = list(result.ranking[:SHOWN])
    if result.default.id not in {candidate.id for candidate, _ in shown}:
        shown += [(candidate, cost) for candidate, cost in result.ranking if candidate.id == result.default.id][:1]
    shared = _shared([candidate for candidate, _ in shown])
    rows = [
        (
            _marked(candidate, result, shared),
            ABSENT if cost is None else f"{cost:.3f}",
            *_static_cells(result.static.get(candidate.id)),
        )
        for candidate, cost in shown
    ]
    headers = ("time / default's", "registers", "spills", "scratch B", "LDS B", "waves/SIMD")
    notes = [f"all of these: {_values(shared)}"] if shared else []
    if len(result.ranking) > len(shown):
        notes.append(f"{len(result.ranking) - len(shown)} further candidates are in the JSON file")
    return Table("candidates", "candidate", tuple(map(Column, headers)), tuple(rows), tuple(notes))


def changes_table(changes: Sequence[WorkloadChange]) -> Table:
    """The winner against the default, worst first: one rule serves all these workloads, and the worst decides."""
    ordered = sorted(changes, key=lambda change: -(change.ratio if change.ratio is not None else float("inf")))
    rows = [
        (
            one_line(change.workload, NAME_LIMIT),
            format_us(change.default_us),
            format_us(change.winner_us),
            format_change(change.ratio),
            format_interval(change.interval95).removeprefix("95 %: ") or ABSENT,
            str(len(change.pairs)) if change.pairs else ABSENT,
            "yes" if change.tuned else "no",
            change.verdict,
        )
        for change in ordered
    ]
    columns = [Column(name) for name in ("default us", "winner us", "change", "95 %", "pairs", "tuned")]
    notes = [f"{one_line(change.workload, NAME_LIMIT)}: {one_line(change.note)}" for change in ordered if change.note]
    title = "winner against default, in fresh pairs of processes, worst first"
    return Table(title, "workload", (*columns, Column("verdict", "left")), tuple(rows), tuple(notes))


def _excluded_lines(excluded: Sequence[Excluded]) -> list[str]:
    """How many candidates were left out at each stage, with the most frequent reasons."""
    lines = []
    for stage in dict.fromkeys(one.stage for one in excluded):
        reasons = Counter(one.reason for one in excluded if one.stage == stage)
        said = [f"{count} x {one_line(reason, 120)}" for reason, count in reasons.most_common(REASONS_SHOWN)]
        more = len(reasons) - len(said)
        rest = [f"{more} other reasons"] if more > 0 else []
        lines.append(f"left out ({stage}): {sum(reasons.values())}: {'; '.join([*said, *rest])}")
    return lines


def _marked(candidate: Candidate, result: TuneResult, shared: dict[str, Value]) -> str:
    """A candidate's own values, and what it is: the winner, the default, or one of the library's."""
    own = {name: value for name, value in candidate.values.items() if name not in shared}
    marks = [candidate.label] if candidate.label else []
    if result.winner is not None and candidate.id == result.winner.id:
        marks.append("winner")
    if candidate.id == result.default.id:
        marks.append("default")
    name = _values(own) or "as below"
    return one_line(f"{name} [{', '.join(marks)}]" if marks else name, NAME_LIMIT)


def _shared(candidates: Sequence[Candidate]) -> dict[str, Value]:
    """Values that all these candidates have; none where there is one candidate only."""
    if len(candidates) < 2:
        return {}
    first = candidates[0].values
    return {name: first[name] for name in first if all(other.values.get(name) == first[name] for other in candidates)}


def _values(values: dict[str, Value]) -> str:
    return " ".join(f"{name}={values[name]}" for name in sorted(values))


def _static_cells(figures: StaticFigures | None) -> Iterable[str]:
    if figures is None:
        return (ABSENT,) * 5
    spills = ABSENT if figures.spills is None else str(figures.spills)
    occupancy = ABSENT if figures.occupancy is None else f"{figures.occupancy:g}"
    return (str(figures.registers), spills, str(figures.scratch_bytes), str(figures.lds_bytes), occupancy)

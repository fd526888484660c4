"""Writes the results of a tuning run: configuration files, the report, and the whole result.

The report shows what was tried, the best candidates, and the winner compared with the default by workload.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.text.figures import ABSENT, format_change, format_interval, one_line
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables, render_terminal_tables
from pytest_attnperf.tuning_records import (
    STATIC_ONLY,
    Candidate,
    Excluded,
    StaticFigures,
    TuneResult,
    Value,
    WorkloadChange,
)

RESULT, REPORT = "tune.json", "report.md"
BYTES_MAX = 1 << 28

SHOWN = 10
"""Candidates of the ranking that a table shows, plus the default."""

_PEAK, _EXECUTED, _CONFLICTS = "est. MFMA %", "executed MFMA %", "LDS conflicts %"
_FIGURES = ("registers", "spills", "scratch B", "LDS B", "waves/SIMD", _PEAK, _EXECUTED, _CONFLICTS)
"""Columns about a candidate's code objects."""

REASONS_SHOWN = 4
NAME_LIMIT = 90
NOT_TIMED = "NOTHING WAS TIMED: candidates are ranked by their code objects, which only suggests what to time first"


def write_tune_result(result: TuneResult, out: Path) -> str:
    """Writes the files, the report and the whole result under `out`; returns the text for the terminal.

    Removes configuration files of an earlier run that this run does not write, so that no outdated file is taken for
    better. Raises UsageError, and writes nothing, for a file that would lie outside of the folder."""
    lines, found = header_lines(result), make_tables(result)
    paths = [_resolve_inside(out, file.path) for file in result.files]
    said = _remove_earlier(out, paths)
    for path, file in zip(paths, result.files, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, file.text.encode())
        said.append(f"written: {path}: {file.what}")
    encoded: bytes = msgspec.json.format(msgspec.json.encode(result), indent=1)
    write_atomically(out / RESULT, encoded + b"\n")
    write_atomically(out / REPORT, f"{render_markdown_tables([*lines, *said], found)}\n".encode())
    return render_terminal_tables([*lines, *said, f"report: {out / REPORT}; everything: {out / RESULT}"], found)


def _resolve_inside(out: Path, name: str) -> Path:
    """Returns the path `name` below `out`. Raises UsageError if it is absolute or leads outside of `out`."""
    path = out / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"the path of a tuned file, {name!r}, is outside of {out}; nothing was written")
    return path


def _remove_earlier(out: Path, kept: list[Path]) -> list[str]:
    """Removes the configuration files that the last result in `out` names and `kept` does not, unless they were
    changed. Returns a line for each file that was removed or, being changed, was not."""
    said = []
    for name, text in _read_earlier_files(out / RESULT):
        try:
            path = _resolve_inside(out, name)
            if path in kept or not path.is_file():
                continue
            if path.read_bytes() == text.encode():
                path.unlink()
                said.append(f"removed: {path}: an earlier run wrote it, and this one does not")
            else:
                said.append(f"not removed: {path}: an earlier run wrote it, this one does not, and it was changed")
        except (UsageError, OSError, ValueError):
            continue
    return said


def _read_earlier_files(result: Path) -> list[tuple[str, str]]:
    """Returns (path, text) of the configuration files that a stored result names; empty if it cannot be read."""
    try:
        stored: Any = json.loads(read_regular(result, BYTES_MAX))
        return [
            (file["path"], file["text"]) for file in stored["files"] if isinstance(file["path"] + file["text"], str)
        ]
    except (UsageError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def decode_tune_result(data: bytes, where: str) -> TuneResult:
    """Reads the tune.json of a finished run. Raises UsageError naming `where` for anything else."""
    try:
        return msgspec.json.decode(data, type=TuneResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: is not what attnperf tune wrote ({error}); run the same tuning again") from error


def header_lines(result: TuneResult) -> list[str]:
    """Returns lines of the report: verdict, what was tuned where, what was tried, what was left out, and the notes."""
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


def make_tables(result: TuneResult) -> list[Table]:
    """Returns the table of the best candidates, and one that compares winner and default by workload; an empty one is
    left out."""
    found = [ranking_table(result)] if result.ranking else []
    return [*found, changes_table(result.changes)] if result.changes else found


def ranking_table(result: TuneResult) -> Table:
    """Returns the best candidates by rank, and the default: a column each for cost, values and figures of code objects.

    Values that all share are a note below; figures that no candidate has are left out."""
    places = list(enumerate(result.ranking, start=1))
    shown = places[:SHOWN]
    shown += [place for place in places[SHOWN:] if place[1][0].id == result.default.id]
    shared = find_shared_values([candidate for _, (candidate, _) in shown])
    names = sorted({name for _, (candidate, _) in shown for name in candidate.values if name not in shared})
    columns = {
        "vs default": [ABSENT if cost is None else f"{cost:.3f}" for _, (_, cost) in shown],
        **{name: [str(candidate.values.get(name, ABSENT)) for _, (candidate, _) in shown] for name in names},
    }
    figures = [_static_cells(result.static.get(candidate.id)) for _, (candidate, _) in shown]
    columns |= dict(zip(_FIGURES, map(list, zip(*figures, strict=True)), strict=True))
    known = {name: cells for name, cells in columns.items() if any(cell != ABSENT for cell in cells)}
    marks = [_format_rank(rank, candidate, result) for rank, (candidate, _) in shown]
    notes = [f"all of these: {_format_values(shared)}"] if shared else []
    if _PEAK in known:
        notes.append(f"{_PEAK}: share of the matrix units' peak in the key loop, {ESTIMATED}")
    if _EXECUTED in known:
        notes.append(f"{_EXECUTED}: the same of a part of a workgroup that was executed, with its bank conflicts")
    if len(result.ranking) > len(shown):
        notes.append(f"{len(result.ranking) - len(shown)} further candidates are in the JSON file")
    rows = tuple(zip(marks, *known.values(), strict=True))
    return Table("candidates", "rank", tuple(Column(one_line(name, 40)) for name in known), rows, tuple(notes))


def changes_table(changes: Sequence[WorkloadChange]) -> Table:
    """Returns a table that compares winner and default by workload, worst first: one rule serves all these workloads,
    and the worst decides."""
    ordered = sorted(changes, key=lambda change: -(change.ratio if change.ratio is not None else float("inf")))
    rows = [
        (
            one_line(change.workload, NAME_LIMIT),
            TimeCell(change.default_us),
            TimeCell(change.winner_us),
            format_change(change.ratio),
            format_interval(change.interval95).removeprefix("95 %: ") or ABSENT,
            str(len(change.pairs)) if change.pairs else ABSENT,
            "yes" if change.tuned else "no",
            change.verdict,
        )
        for change in ordered
    ]
    columns = [Column(name) for name in ("default", "winner", "change", "95 %", "pairs", "tuned")]
    notes = [f"{one_line(change.workload, NAME_LIMIT)}: {one_line(change.note)}" for change in ordered if change.note]
    title = "winner against default, in fresh pairs of processes, worst first"
    return Table(title, "workload", (*columns, Column("verdict", "left")), tuple(rows), tuple(notes))


def _excluded_lines(excluded: Sequence[Excluded]) -> list[str]:
    """Returns a line for each stage that excluded candidates: how many, and the most frequent kinds of reasons. Reasons
    that differ in figures only are one kind; its first one is shown."""
    lines = []
    for stage in dict.fromkeys(one.stage for one in excluded):
        reasons = [one.reason for one in excluded if one.stage == stage]
        kinds = Counter(map(_kind_of_reason, reasons))
        examples = {_kind_of_reason(reason): reason for reason in reversed(reasons)}
        differ = {_kind_of_reason(reason) for reason in reasons if reason != examples[_kind_of_reason(reason)]}
        said = [
            f"{count} x {'e.g. ' if kind in differ else ''}{one_line(examples[kind], 120)}"
            for kind, count in kinds.most_common(REASONS_SHOWN)
        ]
        more = len(kinds) - len(said)
        rest = [f"{more} other reasons"] if more > 0 else []
        lines.append(f"left out ({stage}): {len(reasons)}: {'; '.join([*said, *rest])}")
    return lines


def _kind_of_reason(reason: str) -> str:
    """Returns a reason without digits, commas and periods, to group reasons that differ in figures only."""
    return "".join(letter for letter in reason if not letter.isdigit() and letter not in ",.")


def _format_rank(rank: int, candidate: Candidate, result: TuneResult) -> str:
    """Returns a candidate's rank with its label and its role: '1 winner', '3 default', 'first' if nothing was timed."""
    marks = [candidate.label] if candidate.label else []
    if result.winner is not None and candidate.id == result.winner.id:
        marks.append("first" if result.verdict == STATIC_ONLY else "winner")
    if candidate.id == result.default.id:
        marks.append("default")
    return one_line(" ".join([str(rank), ", ".join(marks)]).rstrip(), NAME_LIMIT)


def find_shared_values(candidates: Sequence[Candidate]) -> dict[str, Value]:
    """Returns name -> value of the parameters that have one value in all these candidates; empty for a single one."""
    if len(candidates) < 2:
        return {}
    first = candidates[0].values
    return {name: first[name] for name in first if all(other.values.get(name) == first[name] for other in candidates)}


def _format_values(values: dict[str, Value]) -> str:
    return " ".join(f"{name}={values[name]}" for name in sorted(values))


def _static_cells(figures: StaticFigures | None) -> tuple[str, ...]:
    if figures is None:
        return (ABSENT,) * len(_FIGURES)
    spills = ABSENT if figures.spills is None else str(figures.spills)
    occupancy = ABSENT if figures.occupancy is None else f"{figures.occupancy:g}"
    shares = (figures.peak_share, figures.executed_share, figures.conflict_share)
    told = [ABSENT if share is None else f"{share * 100:.1f}" for share in shares]
    return (str(figures.registers), spills, str(figures.scratch_bytes), str(figures.lds_bytes), occupancy, *told)

"""Staged against fused: the stages of unfused attention, measured as cases of their own, beside whole kernels.

The stages' cases are found by their ids: those that a prefill of the same sizes is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.run.ladder_cases import is_timed
from pytest_attnperf.reports.text.figures import ABSENT, format_speedup, format_us, one_line
from pytest_attnperf.reports.text.wide_tables import Column, Table
from pytest_attnperf.results import CaseResult

FAMILIES = ("qk_scores", "causal_mask", "row_softmax", "weighted_values")
STAGED = ".staged"
"""Ends the name of a backend that computes attention in stages, and each of these families."""

NAME_LIMIT = 44
TITLE_LIMIT = 200

_PREFILL = re.compile(
    r"prefill-(?P<pairs>b\d+-s\d+(?:-kv\d+)?-h\d+)(?P<product>(?:-hk\d+)?-d\d+)-(?P<dtype>[a-z0-9]+)(?P<causal>-causal)?"
)
"""An id whose attention is made of the four stages alone: others have windows, biases or further outputs."""

LEGEND = (
    "staged against fused: times of cases in us; 'over X': how many times as fast as X, as a whole where that was "
    "timed, else as the sum of its stages"
)


@dataclass(frozen=True)
class Library:
    """One library's stages of one prefill: family -> microseconds, and the whole; None where there is no time."""

    name: str
    stages: dict[str, float | None]
    whole_us: float | None

    @property
    def sum_us(self) -> float | None:
        """All stages together; None where one is missing."""
        known = [us for us in self.stages.values() if us is not None]
        return sum(known) if len(known) == len(self.stages) else None

    @property
    def base_us(self) -> float | None:
        """What others are held to."""
        return self.sum_us if self.whole_us is None else self.whole_us


def stage_ids(prefill: str) -> dict[str, str]:
    """Family -> the workload of that family that this prefill is made of; empty where it is not made of them."""
    match = _PREFILL.fullmatch(prefill)
    if match is None:
        return {}
    pairs, product, dtype, causal = match["pairs"], match["product"], match["dtype"], match["causal"] or ""
    ids = {
        "qk_scores": f"qk_scores-{pairs}{product}-{dtype}",
        "causal_mask": f"causal_mask-{pairs}-f32",
        "row_softmax": f"row_softmax-{pairs}-{dtype}{causal}",
        "weighted_values": f"weighted_values-{pairs}{product}-{dtype}{causal}",
    }
    return ids if causal else {family: name for family, name in ids.items() if family != "causal_mask"}


def staged_tables(cases: Iterable[CaseResult], workloads: Sequence[str] = ()) -> list[Table]:
    """A table per prefill workload of which some stage has a case.

    workloads   the only ones to show, empty for all
    """
    every = list(cases)
    prefills = dict.fromkeys(case.key.workload for case in every if _PREFILL.fullmatch(case.key.workload))
    tables = []
    for workload in prefills:
        libraries = _libraries(every, workload)
        if libraries and (not workloads or workload in workloads):
            tables.append(_table(workload, libraries, [case for case in every if case.key.workload == workload]))
    return tables


def _libraries(cases: Sequence[CaseResult], workload: str) -> list[Library]:
    """Those that have a case of a stage, whether it was timed or not."""
    ids = stage_ids(workload)
    wanted = {*ids.values(), workload}
    own = [case for case in cases if case.key.workload in wanted and case.key.backend.endswith(STAGED)]
    names = dict.fromkeys(case.key.backend for case in own if case.key.workload != workload)
    times = {(case.key.backend, case.key.workload): case.median_us for case in own if is_timed(case)}
    return [
        Library(name, {family: times.get((name, ids[family])) for family in ids}, times.get((name, workload)))
        for name in names
    ]


def _table(workload: str, libraries: Sequence[Library], cases: Sequence[CaseResult]) -> Table:
    families = tuple(libraries[0].stages)
    bases = {library.name: library.base_us for library in libraries if library.base_us is not None}
    columns = [Column("us"), *(Column(f"over {one_line(name, NAME_LIMIT)}") for name in bases)]
    columns += [Column(family, begins=family == families[0]) for family in families]
    rows = []
    for library in libraries:
        stages = [format_us(library.stages[family]) for family in families]
        rows.append((f"{library.name}, sum of {len(families)}", *_times(library.sum_us, bases), *stages))
    blank = ("",) * len(families)
    staged = {library.name for library in libraries}
    whole = sorted(filter(is_timed, cases), key=lambda case: case.key.backend not in staged)
    rows += [(one_line(case.key.backend, NAME_LIMIT), *_times(case.median_us, bases), *blank) for case in whole]
    title = one_line(f"staged against fused: {workload}", TITLE_LIMIT)
    return Table(title, "backend", tuple(columns), tuple(rows), tuple(_missing(workload, libraries, cases)))


def _times(us: float | None, bases: Mapping[str, float]) -> list[str]:
    return [format_us(us), *(format_speedup(base / us) if us else ABSENT for base in bases.values())]


def _missing(workload: str, libraries: Sequence[Library], cases: Sequence[CaseResult]) -> list[str]:
    """What these results do not hold."""
    ids = stage_ids(workload)
    notes = []
    for library in libraries:
        absent = [ids[family] for family, us in library.stages.items() if us is None]
        absent += [workload] if library.whole_us is None else []
        if absent:
            notes.append(one_line(f"{library.name} has no time of: {', '.join(absent)}", TITLE_LIMIT * 2))
    untimed = [f"{case.key.backend} ({case.verdict.value})" for case in cases if not is_timed(case)]
    if untimed:
        notes.append(one_line(f"not timed on this workload: {', '.join(untimed)}", TITLE_LIMIT * 2))
    if not any(is_timed(case) and not case.key.backend.endswith(STAGED) for case in cases):
        notes.append("no fused kernel was timed on this workload")
    return notes

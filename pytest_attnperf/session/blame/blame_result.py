"""The settings of a blame, its result for each case and component, and the text that a terminal shows of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.session.bisect.bisect_result import PAIRS_MIN, format_bound
from pytest_attnperf.session.blame.effects import Effect

if TYPE_CHECKING:
    from pytest_attnperf.session.blame.case_search import Question

SHARE = 0.1
"""A component counts if it carries more than this share of a case's change, and more than the threshold."""

SUSPECTS_MAX = 3
"""Most groups of components that are searched for in one case: more would cost more than a bisection of versions."""


class GroupConclusion(str, enum.Enum):
    """What swapping a component both ways showed of it."""

    BLAMED = "blamed"
    INNOCENT = "innocent"
    NOT_SEPARATED = "not separated"
    UNDECIDED = "undecided"


class BlameOutcome(str, enum.Enum):
    """What the search ended with for one case."""

    EXPLAINED = "explained"
    NOT_SEPARATED = "not separated"
    UNDECIDED = "undecided"
    UNCHANGED = "unchanged"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class BlameSettings:
    """Settings of a blame. Raises ValueError for a value outside its range.

    confidence           that all intervals of a case hold at once, from 0.5 to below 1
    threshold_percent    a change that is certainly smaller counts as none
    pairs_max            most pairs per measurement, at least PAIRS_MIN
    """

    confidence: float = 0.95
    threshold_percent: float = 1.0
    pairs_max: int = 16

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence:g}, must be at least 0.5 and below 1, e.g. 0.95")
        if not 0 < self.threshold_percent < math.inf:
            raise ValueError(f"threshold is {self.threshold_percent:g} %, must be above 0, e.g. 1")
        if self.pairs_max < PAIRS_MIN:
            raise ValueError(
                f"pairs-max is {self.pairs_max}, must be at least {PAIRS_MIN}: fewer show too little of their scatter"
            )

    @property
    def limit(self) -> float:
        """The threshold as a natural log of a ratio."""
        return math.log1p(self.threshold_percent / 100)

    def limit_of(self, total: Effect) -> float:
        """Returns which log ratio a component's effect must exceed to count in a case that changed by `total`."""
        return max(self.limit, SHARE * abs(total.log_ratio))


@dataclass(frozen=True)
class JudgedGroup:
    """One component, or several that were swapped together only.

    into, out_of            effect of having the new version: put into the old environment, taken out of the new one;
                            None if it was not measured or gave no ratio
    into_why, out_of_why    why it gave no ratio, else ''
    """

    names: tuple[str, ...]
    conclusion: GroupConclusion
    into: Effect | None = None
    out_of: Effect | None = None
    into_why: str = ""
    out_of_why: str = ""


@dataclass(frozen=True)
class CaseBlame:
    """What is known about one case.

    total          new environment against the old one; None if it gave no ratio
    limit          log ratio that a component's effect must exceed to count
    suspects       groups that were not innocent, in the order in which they were found
    others         the rest, which were judged as one group; None if there is none
    measurements   pairs of environments that this case was measured in
    why            why it was not measured, else ''
    """

    nodeid: str
    outcome: BlameOutcome
    total: Effect | None = None
    limit: float = 0.0
    suspects: tuple[JudgedGroup, ...] = ()
    others: JudgedGroup | None = None
    measurements: int = 0
    pairs: int = 0
    why: str = ""

    @property
    def blamed(self) -> tuple[JudgedGroup, ...]:
        """The components that were certainly found to have changed the time."""
        return tuple(group for group in self.suspects if group.conclusion is GroupConclusion.BLAMED)

    @property
    def is_changed(self) -> bool:
        """Whether the case certainly changed, so that components were searched."""
        return self.outcome not in (BlameOutcome.UNCHANGED, BlameOutcome.NOT_MEASURED) and bool(self.suspects)


HEADINGS = ("component", "old -> new", "in the old environment", "in the new environment", "conclusion")
NAMES_SHOWN = 4
INDENT = "  "

Versions = Mapping[str, str]
"""Component -> 'old -> new'."""


def describe_question(question: Question, cases: int, components: Sequence[str]) -> str:
    """Returns a line of progress: which environments are compared, for how many cases, in how many pairs."""
    base, candidate = (_name_mixture(mixture, components) for mixture in (question.base, question.candidate))
    if not question.pairs:
        return f"starting {base}, and {candidate}"
    return f"{candidate} against {base}: {question.pairs} pairs, {cases} case{'s' * (cases != 1)}"


def _name_mixture(mixture: frozenset[str], components: Sequence[str]) -> str:
    if not mixture or len(mixture) == len(components):
        return "new" if mixture else "old"
    if 2 * len(mixture) <= len(components):
        return f"old with new {_list_names([name for name in components if name in mixture])}"
    return f"new with old {_list_names([name for name in components if name not in mixture])}"


def render_case(case: CaseBlame, versions: Versions) -> list[str]:
    """Returns the lines about one case: its change, and a row for each group of components."""
    if case.total is None:
        return [case.nodeid, *(f"{INDENT}{line}" for line in ("not measured: " + case.why).splitlines())]
    lines = [case.nodeid, f"{INDENT}new against old: {format_effect(case.total)}: {_describe_outcome(case)}"]
    if case.suspects:
        groups = [*case.suspects, *([case.others] if case.others else ())]
        lines += [INDENT + line for line in _align([HEADINGS, *(_make_row(group, versions) for group in groups)])]
        lines += [INDENT + line for group in groups for line in _explain_gaps(group)]
    return lines


def render_summary(cases: Sequence[CaseBlame], versions: Versions) -> list[str]:
    """Returns the lines over all cases: how many are explained, and what each component costs."""
    changed = [case for case in cases if case.is_changed]
    explained = sum(case.outcome is BlameOutcome.EXPLAINED for case in changed)
    lines = [f"{len(changed)} of {len(cases)} cases changed, {explained} explained"]
    blamed: dict[str, list[JudgedGroup]] = {}
    for case in changed:
        for group in case.blamed:
            blamed.setdefault(group.names[0], []).append(group)
    lines += [_describe_cost(name, groups, versions) for name, groups in blamed.items()]
    unseparated = {group.names for case in changed for group in case.suspects if group not in case.blamed}
    if unseparated:
        joined = [
            sorted({name for group in case.suspects if group not in case.blamed for name in group.names})
            for case in changed
        ]
        for names in sorted({tuple(names) for names in joined if names}):
            count = sum(tuple(one) == names for one in joined)
            lines.append(f"could not be separated in {_count(count)}: {{{_list_names(names)}}}")
    return lines


def format_effect(effect: Effect | None) -> str:
    """Returns an effect as a percentage with its interval: '+44.8 % (+43.9..+45.7)'; '-' for None."""
    if effect is None:
        return "-"
    low, high = effect.interval
    return f"{format_bound(effect.ratio)} % ({format_bound(low)}..{format_bound(high)})"


def _describe_outcome(case: CaseBlame) -> str:
    if case.outcome is BlameOutcome.UNCHANGED:
        return f"no change of {_format_limit(case.limit)} or more"
    if not case.suspects:
        return "undecided whether it changed; raise --pairs-max, or --threshold"
    return (
        f"{case.outcome.value}; blamed above {_format_limit(case.limit / 2)}; {case.measurements} comparisons, "
        f"{case.pairs} pairs"
    )


def _make_row(group: JudgedGroup, versions: Versions) -> tuple[str, ...]:
    one = group.names[0] if len(group.names) == 1 else ""
    name = one or f"{len(group.names)} others: {_list_names(group.names)}"
    if not one and group.conclusion is not GroupConclusion.INNOCENT:
        name = f"{{{_list_names(group.names)}}}"
    return (
        name,
        versions.get(one, ""),
        format_effect(group.into),
        format_effect(group.out_of),
        group.conclusion.value,
    )


def _explain_gaps(group: JudgedGroup) -> Iterator[str]:
    """Yields why a group has no effect in one of the environments, the first line of each reason."""
    for where, why in (("old", group.into_why), ("new", group.out_of_why)):
        if why:
            names = _list_names(group.names)
            kind = "new" if where == "old" else "old"
            yield f"{where} environment with {kind} {names}: {why.partition(chr(10))[0]}"


def _describe_cost(name: str, groups: Sequence[JudgedGroup], versions: Versions) -> str:
    ratios = sorted(group.into.ratio for group in groups if group.into is not None)
    low, high = format_bound(ratios[0]), format_bound(ratios[-1])
    size = f"{low} %" if low == high else f"{low} % to {high} %"
    return f"{' '.join(filter(None, (name, versions.get(name, ''))))}: {size} in {_count(len(groups))}"


def _count(cases: int) -> str:
    return f"{cases} case{'s' * (cases != 1)}"


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join([*names[:NAMES_SHOWN], *([f"and {more} more"] if more > 0 else ())])


def _format_limit(limit: float) -> str:
    return f"{100 * math.expm1(limit):.2g} %"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

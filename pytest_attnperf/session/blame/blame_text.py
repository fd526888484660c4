"""What a blame prints: progress, a table for each case, and which component costs which cases how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_attnperf.session.blame.blame_result import BlameOutcome, CaseBlame, Conclusion, JudgedGroup
from pytest_attnperf.session.blame.case_search import Question
from pytest_attnperf.session.blame.effects import Effect

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
    return f"{_format_percent(effect.ratio)} % ({_format_percent(low)}..{_format_percent(high)})"


def _describe_outcome(case: CaseBlame) -> str:
    if case.outcome is BlameOutcome.UNCHANGED:
        return f"no change of {_format_limit(case.limit)} or more"
    if not case.suspects:
        return "undecided whether it changed; raise --pairs-max, or --threshold"
    return (
        f"{case.outcome.value}; a component counts from {_format_limit(case.limit)}; {case.measurements} comparisons, "
        f"{case.pairs} pairs"
    )


def _make_row(group: JudgedGroup, versions: Versions) -> tuple[str, ...]:
    one = group.names[0] if len(group.names) == 1 else ""
    name = one or f"{len(group.names)} others: {_list_names(group.names)}"
    if not one and group.conclusion is not Conclusion.INNOCENT:
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
    low, high = _format_percent(ratios[0]), _format_percent(ratios[-1])
    size = f"{low} %" if low == high else f"{low} % to {high} %"
    return f"{' '.join(filter(None, (name, versions.get(name, ''))))}: {size} in {_count(len(groups))}"


def _count(cases: int) -> str:
    return f"{cases} case{'s' * (cases != 1)}"


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join([*names[:NAMES_SHOWN], *([f"and {more} more"] if more > 0 else ())])


def _format_percent(ratio: float) -> str:
    text = f"{100 * (ratio - 1):+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _format_limit(limit: float) -> str:
    return f"{100 * math.expm1(limit):.2g} %"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

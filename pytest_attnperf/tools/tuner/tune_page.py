"""Sections of a page about a tuning run: its candidates, what each value of a setting costs, the verdict's pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.html.dots import DotKind, DotRow, make_dots, place_ends, place_ratio, thin_evenly
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.text_width import both_ends
from pytest_attnperf.stats.quantiles import upper_quantile
from pytest_attnperf.tools.tuner.tuned_files import changes_table, decode_tune_result, find_shared_values, header_lines
from pytest_attnperf.tuning_records import TUNE_SCHEMA, Candidate, StaticFigures, TuneResult, WorkloadChange

SCHEMA = TUNE_SCHEMA
"""Of the files that `read_sections` reads."""

DRAWN = 20
"""Most candidates, values or workloads of a chart."""

SETTINGS = 12
"""Most settings with a chart of their own."""

STRIP = 60
LISTED = 2_000
FAR = 3.0
"""Times as long as the default, beyond which an axis is logarithmic."""

WINNER, DEFAULT, OTHER, SPILLS = "winner", "default", "", "spills"
KINDS = {WINNER: DotKind(2, 3), DEFAULT: DotKind(1, 1), OTHER: DotKind(0, 0), SPILLS: DotKind(4, 2)}
VERDICTS = {"FASTER": DotKind(2, 5), "SAME": DotKind(6, 0), "SLOWER": DotKind(1, 2), "FAILED": DotKind(6, 4)}


@dataclass(frozen=True)
class _Timed:
    """A candidate's time over the default's (1: equal), its 95 % interval and the ratio of each process."""

    candidate: Candidate
    cost: float
    interval: tuple[float, float] | None
    ratios: tuple[float, ...]


def read_sections(data: bytes, where: str, prefix: str) -> list[Section]:
    """Returns the sections of a finished run's tune.json. Raises UsageError naming `where` for any other file."""
    return build_sections(decode_tune_result(data, where), prefix)


def build_sections(result: TuneResult, prefix: str = "tune") -> list[Section]:
    """Returns the sections of a tuning run: candidates, settings and pairs; of a static run its ranking.

    prefix   begins the sections' names, which must be unique in a page
    """
    name = one_line(f"{result.backend}, {result.kernel}", 80)
    timed = _list_timed(result)
    figures = [_draw_candidates(result, timed)] if timed else []
    figures += [_draw_static(result)] if not timed and result.ranking else []
    tables = [_list_candidates(result, timed)] if result.ranking else []
    lead = tuple(header_lines(result))
    found = [Section(prefix, f"Candidates of {name}", lead, tuple(figures), tuple(tables), "candidates", folded=True)]
    if settings := _list_settings(timed):
        drawn = tuple(_draw_setting(setting, timed) for setting in settings[:SETTINGS])
        said = ["A dot is the best candidate that has the value; faint dots are the others that have it."]
        more = f"Not drawn: {', '.join(one_line(each, 40) for each in settings[SETTINGS:])}."
        said += [more] if len(settings) > SETTINGS else []
        table = (_list_values(settings, timed),)
        found.append(
            Section(f"{prefix}-settings", "What each setting costs", tuple(said), drawn, table, "settings", folded=True)
        )
    if result.changes:
        found.append(_show_changes(result.changes, prefix))
    return found


def _list_timed(result: TuneResult) -> list[_Timed]:
    """Returns the ranked candidates that have a cost, best first."""
    by_place: dict[tuple[str, int], float] = {
        (trial.workload, trial.process): trial.median_us
        for trial in result.trials
        if trial.candidate.id == result.default.id and trial.median_us is not None and _is_time(trial.median_us)
    }
    logs: dict[str, dict[int, list[float]]] = {}
    for trial in result.trials:
        base = by_place.get((trial.workload, trial.process))
        if base is not None and trial.median_us is not None and _is_time(trial.median_us):
            of_process = logs.setdefault(trial.candidate.id, {}).setdefault(trial.process, [])
            of_process.append(math.log(trial.median_us / base))
    found = []
    for candidate, cost in result.ranking:
        if cost is None or not _is_time(cost):
            continue
        means = [statistics.fmean(values) for values in logs.get(candidate.id, {}).values()]
        own = () if candidate.id == result.default.id else tuple(math.exp(mean) for mean in means)
        found.append(_Timed(candidate, cost, None if not own else _compute_interval(means), own))
    return sorted(found, key=lambda one: one.cost)


def _is_time(us: float) -> bool:
    return math.isfinite(us) and us > 0


def _compute_interval(logs: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of the ratio over processes (log ratios); None for fewer than two."""
    if len(logs) < 2:
        return None
    half = upper_quantile(0.025, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    centre = statistics.fmean(logs)
    return math.exp(centre - half), math.exp(centre + half)


def _name_axis(*, is_log: bool) -> str:
    return "time / time of the default" if is_log else "time against the default (%)"


def _name_candidate(candidate: Candidate, shared: Sequence[str]) -> str:
    own = " ".join(f"{name}={candidate.values[name]}" for name in sorted(candidate.values) if name not in shared)
    return ": ".join(filter(None, (candidate.label, own))) or candidate.id


def _find_kind(candidate: Candidate, result: TuneResult) -> str:
    if result.winner is not None and candidate.id == result.winner.id:
        return WINNER
    return DEFAULT if candidate.id == result.default.id else OTHER


def _draw_candidates(result: TuneResult, timed: Sequence[_Timed]) -> Figure:
    shared = find_shared_values([one.candidate for one in timed])
    drawn = list(timed[:DRAWN])
    drawn += [one for one in timed[DRAWN:] if one.candidate.id == result.default.id]
    is_log = max(one.cost for one in drawn) > FAR
    rows = [_make_candidate(one, result, list(shared), is_log=is_log) for one in drawn]
    said = "Best first. The diamond is the winner, the square the default. Faint dots are single processes, a thick "
    said += "line is the 95 % interval over them."
    if shared:
        said += f" All have {one_line(_name_candidate(Candidate(shared), ()), 200)}."
    if len(timed) > len(drawn):
        said += f" Not drawn: {len(timed) - len(drawn)} slower candidates; the table has them."
    title = "Candidates against the default"
    axis, origin = _name_axis(is_log=is_log), place_ratio(1.0, is_log=is_log)
    return make_dots(title, axis, rows, kinds=KINDS, origin=origin, is_log=is_log, caption=said)


def _make_candidate(one: _Timed, result: TuneResult, shared: Sequence[str], *, is_log: bool) -> DotRow:
    kind = _find_kind(one.candidate, result)
    return DotRow(
        name=_name_candidate(one.candidate, shared),
        at=place_ratio(one.cost, is_log=is_log),
        text=" ".join(filter(None, (kind, format_change(one.cost)))),
        interval=place_ends(one.interval, is_log=is_log),
        kind=kind,
        strip=tuple(place_ratio(ratio, is_log=is_log) for ratio in thin_evenly(sorted(one.ratios), STRIP)),
        told={
            "time against the default": format_change(one.cost),
            "95 % interval": _format_ends(one.interval),
            "processes": str(len(one.ratios)) if one.ratios else "",
            **_describe_static(result.static.get(one.candidate.id)),
        },
    )


def _format_ends(ends: tuple[float, float] | None) -> str:
    return ABSENT if ends is None else " .. ".join(map(format_change, ends))


def _describe_static(figures: StaticFigures | None) -> dict[str, str]:
    """Returns heading -> text of a candidate's code objects; empty where they are not known."""
    if figures is None:
        return {}
    told = {
        "registers": str(figures.registers),
        "spills": "" if figures.spills is None else str(figures.spills),
        "scratch": f"{figures.scratch_bytes} B" if figures.scratch_bytes else "",
        "LDS": f"{figures.lds_bytes} B",
        "waves/SIMD": "" if figures.occupancy is None else f"{figures.occupancy:g}",
    }
    shares = (("estimated share of peak", figures.peak_share), ("executed share of peak", figures.executed_share))
    return told | {heading: f"{100 * share:.1f} %" for heading, share in shares if share is not None}


def _list_settings(timed: Sequence[_Timed]) -> list[str]:
    """Returns the settings of which candidates have several values, the one whose values differ most in cost first."""
    names = dict.fromkeys(name for one in timed for name in one.candidate.values)
    spreads = {}
    for name in names:
        best = [costs[0] for costs in _group_costs(name, timed).values()]
        if len(best) > 1:
            spreads[name] = max(best) / min(best)
    return sorted(spreads, key=lambda name: (-spreads[name], name))


def _group_costs(setting: str, timed: Sequence[_Timed]) -> dict[str, list[float]]:
    """Returns value of a setting -> costs of the candidates that have it, sorted; values in their own order."""
    found: dict[tuple[bool, float, str], list[float]] = {}
    for one in timed:
        if setting in one.candidate.values:
            value = one.candidate.values[setting]
            number = float(value) if isinstance(value, (int, bool)) else 0.0
            found.setdefault((isinstance(value, str), number, str(value)), []).append(one.cost)
    return {key[2]: sorted(found[key]) for key in sorted(found)}


def _draw_setting(setting: str, timed: Sequence[_Timed]) -> Figure:
    costs = _group_costs(setting, timed)
    shown = dict(list(costs.items())[:DRAWN])
    is_log = max(values[-1] for values in shown.values()) > FAR
    best = min(shown, key=lambda value: shown[value][0])
    rows = [
        DotRow(
            name=f"{setting}={value}",
            at=place_ratio(values[0], is_log=is_log),
            text=format_change(values[0]),
            kind=WINNER if value == best else OTHER,
            strip=tuple(place_ratio(ratio, is_log=is_log) for ratio in thin_evenly(values[1:], STRIP)),
            told={
                "best": format_change(values[0]),
                "median": format_change(statistics.median(values)),
                "candidates": str(len(values)),
            },
        )
        for value, values in shown.items()
    ]
    said = f"Not drawn: {len(costs) - len(shown)} values." if len(costs) > len(shown) else ""
    axis = _name_axis(is_log=is_log)
    origin = place_ratio(1.0, is_log=is_log)
    return make_dots(one_line(setting, 60), axis, rows, kinds=KINDS, origin=origin, is_log=is_log, caption=said)


def _draw_static(result: TuneResult) -> Figure:
    """Returns the ranking of a static run: the share of the matrix units' peak, or registers where it is not known."""
    ranked = [candidate for candidate, _ in result.ranking]
    shared = find_shared_values(ranked)
    known = any(figures.peak_share is not None for figures in result.static.values())
    rows = [
        _make_static(number, candidate, result, list(shared), known=known)
        for number, candidate in enumerate(ranked[:DRAWN], 1)
    ]
    said = "In the order of the ranking. The diamond is the first, the square the default; triangles spill registers."
    said += (
        " The share is estimated (+-30 %) from the cycles of the key loop, or of code that was executed."
        if known
        else ""
    )
    said += f" Not drawn: {len(ranked) - DRAWN}; the table has them." if len(ranked) > DRAWN else ""
    axis = "share of the matrix units' peak (%)" if known else "registers of a lane or thread"
    return make_dots("Ranking by code objects, nothing timed", axis, rows, kinds=KINDS, caption=said)


def _make_static(
    number: int, candidate: Candidate, result: TuneResult, shared: Sequence[str], *, known: bool
) -> DotRow:
    figures = result.static.get(candidate.id)
    at, spilled = None, ""
    if figures is not None:
        share = figures.peak_share if figures.executed_share is None else figures.executed_share
        at = (None if share is None else 100 * share) if known else float(figures.registers)
        spilled = "spills" if figures.spills else "scratch" if figures.scratch_bytes else ""
    kind = _find_kind(candidate, result)
    value = ABSENT if at is None else f"{at:.1f} %" if known else f"{at:.0f}"
    return DotRow(
        name=f"{number}. {_name_candidate(candidate, shared)}",
        at=at,
        text=", ".join(filter(None, (value, spilled))),
        kind=kind if kind != OTHER else SPILLS if spilled else OTHER,
        told={"place": str(number), "role": {WINNER: "first"}.get(kind, kind), **_describe_static(figures)},
    )


def _list_candidates(result: TuneResult, timed: Sequence[_Timed]) -> PageTable:
    """Returns the whole ranking, with costs and the figures of code objects."""
    known = {one.candidate.id: one for one in timed}
    figures = [_describe_static(result.static.get(candidate.id)) for candidate, _ in result.ranking[:LISTED]]
    headings = list(dict.fromkeys(heading for told in figures for heading in told))
    names = ("against default", "95 %", "processes")
    heads = (
        TableHead("candidate"), TableHead("role"), *(TableHead(name, True) for name in (*names, *headings))
    )  # fmt: skip
    rows = []
    for (candidate, cost), told in zip(result.ranking[:LISTED], figures, strict=True):
        one = known.get(candidate.id)
        rows.append(
            (
                both_ends(candidate.id),
                _find_kind(candidate, result),
                ABSENT if cost is None else format_change(cost),
                ABSENT if one is None else _format_ends(one.interval),
                str(len(one.ratios)) if one is not None and one.ratios else ABSENT,
                *(told.get(heading, "") or ABSENT for heading in headings),
            )
        )
    more = f", the first {LISTED} of {len(result.ranking)}" if len(result.ranking) > LISTED else ""
    return PageTable(f"All ranked candidates{more}", heads, tuple(rows))


def _list_values(settings: Sequence[str], timed: Sequence[_Timed]) -> PageTable:
    rows = tuple(
        (
            one_line(f"{setting}={value}", 80),
            format_change(costs[0]),
            format_change(statistics.median(costs)),
            str(len(costs)),
        )
        for setting in settings
        for value, costs in _group_costs(setting, timed).items()
    )
    heads = (TableHead("value"), *(TableHead(name, True) for name in ("best", "median", "candidates")))
    return PageTable("What each value costs against the default", heads, rows[:LISTED])


def _show_changes(changes: Sequence[WorkloadChange], prefix: str) -> Section:
    """Returns the section of the winner against the default on each workload, worst first, with single pairs."""
    ordered = sorted(changes, key=lambda change: -(change.ratio if change.ratio is not None else math.inf))
    ends = [end for change in ordered for end in (change.ratio, *(change.interval95 or ())) if end is not None]
    is_log = bool(ends) and max(ends) > FAR
    rows = [_make_change(change, is_log=is_log) for change in ordered[:DRAWN]]
    said = "The worst decides. Faint dots are single pairs of processes, a thick line is the interval over them."
    said += f" Not drawn: {len(ordered) - DRAWN}." if len(ordered) > DRAWN else ""
    axis, origin = _name_axis(is_log=is_log), place_ratio(1.0, is_log=is_log)
    title = "Winner against default, in fresh pairs"
    figure = make_dots(title, axis, rows, kinds=VERDICTS, origin=origin, is_log=is_log, caption=said)
    table = changes_table(changes)
    listed = convert_table(table, "Winner against default by workload")
    return Section(f"{prefix}-pairs", "The verdict's pairs", table.notes, (figure,), (listed,), "pairs", folded=True)


def _make_change(change: WorkloadChange, *, is_log: bool) -> DotRow:
    known = change.ratio is not None and math.isfinite(change.ratio)
    return DotRow(
        name=change.workload,
        at=place_ratio(change.ratio, is_log=is_log) if known and change.ratio is not None else None,
        text=format_change(change.ratio) if known else one_line(change.verdict, 20),
        interval=place_ends(change.interval95, is_log=is_log),
        kind=change.verdict if change.verdict in VERDICTS else "FAILED",
        strip=tuple(place_ratio(pair.ratio, is_log=is_log) for pair in change.pairs[:STRIP]),
        told={
            "change": format_change(change.ratio),
            "95 % interval": _format_ends(change.interval95),
            "verdict": one_line(change.verdict, 40),
            "pairs": str(len(change.pairs)),
            "tuned": "yes" if change.tuned else "no, served by the same rule",
            "note": one_line(change.note, 200),
        },
    )

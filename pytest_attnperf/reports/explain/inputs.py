"""Lists every input of a decision as (name, value) rows: policy, stored times, looks, noise and limits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.records.costs import format_costs
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.records.time_units import choose_time_unit, format_time
from pytest_attnperf.reports.explain.facts import Told
from pytest_attnperf.reports.run.error_shares import compute_excess
from pytest_attnperf.reports.text.figures import format_change, format_interval, format_share, one_line
from pytest_attnperf.results import CaseResult

Row = tuple[str, str]

SHOWN = 20
TEXT_LIMIT = 400


def list_input_rows(told: Told) -> list[Row]:
    """Returns (name, value) rows of all that the case's decision used, without rows whose figures are unknown."""
    case = told.case
    rows = [*_list_proof_rows(case), *_list_policy_rows(told), *_list_stored_rows(case)]
    rows += _list_look_rows("first look", case.first, case) + _list_look_rows("second look", case.second, case)
    rows += _list_look_rows("stored choice", case.pinned, case)
    rows += [
        *_list_pair_rows(case),
        *_list_cost_rows(case),
        *_list_result_rows(told),
        *_list_noise_rows(told),
        *_list_machine_rows(case),
    ]
    if case.seconds:
        rows.append(("took", f"{case.seconds:.1f} s of the run, proving included"))
    return rows


def _list_proof_rows(case: CaseResult) -> list[Row]:
    """Returns one row: whether outputs were right, and how close errors are to budgets; [] if none was compared."""
    shares = [compute_excess(figures) for check in case.checks for figures in check.figures]
    problems = sum(len(check.problems) for check in case.checks)
    if not shares and not problems:
        return []
    worst = max(shares, default=0.0)
    size = "NaN or Inf" if math.isinf(worst) else f"at most {worst:.2g} of the budget"
    right = "right" if not problems else f"{problems} problem{'s' * (problems != 1)}"
    outputs = f"{len(shares)} compared output{'s' * (len(shares) != 1)}"
    return [("proof", f"{right} in {outputs}, {size}")]


def _list_policy_rows(told: Told) -> list[Row]:
    policy, case = told.case.policy, told.case
    parts = []
    for name, unit in (("threshold_percent", " %"), ("floor_us", " us"), ("creep_percent", " %")):
        value = policy.get(name)
        if isinstance(value, (int, float)):
            parts.append(f"{name.partition('_')[0]} {value:g}{unit}")
    rows = [("policy", ", ".join(parts))] if parts else []
    failing = policy.get("fail_on")
    if isinstance(failing, (list, tuple)):
        rows.append(("fails on", one_line(", ".join(map(str, failing)), TEXT_LIMIT) or "nothing"))
    rate = policy.get("suite_false_alarm_rate")
    if isinstance(rate, (int, float)) and told.facts.share is not None and case.threshold is not None:
        cases = told.facts.cases
        among = f"{100 * rate:g} % of runs, shared by {cases} case{'s' * (cases != 1)}"
        z = "" if told.facts.z is None else f", {told.facts.z:.2f} standard errors"
        rows.append(("false alarms", f"{among}: {100 * told.facts.share:.2g} % for this one{z}"))
    return rows


def _list_stored_rows(case: CaseResult) -> list[Row]:
    if not case.stored_us:
        return []
    where = "".join([
        f", recorded {one_line(case.stored_at, 40)}" if case.stored_at else "",
        f" from {one_line(case.stored_commit, 40)}" if case.stored_commit else "",
    ])  # fmt: skip
    return [
        ("stored", f"{_format_spread(case.stored_us)}{where}"),
        ("", _join_times(case.stored_us)),
    ]


def _list_look_rows(name: str, processes: Sequence[ProcessSummary], case: CaseResult) -> list[Row]:
    if not processes:
        return []
    medians = [process.median_us for process in processes]
    change = ""
    if case.stored_us and statistics.median(case.stored_us) > 0:
        change = f", {format_change(statistics.median(medians) / statistics.median(case.stored_us))} against stored"
    blocks = statistics.median(len(process.block_us) for process in processes)
    counts = (("block", blocks), ("call", processes[0].calls_per_block), ("place", processes[0].placements))
    each = ", {} of {} at {}".format(*(f"{count:g} {word}{'s' * (count != 1)}" for word, count in counts))
    rows = [(name, f"{_format_spread(medians)}{change}")]
    if len(medians) > 1:
        rows.append(("", _join_times(medians)))
    return [*rows, ("", f"timer {one_line(processes[0].timer)}{each}")]


def _list_cost_rows(case: CaseResult) -> list[Row]:
    """Returns a row for each gated cost: its value in every process of the looks, and by how much it may grow."""
    processes = (*case.first, *(case.second or case.costly))
    return [
        (
            one_line(name, TEXT_LIMIT),
            f"{', '.join(format_costs(name, (process.costs[name] for process in processes if name in process.costs)))}"
            f"; may grow by {percent:g} %",
        )
        for name, percent in case.cost_limits.items()
    ]


def _list_pair_rows(case: CaseResult) -> list[Row]:
    if not case.pairs:
        return []
    ratios = [pair.ratio for pair in case.pairs]
    turns = sum(pair.seconds for pair in case.pairs)
    quads = statistics.median(pair.quads for pair in case.pairs)
    return [
        ("pairs", f"{len(ratios)} against {one_line(case.against)}, {quads:g} quads each, {turns:.1f} s of turns"),
        ("", _join_values((f"{100 * (ratio - 1):+.2f}" for ratio in ratios), "%")),
    ]


def _list_result_rows(told: Told) -> list[Row]:
    case, facts = told.case, told.facts
    rows = []
    if case.ratio is not None:
        interval = format_interval(case.interval)
        rows.append(
            (
                "change",
                f"{_format_precise_change(case.ratio)}{f' ({interval})' if interval else ''}, ratio {case.ratio:.4f}",
            )
        )
    if facts.tolerated is not None and case.ratio is not None:
        rows.append(
            ("allowed", f"up to {_format_precise_change(facts.tolerated)}: threshold, or floor over the stored time")
        )
    if case.threshold is not None:
        by = ""
        if facts.tolerated is not None:
            by = _name_limit_source(case, facts.tolerated)
        rows.append(("SLOWER", f"beyond {_format_precise_change(case.threshold)}{by}"))
    if case.threshold is not None:
        limit = case.detection_limit
        found = "no slowdown of any size" if limit is None else f"a slowdown of {_format_percent(limit)}"
        rows.append(("detects", f"{found}, 99 times in 100"))
    return rows


def _name_limit_source(case: CaseResult, tolerated: float) -> str:
    """Returns the end of the row on the limit for SLOWER: ': noise sets it', or that the allowed change sets it."""
    assert case.threshold is not None
    widened = tolerated if case.interval is None or not case.ratio else tolerated * case.ratio / case.interval[0]
    if case.threshold > widened * (1 + 1e-3):
        return ": noise sets it"
    return ": its whole interval then exceeds the allowed change"


def _list_noise_rows(told: Told) -> list[Row]:
    case, facts = told.case, told.facts
    rows = []
    if case.standard_error is not None:
        known = f", {case.degrees_of_freedom} degrees of freedom" if case.degrees_of_freedom is not None else ""
        rows.append(("standard error", f"{_format_percent(case.standard_error)} of the change{known}"))
    if facts.relative_sd is not None:
        rows.append(("noise", f"{_format_percent(facts.relative_sd)} per {'pair' if case.pairs else 'process'}"))
    rows += [
        ("", one_line(reason, TEXT_LIMIT)) for reason in filter_notes(case.reasons, NoteKind.NOISE, NoteKind.CARDS)
    ]
    if facts.stored is not None and facts.stored.noise:
        rows.append(("", one_line(facts.stored.noise, TEXT_LIMIT)))
    return rows


def _list_machine_rows(case: CaseResult) -> list[Row]:
    """Returns rows on the canaries (fixed kernels), the clocks and the floor (least possible time); only known ones."""
    rows = []
    for name, processes in sorted(case.canary.items()):
        if processes:
            rows.append((f"canary {one_line(name, 20)}", _format_spread([process.median_us for process in processes])))
    said = filter_notes(case.reasons, NoteKind.CANARY, NoteKind.CYCLES)
    rows += [("", one_line(text, TEXT_LIMIT)) for text in said]
    looks = (("first look", case.first), ("second look", case.second))
    clocks = [(name, [p.clock_mhz for p in processes if p.clock_mhz is not None]) for name, processes in looks]
    known = [f"{statistics.median(mhz):.0f} MHz in the {name}" for name, mhz in clocks if mhz]
    base, new = ([mhz for mhz in side if mhz is not None] for side in _pair_clocks(case))
    if base and new:
        known.append(f"{statistics.median(base):.0f} MHz base and {statistics.median(new):.0f} MHz new in the pairs")
    rows += [("clock", ", ".join(known))] if known else []
    rows += [("throttled", text) for text in filter(None, [_describe_throttling((*case.first, *case.second))])]
    if case.floor_us is not None and case.median_us:
        share = format_share(case.floor_us / case.median_us)
        rows.append(
            ("floor", f"{format_time(case.floor_us)} by {one_line(case.floor_bound)}: {share} of it is reached")
        )
    return rows


def _describe_throttling(processes: Sequence[ProcessSummary]) -> str:
    """Returns in how many processes the device was throttled during their blocks, and the longest time by reason; ''
    where no process knows."""
    known = [process.throttled_s for process in processes if process.throttled_s is not None]
    if not known:
        return ""
    longest: dict[str, float] = {}
    for each in known:
        for reason, seconds in each.items():
            longest[reason] = max(seconds, longest.get(reason, 0.0))
    count = f"{sum(map(bool, known))} of {len(known)} processes"
    said = ", ".join(f"{one_line(reason, 40)} {format_time(1e6 * s)}" for reason, s in sorted(longest.items()))
    return f"{count} during their blocks{f', at most {said}' if said else ''}"


def _pair_clocks(case: CaseResult) -> tuple[list[float | None], list[float | None]]:
    return [pair.base_clock_mhz for pair in case.pairs], [pair.new_clock_mhz for pair in case.pairs]


def _format_spread(values: Sequence[float]) -> str:
    """Returns 'N processes, median 24.6 us, sd 0.31 %' of times in microseconds; no sd for a single one."""
    count, centre = len(values), statistics.median(values)
    text = f"{count} process{'es' * (count != 1)}, median {format_time(centre)}"
    mean = statistics.fmean(values)
    return f"{text}, sd {_format_percent(statistics.stdev(values) / mean)}" if count > 1 and mean > 0 else text


def _join_times(times_us: Sequence[float]) -> str:
    unit = choose_time_unit(times_us)
    return _join_values(map(unit.format_number, times_us), unit.name)


def _join_values(values: Iterable[str], unit: str) -> str:
    shown = list(values)
    more = f" ... and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"{' '.join(shown[:SHOWN])}{more} {unit}".rstrip()


def _format_percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def _format_precise_change(ratio: float) -> str:
    """Returns a ratio new / old as a signed percentage with two decimals ('+0.25 %'), because pairs resolve them."""
    return f"{100 * (ratio - 1):+.2f} %"

"""`attnperf compare`: two results case by case, or the GPUs that measured one or several results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import add_page, asks_page, choose_ink, count_columns, write_page
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.compared import ComparedRow, GroupRow, TwoTimersRow
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.results import RunResult
    from pytest_attnperf.session.card_spread import CardSpreads
    from pytest_attnperf.session.side_by_side import ComparedCase, SideBySide, Sided

GROUP = "every day"
ORDER = 60
SUMMARY = "compare two results, or the GPUs of a run: which card is slow"
DESCRIPTION = "Compares two results case by case; or the GPUs that measured, to find a slow card."

WIDTH = 80
"""Columns if no terminal tells its width."""

WIDTH_LEAST = 40
UNWRAPPED = 100_000
"""Columns in which no sentence is broken: a page breaks lines itself."""

NO_GATE = "a comparison, not a gate: the two may differ in day, card and machine state"

EPILOG = """RESULTS are files that pytest --attnperf wrote, stored baselines, or folders of these. The second is
compared with the first: a change of +3 % is 3 % more time. A case looks slower if the change exceeds both the first
one's policy and the noise of that many processes; this does not prove it. --by gpu joins any number of files, product
by product; a card is slow if it is at least 1 % slower than the others, beyond chance.

examples:
  attnperf compare yesterday.json today.json
  attnperf compare baselines/sm_90/h200 .attnperf/results.json --by backend
  attnperf compare old.json new.json --fail-above 3 --json
  attnperf compare old.json new.json --open
  attnperf compare --by gpu .attnperf/results.json
  attnperf compare --by gpu node1.json node2.json

exit status: 0 printed, 1 with --fail-above: a case is slower than that or wrong on the second side, or nothing could
be compared, 2 the command or a file is invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf compare` to its parser."""
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS", help="two; any number with --by gpu")
    parser.add_argument(
        "--by",
        choices=("case", "gpu", "backend", "suite"),
        default="case",
        help="what each line compares (default: case)",
    )
    parser.add_argument(
        "--sort", choices=("worst", "best", "name", "time"), default="worst", help="order of lines (default: worst)"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="show at most N lines (default: all)")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT", help="exit with 1 if a case is slower than that")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_page(parser)
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="when to use colours")


def run(options: argparse.Namespace) -> int:
    """Prints the comparison as text or JSON. Returns 1 if a case exceeds --fail-above, else 0. Raises UsageError for
    invalid options, ResultsFileError and BaselineError for an invalid file."""
    _refuse_contradictions(options)
    if options.by == "gpu":
        return _compare_cards(options)
    from pytest_attnperf.plugin.report_inputs import read_runs
    from pytest_attnperf.reports.text.figures import printable_json
    from pytest_attnperf.session.side_by_side import compare_sides

    first, second = (read_runs([path]) for path in options.results)
    found = compare_sides(_make_sided_cases(first), _make_sided_cases(second))
    _write_comparison(found, (first, second), options)
    if options.json:
        sys.stdout.write(f"{printable_json(json.dumps(_build_values(found), indent=1))}\n")
    else:
        tables = [*_list_lines(found, options), *_list_two_timers(found, options)]
        _print_lines([*tables, *_list_notes(found, (first, second))])
    return _choose_status(found, options.fail_above)


def _refuse_contradictions(options: argparse.Namespace) -> None:
    """Raises UsageError for a wrong number of files, options that exclude each other, and invalid numbers."""
    count = len(options.results)
    if options.by != "gpu" and count != 2:
        raise UsageError(f"compare takes two results, got {count}; --by gpu takes one or more")
    if options.by == "gpu" and options.fail_above is not None:
        raise UsageError("--fail-above is for two results; drop it with --by gpu, where nothing fails")
    if options.limit < 0:
        raise UsageError(f"--limit is {options.limit}, must be 0 or more; 0 shows all")
    if options.fail_above is not None and not 0 <= options.fail_above < float("inf"):
        raise UsageError(f"--fail-above is {options.fail_above}, must be a percentage of 0 or more")


def _make_sided_cases(joined: Joined) -> list[Sided]:
    from pytest_attnperf.session.side_by_side import Sided

    return [Sided(shown.device, shown.case, shown.case.fingerprint or shown.run.fingerprint) for shown in joined.cases]


def _choose_status(found: SideBySide, percent: float | None) -> int:
    if percent is None:
        return 0
    return 1 if found.wrong or not found.cases or any(case.ratio > 1 + percent / 100 for case in found.cases) else 0


def _list_lines(found: SideBySide, options: argparse.Namespace) -> list[str]:
    """Returns the table of cases, or groups with --by, cut to --limit, and the number left out; [] without cases."""
    from pytest_attnperf.reports.run.compared import case_table, group_table

    width, ink = count_columns(WIDTH, WIDTH_LEAST), choose_ink(options.color)
    if options.by != "case":
        groups = _sort_groups(found.cases, options.by, options.sort)
        shown = groups[: options.limit or None]
        table = group_table(shown, options.by, width=width, ink=ink)
        return [table, *_format_left_out(len(groups) - len(shown), f"{options.by}s")] if table else []
    cases = _sort_cases(found.cases, options.sort)
    rows = _make_rows(cases[: options.limit or None])
    table = case_table(rows, width=width, ink=ink)
    return [table, *_format_left_out(len(cases) - len(rows), "cases")] if table else []


def _make_rows(cases: Sequence[ComparedCase]) -> list[ComparedRow]:
    """Returns the rows of a table, named by device too if there are several."""
    from pytest_attnperf.reports.run.compared import ComparedRow

    several = len({case.device for case in cases}) > 1
    return [
        ComparedRow(
            f"{case.device}/{case.key}" if several else str(case.key),
            case.looks, case.base_us, case.new_us, case.ratio, case.interval95, case.limit,
        )
        for case in cases
    ]  # fmt: skip


def _write_comparison(found: SideBySide, sides: tuple[Joined, Joined], options: argparse.Namespace) -> None:
    """Writes the page of the comparison, if options ask for one."""
    if not asks_page(options):
        return
    from pytest_attnperf.reports.html.compared_page import build_sections
    from pytest_attnperf.reports.run.compared import list_reason_lines

    limit = options.limit or None
    cases = _make_rows(_sort_cases(found.cases, options.sort)[:limit])
    groups = [] if options.by == "case" else _sort_groups(found.cases, options.by, options.sort)[:limit]
    lead = [_describe_counts(found), *list_reason_lines(found.incomparable, UNWRAPPED), *_describe_sides(sides)]
    absent = {"Only in the first": found.only_base, "Only in the second": found.only_new}
    sections = build_sections(
        cases,
        groups,
        _make_timer_rows(found)[:limit],
        by=options.by,
        lead=lead,
        fail_above=options.fail_above,
        absent={heading: [str(key) for key in keys] for heading, keys in absent.items()},
    )
    write_page(options, "compare", "Two results compared", sections)


def _make_timer_rows(found: SideBySide) -> list[TwoTimersRow]:
    from pytest_attnperf.reports.run.compared import TwoTimersRow

    return [TwoTimersRow(str(case.key), case.timers, *case.times_us) for case in found.two_timers]


def _list_two_timers(found: SideBySide, options: argparse.Namespace) -> list[str]:
    """Returns a table for each pair of timers by which the sides timed a case differently; [] for none."""
    from pytest_attnperf.reports.run.compared import timer_table

    width, ink = count_columns(WIDTH, WIDTH_LEAST), choose_ink(options.color)
    rows = _make_timer_rows(found)
    lines: list[str] = []
    for timers in dict.fromkeys(row.timers for row in rows):
        shown = [row for row in rows if row.timers == timers]
        lines += ["", timer_table(shown[: options.limit or None], width=width, ink=ink)]
        lines += _format_left_out(len(shown) - len(shown[: options.limit or None]), "cases")
    return lines


def _format_left_out(count: int, what: str) -> list[str]:
    return [f"and {count} more {what}"] if count else []


def _sort_cases(cases: Sequence[ComparedCase], sort: str) -> list[ComparedCase]:
    if sort == "name":
        return sorted(cases, key=lambda case: str(case.key))
    if sort == "time":
        return sorted(cases, key=lambda case: -case.base_us)
    return sorted(cases, key=lambda case: case.ratio, reverse=sort == "worst")


def _sort_groups(cases: Sequence[ComparedCase], by: str, sort: str) -> list[GroupRow]:
    """Returns a row per backend or suite (`by`), sorted by `sort`: 'name', 'time' (sum of the first side's times),
    'worst' or 'best' change."""
    from pytest_attnperf.reports.run.compared import GroupRow
    from pytest_attnperf.session.side_by_side import mean_ratio

    groups: dict[str, list[ComparedCase]] = {}
    for case in cases:
        groups.setdefault(case.key.backend if by == "backend" else case.key.suite, []).append(case)
    times = {name: sum(case.base_us for case in held) for name, held in groups.items()}
    rows = [
        GroupRow(
            name,
            mean_ratio(held) or 1.0,
            len(held),
            slower=sum(case.looks == "slower" for case in held),
            faster=sum(case.looks == "faster" for case in held),
        )
        for name, held in groups.items()
    ]
    if sort == "name":
        return sorted(rows, key=lambda row: row.name)
    if sort == "time":
        return sorted(rows, key=lambda row: -times[row.name])
    return sorted(rows, key=lambda row: row.change, reverse=sort == "worst")


def _list_notes(found: SideBySide, sides: tuple[Joined, Joined]) -> list[str]:
    """Returns the lines below the table: counts, cases in one side only, where each side is from, 'this is no gate'."""
    from pytest_attnperf.reports.run.compared import list_case_lines, list_reason_lines
    from pytest_attnperf.reports.text.text_width import wrap_text

    width = count_columns(WIDTH, WIDTH_LEAST)
    lines = wrap_text(_describe_counts(found), width)
    lines += list_reason_lines(found.incomparable, width)
    lines += list_case_lines("only in the first", found.only_base, width)
    lines += list_case_lines("only in the second", found.only_new, width)
    return ["", *lines, *(line for text in _describe_sides(sides) for line in wrap_text(text, width))]


def _describe_counts(found: SideBySide) -> str:
    from pytest_attnperf.reports.text.figures import format_change
    from pytest_attnperf.session.side_by_side import LOOKS

    if not found.cases:
        return "no case could be compared"
    counts = [(sum(case.looks == looks for case in found.cases), looks) for looks in LOOKS]
    said = ", ".join(f"{count} {looks}" for count, looks in counts if count)
    changed = f"; geometric mean {format_change(found.geometric_mean)}"
    return f"{len(found.cases)} cases compared, these look: {said}{changed}"


def _describe_sides(sides: tuple[Joined, Joined]) -> list[str]:
    """Returns sentences: notes of the sides, where each is from, and that nothing was gated."""
    from pytest_attnperf.reports.text.figures import one_line

    notes = [one_line(note, 400) for side in sides for note in side.notes]
    named = zip(("first", "second"), sides, strict=True)
    return [*notes, *(f"{name}: {_describe_origin(side)}" for name, side in named), NO_GATE]


def _describe_origin(joined: Joined) -> str:
    from pytest_attnperf.reports.text.figures import one_line

    runs = [f"{source} ({run.started[:10]}, commit {run.commit[:12] or 'unknown'})"
            for source, run in zip(joined.sources, joined.runs, strict=True)]  # fmt: skip
    return one_line(", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else ""), 600)


def _build_values(found: SideBySide) -> dict[str, object]:
    return {
        "cases": [
            {
                "case": str(case.key), "device": case.device, "first_us": case.base_us, "second_us": case.new_us,
                "ratio": case.ratio, "interval95": case.interval95, "limit": case.limit, "looks": case.looks,
                "processes": case.processes,
            }
            for case in found.cases
        ],
        "geometric_mean": found.geometric_mean,
        "incomparable": [{"case": str(key), "why": why} for key, why in found.incomparable],
        "two_timers": [
            {
                "case": str(case.key), "first_timer": case.timers[0], "second_timer": case.timers[1],
                "first_us": case.times_us[0], "second_us": case.times_us[1],
            }
            for case in found.two_timers
        ],
        "only_first": [str(key) for key in found.only_base],
        "only_second": [str(key) for key in found.only_new],
    }  # fmt: skip


def _compare_cards(options: argparse.Namespace) -> int:
    """Prints how much slower or faster each GPU in the files is than others of its product, or JSON. Returns 0."""
    from pytest_attnperf.plugin.report_inputs import read_runs
    from pytest_attnperf.reports.run.compared import card_table
    from pytest_attnperf.reports.run.overview import format_device
    from pytest_attnperf.reports.text.figures import printable_json
    from pytest_attnperf.reports.text.text_width import wrap_text
    from pytest_attnperf.session.card_spread import card_spreads

    joined = read_runs(options.results)
    by_device: dict[str, list[RunResult]] = {}
    for one in joined.runs:
        if one.cases:
            by_device.setdefault(format_device(one) or "unknown device", []).append(one)
    found = {device: card_spreads(runs) for device, runs in by_device.items()}
    _write_cards(by_device, found, options)
    if options.json:
        values = {device: _card_values(spreads) for device, spreads in found.items()}
        sys.stdout.write(f"{printable_json(json.dumps(values, indent=1))}\n")
        return 0
    width = count_columns(WIDTH, WIDTH_LEAST)
    tables = [(device, spreads.cards[: options.limit or None]) for device, spreads in found.items()]
    lines = (
        [card_table(tables, width=width, ink=choose_ink(options.color))] if any(cards for _, cards in tables) else []
    )
    lines += [""] * bool(lines)
    said = _describe_cards(by_device, found)
    lines += [line for text in said for line in wrap_text(text, width)]
    _print_lines(lines or ["no case was measured"])
    return 0


def _describe_cards(by_device: Mapping[str, Sequence[RunResult]], found: Mapping[str, CardSpreads]) -> list[str]:
    """Returns sentences below the tables: which cards are slow, what the figures mean, and how many commits ran."""
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.session.card_spread import describe_slow_card, render_legend

    lines: list[str] = []
    for device, spreads in found.items():
        said = [describe_slow_card(card, spreads.by) for card in spreads.cards if card.slow]
        said += render_legend(spreads)
        commits = {one.commit for one in by_device[device]}
        said += [f"of {len(commits)} commits: what differs between cards may be the code"] if len(commits) > 1 else []
        lines += [one_line(f"{device}: {text}" if len(found) > 1 else text, 600) for text in said]
    return lines


def _write_cards(
    by_device: Mapping[str, Sequence[RunResult]], found: Mapping[str, CardSpreads], options: argparse.Namespace
) -> None:
    """Writes the page of the cards, if options ask for one."""
    if not asks_page(options):
        return
    from pytest_attnperf.reports.html.compared_page import build_card_sections
    from pytest_attnperf.session.card_spread import SHARED, offsets_by_case

    shown = [(device, spreads.cards[: options.limit or None]) for device, spreads in found.items()]
    cases = {device: offsets_by_case(by_device[device]) for device, spreads in found.items() if spreads.by == SHARED}
    lead = _describe_cards(by_device, found) or ["no case was measured"]
    write_page(options, "cards", "Cards compared", build_card_sections(shown, cases, lead))


def _card_values(spreads: object) -> object:
    from dataclasses import asdict, is_dataclass

    assert is_dataclass(spreads)
    assert not isinstance(spreads, type)
    return asdict(spreads)


def _print_lines(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines).strip("\n") + "\n")

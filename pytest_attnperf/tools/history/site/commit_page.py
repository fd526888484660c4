"""The page of a commit: which cases changed there, which were measured, and in which environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.records.time_units import format_times
from pytest_attnperf.reports.html.embedding import Json, round_figure, script_json
from pytest_attnperf.reports.text.figures import format_change, one_line
from pytest_attnperf.tools.history.bulk_reading import StoredRun
from pytest_attnperf.tools.history.site.case_summary import CaseSummary
from pytest_attnperf.tools.history.site.commits import SiteCommit, format_minute
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange
from pytest_attnperf.tools.history.site.site_templates import load_site_template
from pytest_attnperf.tools.history.site.trend_chart import choose_ticks

NAME_LIMIT = 300
TEXT_LIMIT = 400
CHANGES_SHOWN = 100
SUSPECTS_SHOWN = 5
VALUE_LIMIT = 200


@dataclass
class CommitTimesOfCases:
    """The runs of all cases at one commit, a place in each list per run; as `CommitTimes`, but the other way round."""

    cases: list[int] = field(default_factory=list)
    us: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DeviceFacts:
    """Facts of the environment of most cases on a device at a commit: (name, value, value at the commit before that
    measured on it; '' if equal). `others` is the number of further environments there."""

    device: str
    facts: tuple[tuple[str, str, str], ...]
    others: int = 0


@dataclass(frozen=True)
class ChangeDot:
    """A change as a row with a dot: places of its interval and ratio in percent of the row's width."""

    summary: CaseSummary
    name: str
    change: str
    is_slower: bool
    interval: str
    times: str
    low: float
    at: float
    high: float


def render_commit_page(
    commit: SiteCommit,
    neighbours: tuple[SiteCommit | None, SiteCommit | None],
    changes: Sequence[LastingChange],
    times: CommitTimesOfCases,
    environments: Sequence[DeviceFacts],
    cases: Sequence[CaseSummary],
) -> str:
    """Returns the page of a commit; `neighbours` are the commits before and after it in time."""
    sorted_changes = sorted(changes, key=lambda change: (-change.ratio, change.case))
    shown = sorted_changes
    if len(shown) > CHANGES_SHOWN:
        largest = sorted(sorted_changes, key=lambda change: -max(change.ratio, 1 / change.ratio))[:CHANGES_SHOWN]
        shown = [change for change in sorted_changes if change in largest]
    dots, ticks = place_dots(shown, cases)
    page = load_site_template("commit_page.html").render(
        commit=commit,
        full=one_line(commit.commit, NAME_LIMIT),
        before=neighbours[0],
        after=neighbours[1],
        runs=[describe_run(run) for run in commit.runs],
        dots=dots,
        suspects=list(dict.fromkeys(one_line(change.suspect, TEXT_LIMIT) for change in shown))[:SUSPECTS_SHOWN],
        ticks=ticks,
        slower=sum(change.ratio > 1 for change in changes),
        faster=sum(change.ratio <= 1 for change in changes),
        left_out=len(changes) - len(shown),
        environments=environments,
        measured=len(set(times.cases)),
        data=script_json(collect_commit_data(times)),
        root="../",
    )
    return str(page)


def place_dots(
    changes: Sequence[LastingChange], cases: Sequence[CaseSummary]
) -> tuple[list[ChangeDot], list[tuple[float, str]]]:
    """Returns the rows of changes, and (place in percent, text) of the ticks over them, 0 % among them."""
    if not changes:
        return [], []
    percents = [100 * (ratio - 1) for change in changes for ratio in (change.low, change.high)]
    low, high = min(0.0, *percents), max(0.0, *percents)
    room = 0.06 * (high - low) or 1.0
    low, high = low - room, high + room

    def place(ratio: float) -> float:
        return round(100 * (100 * (ratio - 1) - low) / (high - low), 2)

    ticks = choose_ticks(low, high, 4)
    return [
        ChangeDot(
            summary=cases[change.case],
            name=one_line(str(cases[change.case].key), NAME_LIMIT),
            change=format_change(change.ratio),
            is_slower=change.ratio > 1,
            interval=f"{format_change(change.low)} .. {format_change(change.high)}",
            times=format_times([change.before_us, change.after_us]),
            low=place(change.low),
            at=place(change.ratio),
            high=place(change.high),
        )
        for change in changes
    ], [(place(1 + tick / 100), f"{tick:+g} %" if abs(tick) > 1e-9 else "0") for tick in ticks]


def collect_commit_times(cases: Sequence[CaseSummary], commits: int) -> list[CommitTimesOfCases]:
    """Returns the runs of all cases at each commit."""
    found = [CommitTimesOfCases() for _ in range(commits)]
    for one in cases:
        times = one.times
        for commit, us, ratio, code in zip(times.commits, times.us, times.ratios, times.verdict_codes, strict=True):
            own = found[commit]
            own.cases.append(one.number)
            own.us.append(us)
            own.ratios.append(ratio)
            own.verdicts.append(times.verdicts[code])
    return found


def describe_run(run: StoredRun) -> tuple[str, ...]:
    """Returns a run as texts: start, branch, what measured it, its mode and version; and what is special of it."""
    special = [] if run.complete else ["stopped before its end"]
    pull = run.provenance.get("pull_request", "")
    special += [f"pull request {pull}"] if pull else []
    texts = (format_minute(run.started), run.branch, run.source, run.mode, run.version, ", ".join(special))
    return tuple(one_line(text, VALUE_LIMIT) for text in texts)


def list_device_facts(
    device: str, own: Mapping[str, str], before: Mapping[str, str] | None, others: int
) -> DeviceFacts:
    """Returns the facts of a device's environment, those that differ from the commit before first."""
    known = own if before is None else before
    names = sorted({*own, *known})
    rows = [
        (one_line(name, VALUE_LIMIT), one_line(own.get(name, "absent"), VALUE_LIMIT),
         one_line(known.get(name, "absent"), VALUE_LIMIT) if own.get(name) != known.get(name) else "")
        for name in names
    ]  # fmt: skip
    return DeviceFacts(one_line(device, NAME_LIMIT), tuple(sorted(rows, key=lambda row: not row[2])), others)


def collect_commit_data(times: CommitTimesOfCases) -> Json:
    """Returns the data of the page's script, a place in each list per run: number of the case, time in microseconds,
    tenths of a percent against the run before, verdict as a place in `words`."""
    words: dict[str, int] = {}
    codes = [words.setdefault(verdict, len(words)) for verdict in times.verdicts]
    return {
        "cases": times.cases,
        "us": [round_figure(us, 5) for us in times.us],
        "changes": [None if ratio != ratio else round(1000 * (ratio - 1)) for ratio in times.ratios],
        "verdicts": codes,
        "words": [one_line(word, 60) for word in words],
    }

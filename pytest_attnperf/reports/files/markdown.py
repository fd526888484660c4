"""Runs as Markdown for a job's summary and a comment on a pull request: verdict first, then problems, then everything.

If the text is too long, whole rows are left out, the least important first, and counted. GitHub itself would cut a
comment anywhere, and refuse a summary that is too long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.time_units import format_time_change
from pytest_attnperf.reports.files.markdown_commands import FetchedResults, explain_section, reproduce_section
from pytest_attnperf.reports.files.markdown_details import (
    MarkdownSection,
    case_sections,
    condition_section,
    count_bytes,
    finding_section,
    published_section,
    quarantine_section,
    worst_section,
)
from pytest_attnperf.reports.files.markdown_picture import picture_section
from pytest_attnperf.reports.files.markdown_text import escape_cell, format_code
from pytest_attnperf.reports.run.code_objects import code_line
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import (
    find_slowest,
    format_comparison_base,
    format_device,
    format_result_counts,
    median_detection_limit,
    verdict_word,
)
from pytest_attnperf.reports.text.figures import format_change, format_interval

LIMIT_BYTES = 60_000
"""Most bytes of the text. GitHub accepts comments of 65,536 characters and summaries of 1 MiB."""

LEAST_BYTES = 3_000
TITLE_LIMIT = 80
NAME_LIMIT = 120
SHOWN_DEVICES = 4
LISTED_DEVICES = 12

_MARKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/]*(?:[- ][A-Za-z0-9._/]+)*")
_LINK = re.compile(r"https?://[^\s<>()\[\]\"'`\\|]+|[\w./-]+")


def format_marker(name: str) -> str:
    """Returns the hidden HTML line that identifies a comment. Raises UsageError for a name that could end it."""
    if len(name) > NAME_LIMIT or not _MARKER_NAME.fullmatch(name):
        raise UsageError(
            f"a comment's name is {name[:NAME_LIMIT]!r}; it may have {NAME_LIMIT} letters, digits, '.', '_' and '/', "
            "with single '-' and spaces between them"
        )
    return f"<!-- pytest-attnperf: {name} -->"


def render_summary(
    joined: Joined,
    *,
    limit_bytes: int = LIMIT_BYTES,
    link: str = "",
    title: str = "attnperf",
    fetched: FetchedResults | None = None,
) -> str:
    """Returns the runs as Markdown of at most `limit_bytes` of UTF-8: the verdict first, then the worst cases.

    `link` is the address of the whole report; it is named if something was left out. Only this link is a link: text
    from the runs never becomes a link and notifies nobody. `fetched` is where a reader elsewhere gets the results from.
    Raises UsageError for a limit below LEAST_BYTES, and for a link that is neither http(s) nor a path.
    """
    if limit_bytes < LEAST_BYTES:
        raise UsageError(f"limit_bytes is {limit_bytes}; give at least {LEAST_BYTES}, for the verdict alone")
    if link and not _LINK.fullmatch(link):
        raise UsageError(f"the link to the report is {link[:NAME_LIMIT]!r}; it must be an http(s) address or a path")
    report = f"[report]({link})" if link else "report"
    blocks = _list_head_lines(joined, title, report if link else "", limit_bytes // 2)
    room = limit_bytes - count_bytes("\n\n".join(blocks)) - 2
    # Small sections that are always wanted get room first, but come last in the text.
    small = [explain_section(joined, fetched), reproduce_section(joined), finding_section(joined)]
    small += [quarantine_section(joined), condition_section(joined)]
    last = _fit_sections(small, room // 3, report, each=room // 6)
    room -= sum(map(count_bytes, last))
    worst = _fit_sections([worst_section(joined)], room // 2, report)
    room -= sum(map(count_bytes, worst))
    picture = _fit_sections([picture_section(joined)], room // 2, report)
    room -= sum(map(count_bytes, picture))
    tables = _fit_sections([*case_sections(joined), published_section(joined)], room, report)
    return "\n\n".join([*blocks, *(text.rstrip("\n") for text in (*picture, *worst, *tables, *last))]) + "\n"


def _list_head_lines(joined: Joined, title: str, report: str, room: int) -> list[str]:
    """Returns Markdown: the heading with the verdict, then lines that fit into `room` bytes (slowest case, devices)."""
    cases = [shown.case for shown in joined.cases]
    only_code = joined.code and not cases
    said = code_line(joined.code) if only_code else format_result_counts(cases)
    word = verdict_word(joined)
    first = f"### {escape_cell(title, TITLE_LIMIT)}: {word}: {escape_cell(said, 400)}"
    longer = first if only_code else first + _format_place(joined)
    blocks = [longer if count_bytes(longer) <= room // 2 else first]
    why = (
        ""
        if joined.has_failed or not joined.failed_by
        else f"No case failed, but the gate did: {escape_cell('; '.join(joined.failed_by), 400)}."
    )
    for text in (
        why,
        _describe_slowest(joined),
        *_list_notices(joined),
        _render_devices(joined),
        f"The whole {report}." if report else "",
    ):
        if text and count_bytes("\n\n".join([*blocks, text])) <= room:
            blocks.append(text)
    return blocks


def _format_place(joined: Joined) -> str:
    """Returns ' on `sm_90/h200` against `4f2c1ab`': devices and comparison bases; '' for unknown ones."""
    devices = _join_code_names(joined.devices, SHOWN_DEVICES)
    bases = _join_code_names([base for run in joined.runs if (base := format_comparison_base(run))], SHOWN_DEVICES)
    return (f" on {devices}" if devices else "") + (f" against {bases}" if bases else "")


def _join_code_names(names: Sequence[str], most: int) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(format_code(name, TITLE_LIMIT) for name in distinct[:most]) + more


def _describe_slowest(joined: Joined) -> str:
    worst = find_slowest([shown.case for shown in joined.cases])
    if worst is None:
        return ""
    interval = format_interval(worst.interval)
    told = [text for text in (format_time_change(worst.baseline_us, worst.median_us), interval) if text]
    spread = f" ({'; '.join(told)})" if told else ""
    return f"Slowest: {format_code(str(worst.key), NAME_LIMIT)} {format_change(worst.ratio)}{spread}."


def _list_notices(joined: Joined) -> list[str]:
    """Returns sentences that belong to the verdict: incomplete runs, nothing compared, nightly cases, detectability."""
    told = sum(len(run.cases) + len(run.code) for run in joined.runs if not run.complete)
    selected = sum(run.selected for run in joined.runs if not run.complete)
    lines = [f"**Incomplete: {told} of {selected} selected cases have a result.**"] if selected or told else []
    if any(run.mode == "gate" for run in joined.runs) and not sum(run.gated for run in joined.runs):
        lines.append("Nothing was compared with a baseline.")
    left = sum(len(run.left_to_nightly) for run in joined.runs)
    lines += [f"{left} case{'s' if left != 1 else ''} left to nightly runs."] if left else []
    if joined.code and joined.cases:
        lines.append(f"{escape_cell(code_line(joined.code), 400)}.")
    limit = median_detection_limit(shown.case for shown in joined.cases)
    if limit is not None:
        found = format_change(1 + limit).lstrip("+")
        lines.append(f"Half of the comparisons could detect a slowdown of {found}.")
    return lines


def _render_devices(joined: Joined) -> str:
    """Returns a list item per device: its number of cases by result, and what they are compared with. Lists at most
    LISTED_DEVICES, then the number left out; '' for a single device."""
    if len(joined.devices) < 2:
        return ""
    lines = []
    for device in joined.devices[:LISTED_DEVICES]:
        cases = [shown.case for shown in joined.cases if shown.device == device]
        bases = _join_code_names(
            [
                format_comparison_base(run)
                for run in joined.runs
                if format_device(run) == device and format_comparison_base(run)
            ],
            2,
        )
        lines.append(
            f"- {format_code(device, TITLE_LIMIT)}: {format_result_counts(cases)}{f' against {bases}' if bases else ''}"
        )
    left_out = len(joined.devices) - len(lines)
    return "\n".join([*lines, f"- and {left_out} more devices"] if left_out else lines)


def _fit_sections(
    sections: Sequence[MarkdownSection | None], room: int, report: str, each: int | None = None
) -> list[str]:
    """Returns the sections as texts of at most `room` bytes in all, `each` for one, with as many rows as fit. The last
    text counts the sections that have no room; `report` names where to find them."""
    texts: list[str] = []
    left_out = 0
    for section in sections:
        if section is None:
            continue
        text = section.render_fitting(min(room, each or room), report)
        if text:
            texts.append(text)
            room -= count_bytes(text)
        else:
            left_out += 1
    more = f"_{left_out} more part{'s' * (left_out != 1)}: see the {report}_\n\n"
    return [*texts, more] if left_out and count_bytes(more) <= room else texts

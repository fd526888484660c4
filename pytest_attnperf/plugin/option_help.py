"""The text of `--attnperf-help`: every option with its help, ini key and marker argument."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pytest_attnperf.plugin.options import GROUPS, OPTIONS, Option
from pytest_attnperf.plugin.switches import SWITCHES, Switch

ADVANCED = "pytest-attnperf: advanced"
FIRST = "Options of pytest-attnperf. A marker's argument comes before an option, an option before its ini key."
INDENT = "    "


def render_option_help(width: int) -> str:
    """Returns all options by group, the advanced ones last, in lines of at most `width` columns."""
    options: tuple[Switch | Option, ...] = (*SWITCHES, *OPTIONS)
    lines = textwrap.wrap(FIRST, width)
    for group, title in {**GROUPS, "": ADVANCED}.items():
        lines += ["", f"{title}:"]
        for known in options:
            if known.group == group:
                lines += _format_option(known, width)
    return "\n".join(lines) + "\n"


def _format_option(known: Switch | Option, width: int) -> Iterator[str]:
    """Yields the option's line and its indented help."""
    yield f"  {_format_usage(known)}"
    yield from textwrap.wrap(known.help, width, initial_indent=INDENT, subsequent_indent=INDENT)
    if isinstance(known, Option):
        marker = f", marker {known.field}=" if known.case or known.code else ""
        yield f"{INDENT}ini {known.dest}{marker}"


def _format_usage(known: Switch | Option) -> str:
    """Returns e.g. '--attnperf-pairs=N', or the flag alone if it takes no value."""
    metavar = known.metavar if isinstance(known, Option) else known.settings.get("metavar")
    return f"{known.flag}={metavar}" if metavar else known.flag

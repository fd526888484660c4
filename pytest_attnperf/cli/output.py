"""What commands share of printing to a terminal and of writing reports to files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.reports.text.colour import Ink


def say(text: str) -> None:
    """Print a line now, for whoever waits for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def columns_shown(unknown: int, least: int = 0) -> int:
    """Return the columns of the terminal, `unknown` where none says how many it has, and at least `least`."""
    return max(least, shutil.get_terminal_size((unknown, 24)).columns)


def ink_shown(choice: str = "auto") -> Ink:
    """Return colours for standard output, as --color asks."""
    import os

    from pytest_attnperf.reports.text.colour import Ink, wanted

    return Ink(on=wanted(sys.stdout, os.environ, choice))


def write_forms(
    joined: Joined, *, html: Path | None, junit: Path | None, markdown: str | None, **shown: Any
) -> list[str]:
    """Write the forms that are named, `shown` in the page, too; Markdown as - is printed. Return what is told of it."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.files import folder
    from pytest_attnperf.reports.files.junit_xml import junit as junit_of
    from pytest_attnperf.reports.files.markdown import summary

    told: list[str] = [] if html is None else folder.write(html, joined, **shown)
    if junit is not None:
        write_atomically(junit, junit_of(joined))
        told.append(f"written: {junit}")
    if markdown == "-":
        sys.stdout.write(summary(joined))
    elif markdown is not None:
        write_atomically(Path(markdown), summary(joined).encode("utf-8", "replace"))
        told.append(f"written: {markdown}")
    return told

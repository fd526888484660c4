"""What a run prints with -q, -qq, -v and colours, on the fake device."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject


@pytest.fixture
def wrong(attnperf_project: FakeProject) -> FakeProject:
    """Two stored backends, the first of which now returns something wrong."""
    attnperf_project.backend("fake.a")
    attnperf_project.backend("fake.b")
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", fault="wrong")
    return attnperf_project


def test_quiet_runs_print_no_table(wrong: FakeProject) -> None:
    """-q shows what failed, worst first, and the closing lines: no table, no conditions of the device."""
    result = wrong.run("--attnperf", "-q")
    lines = result.outlines
    start = next(index for index, line in enumerate(lines) if line.startswith("verdict"))
    assert lines[start + 2].split()[:2] == ["INCORRECT", "fake.a"]
    assert lines[start + 3].startswith("1 incorrect, 1 same on fake/fake1")
    assert lines[start + 4].startswith("the one compared case could detect a slowdown of ")
    assert lines[start + 5] == "results: .attnperf/results.json"
    shown = result.stdout.str()
    assert "attnperf: prefill" not in shown
    assert "proving" not in shown


def test_very_quiet_runs_print_one_line(wrong: FakeProject) -> None:
    """-qq says the verdicts in one line."""
    lines = wrong.run("--attnperf", "-qq").outlines
    ours = [line for line in lines if "1 incorrect" in line or "results:" in line or "compared" in line]
    assert len(ours) == 1
    assert ours[0].startswith("1 incorrect, 1 same on fake/fake1")


def test_very_quiet_runs_say_why_they_fail(attnperf_project: FakeProject) -> None:
    """The reasons of an exit status that no failed test explains stand behind the one line."""
    attnperf_project.backend("fake.a")
    result = attnperf_project.run("--attnperf", "--attnperf-strict", "-qq")
    assert result.ret == 1
    first = next(index for index, line in enumerate(result.outlines) if line.startswith("1 without baseline"))
    assert result.outlines[first + 1 : first + 3] == [
        "exit status 1: strict: 1 cases are NO_BASELINE",
        "exit status 1: strict: gated 0 of 1",
    ]


def test_tables_stand_under_their_heading(wrong: FakeProject) -> None:
    """The table begins on the line behind its heading, and nothing is wider than the terminal."""
    result = wrong.run("--attnperf")
    lines = result.outlines
    heading = next(index for index, line in enumerate(lines) if "attnperf: prefill" in line)
    assert [line.split()[0] for line in lines[heading + 1 : heading + 6] if "--" not in line] == [
        "verdict",
        WORKLOAD.removeprefix("prefill-"),
        "INCORRECT",
        "SAME",
    ]
    assert max(map(len, lines[heading : heading + 6])) <= 80
    assert "TFLOP/s" in lines[heading + 1]
    assert "finds" not in lines[heading + 1]
    assert "\x1b" not in result.stdout.str()


def test_verbose_tables_say_how_sure_they_are(wrong: FakeProject) -> None:
    """At 80 columns -v shows intervals and detection limits; --color=yes paints verdicts also in a pipe."""
    lines = wrong.run("--attnperf", "-v", "--color=yes").outlines
    header = next(line for line in lines if line.startswith("\x1b[1mverdict"))
    assert "95 %" in header
    assert "finds" in header
    assert any(line.startswith("\x1b[1;31mINCORRECT\x1b[0m  fake.a") for line in lines)


def test_only_checking_very_quietly(attnperf_project: FakeProject) -> None:
    """A run that times nothing has nothing to add at -qq."""
    attnperf_project.backend("fake.a")
    assert "attnperf" not in attnperf_project.run("-qq", "--attnperf-determinism=3").stdout.str()

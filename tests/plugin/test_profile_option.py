"""What a user types and sees with --attnperf-profile, on the fake device."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject

KERNELS = {"flash_fwd": 60_000, "cast": 30_000}


def test_a_gate_profiles_each_case_where_none_is_timed(attnperf_project: FakeProject) -> None:
    """The table says what binds each case, and results.json holds its profile; one process profiles all of them, and
    another does where it died."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0, profile=KERNELS)
    project.backend("fake.b", time_us=50.0, fault="profile_crash")
    project.backend("fake.c", time_us=50.0)
    result = project.run("--attnperf", "--attnperf-profile", "--no-attnperf-strict")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*attnperf: profiles*", "*fake.a/*", "*/fake.b/*: not profiled: *worker990*"])
    profiled, crashed, after = project.results()["cases"]
    assert [kernel["shape"]["name"] for kernel in profiled["profile"]["kernels"]] == list(KERNELS)
    assert profiled["profile"]["bound"]["bound"] == "not decidable from this data"
    assert (crashed["verdict"], crashed["profile"]) == (profiled["verdict"], None)
    assert (after["verdict"], after["notes"]) == (profiled["verdict"], [])
    names = sorted(path.stem for path in (project.path / ".attnperf" / "logs").glob("*/*.log"))
    assert names == ["worker0-1", "worker990-2", "worker990-3"]


def test_xdist_shows_the_profiles(attnperf_project: FakeProject, other_plugins: None) -> None:
    """A run that only checks, in two processes: their profiles are gathered, shown and written as without xdist."""
    project = attnperf_project
    for name in ("fake.a", "fake.b"):
        project.backend(name, time_us=100.0, profile=KERNELS)
    result = project.run("--attnperf-profile", "-n2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*attnperf: profiles*", "results: .attnperf/results.json"])
    assert [case["profile"]["calls"] for case in project.results()["cases"]] == [5, 5]


def test_alone_it_profiles_what_is_right(attnperf_project: FakeProject) -> None:
    """Without a time nothing is classified; the profiles are kept in results.json all the same."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0, profile=KERNELS)
    result = project.run("--attnperf-profile")
    result.assert_outcomes(passed=1)
    said = ["*attnperf: profiles*", "*not decidable*", "*no time was taken*", "results: .attnperf/results.json"]
    result.stdout.fnmatch_lines(said)
    (case,) = project.results()["cases"]
    assert case["profile"]["calls"] == 5


def test_a_profile_that_never_ends_is_given_up(attnperf_project: FakeProject) -> None:
    """By the limit of a case; its verdict stays, and the reason is said."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0, fault="profile_hang")
    result = project.run("--attnperf-profile", "--attnperf-case-limit=3")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*/fake.a/*: not profiled: *worker990*"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--update-baselines"], "--update-baselines with --attnperf-profile: only cases that are gated or checked *"),
        (["--attnperf-calibrate=5"], "--attnperf-calibrate with --attnperf-profile: only cases that are gated *"),
        (["--attnperf-isolate=none"], "--attnperf-profile needs separate processes, *; drop --attnperf-isolate=none"),
    ],
)
def test_where_it_cannot_work(attnperf_project: FakeProject, options: list[str], said: str) -> None:
    """A usage error that says what to drop."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf-profile", *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*{said}"])

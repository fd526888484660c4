"""A configuration that differs from the baseline's, and --attnperf-pin-config, typed as a user types them."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject

AUTOTUNED = {"autotuned.forward": "BLOCK_M: 128, num_warps: 8", "split": "4"}
CHANGED = {"autotuned.forward": "BLOCK_M: 64, num_warps: 8", "split": "4"}


@pytest.fixture
def changed(attnperf_project: FakeProject) -> FakeProject:
    """A case recorded with one configuration, whose autotuner now chooses another."""
    attnperf_project.backend("fake.a", time_us=100.0, config=AUTOTUNED)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=100.0, config=CHANGED)
    return attnperf_project


def test_a_changed_configuration_is_named(changed: FakeProject) -> None:
    """What was chosen otherwise is said with both values and what to do, whatever the verdict."""
    result = changed.run("--attnperf")
    assert changed.verdicts() == {"fake.a": "SAME"}
    result.stdout.fnmatch_lines(
        [
            "prefill/fake.a/*: configuration differs from the baseline's: autotuned.forward: BLOCK_M: 64 here, "
            "128 stored; an autotuner chose differently, *run again with --attnperf-pin-config*"
        ]
    )


def test_it_is_named_beside_a_slowdown(changed: FakeProject) -> None:
    """A failing test shows the configuration among its notes."""
    changed.backend("fake.a", time_us=110.0, config=CHANGED)
    result = changed.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SLOWER*", "*note: configuration differs from the baseline's: autotuned.forward:*"])


def test_an_unchanged_configuration_needs_no_word(changed: FakeProject) -> None:
    """What was chosen as before is not mentioned."""
    changed.backend("fake.a", time_us=100.0, config=AUTOTUNED)
    changed.run("--attnperf").stdout.no_fnmatch_line("*configuration differs*")


def test_the_stored_configuration_is_sent(changed: FakeProject) -> None:
    """With --attnperf-pin-config the backend runs with what is stored, and nothing differs."""
    changed.backend("fake.a", time_us=110.0, config=CHANGED)
    result = changed.run("--attnperf", "--attnperf-pin-config")
    result.assert_outcomes(failed=1)
    (case,) = changed.results()["cases"]
    assert case["config"] == {**AUTOTUNED, "pinned": "as stored"}
    result.stdout.no_fnmatch_line("*configuration differs*")


def test_without_a_baseline_nothing_is_pinned(attnperf_project: FakeProject) -> None:
    """A case that has nothing stored chooses by itself."""
    attnperf_project.backend("fake.a", time_us=100.0, config=CHANGED)
    attnperf_project.run("--attnperf", "--attnperf-pin-config")
    (case,) = attnperf_project.results()["cases"]
    assert (case["verdict"], case["config"]) == ("NO_BASELINE", CHANGED)


def test_what_cannot_be_replayed_is_an_error(attnperf_project: FakeProject) -> None:
    """A stored configuration that the backend refuses is an ERROR that says what is missing."""
    attnperf_project.backend("fake.a", time_us=100.0, config={"refuse": "no split 4 in this version"})
    attnperf_project.store_baselines()
    result = attnperf_project.run("--attnperf", "--attnperf-pin-config")
    result.assert_outcomes(failed=1)
    assert attnperf_project.verdicts() == {"fake.a": "ERROR"}
    result.stdout.fnmatch_lines(["*fake.a cannot replay the stored configuration: no split 4 in this version*"])

from __future__ import annotations

import pytest

from pytest_attnperf.baselines.schema import Anchor, Check, Entry
from pytest_attnperf.gate.creep import crept
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import ProcessSummary

NODE = "suites/test_prefill.py::test_prefill[ck]"


def entry(median_us: float, anchor: Anchor | None) -> Entry:
    """A stored case of this median; one process is far off and must not matter."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in (median_us, 0.9, median_us, 900.0))
    return Entry({}, "e", "p", processes, Check(0.1, 0.1), "2026-03-01", "0.1.0", "c9", anchor=anchor)


FIRST = Anchor(100.0, "2026-01-02", "e", "c1")


def test_the_finding_says_everything() -> None:
    """Both times, the anchor's day and commit, the percentage, what is allowed, and both commands that accept it."""
    assert crept(entry(105.0, FIRST), 1.02, Policy(), NODE) == (
        "crept: 107.1 us against 100 us on 2026-01-02, commit c1: +7.1 % since then, more than the 5 % allowed, "
        "in steps that each passed or were recorded; if it is wanted: "
        'attnperf accept CASE --from RESULTS --reason "WHY" (nothing is measured again), or '
        f'pytest --update-baselines --attnperf-accept="WHY" "{NODE}"'
    )


@pytest.mark.parametrize(
    ("stored_us", "ratio", "found"),
    [(104.0, 1.005, False), (104.0, 1.015, True), (106.0, 1.0, True), (106.0, 0.98, False), (100.0, 1.02, False)],
)
def test_both_steps_count(stored_us: float, ratio: float, found: bool) -> None:
    """What counts is the time now against the anchor: the recorded steps times the one of today."""
    assert bool(crept(entry(stored_us, FIRST), ratio, Policy(), NODE)) is found


@pytest.mark.parametrize(("allowed_percent", "found"), [(10.0, False), (6.5, False), (5.5, True), (0.0, True)])
def test_the_policy_says_how_much_is_allowed(allowed_percent: float, found: bool) -> None:
    """`creep_percent` is the largest creep that is no finding."""
    assert bool(crept(entry(106.0, FIRST), 1.0, Policy(creep_percent=allowed_percent), NODE)) is found


def test_an_entry_without_an_anchor_is_its_own() -> None:
    """Of an entry that is older than the guard only today's ratio is known; a commit that is not known is not said."""
    assert crept(entry(100.0, None), 1.04, Policy(), NODE) is None
    assert crept(entry(100.0, None), 1.08, Policy(), NODE, limit=1.09) is None
    assert crept(entry(100.0, None), 1.10, Policy(), NODE, limit=1.09) is not None
    assert "100 us on 2026-03-01, commit c9: +6.0 %" in str(crept(entry(100.0, None), 1.06, Policy(), NODE))
    assert "on 2026-01-02: +6.0 %" in str(crept(entry(106.0, Anchor(100.0, "2026-01-02", "e")), 1.0, Policy(), NODE))

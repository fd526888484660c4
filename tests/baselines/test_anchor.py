from __future__ import annotations

import dataclasses

import pytest

from pytest_attnperf.baselines.anchor import anchor_of, environments_of, next_anchor
from pytest_attnperf.baselines.schema import Anchor, Check, Entry, content_id
from pytest_attnperf.records import Fingerprint, ProcessSummary

HERE = Fingerprint({"product": "h200", "power_cap_w": "700"}, {"driver": "570"})
NEWER_DRIVER = Fingerprint(HERE.must_match, {"driver": "581"})
CAPPED = Fingerprint({"product": "h200", "power_cap_w": "500"}, HERE.named)
KNOWN = {content_id(place): place for place in (HERE, NEWER_DRIVER, CAPPED)}


def entry(median_us: float, day: int = 1, place: Fingerprint = HERE, heads: int = 4) -> Entry:
    """A recording of that day, whose processes have this median."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in (median_us, median_us * 1.5, 0.5))
    return Entry(
        workload={"heads": heads},
        environment=content_id(place),
        policy="p",
        processes=processes,
        check=Check(0.1, 0.1),
        recorded=f"2026-01-{day:02}",
        harness_version="0.1.0",
        commit=f"commit{day}",
    )


def recorded(old: Entry | None, new: Entry, place: Fingerprint = HERE, acknowledged: str = "") -> Entry:
    """`new` as it is stored in the place of `old`."""
    return dataclasses.replace(new, anchor=next_anchor(old, new, KNOWN, place, acknowledged))


def test_the_first_recording_is_its_own_anchor() -> None:
    """Where nothing was stored before, the anchor is the median of the processes, with its day and commit."""
    assert recorded(None, entry(100.0)).anchor == Anchor(100.0, "2026-01-01", content_id(HERE), "commit1")


def test_ten_recorded_slowdowns_keep_the_first_anchor() -> None:
    """Recording ten slowdowns of 1 %, one after the other, leaves the anchor where the first recording set it."""
    stored = recorded(None, entry(100.0))
    for step in range(1, 11):
        stored = recorded(stored, entry(100.0 * 1.01**step, day=1 + step))
    assert stored.anchor == Anchor(100.0, "2026-01-01", content_id(HERE), "commit1")
    assert stored.processes[0].median_us == pytest.approx(110.46, rel=1e-4)


@pytest.mark.parametrize("median_us", [99.9, 100.0])
def test_a_time_that_is_not_slower_moves_the_anchor(median_us: float) -> None:
    """A recording that is faster than the anchor, or as fast, becomes it."""
    slow = recorded(recorded(None, entry(100.0)), entry(104.0, day=2))
    assert recorded(slow, entry(median_us, day=3)).anchor == Anchor(
        median_us, "2026-01-03", content_id(HERE), "commit3"
    )


def test_faster_than_the_last_recording_is_not_enough() -> None:
    """A recording between the anchor and the last one keeps the anchor: it is still slower than that."""
    slow = recorded(recorded(None, entry(100.0)), entry(108.0, day=2))
    kept = recorded(slow, entry(103.0, day=3)).anchor
    assert kept is not None
    assert (kept.median_us, kept.recorded) == (100.0, "2026-01-01")


def test_an_acknowledged_slowdown_is_the_new_anchor() -> None:
    """A slowdown that somebody wants becomes the anchor with the reason, and the next recording keeps both."""
    wanted = recorded(recorded(None, entry(100.0)), entry(130.0, day=2), acknowledged="exact softmax")
    assert wanted.anchor == Anchor(130.0, "2026-01-02", content_id(HERE), "commit2", "exact softmax")
    assert recorded(wanted, entry(131.0, day=3)).anchor == wanted.anchor


def test_another_machine_state_forgets() -> None:
    """A slower time under another power cap says nothing of the code: it starts a new anchor."""
    capped = recorded(recorded(None, entry(100.0)), entry(120.0, day=2, place=CAPPED), CAPPED)
    assert capped.anchor == Anchor(120.0, "2026-01-02", content_id(CAPPED), "commit2")


def test_another_driver_does_not_forget() -> None:
    """Fields that are only named may differ: a slower driver is no reason to accept a slowdown in silence."""
    newer = recorded(recorded(None, entry(100.0)), entry(103.0, day=2, place=NEWER_DRIVER), NEWER_DRIVER)
    assert newer.anchor == Anchor(100.0, "2026-01-01", content_id(HERE), "commit1")


def test_another_workload_forgets() -> None:
    """An id whose definition has changed is another problem, whose time was never anchored."""
    other = recorded(recorded(None, entry(100.0)), entry(200.0, day=2, heads=8))
    assert other.anchor == Anchor(200.0, "2026-01-02", content_id(HERE), "commit2")


def test_an_anchor_whose_environment_is_not_known_is_forgotten() -> None:
    """Where nobody can say on what the anchor was made, it cannot be compared with."""
    stored = recorded(None, entry(100.0))
    assert next_anchor(stored, entry(105.0, day=2), {}, HERE).median_us == 105.0


def test_an_entry_from_before_there_were_anchors_is_its_own() -> None:
    """A stored entry without an anchor counts as anchored at its own time, and is kept while it is slower."""
    old = entry(100.0)
    assert anchor_of(old) == Anchor(100.0, "2026-01-01", content_id(HERE), "commit1")
    assert recorded(old, entry(101.0, day=2)).anchor == anchor_of(old)


def test_an_entry_needs_its_own_environment_and_its_anchors() -> None:
    """Both environments belong to an entry; without an anchor there is one."""
    newer = recorded(recorded(None, entry(100.0)), entry(103.0, day=2, place=NEWER_DRIVER), NEWER_DRIVER)
    assert environments_of(newer) == (content_id(NEWER_DRIVER), content_id(HERE))
    assert environments_of(entry(100.0)) == (content_id(HERE),)

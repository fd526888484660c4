"""What a test lets through beyond what its baseline was stored with, as notes that a run repeats as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

LOOSENED = "policy loosened since the baseline:"


if TYPE_CHECKING:
    from tests.session.conftest import Bench


def test_a_loosened_tolerance_is_noted_until_it_is_recorded(stored: Bench) -> None:
    """Errors that the stored tolerance did not allow are named beside a case that is SAME; recording settles it."""
    loosened = f"{LOOSENED} tolerance of out 2 -> 20"
    assert loosened in stored.judge(tolerance=20.0).notes
    assert not any(note.startswith(LOOSENED) for note in stored.judge(tolerance=1.0).notes)
    stored.record(tolerance=20.0)
    assert not any(note.startswith(LOOSENED) for note in stored.judge(tolerance=20.0).notes)


def test_a_reference_that_became_coarser_is_noted_until_it_is_recorded(stored: Bench) -> None:
    """A yardstick that is off by more than twice what is stored is named; one as good, or held to an entry without, is
    not."""

    def noted(now: float) -> list[str]:
        return [note for note in stored.judge(coarseness={"out": now}).notes if note.startswith(LOOSENED)]

    assert noted(1.7e-3) == []
    stored.record(coarseness={"out": 6e-8})
    (note,) = noted(1.7e-3)
    assert note.startswith(f"{LOOSENED} the reference of out, off by 6e-08 of the result -> 0.0017: record")
    assert noted(1.1e-7) == []
    stored.record(coarseness={"out": 1.7e-3})
    assert noted(1.7e-3) == []

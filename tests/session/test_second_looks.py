"""Second looks at gains: right on new inputs in a fresh process, and as fast while inputs change (see conftest.py)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_attnperf.records import Verdict
from pytest_attnperf.session.settings import RunMode

if TYPE_CHECKING:
    from tests.session.conftest import Bench

RECORD_PLACES = list(range(100, 107))


def test_a_jump_is_checked_again_on_new_inputs(stored: Bench) -> None:
    """Three times faster than stored is proven right in a fresh process, on inputs that change, and says so."""
    result = stored.judge(time_us=30.0)
    assert (result.verdict, stored.pool.visited) == (Verdict.FASTER, [0, 1])
    (note,) = result.notes
    assert re.match(r"3\.\d+ times faster than stored: right again on new inputs in another process, and 2\d\.", note)
    assert stored.judge(time_us=40.0).notes == ()
    assert stored.pool.visited == [0, 1]


def test_a_jump_that_remembers_is_suspicious(stored: Bench) -> None:
    """A kernel that is fast only while its inputs stay the same has not become faster."""
    result = stored.judge(time_us=20.0, remembers=5.0)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert re.match(r"remembers its results: \S+ us per call while the inputs stay the same, ", result.summary)
    assert result.summary.endswith("when they change before every call; the time does not include the whole work")
    assert stored.judge(time_us=20.0, remembers=3.9).verdict is Verdict.FASTER


def test_a_gain_that_is_gone_when_inputs_change_is_suspicious(stored: Bench) -> None:
    """Any case that is faster than stored is asked, also where a part of its work is remembered: 2.5 times is enough
    where it is as slow as before on inputs that change, and what an honest gain may lose is not."""
    result = stored.judge(time_us=40.0, remembers=2.5)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert "when they change before every call" in result.summary
    assert stored.judge(time_us=40.0, remembers=2.0).verdict is Verdict.FASTER
    assert stored.judge(time_us=80.0, remembers=1.4).verdict is Verdict.FASTER
    stored.pool.by_place[1] = {"fault": "wrong"}
    assert stored.judge(time_us=40.0).verdict is Verdict.INCORRECT


def test_a_jump_that_is_wrong_on_new_inputs_is_incorrect(stored: Bench) -> None:
    """Being wrong in the re-check outweighs being fast in the first look."""
    stored.pool.by_place[1] = {"fault": "wrong"}
    result = stored.judge(time_us=20.0)
    assert (result.verdict, result.fails, result.median_us) == (Verdict.INCORRECT, True, None)


def test_a_gain_that_noise_hides_is_undecided(stored: Bench) -> None:
    """Where a busy machine cannot tell whether results are remembered, nobody is accused, and no gain is claimed: a
    second process is asked first, and one that tells is believed."""
    result = stored.judge(time_us=20.0, remembers=5.0, turn_noise_us=70.0)
    assert (result.verdict, stored.pool.visited) == (Verdict.UNDECIDED, [0, 1, 2])
    assert result.summary.startswith("whether it remembers its results is not known: ")
    assert "which may be 70.00 us too large on this busy machine" in result.summary
    stored.pool.by_place[1] = {"remembers": 5.0, "turn_noise_us": 70.0}
    assert stored.judge(time_us=20.0).verdict is Verdict.FASTER


def test_one_process_alone_accuses_nobody_of_remembering(stored: Bench, bench: Bench) -> None:
    """A second one is asked, and only both together make the case SUSPICIOUS; so where it is recorded."""
    assert stored.judge(time_us=20.0, remembers=5.0).verdict is Verdict.SUSPICIOUS
    assert stored.pool.visited == [0, 1, 2]
    stored.pool.by_place[1] = {"remembers": 5.0}
    assert stored.judge(time_us=20.0).verdict is Verdict.FASTER
    assert stored.pool.visited == [0, 1, 2]
    bench.pool.by_place[RECORD_PLACES[0]] = {"remembers": 5.0}
    assert bench.judge(RunMode.UPDATE).verdict is Verdict.RECORDED
    bench.pool.by_place[RECORD_PLACES[1]] = {"remembers": 5.0}
    assert bench.judge(RunMode.UPDATE).verdict is Verdict.SUSPICIOUS

"""The interleaved look of a run: what pairs decide, and when the judge asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, Launch, Verdict
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import case_result
from pytest_attnperf.session.interleaved import CHECK_PLACE, PAIR_PLACES, Against, is_supported_there
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.interleave import MEMORY_ADVICE, PairLook, SideFailedError
from pytest_attnperf.workers.look import Ending, Look

if TYPE_CHECKING:
    from tests.session.conftest import Bench

PLACES = [PAIR_PLACES, PAIR_PLACES + 1, PAIR_PLACES + 2]
NAME = "base side main (4f2c1ab)"
RIGHT = Look(Ending.RIGHT)


def pair(ratio: float, base_us: float = 100.0) -> PairSummary:
    """A pair of this ratio."""
    return PairSummary(ratio, base_us, base_us * ratio, 8, "host")


def looks(*ratios: float, base: Look = RIGHT, new: Look = RIGHT) -> list[PairLook]:
    """Pairs of these ratios, both sides right."""
    return [PairLook(base, new, pair(ratio)) for ratio in ratios]


def ran(**final: Any) -> Look:
    """A right look that ended so."""
    return Look(Ending.RIGHT, final=FinalReport(**final))


@pytest.fixture
def against(bench: Bench) -> Against:
    """A healthy base side."""
    return bench.against_base()


@pytest.fixture
def settle(bench: Bench, against: Against) -> Any:
    """`settle(looks)`: the result of the bench's case."""

    def settled(taken: list[PairLook], **base: Any) -> CaseResult:
        known = case_result(bench.case, Verdict.SAME, "", median_us=107.0, baseline_us=99.0, **base)
        return against.judge_pairs(bench.case, known, taken, 1, None)

    return settled


def test_pairs_decide_slower(settle: Any) -> None:
    """Pairs of 5 % are SLOWER; ratio and times are those of the pairs, and the base side is named."""
    result = settle(looks(1.049, 1.05, 1.052))
    assert result.verdict is Verdict.SLOWER
    assert result.ratio == pytest.approx(1.0503, abs=1e-3)
    assert (result.baseline_us, result.median_us) == (100.0, pytest.approx(105.0))
    assert (len(result.pairs), result.against) == (3, "main (4f2c1ab)")
    assert "against main (4f2c1ab), interleaved in 3 pairs: 105.0 us against 100.0 us" in result.summary
    assert result.standard_error is not None
    assert result.threshold is not None


def test_pairs_decide_same(settle: Any) -> None:
    """Pairs within the threshold are SAME, and a wanted threshold of the case's policy is heeded."""
    assert settle(looks(1.003, 1.004, 1.002)).verdict is Verdict.SAME


def test_the_policy_is_the_cases_own(bench: Bench, against: Against) -> None:
    """A case that allows 8 % is not SLOWER at 5 %."""
    case = replace(bench.case, policy=Policy(threshold_percent=8))
    known = case_result(case, Verdict.SAME, "")
    assert against.judge_pairs(case, known, looks(1.049, 1.05, 1.052), 1, None).verdict is Verdict.SAME


def test_the_first_look_is_held_beside_the_pairs(bench: Bench, against: Against) -> None:
    """What the stored baseline seemed to say is named with what is left of it."""
    known = case_result(bench.case, Verdict.SAME, "")
    result = against.judge_pairs(bench.case, known, looks(1.001, 1.0, 1.002), 1, 1.10)
    (reason,) = [reason for reason in result.reasons if "first look" in reason]
    assert "saw +10.0 %; the pairs confirm none of it" in reason


def test_noise_is_pooled_over_the_cases_of_a_run(bench: Bench, against: Against) -> None:
    """A second case is judged by the spread of both: a quiet one does not forget how far the first one's pairs lay."""
    known = case_result(bench.case, Verdict.SAME, "")
    first = against.judge_pairs(bench.case, known, looks(1.01, 1.0, 0.99), 2, None)
    other = Case(CaseKey("prefill", "fake.b", bench.case.key.workload), "b", Policy())
    second = against.judge_pairs(other, case_result(other, Verdict.SAME, ""), looks(1.0001, 1.0, 0.9999), 2, None)
    alone = Against(bench.base, "main").judge_pairs(other, known, looks(1.0001, 1.0, 0.9999), 2, None)
    assert first.degrees_of_freedom == alone.degrees_of_freedom == 2
    assert second.degrees_of_freedom is not None
    assert second.degrees_of_freedom > 2
    assert second.standard_error is not None
    assert alone.standard_error is not None
    assert second.standard_error > 3 * alone.standard_error


UNUSABLE: list[tuple[PairLook, str]] = [
    (PairLook(Look(Ending.INCORRECT, ("off by 1",)), RIGHT), "the base side is incorrect: off by 1"),
    (PairLook(Look(Ending.BODY_FAILED, ("teardown: boom",)), RIGHT), "the base side is body failed: teardown: boom"),
    (PairLook(RIGHT, RIGHT, problems=("timer: event on the base side, host here",)), "timer: event on the base side"),
    (PairLook(ran(foreign_sources=("module k was loaded from /x",)), RIGHT, pair(1.0)), "code from another tree ran"),
    (PairLook(RIGHT, ran(foreign_sources=("module k was loaded from /x",)), pair(1.0)), "code from another tree ran"),
    (PairLook(replace(RIGHT, note="interpreted"), RIGHT), "interpreted"),
    (PairLook(RIGHT, RIGHT), "a side may not be timed"),
]


@pytest.mark.parametrize(("last", "said"), UNUSABLE)
def test_what_decides_nothing_is_incomparable(settle: Any, last: PairLook, said: str) -> None:
    """One pair of which a side is wrong, unlike, foreign or not timed leaves no ratio, and says why."""
    result = settle([*looks(1.05), last])
    assert result.verdict is Verdict.INCOMPARABLE
    assert result.summary.startswith(f"not comparable with {NAME}: {said}")
    assert result.reasons[0].startswith(said)
    assert (result.ratio, result.pairs, result.against) == (None, (), "main (4f2c1ab)")


def test_the_same_files_are_said(settle: Any) -> None:
    """Where both sides loaded the same files the ratio is of unchanged code; with other files nothing is said."""
    one = {"kernels/a.py": "1", "suites/t.py": "2"}
    same = settle(looks(1.0, 1.0, 1.0, base=ran(sources=one), new=ran(sources=dict(one))))
    assert same.notes == ("both sides ran the same files (2): the ratio is that of unchanged code",)
    changed = settle(looks(1.0, 1.0, 1.0, base=ran(sources=one), new=ran(sources={**one, "kernels/a.py": "3"})))
    assert (changed.notes, settle(looks(1.0, 1.0, 1.0)).notes) == ((), ())


def test_other_kernels_and_configurations_are_said(settle: Any) -> None:
    """What this side runs and the base side does not is named beside the ratio, behind the notes that were there."""
    base = ran(launches=(Launch("flash"),), config={"BLOCK_M": "128"})
    new = ran(launches=(Launch("softmax"),), config={"BLOCK_M": "64"})
    result = settle(looks(1.0, 1.0, 1.0, base=base, new=new), notes=("first",))
    assert result.notes == (
        "first",
        "what ran differs from the base side: no longer runs flash; runs softmax, which it did not",
        "configuration differs from the base side: BLOCK_M: 64 here, 128 on the base side",
    )
    assert settle(looks(1.0, 1.0, base=base, new=base)).notes == ()


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, Verdict.INCOMPARABLE), (1.3, Verdict.SLOWER)])
def test_another_path_than_the_base_side_is_no_pass(settle: Any, ratio: float, verdict: Verdict) -> None:
    """A dispatcher that decides otherwise here than on the base side is named in the verdict, which is not SAME."""
    base, new = ran(config={"path": "asm"}), ran(config={"path": "ck"})
    pairs = [ratio * step for step in (0.9995, 1.0, 1.0005)]
    result = settle(looks(*pairs, base=base, new=new), config={"path": "ck"})
    assert result.verdict is verdict
    assert "another path ran: path: ck here, asm on the base side" in result.summary


def test_many_changes_are_cut(settle: Any) -> None:
    """Of fifty changed entries five are shown."""
    base, new = (ran(config={f"k{number}": value for number in range(50)}) for value in "ab")
    (note,) = settle(looks(1.0, 1.0, base=base, new=new)).notes
    assert note.count("on the base side") == 5


def test_a_look_takes_fresh_places_of_both_sides(bench: Bench, against: Against) -> None:
    """Three pairs are three processes a side, none of which is one of the first or the second look."""
    taken = against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2))
    assert bench.pool.visited == bench.base.visited == bench.pool.started == bench.base.started == PLACES
    assert [look.pair.base_process for look in taken if look.pair] == ["pid 2000", "pid 2001", "pid 2002"]


def test_no_more_start_ahead_than_memory_has_room_for(
    bench: Bench, against: Against, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three pairs two on a card of 2.5 GB; the third starts in its turn."""
    for pool in (bench.pool, bench.base):
        ready = pool.wait_until_ready(0)
        small = replace(ready, device=replace(ready.device, memory_bytes=int(2.5 * 2**30)))
        monkeypatch.setattr(pool, "last_ready", lambda small=small: small)
    against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2))
    assert bench.pool.started == bench.base.started == PLACES[:2]
    assert bench.pool.visited == PLACES


def test_nothing_starts_while_a_pair_is_timed(bench: Bench, against: Against, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first block every process that starts is ready; where a side is wrong nobody waits for them."""
    asked: list[int] = []
    ready = bench.base.wait_until_ready

    def watched(place: int) -> Ready:
        if place:
            asked.append(place)
        return ready(place)

    monkeypatch.setattr(bench.base, "wait_until_ready", watched)
    against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2))
    assert asked[: 1 + len(PLACES)] == [PLACES[0], *PLACES]
    asked.clear()
    bench.base.by_place[PAIR_PLACES] = {"fault": "wrong"}
    against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2))
    assert asked == [PLACES[0]]


@pytest.mark.parametrize("fault", ["wrong", "late"])
def test_a_look_stops_where_a_side_is_wrong(bench: Bench, against: Against, fault: str) -> None:
    """A wrong result needs no further pair."""
    bench.base.by_place[PAIR_PLACES + 1] = {"fault": fault}
    taken = against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2))
    assert [look.base.ending for look in taken] == [Ending.RIGHT, Ending.INCORRECT]


def test_a_side_that_cannot_start_is_named(bench: Bench, against: Against, monkeypatch: pytest.MonkeyPatch) -> None:
    """The side's name stands before the cause, and its log is kept."""

    def cannot(place: int) -> None:
        raise WorkerError("could not start", "no module")

    monkeypatch.setattr(bench.base, "wait_until_ready", cannot)
    with pytest.raises(WorkerError) as caught:
        against.has_case(bench.case.key)
    assert (caught.value.summary, caught.value.log_tail) == (f"{NAME}: could not start", "no module")


def test_a_case_that_raises_there_is_incomparable(bench: Bench, against: Against) -> None:
    """What is known of this side is kept, and the traceback stands in the reasons."""
    known = case_result(bench.case, Verdict.SAME, "", median_us=100.0)
    result = against.mark_base_failed(known, SideFailedError(NAME, "compile error\nline 7", "trace\nback"))
    assert (result.verdict, result.median_us, result.fails) == (Verdict.INCOMPARABLE, 100.0, False)
    assert result.summary == f"not comparable: {NAME}: compile error"
    assert "trace\nback" in result.reasons[1]


def test_cases_of_one_side(bench: Bench, against: Against) -> None:
    """A case that only the base side has is found without another process, and none before it was asked."""
    gone = CaseKey("prefill", "fake.gone", bench.case.key.workload)
    bench.base.cases = (bench.case.key, gone)
    assert against.list_only_there({}) == []
    assert against.has_case(gone)
    assert against.list_only_there({bench.case.key: 1}) == [gone]
    assert not against.has_case(CaseKey("prefill", "fake.new", bench.case.key.workload))


@pytest.mark.parametrize(
    ("script", "supported"),
    [
        ({}, True),
        ({"supported": ["no such dtype"]}, False),
        ({"not_timed": "interpreted"}, False),
        ({"fault": "wrong"}, False),
        ({"fault": "oom"}, False),
        ({"error": WorkerError("killed by SIGABRT")}, False),
        ({"error": CaseFailedError("off")}, False),
    ],
)
def test_timed_is_right_on_the_base_side(bench: Bench, script: dict[str, Any], supported: bool) -> None:
    """A case that is unsupported, wrong or broken there was nothing that could be lost."""
    request = OpenRequest(bench.case.key, None, 1, 2)
    assert bench.against_base(**script).can_time(request) is supported
    assert bench.base.visited == [CHECK_PLACE]


@pytest.mark.parametrize("ending", list(Ending))
def test_supported_there(ending: Ending) -> None:
    """Unsupported and skipped are the endings of a base side that could not run the case at all."""
    look = PairLook(Look(ending), RIGHT)
    assert is_supported_there([look]) is (ending not in (Ending.UNSUPPORTED, Ending.SKIPPED))


# The judge's part: when pairs are asked for, and what becomes of them.


def test_a_suspect_is_cleared_by_pairs(stored: Bench) -> None:
    """A day on which everything is 10 % slower makes a suspect; pairs do not confirm it."""
    stored.against_base(time_us=110.0)
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.second, len(result.pairs)) == (Verdict.SAME, (), 3)
    assert stored.pool.visited == [0, *PLACES]
    assert any("saw +9." in reason and "confirm none of it" in reason for reason in result.reasons), result.reasons


def test_a_suspect_is_confirmed_by_pairs(stored: Bench) -> None:
    """A slowdown that is there side by side is SLOWER, by the size of the pairs."""
    stored.against_base()
    result = stored.judge(time_us=105.0)
    assert (result.verdict, result.fails) == (Verdict.SLOWER, True)
    assert result.ratio == pytest.approx(1.05, abs=0.003)


def test_what_is_settled_asks_for_no_pair(stored: Bench) -> None:
    """A case that the stored baseline settles starts nothing of the base side, unless every case is wanted."""
    stored.against_base()
    assert (stored.judge().verdict, stored.base.asked) == (Verdict.SAME, False)
    stored.against_base(everything=True)
    result = stored.judge()
    assert (result.verdict, len(result.pairs), stored.base.visited) == (Verdict.SAME, 3, PLACES)


def test_interleaving_everything_keeps_what_the_baseline_says(stored: Bench) -> None:
    """A policy loosened since the baseline, a changed configuration and a creep are said of pairs, too."""
    stored.record(time_us=106.0, config={"split": "8"})
    stored.against_base(time_us=106.0, everything=True, config={"split": "4"})
    loose = replace(stored.case, policy=Policy(threshold_percent=5))
    result = stored.judge(case=loose, time_us=106.0, config={"split": "4"})
    assert (result.verdict, len(result.pairs)) == (Verdict.SAME, 3)
    assert [note.partition(":")[0] for note in result.notes] == [
        "policy loosened since the baseline",
        "configuration differs from the baseline's",
        "crept",
    ]


def test_a_case_without_a_baseline_is_settled_by_pairs(bench: Bench) -> None:
    """NO_BASELINE is said only where there is no base side."""
    bench.against_base(time_us=90.0)
    assert bench.judge().verdict is Verdict.SLOWER
    bench.against_base(time_us=100.0)
    assert bench.judge().verdict is Verdict.SAME
    bench.against = None
    assert bench.judge().verdict is Verdict.NO_BASELINE


def test_a_gain_that_pairs_show_is_proven_again(bench: Bench) -> None:
    """Faster than the base side: asked in a process of its own, on new inputs and on inputs that change."""
    bench.against_base(time_us=100.0)
    assert bench.judge(time_us=50.0).verdict is Verdict.FASTER
    assert len(bench.pool.visited) == len(PLACES) + 2
    result = bench.judge(time_us=50.0, remembers=2.5)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert "when they change before every call" in result.summary


def test_a_baseline_that_is_not_comparable_is_settled_by_pairs(stored: Bench) -> None:
    """A stored entry of another timer is named in a note, and the pairs decide."""
    stored.against_base(timer="graph")
    result = stored.judge(timer="graph")
    assert (result.verdict, len(result.pairs)) == (Verdict.SAME, 3)
    assert result.notes[0] == "stored baseline: not comparable: timer: graph here, host stored"


@pytest.mark.parametrize("reason", ["not there", "unsupported there"])
def test_a_case_of_this_side_only_is_held_against_the_store(stored: Bench, reason: str) -> None:
    """Where the base side lacks the case, or cannot run it, fresh processes settle a suspect as ever."""
    stored.against_base(supported=["no"] if reason == "unsupported there" else [])
    if reason == "not there":
        stored.base.cases = ()
    result = stored.judge(time_us=110.0)
    assert (result.verdict, len(result.second), result.pairs) == (Verdict.SLOWER, 3, ())
    fresh = stored.judge(case=replace(stored.case, key=replace(stored.case.key, label="new")))
    assert fresh.verdict is Verdict.NO_BASELINE


def test_a_base_side_that_raises_is_incomparable(stored: Bench) -> None:
    """Nothing is known of a change, and nothing is wrong here."""
    stored.against_base(fault="oom")
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, False)
    assert result.summary == f"not comparable: {NAME}: out of memory: tried to allocate 8.00 GiB{MEMORY_ADVICE}"


def test_this_side_raising_in_a_pair_is_an_error(stored: Bench) -> None:
    """A case that breaks in a pair is broken, whatever the base side does."""
    stored.against_base()
    stored.pool.by_place[PAIR_PLACES] = {"fault": "oom"}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert result.summary == f"this side: out of memory: tried to allocate 8.00 GiB{MEMORY_ADVICE}"


@pytest.mark.parametrize("fault", ["wrong", "late"])
def test_this_side_wrong_in_a_pair_is_incorrect(stored: Bench, fault: str) -> None:
    """A wrong result outweighs every time."""
    stored.against_base()
    stored.pool.by_place[PAIR_PLACES + 1] = {"fault": fault}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails, result.pairs) == (Verdict.INCORRECT, True, ())


@pytest.mark.parametrize(("fault", "fails"), [("", True), ("oom", False)])
def test_support_that_vanished_is_asked_of_the_base_side(bench: Bench, fault: str, fails: bool) -> None:
    """Unsupported here fails where the base side runs the case, and not where it breaks there, too."""
    bench.against_base(fault=fault)
    result = bench.judge(supported=["no such dtype"])
    assert (result.verdict, result.fails) == (Verdict.UNSUPPORTED, fails)
    assert result.summary.startswith(f"unsupported now, but {NAME} times it: " if fails else "no such dtype")


@pytest.mark.parametrize(("now_us", "crept"), [(112.0, False), (113.68, True)])
def test_pairs_see_a_creep(stored: Bench, now_us: float, crept: bool) -> None:
    """On a day that is 8 % slower, 1.5 % side by side on top of a recorded 4 % are a creep; 0 % are none."""
    stored.record(time_us=104.0)
    stored.against_base(time_us=112.0)
    result = stored.judge(time_us=now_us)
    assert (result.verdict, len(result.pairs)) == (Verdict.SAME, 3)
    assert any(note.startswith("crept: 105.") for note in result.notes) is crept

"""The session's judge over an in-memory pool (see conftest.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.baselines.writing import new_entry
from pytest_attnperf.errors import BaselineError, CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.settings import RunMode

if TYPE_CHECKING:
    from tests.session.conftest import Bench

RECORD_PLACES = list(range(100, 107))


def test_unchanged_code_takes_one_look(stored: Bench) -> None:
    """SAME is settled by the gate's own process."""
    result = stored.judge()
    assert (result.verdict, result.fails, result.second) == (Verdict.SAME, False, ())
    assert stored.pool.visited == [0]


def test_the_second_look_is_taken_elsewhere(stored: Bench) -> None:
    """SLOWER is settled by three processes, none of which made the first look."""
    result = stored.judge(time_us=110.0)
    assert result.verdict is Verdict.SLOWER
    assert stored.pool.visited == [0, 1, 2, 3]
    assert [process.process for process in result.first] == ["pid 1000"]
    assert [process.process for process in result.second] == ["pid 1001", "pid 1002", "pid 1003"]


def test_the_size_is_that_of_the_second_look(stored: Bench) -> None:
    """The first look was selected for being large; what is reported comes from the second alone."""
    stored.pool.by_place[0] = {"time_us": 150.0}
    result = stored.judge(time_us=110.0)
    assert result.verdict is Verdict.SLOWER
    assert result.first[0].median_us == pytest.approx(150, rel=0.01)
    assert result.median_us == pytest.approx(110, rel=0.01)
    assert result.ratio == pytest.approx(1.10, rel=0.01)


def test_what_the_second_look_does_not_confirm_is_same(stored: Bench) -> None:
    """One slow process is no slowdown."""
    stored.pool.by_place[0] = {"time_us": 150.0}
    result = stored.judge()
    assert (result.verdict, len(result.second)) == (Verdict.SAME, 3)


@pytest.mark.parametrize("fault", ["wrong", "late", "replay"])
def test_incorrect_in_the_second_look_wins(stored: Bench, fault: str) -> None:
    """A process of the second look that is wrong makes the case INCORRECT, without a time."""
    stored.pool.by_place[2] = {"fault": fault}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert (result.median_us, result.ratio, result.second) == (None, None, ())
    assert "40.0x the budget" in result.summary


@pytest.mark.parametrize("place", [0, 2])
def test_a_worker_that_dies_is_an_error_with_its_log(stored: Bench, place: int) -> None:
    """In either look, what the process printed last is kept beside the cause."""
    stored.pool.by_place[place] = {"error": WorkerError("killed by SIGABRT", "kernel aborted\nbye")}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert (result.summary, result.reasons) == ("killed by SIGABRT", ("killed by SIGABRT",))
    assert result.log == "kernel aborted\nbye"


def test_a_case_that_raises_is_an_error_with_its_traceback(stored: Bench) -> None:
    """The summary is the cause, the reasons hold the traceback; there is no log, for the worker lives."""
    stored.pool.by_place[0] = {"error": CaseFailedError("CUDA error: misaligned", traceback="Traceback: line 7")}
    result = stored.judge()
    assert (result.verdict, result.summary, result.log) == (Verdict.ERROR, "CUDA error: misaligned", "")
    assert result.reasons == ("CUDA error: misaligned\nTraceback: line 7",)


@pytest.mark.parametrize("place", [0, 3])
def test_code_from_another_tree_is_incomparable(stored: Bench, place: int) -> None:
    """In either look, a process that loaded another tree's kernels says nothing of this one."""
    stored.pool.by_place[place] = {"foreign": ("module kernels.x was loaded from /elsewhere",)}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.summary) == (Verdict.INCOMPARABLE, "code from another tree ran")
    assert result.reasons == ("module kernels.x was loaded from /elsewhere",)
    assert result.ratio is None


def test_code_from_another_tree_is_not_recorded(bench: Bench) -> None:
    """A baseline of another tree's code would gate this one's; the update fails instead."""
    bench.pool.by_place[104] = {"foreign": ("module kernels.x was loaded from /elsewhere",)}
    result = bench.judge(RunMode.UPDATE)
    assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, True)
    with pytest.raises(BaselineError, match="only RECORDED results"):
        new_entry(result, "c0")


def test_recording_takes_seven_processes(bench: Bench) -> None:
    """RECORDED holds every process with its proof, and was started at once."""
    result = bench.judge(RunMode.UPDATE)
    assert (result.verdict, result.fails) == (Verdict.RECORDED, False)
    assert bench.pool.visited == bench.pool.started == RECORD_PLACES
    assert len(result.first) == len(result.checks) == 7
    assert result.summary == "recorded; nothing was stored before"


def test_one_wrong_process_keeps_a_case_from_being_recorded(bench: Bench) -> None:
    """Six right processes and a wrong one are INCORRECT."""
    bench.pool.by_place[106] = {"fault": "nan"}
    result = bench.judge(RunMode.UPDATE)
    assert (result.verdict, result.fails, result.first) == (Verdict.INCORRECT, True, ())
    assert bench.pool.visited == RECORD_PLACES


def test_recording_again_names_the_change(stored: Bench) -> None:
    """What is replaced is said beside what replaces it."""
    result = stored.judge(RunMode.UPDATE, time_us=110.0)
    assert result.verdict is Verdict.RECORDED
    assert result.summary == "recorded; +10.0% against what was stored"


def test_recording_by_another_method_has_no_change(stored: Bench) -> None:
    """Times of two timers are not compared: neither a ratio nor creep, and the anchor starts again."""
    result = stored.judge(RunMode.UPDATE, time_us=300.0, timer="event")
    assert result.verdict is Verdict.RECORDED
    assert result.summary.startswith("recorded; what was stored is not comparable: timer: ")
    assert (result.ratio, result.baseline_us, result.notes) == (None, None, ())
    assert [reason.partition(":")[0] for reason in result.reasons] == ["timer"]


def test_only_incorrect_names_the_seed(stored: Bench) -> None:
    """Inputs of a check decide whether it fails; they do not decide how long a call takes."""
    wrong, slower = stored.judge(fault="wrong"), stored.judge(time_us=110.0)
    assert wrong.reproduce == f'pytest --attnperf --attnperf-seed=41 "{stored.case.nodeid}"'
    assert slower.reproduce == f'pytest --attnperf "{stored.case.nodeid}"'
    assert stored.judge(RunMode.CHECK, fault="wrong").reproduce == f'pytest --attnperf-seed=41 "{stored.case.nodeid}"'


def test_a_loosened_policy_is_noted(stored: Bench) -> None:
    """A threshold above the stored one lets more through, and says so; a tighter one does not."""
    looser = stored.judge(case=replace(stored.case, policy=Policy(threshold_percent=5)))
    assert looser.notes == ("policy loosened since the baseline: threshold_percent 2 -> 5",)
    assert stored.judge(case=replace(stored.case, policy=Policy(threshold_percent=1))).notes == ()


def test_correctness_alone_is_not_timed(stored: Bench) -> None:
    """Without --attnperf a right case is RIGHT, without a time and without looking at the store."""
    result = stored.judge(RunMode.CHECK, time_us=200.0)
    assert (result.verdict, result.median_us, result.baseline_us) == (Verdict.RIGHT, None, None)


def test_a_local_baseline_is_recorded_by_other_processes(bench: Bench) -> None:
    """With record_local the gate's own process is held against seven others, under the local root only."""
    result = bench.judge(settings={"record_local": True})
    assert (result.verdict, bench.pool.visited) == (Verdict.SAME, [0, *RECORD_PLACES])
    assert result.notes[0] == "baseline under .attnperf/local, recorded in this run, in 7 other processes"
    assert (bench.local / "fake" / "fake1" / "prefill.json").is_file()
    assert not bench.store.roots[0].exists()


def test_a_local_baseline_is_not_recorded_from_wrong_results(bench: Bench) -> None:
    """A wrong process among the seven is the case's verdict, and nothing is stored."""
    bench.pool.by_place[103] = {"fault": "wrong"}
    result = bench.judge(settings={"record_local": True})
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert not bench.local.exists()


def test_what_is_wrong_in_the_second_process_is_incorrect(stored: Bench) -> None:
    """The process that is to confirm a memory checks the case, too."""
    stored.pool.by_place[2] = {"fault": "wrong"}
    assert stored.judge(time_us=20.0, remembers=5.0).verdict is Verdict.INCORRECT


def test_what_remembers_is_not_recorded(bench: Bench) -> None:
    """A baseline of a kernel that returns old results would make every honest one slower."""
    result = bench.judge(RunMode.UPDATE, remembers=5.0)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert bench.judge(RunMode.UPDATE).verdict is Verdict.RECORDED


def test_what_ran_is_stored_and_its_change_is_named(bench: Bench) -> None:
    """A library that falls back to other kernels is named beside the slowdown it causes."""
    bench.record(kernels=["flash_fwd"])
    result = bench.judge(time_us=500.0, kernels=["softmax", "gemm"])
    assert result.verdict is Verdict.SLOWER
    assert [launch.name for launch in result.launches] == ["softmax", "gemm"]
    assert result.notes == (
        "what ran has changed since the baseline: no longer runs flash_fwd; runs softmax, which it did not; "
        "runs gemm, which it did not",
    )


def test_the_same_kernels_are_said_to_be_the_same(bench: Bench) -> None:
    """A slowdown without a change of kernels is no fallback; a case that is not slower needs no word about it."""
    bench.record(kernels=["flash_fwd"])
    (note,) = bench.judge(time_us=110.0, kernels=["flash_fwd"]).notes
    assert note.startswith("the same work was launched as when the baseline was recorded")
    assert bench.judge(kernels=["flash_fwd"]).notes == ()


def test_a_baseline_that_does_not_know_what_ran_says_nothing_of_it(stored: Bench) -> None:
    """Entries recorded where graphs cannot be read are compared by time alone."""
    assert stored.judge(kernels=["flash_fwd"]).notes == ()


def test_determinism_is_asked_for_and_reported(bench: Bench) -> None:
    """Bits are compared only on request, and the answer is part of the check."""
    asked = {"determinism_repeats": 5}
    (check,) = bench.judge(RunMode.CHECK, settings=asked).checks
    assert (check.repeats, check.bit_equal) == (5, True)
    (check,) = bench.judge(RunMode.CHECK, settings=asked, bit_equal=False).checks
    assert (check.repeats, check.bit_equal) == (5, False)
    (check,) = bench.judge(RunMode.CHECK).checks
    assert (check.repeats, check.bit_equal) == (0, None)


@pytest.mark.parametrize(
    ("canary_us", "verdict"), [(220.0, Verdict.ENVIRONMENT), (200.0, Verdict.SLOWER), (180.0, Verdict.SLOWER)]
)
def test_a_canary_that_moved_as_much_is_the_machine(stored: Bench, canary_us: float, verdict: Verdict) -> None:
    """10 % slower beside a canary 10 % slower is ENVIRONMENT; beside one that stayed, or is faster, it is SLOWER."""
    result = stored.judge(time_us=110.0, canary_us=canary_us)
    assert result.verdict is verdict
    assert [process.process for process in result.canary["gemm"]] == ["pid 1001", "pid 1002", "pid 1003"]


def test_only_the_deciding_processes_canary_counts(stored: Bench) -> None:
    """A machine that was slower in the first look only explains nothing of the second."""
    stored.pool.by_place[0] = {"canary_us": 220.0}
    assert stored.judge(time_us=110.0).verdict is Verdict.SLOWER
    first = stored.judge()
    assert (first.verdict, first.canary["gemm"][0].median_us) == (Verdict.SAME, pytest.approx(220, rel=0.01))


def test_a_calibration_measures_and_stores_nothing(stored: Bench) -> None:
    """The processes of a recording, said to be RIGHT; a wrong one among them is INCORRECT."""
    before = stored.store.find("fake", "fake1", "prefill", stored.case.key.entry)
    result = stored.judge(RunMode.CALIBRATE, time_us=120.0)
    assert (result.verdict, len(result.first), stored.pool.visited) == (Verdict.RIGHT, 7, RECORD_PLACES)
    assert result.summary == "measured in 7 processes to find their spread"
    assert stored.store.find("fake", "fake1", "prefill", stored.case.key.entry) == before
    stored.pool.by_place[106] = {"fault": "wrong"}
    assert stored.judge(RunMode.CALIBRATE).verdict is Verdict.INCORRECT


def test_a_changed_configuration_is_noted(bench: Bench) -> None:
    """What was chosen otherwise than when the baseline was recorded is said whatever the verdict."""
    bench.record(config={"split": "4"})
    assert bench.judge(config={"split": "8"}).notes == (
        "configuration differs from the baseline's: split: 8 here, 4 stored",
    )
    assert bench.judge(config={"split": "4"}).notes == ()


def test_every_process_is_pinned(bench: Bench) -> None:
    """With pin_config both looks, and both sides of every pair, run with the stored configuration; else none does."""
    bench.record(config={"split": "4"})
    bench.judge(time_us=110.0, settings={"pin_config": True})
    assert bench.pool.pins == [{"split": "4"}] * 4
    bench.against_base()
    bench.judge(time_us=110.0, settings={"pin_config": True})
    assert (bench.pool.pins, bench.base.pins) == ([{"split": "4"}] * 4, [{"split": "4"}] * 3)
    bench.judge(time_us=110.0)
    assert bench.pool.pins == [{}] * 4


def test_a_silent_fallback_is_slower_and_named(bench: Bench) -> None:
    """A library that took another path and is slower fails, and the verdict's own line says which path."""
    bench.record(config={"path": "asm"})
    result = bench.judge(time_us=500.0, config={"path": "ck"})
    assert result.verdict is Verdict.SLOWER
    assert result.summary.endswith("; another path ran: path: ck here, asm stored")
    assert result.reasons[0] == "another path ran: path: ck here, asm stored"


@pytest.mark.parametrize("time_us", [100.0, 60.0])
def test_another_path_is_never_the_same_or_faster(bench: Bench, time_us: float) -> None:
    """Times of two paths are of different kernels: the case is INCOMPARABLE until it is recorded again."""
    bench.record(config={"path": "asm"})
    result = bench.judge(time_us=time_us, config={"path": "ck"})
    assert result.verdict is Verdict.INCOMPARABLE
    assert result.summary.startswith("another path ran: path: ck here, asm stored; ")
    assert bench.judge(time_us=100.0, config={"path": "asm"}).verdict is Verdict.SAME


def test_another_path_is_never_merely_undecided(bench: Bench) -> None:
    """Where noise hides what a time means, the path is a fact all the same."""
    bench.pool.by_place = {100 + place: {"time_us": 91.0 + 3 * place} for place in range(7)}
    bench.record(config={"path": "asm"})
    assert bench.judge(time_us=104.0, config={"path": "asm"}).verdict is Verdict.UNDECIDED
    assert bench.judge(time_us=104.0, config={"path": "ck"}).verdict is Verdict.INCOMPARABLE


@pytest.mark.parametrize("places", [(1, 2, 3), (3,)])
def test_every_process_of_a_second_look_counts(bench: Bench, places: tuple[int, ...]) -> None:
    """The first look took the stored path; a fresh process that took another is named, and is no pass."""
    bench.record(config={"path": "asm"})
    bench.pool.by_place = {place: {"config": {"path": "ck"}} for place in places}
    slower = bench.judge(time_us=500.0, config={"path": "asm"})
    assert (slower.verdict, slower.reasons[0]) == (Verdict.SLOWER, "another path ran: path: ck here, asm stored")
    bench.pool.by_place = {place: {"time_us": 100.0, "config": {"path": "ck"}} for place in places}
    bench.pool.by_place |= {place: {"time_us": 100.0} for place in {1, 2, 3} - {*places}}
    result = bench.judge(time_us=103.0, config={"path": "asm"})
    assert (result.verdict, result.reasons[0]) == (Verdict.INCOMPARABLE, slower.reasons[0])


def test_what_a_case_has_loaded_is_read_before_it_is_timed(stored: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it will be: a case that is proven and not timed says nothing of its code."""
    seen: list[str] = []
    monkeypatch.setattr(plausibility, "read_ahead", lambda kernels: seen.extend(kernel.name for kernel in kernels))
    loaded = [{"name": "forward", "threads": 128, "data": ""}]
    assert stored.judge(loaded=loaded).verdict is Verdict.SAME
    assert seen == ["forward"]
    stored.judge(loaded=loaded, not_timed="on a CPU")
    stored.judge(loaded=loaded, supported=["no such head size"])
    assert seen == ["forward"]


def test_a_recording_names_another_path_and_mixes_none(bench: Bench) -> None:
    """What is replaced was another path: said beside the change of time. Of mixed processes nothing is stored."""
    bench.record(config={"path": "asm"})
    summary = "recorded; +0.0% against what was stored; another path ran: path: ck here, asm stored"
    result = bench.judge(RunMode.UPDATE, config={"path": "ck"})
    assert (result.verdict, result.summary, result.fails) == (Verdict.RECORDED, summary, False)
    seen = bench.judge(RunMode.CALIBRATE, config={"path": "ck"})
    assert seen.summary.endswith("to find their spread; another path ran: path: ck here, asm stored")
    bench.pool.by_place = {103: {"config": {"path": "triton"}}}
    for mode, fails in ((RunMode.UPDATE, True), (RunMode.CALIBRATE, False)):
        result = bench.judge(mode, config={"path": "ck"})
        assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, fails)
        assert result.summary == "not every process took the same path: path: triton here, ck in another process"


def test_a_path_of_any_pair_counts(bench: Bench) -> None:
    """Also where only the last pair's process took it, on either side."""
    bench.against_base(config={"path": "ck"})
    for pool in (bench.pool, bench.base):
        bench.pool.by_place = bench.base.by_place = {}
        pool.by_place = {1002: {"config": {"path": "asm"}}}
        result = bench.judge(config={"path": "ck"})
        assert result.verdict is Verdict.INCOMPARABLE
        assert result.summary.startswith("another path ran: path: ")


def test_a_jump_that_is_proven_on_another_path_is_no_pass(bench: Bench) -> None:
    """What was shown to be right and to follow its inputs is not what was fast."""
    bench.record(config={"path": "asm"})
    bench.pool.by_place = {1: {"config": {"path": "ck"}}}
    result = bench.judge(time_us=20.0, config={"path": "asm"})
    assert result.verdict is Verdict.INCOMPARABLE
    assert result.summary.startswith("another path ran: path: ck here, asm in the first look; ")


def test_another_path_on_both_sides_is_settled_by_pairs(bench: Bench) -> None:
    """Where the base side takes the new path too, the change under review did not cause it."""
    bench.record(config={"path": "asm"})
    bench.against_base(config={"path": "ck"})
    assert bench.judge(config={"path": "ck"}).verdict is Verdict.SAME
    bench.against_base(config={"path": "asm"})
    assert bench.judge(config={"path": "ck"}).verdict is Verdict.INCOMPARABLE


def test_bits_of_a_second_look_are_compared_with_the_first_ones(stored: Bench) -> None:
    """Its processes are added to the case's checks only where bits are compared."""
    stored.pool.by_place[2] = {"bits": "other"}
    result = stored.judge(time_us=110.0, settings={"determinism_repeats": 5})
    assert [check.bits for check in result.checks] == ["same", "same", "other", "same"]
    assert len(stored.judge(time_us=110.0).checks) == 1


def test_what_a_backend_declares_is_tried_in_the_first_look_only(stored: Bench) -> None:
    """Whatever trials the run asks for; a wrong trial makes the case INCORRECT."""
    wrong = {"trials": {"invariance": [{"ending": "wrong", "why": "other bits"}]}}
    asked = {"trials": ("invariance",)}
    result = stored.judge(settings=asked, **wrong)
    assert (result.verdict, result.reasons) == (Verdict.INCORRECT, ("other bits",))
    (check,) = stored.judge(time_us=110.0, settings=asked).checks
    assert [trial.trial for trial in check.trials] == ["invariance"]

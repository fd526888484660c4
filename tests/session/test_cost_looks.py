"""GatedCosts beside the time, judged over scripted processes (see conftest.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.session.cost_looks import CostRule, judge_costs, rejudge_costs

if TYPE_CHECKING:
    from tests.session.conftest import Bench

LIMITS = {"peak_bytes": 5.0}


def costing(peak_bytes: float, limits: dict[str, float] | None = None) -> dict[str, Any]:
    """A script's last report with this cost."""
    return {"costs": {"peak_bytes": peak_bytes}, "cost_limits": LIMITS if limits is None else limits}


def recorded(bench: Bench) -> Bench:
    """The case is stored at 100 us and 1000 bytes."""
    bench.record(final=costing(1000))
    return bench


def test_growth_is_settled_in_fresh_processes(bench: Bench) -> None:
    """Half as much memory again at the same time is GREW after three fresh processes, fails, and says by how much."""
    result = recorded(bench).judge(final=costing(1500))
    assert (result.verdict, result.fails, bench.pool.visited) == (Verdict.GREW, True, [0, 1, 2, 3])
    assert result.summary.startswith("cost peak_bytes grew by 50 %: 1500 bytes against 1000 bytes stored, 5 % allowed")
    assert [note.about for note in filter_notes(result.reasons, NoteKind.COST_GREW)] == ["peak_bytes"]
    assert (len(result.costly), result.second, result.cost_limits) == (3, (), LIMITS)


def test_what_is_allowed_takes_no_second_look(bench: Bench) -> None:
    """Less memory, or 5 % more where 5 % are allowed, is SAME after the first look."""
    recorded(bench)
    for peak_bytes in (500, 1000, 1050):
        result = bench.judge(final=costing(peak_bytes))
        assert (result.verdict, result.fails, bench.pool.visited) == (Verdict.SAME, False, [0])


def test_growth_that_fresh_processes_do_not_show_is_no_growth(bench: Bench) -> None:
    """An outlier of the first process alone, e.g. a cold cache, fails nothing."""
    recorded(bench)
    bench.pool.by_place = {0: {"final": costing(9000)}}
    result = bench.judge(final=costing(1000))
    assert (result.verdict, result.fails, len(result.costly)) == (Verdict.SAME, False, 3)


def test_a_slower_case_stays_slower_and_says_both(bench: Bench) -> None:
    """SLOWER by time keeps its verdict; the growth is a reason beside it, from the processes of the same second
    look."""
    result = recorded(bench).judge(time_us=130.0, final=costing(1500))
    assert (result.verdict, bench.pool.visited) == (Verdict.SLOWER, [0, 1, 2, 3])
    assert result.costly == ()
    assert "; cost peak_bytes grew by 50 %" in result.summary
    assert filter_notes(result.reasons, NoteKind.COST_GREW)


def test_a_faster_case_that_buys_its_time_with_memory_grew(bench: Bench) -> None:
    """A gain in time does not pay for a cost that the test gates."""
    result = recorded(bench).judge(time_us=80.0, final=costing(4000))
    assert (result.verdict, result.fails) == (Verdict.GREW, True)
    assert result.ratio is not None
    assert result.ratio < 1


def test_a_wrong_process_outweighs_costs(bench: Bench) -> None:
    """A fresh process that is wrong makes the case INCORRECT, whatever it costs."""
    recorded(bench)
    bench.pool.by_place = {2: {"fault": "wrong"}}
    assert bench.judge(final=costing(1500)).verdict is Verdict.INCORRECT


def test_an_entry_without_the_cost_is_not_compared_and_says_so(bench: Bench) -> None:
    """A cost that is gated since the entry was stored gets a note, and no verdict."""
    bench.record()
    result = bench.judge(final=costing(1500))
    assert (result.verdict, result.fails) == (Verdict.SAME, False)
    assert result.notes[-1] == "peak_bytes is not compared: the baseline has no value of it: record it again"


def test_a_looser_or_dropped_cost_is_a_finding(bench: Bench) -> None:
    """More allowed growth, or a cost that is no longer gated, is noted as loosened; a stricter one is not."""
    recorded(bench)
    said = {
        "looser": bench.judge(final=costing(1000, {"peak_bytes": 50.0})),
        "dropped": bench.judge(final={}),
        "stricter": bench.judge(final=costing(1000, {"peak_bytes": 1.0})),
    }
    notes = {name: filter_notes(result.notes, NoteKind.LOOSENED) for name, result in said.items()}
    assert [str(note) for note in notes["looser"]] == [
        "policy loosened since the baseline: cost peak_bytes 5 % -> 50 %"
    ]
    assert [str(note) for note in notes["dropped"]] == [
        "policy loosened since the baseline: cost peak_bytes 5 % -> not gated"
    ]
    assert notes["stricter"] == []


def test_a_run_that_stores_nothing_compares_no_costs(bench: Bench) -> None:
    """Without a baseline a case is NO_BASELINE, as without costs."""
    assert bench.judge(final=costing(1500)).verdict is Verdict.NO_BASELINE


def test_a_results_file_cannot_loosen_what_is_stored(bench: Bench) -> None:
    """Judged again, the entry's limits count: a file that allows more, or names no cost, is GREW all the same."""
    grown = recorded(bench).judge(final=costing(1500))
    found = bench.store.find("fake", "fake1", "prefill", bench.case.key.entry)
    assert found is not None
    plain = replace(grown, verdict=Verdict.SAME, reasons=(), notes=(), cost_limits={"peak_bytes": 900.0})
    again = rejudge_costs(plain, found, 1, 0.01)
    assert (again.verdict, again.fails) == (Verdict.GREW, True)
    assert rejudge_costs(replace(plain, cost_limits={}), found, 1, 0.01).verdict is Verdict.GREW


def test_growth_without_a_second_look_is_undecided_and_fails(bench: Bench) -> None:
    """A results file whose fresh processes were left out does not pass."""
    grown = recorded(bench).judge(final=costing(1500))
    found = bench.store.find("fake", "fake1", "prefill", bench.case.key.entry)
    assert found is not None
    cut = replace(grown, verdict=Verdict.SAME, reasons=(), costly=())
    again = judge_costs(cut, found, CostRule(1, 0.01))
    assert (again.verdict, again.fails) == (Verdict.UNDECIDED, True)
    assert again.summary.endswith("but in 1 of the 4 processes that are needed")


def test_gated_memory_has_no_second_note(bench: Bench) -> None:
    """Peak memory that the test gates is told once, by its cost; ungated, more than a tenth of it gets a note."""
    bench.record(final={"peak_memory_bytes": 1000, **costing(1000)})
    gated = bench.judge(final={"peak_memory_bytes": 1500, **costing(1500)})
    ungated = bench.judge(final={"peak_memory_bytes": 1500})
    assert [any("peak memory grew" in note for note in result.notes) for result in (gated, ungated)] == [False, True]


def test_growth_with_another_toolchain_is_the_environments(bench: Bench) -> None:
    """Another torch may allocate otherwise: the growth is told, and nothing fails unless the run is strict."""
    recorded(bench)
    bench.pool.machine = Fingerprint(bench.pool.machine.must_match, {"driver": "2"})
    result = bench.judge(final=costing(1500))
    assert (result.verdict, result.fails) == (Verdict.ENVIRONMENT, False)
    assert result.summary.startswith("cost peak_bytes grew by 50 %")
    assert result.summary.endswith("but the toolchain changed: driver: 2 here, 1 stored")
    assert [note.about for note in filter_notes(result.reasons, NoteKind.TOOLCHAIN)]


def test_costs_of_an_entry_that_is_not_comparable_are_not_compared(bench: Bench) -> None:
    """On another power cap pairs with the base side decide the time; the stored costs say nothing here, also when the
    results are judged again."""
    recorded(bench)
    bench.pool.machine = Fingerprint({**bench.pool.machine.must_match, "power_cap_w": "300"}, {"driver": "1"})
    bench.base.machine = bench.pool.machine
    bench.against_base(everything=True)
    result = bench.judge(final=costing(1500))
    assert (result.verdict, result.fails, result.costly) == (Verdict.SAME, False, ())
    found = bench.store.find("fake", "fake1", "prefill", bench.case.key.entry)
    assert found is not None
    assert rejudge_costs(result, found, 1, 0.01) == result


def test_growth_fails_whatever_may_fail_by_time(bench: Bench) -> None:
    """A policy by which SLOWER passes does not hide the growth beside it."""
    case = replace(bench.case, policy=Policy(fail_on=()))
    bench.record(case, final=costing(1000))
    assert bench.judge(case=case, time_us=130.0, final=costing(1000)).fails is False
    result = bench.judge(case=case, time_us=130.0, final=costing(1500))
    assert (result.verdict, result.fails) == (Verdict.SLOWER, True)


def test_a_run_of_what_changed_times_cases_that_gate_costs(bench: Bench) -> None:
    """The same machine code may be called with more memory: a case with costs is timed, and GREW."""
    kernels = [{"name": "attention", "isa_hash": "a" * 40}]
    bench.record(kernels=kernels, final=costing(1000))
    settings = {"changed_only": True}
    same = bench.judge(settings=settings, kernels=kernels, final=costing(1000))
    assert (same.verdict, same.unchanged) == (Verdict.SAME, False)
    assert bench.judge(settings=settings, kernels=kernels, final=costing(1500)).verdict is Verdict.GREW


def test_several_costs_are_named_in_the_summary_and_told_in_reasons(bench: Bench) -> None:
    """The summary has their growth only: each reason has all of one cost's figures."""
    limits = {"peak_bytes": 0.0, "allocations": 0.0}
    bench.record(final={"costs": {"peak_bytes": 1000, "allocations": 1}, "cost_limits": limits})
    result = bench.judge(final={"costs": {"peak_bytes": 1500, "allocations": 3}, "cost_limits": limits})
    assert result.summary == "cost peak_bytes grew by 50 %; cost allocations grew by 200 %"
    assert [str(reason).partition(":")[0] for reason in result.reasons[:2]] == result.summary.split("; ")


def test_many_costs_need_more_processes(bench: Bench) -> None:
    """In a run of 100 cases growth must show in 9 processes, so that chance fails at most 1 run in 100; the first one
    that is no worse than what is stored ends the search."""
    recorded(bench)
    settings = {"cases": 100}
    grown = bench.judge(settings=settings, final=costing(1500))
    assert (grown.verdict, len(grown.first), len(grown.costly)) == (Verdict.GREW, 1, 8)
    bench.pool.by_place = {2: {"final": costing(1000)}}
    chance = bench.judge(settings=settings, final=costing(1500))
    assert (chance.verdict, chance.fails, len(chance.costly)) == (Verdict.SAME, False, 3)


def test_a_file_with_too_few_processes_is_undecided(bench: Bench) -> None:
    """Judged again beside 99 other cases, four processes are not enough, and the case fails."""
    grown = recorded(bench).judge(final=costing(1500))
    found = bench.store.find("fake", "fake1", "prefill", bench.case.key.entry)
    assert found is not None
    again = rejudge_costs(replace(grown, verdict=Verdict.SAME, reasons=()), found, 100, 0.01)
    assert (again.verdict, again.fails) == (Verdict.UNDECIDED, True)
    assert again.summary.endswith("but in 4 of the 9 processes that are needed")

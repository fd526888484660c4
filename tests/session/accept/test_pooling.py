"""Pooling recordings of several machines: what an entry then holds, and all that keeps a case or a file out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import merge_entries
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    Launch,
    ProcessSummary,
    Samples,
    Tolerance,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.records.gpus import GpuRecord
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.accept.pooling import (
    NamedRun,
    Pooled,
    find_creep_since,
    list_ambiguous_cards,
    pool_recordings,
)
from pytest_attnperf.stats.summaries import summarise_process

KEY = CaseKey("prefill", "triton.flash", "prefill-b1-s64-h1-d16-f16")
DEVICE = DeviceInfo("cuda", "sm_90", "h200", compute_units=132)
HERE = Fingerprint(
    {"arch": "sm_90", "product": "h200", "timer": "graph", "power_cap_w": "700"},
    {"torch": "2.11.0", "driver": "570", "kernel": "6.8"},
)
FIGURES = WorkloadFigures(1.0, 1.0, "f16", "hot", {"heads": 1})
RIGHT = CheckReport(
    (ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4, elements=64),), truth={"out": (1.0, 0.5), "drawn": (1, 1)}
)


def look(median_us: float, count: int, card: str = "GPU-a", first: int = 0) -> tuple[ProcessSummary, ...]:
    """So many processes around a time, each of five blocks that no other has."""
    return tuple(
        replace(
            summarise_process(
                Samples(tuple(median_us * (1 + step * 1e-3 + pid * 1e-4) for step in range(-2, 3)), 20, "graph")
            ),
            device_id=card,
            process=f"pid {pid}",
        )
        for pid in range(first, first + count)
    )


def measured(machine: int, median_us: float = 100.0, count: int = 4, **changes: Any) -> CaseResult:
    """What a calibration on that machine gives: its own card, processes and canary."""
    plain = CaseResult(
        KEY,
        "suites/test_prefill.py::test_prefill[a]",
        Verdict.RIGHT,
        "measured",
        first=look(median_us, count, f"GPU-{machine}", 10 * machine),
        checks=(RIGHT,) * count,
        figures=FIGURES,
        policy=Policy().to_record(),
        fingerprint=HERE,
        config={"BLOCK_M": "64"},
        launches=(Launch("attend", grid=(4, 1, 1)),),
        canary={"gemm": look(50.0, count, f"GPU-{machine}", 10 * machine)},
        peak_memory_bytes=1000 * (machine + 1),
        source_id="5e1f",
    )
    return replace(plain, **changes)


def recorded(machine: int, *cases: CaseResult, **changes: Any) -> NamedRun:
    """The recording of a machine, begun on a day of its own; without `cases` of one case."""
    run = RunResult(
        RESULTS_SCHEMA,
        "0.1.0",
        "calibrate",
        f"2026-11-{30 - machine}T10:00:00+00:00",
        "",
        "4f2c1ab90d11",
        DEVICE,
        HERE,
        cases or (measured(machine),),
        run_id=f"run {machine}",
    )
    return NamedRun(f"{'ab'[machine]}.json", replace(run, **changes))


def pooled_with(**changes: Any) -> Pooled:
    """The first machine's recording of the case, pooled with a second one that differs in this."""
    return pool_recordings([recorded(0), recorded(1, measured(1, **changes))])


def reason_of(pooled: Pooled) -> str:
    """Why the only case is not pooled."""
    (refused,) = pooled.refused
    assert refused.key == KEY
    return refused.reason


def test_an_entry_has_all_processes() -> None:
    """Processes, proofs and canaries follow each other; errors and memory are the worst, the day is the newest."""
    worse = replace(RIGHT, figures=(replace(RIGHT.figures[0], max_error=1.5e-3),))
    pooled = pool_recordings([recorded(0), recorded(1, measured(1, checks=(*(RIGHT,) * 3, worse)), mode="update")])
    (case,) = pooled.cases
    assert (pooled.refused, pooled.untimed) == ((), 0)
    assert (case.recordings, case.cards) == (2, 2)
    record = case.record
    assert record.measurement.processes == (*look(100.0, 4, "GPU-0"), *look(100.0, 4, "GPU-1", 10))
    assert record.measurement.proof[-1] == worse
    assert record.canary == {"gemm": (*look(50.0, 4, "GPU-0"), *look(50.0, 4, "GPU-1", 10))}
    assert record.measurement.peak_memory_bytes == 2000
    assert (record.recorded, record.commit, record.harness_version) == ("2026-11-30", "4f2c1ab90d11", "0.1.0")
    assert (record.source_id, record.config, record.fingerprint) == ("5e1f", {"BLOCK_M": "64"}, HERE)


def test_what_follows_from_samples_is_computed_anew() -> None:
    """A time, a floor and a verdict that a file claims change nothing that is stored."""
    lying = recorded(0, measured(0, median_us=100.0, floor_us=1e-3, floor_bound="neither", ratio=0.5))
    honest = pool_recordings([recorded(0), recorded(1)])
    assert pool_recordings([lying, recorded(1)]).cases == honest.cases


DIFFERENCES: dict[str, tuple[dict[str, Any], str]] = {
    "machine state": (
        {"fingerprint": replace(HERE, must_match={**HERE.must_match, "power_cap_w": "500"})},
        "power_cap_w: 700 here, 500 there",
    ),
    "torch": ({"fingerprint": replace(HERE, named={**HERE.named, "torch": "2.10.0"})}, "torch: 2.11.0 here, 2.10.0 "),
    "driver": ({"fingerprint": replace(HERE, named={**HERE.named, "driver": "580"})}, "driver: 570 here, 580 there"),
    "unnamed": ({"fingerprint": replace(HERE, named={"torch": "2.11.0"})}, "driver: 570 here, absent there; kernel"),
    "definition": ({"figures": replace(FIGURES, definition={"heads": 2})}, "workload heads: 1 here, 2 there"),
    "work": ({"figures": replace(FIGURES, flops=2.0)}, "workload flops: 1.0 here, 2.0 there"),
    "policy": ({"policy": Policy(threshold_percent=5.0).to_record()}, "policy threshold_percent: 2.0 here, 5.0 there"),
    "cost": ({"cost_limits": {"host_us": 20.0}}, "limit of cost host_us: absent here, 20.0 there"),
    "settings": (
        {"first": tuple(replace(one, settings="tf32") for one in look(100.0, 4, first=10))},
        "settings of torch: none here, tf32 there",
    ),
    "tolerance": ({"checks": (replace(RIGHT, tolerance=Tolerance(3.0, "a paper")),) * 4}, "tolerance: 2 here, 3 there"),
    "sources": ({"source_id": "77aa"}, "source_id: 5e1f here, 77aa there"),
    "unknown sources": ({"source_id": ""}, "source_id: 5e1f here, none there"),
    "configuration": ({"config": {"BLOCK_M": "128"}}, "BLOCK_M: 64 here, 128 there"),
    "launches": ({"launches": (Launch("other"),)}, "launches, there -> here: no longer runs other"),
    "truth": (
        {"checks": (replace(RIGHT, truth={"out": (1.0, -0.5), "drawn": (1.0, 1.0)}),) * 4},
        "the same seed gives other values here and there: out",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_processes_of_two_things_are_no_entry(name: str) -> None:
    """A case whose recordings differ in anything that an entry stores once is refused, with both sides' values."""
    changes, text = DIFFERENCES[name]
    pooled = pooled_with(**changes)
    assert pooled.cases == ()
    assert reason_of(pooled).startswith(f"a.json (here) and b.json (there) differ: {text}")


def test_values_that_each_process_draws_are_not_compared() -> None:
    """A digest that differs between processes of one recording says nothing of the other."""
    drawn = tuple(replace(RIGHT, truth={**RIGHT.truth, "drawn": (1.0, float(number))}) for number in range(4))
    assert pooled_with(checks=drawn).refused == ()


FOREIGN = Note(NoteKind.FOREIGN, "k.py")
WRONG = CheckReport(RIGHT.figures, ("seed 1: 'out' is wrong",))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"verdict": Verdict.INCORRECT}, f"in b.json: {KEY} is INCORRECT: the time of a wrong result is never stored"),
        ({"verdict": Verdict.SUSPICIOUS}, f"in b.json: {KEY} is SUSPICIOUS: a time that cannot be true"),
        ({"verdict": Verdict.UNSUPPORTED, "first": ()}, f"in b.json: {KEY} is UNSUPPORTED: nothing ran"),
        ({"verdict": Verdict.INCOMPARABLE, "reasons": (FOREIGN,)}, f"in b.json: {KEY}: code from another tree ran"),
        ({"first": (), "checks": (RIGHT,)}, f"in b.json: {KEY} was not timed and gated in this run"),
        ({"checks": (*(RIGHT,) * 3, WRONG)}, f"in b.json: {KEY} is not proven right: seed 1: 'out' is wrong"),
        (
            {"checks": (RIGHT,) * 3},
            f"in b.json: {KEY}: its figures are invalid (4 processes were measured, but 3 were checked)",
        ),
        ({"first": look(100.0, 3, first=10) * 2, "checks": (RIGHT,) * 6}, "contradict each other: the same process tw"),
        ({"figures": replace(FIGURES, flops=1e15)}, f"in b.json: {KEY} is SUSPICIOUS: a time that cannot be true"),
        (
            {"policy": {"threshold_percent": -1}},
            f"in b.json: {KEY}: the results' policy is invalid: policy threshold_percent is -1",
        ),
    ],
)
def test_a_part_that_could_not_be_stored_refuses_the_case(changes: dict[str, Any], text: str) -> None:
    """The reason names the file; the other recording's processes are not stored without it."""
    pooled = pooled_with(**changes)
    assert pooled.cases == ()
    assert text in reason_of(pooled)


def test_few_processes_are_no_baseline() -> None:
    """Six are refused, seven stored; also where only one machine has the case."""
    few = pool_recordings([recorded(0), recorded(1, measured(1, count=2))])
    assert reason_of(few).startswith("6 processes in 2 of the recordings, at least 7 needed; add recordings, or ")
    assert len(pool_recordings([recorded(0), recorded(1, measured(1, count=3))]).cases) == 1
    other = replace(measured(1, count=7), key=replace(KEY, label="wide"))
    (alone,) = pool_recordings([recorded(0), recorded(1, other)]).cases
    assert (alone.result.key, alone.recordings, alone.cards) == (other.key, 1, 1)


def test_what_no_machine_timed_is_counted() -> None:
    """Unsupported and only proven cases are no failure where all recordings agree in that."""
    never = [
        (replace(measured(number, first=(), **changes), key=replace(KEY, label=label)))
        for number in (0, 1)
        for label, changes in (("none", {"verdict": Verdict.UNSUPPORTED}), ("proof", {"checks": (RIGHT,)}))
    ]
    pooled = pool_recordings([recorded(0, measured(0), *never[:2]), recorded(1, measured(1), *never[2:])])
    assert (len(pooled.cases), pooled.refused, pooled.untimed) == (1, (), 2)


SAME_NAME = replace(measured(1), key=CaseKey(KEY.suite, f"{KEY.backend}/{KEY.workload}", ""))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "gate"}, r"b\.json: a run of mode 'gate' is no recording; each machine runs pytest --attnperf-calib"),
        ({"complete": False}, r"b\.json: the results are of a run that was interrupted"),
        ({"device": None}, r"b\.json: the results name no device"),
        ({"started": "today"}, r"b\.json: the results' start time 'today' is not a date"),
        ({"commit": "4f2c1ab90d11+dirty"}, r"b\.json: its commit is '4f2c1ab90d11\+dirty', so that nobody could tell"),
        ({"commit": ""}, r"b\.json: its commit is '', so that nobody could tell later what was recorded; commit all"),
        ({"commit": "unknown"}, r"b\.json: its commit is 'unknown'"),
        ({"run_id": ""}, r"b\.json: it does not say which run it is of"),
        ({"run_id": "run 0"}, r"a\.json and b\.json are results of the same run, whose processes would count twice"),
        ({"commit": "0123abcdef12"}, r"not of one commit: '4f2c1ab90d11' and '0123abcdef12'; pool recordings of one"),
        ({"device": replace(DEVICE, product="h100")}, "not of one product: 'sm_90/h200' and 'sm_90/h100'"),
        ({"version": "0.2.0"}, r"not of one version: '0\.1\.0' and '0\.2\.0'"),
        ({"cases": (measured(1), measured(1))}, r"b\.json: it holds 'prefill/triton.flash/.*' twice"),
        ({"cases": (measured(1), SAME_NAME)}, r"b\.json: it holds 'prefill/triton.flash/.*' twice"),
    ],
)
def test_files_that_are_not_of_one_recording_are_refused(changes: dict[str, Any], text: str) -> None:
    """One such file refuses all, because none of its cases can be trusted; the message names it."""
    with pytest.raises(UsageError, match=text):
        pool_recordings([recorded(0), recorded(1, **changes)])


def test_one_file_is_not_pooled() -> None:
    """It is stored on its machine."""
    with pytest.raises(
        UsageError, match=r"only one results file was given; .* at least two recordings.*--update-baselines"
    ):
        pool_recordings([recorded(0)])


def test_a_copied_process_is_found() -> None:
    """The blocks of one process under another run's id, card and number are refused; so is a process whose few
    different values prove nothing, by its number and card. Equal short values of two processes are chance."""
    honest = measured(0).first
    renamed = tuple(replace(one, device_id="GPU-1", process=f"pid {70 + n}") for n, one in enumerate(honest))
    flat = [replace(summarise_process(Samples((5.0,) * 5, 20, "graph")), process=f"pid {n}") for n in (1, 2)]
    text = r"the same process stands in both a\.json and b\.json, block for block"
    copied = [(honest, renamed), (honest, (*look(100.0, 3, "GPU-1", 10), honest[2])), ((flat[0],), (flat[0],))]
    for ours, theirs in copied:
        with pytest.raises(UsageError, match=text):
            pool_recordings([recorded(0, measured(0, first=ours)), recorded(1, measured(1, first=theirs))])
    pool_recordings([recorded(0, measured(0, first=(flat[0],))), recorded(1, measured(1, first=(flat[1],)))])


def test_two_cards_of_one_name_are_found() -> None:
    """An AMD card's id is its address in the machine: a card of another machine may have it, a second run of the same
    machine has it for the same card."""
    gpus = [(GpuRecord("0000:05:00.0", uuid=uuid), GpuRecord("0000:15:00.0")) for uuid in ("1a", "2b")]
    first, same, other = (recorded(0, gpus=gpus[number]) for number in (0, 0, 1))
    assert list_ambiguous_cards([first, other]) == ["0000:05:00.0"]
    assert list_ambiguous_cards([first, same]) == []


def test_creep_is_told_and_the_anchor_stays(tmp_path: Path) -> None:
    """As --update-baselines does it: a slower entry keeps the old anchor, and a note says how far it is from there."""
    store = BaselineStore(tmp_path)
    notes = []
    for median_us in (100.0, 107.0):
        (case,) = pool_recordings([recorded(number, measured(number, median_us)) for number in (0, 1)]).cases
        notes.append(find_creep_since(case, store.find("sm_90", "h200", KEY.suite, KEY.entry)))
        merge_entries(store, tmp_path, "sm_90", "h200", KEY.suite, {KEY.entry: case.record})
    stored = store.find("sm_90", "h200", KEY.suite, KEY.entry)
    assert stored is not None
    assert stored.entry.anchor is not None
    assert stored.entry.anchor.median_us == pytest.approx(100.0, rel=0.01)
    assert notes[0] == []
    assert [note.startswith("crept: 107.1 us against 100.1 us") for note in notes[1]] == [True]

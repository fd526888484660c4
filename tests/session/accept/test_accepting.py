"""Accepting a change from a result that is there: what is taken over, and everything that is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.schema import content_id
from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
from pytest_attnperf.baselines.writing import NewEntry, merge_entries, replace_entries
from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.gate.comparable import find_creep
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    Launch,
    Measurement,
    ProcessSummary,
    Samples,
    Tolerance,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.accept.accepting import Accepted, Request, accept
from pytest_attnperf.session.case_records import with_path
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.workers.interleave import InterleavePlan
from tests.session.conftest import Bench

KEY = CaseKey("prefill", "triton.flash", "prefill-b1-s64-h1-d16-f16")
DEVICE = DeviceInfo("cuda", "sm_90", "h200", compute_units=132)
HERE = Fingerprint({"arch": "sm_90", "product": "h200", "timer": "graph"}, {"driver": "570"})
WORKLOAD = {"heads": 1}
OLD_LAUNCH, NEW_LAUNCH = Launch("attend", grid=(4, 1, 1)), Launch("attend_wide", grid=(2, 1, 1))
RIGHT = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4, elements=64),))
ASKED = Request("exact softmax", "Ada", "2026-12-01")


def process(median_us: float, number: int = 0) -> ProcessSummary:
    """One process of five blocks; no two numbers have the same."""
    return summarise_process(
        Samples(tuple(median_us * (1 + step * 1e-3 + number * 1e-4) for step in range(-2, 3)), 20, "graph")
    )


def look(median_us: float, count: int) -> tuple[ProcessSummary, ...]:
    """So many processes around a time."""
    return tuple(process(median_us, number) for number in range(count))


def pairs(ratio: float, count: int) -> tuple[PairSummary, ...]:
    """So many pairs of that ratio, each a little off; the absolute times of turns are another thing."""
    quads = [tuple(ratio * (1 + step * 1e-4 + number * 1e-6) for step in range(-2, 3)) for number in range(count)]
    return tuple(PairSummary(ratio, 90.0, 90.0 * ratio, 5, "graph", each) for each in quads)


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    """One case recorded at 100 us, and again at 104: the anchor stayed at 100."""
    found = BaselineStore(tmp_path)
    for day, median_us in ((1, 100.0), (2, 104.0)):
        entry = NewEntry(
            Measurement(look(median_us, 7), (RIGHT,) * 7),
            WORKLOAD,
            HERE,
            Policy().to_record(),
            f"2026-01-0{day}",
            "0.1.0",
            f"commit{day}",
            {"BLOCK_M": "64"},
            (OLD_LAUNCH,),
            "noted",
            canary={"gemm": look(50.0, 7)},
        )
        merge_entries(found, tmp_path, DEVICE.arch, DEVICE.product, KEY.suite, {KEY.entry: entry})
    return found


@pytest.fixture
def found(store: BaselineStore) -> StoredEntry:
    """What is stored of the case."""
    return stored(store)


def stored(store: BaselineStore) -> StoredEntry:
    """What is stored of the case now."""
    entry = store.find(DEVICE.arch, DEVICE.product, KEY.suite, KEY.entry)
    assert entry is not None
    return entry


def case(found: StoredEntry, **changes: Any) -> CaseResult:
    """A gated result that was held against the entry: SLOWER by 10 % in a second look of 7 processes."""
    plain = CaseResult(
        KEY,
        "suites/test_prefill.py::test_prefill[a]",
        Verdict.SLOWER,
        "slower",
        ratio=1.1,
        first=look(115.0, 1),
        second=look(114.4, 7),
        checks=(RIGHT,),
        figures=WorkloadFigures(1.0, 1.0, "f16", "hot", WORKLOAD),
        policy=Policy().to_record(),
        fingerprint=HERE,
        config={"BLOCK_M": "64"},
        launches=(OLD_LAUNCH,),
        stored_us=tuple(one.median_us for one in found.entry.processes),
        stored_commit=found.entry.commit,
        stored_at=found.entry.recorded,
    )
    return replace(plain, **changes)


def same_in_time(found: StoredEntry, ratio: float, **changes: Any) -> CaseResult:
    """A result whose one process is that ratio of the stored time; what the file says of it is another."""
    return case(found, verdict=Verdict.SAME, ratio=1.5, first=look(104.03 * ratio, 1), second=(), **changes)


def run(*cases: CaseResult, mode: str = "gate", **changes: Any) -> RunResult:
    """A whole run of these on the day the change was measured."""
    plain = RunResult(RESULTS_SCHEMA, "0.1.0", mode, "2026-11-30T10:00:00+00:00", "", "commit3", DEVICE, HERE, cases)
    return replace(plain, **changes)


def put(store: BaselineStore, accepted: Accepted) -> StoredEntry:
    """The entry after it was stored."""
    new = {KEY.entry: accepted.replacement}
    replace_entries(store, store.roots[0], DEVICE.arch, DEVICE.product, KEY.suite, new)
    return stored(store)


def accepted_of(found: StoredEntry, one: CaseResult, asked: Request = ASKED, mode: str = "gate") -> Accepted:
    """What accepting that case of a run of its own would store."""
    return accept(run(one, mode=mode), one, found, asked)


def test_a_second_look_of_seven_replaces_the_entry(store: BaselineStore, found: StoredEntry) -> None:
    """Its processes alone are stored, with the reason, who said so, the old figures, and a new anchor."""
    accepted = accepted_of(found, case(found, config={"BLOCK_M": "128"}, launches=(NEW_LAUNCH,)))
    line = accepted.describe_acceptance(KEY)
    assert line == f"{KEY}: 104.0 us -> 114.4 us (+10.0 %; 7 processes), accepted by Ada: exact softmax"
    now = put(store, accepted)
    assert now.entry.to_measurement().medians_us == tuple(one.median_us for one in look(114.4, 7))
    assert (now.entry.recorded, now.entry.commit, now.entry.note) == ("2026-11-30", "commit3", "noted")
    (told,) = now.entry.accepted
    assert (told.reason, told.author, told.date, told.how) == ("exact softmax", "Ada", "2026-12-01", "7 processes")
    assert (told.old_commit, told.old_recorded, told.commit) == ("commit2", "2026-01-02", "commit3")
    assert (told.before_us, told.after_us) == (found.entry.to_measurement().medians_us[3], 114.43)
    assert any("attend_wide" in change for change in told.changes)
    assert "BLOCK_M: 128 here, 64 stored" in told.changes
    assert now.entry.anchor is not None
    assert (now.entry.anchor.median_us, now.entry.anchor.acknowledged) == (114.43, "exact softmax")
    assert now.entry.summary.endswith("from commit3, accepted 2026-12-01 (7 processes): exact softmax")


def test_pairs_scale_the_stored_processes(store: BaselineStore, found: StoredEntry) -> None:
    """Eight pairs multiply every stored time by their ratio; the entry stays one of its own machine state and day's."""
    later = Fingerprint(HERE.must_match, {"driver": "581"})
    by_pairs = case(found, first=look(200.0, 1), second=(), pairs=pairs(1.05, 8), fingerprint=later, against="main")
    accepted = accepted_of(found, by_pairs)
    assert accepted.acceptance.how == "8 pairs, stored processes scaled by 1.05"
    now = put(store, accepted)
    assert now.entry.to_measurement().medians_us == pytest.approx(
        [1.05 * us for us in found.entry.to_measurement().medians_us], rel=5e-5
    )
    assert now.entry.processes[0].block_us[0] == pytest.approx(1.05 * found.entry.processes[0].block_us[0], rel=5e-5)
    assert (now.fingerprint, now.entry.commit) == (HERE, "commit3")


def test_interleaving_everything_names_the_entry(bench: Bench) -> None:
    """Pairs of every case tell which entry there is, so that a slowdown that they find is accepted from them."""
    bench.record()
    bench.against_base(everything=True).plan = InterleavePlan(pairs=8, quads=8)
    slower = bench.judge(time_us=105.0)
    assert (slower.verdict, len(slower.pairs), slower.stored_commit) == (Verdict.SLOWER, 8, "c0")
    told = enumerate(slower.pairs)  # the fake measures every pair alike, which no device does
    apart = (replace(pair, quad_ratios=tuple(q * (1 + n * 1e-5) for q in pair.quad_ratios)) for n, pair in told)
    slower = replace(slower, pairs=tuple(apart))
    device = bench.pool.wait_until_ready(0).device
    found = bench.store.find(device.arch, device.product, slower.key.suite, slower.key.entry)
    assert found is not None
    accepted = accept(run(slower, device=device), slower, found, ASKED)
    assert accepted.acceptance.how.startswith("8 pairs, stored processes scaled by 1.0")
    assert accepted.acceptance.after_us == pytest.approx(105.0, rel=0.005)


def test_a_calibration_is_enough_and_may_be_the_first(found: StoredEntry) -> None:
    """Seven processes that nobody selected replace an entry, or make the first, which is then held as accepted."""
    measured = case(found, verdict=Verdict.RIGHT, first=look(110.0, 7), second=(), baseline_us=104.03)
    accepted = accepted_of(found, measured, mode="calibrate")
    assert accepted.replacement.entry.processes == look(110.0, 7)
    first = accept(run(measured, mode="calibrate"), measured, None, ASKED)
    assert (first.replacement.before, first.acceptance.before_us) == (None, None)
    assert "110.0 us, nothing was stored before (7 processes), accepted by Ada" in first.describe_acceptance(KEY)


def test_a_recording_that_is_stored_already_is_acknowledged(store: BaselineStore, found: StoredEntry) -> None:
    """Accepting what --update-baselines has just stored moves the anchor alone, and tells the old one."""
    recorded = case(found, verdict=Verdict.RECORDED, first=found.entry.processes, second=(), baseline_us=100.0)
    assert find_creep(found.entry, 1.02, Policy(), "t") is not None
    accepted = accepted_of(found, recorded, mode="update")
    assert (accepted.acceptance.before_us, accepted.acceptance.old_commit) == (100.03, "commit1")
    now = put(store, accepted)
    assert now.entry.processes == found.entry.processes
    assert find_creep(now.entry, 1.02, Policy(), "t") is None
    with pytest.raises(UsageError, match=r"which is not slower than its anchor .*nothing to accept"):
        accepted_of(now, replace(recorded, first=now.entry.processes), mode="update")


def test_a_changed_identity_keeps_the_time(store: BaselineStore, found: StoredEntry) -> None:
    """SAME in time by one process gives its launches, configuration and commit, and leaves times and anchor."""
    same = same_in_time(found, 1.004, config={"path": "asm"}, launches=(NEW_LAUNCH,))
    accepted = accepted_of(found, same)
    assert (accepted.acceptance.how, accepted.notes) == ("identity only", ())
    assert "us as before (identity only)" in accepted.describe_acceptance(KEY)
    now = put(store, accepted)
    assert (now.entry.launches, now.entry.config, now.entry.commit) == ((NEW_LAUNCH,), {"path": "asm"}, "commit3")
    assert (now.entry.processes, now.entry.anchor) == (found.entry.processes, found.entry.anchor)
    assert now.entry.recorded == "2026-01-02"


def test_another_path_is_an_identity(found: StoredEntry) -> None:
    """INCOMPARABLE by its path alone is accepted where its time is the stored one, and not where it is not."""
    same = same_in_time(found, 1.004, config={"path": "asm"})
    by_path = with_path(same, [({"path": "ck"}, {"path": "asm"})])
    assert by_path.verdict is Verdict.INCOMPARABLE
    assert accepted_of(found, by_path).acceptance.how == "identity only"
    with pytest.raises(UsageError, match=r"needs at least 7 processes or pairs: there are 0 processes in its second"):
        accepted_of(found, replace(by_path, first=look(94.0, 1)))


def test_creep_is_acknowledged_without_a_new_time(store: BaselineStore, found: StoredEntry) -> None:
    """SAME against its entry, but crept since the anchor: the anchor moves, said in words, and the guard is quiet."""
    same = same_in_time(found, 1.015)
    assert find_creep(found.entry, 1.015, Policy(), same.nodeid) is not None
    accepted = accepted_of(found, same)
    assert accepted.acceptance.how == "time kept"
    assert accepted.notes == ("the anchor moves from 100.0 us, 2026-01-01, to 104.0 us",)
    assert find_creep(put(store, accepted).entry, 1.015, Policy(), same.nodeid) is None
    with pytest.raises(UsageError, match="it has not crept; there is nothing to accept"):
        accepted_of(found, same_in_time(found, 1.0))


def test_creep_that_only_the_run_found_is_acknowledged(found: StoredEntry) -> None:
    """A run by a tighter creep_percent than the stored one tells a finding, and accepting it is not refused."""
    same = same_in_time(found, 1.0)
    with pytest.raises(UsageError, match="it has not crept"):
        accepted_of(found, same)
    tighter = replace(same, policy=Policy(creep_percent=3.0).to_record())
    assert accepted_of(found, tighter).acceptance.how == "time kept"


LIES: dict[str, Any] = {
    "ratio": 0.5,
    "median_us": 52.0,
    "interval": (0.49, 0.51),
    "threshold": 9.0,
    "baseline_us": 1.0,
    "floor_us": 1e-3,
    "floor_bound": "neither",
}


@pytest.mark.parametrize(
    "samples",
    [{}, {"second": (), "pairs": pairs(1.05, 8)}, {"verdict": Verdict.SAME, "first": look(104.4, 1), "second": (),
                                                   "config": {"path": "asm"}}],
    ids=["processes", "pairs", "identity"],
)  # fmt: skip
def test_nothing_is_taken_from_a_file_that_its_samples_say(found: StoredEntry, samples: dict[str, Any]) -> None:
    """Whatever time, ratio, limit and floor a file claims, what is stored is made of its samples."""
    honest = case(found, **samples)
    lying = replace(honest, verdict=Verdict.FASTER, **LIES)
    assert accepted_of(found, lying) == accepted_of(found, honest)


def test_long_and_unprintable_names_are_kept_as_short_lines(store: BaselineStore, found: StoredEntry) -> None:
    """What changed is one printable line each in the entry, whatever a library calls its kernels."""
    odd = Launch("attend<" + "T, " * 400 + "\x1b[31m>", grid=(2, 1, 1))
    now = put(store, accepted_of(found, case(found, launches=(odd,), config={"BLOCK_M": "1\u202e2"})))
    changes = now.entry.accepted[-1].changes
    assert any("BLOCK_M: 1?2 here" in change for change in changes)
    assert all(change.isprintable() and len(change) <= 300 for change in changes)


def test_settings_alone_are_accepted(store: BaselineStore, found: StoredEntry) -> None:
    """--policy stores the run's settings, names each looser one, and leaves every figure; without it they stay."""
    looser = case(found, policy=Policy(threshold_percent=5.0, fail_on=()).to_record())
    asked = replace(ASKED, policy=True)
    accepted = accepted_of(found, looser, asked)
    assert accepted.acceptance.changes[1] == "threshold_percent 2 -> 5"
    assert accepted.notes[0] == "looser: threshold_percent 2 -> 5"
    now = put(store, accepted)
    assert now.policy["threshold_percent"] == 5.0
    assert replace(now.entry, policy="", accepted=()) == replace(found.entry, policy="")
    with pytest.raises(UsageError, match="judged by the policy that is stored"):
        accepted_of(now, looser, asked)
    kept = accepted_of(found, looser)
    assert kept.replacement.policy == found.policy
    assert "its policy stays as stored; --policy accepts: " in kept.notes[0]


STORED = look(104.0, 7)
SLOW_MACHINE = {"gemm": look(55.0, 7)}
WRONG = CheckReport(RIGHT.figures, ("seed 1: 'out' is wrong",))
WIDER = replace(RIGHT, tolerance=Tolerance(4.0, "the paper"))
CAPPED = Fingerprint({**HERE.must_match, "power_cap_w": "500"}, {})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"verdict": Verdict.INCORRECT}, "is INCORRECT: the time of a wrong result"),
        ({"verdict": Verdict.SUSPICIOUS}, "is SUSPICIOUS: a time that cannot be true is not stored"),
        ({"verdict": Verdict.GREW}, r"is GREW: costs are stored only with the processes .*--update-baselines \S*::"),
        ({"verdict": Verdict.ERROR}, "is ERROR: its measurement did not finish"),
        ({"verdict": Verdict.UNSUPPORTED}, "is UNSUPPORTED: nothing ran"),
        ({"verdict": Verdict.INCOMPARABLE, "summary": "not comparable: timer"}, r"INCOMPARABLE .*--update-baselines"),
        ({"reasons": (Note(NoteKind.FOREIGN, "k.py"),)}, "code from another tree ran, so that"),
        ({"first": ()}, "was not timed and gated in this run"),
        ({"verdict": Verdict.RIGHT, "summary": "in this process"}, r"was not timed and gated .*'in this process'"),
        ({"checks": (WRONG,)}, "is not proven right: seed 1: 'out' is wrong"),
        ({"checks": (WIDER,)}, r"a larger tolerance .*out 2 -> 4.*--update-baselines"),
        ({"second": (process(50.0),) * 7}, "figures in the file contradict each other: the same process twice"),
        ({"fingerprint": CAPPED}, r"not measured as its entry was: power_cap_w: 500 here, absent stored"),
        ({"stored_us": (1.0,)}, "it has changed since"),
        ({"stored_us": ()}, "was not compared with a stored entry in this run"),
        ({"second": (*look(114.4, 6), STORED[6])}, "one is a process of the stored baseline, block for block"),
        ({"figures": WorkloadFigures(1e15, 1.0, "f16", "hot", WORKLOAD)}, "SUSPICIOUS: a time that cannot be true"),
        (
            {"canary": SLOW_MACHINE},
            r"is \+10.0 %, but the canary GEMM is 10.0 % slower, too: the machine slowed down, not the code",
        ),
        ({"second": (), "pairs": pairs(1.3, 8)}, "the entry is not of that side's code"),
        (
            {"second": look(114.4, 3)},
            r"SLOWER \(\+10.0 %\), .* there are 3 processes in its second look and 0 pairs. Run again with "
            r"--attnperf-second-look=7, or with --attnperf-against=REV --attnperf-pairs=14,",
        ),
    ],
)
def test_what_proves_nothing_is_refused(found: StoredEntry, changes: dict[str, Any], text: str) -> None:
    """Each result that says nothing of the entry's time is refused, and the message says what would do."""
    with pytest.raises(UsageError, match=text):
        accepted_of(found, case(found, **changes))


def test_runs_that_cannot_be_accepted_from_are_refused(found: StoredEntry) -> None:
    """Another mode, an interrupted run, no device, a small recording, a gate without an entry: each says why."""
    one = case(found)
    refused: list[tuple[RunResult, StoredEntry | None, str]] = [
        (run(one, mode="check"), found, "a run of mode 'check', which stores and gates nothing"),
        (run(one, complete=False), found, "was interrupted; run it to the end"),
        (run(one, device=None), found, "name no device"),
        (run(one), None, "has no entry to change; the run had one: .* at least 7 processes; store a first one"),
        (run(one, commit="c\x1b[2J"), found, "have an invalid commit: 'c.x1b.2J'"),
        (run(one, started="today"), found, "start time 'today' is not a date"),
    ]
    for results, entry, text in refused:
        with pytest.raises(UsageError, match=text):
            accept(results, one, entry, ASKED)
    few = case(found, verdict=Verdict.RIGHT, first=look(110.0, 3), second=(), baseline_us=104.03)
    with pytest.raises(UsageError, match=r"there are 3 processes\. Run again"):
        accepted_of(found, few, mode="calibrate")


def test_nothing_is_written_over_an_entry_that_changed(store: BaselineStore, found: StoredEntry) -> None:
    """Between reading and writing another writer may come: the replacement is then refused, and their entry stays."""
    accepted = accepted_of(found, case(found))
    theirs = put(store, accepted)
    with pytest.raises(BaselineError, match="has changed since it was read; nothing was written"):
        put(store, accepted)
    assert stored(store) == theirs


def test_recording_again_keeps_what_was_accepted(store: BaselineStore, found: StoredEntry) -> None:
    """The history of acceptances survives --update-baselines, and the next acceptance is put behind it."""
    now = put(store, accepted_of(found, case(found)))
    again = NewEntry(Measurement(look(90.0, 7), (RIGHT,) * 7), WORKLOAD, HERE, now.policy, "2026-12-02", "0.1.0")
    merge_entries(store, store.roots[0], DEVICE.arch, DEVICE.product, KEY.suite, {KEY.entry: again})
    kept = stored(store)
    assert kept.entry.accepted == now.entry.accepted
    later = case(kept, second=look(95.0, 7), ratio=1.05)
    histories = put(store, accepted_of(kept, later, replace(ASKED, reason="wider"))).entry.accepted
    assert [one.reason for one in histories] == ["exact softmax", "wider"]
    assert content_id(HERE) == kept.entry.environment

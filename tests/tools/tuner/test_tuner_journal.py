from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.tuner_journal import SlotTrial, TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult
from pytest_attnperf.tuning_records import Candidate, Trial

HEADER = {"space": "flash 1234", "arch": "gfx942"}
Run = Callable[..., SearchResult]
Times = Callable[[Candidate, str], float]


def timed(slot: int = 0, block: int = 64, us: float | None = 12.5) -> SlotTrial:
    """A trial with everything a trial can hold."""
    summary = ProcessSummary(12.5, 12.0, 12.6, (12.0, 13.0), 4, "graph", "gpu0", "p3", 1, 1700.0)
    failure = "" if us else "wrong: out"
    return SlotTrial(slot, 0, Trial(Candidate({"BLOCK": block, "PRELOAD_V": True}), "w", 3, us, failure, summary))


def test_everything_is_read_back(tmp_path: Path) -> None:
    """Trials with their summaries and failures, and other records, survive closing in their order."""
    path = tmp_path / "new" / "journal.jsonl"
    items = [timed(1), timed(0, 32, None)]
    with TrialJournal.open(path, HEADER) as journal:
        for item in items:
            journal.record(item)
        journal.append("confirm", {"workload": "w", "pairs": [1.0, 2.0]})
    with TrialJournal.open(path, HEADER) as again:
        assert list(again.slot_trials) == items
        assert list(again.iterate_records("confirm")) == [{"workload": "w", "pairs": [1.0, 2.0]}]
        assert again.lookup(1, items[0].trial.candidate, "w") == items[0]
        assert again.lookup(2, items[0].trial.candidate, "w") is None
        assert again.notes == []


def test_a_record_is_kept_once(tmp_path: Path) -> None:
    """A search that is gone through again says the same of its rounds; the file does not grow by it."""
    with TrialJournal.open(tmp_path / "j", HEADER) as journal:
        journal.append("dropped", {"candidate": "a"})
        journal.append("dropped", {"candidate": "a"})
    assert (tmp_path / "j").read_text().count("dropped") == 1


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, cut: int) -> None:
    """A kill in the middle of a write costs that line only, and the next one is not glued to it."""
    path = tmp_path / "j.jsonl"
    with TrialJournal.open(path, HEADER) as journal:
        journal.record(timed(0))
        journal.record(timed(1))
    os.truncate(path, path.stat().st_size - cut)
    with TrialJournal.open(path, HEADER) as again:
        assert [item.slot for item in again.slot_trials] == [0]
        assert again.notes[0].startswith("j.jsonl: dropped a last line of ")
        again.record(timed(2))
    with TrialJournal.open(path, HEADER) as last:
        assert ([item.slot for item in last.slot_trials], last.notes) == ([0, 2], [])


@pytest.mark.parametrize("length", [0, 1, 10, 40])
def test_a_half_header_begins_anew(tmp_path: Path, length: int) -> None:
    """Nothing was measured yet when it was killed."""
    path = tmp_path / "j"
    TrialJournal.open(path, HEADER).close()
    os.truncate(path, length)
    with TrialJournal.open(path, {"space": "other"}) as journal:
        journal.record(timed())
    with TrialJournal.open(path, {"space": "other"}) as again:
        assert len(again.trials) == 1


def test_another_header_is_refused_with_what_differs(tmp_path: Path) -> None:
    """Trials of another space or architecture are never mixed; the file stays as it was."""
    path = tmp_path / "j"
    TrialJournal.open(path, HEADER | {"method": "7"}).close()
    before = path.read_bytes()
    with pytest.raises(
        UsageError, match=r"arch was 'gfx942', is 'gfx950'; method was '7', is absent. Give another --out"
    ):
        TrialJournal.open(path, HEADER | {"arch": "gfx950"})
    assert path.read_bytes() == before
    TrialJournal.open(path, HEADER | {"method": "7"}).close()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"hello, a letter\n", "no journal of a tuning run, it begins with 'hello"),
        (b"hello without an end", "no journal of a tuning run"),
        (b'{"attnperf_tune_journal": 99, "header": {}}\n', "journal version 99, this attnperf reads 1"),
        (b'{"attnperf_tune_journal": 1}\n', "its first line cannot be read"),
    ],
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes, text: str) -> None:
    """Nothing of a foreign file is cut off or written over."""
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=text):
        TrialJournal.open(path, HEADER)
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ["{", "[]", '{"kind": "trial"}', '{"no": "kind"}', '{"kind": "trial", "slot": "x"}'])
def test_a_broken_line_in_the_middle_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    """Only the last line can be half-written; anything before was changed by somebody."""
    path = tmp_path / "j"
    TrialJournal.open(path, HEADER).close()
    with path.open("a") as stream:
        stream.write(f"{line}\n" + json.dumps({"kind": "round"}) + "\n")
    with pytest.raises(UsageError, match="line 2 is no record of a tuning run"):
        TrialJournal.open(path, HEADER)


def test_a_second_tuner_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    """Two tuners on one journal would time everything twice."""
    path = tmp_path / "j"
    with TrialJournal.open(path, HEADER), pytest.raises(UsageError, match="another tuner is using this journal"):
        TrialJournal.open(path, HEADER)
    TrialJournal.open(path, HEADER).close()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="the journal cannot be written"):
        TrialJournal.open(tmp_path / "file" / "j", HEADER)


def test_ten_thousand_lines_are_read_quickly(tmp_path: Path) -> None:
    """A long search is resumed within a second or two, on a loaded machine."""
    path = tmp_path / "j"
    with TrialJournal.open(path, HEADER) as journal:
        journal.record(timed())
    record = json.loads(path.read_text().splitlines()[1])
    with path.open("a") as stream:
        stream.writelines(json.dumps(record | {"slot": slot}) + "\n" for slot in range(1, 10_000))
    started = time.process_time()
    with TrialJournal.open(path, HEADER) as again:
        assert len(again.trials) == 10_000
    assert time.process_time() - started < 2.0


def _die_with_the_journal(path: Path) -> None:
    journal = TrialJournal.open(path, HEADER)
    journal.record(timed())
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_tuner_leaves_no_lock(tmp_path: Path) -> None:
    """kill -9 while the journal is open: what was recorded is there, and the next tuner may have it."""
    path = tmp_path / "j"
    process = multiprocessing.get_context("fork").Process(target=_die_with_the_journal, args=(path,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    with TrialJournal.open(path, HEADER) as journal:
        assert [item.slot for item in journal.slot_trials] == [0]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("strategy", ["race", "exhaustive", "optuna"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_resumed_search_ends_as_an_uninterrupted_one(
    tmp_path: Path, steep: Times, run_search: Run, strategy: str, lanes: int
) -> None:
    """Killed at several places in turn, it never times again what it has, and its ranking is the same."""
    settings = {"strategy": strategy, "count": 40, "max_trials": 70 if strategy == "optuna" else None}
    whole = run_search(FakeBench(steep, lanes=lanes), **settings)
    path = tmp_path / "journal.jsonl"

    def killing(at: int) -> Callable[[int], None]:
        def interrupt(calls: int) -> None:
            if calls == at:
                raise Killed

        return interrupt

    done: list[tuple[str, int, str]] = []
    for at in (3, 17, 26):
        bench = FakeBench(steep, lanes=lanes, interrupt=killing(at))
        with TrialJournal.open(path, HEADER) as journal, pytest.raises(Killed):
            run_search(bench, journal=journal, **settings)
        done += [(name, process, workload) for _, process, name, workload in bench.calls]
    last = FakeBench(steep, lanes=lanes)
    with TrialJournal.open(path, HEADER) as journal:
        resumed = run_search(last, journal=journal, **settings)
    again = {(name, workload) for name, process, workload in done if process < 2 and name != "BLOCK=39"}
    first = {(t.candidate.id, t.workload) for t in whole.trials if t.process < 2}
    assert again <= first
    assert resumed.ranking == whole.ranking
    counted = [trial for trial in resumed.trials if trial.candidate.id != "BLOCK=39"]
    assert len(counted) == len([trial for trial in whole.trials if trial.candidate.id != "BLOCK=39"])


def test_resumed_in_a_fresh_process_the_default_is_timed_there(tmp_path: Path, steep: Times, run_search: Run) -> None:
    """The dead session's default is no reference: its process had another placement and clock."""
    path = tmp_path / "j"

    def interrupt(calls: int) -> None:
        if calls == 4:
            raise Killed

    with TrialJournal.open(path, HEADER) as journal, pytest.raises(Killed):
        run_search(FakeBench(steep, interrupt=interrupt), journal=journal, strategy="race")
    bench = FakeBench(lambda c, w: 2 * steep(c, w))
    with TrialJournal.open(path, HEADER) as journal:
        result = run_search(bench, journal=journal, strategy="race", processes=1)
    assert bench.calls[0][2:] == ("BLOCK=7", "seq=512")
    assert result.ranking[0] == (Candidate({"BLOCK": 3}), pytest.approx(1.04**-4))


@pytest.mark.parametrize(
    ("change", "text"),
    [({"seed": 1}, "began with seed 0, now it is 1"), ({"strategy": "exhaustive"}, "began with strategy 'race'")],
)
def test_another_search_on_the_same_journal_is_refused(
    tmp_path: Path, steep: Times, run_search: Run, change: dict[str, object], text: str
) -> None:
    """Another seed or strategy would ask for other trials; the former must be gone on with."""
    with TrialJournal.open(tmp_path / "j", HEADER) as journal:
        run_search(FakeBench(steep), journal=journal, strategy="race")
        with pytest.raises(UsageError, match=text):
            run_search(FakeBench(steep), journal=journal, **({"strategy": "race"} | change))


def test_fewer_gpus_go_on_with_what_more_began(tmp_path: Path, steep: Times, run_search: Run) -> None:
    """Begun on three GPUs and resumed on one, nothing that was timed is timed again."""
    with TrialJournal.open(tmp_path / "j", HEADER) as journal:
        run_search(FakeBench(steep, lanes=3), journal=journal, strategy="race")
        bench = FakeBench(steep)
        run_search(bench, journal=journal, strategy="race")
    assert bench.calls == []

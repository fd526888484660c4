from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import importing
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.importing import Imported, import_runs

MakeRun = Callable[..., RunResult]
MACHINE = {
    "node": "host",
    "machine": "x86_64",
    "system": "Linux",
    "release": "6.1",
    "python_version": "3.11.7",
    "cpu": {"brand_raw": "Some CPU", "count": 8, "hz_actual_friendly": "2.1 GHz"},
}


def benchmark(fullname: str = "tests/test_a.py::test_sort[10]", **fields: Any) -> dict[str, Any]:
    """An entry as pytest-benchmark 5 writes it."""
    stats = {"min": 1e-4, "median": 1.25e-4, "rounds": 3, "data": [1e-4, 1.25e-4, 2e-4]}
    whole = {"group": "sort", "name": "test_sort[10]", "fullname": fullname, "stats": stats}
    return {**whole, "options": {"timer": "perf_counter"}, "extra_info": {}, **fields}


def written(path: Path, *entries: object, **fields: Any) -> Path:
    """A file of pytest-benchmark."""
    commit = {"id": "abc123", "dirty": True, "branch": "main"}
    whole = {"machine_info": MACHINE, "commit_info": commit, "benchmarks": list(entries), "version": "5.3.1"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**whole, "datetime": "2026-01-02T03:04:05.678901+00:00", **fields}))
    return path


def import_file(path: Path) -> Imported:
    """The run of one file."""
    (found,) = import_runs(path, json_results.decode)
    assert isinstance(found, Imported)
    return found


def test_a_benchmark_becomes_a_case(tmp_path: Path) -> None:
    """Seconds are microseconds, the group stands for the backend, and what must match is the machine and the timer."""
    found = import_file(written(tmp_path / "a.json", benchmark(), benchmark("b.py::test_b", group=None)))
    run = found.run
    first, second = run.cases
    assert (str(first.key), first.nodeid) == ("benchmark/sort/tests/test_a.py::test_sort[10]", first.key.workload)
    assert str(second.key) == "benchmark/ungrouped/b.py::test_b"
    assert first.median_us == pytest.approx(125.0)
    assert first.verdict is Verdict.RECORDED
    assert first.fingerprint is not None
    assert first.fingerprint.must_match == {
        "system": "Linux", "machine": "x86_64", "processor": "Some CPU", "cpus": "8", "timer": "perf_counter",
    }  # fmt: skip
    assert first.fingerprint.named == {"python": "3.11.7", "kernel": "6.1"}
    assert run.device is not None
    assert (run.device.arch, run.device.product) == ("x86_64", "Some CPU")
    assert (run.commit, run.started, run.provenance) == (
        "abc123+dirty", "2026-01-02T03:04:05.678901+00:00", {"branch": "main"},
    )  # fmt: skip
    assert (found.source, found.skipped) == ("pytest-benchmark", ())


def test_what_pytest_benchmark_really_writes_is_read(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of it, saved with and without the single times, fills a store."""
    pytest.importorskip("pytest_benchmark")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # it would switch itself off
    pytester.makepyfile("def test_add(benchmark):\n    benchmark(lambda: 1 + 1)\n")
    switches = ["-p", "no:randomly", "--benchmark-min-rounds=3", "--benchmark-max-time=0.001"]
    pytester.runpytest_subprocess(*switches, "--benchmark-json=a.json", "--benchmark-autosave")
    found = [one for folder in ("a.json", ".benchmarks") for one in import_runs(Path(folder), json_results.decode)]
    assert all(isinstance(one, Imported) for one in found)
    assert len(found) == 2
    with open_store("history.sqlite") as store:
        assert [store.append(one.run, source=one.source).rows for one in found if isinstance(one, Imported)] == [1, 1]
        (history,) = store.load_history("test_add")
    assert history.case.endswith("::test_add")
    assert len(history.points) == 2
    assert all(0 < point.median_us < 1000 for point in history.points)


def test_only_the_single_times_are_enough(tmp_path: Path) -> None:
    """Their median is taken."""
    path = written(tmp_path / "a.json", benchmark(stats={"data": [3e-6, 1e-6, 2e-6]}))
    assert import_file(path).run.cases[0].median_us == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("text", "is no object"),
        ({"stats": {"median": 1.0}}, "has no name"),
        (benchmark(stats={}), "has no median that is finite and positive"),
        (benchmark(stats={"median": float("nan")}), "has no median"),
        (benchmark(stats={"median": -1.0}), "has no median"),
        (benchmark(stats={"median": True}), "has no median"),
        (benchmark(stats={"median": 10**400}), "has no median"),
        (benchmark(stats={"data": [1.0, "UNSERIALIZABLE[...]"]}), "has no median"),
        (benchmark(stats=[1.0]), "has no median"),
        (benchmark(options={"timer": "attnperf_device_clock"}), "import the results.json of its run instead"),
        (benchmark("good.py::test"), "is a repeat"),
    ],
)
def test_what_is_skipped_is_said(tmp_path: Path, entry: object, said: str) -> None:
    """The other benchmarks of the file are kept."""
    found = import_file(written(tmp_path / "a.json", benchmark("good.py::test"), entry))
    assert [case.nodeid for case in found.run.cases] == ["good.py::test"]
    (line,) = found.skipped
    assert line.startswith("benchmark 1 of 2: ")
    assert said in line


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not readable as JSON"),
        (b"\xff\xfe\x00", "is not readable as JSON"),
        (b"[" * 100_000, "is not readable as JSON"),
        (b"[1, 2]", "holds a JSON list where a run is an object"),
        (b'{"rows": 1}', r"holds no run: neither .*; its fields: 'rows'"),
        (b'{"benchmarks": 5}', "field 'benchmarks' is a int, must be a list"),
        (b'{"benchmarks": []}', "the run in .* started at '', which is no date"),
    ],
)
def test_a_file_that_holds_no_run_is_an_error(tmp_path: Path, data: bytes, said: str) -> None:
    """It says what was found."""
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=said):
        list(import_runs(path, json_results.decode))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """And so is a folder without any."""
    with pytest.raises(HistoryError, match="does not exist; name an existing file"):
        list(import_runs(tmp_path / "none.json", json_results.decode))
    with pytest.raises(HistoryError, match=r"holds no \.json file"):
        list(import_runs(tmp_path, json_results.decode))


def test_a_folder_gives_its_runs_and_says_what_is_none(tmp_path: Path, make_run: MakeRun) -> None:
    """Files of both kinds at any depth; one bad file keeps none of the others out."""
    json_results.write(tmp_path / "a" / "results.json", make_run(1))
    written(tmp_path / "b" / "0001.json", benchmark())
    (tmp_path / "c.json").write_text("{")
    newer = json.loads(json_results.encode(make_run(2))) | {"schema": 99}
    (tmp_path / "d.json").write_text(json.dumps(newer))
    found = list(import_runs(tmp_path, json_results.decode))
    assert [one.source for one in found if isinstance(one, Imported)] == ["results.json", "pytest-benchmark"]
    bad, new = (one for one in found if isinstance(one, str))
    assert "is not readable as JSON" in bad
    assert "upgrade pytest-attnperf" in new


def test_in_a_folder_only_files_are_read(tmp_path: Path) -> None:
    """A pipe, which nobody writes to, and a device, which has no end, keep nothing waiting."""
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("/dev/zero")
    (tmp_path / "c.json").mkdir()
    written(tmp_path / "d.json", benchmark())
    *skipped, found = import_runs(tmp_path, json_results.decode)
    assert skipped == [f"{tmp_path / name}.json is no file" for name in "abc"]
    assert isinstance(found, Imported)


def test_a_file_that_would_fill_the_memory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do."""
    monkeypatch.setattr(importing, "BYTES_MAX", 100)
    with pytest.raises(HistoryError, match=r"bytes; at most 100 are read; store runs .* or split the file"):
        import_file(written(tmp_path / "a.json", benchmark()))


def test_names_that_no_terminal_shows_are_stored(tmp_path: Path, store_url: str) -> None:
    """100 kB, escape sequences, NUL and half a surrogate pair in every text of a file."""
    odd = "a\x1b[2J\0\ud800|" + "x" * 100_000
    entry = benchmark(odd, group=odd, name=odd, options={"timer": odd})
    path = written(tmp_path / "a.json", entry, machine_info={"machine": odd}, commit_info={"id": odd, "branch": odd})
    with open_store(store_url) as store:
        assert store.append(import_file(path).run).rows == 1
        (history,) = store.load_history("x" * 1000)
    assert history.points[0].commit == odd.replace("\0", "\ufffd").replace("\ud800", "?")


def test_the_same_file_counts_once(tmp_path: Path, store_url: str, make_run: MakeRun) -> None:
    """A results.json without an id is known by what it holds, a benchmark's file by its bytes."""
    json_results.write(tmp_path / "results.json", replace(make_run(1), run_id=""))
    written(tmp_path / "0001.json", benchmark())
    with open_store(store_url) as store:
        for already in (False, True):
            found = [one for one in import_runs(tmp_path, json_results.decode) if isinstance(one, Imported)]
            assert [store.append(one.run, source=one.source).already for one in found] == [already] * 2

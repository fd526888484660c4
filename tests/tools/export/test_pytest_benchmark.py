"""Files that pytest-benchmark's own storage reads."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.export.pytest_benchmark import render_pytest_benchmark
from tests.tools.export.export_samples import HOSTILE, export, hostile_run, mixed_run, read_strictly

pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark: pip install 'pytest-attnperf[benchmark]'")


def load(text: str, folder: Path) -> list[dict[str, Any]]:
    """The benchmarks, as pytest-benchmark loads a stored file."""
    from pytest_benchmark.logger import Logger
    from pytest_benchmark.storage.file import FileStorage

    read_strictly(text)
    path = folder / "0001_made.json"
    path.write_text(text)
    storage: Any = FileStorage(str(folder), Logger(Logger.QUIET))  # type: ignore[no-untyped-call]
    return [*storage.load_benchmarks(str(path))]


def test_samples_are_stored_as_a_run_stores_them(tmp_path: Path) -> None:
    """Rounds are the deciding look's blocks in seconds, under the test's name, with its own statistics."""
    exported = export(mixed_run())
    first, slow = load(render_pytest_benchmark(exported), tmp_path)
    assert first["fullname"] == exported.cases[0].case.nodeid
    assert first["name"] == first["fullname"].partition("::")[2]
    blocks = [us for process in exported.cases[1].case.second for us in process.block_us]
    assert slow["data"] == [us / 1e6 for us in blocks]
    assert slow["rounds"] == len(blocks)
    assert slow["min"] == pytest.approx(min(blocks) / 1e6)
    assert slow["extra_info"]["verdict"] == "SLOWER"
    assert slow["group"] == f"prefill/{exported.cases[1].case.key.workload}"


def test_compare_shows_them(tmp_path: Path) -> None:
    """`pytest-benchmark compare FILE` prints a table."""
    (tmp_path / "0001_made.json").write_text(render_pytest_benchmark(export(mixed_run())))
    typed = (sys.executable, "-m", "pytest_benchmark", "compare", "--columns=median,rounds", "0001_made.json")
    shown = subprocess.run(typed, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert shown.stdout.count("prefill-b1-s128") >= 2


def test_what_is_no_block_gives_way_to_the_medians(tmp_path: Path) -> None:
    """A file may hold medians without samples, or samples that are no times."""
    run = sample_run(2)
    process = run.cases[0].first[0]
    bad = [replace(process, block_us=blocks) for blocks in ((), (1e300, 1e300))]
    cases = tuple(
        replace(mixed_run().cases[0], key=replace(mixed_run().cases[0].key, label=str(number)), first=(one,), second=())
        for number, one in enumerate(bad)
    )
    found = load(render_pytest_benchmark(export(replace(run, cases=cases))), tmp_path)
    assert [one["data"] for one in found] == [[process.median_us / 1e6]] * 2
    assert len({one["fullname"] for one in found}) == 2


def test_hostile_names_are_benchmarks(tmp_path: Path) -> None:
    """Each its own, on one line."""
    found = load(render_pytest_benchmark(export(hostile_run())), tmp_path)
    assert len({one["fullname"] for one in found}) == len(HOSTILE)
    assert all(one["fullname"].isprintable() and one["name"].isprintable() for one in found)


def test_two_devices_are_two_files() -> None:
    """Its file has one machine."""
    with pytest.raises(UsageError, match="is of one machine, and these results are of sm_90/sample, sm_90/h200; exp"):
        render_pytest_benchmark(export(mixed_run(), sample_run(1, product="h200")))


def test_without_it_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core does not need it."""
    monkeypatch.setitem(sys.modules, "pytest_benchmark", None)
    with pytest.raises(UsageError, match=r"needs pytest-benchmark, .*: pip install 'pytest-attnperf\[benchmark\]'"):
        render_pytest_benchmark(export(mixed_run()))

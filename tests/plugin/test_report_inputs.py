from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.plugin import report_inputs
from pytest_attnperf.plugin.report_inputs import ceilings_of, histories_of, read_run, read_runs
from pytest_attnperf.records import DeviceInfo, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.json_results import ResultsFileError
from pytest_attnperf.reports.run.joined import of_one
from pytest_attnperf.reports.run.overview import STORED
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[2]
PREFILL = ROOT / "baselines/sm_90/h200/prefill.json"


def test_several_files_are_one_report(tmp_path: Path) -> None:
    """Results of two machines are joined, each case with its own device."""
    for product in ("one", "two"):
        json_results.write(tmp_path / f"{product}.json", sample_run(3, product=product))
    joined = read_runs([tmp_path / "two.json", tmp_path / "one.json"])
    assert joined.devices == ("sm_90/two", "sm_90/one")
    assert len(joined.cases) == 6


def test_stored_baselines_are_shown_as_recorded() -> None:
    """A file of baselines is a run of RECORDED cases with the stored processes, the work, and where it was measured."""
    run = read_run(PREFILL)
    assert {case.verdict for case in run.cases} == {Verdict.RECORDED}
    assert run.mode == STORED
    assert run.device is not None
    assert (run.device.arch, run.device.product, run.device.compute_units) == ("sm_90", "h200", 132)
    case = next(case for case in run.cases if case.key.entry == "native.sdpa_flash/prefill-b4-s4096-h8-d256-f16-causal")
    assert len(case.first) >= 7
    assert case.figures is not None
    assert case.figures.flops
    assert case.median_us
    assert "nothing was measured" in run.notes[0]


def test_a_workload_that_means_something_else_now_has_no_figures(tmp_path: Path) -> None:
    """An entry whose stored definition is not this version's is shown with its time, and without rates."""
    text = PREFILL.read_text().replace('"head_dim":256', '"head_dim":255')
    assert text != PREFILL.read_text()
    path = tmp_path / "prefill.json"
    path.write_text(text)
    figures = {case.key.workload: case.figures for case in read_run(path).cases}
    assert figures["prefill-b4-s4096-h8-d256-f16-causal"] is None


def test_a_folder_of_baselines() -> None:
    """Every suite of a product is read; compiled kernels and published reports are no part of it."""
    joined = read_runs([PREFILL.parent])
    assert {shown.case.key.suite for shown in joined.cases} > {"prefill", "decode"}


def test_a_folder_without_files(tmp_path: Path) -> None:
    """It is an error that says what to name."""
    with pytest.raises(UsageError, match=r"holds no \.json file; name a results file"):
        read_runs([tmp_path])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 99}', '{"entries": 3, "suite": 1}', "\x00\xff"])
def test_what_is_no_results_file(tmp_path: Path, text: str) -> None:
    """Named with its path, whatever it holds."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ResultsFileError, match=r"x\.json"):
        read_run(path)


def test_a_broken_file_of_baselines(tmp_path: Path) -> None:
    """It is read as what it claims to be, and refused."""
    path = tmp_path / "x.json"
    path.write_text('{"suite": 1, "entries": {}, "environments": {}}')
    with pytest.raises(BaselineError, match=r"x\.json: field `schema`"):
        read_run(path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read."""
    monkeypatch.setattr(json_results, "BYTES_MAX", 10)
    path = tmp_path / "x.json"
    path.write_text(" " * 11)
    with pytest.raises(UsageError, match="has 11 bytes; at most 10 are read"):
        read_run(path)


def test_ceilings_are_of_the_very_device(tmp_path: Path) -> None:
    """A calibrated device brings measured ceilings and the data sheet's; one that is not in the table brings none."""
    run = replace(sample_run(5), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    found = ceilings_of(of_one(run), [ROOT / "baselines"])
    kinds = {(ceiling.what, ceiling.kind) for ceiling in found["sm_90/h200"]}
    assert {("f16 matrix", "measured"), ("f16 matrix", "peak"), ("DRAM", "measured")} <= kinds
    only_peaks = ceilings_of(of_one(run), [tmp_path])
    assert {ceiling.kind for ceiling in only_peaks["sm_90/h200"]} == {"peak"}
    assert ceilings_of(of_one(sample_run(5)), [ROOT / "baselines"]) == {}


def test_unsound_ceilings_are_left_out(tmp_path: Path) -> None:
    """A report is not lost by a broken calibration."""
    folder = tmp_path / "sm_90/h200/ceilings"
    folder.mkdir(parents=True)
    (folder / "132.json").write_text("{")
    run = replace(sample_run(5), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    assert {ceiling.kind for ceiling in ceilings_of(of_one(run), [tmp_path])["sm_90/h200"]} == {"peak"}


def test_a_calibration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of ten thousand cases."""
    found: list[DeviceInfo] = []
    monkeypatch.setattr(report_inputs, "_calibrated", lambda device, roots: found.append(device))
    run = replace(sample_run(50), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    assert ceilings_of(of_one(run), [ROOT / "baselines"])["sm_90/h200"]
    assert len(found) == 1


def test_histories_are_of_the_very_cases(tmp_path: Path) -> None:
    """A case that the store does not hold has no past, also where its name is a part of those of others."""
    store = pytest.importorskip("pytest_attnperf.tools.history.store", reason="the history needs sqlalchemy")
    pytest.importorskip("ruptures", reason="change points need ruptures")
    url = str(tmp_path / "h.sqlite")
    with store.open_store(url) as opened:
        for day in (1, 2, 3):
            opened.append(sample_run(4, seed=day, started=f"2026-01-0{day}T00:00:00Z", verdicts=[Verdict.SAME]))
    run = sample_run(4, verdicts=[Verdict.SAME])
    first, second, *others = run.cases
    part = replace(first, key=replace(first.key, workload=first.key.workload[:-3]))
    shown = of_one(replace(run, cases=(part, second, *others)))
    histories = histories_of(shown, url, 2)
    assert [history.case for history in histories] == [str(case.key) for case in (second, *others)]
    assert {len(history.points) for history in histories} == {2}
    assert histories_of(of_one(sample_run(4, product="another")), url, 2) == []

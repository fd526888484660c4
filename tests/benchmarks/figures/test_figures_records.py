"""benchmarks/figures/figures_records.py: lines of the committed file, and what they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import figures_records as records
import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, ProcessSummary, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult, RunResult

ONE_OF_EACH: tuple[records.Record, ...] = (
    records.Pass("r", "processes", "2026-01-01", "ab", "h200", {"torch": "2"}, 14, 300.5, ("x: ERROR: y",)),
    records.Process("r", "attnperf", "a/b", "slow3", 4, 20.5, 0.04, "graph", (20.4, 20.6), 30, 2, 1980.0),
    records.Pair("r", "a/b", "plain", 3, 1.0012, 20.1, 20.2, 30, "graph", 0.9, (1.001, 1.002)),
    records.TrueSize("r", "a/b", "slow3", 0.03, 0.0312, 0.0001, "a whole extra call before one call in 28"),
)


def summary(process: str, us: float) -> ProcessSummary:
    """One process of 30 blocks of 28 calls at two places."""
    return ProcessSummary(us, us, us, (us,) * 30, 28, "graph", process=process, placements=2)


def run_of(*cases: CaseResult) -> RunResult:
    """A run of these cases."""
    device = DeviceInfo("cuda", "sm_90", "h200", device_id="GPU-1234")
    return RunResult(1, "0.1.0", "calibrate", "2026-01-01", "pytest", "abc", device, None, cases)


def case(label: str = "", **values: object) -> CaseResult:
    """A case named a/b."""
    return replace(CaseResult(CaseKey("figures", "a", "b", label), "id", Verdict.RIGHT, "right"), **values)  # type: ignore[arg-type]


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    """Every kind of record survives, and a second append adds behind the first."""
    path = tmp_path / "deep" / "figures.jsonl"
    records.append(path, ONE_OF_EACH)
    records.append(path, ONE_OF_EACH[:1])
    read = records.read(path)
    assert (read.passes, read.processes, read.pairs, read.sizes) == (
        [ONE_OF_EACH[0], ONE_OF_EACH[0]],
        [ONE_OF_EACH[1]],
        [ONE_OF_EACH[2]],
        [ONE_OF_EACH[3]],
    )


@pytest.mark.parametrize(
    "line",
    ['{"record":"other"}', '{"run":"r"}', "not json", "[]", '{"record":"pair","run":"r"}', '{"record":"pass","run":1}'],
)
def test_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    """The error says which line, what the records are, and what to do."""
    path = tmp_path / "figures.jsonl"
    records.append(path, ONE_OF_EACH[:1])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"figures\.jsonl:2 is no record of the figures .* records are pass, process"):
        records.read(path)


def test_processes_keep_their_number_across_cases() -> None:
    """A process that measured two cases is one unit, whichever order its figures come in."""
    run = run_of(
        case(first=(summary("pid 1", 20.0), summary("pid 2", 21.0))), case("slow3", first=(summary("pid 2", 22.0),))
    )
    found = records.processes_of("r", run)
    assert [(p.case, p.label, p.unit, p.us) for p in found] == [
        ("a/b", "plain", 0, 20.0),
        ("a/b", "plain", 1, 21.0),
        ("a/b", "slow3", 1, 22.0),
    ]


def test_pairs_are_numbered_by_both_processes() -> None:
    """A pair is told by the processes of its two sides."""
    pairs = tuple(
        PairSummary(1.001, 20.0, 20.02, 30, "graph", base_process=base, new_process="pid 9", seconds=0.9)
        for base in ("pid 1", "pid 2")
    )
    found = records.pairs_of("r", run_of(case(pairs=pairs), case("slow1", pairs=pairs[1:])))
    assert [(p.label, p.unit) for p in found] == [("plain", 0), ("plain", 1), ("slow1", 1)]


def test_copy_is_one_case_under_every_label() -> None:
    """Its tests have other names, the case has not."""
    assert records.name_of(CaseKey("figures", "gate", "test_slow1_copy", "slow1")) == "copy"


def test_case_without_a_number_is_named_in_the_pass() -> None:
    """A case that failed is not silently absent, and the device is not named."""
    run = run_of(case(first=(summary("pid 1", 20.0),)), case("slow3", verdict=Verdict.INCORRECT, summary="wrong"))
    made = records.pass_of("r", "processes", run, 1, 12.3)
    assert made.failed == ("figures/a/b/slow3: INCORRECT: wrong",)
    assert made.gpu == records.hashed("GPU-1234") != records.hashed("GPU-1235")
    assert "1234" not in records.line_of(made)


def test_device_seconds_count_warm_up_sizing_and_both_blocks_of_a_pair() -> None:
    """30 measured and 30 unmeasured blocks, 5 for sizing, one proof a place, and 20 ms before."""
    assert records.device_seconds(summary("pid 1", 20.0)) == pytest.approx(0.02 + (60 + 5 + 2) * 28 * 20e-6)

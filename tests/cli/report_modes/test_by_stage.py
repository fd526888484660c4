from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.cli.report_modes.by_stage import stage_ids, staged_tables
from pytest_attnperf.records import CaseKey, DeviceInfo, Launch, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.workloads.attention_stages import AttentionStage
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues
from tests.cli.report_modes.test_by_step import as_text

Run = Callable[..., str]

LAYER = "block-b1-s64-h4-d32-f16"
PREFILL = "prefill-b1-s64-h4-d32-f16"
STAGES = ("qk_scores-b1-s64-h4-d32-f16", "row_softmax-b1-s64-h4-f16", "weighted_values-b1-s64-h4-d32-f16")
GPU = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200")
CPU = DeviceInfo("cpu", "cpu-x86_64", "epyc", "AMD EPYC")
FOUND = Breakdown(
    (StageTime("qkv_projection", 30.0, (Launch("gemm"),), 1, 2**20), StageTime("split", 0.0, (), 0, 0)),
    31.0, "graph", 12.0, 3.0, (Launch("gemm"),), 1, 2**20,
)  # fmt: skip


def case(backend: str, workload: str, us: float | None, breakdown: Breakdown | None = None) -> CaseResult:
    """A case of any suite."""
    verdict = Verdict.SAME if us else Verdict.UNSUPPORTED
    return CaseResult(CaseKey("s", backend, workload), "n", verdict, "", median_us=us, breakdown=breakdown)


def results(path: Path, *cases: CaseResult, device: DeviceInfo | None = GPU) -> str:
    """A results file."""
    run = RunResult(RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01", "pytest --attnperf", "c0", device, None, cases)
    json_results.write(path, run)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Results with stages and staged attention, of one without either, and of CPUs, by name."""
    layers = (case("layer.plain", LAYER, 62.0, FOUND), case("layer.hip.best", LAYER, 31.0, FOUND))
    staged = [case("hip.staged", workload, 10.0) for workload in (*STAGES, PREFILL)]
    both = (*layers, *staged, case("hip.best", PREFILL, 5.0))
    return {
        "gpu": results(tmp_path / "gpu.json", *both),
        "layers": results(tmp_path / "layers.json", *layers),
        "staged": results(tmp_path / "staged.json", *both[2:]),
        "none": results(tmp_path / "none.json", case("hip.best", PREFILL, 5.0)),
        "cpu": results(tmp_path / "cpu.json", case("layer.plain", LAYER, 6200.0), device=CPU),
        "cpu without": results(tmp_path / "no.json", case("layer.plain", PREFILL, None), device=CPU),
    }


@pytest.fixture
def run(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    """Types `attnperf report NAME --by stage ARGUMENTS`, files in braces; what it prints with exit status 0."""

    def typed(name: str, *arguments: str) -> str:
        status = main(["report", files[name], "--by", "stage", *(argument.format_map(files) for argument in arguments)])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        return printed.out

    return typed


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `attnperf report --by stage ARGUMENTS` says with exit status 2."""
    assert main(["report", "--by", "stage", *arguments]) == 2
    return capsys.readouterr().err


def test_everything_that_a_run_has(run: Run) -> None:
    """The device, an overview, every backend's stages in full, and staged against fused."""
    text = run("gpu")
    assert text.startswith("device: NVIDIA H200 (sm_90)\n")
    titles = (LAYER, f"{LAYER}: layer.plain", f"{LAYER}: layer.hip.best", f"staged against fused: {PREFILL}")
    lines = text.splitlines()
    assert [line for line in lines if line in titles] == list(titles)
    assert max(map(len, lines)) <= 110
    assert "hip.staged, sum of 3" in text


def test_a_run_with_one_of_both(run: Run) -> None:
    """What is not there is said where something could be expected, and is no error."""
    assert "staged against fused: no prefill here has cases of its stages" in run("layers")
    text = run("staged")
    assert "where the time goes" not in text
    assert "hip.best" in text


def test_over_the_cpu_of_another_run(run: Run) -> None:
    """Both devices are named, and each backend's time is held to the CPU's."""
    text = run("layers", "--cpu", "{cpu}")
    assert "device: NVIDIA H200 (sm_90)\n" in text
    assert "CPU: AMD EPYC (cpu-x86_64), layer.plain\n" in text
    (line,) = (one for one in text.splitlines() if one.endswith("200.0x"))
    assert line.split() == ["layer.hip.best", "31.00", "200.0x"]


def test_one_workload(run: Run) -> None:
    """--workload shows it alone, of either kind."""
    assert PREFILL not in run("gpu", "--workload", LAYER)
    assert LAYER not in run("gpu", "--workload", PREFILL)


def test_markdown(run: Run) -> None:
    """Every table whole, under a heading."""
    text = run("gpu", "--markdown", "-")
    assert f"### {LAYER}\n\n| backend " in text


def test_files_without_any_of_it(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A run without stages, and a chosen workload without, are errors that say what makes them."""
    said = refused(capsys, files["none"])
    assert "none.json holds no stages (mode 'gate', 1 cases): stages are timed by pytest --attnperf for tests" in said
    chosen = refused(capsys, files["gpu"], "--workload", STAGES[0])
    assert f"gpu.json holds no stages of {STAGES[0]}" in chosen
    assert "unknown workload 'block-b9'; known: block-b1" in refused(capsys, files["gpu"], "--workload", "block-b9")


def test_a_cpu_file_that_is_none(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU's results, and a CPU's that has no such time, are refused with what is wanted."""
    wrong = refused(capsys, files["gpu"], "--cpu", files["layers"])
    assert "layers.json was measured on NVIDIA H200 (sm_90); --cpu needs a run on a CPU: pytest --attnperf" in wrong
    without = refused(capsys, files["gpu"], "--cpu", files["cpu without"])
    assert "no.json has no time of layer.plain on a workload whose stages are shown; it has times of it on: none" in (
        without
    )


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The name and the reason, without a traceback."""
    assert "gone.json; a run writes .attnperf/results.json" in refused(capsys, str(tmp_path / "gone.json"))


STAGE_FAMILIES: dict[str, type[AttentionStage]] = {
    "qk_scores": QkScores,
    "causal_mask": CausalMask,
    "row_softmax": RowSoftmax,
    "weighted_values": WeightedValues,
}
CAUSAL = "prefill-b1-s512-h8-d64-f16-causal"


def measured(times: dict[tuple[str, str], float | None], prefill: str = CAUSAL) -> list[CaseResult]:
    """Cases by (backend, workload or family of this prefill) -> microseconds, None for one without a time."""
    ids = {**stage_ids(prefill), "prefill": prefill}
    return [case(backend, ids[family], us) for (backend, family), us in times.items()]


STAGE_TIMES = {
    ("hip.staged", family): us for family, us in zip(stage_ids(CAUSAL), (40.0, 10.0, 20.0, 30.0), strict=True)
}


@pytest.mark.parametrize(
    ("prefill", "ids"),
    [
        (
            "prefill-b2-s64-kv128-h8-hk2-d32-bf16-causal",
            [
                "qk_scores-b2-s64-kv128-h8-hk2-d32-bf16",
                "causal_mask-b2-s64-kv128-h8-f32",
                "row_softmax-b2-s64-kv128-h8-bf16-causal",
                "weighted_values-b2-s64-kv128-h8-hk2-d32-bf16-causal",
            ],
        ),
        ("prefill-b1-s64-h8-d32-f16", ["qk_scores-b1-s64-h8-d32-f16", "row_softmax-b1-s64-h8-f16"]),
        ("prefill-b1-s64-h8-d32-f16-causal-lse", []),
        ("prefill-b1-s64-h8-d32-f16-causal-w16", []),
    ],
)
def test_a_prefill_names_its_stages(prefill: str, ids: list[str]) -> None:
    """A mask only where it is causal; none where attention is more than its four stages. The ids are those of the
    families."""
    found = list(stage_ids(prefill).values())
    assert found[: len(ids)] == ids
    assert len(found) == (0 if not ids else 4 if "causal" in prefill else 3)
    assert [STAGE_FAMILIES[name.partition("-")[0]].parse(name).id for name in found] == found


def test_the_sum_the_whole_and_the_fused() -> None:
    """The stages' sum, the staged call and each fused kernel, each over the staged call; the fastest reads largest."""
    whole = {("hip.best", "prefill"): 19.0, ("hip.staged", "prefill"): 95.0}
    (table,) = map(as_text, staged_tables(measured({**STAGE_TIMES, **whole})).values())
    assert [column.header for column in table.columns][:2] == ["time us", "over hip.staged"]
    assert [row[:3] for row in table.rows] == [
        ("hip.staged, sum of 4", "100.0", "0.95x"),
        ("hip.staged", "95.00", "1.00x"),
        ("hip.best", "19.00", "5.00x"),
    ]
    assert table.rows[0][3:] == ("40.00", "10.00", "20.00", "30.00")
    assert table.notes == ()


def test_without_the_whole_the_sum_is_held_to() -> None:
    """A library whose staged call was not timed is named, and its stages' sum is what others are over."""
    (table,) = map(as_text, staged_tables(measured({**STAGE_TIMES, ("hip.best", "prefill"): 20.0})).values())
    assert [row[:3] for row in table.rows] == [
        ("hip.staged, sum of 4", "100.0", "1.00x"),
        ("hip.best", "20.00", "5.00x"),
    ]
    assert table.notes == (f"hip.staged has no time of: {CAUSAL}",)


def test_what_is_missing_is_said() -> None:
    """A stage without a time leaves no sum; it is named, and so are backends that were not timed, and none fused."""
    times = {**STAGE_TIMES, ("hip.staged", "row_softmax"): None, ("triton.flash", "prefill"): None}
    (table,) = map(as_text, staged_tables(measured(times)).values())
    assert table.rows == (("hip.staged, sum of 4", "-", "40.00", "10.00", "-", "30.00"),)
    assert table.notes == (
        f"hip.staged has no time of: row_softmax-b1-s512-h8-f16-causal, {CAUSAL}",
        "not timed on this workload: triton.flash (UNSUPPORTED)",
        "no fused kernel was timed on this workload",
    )


def test_only_prefills_with_stages_are_shown() -> None:
    """A prefill alone makes no table, nor do stages of other sizes, nor a workload that was not asked for."""
    other = "prefill-b1-s1024-h8-d64-f16-causal"
    cases = [*measured(STAGE_TIMES), *measured({("hip.best", "prefill"): 20.0}, other)]
    assert staged_tables(cases) == {}
    cases += measured({("hip.best", "prefill"): 20.0})
    assert len(staged_tables(cases)) == len(staged_tables(cases, [CAUSAL])) == 1
    assert staged_tables(cases, [other]) == {}

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling, RooflinePoint
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

Run = Callable[..., str]

COLUMNS = (
    "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
    "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
    "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X",
    "Grid_Size_Y", "Grid_Size_Z",
)  # fmt: skip
GEMM = "Cijk_Ailk_Bljk_HB_MT128x128x16_SE"
FLASH = "void flash_attention<32>(float const*, float*)"
PASS = (
    (GEMM, 4, 100_000),
    (FLASH, 2, 30_000),
    ("__amd_rocclr_copyBuffer", 1, 5_000),
    ("layer_norm_kernel", 3, 10_000),
    ("embedding_kernel", 1, 4_000),
    ("lm_head_kernel", 1, 6_000),
)
"""(kernel, calls of one forward pass, ns) of a model of two layers."""

POINT = RooflinePoint(
    100.0, 5e9, 2e8, 5e13, 2e12, 25.0, 41.7, "DRAM", 0.417,
    (Ceiling(4.8e12, "B/s", "peak", "DRAM", "H200"), Ceiling(9.9e14, "FLOP/s", "peak", "f16 matrix", "H200")),
)  # fmt: skip


def write_trace(path: Path, *, passes: int = 5, gemm_ns: int = 100_000) -> Path:
    """A kernel trace of ROCm 7 with `passes` forward passes, a microsecond between dispatches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    now, rows = 1_000_000, []
    for name, duration in _dispatches(passes, gemm_ns):
        number, resources = len(rows) + 1, (1536, 0, 24, 0, 128, 256, 1, 1, 65536, 1, 1)
        rows.append(("KERNEL_DISPATCH", "Agent 1", 1, 1, 7, number, 3, name, number, now, now + duration, *resources))
        now += duration + 1000
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([COLUMNS, *rows])
    return path


def _dispatches(passes: int, gemm_ns: int) -> Iterable[tuple[str, int]]:
    for _ in range(passes):
        for name, calls, duration in PASS:
            yield from [(name, gemm_ns if name == GEMM else duration)] * calls


FLASH_FWD = KernelShape("flash_fwd", workgroup=(128, 1, 1), grid_items=(128 * 400, 1, 1), vgprs=168, lds_bytes=4096)


def write_counters(path: Path, **counters: float) -> Path:
    """A counter_collection CSV of two dispatches of the GEMM, with these counters."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ("Dispatch_Id", "Grid_Size", "Kernel_Name", "Counter_Name", "Counter_Value")
    rows = [(number, 65536, GEMM, name, value) for number in (1, 2) for name, value in counters.items()]
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([columns, *rows])
    return path


def profiled_results(path: Path, *shapes: KernelShape) -> Path:
    """Results of one profiled case and one that is not."""
    profile = CaseProfile(
        2, tuple(LiveKernel(shape, (90_000, 110_000)) for shape in shapes or (FLASH_FWD,)), 200_000, "NVIDIA H200",
        bound=BoundVerdict(BoundClass.MEMORY, "41.7 % of DRAM", "", POINT),
    )  # fmt: skip
    key = CaseKey("decode", "triton.flash", "decode-b64-s4096")
    cases = (
        CaseResult(key, "n", Verdict.SAME, "", median_us=100.0, profile=profile),
        CaseResult(CaseKey("decode", "native.sdpa", "decode-b64-s4096"), "m", Verdict.SAME, "", median_us=200.0),
    )
    device = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", 132)
    run = RunResult(RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01", "pytest --attnperf", "c0", device, None, cases)
    json_results.write(path, run)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Type `attnperf profile ARGUMENTS` in a terminal of 120 columns; what it prints with this exit status."""
    monkeypatch.setenv("COLUMNS", "120")

    def typed(*arguments: object, status: int = 0) -> str:
        found = main(["profile", *map(str, arguments)])
        printed = capsys.readouterr()
        assert found == status, printed.err
        return printed.out if status != 2 else printed.err

    return typed


def row_of(text: str, first: str) -> list[str]:
    """Words of the first line that begins so."""
    return next(line.split() for line in text.splitlines() if line.startswith(first))


def test_a_folder_is_broken_down(run: Run, tmp_path: Path) -> None:
    """A folder of rocprofv3's files gives the breakdown, with passes, families and shares."""
    write_trace(tmp_path / "out" / "x_kernel_trace.csv")
    text = run(tmp_path / "out")
    assert "forward passes: 5 of 2 layers" in text
    gemm = row_of(text, "GEMM")
    assert gemm[1:6] == ["2000", "79.2", "%", "20", "4"]
    assert row_of(text, "attention")[1:4] == ["300.0", "11.9", "%"]
    assert "attention takes 11.9 %" in text


def test_json_has_the_same_figures_and_no_table(run: Run, tmp_path: Path) -> None:
    """Programs get every figure in nanoseconds, exactly."""
    content = json.loads(run(write_trace(tmp_path / "kernel_trace.csv"), "--json"))
    assert content["profile"]["total_ns"] == 5 * (400_000 + 60_000 + 5_000 + 30_000 + 10_000)
    assert content["profile"]["calls"] == 60
    assert {family["family"] for family in content["profile"]["families"]} >= {"GEMM", "attention"}


def test_markdown_has_whole_tables(run: Run, tmp_path: Path) -> None:
    """What goes into a pull request is Markdown, with every table in one piece."""
    text = run(write_trace(tmp_path / "kernel_trace.csv"), "--markdown")
    assert "### where the time goes" in text
    assert "| GEMM" in text


def test_before_and_after(run: Run, tmp_path: Path) -> None:
    """Two profiles are held against each other per forward pass, though they hold unequal numbers of passes."""
    before = write_trace(tmp_path / "before" / "kernel_trace.csv", passes=5)
    after = write_trace(tmp_path / "after" / "kernel_trace.csv", passes=8, gemm_ns=50_000)
    text = run(before, "--against", after)
    assert "GPU time per pass: 505.0 us -> 305.0 us, 1.66x as fast" in text
    assert row_of(text, "GEMM")[1:5] == ["400.0", "200.0", "-50.0", "%"]


def test_a_trace_alone_is_told_its_device(run: Run, tmp_path: Path) -> None:
    """Without agent_info the architecture is unknown and there is no occupancy; --device tells it."""
    trace = write_trace(tmp_path / "kernel_trace.csv")
    assert "does not say the architecture of agent 'Agent 1'" in " ".join(run(trace).split())
    told = run(trace, "--device", "Radeon 8060S (Ryzen AI Max+ 395)")
    row = told.split("resources of each size")[1]
    assert "16/16" in next(line for line in row.splitlines() if line.startswith("flash_attention"))


def test_two_devices_with_peaks_of_the_users_own(run: Run, tmp_path: Path) -> None:
    """A speed ratio stands beside the ratio of what the devices can do, with where each figure is from."""
    before = write_trace(tmp_path / "before" / "kernel_trace.csv")
    after = write_trace(tmp_path / "after" / "kernel_trace.csv", gemm_ns=50_000)
    peaks = ("--peaks", "mem_gb_s=212,f16_tflops=36.9,measured", "--against-peaks", "mem_gb_s=672,f16_tflops=130.5")
    text = run(before, "--against", after, *peaks)
    assert row_of(text, "DRAM bandwidth")[2:] == ["212", "measured", "672", "data", "sheet", "GB/s", "3.17x"]
    assert "1.66 x as fast with 3.17 x the DRAM bandwidth" in " ".join(text.split())
    assert "compares different kinds" in " ".join(text.split())


def test_rules_passes_and_layers_of_the_users_own(run: Run, tmp_path: Path) -> None:
    """A file of rules in front of ours renames families; passes and layers may be said instead of inferred."""
    rules = tmp_path / "rules.json"
    rules.write_text(
        json.dumps({"schema": 1, "rules": [{"pattern": "^Cijk_", "family": "my GEMMs", "nature": "compute"}]})
    )
    trace = write_trace(tmp_path / "kernel_trace.csv")
    text = run(trace, "--families", rules, "--passes", 5, "--layers", 2, "--warm-up", 1, "--all")
    assert row_of(text, "my GEMMs")[2] == "2000"


def test_a_contradicted_claim_is_exit_status_1(run: Run, tmp_path: Path) -> None:
    """A report whose figures cannot be is refused in CI; the figures of the trace beside it are used."""
    claims = Path(__file__).parents[3] / "examples/claims/flash_attention_report.json"
    text = run("--claims", claims, status=1)
    assert "CONTRADICTED" in text
    assert "holds" in text
    content = json.loads(run("--claims", claims, "--json", status=1))
    assert any(found["holds"] is False for found in content["claims"])
    trace = write_trace(tmp_path / "kernel_trace.csv")
    assert "CONTRADICTED" in run(trace, "--claims", claims, status=1)


def test_profiled_cases_of_a_run(run: Run, tmp_path: Path) -> None:
    """results.json of --attnperf-profile gives classes with their evidence, and the kernels of each case."""
    results = profiled_results(tmp_path / "results.json")
    text = run(results)
    assert " ".join(row_of(text, "triton.flash/decode-b64-s4096 ")[1:6]) == "memory 41.7 % DRAM 100.0"
    assert "triton.flash/decode-b64-s4096: memory: 41.7 % of DRAM" in text
    assert "triton.flash/decode-b64-s4096: kernels" in text
    assert row_of(text, "flash_fwd")[1] == "attention"
    profiles = json.loads(run(results, "--json"))["profiles"]
    assert [profile["bound"]["bound"] for profile in profiles] == ["memory"]
    assert "where the time goes" not in text, "one kernel is no breakdown"
    assert profiles[0]["profile"]["span_ns"] is None, "when kernels of a case began is not in the file"


def test_copies_of_a_run_are_held_against_its_device(run: Run, tmp_path: Path) -> None:
    """results.json says which device it is: 4 GB within the device in 100 us are above its memory, without --device."""
    copies = KernelShape("Memcpy DtoD (Device -> Device)", kind="copy", bytes=4 * 10**9, agent="0")
    kernel = KernelShape("flash_fwd", agent="0")
    (profile,) = json.loads(run(profiled_results(tmp_path / "results.json", copies, kernel), "--json"))["profiles"]
    assert any(found["rule"] == "faster than memory" for found in profile["profile"]["findings"])


def test_a_roofline_of_a_run(run: Run, tmp_path: Path) -> None:
    """--plot draws the profiled cases under their ceilings."""
    pytest.importorskip("matplotlib")
    plot = tmp_path / "roof.svg"
    run(profiled_results(tmp_path / "results.json"), "--plot", plot)
    assert "decode-b64-s4096" in plot.read_text()


def test_what_binds_a_kernel_of_a_trace(run: Run, tmp_path: Path) -> None:
    """With the work that the user names, a trace of rocprofv3 gives a class with evidence, as text, JSON and plot."""
    trace = write_trace(tmp_path / "kernel_trace.csv")
    asked = (trace, "--device", "MI300X", "--workload", "Cijk_=gemm-m4096-n4096-k4096-f16")
    text = " ".join(run(*asked).split())
    assert "Cijk_Ailk_Bljk_HB_MT128x128x16_SE as gemm-m4096-n4096-k4096-f16: not decidable" in text
    assert "impossible" in text, "137 GFLOP in 100 us are 1,374 TFLOP/s, above MI300X's 1,307"
    content = json.loads(run(*asked, "--json"))
    assert content["bounds"][0]["time_us"] == 100.0
    pytest.importorskip("matplotlib")
    run(*asked, "--plot", tmp_path / "roof.svg")
    assert (tmp_path / "roof.svg").is_file()


def test_counters_of_a_second_run_decide(run: Run, tmp_path: Path) -> None:
    """Times come from a trace and counters from a run of their own; together they say what the trace left open."""
    trace = write_trace(tmp_path / "kernel_trace.csv")
    counters = write_counters(tmp_path / "counters" / "counter_collection.csv", MfmaUtil=82.5, FETCH_SIZE=20_000)
    asked = (trace, "--device", "MI210", "--workload", "Cijk_=gemm-m1024-n1024-k1024-f16", "--counters", counters)
    text = run(*asked)
    assert "82.5 %" in text.split("hardware counters")[1]
    flat = " ".join(text.split())
    assert "gemm-m1024-n1024-k1024-f16: compute: by counters: matrix units busy 82.5 % of the time" in flat
    content = json.loads(run(*asked, "--json"))
    assert {one["counter"] for one in content["profile"]["counters"]} == {"MfmaUtil", "FETCH_SIZE"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "needs a PATH, or --claims FILE"),
        (("{trace}", "--plot", "roof.svg"), "--plot needs a known workload: add --workload KERNEL=ID"),
        (("{trace}", "--workload", "flash"), "--workload 'flash': expected KERNEL=ID"),
        (("{trace}", "--counters", "{trace}"), "holds no counters; rocprofv3 --pmc writes them"),
        (("{trace}", "--workload", "flash=prefill-x"), "prefill-x"),
        (("{trace}", "--workload", "nothing=prefill-b1-s64-h4-d64-f16"), "no kernel has 'nothing' in its name"),
        (("{trace}", "--against", "{trace}", "--workload", "a=b"), "--workload is for one profile only"),
        (("{results}", "--workload", "a=b"), "--workload is for a profiler's files"),
        (("{trace}", "--case", "x"), "--case is for a results.json"),
        (("{results}", "--against", "{trace}"), "--against is for a profiler's files"),
        (("{results}", "--layers", "3"), "--layers is for a profiler's files"),
        (("{results}", "--device", "MI300X"), "--device MI300X is gfx942, but the results are of"),
        (("{results}", "--warm-up", "0"), "--warm-up is for a profiler's files"),
        (("--claims", "x.json", "--device", "MI999"), "--device is for a profiler's files, but no PATH is given"),
        (("--claims", "x.json", "--warm-up", "0"), "--warm-up is for a profiler's files, but no PATH is given"),
        (("--claims", "x.json", "--all"), "--all is for a profiler's files, but no PATH is given"),
        (("{results}", "--plot", "roof.jpg"), "--plot roof.jpg: the name must end in .svg or .png"),
        (("{results}", "--case", "nothing"), "holds no profiled case with 'nothing' in its name"),
        (("{trace}", "--passes", "0"), "--passes 0 must be at least 1"),
        (("{trace}", "--warm-up", "-1"), "--warm-up -1 must be at least 0"),
        (("{trace}", "--device", "MI999"), "unknown device 'MI999'; known: "),
        (("{trace}", "--peaks", "mem_gb_s=1"), "--peaks is for comparing two profiles: add --against"),
        (("{trace}", "--against", "{trace}", "--peaks", "fast"), "'fast' is no peak"),
        (("{trace}", "--claims", "x.json", "--against", "{trace}"), "drop --against"),
        (("{empty}",), "empty"),
        (("nowhere",), "nowhere"),
    ],
)  # fmt: skip
def test_what_is_off_is_said(run: Run, tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    """Options that mean nothing here, files that are none, and names that nobody knows: exit status 2 and why."""
    names = {
        "trace": write_trace(tmp_path / "kernel_trace.csv"),
        "results": profiled_results(tmp_path / "results.json"),
        "empty": tmp_path / "empty_kernel_trace.csv",
    }
    names["empty"].touch()
    said = run(
        *(argument.format_map({name: str(path) for name, path in names.items()}) for argument in arguments), status=2
    )
    assert expected in said

"""The program that asks how good gates are: its schedule, what it keeps, and a whole small run on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import gate_quality
from benchmarks.gate_quality import Collection, Pass, TrueSize, read, rounds, sizes_for
from benchmarks.quality.processes import Case
from benchmarks.quality.rules import LEVELS, PLAIN

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "figures" / "h200_gate_quality.jsonl"
CASE = Case("native.sdpa_flash", "w", "spin")


def test_every_label_gets_its_processes() -> None:
    """Three unchanged for one of each label, spread over the time; what a run has already is not measured again."""
    order = list(rounds(dict.fromkeys((PLAIN, *LEVELS), 0), list(LEVELS), 4))
    assert Counter(order) == {PLAIN: 12, **dict.fromkeys(LEVELS, 4)}
    assert all(Counter(order[at : at + 7])[PLAIN] == 3 for at in range(0, 28, 7))
    have = {PLAIN: 12, **dict.fromkeys(LEVELS, 4), "slow5": 1}
    assert Counter(rounds(have, list(LEVELS), 4)) == {"slow5": 3}


def test_sizes_are_taken_from_the_file() -> None:
    """Of this product and this edit, if every label has one."""
    known = Collection([Pass("r", "sizes", "", "", "h100", {}, 1, 1.0)])
    known.sizes = [TrueSize("r", CASE.name, label, 0.0, 0.0, 0.0, "spin 9") for label in LEVELS]
    assert len(sizes_for(known, "h100", [CASE])) == len(LEVELS)
    assert sizes_for(known, "h200", [CASE]) == []
    assert sizes_for(known, "h100", [CASE, Case("other", "w", "spin")]) == []
    assert sizes_for(known, "h100", [Case(CASE.backend, CASE.workload, "softmax_power")]) == []
    known.sizes.pop()
    assert sizes_for(known, "h100", [CASE]) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs --json FILE to measure, or --report FILE"),
        (["--json", "f", "--passes", "sizes,all"], "--passes has all; there are sizes, processes, pairs"),
    ],
)
def test_what_cannot_run_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what exists."""
    with pytest.raises(SystemExit) as ended:
        gate_quality.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.soak  # a minute
def test_a_small_run_on_a_cpu(tmp_path: Path) -> None:
    """Every tool that times a CPU gives a number in each process; a second run goes on where the first has stopped."""
    file = tmp_path / "file.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks/gate_quality.py"), "--json", str(file), "--device=cpu"]
    command += ["--only=native.sdpa_flash", "--labels=slow3", "--pair-labels=slow3", "--run=r", "--peer-seconds=0.05"]
    for processes in ("1", "2"):
        limits = ["--minutes=3", f"--processes={processes}", "--pairs=1"]
        subprocess.run([*command, *limits], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = read(file)
    counted = Counter((one.method, one.label) for one in found.processes)
    assert counted == {
        (method, label): count
        for method in ("attnperf", "pytest_benchmark", "nvbench")
        for label, count in ((PLAIN, 6), ("slow3", 2))
    }
    assert sorted({one.unit for one in found.processes}) == [0, 1, 2, 3, 4, 5]
    assert [(pair.label, pair.unit) for pair in found.pairs] == [("slow3", 0)]
    assert {size.label for size in found.sizes} == set(LEVELS)
    assert [one.failed for one in found.passes if one.failed] == []


def report(file: Path) -> str:
    """What the command prints of a file."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gate_quality.py"), "--report", str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def test_the_page_shows_what_was_measured() -> None:
    """The table of docs/evidence.md is the one that the command prints of the stored file, to the last figure."""
    printed = report(STORED)
    table = printed[printed.index("| tool and rule") : printed.index("\n\nSLOWER")]
    assert table in (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")


def test_spreads_that_the_page_states_are_printed() -> None:
    """Each ratio and share of the page's sentence on processes stands in a row of that tool."""
    rows = [line.split(" | ") for line in report(STORED).splitlines() if line.count(" | ") == 4]
    ratios = {
        tool: max(float(row[4].strip(" |")) for row in rows if row[1] == tool)
        for tool in ("do_bench", "pytest_benchmark")
    }
    spreads = {
        tool: [float(row[3].removesuffix(" %")) for row in rows if row[1] == tool] for tool in ("nvbench", "attnperf")
    }
    page = " ".join((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    assert f"reads {ratios['do_bench']:.1f} and {ratios['pytest_benchmark']:.1f} times the fastest" in page
    assert f"by {max(spreads['nvbench']):.1f} % at most for nvbench" in page
    assert f"by {min(spreads['attnperf']):.2f} to {max(spreads['attnperf']):.2f} % for this plugin" in page


def test_tools_are_told_apart(tmp_path: Path) -> None:
    """Of unchanged code that one tool reads 20 % slower in every second process that tool alone alarms: a gate that
    cries at noise is shown as one, and one that reads the same each time is not."""
    lines = STORED.read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if '"plain"' in line and '"attnperf"' in line]
    assert plain
    found = {}
    for name, slow_us in (("steady", "20.0"), ("noisy", "24.0")):
        added = []
        for number, line in enumerate(plain):
            head, _, rest = line.replace('"attnperf"', '"do_bench"').partition('"us":')
            odd = (number // 6) % 2  # six cases a process
            added.append(f'{head}"us":{slow_us if odd else "20.0"},{rest.partition(",")[2]}')
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join([*lines, *added]) + "\n", encoding="utf-8")
        rows = [line for line in report(file).splitlines() if line.startswith("| ")]
        found[name] = {row.split(" | ")[0]: row.split(" | ")[1].split(" (")[0] for row in rows}
    assert found["steady"]["| do_bench, + 5 %"] == "0 %"
    assert float(found["noisy"]["| do_bench, + 5 %"].removesuffix(" %")) > 5
    own = "| attnperf, stored, 2 % and 0.5 us"
    assert found["steady"][own] == found["noisy"][own]

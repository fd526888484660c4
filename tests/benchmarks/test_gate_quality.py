from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "figures" / "h100_gate_quality.jsonl"


def report(file: Path) -> str:
    """What the command prints of a file."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gate_quality.py"), "--report", str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def test_the_page_shows_what_was_measured() -> None:
    """The table of docs/gate-quality.md is the one that the command prints of the stored file, to the last figure."""
    printed = report(STORED)
    table = printed[printed.index("| tool and rule") : printed.index("\n\nSLOWER")]
    assert table in (ROOT / "docs" / "gate-quality.md").read_text(encoding="utf-8")


def test_tools_are_told_apart(tmp_path: Path) -> None:
    """Of unchanged code that one tool reads 20 % slower in every second process that tool alone alarms: a gate that
    cries at noise is shown as one."""
    noisy = tmp_path / "noisy.jsonl"
    lines, seen = [], 0
    for line in STORED.read_text(encoding="utf-8").splitlines():
        if '"plain"' in line and '"do_bench"' in line:
            us, seen = ("24.0" if seen % 2 else "20.0"), seen + 1
            head, _, rest = line.partition('"us":')
            lines.append(f'{head}"us":{us},{rest.partition(",")[2]}')
        else:
            lines.append(line)
    noisy.write_text("\n".join(lines) + "\n", encoding="utf-8")
    before, after = report(STORED).splitlines(), report(noisy).splitlines()
    changed = [line for line in after if line.startswith("| ") and line not in before]
    alarms = [line for line in changed if "do_bench, + 5 %" in line]
    assert seen > 0
    assert alarms
    assert not [line for line in changed if "nvbench" in line or "attnperf" in line]

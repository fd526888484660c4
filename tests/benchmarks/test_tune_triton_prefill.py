from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.triton.configs import load

ROOT = Path(__file__).parents[2]
WRITE = """
import dataclasses, sys
sys.path.insert(0, "benchmarks")
import tune_triton_prefill as tune
from kernels.triton.configs import Rule
rules = [dataclasses.asdict(Rule(d, None, 16, tune.as_config((64, 32, 4, 2)), "a test")) for d in tune.CLASSES]
sys.stdout.write(tune.merged("sm_90", rules))
"""


def test_writes_the_format_the_loader_reads(tmp_path: Path) -> None:
    """The tuned file is the shipped one with one architecture's 16-bit rules replaced, and loads."""
    pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-c", WRITE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = tmp_path / "prefill_forward.json"
    written.write_text(done.stdout, encoding="utf-8")
    before, after = load(ROOT / "kernels" / "triton" / "configs" / "prefill_forward.json"), load(written)
    assert {rule.source for rule in after["sm_90"] if rule.element_bits == 16} == {"a test"}
    assert [r for r in after["sm_90"] if r.element_bits == 32] == [r for r in before["sm_90"] if r.element_bits == 32]
    assert {arch: rules for arch, rules in after.items() if arch != "sm_90"} == {
        arch: rules for arch, rules in before.items() if arch != "sm_90"
    }


def test_says_that_it_needs_a_gpu() -> None:
    """Without a GPU the program ends with one line saying so, and exit code 2."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; the program would tune for minutes")
    command = [sys.executable, "benchmarks/tune_triton_prefill.py", "--out", "unused.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs a GPU that torch can use; this machine has none" in done.stderr

"""Whether a gate on a CPU cries wolf beside other work, and still finds what is slow.

    python benchmarks/beside_load.py --runs 30 --slow-runs 10 --busy 2

Three functions of torch are recorded and gated in one run (`--attnperf-record-local`), as `make attnperf` does without
a GPU, beside so many endless loops and a burst of eight processes every few seconds. Every failed test is a false
alarm. Then the functions do their work three times over against what was recorded: every one must be SLOWER.
Prints verdicts by run; status 1 where one is off.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pytest_attnperf.reports.files import json_results

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "--attnperf",
    "--attnperf-record-local",
    "--attnperf-threshold=100",
    "--no-attnperf-strict",
    "-p",
    "no:randomly",
)
SUITE = """
import json, pathlib
import torch

TIMES = json.loads(pathlib.Path(__file__).with_name("times.json").read_text())

def softmax(x):
    return torch.softmax(x, -1)

def matmul(a, b):
    return a @ b

def attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)

def again(function):
    def call(*inputs):
        for _ in range(TIMES - 1):
            function(*inputs)
        return function(*inputs)
    return call

def normal(*shape):
    return torch.randn(*shape)

def test_softmax(attnperf):
    attnperf.gate("softmax", again(softmax), reference=softmax, inputs=lambda: normal(64, 1000))

def test_matmul(attnperf):
    attnperf.gate("matmul", again(matmul), reference=matmul, inputs=lambda: (normal(256, 256), normal(256, 256)))

def test_attention(attnperf):
    attnperf.gate(
        "attention", again(attention), reference=attention, inputs=lambda: [normal(1, 4, 128, 64) for _ in range(3)]
    )
"""
LOOP = "while True: pass"
BURSTS = f"""
import subprocess, sys, time
while True:
    burst = [subprocess.Popen([sys.executable, "-c", {LOOP!r}]) for _ in range(8)]
    time.sleep(0.7)
    for process in burst:
        process.kill()
        process.wait()
    time.sleep(4)
"""


@contextlib.contextmanager
def load(busy: int) -> Iterator[None]:
    """So many endless loops, and bursts of eight; none of it for 0."""
    programs = [LOOP] * busy + ([BURSTS] if busy else [])
    running = [subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for text in programs]
    try:
        yield
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def gate(project: Path, times: int) -> tuple[dict[str, str], float]:
    """Verdicts by case of one run, and its seconds."""
    (project / "suites" / "times.json").write_text(json.dumps(times))
    started = time.perf_counter()
    command = [sys.executable, "-m", "pytest", *FLAGS, "suites"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    results = project / ".attnperf" / "results.json"
    if done.returncode not in (0, 1) or not results.exists():
        raise SystemExit(f"the run broke, exit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return {case.key.workload: case.verdict.value for case in json_results.read(results).cases}, seconds


def main() -> int:
    """Print how often unchanged code was red, and how often slow code was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="of unchanged code, each recording anew")
    parser.add_argument("--slow-runs", type=int, default=10, help="of code that is three times as slow")
    parser.add_argument("--busy", type=int, default=2, help="endless loops beside them")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the loops end with this program
    red = found = 0
    with tempfile.TemporaryDirectory() as folder, load(options.busy):
        project = Path(folder)
        (project / "suites").mkdir()
        (project / "suites" / "test_functions.py").write_text(SUITE)
        (project / "tox.ini").write_text("[pytest]\n")
        os.environ["PYTHONPATH"] = str(ROOT)
        seen: Counter[str] = Counter()
        for run in range(options.runs):
            shutil.rmtree(project / ".attnperf", ignore_errors=True)
            verdicts, seconds = gate(project, 1)
            seen.update(verdicts.values())
            red += any(verdict not in ("SAME", "FASTER", "UNDECIDED") for verdict in verdicts.values())
            print(f"unchanged {run + 1}: {' '.join(verdicts.values())}, {seconds:.0f} s", flush=True)
        for run in range(options.slow_runs):
            verdicts, seconds = gate(project, 3)
            found += sum(verdict == "SLOWER" for verdict in verdicts.values())
            print(f"three times as slow {run + 1}: {' '.join(verdicts.values())}, {seconds:.0f} s", flush=True)
    print(f"{red} of {options.runs} runs of unchanged code red ({dict(seen)})")
    print(f"{found} of {3 * options.slow_runs} slow cases SLOWER, beside {options.busy} busy loops and bursts")
    return int(red > 0 or found < 3 * options.slow_runs)


if __name__ == "__main__":
    raise SystemExit(main())

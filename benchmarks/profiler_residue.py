"""What a profiler leaves behind: how much slower kernels are that are timed in a process after it was used.

    python benchmarks/profiler_residue.py [--processes 9]

Fresh processes take turns: in one kind nothing is profiled, in the others one call of each case before it is timed.
Kinds: 'kineto' is torch.profiler on the GPU, 'kineto_cpu' the same on the host alone, 'operators' the older profiler
that only lists torch's operators, 'graph' reads the nodes of the graph that is timed. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KINDS = ("plain", "kineto", "kineto_cpu", "operators", "graph")
CASES = (
    ("native.sdpa_cudnn", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.sdpa_flash", "prefill-b2-s63-h4-d64-f16-causal"),
    ("triton.flash", "prefill-b2-s63-h4-d64-f16-causal"),
    ("triton.flash", "prefill-b1-s1024-h32-hk8-d128-bf16-causal"),
)


def profile_once(kind: str, call: Callable[[], Any]) -> None:
    """Use the profiler of a kind on one call; 'plain' and 'graph' use none."""
    from torch.profiler import ProfilerActivity, profile

    from pytest_attnperf.measure import trace

    if kind == "kineto":
        trace.record_gpu_work(call)
        trace._used.clear()  # the process is timed all the same: that is the question
    elif kind == "kineto_cpu":
        with profile(activities=[ProfilerActivity.CPU]):
            call()
    elif kind == "operators":
        trace.record_operators(call)


def measure(kind: str) -> dict[str, float]:
    """Microseconds per call of each case, in this process."""
    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.measure.seeds import Seeds, timed_seed
    from pytest_attnperf.measure.subject import TorchSubject
    from pytest_attnperf.measure.torch_device import TorchDevice
    from pytest_attnperf.records import CheckReport
    from pytest_attnperf.stats.summaries import summarise_process
    from pytest_attnperf.workloads.families import parse_workload

    registry = Registry()
    kernels.register(registry)
    device = TorchDevice.open("gpu", interpreted=False)
    found = {}
    for name, identity in CASES:
        workload = parse_workload(identity)
        subject = TorchSubject(registry.get(name), workload, device.device, Seeds(timed_seed(workload), 1, 2))
        if kind != "graph":
            # The subject looks at operators and at the graph itself; here only what is asked about may be looked at.
            subject._check_what_ran = lambda *, profiled: CheckReport()  # type: ignore[method-assign]
            subject._inspect_graph = lambda timer: None  # type: ignore[method-assign]
        subject.prepare()
        profile_once(kind, subject._ready.run)
        report = subject.check()
        assert report.right, report.problems
        samples = subject.measure_blocks(30, 600.0, 120_000.0)
        found[f"{name} {identity}"] = summarise_process(samples, device_id="", process="").median_us
        subject.finish()
    return found


def residue_line(case: str, plain: Sequence[float], profiled: Sequence[float]) -> str:
    """Both means, their difference, and its standard error from the spread between processes of either kind."""
    base, new = statistics.mean(plain), statistics.mean(profiled)
    error = (statistics.variance(plain) / len(plain) + statistics.variance(profiled) / len(profiled)) ** 0.5
    return (
        f"  {case:64s} {base:9.3f} -> {new:9.3f} us  {100 * (new / base - 1):+6.2f} % "
        f"(standard error {100 * error / base:.2f} %, {len(plain)} and {len(profiled)} processes)"
    )


def main() -> None:
    """Print a block of lines per kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=9, help="of each kind, at least 2 (default 9)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS[1:], default=list(KINDS[1:]))
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print("RESULT " + json.dumps(measure(options.child)))
        return
    kinds = ["plain", *options.kinds]
    got: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for turn in range(max(2, options.processes)):
        for kind in kinds if turn % 2 else reversed(kinds):
            got[kind].append(_in_a_process(kind))
    for kind in options.kinds:
        print(f"after {kind}:")
        for case in got["plain"][0]:
            print(residue_line(case, [run[case] for run in got["plain"]], [run[case] for run in got[kind]]))


def _in_a_process(kind: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        sys.exit(f"a process of kind {kind!r} failed with status {done.returncode}:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()

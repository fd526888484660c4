"""Whether a read profile adds up to torch.profiler's own totals: the same run, counted by torch and by our reader.

    python benchmarks/profile_totals.py [--backend layer.triton.flash ...] [--workload block-... ...] [--device cpu]

Each backend's call is profiled by torch.profiler; its table (`key_averages`) is the reference, and the trace that it
exports is read as `attnperf profile trace.json` reads it. Both are made from the same records: that none is lost or
misread is what is shown, not that the profiler's durations are right. Exit status 1 where the two differ by more than
1 %, or a GPU did nothing that was seen. On a CPU nothing runs on a GPU, so that both say 0 there and the trace is only
shown to be read.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ALLOWED = 0.01
BACKENDS = (
    "layer.plain",
    "layer.native.sdpa_flash",
    "layer.triton.flash",
    "layer.hip.best",
    "layer.native.sdpa_decode",
    "layer.triton.flash_decode",
    "layer.hip.decode",
)
WORKLOADS = ("block-b1-s512-h32-hk8-d128-bf16", "block-b4-s1-p4095-h32-hk8-d128-bf16")
CALLS = 20
WARM_UP = 5
NS_PER_US = 1e3


@dataclass(frozen=True)
class Totals:
    """Device time of one profiled backend in nanoseconds: by torch's table, and as read from its trace."""

    case: str
    torch_ns: float
    read_ns: float
    dispatches: int

    @property
    def ratio(self) -> float | None:
        """Read over torch's; None where nothing ran on a GPU."""
        return self.read_ns / self.torch_ns if self.torch_ns else None

    @property
    def agrees(self) -> bool:
        """Whether both say the same within 1 %."""
        return self.read_ns == 0 if self.ratio is None else abs(self.ratio - 1) <= ALLOWED


def totals_of(backend: str, workload: str, *, on_gpu: bool) -> Totals | None:
    """Profile one backend on one workload, and count twice; None where it does not run that workload."""
    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.measure.single_run import SingleRun
    from pytest_attnperf.tools.profilers.torch_events import read_chrome_trace
    from pytest_attnperf.workloads.families import parse_workload

    registry = Registry()
    kernels.register(registry)
    run = SingleRun.make_here(registry.get(backend), parse_workload(workload), on_gpu=on_gpu, interpreted=not on_gpu)
    if run.backend.unsupported_reasons(run.workload, run.device):
        return None
    prepared = run.prepare()
    run.repeat(prepared, WARM_UP, WARM_UP)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        torch_ns = _profiled(lambda: run.repeat(prepared, 0, CALLS), trace, on_gpu=on_gpu)
        read = read_chrome_trace(trace).dispatches
    return Totals(f"{backend} {workload}", torch_ns, read.total_ns, len(read))


def _profiled(work: Any, trace: Path, *, on_gpu: bool) -> float:
    """Device time by torch's own table, in nanoseconds; the trace is left in a file."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        work()
    profiler.export_chrome_trace(str(trace))
    return sum(self_device_us(row) for row in profiler.key_averages()) * NS_PER_US


def self_device_us(row: Any) -> float:
    """Of a row that stands for work on the device; rows of the host repeat what they launched. Two names by version."""
    if "CUDA" not in str(getattr(row, "device_type", "")):
        return 0.0
    found = getattr(row, "self_device_time_total", None)
    return float(found if found is not None else row.self_cuda_time_total)


def lines(found: Sequence[Totals]) -> list[str]:
    """A line per case, and what is left to say."""
    said = [
        f"{'agree' if one.agrees else 'DIFFER':6} {_ratio(one):>9} torch {one.torch_ns / NS_PER_US:12.1f} us, "
        f"read {one.read_ns / NS_PER_US:12.1f} us in {one.dispatches:5} dispatches: {one.case}"
        for one in found
    ]
    return [*said, f"{sum(one.agrees for one in found)} of {len(found)} within {ALLOWED:.0%}"]


def _ratio(one: Totals) -> str:
    return "-" if one.ratio is None else f"{(one.ratio - 1) * 100:+.3f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the totals of every backend on every workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", default=[])
    parser.add_argument("--workload", action="append", default=[])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))
    pairs = [
        (backend, workload) for backend in options.backend or BACKENDS for workload in options.workload or WORKLOADS
    ]
    asked = [totals_of(backend, workload, on_gpu=options.device == "gpu") for backend, workload in pairs]
    found = [one for one in asked if one is not None]
    print("\n".join(lines(found)))
    seen = options.device == "cpu" or all(one.torch_ns for one in found)
    return 0 if found and seen and all(one.agrees for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Shows at which time a kernel runs in this process, over rests, gaps and lengths of blocks: a line of medians each.

    for i in 1 2 3; do python benchmarks/process_levels.py; done

Some library kernels run at one of two levels for the life of a process, whatever is done between their blocks; others
slow down under load and recover with gaps. Needs an NVIDIA or AMD GPU. Medians are in microseconds per call, over the
blocks that began in each window.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

WINDOWS_S = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45, 0.7)
CASES = (
    ("native.sdpa_flash", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.sdpa_flash", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("triton.flash", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("native.sdpa_cudnn", "prefill-b4-s4096-h8-d256-f16-causal"),
)
SERIES = ((0.1, 0.0), (0.0, 0.0), (0.5, 0.0), (0.1, 0.001), (0.1, 0.003))
"""(seconds of rest before, seconds of gap between blocks)."""


def by_window(blocks: Sequence[tuple[float, float]], edges: Sequence[float] = WINDOWS_S) -> list[float | None]:
    """Median of the blocks (seconds since the first, us) that began in each window; None where none did."""
    found: list[float | None] = []
    for low, high in itertools.pairwise(edges):
        inside = [us for began, us in blocks if low <= began < high]
        found.append(statistics.median(inside) if inside else None)
    return found


def series(timer: Any, gap_s: float) -> list[tuple[float, float]]:
    """Blocks, each behind an unmeasured one, until the last window ends."""
    blocks, began = [], time.perf_counter()
    while (since := time.perf_counter() - began) < WINDOWS_S[-1]:
        blocks.append((since, timer.measure(1)[0]))
        time.sleep(gap_s)
    return blocks


def show(backend: Any, workload: Any, block_us: float) -> None:
    """One case at one length of blocks."""
    from pytest_attnperf.measure.timers.graph import GraphTimer
    from pytest_attnperf.measure.warm_up import warm_up

    prepared = backend.prepare(workload, workload.make_inputs(1, "cuda", planted=False))
    warm_up(prepared.run, "cuda")
    timer = GraphTimer()
    timer.prepare(prepared.run, block_us)
    print(f"{backend.name} {workload.id}: blocks of {timer.calls_per_block} calls")
    for rest_s, gap_s in SERIES:
        time.sleep(rest_s)
        medians = by_window(series(timer, gap_s))
        shown = " ".join("-" if median is None else f"{median:.5g}" for median in medians)
        print(f"  rest {rest_s:g} s, gap {1000 * gap_s:g} ms: {shown}")
    timer.close()


def main() -> int:
    """Every case at two lengths of blocks."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.measure.warm_up import warm_device
    from pytest_attnperf.workloads.prefill import Prefill

    registry = Registry()
    kernels.register(registry)
    warm_device("cuda")
    print("windows from s:", " ".join(f"{edge:g}" for edge in WINDOWS_S[:-1]))
    for name, identity in CASES:
        for block_us in (400.0, 1000.0):
            show(registry.get(name), Prefill.parse(identity), block_us)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Where the noise between processes comes from: memory placement, heat, or clock. Needs an NVIDIA GPU and Triton.

    python benchmarks/noise_sources.py

Every line is one fresh allocation of a case's inputs in this process (the earlier ones are kept, so that the new one
lies elsewhere), measured after a rest: median microseconds per call of the first and last third of the blocks, and the
SM clock during them from stamps of `%clock64` and `%globaltimer`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import triton
import triton.language as tl

import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.warm_up import warm_device
from pytest_attnperf.workloads.prefill import Prefill

CASES = (
    ("native.sdpa_flash", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("triton.flash", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.sdpa_efficient", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("native.sdpa_cudnn", "prefill-b4-s4096-h8-d256-f16-causal"),
    ("triton.flash", "prefill-b1-s4096-h32-hk8-d128-bf16-causal"),
)


@triton.jit
def _stamp(out):
    cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    nanoseconds = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    tl.store(out, cycles)
    tl.store(out + 1, nanoseconds)


def clock_mhz(timer: GraphTimer, replays: int) -> float:
    """Mean SM clock over a few replays, from one stamp before and one behind."""
    stamps = torch.zeros(2, 2, dtype=torch.int64, device="cuda")
    _stamp[(1,)](stamps[0], num_warps=1)
    for _ in range(replays):
        timer._require_graph().replay()
    _stamp[(1,)](stamps[1], num_warps=1)
    torch.cuda.synchronize()
    cycles, nanoseconds = (stamps[1] - stamps[0]).tolist()
    return 1000.0 * cycles / nanoseconds


def main() -> None:
    """Print a block of lines per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--rests", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    options = parser.parse_args()
    registry = Registry()
    kernels.register(registry)
    device = identify_device("cuda")
    warm_device("cuda")
    kept = []
    for name, identity in CASES:
        backend, workload = registry.get(name), Prefill.parse(identity)
        assert not backend.unsupported_reasons(workload, device)
        print(f"\n{name} {identity}")
        for placement in range(options.placements):
            inputs = workload.make_inputs(1, "cuda", planted=False)
            prepared = backend.prepare(workload, inputs)
            kept.append((prepared, inputs, torch.empty(3 << 20, device="cuda")))
            timer = GraphTimer()
            timer.prepare(prepared.run, 1000.0)
            columns = []
            for rest in options.rests:
                torch.cuda.synchronize()
                time.sleep(rest)
                mhz_before = clock_mhz(timer, 2)
                blocks = timer.measure(options.pairs)
                mhz_behind = clock_mhz(timer, 2)
                third = max(1, len(blocks) // 3)
                columns.append(
                    f"rest {rest:.1f} s: {statistics.median(blocks[:third]):8.2f} .. "
                    f"{statistics.median(blocks[-third:]):8.2f} us, {mhz_before:.0f} .. {mhz_behind:.0f} MHz"
                )
            print(f"  placement {placement}: " + " | ".join(columns), flush=True)
            timer.close()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

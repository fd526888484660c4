"""Times launch configurations of `triton.flash` on this GPU and writes the best of each head-dimension class.

    python benchmarks/tune_triton_prefill.py --out prefill_forward.json

Every candidate is checked against the reference on every workload of the prefill suite before it is timed, by replay of
a CUDA graph. The best of a class has the lowest geometric mean of its time over SDPA flash's. The file written is
kernels/triton/configs/prefill_forward.json with this architecture's 16-bit rules replaced: copy it over that file to
use it. Takes about two minutes on an H200.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from kernels.native.prefill import BACKENDS  # noqa: E402
from kernels.triton import configs  # noqa: E402
from kernels.triton.prefill import arch_of  # noqa: E402
from kernels.triton.prefill_forward import prefill_forward  # noqa: E402
from pytest_attnperf.workloads.base import TORCH_DTYPES  # noqa: E402
from pytest_attnperf.workloads.prefill import Prefill  # noqa: E402
from suites.prefill_workloads import PREFILL  # noqa: E402

CLASSES = (64, 128, 256)
"""Largest head dimension of each class."""

CANDIDATES: dict[int, list[tuple[int, int, int, int]]] = {
    64: [
        *itertools.product((64,), (32, 64, 128), (4,), (2, 3)),
        *itertools.product((128,), (64, 128), (4, 8), (2, 3)),
    ],
    128: [
        *itertools.product((64,), (32, 64, 128), (4,), (2, 3)),
        *itertools.product((128,), (32, 64, 128), (8,), (2, 3)),
    ],
    256: [
        *itertools.product((64,), (32, 64), (4, 8), (2, 3)),
        *itertools.product((128,), (32, 64), (8,), (2, 3)),
    ],
}
"""(BLOCK_M, BLOCK_N, num_warps, num_stages) tried per class."""


def main() -> None:
    """Tune, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the configuration file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("needs a GPU that torch can use; this machine has none")
    torch.set_grad_enabled(False)
    rules, rows = [], []
    for head_dim_max in CLASSES:
        rule, class_rows = tune_class(head_dim_max)
        rules.append(rule)
        rows.extend(class_rows)
    print(tabulate(rows, headers=("workload", "triton us", "sdpa flash us", "ratio", "best alone"), floatfmt=".3g"))
    print("worst ratio:", round(max(row[3] for row in rows), 3))
    arguments.out.write_text(merged(arch_of(torch.device("cuda")), rules), encoding="utf-8")
    print("written:", arguments.out)


def tune_class(head_dim_max: int) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The best rule for the suite's workloads of one head-dimension class, and a table row for each of them."""
    below = max((c for c in CLASSES if c < head_dim_max), default=0)
    workloads = [w for w in PREFILL if below < w.head_dim <= head_dim_max and w.dtype != "f32"]
    flash = {w: sdpa_flash_us(w) for w in workloads}
    tried = {candidate: times_us(candidate, workloads) for candidate in CANDIDATES[head_dim_max]}
    times = {candidate: us for candidate, us in tried.items() if us is not None}
    if not times:
        raise SystemExit(f"no candidate for head dimensions up to {head_dim_max} ran; the lines above say why")
    cost = {c: statistics.geometric_mean(us[w] / flash[w] for w in workloads) for c, us in times.items()}
    best = min(cost, key=cost.__getitem__)
    for candidate in sorted(cost, key=cost.__getitem__)[:4]:
        worst = max(times[candidate][w] / flash[w] for w in workloads)
        print(f"d{head_dim_max} {candidate}: {cost[candidate]:.3f} of SDPA flash's time, worst {worst:.3f}")
    rows = []
    for w in workloads:
        alone = min(times, key=lambda candidate: times[candidate][w])
        own = f"{alone} {times[alone][w]:.4g}"
        rows.append((w.id, times[best][w], flash[w], times[best][w] / flash[w], own))
    name = torch.cuda.get_device_name()
    source = f"measured by benchmarks/tune_triton_prefill.py on {name}, torch {torch.__version__}"
    rule = configs.Rule(head_dim_max, None, 16, as_config(best), source)
    return dataclasses.asdict(rule), rows


def times_us(candidate: tuple[int, int, int, int], workloads: list[Prefill]) -> dict[Prefill, float] | None:
    """Time per workload, or None, said, for a candidate that does not compile, does not fit or is wrong."""
    try:
        return {w: triton_us(w, as_config(candidate)) for w in workloads}
    except Exception as error:  # Triton raises its own types for shared memory and for what it cannot compile
        print(f"{candidate}: skipped, {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return None


def as_config(candidate: tuple[int, int, int, int]) -> dict[str, Any]:
    """A candidate in the form of the configuration file."""
    block_m, block_n, num_warps, num_stages = candidate
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "PRELOAD_V": False,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


def triton_us(workload: Prefill, config: dict[str, Any]) -> float:
    """Microseconds per call. Raises ValueError when the result is beyond twice the plain computation's error."""
    q, k, v = inputs = workload.make_inputs(0, "cuda", planted=True)

    def call() -> Any:
        return prefill_forward(q, k, v, causal=workload.causal, with_lse=workload.lse, config=config)

    expected, plain = workload.reference(inputs)["out"].double(), workload.plain(inputs)["out"].double()
    rounding = torch.finfo(getattr(torch, TORCH_DTYPES[workload.dtype])).eps * expected.abs().max().item()
    budget = 2 * (plain - expected).abs().max().item() + rounding
    error = (call()[0].double() - expected).abs().max().item()
    if not error <= budget:
        raise ValueError(f"{workload.id}: wrong by {error:.3g}, allowed are {budget:.3g}")
    return graph_us(call)


def sdpa_flash_us(workload: Prefill) -> float:
    """Microseconds per call of `native.sdpa_flash`, which has no log-sum-exp and is timed without."""
    plain = dataclasses.replace(workload, lse=False)
    backend = next(backend for backend in BACKENDS if backend.name == "native.sdpa_flash")
    return graph_us(backend.prepare(plain, plain.make_inputs(0, "cuda", planted=True)).run)


def graph_us(call: Callable[[], Any], replays: int = 7, block_us: float = 2000.0) -> float:
    """Median over replays of a graph of back-to-back calls, microseconds per call."""
    call()
    once = replay_us(captured(call, 3)) / 3
    calls = max(3, math.ceil(block_us / once))
    graph = captured(call, calls)
    replay_us(graph)
    return statistics.median(replay_us(graph) for _ in range(replays)) / calls


def captured(call: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph:
    """A graph of that many calls."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of one replay, between two events."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1000.0


def merged(arch: str, rules: list[dict[str, Any]]) -> str:
    """The shipped configuration file with this architecture's 16-bit rules replaced, one rule per line."""
    document = json.loads(configs.PREFILL_FORWARD.read_text(encoding="utf-8"))
    kept = [rule for rule in document["archs"].get(arch, document["archs"]["default"]) if rule["element_bits"] != 16]
    document["archs"][arch] = rules + kept
    archs = [
        f"    {json.dumps(name)}: [\n" + ",\n".join(f"      {json.dumps(rule)}" for rule in listed) + "\n    ]"
        for name, listed in document["archs"].items()
    ]
    return f'{{\n  "schema": {configs.SCHEMA},\n  "archs": {{\n' + ",\n".join(archs) + "\n  }\n}\n"


if __name__ == "__main__":
    main()

"""What proving a case costs in this tree, as a multiple of another tree's cost: seconds of its checks and trials.

    git worktree add /tmp/base REVISION
    python benchmarks/proof_cost.py /tmp/base [--device cuda|cpu] [--pairs 6] [--case BACKEND/WORKLOAD ...]

Processes of both trees take turns (A B B A), each proves every case several times with other seeds, as a run without
`--attnperf-trials` does, and the first time does not count: it compiles. Printed are the median ratio of the pairs, its
range, and the seconds of both. Preparing a case is not among them, nor is what a worker does beside proving.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).parents[1]
SEEDS = 4
CASES = {
    "cpu": (
        "native.eager/prefill-b2-s63-h4-d64-f16-causal",
        "native.sdpa_flash/prefill-b1-s200-h4-d128-bf16-causal",
        "native.eager_decode/decode-b3-kv70-h4-hk2-d32-page16-bf16-ragged-lse",
        "native.eager_backward/backward-b1-s96-h4-hk2-d32-bf16-causal",
        "native.softmax/softmax-r64-c512-f16",
        "layer.native.eager/block-b1-s9-p30-room48-e64-h4-hk2-d32-f16",
    ),
    "cuda": (
        "triton.flash/prefill-b4-s2048-h16-d64-f16-causal",
        "hip.best/prefill-b4-s512-h8-d256-f16-causal",
        "native.sdpa_flash/prefill-b4-s2048-h16-d64-f16-causal",
        "triton.flash_decode/decode-b8-kv4096-h32-hk8-d128-page16-bf16-ragged",
        "triton.flash_backward/backward-b2-s1024-h16-d64-bf16-causal",
    ),
}


def prove(cases: Sequence[str], kind: str) -> dict[str, float]:
    """Proves the cases with the package that this process imports; returns each one's seconds without the first."""
    import torch

    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.environment.device import identify_device
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.measure.subject import TorchSubject
    from pytest_attnperf.workloads.families import parse_workload

    torch.set_num_threads(1)
    registry, device = Registry(), identify_device(kind)
    kernels.register(registry)
    trials: dict[str, Any] = list_usual_trials()
    seconds: dict[str, float] = {}
    for case in cases:
        backend, _, workload = case.partition("/")
        spent = []
        for seed in range(SEEDS):
            subject = TorchSubject(registry.get(backend), parse_workload(workload), device, Seeds(0, seed + 1, 99))
            subject.prepare()
            started = time.perf_counter()
            if not subject.check().right or not subject.finish(**trials).check.right:
                raise SystemExit(f"{case} is not right")
            spent.append(time.perf_counter() - started)
        seconds[case] = sum(spent[1:])
    return seconds


def list_usual_trials() -> dict[str, Any]:
    """The trials of every run, as an argument of `finish`; none in a tree without trials."""
    with contextlib.suppress(ImportError):
        return {"trials": importlib.import_module("pytest_attnperf.measure.trials").ALWAYS}
    return {}


def measure(tree: Path, cases: Sequence[str], kind: str) -> dict[str, float]:
    """The same in a process that imports the package of `tree`."""
    command = [sys.executable, __file__, str(tree), "--device", kind, "--child", "--case", *cases]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    ran = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    seconds: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return seconds


def take_turns(base: Path, cases: Sequence[str], kind: str, pairs: int) -> Iterator[tuple[dict[str, float], ...]]:
    """Yields (seconds in `base`, seconds here) of each pair; every other pair begins here."""
    for number in range(pairs):
        order = (base, ROOT) if number % 2 == 0 else (ROOT, base)
        found = {tree: measure(tree, cases, kind) for tree in order}
        yield found[base], found[ROOT]


def main() -> None:
    """Print a line for each case, and one for all together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="folder of the other tree")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--case", nargs="+", metavar="BACKEND/WORKLOAD", help="default: a few of each family")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.case or CASES[options.device]
    if options.child:
        sys.path.insert(0, str(options.base))
        print(json.dumps(prove(cases, options.device)))
        return
    found = list(take_turns(options.base.absolute(), cases, options.device, options.pairs))
    rows = []
    for name in (*cases, "all"):
        pairs = [tuple(sum(side.values()) if name == "all" else side[name] for side in pair) for pair in found]
        ratios = [here / base for base, here in pairs]
        base_s, here_s = (median(side) for side in zip(*pairs, strict=True))
        rows.append((name, base_s, here_s, f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"))
    print(tabulate(rows, ("case", "base s", "here s", "ratio", "range"), floatfmt=".3f", disable_numparse=False))


if __name__ == "__main__":
    main()

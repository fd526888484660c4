"""Whether the tuner ever calls a configuration better than itself, measured on this machine's GPU.

    python benchmarks/tuner_identical.py [--decisions 100] [--pairs 5] [--backend triton.flash] [--json FILE]

Every decision is made as at the end of `attnperf tune`: fresh pairs of processes, measured in turns, both sides with
the same configuration. Each is on a workload of its own, of about 10 us to 1 ms; all of them share the pairs'
processes, so that they are as many draws of where memory lies, and only `pairs` draws of processes. Exits with 1 when
one is BETTER.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_attnperf.cli.commands.tune import lease_machine
from pytest_attnperf.plugin.tuning import TuningProject, collect_project
from pytest_attnperf.stats.quantiles import rate_bound95
from pytest_attnperf.tools.tuner.confirm import confirm_winner
from pytest_attnperf.tools.tuner.tuner_decision import judge_winner
from pytest_attnperf.tuning_records import BETTER, Tunable
from pytest_attnperf.workers.interleave import InterleavePlan
from pytest_attnperf.workloads.base import Workload

SUITE = "suites/test_prefill.py"


def main() -> int:
    """Measure, decide, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--backend", default="triton.flash")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    return collect_project(lambda project: decided(project, options), options.backend, "prefill", SUITE)


def sizes(count: int) -> list[str]:
    """Problems of one kernel variant: all lengths are multiples of every tile."""
    every = [
        f"b={batch},s={seq},h={heads},d=256,causal,f16"
        for seq, batch, heads in itertools.product((256, 512, 768, 1024, 1536), (1, 2, 3, 4, 6), (2, 4, 8, 16))
    ]
    return every[:: max(1, len(every) // count)][:count]


def decided(project: TuningProject, options: argparse.Namespace) -> int:
    """Pairs of the default against itself, and what is made of each workload's."""
    backend = project.backend
    assert isinstance(backend, Tunable)
    workloads: list[Workload] = project.list_workloads(sizes(options.decisions))
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        machine = lease_machine(project, "1", workloads, stack)
        pools = machine.start_pools()
        stack.callback(pools.shutdown)
        space = backend.tuning_space(workloads[:1], machine.ready.device.arch)
        found = confirm_winner(
            space.default,
            space.default,
            {workload.id: project.key_of(workload) for workload in workloads},
            pools.base,
            pools.new,
            lambda candidate: backend.tuning_pin(candidate, space),
            InterleavePlan(pairs=options.pairs, quads=16, budget_us=60_000.0),
            told=lambda number, of: print(f"pair {number} of {of}, {time.monotonic() - began:.0f} s", flush=True),
        )
    decisions = {name: judge_winner({name: pairs}, [name]) for name, pairs in found.items()}
    verdicts = Counter(decision.verdict for decision in decisions.values())
    ratios = [pair.ratio for pairs in found.values() if not isinstance(pairs, str) for pair in pairs]
    device = machine.ready.device
    bound = rate_bound95(verdicts[BETTER], len(decisions))
    print(f"{device.name or device.product}: {len(decisions)} decisions between identical configurations of")
    print(f"{options.backend}, {options.pairs} pairs of processes each, {time.monotonic() - began:.0f} s:")
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    print(f"BETTER: {verdicts[BETTER]}, below {bound:.1%} at 95 %; the pairs' ratios spread by {spread(ratios):.2%}")
    if options.json:
        told = {
            name: [d.verdict, d.summary, [p if isinstance(p, str) else p.ratio for p in found[name]]]
            for name, d in decisions.items()
        }
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return int(verdicts[BETTER] > 0)


def spread(ratios: list[float]) -> float:
    """Standard deviation of all ratios, which are of unchanged code."""
    return statistics.stdev(ratios) if len(ratios) > 1 else 0.0


if __name__ == "__main__":
    sys.exit(main())

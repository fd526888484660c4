"""Whether workers that are forked measure what workers that are started afresh do, and how long either takes to start.

    python benchmarks/forked_or_fresh.py --processes 20 --case prefill/triton.flash/ --case decode/
    python benchmarks/forked_or_fresh.py --fake            without a GPU: workers of the fake device

Processes of both ways in turn, ABBA, each alive only while it measures. For each case the mean of the processes'
medians, their standard deviations, the ratio of these with the share of random divisions of the same processes that
come out as uneven (where it is small, one way spreads more), and the difference of the means with its 95 % interval
(Welch). Seconds until ready: the first forked one has waited for its template to collect the suites.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

from pytest_attnperf.environment.gpu_tokens import visible_gpus
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.stats.quantiles import upper_quantile
from pytest_attnperf.workers.controller import Worker
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest, RemoteCase
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.look import Ending, finish_and_close, open_and_check
from pytest_attnperf.workers.template import Template

ROOT = Path(__file__).resolve().parents[1]
FORKED, FRESH = "forked", "fresh"
LIMIT_SECONDS = 300.0
DIVISIONS = 2000

FAKE_SUITE = """
import pytest

@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"])
def test_prefill(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@dataclass
class Taken:
    """What the processes of one way said: a median in us of each case and process, and seconds until ready."""

    us: dict[str, list[float]] = field(default_factory=dict)
    ready_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """One case: forked against fresh.

    sd_ratio     of the forked processes' standard deviation to the fresh ones'
    as_uneven    share of random divisions whose ratio is as far from 1
    difference   of the means, forked - fresh, as a fraction of the fresh one; `half_width` of its 95 % interval
    """

    sd_ratio: float
    as_uneven: float
    difference: float
    half_width: float


def compared(forked: Sequence[float], fresh: Sequence[float]) -> Compared:
    """Two groups of processes, at least three in each, that do not all agree to the last digit."""
    means, sds = [statistics.fmean(us) for us in (forked, fresh)], [statistics.stdev(us) for us in (forked, fresh)]
    errors = [statistics.variance(us) / len(us) for us in (forked, fresh)]
    degrees = sum(errors) ** 2 / sum(
        error**2 / (len(us) - 1) for error, us in zip(errors, (forked, fresh), strict=True)
    )
    half_width = upper_quantile(0.025, max(1, int(degrees))) * math.sqrt(sum(errors))
    return Compared(
        sds[0] / sds[1], share_as_uneven(forked, fresh), (means[0] - means[1]) / means[1], half_width / means[1]
    )


def share_as_uneven(one: Sequence[float], other: Sequence[float]) -> float:
    """Of random divisions of the same deviations, how many have as unequal spreads. Free of any distribution."""
    deviations = [us - statistics.fmean(group) for group in (one, other) for us in group]
    seen, dice = abs(math.log(statistics.stdev(one) / statistics.stdev(other))), random.Random(1)
    uneven = 0
    for _ in range(DIVISIONS):
        dice.shuffle(deviations)
        first, second = deviations[: len(one)], deviations[len(one) :]
        uneven += abs(math.log(statistics.stdev(first) / statistics.stdev(second))) >= seen
    return (uneven + 1) / (DIVISIONS + 1)


@contextlib.contextmanager
def plan_of(options: argparse.Namespace) -> Iterator[LaunchPlan]:
    """How workers are started: on this tree's suites, or on a tree of the fake device."""
    with tempfile.TemporaryDirectory() as folder:
        root, device = Path(folder), ("--attnperf-device=gpu",)
        if not options.fake:
            files = tuple(str(path) for path in options.files or sorted((ROOT / "suites").glob("test_*.py")))
            config = ROOT / "pyproject.toml"
            yield LaunchPlan(files, ROOT, root, Role.DEVICE, config, "importlib", device)
            return
        script = {"device": {"forks": True}, "process_sd": 0.003, "backends": {"fake.a": {"time_us": 100.0}}}
        (root / "fake_device.json").write_text(json.dumps(script))
        (root / "conftest.py").write_text('pytest_plugins = ["pytest_attnperf.testing.fake.device"]\n')
        (root / "pytest.ini").write_text("[pytest]\n")
        (root / "test_prefill.py").write_text(FAKE_SUITE)
        yield LaunchPlan(
            (str(root / "test_prefill.py"),),
            root,
            root / "logs",
            Role.DEVICE,
            passed_options=("--attnperf-device=gpu",),
        )


def measure(plan: LaunchPlan, processes: int, wanted: Callable[[CaseKey], bool]) -> dict[str, Taken]:
    """So many processes of each way, in turn. Ends the program where suites are kept from being forked."""
    taken, template = {FORKED: Taken(), FRESH: Taken()}, Template()
    gpu = next(iter(visible_gpus(os.environ)), None)
    try:
        for number in range(processes):
            for way in (FORKED, FRESH)[:: 1 if number % 2 == 0 else -1]:
                began = time.perf_counter()
                worker = Worker(plan, f"{way}{number}", gpu, template=template if way == FORKED else None)
                try:
                    ready = worker.wait_until_ready(LIMIT_SECONDS)
                    taken[way].ready_s.append(time.perf_counter() - began)
                    if template.obstacle is not None:
                        raise SystemExit(f"nothing is forked here: {template.obstacle.value}")
                    for key in filter(wanted, ready.cases):
                        taken[way].us.setdefault(str(key), []).append(median_us(worker, key))
                finally:
                    worker.exit()
    finally:
        template.close()
    return taken


def median_us(worker: Worker, key: CaseKey) -> float:
    """One case in one process. Ends the program where it is not right, or not to be timed."""
    case = RemoteCase(worker, OpenRequest(key, None, 1, 2, LIMIT_SECONDS), LIMIT_SECONDS)
    look = open_and_check(case, worker.wait_until_ready(LIMIT_SECONDS), profiled=False)
    if look.ending is not Ending.RIGHT or look.note:
        raise SystemExit(f"{key}: {look.ending.value}: {'; '.join(look.reasons) or look.note}")
    samples = case.measure_blocks(BlockPlan())
    finish_and_close(case, look)
    return statistics.median(samples.block_us)


def report(taken: dict[str, Taken]) -> None:
    """Print both tables."""
    rows, squares = [], {FORKED: 0.0, FRESH: 0.0}
    for key in taken[FRESH].us:
        forked, fresh = (taken[way].us[key] for way in (FORKED, FRESH))
        found = compared(forked, fresh)
        sds = [statistics.stdev(us) / statistics.fmean(us) for us in (forked, fresh)]
        squares = {way: squares[way] + sd**2 for way, sd in zip((FORKED, FRESH), sds, strict=True)}
        difference = f"{100 * found.difference:+.3f} ± {100 * found.half_width:.3f}"
        mean = statistics.fmean(fresh)
        rows.append([key, mean, *(100 * sd for sd in sds), found.sd_ratio, found.as_uneven, difference])
    print(tabulate(rows, ["case", "us", "forked sd %", "fresh sd %", "ratio", "as uneven", "forked - fresh %"]))
    pooled = [100 * math.sqrt(squares[way] / len(rows)) for way in (FORKED, FRESH)]
    print(f"\npooled sd: forked {pooled[0]:.3f} %, fresh {pooled[1]:.3f} %, ratio {pooled[0] / pooled[1]:.2f}")
    for way, seconds in ((FORKED, taken[FORKED].ready_s[1:]), (FRESH, taken[FRESH].ready_s)):
        print(f"{way}: ready within {statistics.median(seconds):.2f} s, the slowest {max(seconds):.2f} s", end="")
        print(f"; the first {taken[way].ready_s[0]:.2f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both ways and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=lambda text: Path(text).resolve(), help="test files; all suites")
    parser.add_argument("--processes", type=int, default=12, help="of each way, at least 3")
    parser.add_argument("--case", action="append", default=[], help="begins the names of the cases to time")
    parser.add_argument("--fake", action="store_true", help="on the fake device, without a GPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every median and start to FILE")
    options = parser.parse_args(arguments)
    if options.processes < 3 or not (options.case or options.fake):
        parser.error("at least 3 processes and one --case are needed")
    with plan_of(options) as plan:
        taken = measure(plan, options.processes, lambda key: str(key).startswith(tuple(options.case or [""])))
    if not taken[FRESH].us:
        parser.error(f"no case begins with {' or '.join(options.case)}; they are called like prefill/native.sdpa/...")
    report(taken)
    if options.json:
        options.json.write_text(json.dumps({way: vars(one) for way, one in taken.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

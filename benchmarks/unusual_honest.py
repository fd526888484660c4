"""How often the judge accuses honest kernels that are unlike others (`unusual_kernels.py`).

    python benchmarks/unusual_honest.py [--device cuda|cpu] [--seeds 1000] [--minutes M] [--timed] [--jobs N]
        [--kernel TEXT ...]

Each seed is two decisions of each kernel, one of them on planted inputs. With --timed every kernel is also timed on
inputs that change (`measure/rotation.py`), and counted where it seems to remember its results.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

ROOT = Path(__file__).parents[1]
if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.unusual_kernels import Unusual
    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.correctness.judge import Judge

BLOCK_US = 2000.0


@dataclass
class Count:
    """What was seen of one kernel."""

    name: str
    decisions: int = 0
    incorrect: int = 0
    suspicious: int = 0
    largest: float = 0.0
    first_problem: str = ""


def on(device: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it makes on this device."""
    import torch

    if device == "cpu":
        return function

    @functools.wraps(function)
    def there(*args: Any, **named: Any) -> Any:
        with torch.device(device):
            return function(*args, **named)

    return there


def prepared_of(one: Unusual, device: str) -> tuple[Prepared, Judge]:
    """The kernel as `attnperf.gate` prepares it, and its judge."""
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.correctness.references import References
    from pytest_attnperf.records import Tolerance
    from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

    workload = AdHoc(one.name, on(device, one.inputs), on(device, one.reference), overwrites=one.in_place)
    prepared = CallableBackend("honest.kernel", on(device, one.kernel)).prepare(
        workload, workload.make_inputs(0, device, planted=False)
    )
    judge = Judge(prepared, workload, references=References(), tolerance=Tolerance(), device=device)
    return prepared, judge


def counted(one: Unusual, seeds: range, device: str = "cpu", *, timed: bool, seconds: float = 1e9) -> Count:
    """Every decision on one kernel."""
    prepared, judge = prepared_of(one, device)
    count, end = Count(one.name), time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            break
        for planted in (False, True):
            report = judge.check_call(f"seed {seed}", prepared.run, seed=seed, planted=planted)
            count.decisions += 1
            count.incorrect += not report.right
            count.first_problem = count.first_problem or next(iter(report.problems), "")
            for figure in report.figures:
                count.largest = max(count.largest, figure.max_error / figure.max_budget if figure.max_budget else 0.0)
    if timed:
        count.suspicious += seems_to_remember(prepared, device)
    return count


def counted_alone(number: int, **how: Any) -> Count:
    """`counted` of one of the kernels, by its number, in a process that uses few threads."""
    import torch

    from benchmarks.unusual_kernels import UNUSUAL

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return counted(UNUSUAL[number], **how)


def seems_to_remember(prepared: Prepared, device: str) -> bool:
    """Whether one process would say so; the verdict takes two."""
    import torch

    from pytest_attnperf.measure.rotation import measure_rotation
    from pytest_attnperf.session.plausibility import is_slower_rotated

    started = time.perf_counter()
    prepared.run()
    if device == "cuda":
        torch.cuda.synchronize()
    call_us = (time.perf_counter() - started) * 1e6
    return is_slower_rotated(measure_rotation(prepared, device, BLOCK_US, call_us))


def main() -> None:
    """Print a line per kernel; exit status 1 where one was accused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=600.0, help="for all kernels together, at most")
    parser.add_argument("--timed", action="store_true", help="time each on inputs that change, too; default: do not")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="kernels side by side")
    parser.add_argument("--kernel", nargs="+", default=[], metavar="TEXT", help="only those whose name holds a text")
    options = parser.parse_args()
    from benchmarks.unusual_kernels import UNUSUAL

    started = time.monotonic()
    chosen = [
        number
        for number, one in enumerate(UNUSUAL)
        if not options.kernel or any(text in one.name for text in options.kernel)
    ]
    count = functools.partial(
        counted_alone,
        seeds=range(1, options.seeds + 1),
        device=options.device,
        timed=options.timed,
        seconds=60 * options.minutes * options.jobs / max(1, len(chosen)),
    )
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(count, chosen))
    headers = ("kernel", "decisions", "INCORRECT", "SUSPICIOUS", "max / budget")
    print(tabulate([(c.name, c.decisions, c.incorrect, c.suspicious, f"{c.largest:.2f}") for c in found], headers))
    for count in found:
        if count.first_problem:
            print(f"{count.name}: {count.first_problem}")
    incorrect, suspicious = sum(c.incorrect for c in found), sum(c.suspicious for c in found)
    decisions = sum(c.decisions for c in found)
    print(
        f"{len(found)} kernels: {incorrect} of {decisions} decisions INCORRECT, {suspicious} SUSPICIOUS, "
        f"{time.monotonic() - started:.0f} s"
    )
    sys.exit(1 if incorrect or suspicious or not decisions else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()

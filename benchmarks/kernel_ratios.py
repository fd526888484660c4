"""How our kernels compare with what a GPU's owner has already: every ratio, side by side, in one run.

    python benchmarks/kernel_ratios.py                  # all of them, about three minutes on an H200
    python benchmarks/kernel_ratios.py decode gemm      # those whose name holds one of these words
    python benchmarks/kernel_ratios.py --json ratios.json

Both sides of a ratio are judged right first, then timed in turns (A B B A) by replay of CUDA graphs; the ratio is the
median over the turns. `speed` is the other's time over ours; `bandwidth` is our bytes (the least that the workload
must move) per second over those of a copy of 1 GiB timed beside it. What is wanted stands in
benchmarks/ratios/wanted.py; a ratio that is missed is printed as such, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

import kernels  # noqa: E402
from benchmarks.ratios.wanted import WANTED, Wanted  # noqa: E402
from pytest_attnperf.backends import Registry  # noqa: E402
from pytest_attnperf.environment.device import identify_device  # noqa: E402
from pytest_attnperf.workloads.families import parse_workload  # noqa: E402

SEED = 0
TURNS = 6
"""Each an A and a B, in alternating order."""
BLOCKS = 5
BLOCK_US = 2000.0


@dataclass(frozen=True)
class Result:
    """One ratio. `ours_us` and `against_us` are medians per call; `why` says why there is none."""

    name: str
    ours: str
    against: str
    kind: str
    wanted: float
    ratio: float | None = None
    ours_us: float | None = None
    against_us: float | None = None
    why: str = ""

    @property
    def met(self) -> bool:
        """Whether the ratio is at least what is wanted."""
        return self.ratio is not None and self.ratio >= self.wanted


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only ratios whose name holds one of these")
    parser.add_argument("--json", type=Path, help="also write them there")
    arguments = parser.parse_args()
    chosen = [one for one in WANTED if not arguments.words or any(word in one.name for word in arguments.words)]
    if not chosen:
        parser.error(f"no ratio's name holds {' or '.join(arguments.words)}; there are: {', '.join(names())}")
    import torch

    if not torch.cuda.is_available():
        parser.error("needs a GPU that torch can use; this machine has none")
    torch.set_grad_enabled(False)
    results = []
    for one in chosen:
        results.append(measured(one))
        print(line(results[-1]), flush=True)
    print(table(results))
    missed = [result for result in results if not result.met]
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(f"{len(results) - len(missed)} of {len(results)} met on {where}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1), encoding="utf-8")
    raise SystemExit(1 if missed else 0)


def names() -> list[str]:
    """Of all ratios."""
    return [one.name for one in WANTED]


def measured(wanted: Wanted) -> Result:
    """One ratio, or why there is none: a side that cannot run, fails or is wrong."""
    import torch

    empty = Result(wanted.name, wanted.ours, wanted.against, wanted.kind, wanted.at_least)
    try:
        ours, ours_bytes = prepared(wanted.ours)
        against, against_bytes = prepared(wanted.against)
        pairs = in_turns(ours, against)
    except Exception as error:  # whatever a side raises is the answer to the question
        return Result(**{**asdict(empty), "why": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
    finally:
        torch.cuda.empty_cache()
    return Result(
        **{
            **asdict(empty),
            "ratio": ratio(wanted.kind, pairs, ours_bytes, against_bytes),
            "ours_us": statistics.median(pair[0] for pair in pairs),
            "against_us": statistics.median(pair[1] for pair in pairs),
        }
    )


def ratio(
    kind: str, pairs: Sequence[tuple[float, float]], ours_bytes: float | None, against_bytes: float | None
) -> float:
    """The median over turns of (our us, the other's us): speed, or bytes per second over bytes per second."""
    scale = 1.0
    if kind == "bandwidth":
        if not ours_bytes or not against_bytes:
            raise ValueError("a ratio of bandwidths needs workloads that know their bytes")
        scale = ours_bytes / against_bytes
    return statistics.median(theirs / own for own, theirs in pairs) * scale


def prepared(case: str) -> tuple[Callable[[], Any], float | None]:
    """A judged call of 'backend/workload id', and the bytes it must move.

    Raises ValueError when the backend does not support the workload, or its result is beyond its budget.
    """

    name, _, text = case.partition("/")
    registry = Registry()
    kernels.register(registry)
    backend, workload = registry.get(name), parse_workload(text)
    reasons = backend.unsupported_reasons(workload, identify_device("cuda"))
    if reasons:
        raise ValueError(f"{case} is unsupported: {'; '.join(reasons)}")
    inputs = workload.make_inputs(SEED, "cuda", planted=True)
    call = backend.prepare(workload, inputs)
    wrong = problems_of(call.outputs(call.run()), workload, inputs, backend)
    if wrong:
        raise ValueError(f"{case} is wrong: {wrong[0]}")
    return call.run, workload.bytes_min


def problems_of(outputs: Any, workload: Any, inputs: Any, backend: Any) -> tuple[str, ...]:
    """What the judge's budgets say of outputs."""
    from pytest_attnperf.correctness.budget import list_problems
    from pytest_attnperf.correctness.metrics import compare_output
    from pytest_attnperf.correctness.references import References

    expected = References().compute_expected(workload, inputs, seed=SEED, planted=True)
    with expected.reveal() as truth:
        return list_problems(
            [
                compare_output("ratio", name, outputs[name], truth[name], expected.yardsticks[name], backend.tolerance)
                for name in truth
            ]
        )


def in_turns(ours: Callable[[], Any], against: Callable[[], Any]) -> list[tuple[float, float]]:
    """Microseconds per call of both, in turns of alternating order."""
    from pytest_attnperf.measure.gpu_timer import gpu_timer

    def timed(call: Callable[[], Any]) -> float:
        samples = gpu_timer(call, blocks=BLOCKS, block_us=BLOCK_US, device="cuda")
        if samples.timer != "graph":
            raise ValueError(f"was timed by {samples.timer}, not by a graph: {samples.note}")
        return statistics.median(samples.block_us)

    found = []
    for turn in range(TURNS):
        if turn % 2:
            theirs, own = timed(against), timed(ours)
        else:
            own, theirs = timed(ours), timed(against)
        found.append((own, theirs))
    return found


def line(result: Result) -> str:
    """One result, while others are still to come."""
    if result.ratio is None:
        return f"{result.name}: none, {result.why}"
    word = "met" if result.met else "MISSED"
    return f"{result.name}: {result.ratio:.3f}, wanted {result.wanted:g}: {word}"


def table(results: Sequence[Result]) -> str:
    """All results."""
    rows = [
        (r.name, r.ours, r.against, r.kind, r.ours_us, r.against_us, r.ratio, r.wanted, "met" if r.met else "MISSED")
        for r in results
    ]
    headers = ("ratio of", "ours", "against", "kind", "our us", "their us", "ratio", "wanted", "")
    return tabulate(rows, headers=headers, floatfmt=".4g", missingval="-")


if __name__ == "__main__":
    main()

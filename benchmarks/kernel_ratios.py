"""How our kernels compare with what a GPU's owner has already: every ratio, side by side, in one run.

    python benchmarks/kernel_ratios.py                  # all of them, on a GPU
    python benchmarks/kernel_ratios.py decode gemm      # those whose family or name holds one of these words
    python benchmarks/kernel_ratios.py --json ratios.json
    python benchmarks/kernel_ratios.py --page kernels/RATIOS.md --from ratios.json      # without a GPU

Both sides of a ratio are judged right first, then timed in turns (A B B A) by replay of CUDA graphs; the ratio is the
median over the turns. `speed` is the other's time over ours; `bandwidth` is our bytes (the least that the workload
must move) per second over those of a copy of 1 GiB timed beside it; `work` is our floating-point operations per second
over the other's. What is wanted stands in benchmarks/ratios/wanted.py; a ratio that is missed is printed as such, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tabulate import tabulate

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

import kernels  # noqa: E402
from benchmarks.ratios.wanted import WANTED, Kind, Wanted  # noqa: E402
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

    family: str
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


@dataclass(frozen=True)
class Run:
    """The ratios of one run, and where it was."""

    device: str
    versions: str
    results: tuple[Result, ...]


def main() -> None:
    """Measure and print, or read; write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only ratios whose family or name holds one of these")
    parser.add_argument("--json", type=Path, help="also write them there")
    parser.add_argument("--from", type=Path, dest="source", help="read them there, as --json wrote them")
    parser.add_argument("--page", type=Path, help="write them into this page, between its marks")
    arguments = parser.parse_args()
    run = read_run(arguments.source) if arguments.source else measure(parser, arguments.words, arguments.json)
    print(table(run.results))
    missed = [result for result in run.results if not result.met]
    print(f"{len(run.results) - len(missed)} of {len(run.results)} met on {run.device}, {run.versions}")
    if arguments.page:
        arguments.page.write_text(with_tables(arguments.page.read_text(encoding="utf-8"), run), encoding="utf-8")
    raise SystemExit(1 if missed else 0)


def measure(parser: argparse.ArgumentParser, words: Sequence[str], out: Path | None) -> Run:
    """The ratios of these words, measured one after the other, each printed and written at once."""
    chosen = [one for one in WANTED if not words or any(word in f"{one.family} {one.name}" for word in words)]
    if not chosen:
        parser.error(f"no ratio's name holds {' or '.join(words)}; there are: {', '.join(names())}")
    import torch

    if not torch.cuda.is_available():
        parser.error("needs a GPU that torch can use; this machine has none")
    torch.set_grad_enabled(False)
    versions = f"torch {torch.__version__}, Triton {version('triton')}"
    run = Run(torch.cuda.get_device_name(), versions, ())
    for one in chosen:
        run = replace(run, results=(*run.results, measured(one)))
        print(line(run.results[-1]), flush=True)
        if out:
            out.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")
    return run


def read_run(path: Path) -> Run:
    """A run that `--json` wrote, held against what is wanted now."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    wanted = {one.name: one.at_least for one in WANTED}
    results = (Result(**{**one, "wanted": wanted.get(one["name"], one["wanted"])}) for one in stored["results"])
    return Run(stored["device"], stored["versions"], tuple(results))


def names() -> list[str]:
    """Of all ratios."""
    return [one.name for one in WANTED]


def measured(wanted: Wanted) -> Result:
    """One ratio, or why there is none: a side that cannot run, fails or is wrong."""
    import torch

    empty = Result(wanted.family, wanted.name, wanted.ours, wanted.against, wanted.kind, wanted.at_least)
    try:
        ours, ours_work = prepared(wanted.ours, wanted.kind)
        against, against_work = prepared(wanted.against, wanted.kind)
        pairs = in_turns(ours, against)
    except Exception as error:  # whatever a side raises is the answer to the question
        return Result(**{**asdict(empty), "why": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
    finally:
        torch.cuda.empty_cache()
    return Result(
        **{
            **asdict(empty),
            "ratio": ratio(pairs, ours_work, against_work),
            "ours_us": statistics.median(pair[0] for pair in pairs),
            "against_us": statistics.median(pair[1] for pair in pairs),
        }
    )


def ratio(pairs: Sequence[tuple[float, float]], ours_work: float, against_work: float) -> float:
    """The median over turns of (our us, the other's us): work per microsecond over the other's."""
    return statistics.median(theirs / own for own, theirs in pairs) * ours_work / against_work


def prepared(case: str, kind: Kind) -> tuple[Callable[[], Any], float]:
    """A judged call of 'backend/workload id', and its work of this kind: bytes that it must move, operations, or 1.

    Raises ValueError when the backend does not support the workload, its result is beyond its budget, or its work is
    not known.
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
    work = {"speed": 1.0, "bandwidth": workload.bytes_min, "work": workload.flops}[kind]
    if not work:
        raise ValueError(f"{workload.id} does not say its work for a ratio of {kind}")
    return call.run, work


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
    """Microseconds per call of both, in turns of alternating order, each captured once."""
    from pytest_attnperf.measure.timers import choose_timer
    from pytest_attnperf.measure.warm_up import warm_device, warm_up

    warm_device("cuda")
    with contextlib.ExitStack() as stack:
        timers = []
        for call in (ours, against):
            warm_up(call, "cuda")
            timers.append(choose_timer("cuda", call, BLOCK_US))
            stack.callback(timers[-1].close)
        found = []
        for turn in range(TURNS):
            order = (1, 0) if turn % 2 else (0, 1)
            times = {side: timed(timers[side]) for side in order}
            found.append((times[0], times[1]))
    return found


def timed(timer: Any) -> float:
    """The median of BLOCKS blocks, in microseconds per call. Raises ValueError where no graph was replayed."""
    from pytest_attnperf.measure.rejection import CompileWatch
    from pytest_attnperf.measure.sampling import sample_blocks
    from pytest_attnperf.measure.stopping import StoppingRule

    with CompileWatch() as watch:
        samples = sample_blocks(timer, StoppingRule(BLOCKS, BLOCKS), watch)
    if samples.timer != "graph":
        raise ValueError(f"was timed by {samples.timer}, not by a graph: {samples.note}")
    return statistics.median(samples.block_us)


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


END = "<!-- ratios end -->"
TABLES, SUMMARY = "<!-- ratios: written by benchmarks/kernel_ratios.py -->", "<!-- ratios, a line a family -->"


def with_tables(page: str, run: Run) -> str:
    """The page with what its mark asks for: a table of each family, or a line. Raises ValueError for a page without."""
    mark = TABLES if TABLES in page else SUMMARY
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {TABLES} or {SUMMARY}, and {END} behind it")
    families: dict[str, list[Result]] = {}
    for result in run.results:
        families.setdefault(result.family, []).append(result)
    texts = [plain(*item) for item in families.items()] if mark == TABLES else [summary(families)]
    parts = [f"{run.device}, {run.versions}.", *(f"```text\n{text}\n```" for text in texts)]
    return before + begin + "\n\n" + "\n\n".join(parts) + "\n\n" + end + after


def summary(families: Mapping[str, Sequence[Result]]) -> str:
    """Of each family, how many ratios are met and of how many, and the least and the largest."""
    rows = []
    for family, results in families.items():
        ratios = [result.ratio for result in results if result.ratio is not None]
        span = (f"{min(ratios):.2f}", f"{max(ratios):.2f}") if ratios else ("none", "none")
        rows.append((family, sum(result.met for result in results), len(results), *span))
    headers = ("", "met", "of", "least", "largest")
    return str(
        tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True, colalign=("left", *["right"] * 4))
    )


def plain(family: str, results: Sequence[Result]) -> str:
    """A family's ratios as a text: name, microseconds of both sides, ratio, wanted, and a mark where it is missed."""
    rows = [
        (r.name, r.ours_us, r.against_us, "none" if r.ratio is None else f"{r.ratio:.2f}", f"{r.wanted:.2f}",
         "" if r.met else "missed")
        for r in results
    ]  # fmt: skip
    headers = (family, "ours_us", "theirs_us", "ratio", "wanted", "")
    return str(tabulate(rows, headers=headers, floatfmt=".4g", missingval="-", tablefmt="plain"))


if __name__ == "__main__":
    main()

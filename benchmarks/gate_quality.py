"""Asks how often gates are wrong: do_bench and a threshold, pytest-benchmark, nvbench's comparison, and this plugin.

    python benchmarks/gate_quality.py --json FILE [--minutes 4]      measure here, on a GPU or else the CPU; add to FILE
    python benchmarks/gate_quality.py --report FILE [--plot SVG]     decide by each tool's rule; print the table

Every fresh process times the same kernels by all tools, one after another: unchanged, and slowed by 1, 2, 3 and 5 per
cent. On a GPU the slowdowns are edits of the kernels (`slowdowns.py`), whose true sizes are measured apart; on a CPU
calls spin for a known time. Lines are only ever added to FILE, so that runs on several cards join in one file.
"""

from __future__ import annotations

import argparse
import itertools
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "figures")]

from figures_records import Collection, Pair, Pass, Process, Record, TrueSize, append, device_seconds, hashed, read  # noqa: E402

from benchmarks.quality.forks import forked, preload  # noqa: E402
from benchmarks.quality.page import render_plot, render_table  # noqa: E402
from benchmarks.quality.processes import (  # noqa: E402
    DO_BENCH,
    METHODS,
    Case,
    Measured,
    Variant,
    measure_pair,
    measure_process,
)
from benchmarks.quality.rules import LEVELS, PLAIN  # noqa: E402
from benchmarks.quality.sizing import Trees, choose_strengths, sized, strengths_of  # noqa: E402
from pytest_attnperf.workers.interleave import InterleavePlan  # noqa: E402

GPU_CASES = (
    ("triton.flash", "prefill-b4-s1024-h8-d64-f16-causal", "flash_rescale"),
    ("triton.flash", "prefill-b1-s512-h8-d64-f16", "flash_sum"),
    ("triton.gemm", "gemm-m16-n8192-k8192-f16", "gemm_result"),
    ("triton.softmax", "softmax-r131072-c1024-f16", "softmax_power"),
    ("triton.flash_decode", "decode-b64-kv4096-h32-hk8-d128-f16", "decode_sum"),
    ("triton.flash", "prefill-b4-s4096-h8-d256-f16-causal", "flash_maximum"),
)
"""17, 7, 46, 180, 370 and 600 us on an H100. An edit's strength is chosen for the first case that names it."""

CPU_CASES = (
    ("native.sdpa_flash", "prefill-b1-s128-h2-d32-f32-causal", "spin"),
    ("native.eager_fp32", "prefill-b1-s128-h2-d32-f32-causal", "spin"),
    ("native.softmax", "softmax-r256-c1000-f32", "spin"),
    ("native.matmul", "gemm-m63-n65-k129-f16", "spin"),
)

PLAIN_EACH_ROUND = 3
"""A decision against the store takes eleven unchanged processes and four slowed ones."""

FIRST_SECONDS = 6.0
"""What a process or a pair is taken to need until one has been measured."""

PASSES = ("sizes", "processes", "pairs")
PAIR_LABELS = (PLAIN, "slow1")


@dataclass
class Plan:
    """What was asked for, and what is known of the machine."""

    json: Path
    device: str
    minutes: float
    passes: tuple[str, ...]
    labels: tuple[str, ...]
    pair_labels: tuple[str, ...]
    processes: int
    pairs: int
    peer_seconds: float
    only: str
    folder: Path
    run: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    product: str = ""
    card: str = ""
    methods: tuple[str, ...] = ()
    ends: float = 0.0

    @property
    def minutes_left(self) -> float:
        """Until what was asked for has passed."""
        return (self.ends - time.monotonic()) / 60


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="measure, and add a line per number to FILE")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print what FILE says")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="with --report: draw it, too")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--minutes", type=float, default=4.0, help="stop before more than this has passed")
    parser.add_argument("--passes", default=",".join(PASSES), help="some of %(default)s")
    parser.add_argument("--labels", default=",".join(LEVELS), help="slowdowns that processes measure: %(default)s")
    parser.add_argument("--pair-labels", default=",".join(PAIR_LABELS), help="of plain and these: %(default)s")
    parser.add_argument(
        "--processes", type=int, default=8, help="slowed ones of each label, at most; unchanged 3 times"
    )
    parser.add_argument("--pairs", type=int, default=8, help="of each label, at most")
    parser.add_argument("--peer-seconds", type=float, default=0.25, help="of pytest-benchmark and nvbench, a case each")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--folder", type=Path, help="where trees of edited kernels are made; a temporary folder")
    parser.add_argument("--run", default="", help="name of the run in FILE; one that is there is continued")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or report; 1 where a case gave no number."""
    parser = options()
    given = parser.parse_args(arguments)
    if (given.json is None) == (given.report is None):
        parser.error("needs --json FILE to measure, or --report FILE to print what was measured")
    if given.report is not None:
        collected = read(given.report)
        print(render_table(collected))
        if given.plot is not None:
            given.plot.write_text(render_plot(collected), encoding="utf-8")
        return 0
    unknown = [name for name in given.passes.split(",") if name not in PASSES]
    if unknown:
        parser.error(f"--passes has {', '.join(unknown)}; there are {', '.join(PASSES)}")
    with tempfile.TemporaryDirectory(prefix="attnperf-quality-") as temporary:
        return _measure(_plan(given, given.folder or Path(temporary)))


def _plan(given: argparse.Namespace, folder: Path) -> Plan:
    return Plan(
        json=given.json,
        device=given.device,
        minutes=given.minutes,
        passes=tuple(given.passes.split(",")),
        labels=tuple(given.labels.split(",")),
        pair_labels=tuple(given.pair_labels.split(",")),
        processes=given.processes,
        pairs=given.pairs,
        peer_seconds=given.peer_seconds,
        only=given.only,
        folder=folder,
        run=given.run or f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}",
        ends=time.monotonic() + 60 * given.minutes,
    )


def _measure(plan: Plan) -> int:
    """Every pass; what was measured is in the file as soon as it was."""
    identify(plan)
    preload(plan.device)  # what is forked has imported everything
    known = read(plan.json) if plan.json.exists() else Collection()
    chosen = GPU_CASES if plan.device == "gpu" else CPU_CASES
    cases = [Case(*one) for one in chosen if plan.only in f"{one[0]}/{one[1]}"]
    if not cases:
        sys.exit(
            f"--only={plan.only}: no case's name holds this; there are {', '.join(f'{a}/{b}' for a, b, _ in chosen)}"
        )
    measuring = Measuring(plan, cases, known)
    failed: list[str] = []
    for name in plan.passes:
        began = time.perf_counter()
        found = {"sizes": measuring.sizes, "processes": measuring.processes, "pairs": measuring.pairs}[name]()
        failed += found
        print(f"{name}: {time.perf_counter() - began:.0f} s, {plan.minutes_left:.1f} minutes left", flush=True)
    for line in dict.fromkeys(failed):
        print(f"  no number: {line}", flush=True)
    return 1 if failed else 0


def identify(plan: Plan) -> None:
    """Ask a child what this machine is; the parent never touches the device."""

    def asked() -> tuple[str, str, str]:
        import torch

        from pytest_attnperf.environment.device import identify_device

        wanted = plan.device if plan.device != "auto" else "gpu" if torch.cuda.is_available() else "cpu"
        info = identify_device("cuda" if wanted == "gpu" else "cpu")
        return wanted, info.product, info.device_id

    plan.device, plan.product, device_id = forked(asked)
    plan.card = hashed(device_id)
    # do_bench times GPUs only.
    plan.methods = tuple(one for one in METHODS if one != DO_BENCH or plan.device == "gpu")
    names = ("torch", "triton", "pytest-benchmark")
    plan.versions = {name: metadata.version(name) for name in names if _installed(name)}
    plan.versions["python"] = sys.version.split()[0]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


class Measuring:
    """The passes over one machine. `known` is what the file held; sizes of the same product are taken from there."""

    def __init__(self, plan: Plan, cases: Sequence[Case], known: Collection) -> None:
        self._plan, self._cases, self._known = plan, list(cases), known
        self._trees = Trees(plan.folder, plan.device)
        self._strengths = strengths_of(sizes_for(known, plan.product, cases))

    def sizes(self) -> list[str]:
        """Choose strengths for every label and measure what they do; nothing where the file says it."""
        if self._strengths:
            print("sizes: those in the file", flush=True)
            return []
        began = time.monotonic()
        self._strengths = choose_strengths(self._trees, self._cases, LEVELS)
        sizes = sized(self._trees, self._cases, self._strengths, LEVELS, self._plan.run)
        for size in sizes:
            print(f"  {size.case} {size.label}: {100 * size.size:+.2f} % ({size.how})", flush=True)
        self._add("sizes", len(LEVELS), began, sizes, [])
        return []

    def processes(self) -> list[str]:
        """Rounds of fresh processes until each label has enough, or the time is over."""
        plan, failed = self._plan, []
        counts = dict.fromkeys((PLAIN, *plan.labels), 0)
        for record in self._known.processes:
            if record.run == plan.run and record.label in counts:
                counts[record.label] = max(counts[record.label], record.unit + 1)
        longest = FIRST_SECONDS
        for number, label in enumerate(rounds(counts, plan.labels, plan.processes)):
            if plan.minutes_left * 60 < longest:
                print("processes: the time is over", flush=True)
                break
            began = time.monotonic()
            variant, cases = self._variant(label), random.sample(self._cases, len(self._cases))
            measured = forked(
                lambda: measure_process(variant, plan.device, cases, number, plan.peer_seconds, plan.methods)  # noqa: B023
            )
            longest = max(longest, time.monotonic() - began)
            failed += measured.failed
            self._add("processes", 1, began, process_records(plan.run, label, counts[label], measured), measured.failed)
            counts[label] += 1
            spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in measured.seconds.items())
            print(f"  {label} {counts[label]}: {time.monotonic() - began:.1f} s ({spent})", flush=True)
        return failed

    def pairs(self) -> list[str]:
        """Fresh pairs, of each label in turn."""
        plan, failed, longest = self._plan, [], FIRST_SECONDS
        counts = dict.fromkeys(plan.pair_labels, 0)
        for record in self._known.pairs:
            if record.run == plan.run and record.label in counts:
                counts[record.label] = max(counts[record.label], record.unit + 1)
        self._trees.compile([self._variant(label) for label in dict.fromkeys((PLAIN, *plan.pair_labels))], self._cases)
        while any(count < plan.pairs for count in counts.values()) and plan.minutes_left * 60 > longest:
            label = min(counts, key=lambda name: counts[name])
            began = time.monotonic()
            found, missing = measure_pair(
                self._variant(PLAIN), self._variant(label), plan.device, self._cases, counts[label], InterleavePlan()
            )
            longest = max(longest, time.monotonic() - began)
            failed += missing
            records = [
                Pair(plan.run, case, label, counts[label], pair.ratio, pair.base_us, pair.new_us, pair.quads,
                     pair.timer, pair.seconds)
                for case, pair in found.items()
            ]  # fmt: skip
            self._add("pairs", 1, began, records, missing)
            counts[label] += 1
            print(f"  pair {label} {counts[label]}: {time.monotonic() - began:.1f} s", flush=True)
        return failed

    def _variant(self, label: str) -> Variant:
        if label != PLAIN and label not in self._strengths:
            sys.exit(f"{self._plan.json} says no strengths of {label} for {self._plan.product}: add --passes=sizes,...")
        return self._trees.variant({} if label == PLAIN else self._strengths[label])

    def _add(self, kind: str, units: int, began: float, records: Sequence[Record], failed: Sequence[str]) -> None:
        plan = self._plan
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        seconds = round(time.monotonic() - began, 1)
        one = Pass(plan.run, kind, date, plan.card, plan.product, plan.versions, units, seconds, tuple(failed))
        append(plan.json, [one, *records])


def rounds(counts: Mapping[str, int], labels: Sequence[str], most: int) -> Iterator[str]:
    """Labels of the processes still to be measured, in an order that spreads each over the whole time."""
    have = dict(counts)
    wanted = {PLAIN: PLAIN_EACH_ROUND * most} | dict.fromkeys(labels, most)
    for _ in itertools.repeat(None, most):
        turn = [PLAIN] * PLAIN_EACH_ROUND + list(labels)
        random.shuffle(turn)
        for label in turn:
            if have[label] < wanted[label]:
                have[label] += 1
                yield label


def sizes_for(known: Collection, product: str, cases: Sequence[Case]) -> list[TrueSize]:
    """Sizes that runs on this product have measured; nothing unless there are some of every case, edit and label."""
    runs = {one.run for one in known.passes if one.product == product}
    wanted = {(case.name, case.edit, label) for case in cases for label in LEVELS}
    found = [(size, (size.case, size.how.rsplit(" ", 1)[0], size.label)) for size in known.sizes if size.run in runs]
    return [size for size, what in found if what in wanted] if wanted <= {what for _, what in found} else []


def process_records(run: str, label: str, unit: int, measured: Measured) -> list[Record]:
    """What one process measured, a line for each method and case."""
    records: list[Record] = [
        Process(run, method, case, label, unit, float(f"{number.us:.6g}"), 0.0,
                noise=None if number.noise is None else float(f"{number.noise:.4g}"))
        for method, by_case in measured.numbers.items()
        for case, number in by_case.items()
    ]  # fmt: skip
    for case, summary in measured.ours.items():
        records.append(
            Process(run, "attnperf", case, label, unit, summary.median_us, round(device_seconds(summary), 4),
                    summary.timer, summary.block_us, summary.calls_per_block, summary.placements, summary.clock_mhz)
        )  # fmt: skip
    return records


if __name__ == "__main__":
    raise SystemExit(main())

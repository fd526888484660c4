"""The committed file of the figures: one JSON line per pass, per process or pair of a case, and per injected size.

Lines are only ever appended. Every line names its run, so that units of one machine and hour can be told from others.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parent / "suite"))

import msgspec
from figures_cases import case_name

from pytest_attnperf.records import CaseKey, ProcessSummary
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import RunResult

BLOCKS_MAX = 30
DIGITS = 5

WARM_UP_SECONDS = 0.02
"""What a case is called for before it is captured (measure.warm_up.CASE_SECONDS)."""

ESTIMATE_REPLAYS = 5
"""Replays that size a block, and those that prove a place right are counted beside them."""


@dataclass(frozen=True)
class Pass:
    """One command: `kind` is processes, pairs, sizes or, in old files, peers. `wall_s` is wall time, starts included.

    gpu      the device's own id, hashed; the same card keeps it from run to run
    failed   cases that gave no number, and why
    """

    run: str
    kind: str
    date: str
    gpu: str
    product: str
    versions: dict[str, str]
    units: int
    wall_s: float
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """One process of one case: `us` per call is what the method reports, `device_s` how long it held the device.

    `method` is attnperf, do_bench, pytest_benchmark or nvbench. `unit` numbers the processes of a run from 0, `noise`
    is nvbench's relative standard deviation of single calls.
    """

    run: str
    method: str
    case: str
    label: str
    unit: int
    us: float
    device_s: float
    timer: str = ""
    blocks: tuple[float, ...] = ()
    calls_per_block: int = 0
    placements: int = 1
    clock_mhz: float | None = None
    noise: float | None = None

    def summary(self) -> ProcessSummary:
        """As the gate takes it."""
        return ProcessSummary(self.us, self.us, self.us, (self.us,), max(1, self.calls_per_block), self.timer)


@dataclass(frozen=True)
class Pair:
    """One pair of processes of one case; `seconds` is the wall time of its turns, an upper bound of device time."""

    run: str
    case: str
    label: str
    unit: int
    ratio: float
    base_us: float
    new_us: float
    quads: int
    timer: str
    seconds: float
    quad_ratios: tuple[float, ...] = ()

    def summary(self) -> PairSummary:
        """As the gate takes it."""
        return PairSummary(self.ratio, self.base_us, self.new_us, self.quads, self.timer, seconds=self.seconds)


@dataclass(frozen=True)
class TrueSize:
    """How large an injection is: `nominal` was aimed at, `true` is measured (fractions; None where it was not)."""

    run: str
    case: str
    label: str
    nominal: float
    true: float | None
    true_sd: float | None
    how: str

    @property
    def size(self) -> float:
        """The size to reckon with."""
        return self.nominal if self.true is None else self.true


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest said of one case: `how` is 'stored' or 'pairs', `unit` numbers the runs of one label."""

    run: str
    how: str
    case: str
    label: str
    unit: int
    verdict: str
    ratio: float | None = None


Record: TypeAlias = Pass | Process | Pair | TrueSize | Outcome
KINDS: dict[str, type[Record]] = {
    "pass": Pass, "process": Process, "pair": Pair, "true_size": TrueSize, "outcome": Outcome,
}  # fmt: skip


@dataclass
class Collection:
    """Everything in a file, by kind, in file order."""

    passes: list[Pass] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    sizes: list[TrueSize] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Put a record where it belongs."""
        if isinstance(record, Pass):
            self.passes.append(record)
        elif isinstance(record, Process):
            self.processes.append(record)
        elif isinstance(record, Pair):
            self.pairs.append(record)
        elif isinstance(record, Outcome):
            self.outcomes.append(record)
        else:
            self.sizes.append(record)


def line_of(record: Record) -> str:
    """One JSON line, without fields at their defaults."""
    name = next(name for name, kind in KINDS.items() if isinstance(record, kind))
    defaults = {f.name: f.default for f in fields(record)}
    kept = {key: value for key, value in asdict(record).items() if value != defaults[key]}
    return json.dumps({"record": name, **kept}, separators=(",", ":"))


def append(path: Path, records: Iterable[Record]) -> None:
    """Add lines behind those that are there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(line_of(record) + "\n" for record in records)


def read(path: Path) -> Collection:
    """Every record of a file. Raises ValueError naming the line that is not one."""
    found = Collection()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values: dict[str, Any] = json.loads(line)
            found.add(msgspec.convert(values, KINDS[values.pop("record")], strict=True))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            known = ", ".join(KINDS)
            raise ValueError(
                f"{path}:{number} is no record of the figures ({error!r}); records are {known}: collect again, "
                "or remove the line"
            ) from error
    return found


def processes_of(run: str, results: RunResult) -> list[Process]:
    """One record per case and process of a run with --attnperf-calibrate."""
    order: dict[str, int] = {}
    return [
        _process(run, case.key, summary, order.setdefault(summary.process, len(order)))
        for case in results.cases
        for summary in case.first
    ]


def pairs_of(run: str, results: RunResult) -> list[Pair]:
    """One record per case and pair of an interleaved run."""
    order: dict[str, int] = {}
    return [
        Pair(
            run, name_of(case.key), case.key.label or "plain",
            order.setdefault(f"{pair.base_process} {pair.new_process}", len(order)),
            pair.ratio, pair.base_us, pair.new_us, pair.quads, pair.timer, pair.seconds,
            tuple(_rounded(ratio) for ratio in pair.quad_ratios[:BLOCKS_MAX]),
        )
        for case in results.cases
        for pair in case.pairs
    ]  # fmt: skip


def without_numbers(results: RunResult) -> tuple[str, ...]:
    """Cases that brought neither a process nor a pair: 'case: VERDICT: summary'."""
    return tuple(
        f"{case.key}: {case.verdict.value}: {case.summary}"
        for case in results.cases
        if not case.first and not case.pairs
    )


def pass_of(run: str, kind: str, results: RunResult, units: int, wall_s: float) -> Pass:
    """What a command was."""
    device, fingerprint = results.device, results.fingerprint
    stated = {**fingerprint.must_match, **fingerprint.named} if fingerprint else {}
    names = ("torch", "triton", "driver", "cuda", "rocm", "python")
    return Pass(
        run=run,
        kind=kind,
        date=results.started,
        gpu=hashed(device.device_id if device else ""),
        product=device.product if device else "",
        versions={"attnperf": results.version} | {name: stated[name] for name in names if name in stated},
        units=units,
        wall_s=_rounded(wall_s),
        failed=without_numbers(results),
    )


def hashed(device_id: str) -> str:
    """Eight characters that stand for a device, and do not name it."""
    return hashlib.sha256(device_id.encode()).hexdigest()[:8]


def name_of(key: CaseKey) -> str:
    """What the figures call a case."""
    return case_name(key.backend, key.workload)


def device_seconds(summary: ProcessSummary) -> float:
    """How long a process's timing of one case held the device: warm-up, sizing, and twice every block.

    Proving the result right is not in it: no peer does that.
    """
    block_us = summary.mean_us * summary.calls_per_block
    replays = 2 * len(summary.block_us) + ESTIMATE_REPLAYS + summary.placements
    return WARM_UP_SECONDS + replays * block_us / 1e6


def _process(run: str, key: CaseKey, summary: ProcessSummary, unit: int) -> Process:
    return Process(
        run=run,
        method="attnperf",
        case=name_of(key),
        label=key.label or "plain",
        unit=unit,
        us=summary.median_us,
        device_s=_rounded(device_seconds(summary)),
        timer=summary.timer,
        blocks=tuple(_rounded(block) for block in _thinned(summary.block_us)),
        calls_per_block=summary.calls_per_block,
        placements=summary.placements,
        clock_mhz=summary.clock_mhz,
    )


def _thinned(blocks: Sequence[float]) -> Sequence[float]:
    """At most BLOCKS_MAX of them, evenly spaced in measured order."""
    if len(blocks) <= BLOCKS_MAX:
        return blocks
    return [blocks[kept * len(blocks) // BLOCKS_MAX] for kept in range(BLOCKS_MAX)]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

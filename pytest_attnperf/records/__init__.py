"""Frozen data that every layer may use, by the standard library only: the worker's server side imports this file.
Independence is a type: only a `Measurement`, of processes proven right, is compared or stored. Names carry units."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.records.trials import TrialResult

METHOD_VERSION = 2
"""Version of the measuring method; `stats.summaries.method_of` gives a timer's."""

SECONDS_DIGITS = 5
"""Decimals of the seconds of a proof."""

NOT_STORED = {"stored": False}
"""Metadata of a field that no baseline stores."""

ONLY_IF_SET = {"stored": "if set"}
"""Metadata of a field that a baseline stores only where it is not empty: entries without it keep their text."""


class Verdict(str, enum.Enum):
    """The verdict on a case. WORSE: SLOWER, of a code object. GREW: costs more. RIGHT, RECORDED: ungated."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    GREW = "GREW"
    INCORRECT = "INCORRECT"
    WORSE = "WORSE"
    SUSPICIOUS = "SUSPICIOUS"
    ERROR = "ERROR"
    UNSUPPORTED = "UNSUPPORTED"
    UNDECIDED = "UNDECIDED"
    NO_BASELINE = "NO_BASELINE"
    INCOMPARABLE = "INCOMPARABLE"
    ENVIRONMENT = "ENVIRONMENT"
    MOVED = "MOVED"
    DRIFT = "DRIFT"
    STALE = "STALE"
    RIGHT = "RIGHT"
    RECORDED = "RECORDED"


TIMED = frozenset(
    {
        *(Verdict.SAME, Verdict.FASTER, Verdict.SLOWER, Verdict.GREW, Verdict.UNDECIDED, Verdict.NO_BASELINE),
        *(Verdict.INCOMPARABLE, Verdict.MOVED, Verdict.DRIFT, Verdict.STALE, Verdict.RECORDED),
    }
)
"""Verdicts whose time is valid in itself, whatever the baseline says. Code of another tree is left out by its note."""


class Role(str, enum.Enum):
    """The job of a worker. Triton cannot interpret and compile in one process, so a worker has exactly one role."""

    INTERPRET = "interpret"
    COMPILE = "compile"
    DEVICE = "device"


@dataclass(frozen=True, order=True)
class CaseKey:
    """(suite, backend, workload id, label), by which both sides of a comparison are matched."""

    suite: str
    backend: str
    workload: str
    label: str = ""

    @property
    def entry(self) -> str:
        """The case's key inside the baseline file of its suite: `backend/workload[/label]`."""
        return "/".join(part for part in (self.backend, self.workload, self.label) if part)

    def __str__(self) -> str:
        return f"{self.suite}/{self.entry}"


@dataclass(frozen=True)
class Tolerance:
    """How far a backend may be from the reference, as a multiple of the plain low-precision computation's own error.

    multiplier   of every output that `outputs` does not name
    source       the reason for a multiplier other than 2; printed with every verdict
    outputs      (output, multiplier) of single outputs, e.g. (('dq', 3.0),)

    Raises ValueError for a multiplier that is not positive, or is not 2 and has no source.
    """

    multiplier: float = 2.0
    source: str = ""
    outputs: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for multiplier in (self.multiplier, *(own for _, own in self.outputs)):
            if not multiplier > 0:
                raise ValueError(f"tolerance multiplier must be positive, got {multiplier}")
            if multiplier != 2.0 and not self.source:
                raise ValueError(f"a tolerance multiplier of {multiplier} needs a source saying why it is not 2")

    def for_output(self, name: str) -> float:
        """Returns by what an output's error budget is multiplied: its own factor in `outputs`, else `multiplier`."""
        return dict(self.outputs).get(name, self.multiplier)


@dataclass(frozen=True)
class DeviceInfo:
    """The device a worker runs on. `kind` is 'cpu', 'cuda' or 'rocm'; `arch` is e.g. sm_90, gfx942 or cpu-x86_64.

    `interpreted` of a CPU says that Triton's kernels are interpreted, of a GPU that its machine code is: there is none.
    """

    kind: str
    arch: str
    product: str
    name: str = ""
    compute_units: int = 0
    memory_bytes: int = 0
    device_id: str = ""
    interpreted: bool = False

    @property
    def torch_device(self) -> str:
        """The device name for torch: 'cuda' for both vendors, 'cpu' otherwise, and where a GPU is interpreted."""
        return "cpu" if self.kind == "cpu" or self.interpreted else "cuda"


@dataclass(frozen=True)
class Fingerprint:
    """Where a number was measured. Differing `must_match` is INCOMPARABLE; differing `named` is only reported."""

    must_match: dict[str, str]
    named: dict[str, str]

    def list_mismatches(self, other: Fingerprint) -> list[str]:
        """Returns the `must_match` fields that differ, e.g. 'arch: sm_90 here, sm_80 stored'; empty when comparable."""
        return _list_differences(self.must_match, other.must_match)

    def list_changes(self, other: Fingerprint) -> list[str]:
        """Returns the `named` fields that differ, e.g. 'torch: 2.11.0 here, 2.10.0 stored'; empty when none does."""
        return _list_differences(self.named, other.named)


def _list_differences(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    keys = sorted(ours.keys() | theirs.keys(), key=lambda key: (key != "timer", key))  # its method may differ, too
    both = [(key, ours.get(key, "absent"), theirs.get(key, "absent")) for key in keys]
    return [f"{key}: {here} here, {there} stored" for key, here, there in both if here != there]


@dataclass(frozen=True)
class ErrorFigures:
    """Errors of one output of one checked call against the reference, and its budgets.

    worst_index       the element that exceeds its budget most, or the first with an unexpected NaN or Inf
    nan_count         NaN where the reference is finite or Inf
    inf_count         Inf where the reference is finite, NaN or the other Inf
    finite_count      finite where the reference is NaN or Inf
    around_first      index in the last dimension of the first element of `around_got` and `around_expected`, which
                      hold the elements around the worst one; NaN and Inf as the words 'nan', 'inf' and '-inf'
    beyond_count      elements beyond their budget, NaN and Inf included
    line              the row, or index of an axis, nearest to its budget or furthest beyond it; '' where none is judged
    line_error        root mean square of the errors on it; `line_budget` is its budget
    beyond_first      smallest index of elements beyond their budget, in every dimension; `beyond_last` the largest
    """

    check: str
    output: str
    max_error: float
    max_budget: float
    rms_error: float
    rms_budget: float
    worst_index: tuple[int, ...] = ()
    worst_got: float = 0.0
    worst_expected: float = 0.0
    nan_count: int = 0
    inf_count: int = 0
    elements: int = 0
    finite_count: int = 0
    around_first: int = 0
    around_got: tuple[float | str, ...] = ()
    around_expected: tuple[float | str, ...] = ()
    beyond_count: int = 0
    beyond_first: tuple[int, ...] = ()
    beyond_last: tuple[int, ...] = ()
    line: str = ""
    line_error: float = 0.0
    line_budget: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError for a negative error or budget, or a max_error of 0 though worst_got != worst_expected."""
        if min(map(min, self.budgets)) < 0:
            raise ValueError(f"an error or a budget of {self.output[:100]!r} is negative; both are 0 or more")
        if self.max_error == 0 and self.worst_got != self.worst_expected:
            raise ValueError(
                f"max_error of {self.output[:100]!r} is 0, but worst_got is {self.worst_got:g} and worst_expected "
                f"{self.worst_expected:g}"
            )

    @property
    def budgets(self) -> tuple[tuple[float, float], ...]:
        """(error, budget) pairs: of the worst element, the RMS of the whole output, that of its worst row or slice."""
        line = (self.line_error, self.line_budget)
        return (self.max_error, self.max_budget), (self.rms_error, self.rms_budget), line


@dataclass(frozen=True)
class CheckReport:
    """The result of a check. `problems` is empty exactly when the case is right.

    parts       seconds by what they were spent on ('inputs', 'reference', 'call', ...); together about `seconds`
    repeats     calls on the same inputs whose bits were compared; `bit_equal`: all agreed. 0 and None without any
    bits        hash of the first one's bits, by which other processes are compared; `card` is its device's id
    notes       about the proof, though nothing is wrong
    coarseness  the plain computation's error on the timed inputs, relative to the result, by output
    truth       (rms, projection) of a gated function's inputs, and of the reference's results for them, by name
    trials      results of further proofs under changed circumstances
    garbage     elements that held NaN or Inf unread, by input; `reads_garbage`: the result is wrong only with them
    """

    figures: tuple[ErrorFigures, ...] = ()
    problems: tuple[str, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    repeats: int = 0
    bit_equal: bool | None = None
    notes: tuple[str, ...] = ()
    coarseness: dict[str, float] = field(default_factory=dict)
    truth: dict[str, tuple[float, float]] = field(default_factory=dict)
    trials: tuple[TrialResult, ...] = ()
    garbage: dict[str, int] = field(default_factory=dict)
    reads_garbage: bool = False
    bits: str = ""
    card: str = ""

    @property
    def right(self) -> bool:
        """True when something was compared and no problem was found; an empty report proves nothing."""
        return bool(self.figures) and not self.problems

    def merge_with(self, then: CheckReport) -> CheckReport:
        """Returns both reports as one, seconds added up: right only if neither report found a problem."""
        added = {one: self.parts.get(one, 0.0) + then.parts.get(one, 0.0) for one in {**self.parts, **then.parts}}
        return CheckReport(
            figures=self.figures + then.figures,
            problems=self.problems + then.problems,
            tolerance=self.tolerance,
            seconds=round(self.seconds + then.seconds, SECONDS_DIGITS),
            parts={one: round(added[one], SECONDS_DIGITS) for one in sorted(added)},
            repeats=max(self.repeats, then.repeats),
            bit_equal=self.bit_equal if then.bit_equal is None else then.bit_equal,
            notes=tuple(dict.fromkeys(self.notes + then.notes)),
            coarseness={**then.coarseness, **self.coarseness},
            truth={**then.truth, **self.truth},
            trials=self.trials + then.trials,
            garbage={**self.garbage, **then.garbage},
            reads_garbage=self.reads_garbage or then.reads_garbage,
            bits=self.bits or then.bits,
            card=self.card or then.card,
        )


@dataclass(frozen=True)
class Samples:
    """Blocks of one process, in measured order, in microseconds per call (not per block).

    `placements`: number of places in memory of the inputs, in equal runs of blocks. `clock_mhz`: mean compute clock
    of each block and the one before it, else empty. `settings` of torch that change times; '' where not known.
    `throttled_s`: seconds in which the device was throttled meanwhile, by reason; None where it does not count them.
    """

    block_us: tuple[float, ...]
    calls_per_block: int
    timer: str
    cache_state: str = "hot"
    rejected_blocks: int = 0
    note: str = ""
    placements: int = 1
    clock_mhz: tuple[float, ...] = ()
    settings: str = ""
    throttled_s: dict[str, float] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Rotation:
    """Microseconds per call while the inputs stay the same, and when all of them change before every call.

    noise_us   by how much `rotating_us` may be too large: the fastest block, and the slowest change but one
    """

    same_us: float
    rotating_us: float
    noise_us: float = 0.0


@dataclass(frozen=True)
class ProcessSummary:
    """One process of one case: the unit over which intervals may be computed.

    `median_us` is the median of the blocks; over several placements of the inputs it is their mean (`stats.summaries`).
    `clock_mhz` is the median compute clock of its blocks, None where it is not known; `block_clock_mhz` that of each
    block in `block_us`, else empty, and never stored in a baseline. `settings` and `throttled_s` as in `Samples`; the
    latter is never stored in a baseline. `costs` are those that the test gates (`records.costs`), measured in this
    process.
    """

    median_us: float
    min_us: float
    mean_us: float
    block_us: tuple[float, ...]
    calls_per_block: int
    timer: str
    device_id: str = ""
    process: str = ""
    placements: int = 1
    clock_mhz: float | None = None
    block_clock_mhz: tuple[float, ...] = field(default=(), metadata=NOT_STORED)
    settings: str = field(default="", metadata=ONLY_IF_SET)
    costs: dict[str, float] = field(default_factory=dict, hash=False, metadata=ONLY_IF_SET)
    throttled_s: dict[str, float] | None = field(default=None, hash=False, metadata=NOT_STORED)


@dataclass(frozen=True, order=True)
class Launch:
    """One kind of work that a call did, and how often.

    kind           'kernel', 'copy' or 'set' on a GPU; 'operator' (torch's, without views) on a CPU
    grid, block    dimensions of a kernel, empty where unknown; for a copy or set, `grid` is (bytes,)
    shared_bytes   dynamic and static shared memory (LDS) of a kernel
    calls          how often per call of the backend
    isa_hash       of the kernel's machine code; '' where it is not known
    object_id      key of its code object in `FinalReport.code` of this very report; '' where that is not known
    """

    name: str
    kind: str = "kernel"
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared_bytes: int = 0
    calls: float = 1.0
    isa_hash: str = ""
    object_id: str = field(default="", metadata=NOT_STORED)


@dataclass(frozen=True)
class WorkloadFigures:
    """Exact useful work of a workload, for rates and floors. None where a workload does not define it."""

    flops: float | None
    bytes_min: float | None
    dtype: str
    cache_state: str
    definition: dict[str, Any] = field(default_factory=dict)


class NotProvenRightError(Exception):
    """A measurement was requested without a passing check of the same callable."""


@dataclass(frozen=True)
class Measurement:
    """Processes of a case whose output was proven right in every one of them; raises NotProvenRightError otherwise."""

    processes: tuple[ProcessSummary, ...]
    proof: tuple[CheckReport, ...]
    peak_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.processes:
            raise NotProvenRightError("a measurement needs at least one process")
        if len(self.proof) != len(self.processes):
            said = f"{len(self.processes)} processes were measured, but {len(self.proof)} were checked"
            raise NotProvenRightError(said)
        if not all(report.right for report in self.proof):
            wrong = [problem for report in self.proof for problem in report.problems]
            raise NotProvenRightError(f"a measurement needs a passing check of every process; found: {wrong}")

    @property
    def medians_us(self) -> tuple[float, ...]:
        """The median of each process, in microseconds per call."""
        return tuple(process.median_us for process in self.processes)

    @property
    def timer(self) -> str:
        """Name of the timer of all processes, which must be the same on both sides of a comparison."""
        return self.processes[0].timer

"""Data of a tuning run: what may be tried, what was tried, what it found; and what makes a backend tunable.

Standard library only: `kernels/` declares its spaces with these types, reports read the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from pytest_attnperf.records import DeviceInfo, ProcessSummary
from pytest_attnperf.records.pairs import PairSummary

if TYPE_CHECKING:
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.workloads.base import Workload

Value: TypeAlias = int | bool | str

TUNE_SCHEMA = "attnperf.tune/1"
"""Kind and version of a stored result. The number increases when a field is renamed or changes its meaning."""

BETTER = "BETTER"
"""The winner's interval lies below the default's time, and no workload that it serves became slower."""
NO_BETTER = "NO_BETTER"
"""No candidate was shown to be faster than the default."""
SLOWER_ELSEWHERE = "SLOWER_ELSEWHERE"
"""Faster on the tuned workloads, slower on another workload that the same rule or bucket serves."""
STATIC_ONLY = "STATIC_ONLY"
"""Candidates were ranked by their code objects; nothing was timed."""
VERDICTS = (BETTER, NO_BETTER, SLOWER_ELSEWHERE, STATIC_ONLY)


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    values   constants and compiler options by name
    label    its name where its values do not identify it, e.g. 'autotuned by aiter'; '' elsewhere
    """

    values: Mapping[str, Value]
    label: str = ""

    @property
    def id(self) -> str:
        """Text that identifies the values, names sorted: 'BLOCK_M=64,BLOCK_N=32,num_warps=4'; 'LABEL:' stands before it
        if there is a label."""
        told = ",".join(f"{name}={self.values[name]}" for name in sorted(self.values))
        return f"{self.label}:{told}" if self.label else told

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True)
class Constraint:
    """A condition on candidates, checked before anything is compiled.

    why     the report's reason for candidates that it excludes, e.g. 'BLOCK_N above BLOCK_M'
    holds   returns whether these values may be tried
    """

    why: str
    holds: Callable[[Mapping[str, Value]], bool]


@dataclass(frozen=True)
class TuningSpace:
    """The candidates for one kernel, some workloads and one architecture.

    kernel        name of the kernel in its configuration files
    values        parameter -> the values to try; a candidate has one of each
    default       the present configuration for these workloads; measured like any other, and never pruned
    constraints   conditions between parameters
    extra         candidates outside the grid, e.g. the library's own autotuner
    serves        the rule or bucket that contains the default, as text; it serves all workloads that match it
    where         the file that contains it
    """

    kernel: str
    values: Mapping[str, tuple[Value, ...]]
    default: Candidate
    constraints: tuple[Constraint, ...] = ()
    extra: tuple[Candidate, ...] = ()
    serves: str = ""
    where: str = ""


@dataclass(frozen=True)
class TunedFile:
    """A file that a tuner writes.

    path    relative to the results folder, with forward slashes
    text    the whole content
    what    one line for the report, e.g. 'rules of prefill_forward for gfx942: 1 rule changed, 9 kept'
    """

    path: str
    text: str
    what: str


@runtime_checkable
class Tunable(Protocol):
    """A backend whose configuration can be searched. It is `Pinnable` too: a candidate is timed like a stored one.

    `when` narrows the rule that is changed: conditions as the configuration files have them, e.g. {'rows_max': 65536}.
    Empty changes the rule that serves the workloads today. None of these methods imports a compiler or torch.
    """

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the candidates to try for these workloads. `kernel` chooses among several; '' means the main one.

        Raises UsageError where no single rule serves all workloads, `when` does not match them all, or nothing is
        declared for this kernel or architecture.
        """

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether the configuration rule that the tuner would change applies to this workload, too. `when`
        restricts the rule, as in `tuning_space`."""

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Returns the configuration that makes `replay_config` run this candidate."""

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns the kernel builds of this candidate, from which it can be excluded without a GPU; empty where they
        are not known."""

    def tuned_files(
        self,
        winner: Candidate,
        space: TuningSpace,
        workloads: Sequence[Workload],
        arch: str,
        *,
        source: str,
        when: Mapping[str, Value] | None = None,
    ) -> Sequence[TunedFile]:
        """Returns the complete configuration files with the winner in them and only its rule changed; `source` says in
        them where it was measured.

        Raises UsageError where the present file cannot be read, naming it.
        """


@dataclass(frozen=True)
class StaticFigures:
    """Figures of one candidate's code objects, the worst of its builds; sizes in bytes.

    registers        VGPRs per lane (unified on CDNA2 and later), registers per thread on NVIDIA
    spills           registers kept in memory, None where the object does not say
    occupancy        waves per SIMD, on NVIDIA warps per sub-partition of an SM; None where it is not computed
    matrix           matrix instructions in loops, of all builds; None where the code was not disassembled
    loop_instructions, loop_lds   all instructions in loops, and those that read or write LDS; None likewise
    peak_share       estimated share of the matrix units' peak in the key loop, +-30 %; None where it is not estimated
    repeated         times that the key loop computes each product
    executed_share   the same of machine code that was executed, bank conflicts of LDS included; None for the others
    conflict_share   of the cycles of LDS accesses that were executed, those that bank conflicts add
    """

    registers: int
    spills: int | None
    scratch_bytes: int
    lds_bytes: int
    occupancy: float | None = None
    matrix: int | None = None
    code_bytes: int = 0
    loop_instructions: int | None = None
    loop_lds: int | None = None
    peak_share: float | None = None
    repeated: float = 1.0
    executed_share: float | None = None
    conflict_share: float | None = None


@dataclass(frozen=True)
class Excluded:
    """A candidate that is not timed, or whose time does not count; `reason` begins with what excluded it.

    stage   'constraint', 'compile', 'code object', 'wrong', 'failed', 'dropped'
    """

    candidate: Candidate
    stage: str
    reason: str
    static: StaticFigures | None = None


@dataclass(frozen=True)
class Trial:
    """One candidate timed on one workload in one process: the unit of a search's effort.

    process     number of the process it was timed in; candidates of one process share its placement and clock
    median_us   microseconds per call; None where it failed, with the reason in `failure`
    """

    candidate: Candidate
    workload: str
    process: int
    median_us: float | None
    failure: str = ""
    summary: ProcessSummary | None = None


@dataclass(frozen=True)
class WorkloadChange:
    """The winner compared with the default on one workload, by fresh pairs of processes measured in turns.

    tuned        whether the search timed this workload; False for one that the same rule serves
    ratio        winner's time / default's time; below 1 is faster
    interval95   of `ratio`
    verdict      'FASTER', 'SAME', 'SLOWER', or 'FAILED' with the reason in `note`
    """

    workload: str
    tuned: bool
    default_us: float | None
    winner_us: float | None
    ratio: float | None
    interval95: tuple[float, float] | None
    verdict: str
    note: str = ""
    pairs: tuple[PairSummary, ...] = ()


@dataclass(frozen=True)
class TuneResult:
    """The result of a tuning run.

    strategy      'race', 'optuna', 'exhaustive', 'static'
    candidates    number of candidates in the space, constraints applied
    trials        every timed trial, in order
    overall       winner over default, geometric mean over the tuned workloads, with its interval; None untimed
    ranking       best first: candidate and its cost (geometric mean of time over the default's), or for a static run
                  its place by code object (a cost of None)
    notes         for the reader, e.g. that nothing was timed, or that the budget ended the search
    """

    backend: str
    kernel: str
    arch: str
    device: DeviceInfo | None
    workloads: tuple[str, ...]
    strategy: str
    verdict: str
    summary: str
    default: Candidate
    winner: Candidate | None
    candidates: int
    trials: tuple[Trial, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    ranking: tuple[tuple[Candidate, float | None], ...] = ()
    static: Mapping[str, StaticFigures] = field(default_factory=dict)
    overall: tuple[float, tuple[float, float]] | None = None
    changes: tuple[WorkloadChange, ...] = ()
    files: tuple[TunedFile, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema: str = TUNE_SCHEMA

"""What the worker's server asks of one case: a backend bound to a workload. A fake without torch can serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pytest_attnperf.records import CheckReport, FinalReport, Rotation, Samples
    from pytest_attnperf.records.code import KernelObject
    from pytest_attnperf.records.pairs import Turn, TurnPlan
    from pytest_attnperf.records.profiles import CaseProfile
    from pytest_attnperf.records.stages import Breakdown


@runtime_checkable
class Subject(Protocol):
    """One case inside its worker, asked in this order: reasons, `prepare`, `check`, then times, then `finish`.

    Times are asked for by `blocks` and then `rotated` and `stages`, or by `turns` and then `turn` as often as wanted;
    or, in their place, `profile`.
    Wherever a timer is named, 'auto' leaves the choice to the rule (see `timers`); any other name is used, or
    CaseFailedError says why not.

    Any method but the first and third may raise CaseFailedError; `out_of_memory` then says whether memory ran out.
    """

    def unsupported_reasons(self) -> list[str]:
        """Why this workload cannot run on this device; empty means it can. Builds nothing."""

    def prepare(self) -> None:
        """Make the timed inputs, build, compile and warm up. Nothing is checked or timed."""

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """Compiled kernels that `prepare` launched; some may not run again."""

    def not_timed_reason(self) -> str:
        """Why a time taken here would say nothing; empty when `blocks` may be asked."""

    def check(self, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        """Judge fresh calls against the reference; the result decides whether `blocks` may be asked.

        profiled   look at kernels, copies and streams with a profiler; `blocks` may not be asked afterwards
        repeats    make so many calls on the same inputs and say whether they agree bit for bit; 0 does not
        """

    def measure_blocks(self, max_blocks: int, block_us: float, budget_us: float, timer: str = "auto") -> Samples:
        """Measure blocks of about `block_us` microseconds of calls, each after an unmeasured one.

        Stops at `max_blocks`, or earlier when measured and unmeasured blocks together have taken `budget_us`.
        Raises NotProvenRightError before a passing `check`, and TimedWrongError (see `proving`) when the calls are
        right but the way of timing them makes them wrong.
        """

    def measure_rotation(self, block_us: float) -> Rotation:
        """Measure calls on inputs that stay, and on inputs that change before every call. Raises as `blocks`."""

    def measure_stages(self, block_us: float) -> Breakdown:
        """Measure the stages of the call that `blocks` measured, each alone, and the whole in turns with them.

        Raises as `blocks`: TimedWrongError where the stages give another result than the call, OtherWorkError where
        one of them goes through the host. Any other failure says nothing against the case, which may be finished.
        """

    def profile(self) -> CaseProfile:
        """Profile some proven calls, and free everything the case holds; nothing is timed in this process afterwards.

        Raises NotProvenRightError before a passing `check`.
        """

    def prepare_turns(self, block_us: float, timer: str = "auto") -> TurnPlan:
        """Make the case ready for being measured in turns with another process, in blocks of about `block_us`.

        At several places in memory at once, which stay until `finish`. Raises as `blocks`.
        """

    def measure_turn(self, place: int) -> Turn:
        """One unmeasured and one measured block at a place of the plan, counted from 0.

        Raises NotProvenRightError before a passing `check`, and CaseFailedError before `turns`, for a place that does
        not exist, and when something compiles in every block.
        """

    def finish(self) -> FinalReport:
        """Check one last run of exactly what was timed on fresh inputs, then free everything the case holds."""

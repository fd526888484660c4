"""The interface between the worker's server and one case: a backend bound to a workload. A fake needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.records import CheckReport, Rotation, Samples
    from pytest_attnperf.records.code import KernelObject
    from pytest_attnperf.records.costs import GatedCosts
    from pytest_attnperf.records.final_report import FinalReport
    from pytest_attnperf.records.pairs import Turn, TurnPlan
    from pytest_attnperf.records.profiles import CaseProfile
    from pytest_attnperf.records.stages import Breakdown


@runtime_checkable
class Subject(Protocol):
    """One case inside its worker, called in this order: reasons, `prepare`, `check`, then times, then `finish`.

    Times are `measure_blocks`, then `measure_rotation` and `measure_stages`; or `prepare_turns`, then `measure_turn`
    any number of times; or only `profile`. A timer named 'auto' is chosen by the rule (see `timers`). Any other name is
    used, or CaseFailedError says why not.

    Any method but the first and third may raise CaseFailedError; `out_of_memory` then tells whether memory ran out.
    """

    def unsupported_reasons(self) -> list[str]:
        """Returns why this workload cannot run on this device; empty means it can. Builds nothing."""

    def prepare(self) -> None:
        """Makes the timed inputs, builds, compiles and warms up. Checks and times nothing."""

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """Lists the compiled kernels that `prepare` launched; some may not run again."""

    def not_timed_reason(self) -> str:
        """Returns why a time measured here would be meaningless; empty if `measure_blocks` may be called."""

    def check(self, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        """Judges fresh calls against the reference; the result decides whether `measure_blocks` may be called.

        profiled   examine kernels, copies and streams with a profiler; `measure_blocks` may not be called afterwards
        repeats    number of calls on the same inputs whose results are compared bit for bit; 0 for none
        """

    def measure_blocks(self, max_blocks: int, block_us: float, budget_us: float, timer: str = "auto") -> Samples:
        """Measures blocks of about `block_us` microseconds of calls, each after an unmeasured one.

        Stops at `max_blocks`, or earlier if measured and unmeasured blocks together have taken `budget_us`. Raises
        NotProvenRightError before a passing `check`, and TimedWrongError (see `proving`) if the calls are right but the
        timed ones give wrong results.
        """

    def measure_rotation(self, block_us: float) -> Rotation:
        """Measures calls on constant inputs, and calls before each of which the inputs change a little: a kernel that
        caches its results is slower then. Raises as `measure_blocks` does."""

    def measure_stages(self, block_us: float) -> Breakdown:
        """Measures the stages of the call of `measure_blocks`, each alone, and the whole in turns with them.

        Raises as `measure_blocks` does: TimedWrongError if the stages give another result than the call, OtherWorkError
        if one goes through the host. Any other failure says nothing against the case, which may be finished.
        """

    def profile(self) -> CaseProfile:
        """Profiles some proven calls, and frees all that the case holds; nothing may be timed in this process then.

        Raises NotProvenRightError before a passing `check`.
        """

    def prepare_turns(self, block_us: float, timer: str = "auto") -> TurnPlan:
        """Prepares the case to be measured in turns with another process, in blocks of about `block_us` microseconds.

        It makes several places in memory, which stay until `finish`. Raises as `measure_blocks` does.
        """

    def measure_turn(self, place: int) -> Turn:
        """Runs one unmeasured and one measured block at a place of the plan, counted from 0.

        Raises NotProvenRightError before a passing `check`. Raises CaseFailedError before `prepare_turns`, for a place
        that does not exist, and if something compiles in every block.
        """

    def finish(self, costs: GatedCosts = ..., trials: Sequence[str] = ()) -> FinalReport:
        """Checks one last run of exactly what was timed on fresh inputs, then frees all that the case holds. The report
        has the values of `costs`, if the case was timed and is right, and the results of `trials` (see
        `measure.trials`)."""

"""Prepares every case ahead of a timed run: builds, compiles, tunes and proves it once. Times and gates nothing.

What a process keeps only in memory is lost when it ends. So the slowest cases are opened again in another process,
which shows what every later process still pays, and once more in the same one, which shows the cost of the proof.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED
from pytest_attnperf.records import CaseKey, NotProvenRightError, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.looking import GATE_PLACE, SECOND_LOOK_PLACES
from pytest_attnperf.session.settings import Case
from pytest_attnperf.session.time_left import format_duration
from pytest_attnperf.workers.look import Ending

LOST_LEAST_S = 2.0
"""Shortest build, in seconds, that a warning mentions when it is not kept."""

LOST_SHARE = 0.5


@dataclass(frozen=True)
class Reopened:
    """Seconds of one case: `first_s` its first call, `fresh_s` that in a fresh process, `proof_s` the proof alone.

    autotuned   whether an autotuner chose a configuration in it
    """

    key: CaseKey
    first_s: float
    fresh_s: float
    proof_s: float
    autotuned: bool = False

    @property
    def built_s(self) -> float:
        """Returns the seconds of building, compiling and tuning in the case's first call, without proving it."""
        return max(0.0, self.first_s - self.proof_s)

    @property
    def paid_again_s(self) -> float:
        """Returns the seconds of building, compiling and tuning again in a fresh process, without proving the case."""
        return max(0.0, self.fresh_s - self.proof_s)

    @property
    def is_kept(self) -> bool:
        """Whether a fresh process reuses most of the build, or the build was too short to matter."""
        return self.built_s < LOST_LEAST_S or self.paid_again_s < LOST_SHARE * self.built_s


@dataclass
class CaseWarmer:
    """Builds and proves each case once. `taken` holds each with its result; `seconds` are of the first call."""

    session: Session
    taken: list[tuple[Case, CaseResult]] = field(default_factory=list)

    def judge(self, case: Case) -> CaseResult:
        """Returns the case's result: RIGHT with the seconds of its first call, UNSUPPORTED, or failing with the reason.
        The seconds leave out the start of the worker process."""
        with contextlib.suppress(WorkerError):  # the case reports the error
            self.session.bench.pool.wait_until_ready(GATE_PLACE)
        result = self.session.judge(case)
        if result.verdict is Verdict.RIGHT:
            result = replace(result, summary=f"warm: first call {format_duration(result.seconds)}")
        # Independent of the case's `fail_on`, which is for gating runs: this run is about cases that are not ready.
        result = replace(result, fails=result.verdict not in (Verdict.RIGHT, Verdict.UNSUPPORTED))
        self.taken.append((case, result))
        return result

    def reopen_slowest(self, most: int) -> list[Reopened]:
        """Prepares and proves the `most` slowest cases twice in a fresh process; returns the seconds that each took.
        Leaves out cases that fail there.

        Begins with the quickest of the other cases, so that a slow case does not bear the process's one-time costs.
        """
        right = [(case, result) for case, result in self.taken if result.verdict is Verdict.RIGHT]
        ordered = sorted(right, key=lambda taken: -taken[1].seconds)
        slowest = ordered[:most]
        if len(ordered) > most:
            self._time_opening(ordered[-1][0])
        rounds = [[self._time_opening(case) for case, _ in slowest] for _ in range(2)]
        return [
            Reopened(case.key, result.seconds, fresh, proof, any(name.startswith(AUTOTUNED) for name in result.config))
            for (case, result), fresh, proof in zip(slowest, *rounds, strict=True)
            if fresh is not None and proof is not None
        ]

    def _time_opening(self, case: Case) -> float | None:
        """Returns the seconds of opening and proving the case in another process; None if it is not right there."""
        try:
            self.session.bench.pool.wait_until_ready(SECOND_LOOK_PLACES)
            started = self.session.bench.clock()
            look = self.session.bench.look(SECOND_LOOK_PLACES, case, None, None)
        except (WorkerError, CaseFailedError, NotProvenRightError):
            return None
        return self.session.bench.clock() - started if look.ending is Ending.RIGHT else None

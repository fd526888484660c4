"""Takes the interleaved look of a run: fresh pairs of processes, shared by all its cases; decides by their ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_attnperf.correctness.what_ran import is_launch_unchanged, list_differences
from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.comparable import list_config_changes
from pytest_attnperf.gate.interleaved import interleaved_look, is_surely_same
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, NotProvenRightError, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import FOREIGN, CaseResult
from pytest_attnperf.session.case_records import apply_decision, first_line, with_path
from pytest_attnperf.session.plausibility import unchanged_note, with_isa_hashes
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.pair_ratios import pair_noise
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.doing import DOING, Unit
from pytest_attnperf.workers.interleave import InterleavePlan, PairLook, PairSide, SideFailedError, take_pair
from pytest_attnperf.workers.look import Ending, take_look
from pytest_attnperf.workers.pool import Pool, WorkerPool, start_ahead, wait_for_starts

PAIR_PLACES = 1000
"""First place, on both sides, of the processes of pairs. None of them has made a first look."""

CHECK_PLACE = PAIR_PLACES - 1
"""Place of a base process that only proves cases: it may use a profiler, so it never times."""

CHANGES_SHOWN = 5

LARGE_BYTES = 2.0**30
"""Workloads from this size are proven one side at a time: proving holds several fp32 copies of their data."""


@dataclass
class Against:
    """The base side of a run.

    pool         its processes; `label` names it in verdicts, e.g. 'origin/main (4f2c1ab)'
    everything   every case is interleaved, not only those that a stored baseline leaves open
    notes        about the side, for the reader of the run
    empty        it has no file of this run's suites, so none of its processes is ever started
    vanished     files with cases that it has and this tree lacks, relative to the rootdir
    """

    pool: Pool
    label: str
    plan: InterleavePlan = field(default_factory=InterleavePlan)
    everything: bool = False
    notes: tuple[str, ...] = ()
    empty: bool = False
    vanished: tuple[str, ...] = ()
    _measured: dict[CaseKey, tuple[PairSummary, ...]] = field(default_factory=dict)
    _bounds: dict[CaseKey, str] = field(default_factory=dict)
    _begun: bool = False

    @property
    def name(self) -> str:
        """Returns the base side's name in messages: 'base side LABEL'."""
        return f"base side {self.label}"

    def start_template(self, new: Pool, place: int) -> None:
        """Starts process `place` of the candidate's pool `new` and the base side's template process, which forks its
        workers, and waits for the latter, so that its start disturbs no timing.

        Does so once, so that the first pair need not wait. Does nothing if workers are not forked: a whole worker
        would be wasted if no case needs pairs.
        """
        if self._begun or self.empty or not (isinstance(self.pool, WorkerPool) and self.pool.has_forked_workers):
            return
        self._begun = True
        new.start([place])
        self.pool.start([PAIR_PLACES])
        wait_for_starts(self.pool, [PAIR_PLACES])

    def has_case(self, key: CaseKey) -> bool:
        """Returns whether the base side has this case. Raises WorkerError, naming the side, when it cannot start."""
        return not self.empty and key in self._wait_ready().known_cases

    def list_cases(self) -> tuple[CaseKey, ...]:
        """Returns every case of the base side's suites; () if it has none of their files. Raises WorkerError if its
        worker cannot start."""
        return () if self.empty else self._wait_ready().cases

    def _wait_ready(self) -> Ready:
        try:
            return self.pool.wait_until_ready(PAIR_PLACES)
        except WorkerError as error:
            raise error.with_side(self.name) from error

    def can_time(self, request: OpenRequest) -> bool:
        """Returns whether the case is right on the base side and can be timed; False also where it breaks there."""
        if not self.has_case(request.key):
            return False
        try:
            look = take_look(self.pool, CHECK_PLACE, request, None)
            return look.ending is Ending.RIGHT and not look.note
        except (CaseFailedError, NotProvenRightError, WorkerError):
            return False

    def measure_pairs(
        self,
        new: Pool,
        request: OpenRequest,
        bytes_min: float = 0.0,
        *,
        pairs: int | None = None,
        go_on: Callable[[], bool] | None = None,
        policy: Policy | None = None,
    ) -> list[PairLook]:
        """Measures a case in every pair. Stops after the first pair that gives no ratio, and after half of the pairs if
        these show that the case is surely within the policy's threshold; None takes all.

        bytes_min   of the workload: the sides of a large one are proven one after the other, to save memory
        pairs       number of pairs in place of the plan's
        go_on       called before every pair after the first: returns whether there is time for it

        Raises WorkerError and SideFailedError as `take_pair` does.
        """
        places = range(PAIR_PLACES, PAIR_PLACES + (pairs or self.plan.pairs))
        sides = (new, self.pool)
        # Pairs beyond the plan's start in their turn: the clock may end the look before they are needed.
        ahead = [start_ahead(pool, places[: self.plan.pairs], bytes_min, len(sides)) for pool in sides]

        def start_other_pairs() -> None:
            """Waits for the other pairs to start while the first opens its case: none may start while it is timed."""
            for pool, started in zip(sides, ahead, strict=True):
                wait_for_starts(pool, started)

        looks: list[PairLook] = []
        base, ours = PairSide(self.pool, self.name), PairSide(new, "this side")
        for place in DOING.track_steps(Unit.PAIR, places, len(places)):
            if looks and go_on is not None and not go_on():
                break
            at_once = bytes_min < LARGE_BYTES
            looks.append(take_pair(base, ours, place, request, self.plan, at_once=at_once, settle=start_other_pairs))
            if looks[-1].pair is None or _is_wrong(looks[-1]):
                break
            taken = [look.pair for look in looks if look.pair is not None]
            if policy is not None and 2 * len(taken) == len(places) and is_surely_same(taken, policy):
                break
        return looks

    def judge_pairs(
        self, case: Case, base: CaseResult, looks: Sequence[PairLook], cases: int, first_ratio: float | None
    ) -> CaseResult:
        """Returns `base` (the result so far) with the verdict of the pairs; INCOMPARABLE if their sides cannot be
        compared. `cases` is how many share the false-alarm rate, `first_ratio` the first look's new / stored time."""
        base = replace(base, against=self.label)
        problem = _unusable_reasons(looks)
        if problem:
            summary = f"not comparable with {self.name}: {problem[0]}"
            return replace(base, verdict=Verdict.INCOMPARABLE, summary=summary, reasons=problem)
        pairs = tuple(look.pair for look in looks if look.pair is not None)
        self._measured[case.key], self._bounds[case.key] = pairs, base.floor_bound
        noise = pair_noise(
            {str(key): taken for key, taken in self._measured.items()},
            bounds={str(key): bound for key, bound in self._bounds.items()},
        )
        decision = interleaved_look(
            pairs,
            noise.estimate_noise(
                str(case.key), statistics.median(pair.base_us for pair in pairs), pairs[0].timer, base.floor_bound
            ),
            case.policy,
            cases,
            first_ratio=first_ratio,
            base_label=self.label,
            bound=base.floor_bound,
        )
        base = replace(
            apply_decision(base, decision),
            pairs=pairs,
            baseline_us=statistics.median(pair.base_us for pair in pairs),
            median_us=statistics.median(pair.new_us for pair in pairs),
        )
        base = replace(base, notes=(*base.notes, *_difference_notes(looks[0], base.verdict)))
        sides = [(there.base.final.config, here.new.final.config) for there in looks for here in looks]
        return with_path(base, sides, name="on the base side")

    def mark_base_failed(self, base: CaseResult, error: SideFailedError) -> CaseResult:
        """Returns INCOMPARABLE for a case that raised on the base side: nothing is wrong with this side."""
        reasons = (error.summary, str(error))
        summary = f"not comparable: {first_line(error)}"
        return replace(base, verdict=Verdict.INCOMPARABLE, summary=summary, reasons=reasons, against=self.label)

    def list_only_there(self, here: Mapping[CaseKey, object]) -> list[CaseKey]:
        """Returns cases of the base side that are not in `here`, this tree's; [] before the base side has answered."""
        known = self.pool.last_ready()
        return [] if known is None else [key for key in known.cases if key not in here]


def is_supported_there(looks: Sequence[PairLook]) -> bool:
    """Returns whether the base side supports the case: its last measurement was not UNSUPPORTED or SKIPPED there."""
    return looks[-1].base.ending not in (Ending.UNSUPPORTED, Ending.SKIPPED)


def _is_wrong(look: PairLook) -> bool:
    return Ending.RIGHT not in (look.base.ending, look.new.ending) or look.base.ending is not look.new.ending


def _unusable_reasons(looks: Sequence[PairLook]) -> tuple[str, ...]:
    """Returns why no ratio can be taken from these pairs, the main reason first; () if it can."""
    for look in looks:
        if look.base.ending is not Ending.RIGHT:
            reason = look.base.reasons[0] if look.base.reasons else look.base.note
            why = f"the base side is {look.base.ending.value}: {reason}"
            return (Note(NoteKind.BASE_SIDE, why), *look.base.reasons)
        if look.problems:
            return tuple(Note(NoteKind.BASE_SIDE, problem) for problem in look.problems)
        foreign = (*look.base.final.foreign_sources, *look.new.final.foreign_sources)
        if foreign:
            return (Note(NoteKind.FOREIGN, FOREIGN), *foreign)
        if look.pair is None:
            return (Note(NoteKind.BASE_SIDE, look.new.note or look.base.note or "a side may not be timed"),)
    return ()


def _difference_notes(look: PairLook, verdict: Verdict) -> list[str]:
    """Returns notes on what differs between both sides besides time (launches, software, configuration)."""
    notes: list[str] = []
    if look.base.final.sources and look.base.final.sources == look.new.final.sources:
        said = f"both sides ran the same files ({len(look.new.final.sources)}): the ratio is that of unchanged code"
        notes.append(Note(NoteKind.SAME_FILES, said))
    theirs, ours = with_isa_hashes(look.base.final).launches, with_isa_hashes(look.new.final).launches
    if same := unchanged_note(verdict, ours, theirs, "as on the base side"):
        notes.append(same)
    elif theirs and ours and not is_launch_unchanged(ours, theirs):
        changes = list_differences(ours, theirs)
        if changes:
            said = f"what ran differs from the base side: {'; '.join(changes[:CHANGES_SHOWN])}"
            notes.append(Note(NoteKind.CHANGED_SIDE, said))
    if look.toolchain_note:
        notes.append(look.toolchain_note)
    drift = list_config_changes(look.base.final.config, look.new.final.config, other="on the base side")
    if drift:
        notes.append(f"configuration differs from the base side: {'; '.join(drift[:CHANGES_SHOWN])}")
    return notes

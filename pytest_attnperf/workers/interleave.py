"""One pair of fresh processes, one of each side, measured in turns: A B B A, then B A A B, and so on.

What both sides share (clock, heat, the hour) cancels within a quad; what a process brings of its own (where its memory
lies) does not, which is why a pair is one unit and several pairs are needed. Every turn is an unmeasured block followed
by a measured one, so that a side finds the device as it left it, not as the other side did.

A pair is measured on one card within the same minutes, so that two releases of ROCm, torch or Triton can be held
against each other on purpose. A stored baseline cannot do that: there ROCm must match under graph timers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.comparable import list_truth_changes
from pytest_attnperf.records import NotProvenRightError
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary, Turn, TurnPlan
from pytest_attnperf.stats.pairs import Quad, summarise_pair
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.look import (
    Ending,
    Look,
    case_fingerprint,
    close_wrong_as_timed,
    finish_and_close,
    open_and_check,
)
from pytest_attnperf.workers.pool import Pool
from pytest_attnperf.workloads.defined import drop_unrecorded

QUADS_LEAST = 8
"""Fewer quads leave a pair's centre to one disturbed block."""

MEMORY_ADVICE = "; the idle processes of other pairs hold memory: try --attnperf-pairs=4"

UNKNOWN = "unknown ("
"""Begins a fact of a fingerprint that could not be had: a container may lack the vendor's tool."""

OF_THE_MACHINE = ("driver", "kernel")
"""Named beside stored times; but in one minute a machine has one of each, whatever runs in containers on it. An AMD
card is known by its PCI address only, which another machine's card has as well."""


@dataclass(frozen=True)
class InterleavePlan:
    """How much to measure: `pairs` fresh pairs of processes, shared by all cases of a run; in each at most `quads`, of
    blocks of `block_us`, within `budget_us` of blocks.
    """

    pairs: int = 8
    quads: int = 40
    block_us: float = 1000.0
    budget_us: float = 400_000.0
    timer: str = "auto"

    def count_quads(self, base: TurnPlan, new: TurnPlan) -> int:
        """How many quads the budget allows: even, so that both orders come equally often, and at least QUADS_LEAST."""
        quad_us = sum(4 * plan.call_us * plan.calls_per_block for plan in (base, new))
        affordable = int(self.budget_us / max(quad_us, 1e-3))
        chosen = max(QUADS_LEAST, min(self.quads, affordable))
        return chosen + chosen % 2


@dataclass(frozen=True)
class PairSide:
    """One side of a pair: where its processes come from, and what its errors call it."""

    pool: Pool
    name: str


class SideFailedError(CaseFailedError):
    """The case raised on one side; the text begins with the side's name, `side` is it."""

    def __init__(self, side: str, message: str, traceback: str, *, out_of_memory: bool = False) -> None:
        advice = MEMORY_ADVICE if out_of_memory else ""
        super().__init__(f"{side}: {message}{advice}", traceback=traceback, out_of_memory=out_of_memory)
        self.side = side


@dataclass(frozen=True)
class PairLook:
    """What one pair said: each side's own look (its proof, what it ran), and the pair's ratio if both were right.

    problems   why the two sides may not be compared; empty when they may, or when one of them was not right
    toolchain  what else differs between what the sides stand on, 'rocm: 6.4.4 -> 7.0.2', the base side first
    unseen     facts of their one card that one side could not find out, likewise
    """

    base: Look
    new: Look
    pair: PairSummary | None = None
    problems: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def toolchain_note(self) -> str:
        """What the ratio compares beside the code, and what is taken on trust; '' where both sides say the same."""
        unseen = f"not seen by both sides of the one card, base side -> here: {'; '.join(self.unseen)}"
        said = [unseen] * bool(self.unseen)
        if not self.toolchain:
            return "".join(said)
        about = "; ".join([f"{'; '.join(self.toolchain)}: this compares the releases, too", *said])
        return Note(NoteKind.RELEASES, f"toolchain, base side -> here: {about}", about)


@dataclass
class _Open:
    """One side while its case is open; `plan` None where it is not to be timed."""

    side: PairSide
    case: Conversation
    ready: Ready
    look: Look
    plan: TurnPlan | None = None

    def measure_turn(self, place: int) -> Turn:
        with _name_side_in_errors(self.side):
            return self.case.measure_turn(place)


def take_pair(
    base: PairSide,
    new: PairSide,
    place: int,
    request: OpenRequest,
    plan: InterleavePlan,
    *,
    at_once: bool = True,
    clock: Callable[[], float] = time.monotonic,
    base_request: OpenRequest | None = None,
    settle: Callable[[], None] = lambda: None,
) -> PairLook:
    """Open and prove the case on both sides, measure in turns, prove both again and close.

    at_once        prove both sides at the same time, which takes twice the memory
    base_request   what the base side opens where it is not the same, e.g. the case with another configuration
    settle         called when both are proven, before anything is timed

    Raises WorkerError when a process died or hung, SideFailedError when the case raised on a side.
    """
    with base.pool.case_at(place, base_request or request) as base_case, new.pool.case_at(place, request) as new_case:
        # Asked here: a process that a thread starts is killed when that thread ends (PR_SET_PDEATHSIG).
        running = (_wait_until_ready(new, place), _wait_until_ready(base, place))
        openings = (lambda: _open_side(new, new_case, running[0]), lambda: _open_side(base, base_case, running[1]))
        ours, theirs = _run_both(*openings) if at_once else (openings[0](), openings[1]())
        # Who comes first alternates from pair to pair: what that makes of memory then differs between pairs.
        in_order = (ours, theirs) if place % 2 else (theirs, ours)
        if all(side.look.ending is Ending.RIGHT and not side.look.note for side in (ours, theirs)):
            settle()
            for side in in_order:  # one after the other: each learns here how long a call takes
                _prepare_turns(side, plan)
        problems, sides = _reasons_not_comparable(theirs, ours), (theirs.ready, ours.ready)
        toolchain, unseen = toolchain_changes(*sides), unseen_facts(*sides)
        if theirs.plan is None or ours.plan is None or problems:
            return PairLook(_close_side(theirs), _close_side(ours), None, problems, toolchain, unseen)
        started = clock()
        quads = _measure_quads(theirs, ours, plan.count_quads(theirs.plan, ours.plan))
        pair = _make_summary(theirs, ours, quads, clock() - started)
        return PairLook(_close_side(theirs), _close_side(ours), pair, (), toolchain, unseen)


def _run_both(one: Callable[[], _Open], other: Callable[[], _Open]) -> tuple[_Open, _Open]:
    """Both at once: compiling and proving may overlap, nothing is timed yet. Returns, or raises, when both have ended:
    a case is closed over the channel that its thread would still be reading.
    """
    executor = ThreadPoolExecutor(2)
    try:
        futures = [executor.submit(work) for work in (one, other)]
        wait(futures)
        first, second = (future.result() for future in futures)
        return first, second
    finally:
        # After an interrupt the workers are killed by whoever holds the cases, which ends the threads too.
        executor.shutdown(wait=False, cancel_futures=True)


def _wait_until_ready(side: PairSide, place: int) -> Ready:
    with _name_side_in_errors(side):
        return side.pool.wait_until_ready(place)


def _open_side(side: PairSide, case: Conversation, ready: Ready) -> _Open:
    with _name_side_in_errors(side):
        return _Open(side, case, ready, open_and_check(case, ready, profiled=False))


def _prepare_turns(opened: _Open, plan: InterleavePlan) -> None:
    with _name_side_in_errors(opened.side):
        try:
            opened.plan = opened.case.prepare_turns(plan.block_us, plan.timer)
        except WrongAsTimedError as error:
            opened.look = close_wrong_as_timed(opened.case, opened.look, error)
            return
    opened.look = replace(opened.look, fingerprint=case_fingerprint(opened.ready.fingerprint, opened.plan))


def _measure_quads(base: _Open, new: _Open, count: int) -> list[Quad]:
    """Quads at the places that both sides have, in turn; the order alternates from quad to quad and at every place."""
    assert base.plan is not None
    assert new.plan is not None
    places = min(base.plan.places, new.plan.places)
    quads = []
    for index in range(count):
        place = index % places
        base_first = (place + index // places) % 2 == 0
        outer, inner = (base, new) if base_first else (new, base)
        first, second, third, fourth = (side.measure_turn(place) for side in (outer, inner, inner, outer))
        own, other = (first, fourth), (second, third)
        quads.append(Quad(own, other, place) if base_first else Quad(other, own, place))
    return quads


def _make_summary(base: _Open, new: _Open, quads: Sequence[Quad], seconds: float) -> PairSummary:
    assert new.plan is not None
    return summarise_pair(
        quads,
        timer=new.plan.timer,
        base_process=f"pid {base.ready.pid}",
        new_process=f"pid {new.ready.pid}",
        device_id=new.ready.device.device_id,
        seconds=seconds,
    )


def _reasons_not_comparable(base: _Open, new: _Open) -> tuple[str, ...]:
    """Why these two may not be compared although both are right; nothing where one of them is not timed anyway.

    One card, one machine state, one method. Not one toolchain: two releases are compared on purpose, both in these very
    minutes, so that ROCm may differ under graph timers, too, where a stored baseline would be of no use.
    """
    if base.plan is None or new.plan is None:
        return ()
    pairs = [("device", base.ready.device.device_id, new.ready.device.device_id)]
    pairs += [("method", str(base.ready.method), str(new.ready.method))]
    pairs += [("timer", base.plan.timer, new.plan.timer)]
    pairs += [("cache state", base.plan.cache_state, new.plan.cache_state)]
    if base.plan.settings and new.plan.settings:
        pairs += [("settings of torch", base.plan.settings, new.plan.settings)]
    pairs += find_machine_differences(base.ready, new.ready)
    found = [
        f"{what}: {format_fact(theirs)} on the base side, {format_fact(ours)} here"
        for what, theirs, ours in pairs
        if theirs != ours
    ]
    if base.look.figures is not None and new.look.figures is not None:
        there, here = base.look.figures.definition, new.look.figures.definition
        theirs, ours = drop_unrecorded(here, there), drop_unrecorded(there, here)
        fields = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
        found += [f"workload {key}: {theirs.get(key)} on the base side, {ours.get(key)} here" for key in fields]
    found += list_truth_changes(new.look.report.truth, base.look.report.truth, "on the base side")
    return tuple(found)


def _close_side(opened: _Open) -> Look:
    """Prove the last replay and close; a case that has ended already stays as it is."""
    if opened.look.ending is not Ending.RIGHT:
        return opened.look
    with _name_side_in_errors(opened.side):
        return finish_and_close(opened.case, opened.look)


@contextlib.contextmanager
def _name_side_in_errors(side: PairSide) -> Iterator[None]:
    """Say on which side a case raised, or a process died."""
    try:
        yield
    except WorkerError as error:
        raise error.with_side(side.name) from error
    except (CaseFailedError, NotProvenRightError) as error:
        text = error.summary if isinstance(error, CaseFailedError) else str(error)
        out_of_memory = isinstance(error, CaseFailedError) and error.out_of_memory
        raise SideFailedError(side.name, text, str(error), out_of_memory=out_of_memory) from error


def find_machine_differences(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """Facts of the machine that keep the sides from being compared: (what, on the base side, here).

    A fact that one side could not find out is none of them where both name the same card: it is that card's fact.
    """
    return _compare_hosts(base, new) + [
        fact for fact in _compare_machines(base, new) if not _is_of_one_card(base, new, fact)
    ]


def toolchain_changes(base: Ready, new: Ready) -> tuple[str, ...]:
    """What differs without keeping the sides from being compared, 'rocm: 6.4.4 -> 7.0.2', the base side first."""
    theirs, ours = base.fingerprint.named, new.fingerprint.named
    facts = [("harness", base.harness, new.harness)]
    keys = sorted((theirs.keys() | ours.keys()) - set(OF_THE_MACHINE))
    facts += [(key, theirs.get(key, ""), ours.get(key, "")) for key in keys]
    return _format_changes(facts)


def unseen_facts(base: Ready, new: Ready) -> tuple[str, ...]:
    """What only one side could find out of the card, or the machine, that both are on; the base side first."""
    facts = [fact for fact in _compare_machines(base, new) if _is_of_one_card(base, new, fact)]
    return _format_changes([*facts, *(fact for fact in _pair_named_facts(base, new) if not _is_known(fact))])


def format_fact(value: str) -> str:
    """The value, or words where there is none."""
    return value or "not given"


def _format_changes(facts: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(f"{what}: {format_fact(there)} -> {format_fact(here)}" for what, there, here in facts if there != here)


def _compare_hosts(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """What proves that the sides are on two machines. One that was started again is another: its clocks are."""
    facts = [("machine", base.host, new.host), *_pair_named_facts(base, new)]
    return [fact for fact in facts if fact[1] != fact[2] and _is_known(fact)]


def _pair_named_facts(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    theirs, ours = base.fingerprint.named, new.fingerprint.named
    return [(key, theirs.get(key, ""), ours.get(key, "")) for key in OF_THE_MACHINE]


def _is_known(fact: tuple[str, str, str]) -> bool:
    return all(value and not value.startswith(UNKNOWN) for value in fact[1:])


def _compare_machines(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    theirs, ours = base.fingerprint.must_match, new.fingerprint.must_match
    keys = sorted(theirs.keys() | ours.keys())
    facts = [(key, theirs.get(key, ""), ours.get(key, "")) for key in keys]
    return [(key, there, here) for key, there, here in facts if there != here]


def _is_of_one_card(base: Ready, new: Ready, fact: tuple[str, str, str]) -> bool:
    one_card = bool(base.device.device_id) and base.device.device_id == new.device.device_id
    return one_card and not _compare_hosts(base, new) and any(value.startswith(UNKNOWN) for value in fact[1:])

"""One pair of fresh processes, one of each side, measured in turns: A B B A, then B A A B, and so on.

What both sides share (clock, heat, time) cancels within a quad. What belongs to a process (where its memory lies) does
not; so a pair is one unit, and several pairs are needed. Every turn is an unmeasured block followed by a measured one,
so that a side finds the device in the state in which it left it itself.

A pair is measured on one card within the same minutes, so two releases of ROCm, torch or Triton can be compared. A
stored baseline cannot do that: there ROCm must match under graph timers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.comparable import list_truth_changes
from pytest_attnperf.records import CaseKey, NotProvenRightError
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary, Turn, TurnPlan
from pytest_attnperf.stats.pair_ratios import Quad, summarise_pair
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.doing import DOING, BlocksTimed
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
"""Least number of quads: with fewer, one disturbed block could move the centre of the pair."""

MEMORY_ADVICE = "; the idle processes of other pairs hold memory: try --attnperf-pairs=4"

UNKNOWN = "unknown ("
"""Prefix of a fact of a fingerprint that could not be read, e.g. in a container without the vendor's tool."""

OF_THE_MACHINE = ("driver", "kernel")
"""Facts that a machine has only one of, whatever containers run on it, so that they tell machines apart. AMD cards are
known only by PCI address, which a card of another machine may have, too."""


@dataclass(frozen=True)
class InterleavePlan:
    """How much to measure: `pairs` fresh pairs of processes, shared by all cases of a run. In each pair a case gets at
    most `quads` quads, with blocks of `block_us`, within `budget_us` of blocks (microseconds).
    """

    pairs: int = 8
    quads: int = 40
    block_us: float = 1000.0
    budget_us: float = 400_000.0
    timer: str = "auto"

    def count_quads(self, base: TurnPlan, new: TurnPlan) -> int:
        """Returns how many quads (2 turns of each side) fit `budget_us`: an even number, at least QUADS_LEAST."""
        quad_us = sum(4 * plan.call_us * plan.calls_per_block for plan in (base, new))
        affordable = int(self.budget_us / max(quad_us, 1e-3))
        chosen = max(QUADS_LEAST, min(self.quads, affordable))
        return chosen + chosen % 2


@dataclass(frozen=True)
class PairSide:
    """One side of a pair: the pool of its processes, and its name in errors."""

    pool: Pool
    name: str


class SideFailedError(CaseFailedError):
    """The case raised on one side, whose name is in `side` and at the start of the text."""

    def __init__(self, side: str, message: str, traceback: str, *, out_of_memory: bool = False) -> None:
        advice = MEMORY_ADVICE if out_of_memory else ""
        super().__init__(f"{side}: {message}{advice}", traceback=traceback, out_of_memory=out_of_memory)
        self.side = side


@dataclass(frozen=True)
class PairLook:
    """The result of one pair: the look of each side (its proof, what it ran), and the pair's ratio if both were right.

    problems   why the two sides cannot be compared; empty if they can, or if one of them was not right
    toolchain  software that differs between the sides, 'rocm: 6.4.4 -> 7.0.2', the base side first
    unseen     facts of the shared card that one side could not read, in the same form
    """

    base: Look
    new: Look
    pair: PairSummary | None = None
    problems: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def toolchain_note(self) -> str:
        """Note on software that differs, and on facts that only one side could read; '' if there are none."""
        unseen = f"not seen by both sides of the one card, base side -> here: {'; '.join(self.unseen)}"
        said = [unseen] * bool(self.unseen)
        if not self.toolchain:
            return "".join(said)
        about = "; ".join([f"{'; '.join(self.toolchain)}: this compares the releases, too", *said])
        return Note(NoteKind.RELEASES, f"toolchain, base side -> here: {about}", about)


@dataclass
class _Open:
    """One side of a pair while its case is open; `plan` is None if the case is not timed."""

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
    """Opens and proves the case on both sides, measures in turns, proves both sides again and closes. Nothing is timed
    if a side is not right or must not be timed, or the sides are not comparable; then `pair` of the result is None.

    at_once        prove both sides at the same time, which needs twice the memory
    base_request   request for the base side, if it differs, e.g. the case with another configuration
    settle         called when both are proven, before anything is timed

    Raises WorkerError if a process died or hung, SideFailedError if the case raised on a side.
    """
    with base.pool.case_at(place, base_request or request) as base_case, new.pool.case_at(place, request) as new_case:
        # Start here: a process that a thread starts is killed when that thread ends (PR_SET_PDEATHSIG).
        running = (_wait_until_ready(new, place), _wait_until_ready(base, place))
        openings = (lambda: _open_side(new, new_case, running[0]), lambda: _open_side(base, base_case, running[1]))
        ours, theirs = _run_both(*openings) if at_once else (openings[0](), openings[1]())
        # The first side alternates from pair to pair, so that its effect on memory is not the same in all pairs.
        in_order = (ours, theirs) if place % 2 else (theirs, ours)
        if all(side.look.ending is Ending.RIGHT and not side.look.note for side in (ours, theirs)):
            settle()
            for side in in_order:  # one after the other, because this times a call
                _prepare_turns(side, plan)
        problems, sides = _reasons_not_comparable(theirs, ours), (theirs.ready, ours.ready)
        toolchain, unseen = toolchain_changes(*sides), unseen_facts(*sides)
        if theirs.plan is None or ours.plan is None or problems:
            return PairLook(_close_side(theirs), _close_side(ours), None, problems, toolchain, unseen)
        started = clock()
        quads = _measure_quads(request.key, theirs, ours, plan.count_quads(theirs.plan, ours.plan))
        pair = _make_summary(theirs, ours, quads, clock() - started)
        return PairLook(_close_side(theirs), _close_side(ours), pair, (), toolchain, unseen)


def _run_both(one: Callable[[], _Open], other: Callable[[], _Open]) -> tuple[_Open, _Open]:
    """Calls both functions in threads and returns their results in order: compiling and proving may overlap, nothing is
    timed yet. Returns or raises when both have ended, because closing a case uses the channel that its thread reads."""
    executor = ThreadPoolExecutor(2)
    try:
        futures = [executor.submit(work) for work in (one, other)]
        wait(futures)
        first, second = (future.result() for future in futures)
        return first, second
    finally:
        # After an interrupt the caller kills the workers, which also ends the threads.
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


def _measure_quads(key: CaseKey, base: _Open, new: _Open, count: int) -> list[Quad]:
    """Measures `count` quads (two turns of each side), cycling through the memory places that both sides have. The side
    that is first and last in a quad alternates, also at each place."""
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
        DOING.publish_event(BlocksTimed(key, tuple(turn.us for turn in (other if base_first else own))))
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
    """Returns why both sides' times cannot be compared, a sentence each; () if they can, or if one is not timed.

    They need the same card, machine state, method and workload, but not the same software: two releases may be
    compared, because both are measured in the same minutes. So ROCm may differ, also under graph timers.
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
    """Proves the last timed call right, closes the case and returns its result; if it has ended, only returns that."""
    if opened.look.ending is not Ending.RIGHT:
        return opened.look
    with _name_side_in_errors(opened.side):
        return finish_and_close(opened.case, opened.look)


@contextlib.contextmanager
def _name_side_in_errors(side: PairSide) -> Iterator[None]:
    """Adds the side's name to errors of the `with` block: WorkerError keeps its type, CaseFailedError and
    NotProvenRightError become a SideFailedError."""
    try:
        yield
    except WorkerError as error:
        raise error.with_side(side.name) from error
    except (CaseFailedError, NotProvenRightError) as error:
        text = error.summary if isinstance(error, CaseFailedError) else str(error)
        out_of_memory = isinstance(error, CaseFailedError) and error.out_of_memory
        raise SideFailedError(side.name, text, str(error), out_of_memory=out_of_memory) from error


def find_machine_differences(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """Returns facts of the machine that differ, so that the sides cannot be compared: (what, base side, here).

    A fact that one side could not read does not count if both sides are on the same card.
    """
    return _compare_hosts(base, new) + [
        fact for fact in _compare_machines(base, new) if not _is_of_one_card(base, new, fact)
    ]


def toolchain_changes(base: Ready, new: Ready) -> tuple[str, ...]:
    """Returns software that differs, which does not prevent comparing: 'rocm: 6.4.4 -> 7.0.2', base side first."""
    theirs, ours = base.fingerprint.named, new.fingerprint.named
    facts = [("harness", base.harness, new.harness)]
    keys = sorted((theirs.keys() | ours.keys()) - set(OF_THE_MACHINE))
    facts += [(key, theirs.get(key, ""), ours.get(key, "")) for key in keys]
    return _format_changes(facts)


def unseen_facts(base: Ready, new: Ready) -> tuple[str, ...]:
    """Returns facts of the shared card that one side could not read, as 'what: base side -> new side'."""
    facts = [fact for fact in _compare_machines(base, new) if _is_of_one_card(base, new, fact)]
    return _format_changes([*facts, *(fact for fact in _pair_named_facts(base, new) if not _is_known(fact))])


def format_fact(value: str) -> str:
    """Returns the value, or 'not given' if it is empty."""
    return value or "not given"


def _format_changes(facts: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(f"{what}: {format_fact(there)} -> {format_fact(here)}" for what, there, here in facts if there != here)


def _compare_hosts(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """Returns the facts that prove that the sides run on two machines, each (what, base side's, new side's); [] if none
    does. A fact that a side could not read proves nothing; a rebooted machine counts as another."""
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

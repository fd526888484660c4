"""First calls of every case, and what a fresh process pays of them again, by a clock that every look turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.session import looking
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.session.warm import CaseWarmer, Reopened
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from tests.session.conftest import CASE, FakePool

if TYPE_CHECKING:
    from tests.session.conftest import Bench

START_S, PROOF_S = 100.0, 1.0


@dataclass
class CompilingPool(FakePool):
    """`builds` says what a backend's first call takes in a process; 'kept' finds it on disk, 'lost' builds it again."""

    now: float = 0.0
    builds: dict[str, float] = field(default_factory=dict)
    known_in: set[tuple[int, str]] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def wait_until_ready(self, place: int) -> Ready:
        """Starting a process takes long."""
        self.now += 0.0 if place in self.running else START_S
        self.running.add(place)
        return super().wait_until_ready(place)

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """Built where the process, and for 'kept' the disk, does not have it."""
        name = request.key.backend
        if name in self.broken:
            self.running.discard(place)
            raise WorkerError("the worker died")
        on_disk = "kept" in name and any(known == name for _, known in self.known_in)
        self.now += PROOF_S if on_disk or (place, name) in self.known_in else PROOF_S + self.builds.get(name, 0.0)
        self.known_in.add((place, name))
        with super().case_at(place, request) as conversation:
            yield conversation


def case_of(backend: str) -> Case:
    """The bench's case of another backend."""
    return replace(CASE, key=replace(CASE.key, backend=backend))


def warmed(bench: Bench, *backends: str, broken: str = "", timed: bool = True) -> tuple[CaseWarmer, CompilingPool]:
    """These backends' cases, each judged."""
    pool = CompilingPool(builds={"kept": 40.0, "lost": 20.0, "quick": 0.1}, broken={broken})
    pool.common = {"time_us": 100.0, "config": {"autotuned.flash": "BLOCK_M: 64"}}
    settings = RunSettings(RunMode.WARM, cases=1, seed=41)
    warm = CaseWarmer(Session(looking.RunBench(settings, pool, bench.store, bench.local, clock=lambda: pool.now)))
    for backend in backends:
        warm.judge(replace(case_of(backend), timed=timed, policy=Policy(fail_on=("SLOWER",))))
    return warm, pool


def test_the_first_call_is_said(bench: Bench) -> None:
    """A case is RIGHT with the time of its first call, without what a process takes to start; no time of it is kept."""
    warm, pool = warmed(bench, "kept", "quick")
    (_, first), (_, second) = warm.taken
    assert (first.verdict, first.summary, first.seconds) == (Verdict.RIGHT, "warm: first call 41 s", 41.0)
    assert (second.seconds, second.median_us, second.fails) == (pytest.approx(1.1), None, False)
    assert first.reproduce == f'pytest --attnperf-warm "{CASE.nodeid}"'
    assert pool.visited == [0, 0]


def test_cases_that_are_never_timed_are_warmed_alike(bench: Bench) -> None:
    """timed=False changes nothing: the proof needs the kernel, too, and in the same process."""
    warm, pool = warmed(bench, "kept", timed=False)
    assert warm.taken[0][1].summary == "warm: first call 41 s"
    assert pool.visited == [0]


def test_what_a_fresh_process_pays(bench: Bench) -> None:
    """The slowest cases are opened in another process, twice: what is on disk is found, what is not is built again."""
    warm, pool = warmed(bench, "quick", "lost", "kept")
    kept, lost = warm.reopen_slowest(2)
    assert (kept.key.backend, kept.first_s, kept.fresh_s, kept.proof_s) == ("kept", 41.0, 1.0, 1.0)
    assert (lost.key.backend, lost.first_s, lost.fresh_s, lost.proof_s) == ("lost", 21.0, 21.0, 1.0)
    assert (kept.is_kept, lost.is_kept, lost.paid_again_s, lost.built_s) == (True, False, 20.0, 20.0)
    assert lost.autotuned
    assert [name for place, name in sorted(pool.known_in) if place == 1] == ["kept", "lost", "quick"]
    assert pool.visited[3:] == [1] * 5, "the quickest first, so that starting up is no slow case's"


def test_quick_building_is_worth_no_word() -> None:
    """Less than 2 s of building is called kept, and so is a fresh process that is spared more than half of it."""
    assert Reopened(CASE.key, 2.9, 2.9, 1.0).is_kept
    assert Reopened(CASE.key, 21.0, 10.9, 1.0).is_kept
    assert not Reopened(CASE.key, 21.0, 11.1, 1.0).is_kept


def test_what_cannot_be_built(bench: Bench) -> None:
    """A case that ends its process is an ERROR and fails, also where its policy lets gating runs pass by it; it is not
    opened again, and costs the next case nothing."""
    warm, pool = warmed(bench, "bad", "kept", broken="bad")
    assert [(result.verdict, result.fails) for _, result in warm.taken] == [
        (Verdict.ERROR, True),
        (Verdict.RIGHT, False),
    ]
    assert warm.taken[1][1].seconds == 41.0
    assert [one.key.backend for one in warm.reopen_slowest(5)] == ["kept"]
    pool.by_place[1] = {"error": CaseFailedError("out of memory")}
    assert warm.reopen_slowest(5) == []


def test_unsupported_is_no_failure(bench: Bench) -> None:
    """What is unsupported here is no failure of a warming run, whatever is stored."""
    bench.record()
    result = bench.judge(RunMode.WARM, supported=["not here"])
    assert (result.verdict, result.fails) == (Verdict.UNSUPPORTED, False)

"""Calls that are meant to write to an input: what lies about it is caught, and every honest way passes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.measure.copies import Copies, copy_inputs, copy_prepared
from pytest_attnperf.measure.placements import Twins
from pytest_attnperf.measure.proving import Prover, TimedWrongError
from pytest_attnperf.measure.rotation import measure_rotation
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.testing.liars.in_place import CACHE, HONEST, IN_PLACE, WORKLOAD, InPlaceLiar
from pytest_attnperf.workloads.adhoc import CallableBackend

PAGE = Path(__file__).parents[2] / "tests" / "judges" / "README.md"


def each(liars: tuple[InPlaceLiar, ...]) -> Any:
    """One test for each, named by its trick."""
    return pytest.mark.parametrize("liar", liars, ids=[liar.trick for liar in liars])


@pytest.fixture(scope="module")
def references() -> References:
    """One for all."""
    return References()


def prepared_by(liar: InPlaceLiar) -> Prepared:
    """Called before anybody judges, as in a process that warms up."""
    prepared = liar.prepare(WORKLOAD.make_inputs(0, "cpu", planted=False))
    for _ in range(3):
        prepared.run()
    return prepared


def said(prepared: Prepared, references: References, run: Callable[[], Any] | None = None) -> str:
    """Everything that three checks find."""
    judge = Judge(prepared, WORKLOAD, references=references, tolerance=Tolerance(), device="cpu")
    judge.watch(prepared.run())
    reports = [
        judge.check_call("check", run or prepared.run, seed=seed, planted=True, poisoned=poisoned)
        for seed, poisoned in ((1, True), (2, False), (1, True))
    ]
    return "\n".join(problem for report in reports for problem in report.problems)


@each(IN_PLACE)
def test_a_liar_is_incorrect_and_its_trick_is_named(liar: InPlaceLiar, references: References) -> None:
    """The judge says what the trick did."""
    assert re.search(liar.clue, said(prepared_by(liar), references))


@each(HONEST)
def test_an_honest_call_may_write_where_it_is_told_to(liar: InPlaceLiar, references: References) -> None:
    """Whatever it returns of that; inputs are afterwards as they were loaded, and results the same every time."""
    prepared = prepared_by(liar)
    assert said(prepared, references) == ""
    loaded = WORKLOAD.make_inputs(1, "cpu", planted=True)
    assert all(map(torch.equal, prepared.tensors, loaded))


class Graph:
    """A graph of one call, whose results stay in the same memory."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result = call()
        self._call = call

    def replay(self) -> None:
        """The call, into that memory."""
        for static, new in zip(poison.tensors_in(self.result), poison.tensors_in(self._call()), strict=True):
            if static.data_ptr() != new.data_ptr():
                static.copy_(new)


class Replayed(GraphTimer):
    """A timer that replays without a GPU."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self.graph = Graph(call)
        self._graph, self._result = cast(Any, self.graph), self.graph.result

    def make_twin(self, call: Callable[[], Any]) -> GraphTimer:
        """Another one."""
        return Replayed(call)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def prover(monkeypatch: pytest.MonkeyPatch) -> Prover:
    """Of any of these, replayed on a CPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    backend = CallableBackend("test.cached_rows", HONEST[0].make())
    return Prover(backend, WORKLOAD, DeviceInfo("cpu", "cpu-x86_64", "test"), Seeds(0, 1, 2))


@each(HONEST)
@pytest.mark.parametrize("poisoned", [True, False])
def test_a_replay_may_return_the_inputs_that_it_writes(liar: InPlaceLiar, poisoned: bool, prover: Prover) -> None:
    """Static results are poisoned before a replay, but not where they are the inputs that it reads."""
    prepared = prepared_by(liar)
    timer = Replayed(prepared.run)
    run = functools.partial(timer.run_once, poisoned=poisoned)
    for _ in range(2):
        prover.prove_replay(prover.make_judge(prepared), run, poisoned=poisoned)


@each(HONEST)
def test_a_twin_writes_its_own_inputs(liar: InPlaceLiar, prover: Prover) -> None:
    """At its other place it starts from inputs that nobody has written to, and ends with the timed ones."""
    prepared = prepared_by(liar)
    twins = Twins(prover, prepared, Replayed(prepared.run))
    elsewhere, twin = twins.make_twin()
    assert prover.cost.seconds == 0, "the bits differ"
    assert all(map(torch.equal, elsewhere.tensors, WORKLOAD.make_inputs(0, "cpu", planted=False)))
    twin.run_once()
    assert torch.equal(WORKLOAD.new_rows(elsewhere.tensors[CACHE]), elsewhere.tensors[0] * elsewhere.tensors[1])


@each(tuple(liar for liar in IN_PLACE if liar.trick in ("leaves_the_cache", "one_row_too_many", "spoils_the_cache")))
def test_a_twin_that_lies_is_judged_like_the_first(liar: InPlaceLiar, prover: Prover) -> None:
    """What it leaves in the cache counts as much as what it returns."""
    prepared = HONEST[2].prepare(WORKLOAD.make_inputs(0, "cpu", planted=False))
    timer = Replayed(prepared.run)
    twins = Twins(prover, prepared, timer)
    prepared.call = lambda *given: liar.make()(*given)[0]
    with pytest.raises(TimedWrongError, match="(?s)" + liar.clue):
        twins.make_twin()


def test_one_buffer_may_hold_the_results_of_all_copies(prover: Prover) -> None:
    """A block that ends on the case's own inputs leaves the result of those in it, and finds them unpoisoned."""
    shared = torch.empty(WORKLOAD.batch, WORKLOAD.columns, dtype=torch.float16)

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, cache = HONEST[0].make()(*given)
        return shared.copy_(out), cache

    own = HONEST[0].prepare(WORKLOAD.make_inputs(0, "cpu", planted=False))
    own.call = call
    copies = Copies((copy_prepared(own),))
    (first,) = copies.others
    prover.make_judge(own)

    def block() -> Any:
        copy_inputs(first, own)
        for tensor in poison.tensors_in((first.tensors[CACHE], own.tensors[CACHE], shared)):
            poison.fill(tensor)
        returned = first.run()
        own.run()
        return returned

    prover.prove_replay(prover.make_judge(first), block, poisoned=True)
    assert prover.cost.seconds > 0


@each(HONEST)
def test_inputs_that_change_before_every_call_may_be_written_to(liar: InPlaceLiar) -> None:
    """The largest of them is the cache; the case's own inputs stay."""
    prepared = prepared_by(liar)
    before = [tensor.clone() for tensor in prepared.tensors]
    assert measure_rotation(prepared, "cpu", block_us=300.0, call_us=30.0).rotating_us >= 0
    assert all(map(torch.equal, prepared.tensors, before))


def test_the_page_names_every_liar() -> None:
    """A trick that is added, renamed or dropped shows on the page."""
    sentence = (
        PAGE.read_text(encoding="utf-8").partition("lie about inputs that are written in place")[2].partition(".\n")[0]
    )
    assert re.findall(r"`(\w+)`", sentence) == [liar.trick for liar in IN_PLACE]

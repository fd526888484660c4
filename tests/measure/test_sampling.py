from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import Call


class ScriptedTimer:
    """Blocks of 100, 101, 102 ... us per call; `compiling` names the batches during which something compiles."""

    name = "scripted"
    cache_state = "hot"
    note = "a note"
    replays = False
    calls_per_block = 10

    def __init__(self, max_pairs: int, compiling: Iterable[bool] = (), clocks: bool = False) -> None:
        self.max_pairs = max_pairs
        self.clocks = clocks
        self.clock_mhz: tuple[float, ...] = ()
        self.batches: list[int] = []
        self.watch: CompileWatch | None = None
        self.collector: set[bool] = set()
        self._compiling = iter(compiling)
        self._next_us = 100.0

    def prepare(self, call: Call, block_us: float) -> None:
        """Nothing to prepare."""

    def measure(self, pairs: int) -> list[float]:
        """The next scripted numbers."""
        self.batches.append(pairs)
        self.collector.add(gc.isenabled())
        if next(self._compiling, False) and self.watch is not None:
            self.watch._seen["Triton kernel scripted"] += 1
        numbers = [self._next_us + n for n in range(pairs)]
        self._next_us += pairs
        self.clock_mhz = tuple(10 * number for number in numbers) if self.clocks else ()
        return numbers

    def run_once(self) -> Any:
        """Nothing."""

    def close(self) -> None:
        """Nothing to free."""


def test_samples_carry_what_was_measured_in_order() -> None:
    """Blocks come back in measured order with calls, timer, cache state and note; batches are as long as allowed."""
    timer = ScriptedTimer(max_pairs=64)
    with CompileWatch() as watch:
        samples = sample_blocks(timer, StoppingRule(3, 5, 1e9), watch)
    assert samples.block_us == (100.0, 101.0, 102.0, 103.0, 104.0)
    assert (samples.calls_per_block, samples.timer, samples.cache_state) == (10, "scripted", "hot")
    assert (samples.rejected_blocks, samples.note) == (0, "a note")
    assert timer.batches == [3, 2]


def test_the_budget_counts_whole_blocks() -> None:
    """What a block costs is its calls together, twice (measured and unmeasured), not its time per call."""
    timer = ScriptedTimer(max_pairs=1)
    with CompileWatch() as watch:
        samples = sample_blocks(timer, StoppingRule(2, 30, budget_us=8100.0), watch)
    assert len(samples.block_us) == 4


def test_blocks_that_compiled_are_measured_again() -> None:
    """A batch during which something compiled is rejected, counted and replaced."""
    timer = ScriptedTimer(max_pairs=1, compiling=[True, False, True, True, True, False])
    with CompileWatch() as watch:
        timer.watch = watch
        samples = sample_blocks(timer, StoppingRule(3, 3, 1e9), watch)
    assert samples.block_us == (101.0, 105.0, 106.0)
    assert samples.rejected_blocks == 4


def test_clocks_are_those_of_the_blocks_that_are_kept() -> None:
    """One clock for each kept block, none of a rejected one, and none at all where one is missing."""
    timer = ScriptedTimer(max_pairs=2, compiling=[False, True], clocks=True)
    with CompileWatch() as watch:
        timer.watch = watch
        samples = sample_blocks(timer, StoppingRule(4, 4, 1e9), watch)
    assert samples.block_us == (100.0, 101.0, 104.0, 105.0)
    assert samples.clock_mhz == (1000.0, 1010.0, 1040.0, 1050.0)

    class OnceWithout(ScriptedTimer):
        """Loses the clocks of its first batch."""

        def measure(self, pairs: int) -> list[float]:
            """Known from the second batch on."""
            numbers = super().measure(pairs)
            self.clock_mhz = self.clock_mhz if len(self.batches) > 1 else ()
            return numbers

    with CompileWatch() as watch:
        assert sample_blocks(OnceWithout(max_pairs=1, clocks=True), StoppingRule(3, 3, 1e9), watch).clock_mhz == ()


def test_compiling_in_every_sample_fails_the_case() -> None:
    """More than three rejected batches in a row are an error that says what to do."""
    timer = ScriptedTimer(max_pairs=1, compiling=[True] * 9)
    with CompileWatch() as watch:
        timer.watch = watch
        with pytest.raises(
            CaseFailedError, match=r"recompiles in every sample: 4 .*\(4 x Triton kernel scripted\); .* in prep"
        ):
            sample_blocks(timer, StoppingRule(3, 3, 1e9), watch)
    assert len(timer.batches) == 4


def test_a_real_recompiling_call_is_rejected() -> None:
    """A call that torch.compile meets with a new shape each time never gives a sample."""
    import torch

    compiled = torch.compile(lambda tensor: tensor + 1, backend="eager", dynamic=False)
    sizes = iter(range(2, 1000))
    timer = HostTimer()
    timer.prepare(lambda: None, 10.0)
    timer.calls_per_block = 1
    timer._call = lambda: compiled(torch.ones(next(sizes)))
    with (
        CompileWatch() as watch,
        torch._dynamo.config.patch(recompile_limit=100),
        pytest.raises(CaseFailedError, match="recompiles in every sample"),
    ):
        sample_blocks(timer, StoppingRule(3, 3, 1e9), watch)


def test_the_collector_is_paused_and_restored() -> None:
    """Python's cycle collector does not run while blocks are measured, and runs again afterwards."""
    timer = ScriptedTimer(max_pairs=1)
    assert gc.isenabled()
    with CompileWatch() as watch:
        sample_blocks(timer, StoppingRule(1, 1, 1e9), watch)
    assert timer.collector == {False}
    assert gc.isenabled()

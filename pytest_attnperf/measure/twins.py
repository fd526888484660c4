"""The same case at other places in memory: copies of its inputs, each with a graph of its own, each proven right.

A full proof draws inputs and compares with the reference, which for forty places would take longer than the blocks.
The case's own graph has passed it. A twin is right, too, when it gives the same bits on the same inputs, which are not
those it was captured on: in what it returns, and in the inputs that it writes in place. Where the bits differ, as they
may for sums in changing order, it gets the full proof.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.own_inputs import written_in_place
from pytest_attnperf.measure.copies import copy_inputs
from pytest_attnperf.measure.placements import elsewhere

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.timers.graph import GraphTimer


class Twins:
    """Makes twins of a proven timer. While it lives, `prepared` holds the timed inputs.

    prepared   the case's own preparation, which `timer` replays
    """

    def __init__(self, prover: Prover, prepared: Prepared, timer: GraphTimer) -> None:
        self._prover = prover
        self._prepared = prepared
        self._timer = timer
        self._checked = elsewhere(prepared)
        prover.load_check_inputs(self._checked)
        self._expected = self._results_of_the_proven()

    def make(self) -> tuple[Prepared, GraphTimer]:
        """Another place, proven right and holding the timed inputs. Raises TimedWrongError."""
        prepared = elsewhere(self._prepared)
        twin = self._timer.twin(prepared.run)
        copy_inputs(self._checked, prepared)
        if not self._same_bits(self._results(prepared, twin)):
            run = functools.partial(twin.run_once, poisoned=True)
            try:
                self._prover.prove_replay(self._prover.judge(prepared), run, poisoned=True)
            except BaseException:
                twin.close()
                raise
        copy_inputs(self._prepared, prepared)
        return prepared, twin

    def _results_of_the_proven(self) -> list[torch.Tensor]:
        """What the proven graph gives on the inputs of the check; its own timed inputs are put back."""
        copy_inputs(self._checked, self._prepared)
        try:
            return [tensor.clone() for tensor in self._results(self._prepared, self._timer)]
        finally:
            self._prover.load_timed_inputs(self._prepared)

    def _results(self, prepared: Prepared, timer: GraphTimer) -> list[torch.Tensor]:
        """Everything that one replay returns or writes to."""
        written = written_in_place(prepared, self._prover.workload)
        with poison.sparing(written):
            return [*poison.tensors_in(timer.run_once(poisoned=True)), *written]

    def _same_bits(self, got: list[torch.Tensor]) -> bool:
        return len(got) == len(self._expected) and all(map(poison.bit_equal, got, self._expected))

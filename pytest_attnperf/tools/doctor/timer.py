"""Finds the timer that cases get: known without a test if there is no GPU, else by a self-test.

A module of its own, because the self-test's modules take longer to import than this check takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns the finding 'timer': the timer with which cases are timed. With a GPU, starts a self-test process and
    also returns 'graph against events' (whether two timers agree) and 'clock stamps' (whether kernels read a clock)."""
    if here.has_gpu:
        from pytest_attnperf.tools.doctor.self_test import graph_probe

        return graph_probe(here)
    meaning = "no GPU: correctness checks and code objects only; CPU times show gross changes and are no GPU baselines"
    return [DoctorFinding("timer", Status.NOTE, "host: the clock of the CPU around eager calls", meaning)]

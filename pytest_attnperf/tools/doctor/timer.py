"""The timer that cases get: known at once without a GPU, found by a self-test with one.

Apart from that self-test, whose modules take longer to import than all that is said here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """'timer', and with a GPU 'graph against events' and 'clock stamps'. Without a GPU no process is started."""
    if here.has_gpu:
        from pytest_attnperf.tools.doctor.self_test import graph_probe

        return graph_probe(here)
    meaning = "no GPU: proofs and code objects only; times of a CPU find gross changes, and are baselines of no GPU"
    return [DoctorFinding("timer", Status.NOTE, "host: the clock of the CPU around eager calls", meaning)]

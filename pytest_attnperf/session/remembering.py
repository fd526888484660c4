"""Whether a case remembers its results is asked twice: one process may say so by chance, two do not."""

from __future__ import annotations

from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.looking import Looking
from pytest_attnperf.session.plausibility import gains_by_memory
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.look import Look
from pytest_attnperf.workers.shared_gpus import in_turns

FRESH = 3
"""Seeds beyond those of a re-checked jump."""


def confirmed(session: Looking, case: Case, look: Look, place: int, base: CaseResult) -> Look:
    """The look itself, unless its rotation says that results are remembered: then that of the process at `place`.

    base   what is judged so far

    Raises as `take_look`.
    """
    if look.rotation is None or not gains_by_memory(base, look.rotation):
        return look
    session.pool.start([place])
    with in_turns(session.pool, [place]) as order:
        for own_turn in order:
            look = session.look(own_turn, case, session.settings.plan, None, fresh=FRESH, rotate=True)
    return look

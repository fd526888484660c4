"""A look at what a case runs, without a time: proven right, made ready to be timed, and proven right once more.

What a call launches is read from the graph that would be timed, so that it is the same work as a timed look's.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.workers.controller import WrongAsTimedError
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.look import Ending, Look, begin, case_fingerprint, end, wrong_as_timed
from pytest_attnperf.workers.pool import Pool


def take_identity_look(pool: Pool, place: int, request: OpenRequest, plan: BlockPlan) -> tuple[Look, str]:
    """Open, check, capture, finish and close one case in the process at `place`; the look, and its timer's name.

    The look's fingerprint is that of a case timed by this timer. The name is '' where the look did not end RIGHT, and
    where its note says that a time here would say nothing: neither was captured.

    Raises WorkerError when the process died or hung, CaseFailedError when the case raised or cannot be timed.
    """
    ready = pool.ready(place)
    with pool.case(place, request) as case:
        look = begin(case, ready, profiled=False)
        if look.ending is not Ending.RIGHT:
            return look, ""
        if look.note:
            return end(case, look), ""
        try:
            turns = case.turns(plan.block_us, plan.timer)
        except WrongAsTimedError as error:
            return wrong_as_timed(case, look, error), ""
        look = end(case, replace(look, fingerprint=case_fingerprint(ready.fingerprint, turns)))
        return look, turns.timer if look.ending is Ending.RIGHT else ""

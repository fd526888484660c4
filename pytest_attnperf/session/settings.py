"""What a run is for, what is asked of it, and what it is asked about."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey
from pytest_attnperf.workers.conversation import BlockPlan


class RunMode(str, enum.Enum):
    """What a run is for."""

    CHECK = "check"
    GATE = "gate"
    UPDATE = "update"
    CALIBRATE = "calibrate"
    WARM = "warm"
    TOGETHER = "together"


@dataclass(frozen=True)
class RunSettings:
    """Resolved once per run. `cases` is the number of cases that may be timed: it sets how rare a false alarm must be.

    given_options         options of the command line, quoted, without which a case could not be run again as it was
    determinism_repeats   calls on the same inputs whose bits are compared; 0 compares none
    pin_config            whether backends run with the configuration stored in the baseline
    profile               whether every right case is profiled in a process of its own
    accepted              why a recorded slowdown since the creep guard's anchor is wanted; '' where nobody said so
    changed_only          whether a case that runs the machine code and configuration of its baseline is not timed
    budget_seconds        of wall time, within which second looks go to the least decided cases; None for no limit
    isolate               how far a process is shared: 'worker' until a case breaks it, 'backend', 'case', or 'none' for
                          the pytest process itself
    """

    mode: RunMode
    cases: int
    processes: int = 7
    second_look: int = 3
    plan: BlockPlan = field(default_factory=BlockPlan)
    case_limit_seconds: float = 300.0
    seed: int = 0
    record_local: bool = False
    gates: bool = True
    given_options: tuple[str, ...] = ()
    determinism_repeats: int = 0
    pin_config: bool = False
    accepted: str = ""
    profile: bool = False
    changed_only: bool = False
    budget_seconds: float | None = None
    isolate: str = "worker"


@dataclass(frozen=True)
class Case:
    """One item to be judged, with its own policy.

    timed       False where its test says that it is only to be proven right, in every mode
    breakdown   whether the stages of its call are timed, too, by a run that gates
    """

    key: CaseKey
    nodeid: str
    policy: Policy
    next_key: CaseKey | None = None
    timed: bool = True
    breakdown: bool = False

"""The mode and the settings of a run, and the cases that it judges."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.costs import CostSettings
from pytest_attnperf.workers.conversation import BlockPlan

STORED_IN = ("--attnperf-baselines", "--attnperf-device")
"""Options by which a recording stores what a gating run with the same ones finds."""

NEVER_STORED = ("--attnperf-workload", "--attnperf-model")
"""Options whose workloads exist on the command line only."""

HOW_TO_STORE_TYPED = "a workload of the command line is never stored: add it to the suite's list first"


class RunMode(str, enum.Enum):
    """What a run does: only check, gate, store baselines, calibrate noise, compile ahead, or time all GPUs at once."""

    CHECK = "check"
    GATE = "gate"
    UPDATE = "update"
    CALIBRATE = "calibrate"
    WARM = "warm"
    TOGETHER = "together"


@dataclass(frozen=True)
class RunSettings:
    """Settings of one run. `cases` is the number of cases that may be timed, which share the false-alarm rate.

    given_options         options of the command line, quoted, that repeating a case needs
    determinism_repeats   calls on the same inputs whose bits are compared; 0 compares none
    pin_config            whether backends run with the configuration stored in the baseline
    profile               whether every right case is profiled in a process of its own
    accepted              why a recorded slowdown since the creep guard's anchor is accepted; '' without a reason
    changed_only          whether a case that runs the machine code and configuration of its baseline is not timed
    budget_seconds        of wall time, within which second looks go to the least decided cases; None for no limit
    trials                names of the trials by which a right case is proven again (`measure.trials`)
    isolate               how far a process is shared: 'worker' until a case breaks it, 'backend', 'case', or 'none' for
                          no process but pytest's own
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
    trials: tuple[str, ...] = ()
    isolate: str = "worker"

    def describe_recording(self, nodeid: str) -> str:
        """Returns how a baseline of this case is stored: by which command, or by adding its workload to the suite."""
        if any(option.startswith(NEVER_STORED) for option in self.given_options):
            return HOW_TO_STORE_TYPED
        given = "".join(f"{option} " for option in self.given_options if option.startswith(STORED_IN))
        return f"store one with: pytest --update-baselines {given}{quote_nodeid(nodeid)}"


@dataclass(frozen=True)
class Case:
    """One item to judge, with its own policy.

    timed       False where its test wants it only proven right, in every mode
    breakdown   whether the stages of its call are timed, too, by a run that gates
    costs       costs that the run gates in every case, and those that it overrides
    """

    key: CaseKey
    nodeid: str
    policy: Policy
    next_key: CaseKey | None = None
    timed: bool = True
    breakdown: bool = False
    costs: CostSettings = field(default_factory=CostSettings)

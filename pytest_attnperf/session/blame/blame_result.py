"""The settings of a blame, and what it found out about each case and component."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from pytest_attnperf.session.bisect.bisect_result import PAIRS_MIN
from pytest_attnperf.session.blame.effects import Effect

SHARE = 0.1
"""A component counts if it carries more than this share of a case's change, and more than the threshold."""

SUSPECTS_MAX = 3
"""Most groups of components that are searched for in one case: more would cost more than a bisection of versions."""


class Conclusion(str, enum.Enum):
    """What swapping a component both ways showed of it."""

    BLAMED = "blamed"
    INNOCENT = "innocent"
    NOT_SEPARATED = "not separated"
    UNDECIDED = "undecided"


class BlameOutcome(str, enum.Enum):
    """What the search ended with for one case."""

    EXPLAINED = "explained"
    NOT_SEPARATED = "not separated"
    UNDECIDED = "undecided"
    UNCHANGED = "unchanged"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class BlameSettings:
    """Settings of a blame. Raises ValueError for a value outside its range.

    confidence           that all intervals of a case hold at once, from 0.5 to below 1
    threshold_percent    a change that is certainly smaller counts as none
    pairs_max            most pairs per measurement, at least PAIRS_MIN
    """

    confidence: float = 0.95
    threshold_percent: float = 1.0
    pairs_max: int = 16

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence:g}, must be at least 0.5 and below 1, e.g. 0.95")
        if not 0 < self.threshold_percent < math.inf:
            raise ValueError(f"threshold is {self.threshold_percent:g} %, must be above 0, e.g. 1")
        if self.pairs_max < PAIRS_MIN:
            raise ValueError(
                f"pairs-max is {self.pairs_max}, must be at least {PAIRS_MIN}: fewer show too little of their scatter"
            )

    @property
    def limit(self) -> float:
        """The threshold as a natural log of a ratio."""
        return math.log1p(self.threshold_percent / 100)

    def limit_of(self, total: Effect) -> float:
        """Returns which log ratio a component's effect must exceed to count in a case that changed by `total`."""
        return max(self.limit, SHARE * abs(total.log_ratio))


@dataclass(frozen=True)
class JudgedGroup:
    """One component, or several that were swapped together only.

    into, out_of            effect of having the new version: put into the old environment, taken out of the new one;
                            None if it was not measured or gave no ratio
    into_why, out_of_why    why it gave no ratio, else ''
    """

    names: tuple[str, ...]
    conclusion: Conclusion
    into: Effect | None = None
    out_of: Effect | None = None
    into_why: str = ""
    out_of_why: str = ""


@dataclass(frozen=True)
class CaseBlame:
    """What is known about one case.

    total          new environment against the old one; None if it gave no ratio
    limit          log ratio that a component's effect must exceed to count
    suspects       groups that were not innocent, in the order in which they were found
    others         the rest, which were judged as one group; None if there is none
    measurements   pairs of environments that this case was measured in
    why            why it was not measured, else ''
    """

    nodeid: str
    outcome: BlameOutcome
    total: Effect | None = None
    limit: float = 0.0
    suspects: tuple[JudgedGroup, ...] = ()
    others: JudgedGroup | None = None
    measurements: int = 0
    pairs: int = 0
    why: str = ""

    @property
    def blamed(self) -> tuple[JudgedGroup, ...]:
        """The components that were certainly found to have changed the time."""
        return tuple(group for group in self.suspects if group.conclusion is Conclusion.BLAMED)

    @property
    def is_changed(self) -> bool:
        """Whether the case certainly changed, so that components were searched."""
        return self.outcome not in (BlameOutcome.UNCHANGED, BlameOutcome.NOT_MEASURED) and bool(self.suspects)

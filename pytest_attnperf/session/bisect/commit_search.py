"""Searches for the first slow commit between two revisions, by interleaved pairs of each against the older one.

The search estimates an interval of each revision's ratio to GOOD (`bisect.evidence`). All intervals of a search, at
every look at the data, hold at once with the wanted confidence. Every statement follows from the intervals alone:

- BAD is slow when its interval lies above the line, the ratio halfway between GOOD (1) and BAD. The line then lies
  between the two true ratios, and stays where it is however BAD's ratio is refined.
- Another revision is slow or fast when its interval lies above or below the line.
- One whose interval holds the line, lies below BAD's, and above half of its own ratio, carries a part of the slowdown.
  More than one commit contributes, and the search goes on between GOOD and it, with half of its ratio as the line;
  revisions that are on neither side of the new line get more pairs.
- A revision that is on neither side after `pairs_max` pairs ends the search with a range of commits.

1 - confidence is divided twice (Bonferroni), so repeated looks and their dependence do not weaken the confidence. First
over revisions: each new one gets an equal share of what is left, counting one share per halving to come and one in
reserve. Then equally over the looks at it, whose sizes are fixed before its first pair.

The confidence is that of naming the right commit where one commit brought the slowdown and it stayed. Where speed went
up and down, the search names a commit that goes from fast to slow, as `git bisect` does, not necessarily the first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.bisect_result import (
    PAIRS_MIN,
    BisectOutcome,
    BisectResult,
    BisectSettings,
    MeasuredRevision,
    RevisionSide,
    SkippedRevision,
)
from pytest_attnperf.session.bisect.evidence import (
    LOG_RATIO_MAX,
    CannotMeasureError,
    Estimate,
    RevisionSample,
    Scatter,
    plan_looks,
    share_of_slowdown,
)

BATCH = PAIRS_MIN
"""Number of pairs of a revision's first look."""

END_BATCH = 2 * BATCH
"""Number of pairs of BAD's first look: more, because they also place the line and start the noise pool."""

MISSED = 0.01
"""Chance that a slowdown of size `BisectResult.detectable` between GOOD and BAD is missed."""

Measure = Callable[[str, int], Sequence[PairSummary]]
"""Takes (revision, pairs) and returns that many fresh pairs against GOOD, or fewer; raises `CannotMeasureError`."""


class BisectError(AttnperfError):
    """The search cannot begin; the text says why and what to do."""


@dataclass
class Search:
    """One search; call `run` once. `current_result` gives what is known so far, also after a KeyboardInterrupt.

    revisions   oldest first; the first is GOOD, the last BAD, both included
    seen        called when a revision is placed or skipped, with how many commits may still be the first slow one
    clock       seconds

    Raises ValueError for fewer than two revisions, or for one that is listed twice.
    """

    revisions: Sequence[str]
    measure: Measure
    settings: BisectSettings = field(default_factory=BisectSettings)
    seen: Callable[[MeasuredRevision | SkippedRevision, int], None] = lambda record, left: None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if len(self.revisions) < 2 or len(set(self.revisions)) < len(self.revisions):
            raise ValueError(f"a search needs two or more different revisions, got {list(self.revisions)}")
        self._bad = len(self.revisions) - 1
        self._line = math.inf
        self._error_left = 1 - self.settings.confidence
        self._pool = Scatter()
        self._samples: dict[int, RevisionSample] = {}
        self._ends: list[int] = []
        self._skipped: dict[int, SkippedRevision] = {}
        self._skips_in_a_row = 0
        self._started = self.clock()

    def run(self) -> BisectResult:
        """Searches to the end and returns the result. Raises BisectError when BAD cannot be measured."""
        side: RevisionSide | None
        try:
            side = self._place_revision(self._bad, END_BATCH, self._judge_bad)
        except CannotMeasureError as error:
            bad = self.revisions[self._bad]
            raise BisectError(f"BAD itself ({bad}) cannot be measured against GOOD: {error}") from error
        while (
            math.isfinite(self._line)
            and side is not RevisionSide.UNCLEAR
            and (index := self._choose_next()) is not None
        ):
            side = self._try_revision(index)
        return self.current_result()

    def current_result(self) -> BisectResult:
        """Returns the result so far: before the search has ended, mostly a range of commits."""
        fast, slow = self._suspect_range()
        suspects = tuple(self.revisions[fast + 1 : slow + 1])
        records = tuple(self._make_record(index) for index in self._samples if self._samples[index].pair_count)
        bad = next((record for record in records if record.revision == self.revisions[self._bad]), None)
        outcome = BisectOutcome.CULPRIT if math.isfinite(self._line) and len(suspects) == 1 else BisectOutcome.RANGE
        if self._has_no_slowdown():
            outcome, suspects = BisectOutcome.NO_SLOWDOWN, ()
        return BisectResult(
            outcome=outcome,
            good=self.revisions[0],
            bad=self.revisions[self._bad],
            suspects=suspects,
            settings=self.settings,
            measured=records,
            skipped=tuple(self._skipped.values()),
            end=bad,
            detectable=_detectable_slowdown(self._samples[self._bad].found) if bad is not None else None,
            seconds=self.clock() - self._started,
        )

    def _has_no_slowdown(self) -> bool:
        """Returns whether BAD's slowdown is below the threshold, or not certain after all its pairs."""
        bad = self._samples.get(self._bad)
        if bad is None or not bad.pair_count or math.isfinite(self._line):
            return False
        return self._judge_bad(bad.found) is RevisionSide.FAST or (bad.is_exhausted and bad.found.low <= 0)

    def _judge_bad(self, found: Estimate) -> RevisionSide:
        """Returns SLOW if BAD is slow enough to begin the search, FAST if its slowdown is below the threshold, else
        UNCLEAR. With one commit only, any certain slowdown is enough."""
        if found.high < math.log1p(self.settings.threshold_percent / 100):
            return RevisionSide.FAST
        line = max(0.0, _halfway_line(found)) if self._bad > 1 else 0.0
        return RevisionSide.SLOW if found.low > line else RevisionSide.UNCLEAR

    def _judge_revision(self, found: Estimate) -> RevisionSide:
        if found.high < self._line:
            return RevisionSide.FAST
        if found.low > self._line:
            return RevisionSide.SLOW
        below_end = found.high < self._samples[self._ends[-1]].found.low
        return RevisionSide.BETWEEN if below_end and found.low > _halfway_line(found) else RevisionSide.UNCLEAR

    def _place_revision(self, index: int, batch: int, judge: Callable[[Estimate], RevisionSide]) -> RevisionSide:
        """Measures a revision's pairs in batches until `judge` returns another side than UNCLEAR, or the allowed pairs
        are taken; returns the side (SLOW, FAST, BETWEEN or UNCLEAR). Raises CannotMeasureError if one gives no
        ratio."""
        if index not in self._samples:
            self._begin_sample(index, batch)
        sample = self._samples[index]
        side = judge(sample.found) if sample.pair_count else RevisionSide.UNCLEAR
        while side is RevisionSide.UNCLEAR and not sample.is_exhausted:
            first = not sample.pair_count
            sample.add_pairs(self.measure(self.revisions[index], sample.missing_pairs) if sample.missing_pairs else ())
            self._pool = sample.pool_first_batch() if first else self._pool
            side = judge(sample.found)
        if side is RevisionSide.BETWEEN or (index == self._bad and side is RevisionSide.SLOW):
            self._ends.append(index)
            self._line = _halfway_line(sample.found)
        self._skips_in_a_row = 0
        self.seen(self._make_record(index), self._count_suspects())
        return side

    def _try_revision(self, index: int) -> RevisionSide | None:
        """Measures one revision and returns its side; None if it cannot be measured and is skipped."""
        try:
            return self._place_revision(index, BATCH, self._judge_revision)
        except CannotMeasureError as error:
            self._skip_revision(index, str(error))
            return None

    def _begin_sample(self, index: int, batch: int) -> None:
        """Starts a revision's sample with its share of the remaining error probability."""
        sizes = plan_looks(batch, self.settings.pairs_max)
        halvings = len(self._list_open()).bit_length() + (index == self._bad)
        share = self._error_left / (halvings + 1)
        self._error_left -= share
        self._samples[index] = RevisionSample(sizes, share / (2 * len(sizes)), self._pool)

    def _skip_revision(self, index: int, reason: str) -> None:
        self._samples.pop(index)
        self._skips_in_a_row += 1
        self._skipped[index] = SkippedRevision(self.revisions[index], reason)
        self.seen(self._skipped[index], self._count_suspects())

    def _suspect_range(self) -> tuple[int, int]:
        """Returns the indices of the last fast revision before the first slow one, and of that slow one."""
        placed = {index: sample.found for index, sample in self._samples.items()}
        slow = min((index for index, found in placed.items() if found.low > self._line), default=self._bad)
        fast = max((index for index, found in placed.items() if index < slow and found.high < self._line), default=0)
        return fast, slow

    def _count_suspects(self) -> int:
        fast, slow = self._suspect_range()
        return slow - fast

    def _list_open(self) -> list[int]:
        """Returns indices of revisions between the fast and the slow end of the suspect range that were not skipped."""
        fast, slow = self._suspect_range()
        return [index for index in range(fast + 1, slow) if index not in self._skipped]

    def _choose_next(self) -> int | None:
        """Returns the index of the open revision nearest to the middle, after skips one farther away; None without any.

        Revisions that do not build come in a row, so the neighbours of a skipped one would probably fail, too.
        """
        fast, slow = self._suspect_range()
        skips, middle = self._skips_in_a_row, (fast + slow) // 2
        target = middle + ((-1) ** skips * 2 ** (skips - 1) if skips else 0)
        return min(self._list_open(), key=lambda index: (abs(index - target), index), default=None)

    def _make_record(self, index: int) -> MeasuredRevision:
        sample = self._samples[index]
        ratio = math.exp(sample.found.log_ratio)
        return MeasuredRevision(
            self.revisions[index], sample.pair_count, ratio, sample.found.interval, self._find_side(index)
        )

    def _find_side(self, index: int) -> RevisionSide:
        """Returns a measured revision's side of the present line (the ratio between fast and slow). One that has
        become the slow end of the range stays BETWEEN."""
        found = self._samples[index].found
        if index == self._bad:
            return RevisionSide.SLOW if self._ends else self._judge_bad(found)
        return RevisionSide.BETWEEN if index in self._ends else self._judge_revision(found)


def _halfway_line(found: Estimate) -> float:
    """Returns the ratio halfway between GOOD (1) and a slow revision, as a natural log: slower ones count as slow."""
    return share_of_slowdown(found.log_ratio, 0.5)


def _detectable_slowdown(end: Estimate) -> float | None:
    log_ratio = end.detectable_log_ratio(MISSED)
    return math.expm1(log_ratio) if log_ratio < LOG_RATIO_MAX else None

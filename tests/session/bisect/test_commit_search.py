from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.bisect_result import (
    BisectOutcome,
    BisectResult,
    BisectSettings,
    MeasuredRevision,
    RevisionSide,
)
from pytest_attnperf.session.bisect.commit_search import BisectError, Search
from pytest_attnperf.session.bisect.evidence import CannotMeasureError, RevisionSample, Scatter

Level = Callable[[int], float]


@dataclass
class Machine:
    """Measures commits c0 (GOOD), c1, ...: `level` gives the true ratio to GOOD, `sd` the scatter of its logarithm."""

    commits: int
    level: Level
    sd: float = 0.002
    seed: int = 1
    broken: frozenset[int] = frozenset()
    asked: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def names(self) -> list[str]:
        """All revisions, oldest first."""
        return [f"c{index}" for index in range(self.commits + 1)]

    def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
        """Pairs of one revision, or why there are none."""
        index = int(revision[1:])
        self.asked.append((index, pairs))
        if index in self.broken:
            raise CannotMeasureError(f"{revision} does not build")
        centre = math.log(self.level(index))
        ratios = [math.exp(self._random.gauss(centre, self.sd)) for _ in range(pairs)]
        return [PairSummary(ratio, 100.0, 100.0 * ratio, 30, "fake") for ratio in ratios]

    def search(self, **settings: float) -> BisectResult:
        """Search all commits of this machine."""
        return Search(self.names, self, BisectSettings(**settings)).run()  # type: ignore[arg-type]


def _step(first_slow: int, ratio: float) -> Level:
    return lambda index: ratio if index >= first_slow else 1.0


def _steps(**levels: float) -> Level:
    """`_steps(c5=1.01, c9=1.02)`: the ratio from each of these commits on."""
    begins = {int(name[1:]): ratio for name, ratio in levels.items()}
    return lambda index: next((begins[at] for at in sorted(begins, reverse=True) if index >= at), 1.0)


@pytest.mark.parametrize("first_slow", [1, 2, 13, 31, 32])
def test_first_slow_commit(first_slow: int) -> None:
    """A 2 % step among 32 commits is found wherever it is, from BAD and five more revisions."""
    machine = Machine(32, _step(first_slow, 1.02))
    result = machine.search()
    assert result.outcome is BisectOutcome.CULPRIT
    assert result.suspects == (f"c{first_slow}",)
    assert len(result.measured) == 6
    assert result.pair_count == sum(pairs for _, pairs in machine.asked)
    assert result.culprit is not None
    low, high = result.culprit.interval
    assert 1.01 < low < 1.02 < high < 1.03
    assert result.part_way == ()


def test_a_single_commit_needs_no_halving() -> None:
    """With one commit between the ends, BAD being slower than noise is all that must be known."""
    result = Machine(1, _step(1, 1.01)).search()
    assert (result.outcome, result.suspects, len(result.measured)) == (BisectOutcome.CULPRIT, ("c1",), 1)


def test_ratios_far_from_one() -> None:
    """Five times as slow is searched for as well as 2 %."""
    result = Machine(20, _step(7, 5.0), sd=0.05).search()
    assert result.suspects == ("c7",)


def test_no_slowdown() -> None:
    """Equal ends are told apart from a slowdown of the threshold, with the interval and what would have been seen."""
    result = Machine(32, lambda index: 1.0).search(threshold_percent=0.5)
    assert (result.outcome, result.suspects, result.culprit) == (BisectOutcome.NO_SLOWDOWN, (), None)
    assert [record.side for record in result.measured] == [RevisionSide.FAST]
    assert result.end is not None
    assert result.end.interval[0] < 1 < result.end.interval[1] < 1.005
    assert result.detectable is not None
    assert 0.001 < result.detectable < 0.01


def test_faster_is_no_slowdown() -> None:
    """A BAD that is faster than GOOD ends the search at its first look."""
    machine = Machine(32, _step(9, 0.97))
    assert machine.search().outcome is BisectOutcome.NO_SLOWDOWN
    assert machine.asked == [(32, 8)]


def test_noise_that_hides_everything() -> None:
    """A slowdown that all pairs together cannot tell from noise is none that was seen."""
    result = Machine(32, _step(9, 1.001), sd=0.02).search(pairs_max=12)
    assert result.outcome is BisectOutcome.NO_SLOWDOWN
    assert result.end is not None
    assert (result.end.side, result.end.pairs) == (RevisionSide.UNCLEAR, 12)
    assert result.detectable is not None
    assert result.detectable > 0.01


def test_slower_but_too_little_to_halve() -> None:
    """A slowdown beyond noise, but not twice as far, gives all commits as the range."""
    found = [Machine(8, _step(3, 1.006), sd=0.005, seed=seed).search(pairs_max=18) for seed in range(40)]
    (result, *_) = [r for r in found if r.outcome is BisectOutcome.RANGE and len(r.measured) == 1]
    assert result.suspects == tuple(f"c{index}" for index in range(1, 9))
    assert result.end is not None
    assert result.end.side is RevisionSide.UNCLEAR
    assert result.end.interval[0] > 1


def test_error_rate_is_within_the_stated_one() -> None:
    """Of 2,000 searches that ask to be right half of the time, and of 2,000 at 95 %, at most so many are wrong.

    The slowdown is small for its noise, so that revisions are told apart with little to spare. A revision's interval
    misses the truth now and then, which shows that the noise is not simply ignored.
    """
    for confidence in (0.5, 0.95):
        wrong = missed = 0
        for seed in range(2000):
            first_slow = seed % 16 + 1
            result = Machine(16, _step(first_slow, 1.006), seed=seed).search(confidence=confidence, pairs_max=14)
            wrong += bool(result.suspects) and f"c{first_slow}" not in result.suspects
            missed += any(not _holds(record, _step(first_slow, 1.006)) for record in result.measured)
        assert wrong <= 2000 * (1 - confidence)
        assert 2000 * (1 - confidence) / 10 < missed <= 2000 * (1 - confidence)


def _holds(record: MeasuredRevision, level: Level) -> bool:
    return record.interval[0] <= level(int(record.revision[1:])) <= record.interval[1]


def test_error_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of all looks at all revisions together may miss as often as 1 - confidence, and no more."""
    spent: list[float] = []

    class Spending(RevisionSample):
        def __init__(self, sizes: Sequence[int], tail: float, pool: Scatter) -> None:
            super().__init__(sizes, tail, pool)
            spent.append(2 * tail * len(sizes))

    monkeypatch.setattr("pytest_attnperf.session.bisect.commit_search.RevisionSample", Spending)
    Machine(32, _step(9, 1.02)).search(confidence=0.9)
    assert len(spent) == 6
    assert 0.08 < sum(spent) <= 0.1
    assert min(spent) > 0.01


@pytest.mark.parametrize("kind", ["wild", "skewed"])
def test_error_rate_with_noise_that_is_not_normal(kind: str) -> None:
    """One pair in twenty scattering five times as much, or an exponential tail, gives no more wrong commits."""

    class Odd(Machine):
        def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
            level = self.level(int(revision[1:]))
            return [PairSummary(level * math.exp(self._noise()), 1.0, 1.0, 1, "fake") for _ in range(pairs)]

        def _noise(self) -> float:
            if kind == "skewed":
                return self.sd * (self._random.expovariate(1.0) - 1)
            return self._random.gauss(0, self.sd * (5 if self._random.random() < 0.05 else 1))

    wrong = found = 0
    for seed in range(1000):
        first_slow = seed % 16 + 1
        result = Odd(16, _step(first_slow, 1.01), seed=seed).search(confidence=0.9)
        wrong += bool(result.suspects) and f"c{first_slow}" not in result.suspects
        found += result.suspects == (f"c{first_slow}",)
    assert wrong <= 100
    assert found >= 900


def test_pairs_are_spent_where_they_are_needed() -> None:
    """A step of ten standard deviations takes the first batches only; one of two and a half takes more."""
    large, small = Machine(32, _step(9, 1.02)), Machine(32, _step(9, 1.005))
    assert large.search().pair_count == 8 + 5 * 4
    result = small.search(confidence=0.9)
    assert result.suspects == ("c9",)
    assert 28 < result.pair_count < 6 * 32


def test_pairs_max_gives_a_range() -> None:
    """A revision that stays on neither side ends the search; the range holds the truth, and it says so."""
    ranges = []
    for seed in range(60):
        result = Machine(32, _step(20, 1.005), sd=0.0025, seed=seed).search(pairs_max=18)
        if result.outcome is BisectOutcome.RANGE and len(result.measured) > 1:
            ranges.append(result)
            assert "c20" in result.suspects
            assert [r.side for r in result.measured].count(RevisionSide.UNCLEAR) == 1
            assert result.measured[-1].pairs == 18
    assert ranges


def test_skipped_revisions_are_stepped_over() -> None:
    """Revisions that do not build are skipped with their reason, and their neighbours are measured instead."""
    machine = Machine(32, _step(20, 1.02), broken=frozenset({16, 15, 24}))
    result = machine.search()
    assert result.suspects == ("c20",)
    assert [(s.revision, s.reason) for s in result.skipped][:1] == [("c16", "c16 does not build")]
    assert {revision for revision, _ in machine.asked} & {16, 15, 24}


def test_culprit_beside_skipped_revisions_is_a_range() -> None:
    """Where the commits before the first slow one that was measured do not build, the range names them all."""
    result = Machine(32, _step(20, 1.02), broken=frozenset({18, 19})).search()
    assert result.outcome is BisectOutcome.RANGE
    assert result.suspects == ("c18", "c19", "c20")
    assert {skip.revision for skip in result.skipped} == {"c18", "c19"}


def test_a_long_stretch_that_does_not_build() -> None:
    """A stretch of 200 broken commits in the middle of 400 is left in a few steps, not tried one by one."""
    machine = Machine(400, _step(350, 1.02), broken=frozenset(range(100, 300)))
    result = machine.search()
    assert result.suspects == ("c350",)
    assert len(result.skipped) <= 10


def test_nothing_between_the_ends_builds() -> None:
    """With every revision between the ends skipped, all commits are the range."""
    result = Machine(5, _step(3, 1.02), broken=frozenset({1, 2, 3, 4})).search()
    assert result.outcome is BisectOutcome.RANGE
    assert len(result.suspects) == 5
    assert len(result.skipped) == 4


def test_a_revision_that_fails_at_a_later_look_is_skipped() -> None:
    """A revision whose second batch fails is skipped like any other, and its first pairs are not used for it."""

    class Flaky(Machine):
        def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
            if revision == "c4" and pairs < 4:
                raise CannotMeasureError("wrong at dq[3]")
            return super().__call__(revision, pairs)

    machine = Flaky(8, lambda index: 1.02 if index > 4 else 1.01 if index == 4 else 1.0, sd=0.003)
    result = machine.search()
    assert [skip.revision for skip in result.skipped] == ["c4"]
    assert "c4" not in {record.revision for record in result.measured}
    assert result.suspects == ("c4", "c5")


def test_bad_that_cannot_be_measured_stops() -> None:
    """Without BAD there is nothing to search for; the reason is in the error."""
    machine = Machine(8, _step(3, 1.02), broken=frozenset({8}))
    with pytest.raises(BisectError, match=re.escape("BAD itself (c8) cannot be measured against GOOD: c8 does not")):
        machine.search()


def test_halfway_level_is_the_first_of_two_changes() -> None:
    """With half of the slowdown at one commit and half at another, the first is named, and that there are two."""
    named = told = 0
    for seed in range(100):
        result = Machine(32, _steps(c9=1.01, c21=1.02), seed=seed).search()
        assert not result.suspects or result.outcome is BisectOutcome.RANGE or result.suspects == ("c9",)
        named += result.suspects == ("c9",)
        told += result.suspects == ("c9",) and bool(result.part_way)
    assert named >= 90
    assert told >= 90


def test_halfway_level_moves_the_line_for_revisions_measured_before() -> None:
    """Revisions below the old line are held against the new one, so a plateau never has a culprit inside it."""
    for seed in range(300):
        result = Machine(32, _steps(c5=1.0095, c30=1.02), sd=0.001, seed=seed).search()
        assert "c5" in result.suspects or "c30" in result.suspects


def test_small_first_step_is_told_of() -> None:
    """Of a small and a large step either may be named, and almost always that there are two."""
    told = 0
    for seed in range(50):
        result = Machine(32, _steps(c9=1.006, c21=1.02), sd=0.001, seed=seed).search()
        assert result.suspects in (("c9",), ("c21",))
        told += bool(result.part_way)
    assert told >= 45


def test_slowdown_that_was_partly_undone() -> None:
    """A revision certainly slower than BAD shows that more than one commit contributes."""
    result = Machine(32, _steps(c9=1.05, c25=1.02)).search()
    assert result.suspects == ("c9",)
    assert result.end is not None
    assert result.part_way
    assert all(record.interval[0] > result.end.interval[1] for record in result.part_way)


def test_one_step_is_rarely_called_two() -> None:
    """Over 2,000 single steps at 90 %, fewer than a tenth are said to be several changes."""
    told = sum(
        bool(Machine(16, _step(seed % 16 + 1, 1.01), seed=seed).search(confidence=0.9).part_way) for seed in range(2000)
    )
    assert told <= 200


def test_speed_that_went_up_and_down() -> None:
    """Slow, repaired and slow again: a commit is named that made it slow, one of the two."""
    for seed in range(50):
        result = Machine(32, _steps(c5=1.02, c12=1.0, c25=1.02), seed=seed).search()
        assert result.suspects in (("c5",), ("c25",))


def test_fewer_pairs_than_asked_for() -> None:
    """A machine that gives one pair at a time is asked until there is enough to say something."""

    class Slow(Machine):
        def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
            return super().__call__(revision, min(pairs, 3))

    assert Slow(8, _step(3, 1.03), sd=0.001).search().suspects == ("c3",)


def test_progress_and_seconds() -> None:
    """Every revision is reported once with how many suspects are left, and the clock's difference is kept."""
    times = iter((10.0, 52.5))
    seen: list[tuple[str, int]] = []
    machine = Machine(8, _step(3, 1.02), broken=frozenset({4}))
    search = Search(
        machine.names, machine, seen=lambda r, left: seen.append((r.revision, left)), clock=lambda: next(times)
    )
    result = search.run()
    assert result.seconds == 42.5
    assert seen[:2] == [("c8", 8), ("c4", 8)]
    assert seen[-1][1] == 1
    assert len(seen) == len(result.measured) + len(result.skipped)


def test_stopped_before_the_end() -> None:
    """Interrupted, a search knows the range so far, with a revision whose pairs are not complete as unclear."""

    class Stopped(Machine):
        def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
            if len(self.asked) == 3:
                raise KeyboardInterrupt
            return super().__call__(revision, pairs)

    machine = Stopped(32, _step(9, 1.02))
    search = Search(machine.names, machine)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    known = search.current_result()
    assert known.outcome is BisectOutcome.RANGE
    assert known.suspects == tuple(f"c{index}" for index in range(9, 17))
    assert [record.revision for record in known.measured] == ["c32", "c16", "c8"]


def test_stopped_before_bad_is_known() -> None:
    """Interrupted while BAD is being measured, nothing is claimed: every commit is a suspect."""

    class Stopped(Machine):
        def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
            if self.asked:
                raise KeyboardInterrupt
            return super().__call__(revision, pairs)

    machine = Stopped(4, _step(2, 1.003), sd=0.01)
    search = Search(machine.names, machine)
    assert search.current_result().suspects == ("c1", "c2", "c3", "c4")
    with pytest.raises(KeyboardInterrupt):
        search.run()
    known = search.current_result()
    assert (known.outcome, len(known.suspects)) == (BisectOutcome.RANGE, 4)
    assert [record.side for record in known.measured] == [RevisionSide.UNCLEAR]


@pytest.mark.parametrize("revisions", [[], ["a"], ["a", "b", "a"]])
def test_revisions_must_be_two_and_different(revisions: list[str]) -> None:
    """Fewer than two revisions, or one twice, is refused with what was given."""
    with pytest.raises(ValueError, match=re.escape(f"two or more different revisions, got {revisions}")):
        Search(revisions, Machine(1, _step(1, 1.02)))

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.noise import (
    PRIOR_DEGREES,
    RELATIVE_SD_MIN,
    CaseSpread,
    NoiseEstimate,
    NoiseModel,
    card_noise,
    widen_for_cards,
    widen_to_own_spread,
)


def processes(*medians_us: float, timer: str = "graph") -> list[ProcessSummary]:
    """Processes with these medians, microseconds per call."""
    return [ProcessSummary(us, us, us, (us,), 1, timer) for us in medians_us]


def test_variances_are_pooled_by_degrees_of_freedom() -> None:
    """An unknown case gets the pool of its class: variances weighted by processes - 1."""
    model = NoiseModel.from_processes({"a": processes(99.0, 101.0), "b": processes(200.0, 204.0, 196.0)})
    variance_a = math.log(101 / 99) ** 2 / 2
    variance_b = statistics.variance(map(math.log, (200.0, 204.0, 196.0)))
    estimate = model.estimate_noise("unknown", 150.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(math.sqrt((1 * variance_a + 2 * variance_b) / 3))
    assert estimate.degrees_of_freedom == 3
    assert estimate.how == "pooled over 2 cases of 100 to 1000 us, timer graph"


def test_a_known_case_moves_the_pool_by_its_own_weight() -> None:
    """A case's own variance counts d_case against the prior's 12 degrees of freedom."""
    model = NoiseModel.from_processes({"quiet": processes(30.0, 30.0, 30.0), "loud": processes(30.0, 33.0, 27.0)})
    own = statistics.variance(map(math.log, (30.0, 33.0, 27.0)))
    pool = own / 2
    estimate = model.estimate_noise("loud", 30.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(math.sqrt((PRIOR_DEGREES * pool + 2 * own) / (PRIOR_DEGREES + 2)))
    assert estimate.how.endswith("2 cases of 15 to 100 us, timer graph, moved by its own 3 processes")


def test_known_degrees_are_those_of_prior_and_case() -> None:
    """A large pool does not make a single case's spread better known than prior and own processes allow."""
    cases = {str(index): processes(*(100.0 + step for step in range(7))) for index in range(50)}
    model = NoiseModel.from_processes(cases)
    known, unknown = model.estimate_noise("3", 103.0, "graph"), model.estimate_noise("new", 103.0, "graph")
    assert known is not None
    assert unknown is not None
    assert (known.degrees_of_freedom, unknown.degrees_of_freedom) == (PRIOR_DEGREES + 6, PRIOR_DEGREES)


def test_an_empty_duration_class_is_said() -> None:
    """A duration nobody was measured at takes the pool of the timer, and says so."""
    model = NoiseModel.from_processes({"long": processes(2000.0, 2020.0)})
    estimate = model.estimate_noise("short", 5.0, "graph")
    assert estimate is not None
    assert estimate.how == "pooled over 1 case of any duration (none of less than 15 us), timer graph"


def test_classes_are_kept_apart() -> None:
    """A loud long case does not widen the threshold of a quiet short one."""
    model = NoiseModel.from_processes({"long": processes(2000.0, 2400.0), "short": processes(20.0, 20.02)})
    estimate = model.estimate_noise("short", 20.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd < 0.001
    assert "1000 us or more" in getattr(model.estimate_noise("other", 5000.0, "graph"), "how", "")


def test_another_timers_noise_is_never_borrowed() -> None:
    """No estimate exists for a timer without a case of two processes."""
    model = NoiseModel.from_processes({"a": processes(100.0, 101.0), "b": processes(100.0, timer="host")})
    assert model.estimate_noise("b", 100.0, "host") is None


def test_equal_numbers_do_not_give_a_zero_threshold() -> None:
    """Processes whose stored digits agree still have a spread above zero."""
    estimate = NoiseModel.from_processes({"a": processes(100.0, 100.0)}).estimate_noise("a", 100.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == RELATIVE_SD_MIN


def test_mixed_timers_in_one_case_are_refused() -> None:
    """One case measured by two timers is an error that names both."""
    with pytest.raises(ValueError, match="case 'a' mixes processes of the timers graph, host"):
        NoiseModel.from_processes({"a": [*processes(1.0), *processes(1.0, timer="host")]})


def test_new_processes_of_a_busier_machine_are_as_loud_as_they_are() -> None:
    """Three that lie a factor of three apart are not held to the noise of quiet stored ones; a quiet three are."""
    noise = NoiseEstimate(0.01, 18, "given")
    assert widen_to_own_spread(processes(100.0, 101.0, 102.5), noise) is noise
    assert widen_to_own_spread(processes(300.0), noise) is noise
    loud = widen_to_own_spread(processes(100.0, 180.0, 300.0), noise)
    assert loud.relative_sd == pytest.approx(statistics.stdev(map(math.log, (100.0, 180.0, 300.0))))
    assert loud.degrees_of_freedom == 2
    assert loud.how == "that of the 3 new processes, which is wider than the 1 % expected"


def test_the_pool_recovers_a_known_spread() -> None:
    """From 200 simulated cases of seven processes at 0.55 % the pool finds 0.55 % to within 3 % of it."""
    generator = random.Random(7)
    cases = {str(case): processes(*(100 * generator.gauss(1, 0.0055) for _ in range(7))) for case in range(200)}
    estimate = NoiseModel.from_processes(cases).estimate_noise("unknown", 100.5, "graph")
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(0.0055, rel=0.03)


def mixed_bounds() -> NoiseModel:
    """Two quiet compute-bound cases and three loud memory-bound ones, of one duration."""
    quiet = {f"gemm{index}": processes(*(200 + 0.01 * step for step in range(7))) for index in range(2)}
    loud = {f"copy{index}": processes(*(200.0 + step for step in range(7))) for index in range(3)}
    bounds = dict.fromkeys(quiet, "compute") | dict.fromkeys(loud, "memory")
    return NoiseModel.from_processes(quiet | loud, bounds=bounds)


@pytest.mark.parametrize(
    ("bound", "below", "how"),
    [
        ("compute", 0.0002, "pooled over 2 compute-bound cases of 100 to 1000 us, timer graph"),
        ("memory", 0.012, "pooled over 3 memory-bound cases of 100 to 1000 us, timer graph"),
        ("", 0.0095, "pooled over 5 cases of 100 to 1000 us, timer graph"),
    ],
)
def test_cases_of_one_bound_are_pooled_apart(bound: str, below: float, how: str) -> None:
    """A memory-bound case does not widen a compute-bound one; without a bound all of the duration are pooled."""
    estimate = mixed_bounds().estimate_noise("new", 200.0, "graph", bound)
    assert estimate is not None
    assert below * 0.5 < estimate.relative_sd < below
    assert estimate.how == how


@pytest.mark.parametrize(
    ("bounds", "how"),
    [({"a": "compute", "b": "memory"}, "(too few compute-bound)"), ({"a": "memory"}, "(none compute-bound)")],
)
def test_a_thin_bound_class_takes_the_pool_of_its_duration(bounds: dict[str, str], how: str) -> None:
    """A bound whose cases have fewer than 12 degrees of freedom together is not a pool of its own, and that is said."""
    model = NoiseModel.from_processes({"a": processes(200.0, 202.0), "b": processes(200.0, 204.0)}, bounds=bounds)
    estimate = model.estimate_noise("new", 200.0, "graph", "compute")
    assert estimate is not None
    assert estimate.how == f"pooled over 2 cases of 100 to 1000 us {how}, timer graph"


def test_a_case_alone_has_its_own_degrees_only() -> None:
    """With nothing else to pool, a case's spread is its own, known by its own degrees of freedom."""
    estimate = NoiseModel.from_processes({"a": processes(99.0, 100.0, 101.0)}).estimate_noise("a", 100.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(0.01, rel=1e-4)
    assert estimate.degrees_of_freedom == 2
    assert estimate.how == "its own 3 processes alone, timer graph"


def test_degrees_in_a_small_pool_are_those_of_the_weighted_sum() -> None:
    """Over many draws of two cases, the spread of the estimated variance is that of the degrees that it claims."""
    generator = random.Random(11)
    variances, degrees = [], set()
    for _ in range(3000):
        cases = {name: processes(*(150 * generator.gauss(1, 0.01) for _ in range(7))) for name in "ab"}
        estimate = NoiseModel.from_processes(cases).estimate_noise("a", 150.0, "graph")
        assert estimate is not None
        variances.append(estimate.relative_sd**2)
        degrees.add(estimate.degrees_of_freedom)
    mean = math.fsum(variances) / len(variances)
    spread = math.fsum((value - mean) ** 2 for value in variances) / len(variances)
    (claimed,) = degrees
    assert claimed == pytest.approx(2 * mean**2 / spread, rel=0.15)


def test_a_prior_counts_as_one_more_case() -> None:
    """A spread known from elsewhere joins with at most 12 degrees, and stands alone where nothing is pooled."""
    prior = NoiseEstimate(0.02, 500, "2 % in an earlier run")
    model = NoiseModel({"a": CaseSpread("graph", 100.0, 0.01**2, 12)}, prior=prior)
    known, alone = model.estimate_noise("b", 100.0, "graph"), model.estimate_noise("b", 100.0, "event")
    assert known is not None
    assert alone is not None
    assert known.relative_sd == pytest.approx(math.sqrt((0.01**2 + 0.02**2) / 2))
    assert known.how.endswith("timer graph, and 2 % in an earlier run")
    assert (alone.relative_sd, alone.degrees_of_freedom, alone.how) == (0.02, PRIOR_DEGREES, "2 % in an earlier run")


def test_a_prior_of_another_unit_is_refused() -> None:
    """The spread between processes is no prior for pairs."""
    with pytest.raises(ValueError, match="the prior is a spread between processes, this model is of pairs"):
        NoiseModel({}, "pair", NoiseEstimate(0.01, 5, "processes"))


def on_cards(*values: tuple[float, str]) -> list[ProcessSummary]:
    """Processes of these times on these cards."""
    return [replace(processes(us)[0], device_id=card) for us, card in values]


def test_processes_of_one_card_are_held_against_each_other_only() -> None:
    """Cards 3 % apart make no noise between processes; what they make is there beside it."""
    cases = {"a": on_cards((1000.0, "x"), (1001.0, "x"), (1030.0, "y"), (1031.0, "y"))}
    estimate = NoiseModel.from_processes(cases).estimate_noise("a", 1015.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(0.001 / math.sqrt(2), rel=0.02)
    assert 0.008 < estimate.card_sd < 0.009
    assert (estimate.degrees_of_freedom, estimate.card_degrees) == (2, PRIOR_DEGREES + 1)
    assert estimate.how == "its own 4 processes alone, timer graph"


def test_one_stored_card_changes_nothing() -> None:
    """Whatever it is called: the estimate is that of processes whose card is not known."""
    values = (1000.0, 1004.0, 1009.0)
    named, unnamed = (
        NoiseModel.from_processes({"a": on_cards(*((us, card) for us in values))}).estimate_noise("a", 1000.0, "graph")
        for card in ("x", "")
    )
    assert named == unnamed
    assert named is not None
    assert (named.card_sd, named.card_degrees) == (0.0, 0)


def test_a_card_for_every_process() -> None:
    """Nothing tells processes from cards: all of the spread is taken for the cards', and that is said."""
    cases = {"a": on_cards((1000.0, "x"), (1010.0, "y"), (1020.0, "z"))}
    estimate = NoiseModel.from_processes(cases).estimate_noise("a", 1010.0, "graph")
    assert estimate is not None
    assert estimate.relative_sd == RELATIVE_SD_MIN
    assert estimate.card_sd > 0.005
    assert "no two stored processes share a card" in estimate.how
    assert "each ran on a card of its own" in estimate.card_how


@pytest.mark.parametrize(
    ("stored", "ours", "added"),
    [("aaa", "b", True), ("aab", "c", True), ("aaa", "ab", True), ("aaa", "a", False), ("ab", "a", False),
     ("aa ", "b", False), ("aaa", " ", False)],
)  # fmt: skip
def test_a_further_card_has_the_prior(stored: str, ours: str, added: bool) -> None:
    """Only where a card measured that recorded nothing, and all are known; 0.7 %, and 0.1 us of a short case."""
    base, new = ([process_on(card) for card in side] for side in (stored, ours))
    noise = NoiseEstimate(0.002, 30, "pooled")
    found = widen_for_cards(noise, base, new)
    assert (found.card_sd > 0) is added
    if added:
        assert (found.relative_sd, found.card_degrees) == (0.002, 12)
        assert found.card_sd == pytest.approx(math.hypot(0.007, 0.1 / 10.0))
        assert "no baseline here is stored from several" in found.card_how
    known = replace(noise, card_sd=0.003, card_degrees=13, card_how="stored")
    assert widen_for_cards(known, base, new) is known


def process_on(card: str) -> ProcessSummary:
    """A process of 10 us on a card; ' ' for one that is not known."""
    return replace(processes(10.0)[0], device_id=card.strip())


def test_what_other_cases_say_of_cards_may_be_lent() -> None:
    """To a model of cases that one card measured; its pools stay its own, and without any it knows nothing."""
    lent = card_noise({"x": on_cards((100.0, "a"), (100.1, "a"), (101.0, "b"), (101.1, "b"))})
    own = NoiseModel.from_processes({"y": processes(100.0, 100.1, 100.2)})
    assert (own.has_cards, own.with_cards(lent).has_cards) == (False, True)
    plain, wide = own.estimate_noise("y", 100.0, "graph"), own.with_cards(lent).estimate_noise("y", 100.0, "graph")
    assert plain is not None
    assert wide is not None
    assert (wide.relative_sd, plain.card_sd, wide.card_sd > 0) == (plain.relative_sd, 0.0, True)
    assert NoiseModel({}).with_cards(lent).estimate_noise("y", 100.0, "graph") is None
    assert card_noise({"y": processes(100.0, 100.1)}) is None

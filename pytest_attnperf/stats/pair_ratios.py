"""Compares two sides measured in turns: quads -> one pair's ratio -> several pairs' ratio with its interval and noise.

The unit is the pair of processes. Quads of one pair share both processes' placement. So within a pair the ratio repeats
to a few hundredths of a percent, while pairs differ by about 0.3 %: no interval here is computed over quads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.pairs import PairSummary, Turn
from pytest_attnperf.stats.comparison import Comparison, compute_factor
from pytest_attnperf.stats.noise import CaseSpread, NoiseEstimate, NoiseModel, require_one_timer
from pytest_attnperf.stats.quantiles import upper_quantile

STORED_QUADS_MAX = 64
"""Ratios of single quads kept per pair, like blocks of a process."""

CENTRE_VARIANCE = (1.0, 1.0, 1.023, 1.093, 1.077, 1.076, 1.083, 1.072, 1.075, 1.074, 1.073, 1.070)
"""n x variance of the Hodges-Lehmann centre of n unit normal values, n = 1 to 12, simulated to +- 0.002."""


@dataclass(frozen=True)
class Quad:
    """Four turns, A B B A or B A A B: both turns of the base side and both of the candidate, at one place in memory."""

    base: tuple[Turn, Turn]
    new: tuple[Turn, Turn]
    place: int = 0

    @property
    def ratio(self) -> float:
        """Candidate's two times / the base's two: above 1 is slower. A constant drift over the four turns cancels."""
        return (self.new[0].us + self.new[1].us) / (self.base[0].us + self.base[1].us)


def summarise_pair(
    quads: Sequence[Quad],
    *,
    timer: str,
    base_process: str = "",
    new_process: str = "",
    device_id: str = "",
    seconds: float = 0.0,
) -> PairSummary:
    """Summarises the quads (blocks A B B A of both sides) of one base process and one candidate process.

    The ratio is the geometric mean over places of each place's interquartile mean of log ratios. Places differ by more
    than quads do, so a centre over all quads would jump between two groups of them. Single quads are heavy-tailed, and
    the mean follows every disturbed quad. For 30 quads the median needs 25 % more normal ones to be as precise as the
    interquartile mean, or 21 % more if one in ten is ten times as wide; both tolerate a quarter of bad ones.
    Hodges-Lehmann is better for normal quads, but much worse for few and disturbed ones (6 quads of that kind: standard
    deviation 0.83 against 0.55). A disturbance affects either side equally often, so all of these are unbiased.

    Raises ValueError for no quads, and for a time that is not finite and positive.
    """
    if not quads:
        raise ValueError(f"a pair needs at least one quad, got none from timer {timer!r}")
    for index, quad in enumerate(quads):
        for turn in (*quad.base, *quad.new):
            if not (math.isfinite(turn.us) and turn.us > 0):
                raise ValueError(
                    f"quad {index} of {len(quads)} from timer {timer!r} holds {turn.us} us per call; "
                    "a time must be finite and positive"
                )
    places = sorted({quad.place for quad in quads})
    centres = [_interquartile_mean([math.log(q.ratio) for q in quads if q.place == place]) for place in places]
    base = [turn for quad in quads for turn in quad.base]
    new = [turn for quad in quads for turn in quad.new]
    return PairSummary(
        ratio=_round_digits(math.exp(statistics.fmean(centres)), 7),
        base_us=_round_digits(statistics.median(turn.us for turn in base), 5),
        new_us=_round_digits(statistics.median(turn.us for turn in new), 5),
        quads=len(quads),
        timer=timer,
        quad_ratios=tuple(_round_digits(quad.ratio, 6) for quad in _thin_evenly(quads)),
        base_process=base_process,
        new_process=new_process,
        device_id=device_id,
        base_clock_mhz=_median_clock(base),
        new_clock_mhz=_median_clock(new),
        seconds=_round_digits(seconds, 5),
    )


def compare_pairs(pairs: Sequence[PairSummary], noise: NoiseEstimate, z: float) -> Comparison:
    """Returns the ratio over pairs, its 95 % interval, and how far chance alone would move it; `z` comes from `z_for`.

    The interval uses Student's t with the noise's degrees of freedom, as `z` should. In simulations with the spread of
    the same 3 to 12 normal pairs, the chance beyond a t-limit of 5 to 0.01 % is 0.8 to 1.0 of the stated one. Raises
    TypeError for anything but `PairSummary`, ValueError for no pairs or a spread that is not of pairs.
    """
    if noise.unit != "pair":
        raise ValueError(f"the noise of pairs is needed, got a spread per {noise.unit}: {noise.how}; use pair_noise")
    ratio = centre_ratio(pairs)
    error = standard_error_of_pairs(noise.relative_sd, len(pairs))
    half_width = upper_quantile(0.025, noise.degrees_of_freedom) * error
    interval = (ratio * compute_factor(-half_width), ratio * compute_factor(half_width))
    return Comparison(ratio, interval, error, compute_factor(z * error) - 1)


def centre_ratio(pairs: Sequence[PairSummary]) -> float:
    """Returns the Hodges-Lehmann centre of the pairs' log ratios, as a ratio, which two bad pairs of eight move little.

    It is the median of the means of all two pairs, each with itself included (Hodges and Lehmann, Ann. Math. Statist.
    34, 1963). Raises as `compare_pairs` does.
    """
    logs = _log_ratios(pairs)
    walsh = [(first + second) / 2 for index, first in enumerate(logs) for second in logs[index:]]
    return math.exp(statistics.median(walsh))


def standard_error_of_pairs(relative_sd: float, pairs: int) -> float:
    """Returns the relative standard deviation of `centre_ratio` over this many pairs that scatter with `relative_sd`.

    Beyond the simulated counts the factor is pi / 3 + 0.3 / n, which tends to the asymptotic variance and agrees with
    simulation at 16, 20 and 30 to 0.2 %. Raises ValueError for fewer than one pair and a negative spread.
    """
    if pairs < 1:
        raise ValueError(f"a ratio needs at least one pair, got {pairs}")
    if not (math.isfinite(relative_sd) and relative_sd >= 0):
        raise ValueError(f"relative_sd is {relative_sd}, must be finite and not negative")
    factor = CENTRE_VARIANCE[pairs - 1] if pairs <= len(CENTRE_VARIANCE) else math.pi / 3 + 0.3 / pairs
    return relative_sd * math.sqrt(factor / pairs)


def pair_noise(
    cases: Mapping[str, Sequence[PairSummary]],
    *,
    bounds: Mapping[str, str] | None = None,
    prior: NoiseEstimate | None = None,
) -> NoiseModel:
    """Returns the noise between pairs of the cases that this run interleaved, pooled like that of processes.

    `bounds` holds 'compute' or 'memory' by case; a case that it lacks is pooled by duration only.
    A case with fewer than two pairs has no spread and is left out. With one suspect and no `prior` a case has only its
    own pairs, and Student's t makes its limit wide. So pass the spread of an earlier run or a calibration
    (`NoiseEstimate` with unit 'pair') if there is one. It counts as one more case.

    The spread is the plain standard deviation of log ratios. One outlying pair hardly moves the centre but widens the
    limit, so the case becomes UNDECIDED rather than SLOWER. A robust spread would ignore three outliers of eight, which
    do move the centre, and call unchanged code slower.

    Raises TypeError for anything but `PairSummary`, ValueError if one case holds pairs of different timers.
    """
    bounds = bounds or {}
    spreads = {
        case: _compute_spread(case, group, bounds.get(case, "")) for case, group in cases.items() if len(group) > 1
    }
    return NoiseModel(spreads, "pair", prior)


def _compute_spread(case: str, pairs: Sequence[PairSummary], bound: str) -> CaseSpread:
    logs = _log_ratios(pairs)
    timer = require_one_timer(case, [pair.timer for pair in pairs], "pair")
    base_us = statistics.median(pair.base_us for pair in pairs)
    return CaseSpread(timer, base_us, statistics.variance(logs), len(pairs) - 1, bound)


def _log_ratios(pairs: Sequence[PairSummary]) -> list[float]:
    if not pairs:
        raise ValueError("a comparison of pairs has no pairs")
    for pair in pairs:
        if not isinstance(pair, PairSummary):
            raise TypeError(
                f"a comparison of pairs holds a {type(pair).__name__}, not a PairSummary: "
                "intervals are computed over pairs of processes, never over quads or plain numbers"
            )
    return [math.log(pair.ratio) for pair in pairs]


def _interquartile_mean(values: Sequence[float]) -> float:
    """Returns the mean of the values without the lowest and highest quarter (rounded up); of up to six, the median."""
    cut = min(math.ceil(len(values) / 4), (len(values) - 1) // 2)
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _median_clock(turns: Sequence[Turn]) -> float | None:
    clocks = [turn.clock_mhz for turn in turns if turn.clock_mhz is not None]
    return _round_digits(statistics.median(clocks), 5) if len(clocks) == len(turns) else None


def _round_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _thin_evenly(quads: Sequence[Quad]) -> Sequence[Quad]:
    """Returns at most STORED_QUADS_MAX quads, evenly spaced, including the first and the last."""
    if len(quads) <= STORED_QUADS_MAX:
        return quads
    last = len(quads) - 1
    return [quads[round(kept * last / (STORED_QUADS_MAX - 1))] for kept in range(STORED_QUADS_MAX)]

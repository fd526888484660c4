"""Which backend a point chooses, and how sure that is.

The unit is the process: a ratio of two backends has its interval over processes of either, with the spread that
`stats.noise` pools over all cases. Interleaved pairs of a run hold two revisions of one backend, never two backends, so
they say nothing here. Two cases may have been recorded on different days or cards, which moves a ratio by up to half a
percent beyond the interval: the margin must be larger than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.errors import UsageError
from pytest_attnperf.stats.comparison import compare, known_between
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.tools.dispatch.points import Point, Timed

CLEAR = "clear"
"""No other backend is within the margin, and no interval of a ratio reaches 1."""
TIE = "tie"
"""Some other backend cannot be told from the fastest, or is within the margin of it."""
ALONE = "alone"
"""No other backend was measured."""
NO_SAMPLES = "no samples: confidence unknown"

MARGIN = 0.02
"""How much longer another backend must take to be slower, as a fraction."""


@dataclass(frozen=True)
class Choice:
    """What one point chooses.

    confidence   CLEAR, TIE or ALONE
    sampled      whether intervals could be computed; if not, confidence is by the margin alone: NO_SAMPLES
    against      the fastest other backend, '' where there is none
    margin       how much longer `against` takes, as a fraction; negative where the incumbent won a tie
    interval     of `margin`, 95 % over processes; None without samples
    """

    point: Point
    backend: str
    confidence: str
    sampled: bool
    against: str = ""
    margin: float | None = None
    interval: tuple[float, float] | None = None


class Judge:
    """Decides points. `incumbent` is the user's, '' for the one that is fastest most often, by family."""

    def __init__(self, points: Sequence[Point], margin: float = MARGIN, incumbent: str = "") -> None:
        if not 0 <= margin < 1:
            raise UsageError(f"--margin is {margin * 100:g} %, must be at least 0 and below 100")
        self._margin = margin
        self._noise = _noise(points)
        self._preferred = _preferred(points, incumbent)
        _require_known(incumbent, points)

    @property
    def incumbents(self) -> dict[str, str]:
        """By family."""
        return {family: order[0] for family, order in self._preferred.items()}

    def choice(self, point: Point) -> Choice:
        """The fastest backend; of several that cannot be told apart the incumbent, or the one most often fastest."""
        others = [(timed, *self._against_fastest(point, timed)) for timed in point.times[1:]]
        tied = {point.fastest.backend} | {timed.backend for timed, slower, _ in others if not slower}
        backend = min(tied, key=self._preferred[point.shape.family].index)
        chosen = point.of(backend) or point.fastest
        against = next((timed for timed in point.times if timed is not chosen), None)
        if against is None:
            return Choice(point, backend, ALONE, sampled=bool(chosen.processes))
        interval = self._interval(chosen, against)
        sampled = all(known for _, _, known in others)
        confidence = TIE if len(tied) > 1 else CLEAR
        margin = against.median_us / chosen.median_us - 1
        return Choice(point, backend, confidence, sampled, against.backend, margin, interval)

    def _against_fastest(self, point: Point, timed: Timed) -> tuple[bool, bool]:
        """Whether it is shown to be slower than the fastest, and whether samples say so."""
        interval = self._interval(point.fastest, timed)
        beyond = timed.median_us / point.fastest.median_us - 1 >= self._margin
        return beyond and (interval is None or interval[0] > 0), interval is not None

    def _interval(self, base: Timed, other: Timed) -> tuple[float, float] | None:
        """95 % of the other's time over the base's, less 1; None where no spread is known."""
        if not base.processes or not other.processes:
            return None
        estimates = [self._noise.sd(_case(timed), timed.median_us, timed.processes[0].timer) for timed in (base, other)]
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(estimates):
            return None
        cards = max(known, key=lambda estimate: estimate.card_sd)
        wider = max(known, key=lambda estimate: estimate.relative_sd)
        wider = replace(wider, card_sd=cards.card_sd, card_degrees=cards.card_degrees)
        joint = known_between(wider, base.processes, other.processes)
        degrees = min(joint.degrees_of_freedom, *(estimate.degrees_of_freedom for estimate in known))
        low, high = compare(
            base.processes, other.processes, wider.relative_sd, 0.0, degrees, card_sd=wider.card_sd
        ).interval95
        return low - 1, high - 1


def _noise(points: Sequence[Point]) -> NoiseModel:
    return NoiseModel.from_processes({_case(timed): timed.processes for point in points for timed in point.times})


def _case(timed: Timed) -> str:
    return f"{timed.backend} {timed.workload}"


def _preferred(points: Sequence[Point], incumbent: str) -> Mapping[str, list[str]]:
    """Backends of each family, the incumbent first, then by how often each is the fastest of several."""
    wins: dict[str, Counter[str]] = {}
    measured: dict[str, Counter[str]] = {}
    for point in points:
        family = point.shape.family
        measured.setdefault(family, Counter()).update(timed.backend for timed in point.times)
        wins.setdefault(family, Counter()).update([point.fastest.backend] if len(point.times) > 1 else [])
    return {
        family: sorted(counts, key=lambda name: (name != incumbent, -wins[family][name], -counts[name], name))
        for family, counts in measured.items()
    }


def _require_known(incumbent: str, points: Sequence[Point]) -> None:
    known = sorted({timed.backend for point in points for timed in point.times})
    if incumbent and incumbent not in known:
        raise UsageError(f"--incumbent {incumbent!r} was not measured; measured were: {', '.join(known)}")

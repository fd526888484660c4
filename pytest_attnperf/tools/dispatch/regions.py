"""Choices of points -> regions: neighbouring sizes of one shape with one choice, and what lies between and beyond them.

Between two measured sizes that choose the same backend, it is taken to hold. Where they choose differently, the first
holds up to the last size at which it was shown to win, and what lies between is unmeasured: a table says so, and a
function returns the incumbent there. A size at which a single backend was measured shows that it works, not that it
wins, so it stands by itself.

Which backend a point chooses, and how sure that is: the unit is the process. A ratio of two backends has its interval
over processes of either, with the spread that `stats.noise` pools over all cases. Interleaved pairs of a run hold two
revisions of one backend, never two backends, so they say nothing here. Two cases may have been recorded on different
days or cards, which moves a ratio by up to half a percent beyond the interval: the margin must be larger than that.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.errors import UsageError
from pytest_attnperf.stats.comparison import compare_processes, with_degrees_between
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.tools.dispatch.features import Value, WorkloadShape
from pytest_attnperf.tools.dispatch.points import BackendTime, LeftOut, WorkloadPoint

COMBINED = {"dtype": str, "head_dim": int, "batch": int}
"""Fields of which combinations that were never measured are named, with what they hold."""

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
class Region:
    """Sizes of one shape that choose one backend, from the smallest to the largest measured one."""

    backend: str
    choices: tuple[BackendChoice, ...]

    @property
    def first(self) -> int:
        """The smallest measured size, 0 where the shape has no axis."""
        return self.choices[0].point.size

    @property
    def last(self) -> int:
        """The largest measured size."""
        return self.choices[-1].point.size

    @property
    def is_sampled(self) -> bool:
        """Whether every choice could be judged by samples."""
        return all(choice.sampled for choice in self.choices)

    @property
    def confidence(self) -> str:
        """'clear', or 'clear, tie at 1024'; without samples this is by the margin alone."""
        tied = [choice.point.size for choice in self.choices if choice.confidence == TIE]
        if not tied or len(tied) == len(self.choices):
            return self.choices[0].confidence
        return f"{CLEAR}, {TIE} at {_format_sizes(tied)}"

    @property
    def backends(self) -> tuple[int, int]:
        """The smallest and the largest number of backends that were measured at one of its sizes."""
        counts = [len(choice.point.times) for choice in self.choices]
        return min(counts), max(counts)

    @property
    def margins(self) -> tuple[float, float] | None:
        """Smallest and largest margin over the fastest other backend; None where there is no other."""
        margins = [choice.margin for choice in self.choices if choice.margin is not None]
        return (min(margins), max(margins)) if margins else None

    @property
    def against(self) -> tuple[str, ...]:
        """The fastest other backends, in order of size."""
        return tuple(dict.fromkeys(choice.against for choice in self.choices if choice.against))


@dataclass(frozen=True)
class ShapeGroup:
    """One shape with its regions, by size."""

    shape: WorkloadShape
    regions: tuple[Region, ...]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last size of each stretch between two regions, where nothing was measured."""
        pairs = itertools.pairwise(self.regions)
        return [(left.last + 1, right.first - 1) for left, right in pairs if left.last + 1 < right.first]

    @property
    def absent(self) -> dict[int, list[str]]:
        """By size, backends that were measured at another size of this shape, but not at this one."""
        points = [choice.point for region in self.regions for choice in region.choices]
        every = sorted({timed.backend for point in points for timed in point.times})
        absent = {point.size: [name for name in every if point.find_time(name) is None] for point in points}
        return {size: names for size, names in absent.items() if names}

    @property
    def has_choice(self) -> bool:
        """Whether there was anything to choose between."""
        return any(region.against for region in self.regions)


@dataclass(frozen=True)
class DispatchTable:
    """What was decided.

    incumbents   by family: takes ties, and everything unmeasured
    margin       as a fraction
    left_out     cases that nothing was decided from
    """

    groups: tuple[ShapeGroup, ...]
    incumbents: Mapping[str, str]
    margin: float
    left_out: tuple[LeftOut, ...] = ()


def make_dispatch_table(
    points: Sequence[WorkloadPoint],
    left_out: Iterable[LeftOut] = (),
    *,
    margin: float,
    incumbent: str = "",
    family: str = "",
) -> DispatchTable:
    """Decide every point and form regions; noise is pooled over all families, also where only one is shown.

    Raises UsageError for no points, an unknown family or incumbent, and a margin that is none.
    """
    left_out = tuple(case for case in left_out if family in ("", case.workload.split("-")[0]))
    families = sorted({point.shape.family for point in points})
    if not points:
        raise UsageError(f"no case was proven right and timed, so nothing can be chosen.{_reason_no_points(left_out)}")
    if family and family not in families:
        raise UsageError(f"--family {family!r} has no measured case; families with some: {', '.join(families)}")
    judge = PointJudge(points, margin, incumbent)
    shown = [point for point in points if family in ("", point.shape.family)]
    groups = tuple(
        ShapeGroup(shape, _make_regions([judge.decide_point(point) for point in of_shape]))
        for shape, of_shape in itertools.groupby(shown, key=lambda point: point.shape)
    )
    incumbents = {name: backend for name, backend in judge.incumbents.items() if family in ("", name)}
    return DispatchTable(groups, incumbents, margin, left_out)


def list_never_combined(groups: Iterable[ShapeGroup]) -> list[tuple[str, dict[str, Value]]]:
    """(family, fields) of each combination of dtypes, head dimensions and batches that occur in a family, but never
    together."""
    missing: list[tuple[str, dict[str, Value]]] = []
    for family, of_family in itertools.groupby(groups, key=lambda group: group.shape.family):
        shapes = [group.shape for group in of_family]
        names = [
            name for name, kind in COMBINED.items() if all(isinstance(shape.find_value(name), kind) for shape in shapes)
        ]
        seen = {tuple(shape.find_value(name) for name in names) for shape in shapes}
        values = [sorted({combination[index] for combination in seen}, key=_sort_key) for index in range(len(names))]
        for combination in itertools.product(*values):
            if combination not in seen:
                known = {name: value for name, value in zip(names, combination, strict=True) if value is not None}
                missing.append((family, known))
    return missing


def _make_regions(choices: Sequence[BackendChoice]) -> tuple[Region, ...]:
    grouped = itertools.groupby(
        choices, key=lambda choice: (choice.backend, choice.confidence == ALONE and choice.point.size)
    )
    return tuple(Region(backend, tuple(of_backend)) for (backend, _), of_backend in grouped)


def _format_sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if len(sizes) <= 2 else f"{len(sizes)} sizes"


def _sort_key(value: Value | None) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, str(value))


def _reason_no_points(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return " Measure some by pytest --attnperf on a GPU"
    first = left_out[0]
    return f" Left out were {len(left_out)}; the first: {first.backend} on {first.workload!r}, {first.why}"


@dataclass(frozen=True)
class BackendChoice:
    """What one point chooses.

    confidence   CLEAR, TIE or ALONE
    sampled      whether intervals could be computed; if not, confidence is by the margin alone: NO_SAMPLES
    against      the fastest other backend, '' where there is none
    margin       how much longer `against` takes, as a fraction; negative where the incumbent won a tie
    interval     of `margin`, 95 % over processes; None without samples
    """

    point: WorkloadPoint
    backend: str
    confidence: str
    sampled: bool
    against: str = ""
    margin: float | None = None
    interval: tuple[float, float] | None = None


class PointJudge:
    """Decides points. `incumbent` is the user's, '' for the one that is fastest most often, by family."""

    def __init__(self, points: Sequence[WorkloadPoint], margin: float = MARGIN, incumbent: str = "") -> None:
        if not 0 <= margin < 1:
            raise UsageError(f"--margin is {margin * 100:g} %, must be at least 0 and below 100")
        self._margin = margin
        self._noise = _pool_noise(points)
        self._preferred = _rank_backends(points, incumbent)
        _require_known(incumbent, points)

    @property
    def incumbents(self) -> dict[str, str]:
        """By family."""
        return {family: order[0] for family, order in self._preferred.items()}

    def decide_point(self, point: WorkloadPoint) -> BackendChoice:
        """The fastest backend; of several that cannot be told apart the incumbent, or the one most often fastest."""
        others = [(timed, *self._compare_with_fastest(point, timed)) for timed in point.times[1:]]
        tied = {point.fastest.backend} | {timed.backend for timed, slower, _ in others if not slower}
        backend = min(tied, key=self._preferred[point.shape.family].index)
        chosen = point.find_time(backend) or point.fastest
        against = next((timed for timed in point.times if timed is not chosen), None)
        if against is None:
            return BackendChoice(point, backend, ALONE, sampled=bool(chosen.processes))
        interval = self._compute_interval(chosen, against)
        sampled = all(known for _, _, known in others)
        confidence = TIE if len(tied) > 1 else CLEAR
        margin = against.median_us / chosen.median_us - 1
        return BackendChoice(point, backend, confidence, sampled, against.backend, margin, interval)

    def _compare_with_fastest(self, point: WorkloadPoint, timed: BackendTime) -> tuple[bool, bool]:
        """Whether it is shown to be slower than the fastest, and whether samples say so."""
        interval = self._compute_interval(point.fastest, timed)
        beyond = timed.median_us / point.fastest.median_us - 1 >= self._margin
        return beyond and (interval is None or interval[0] > 0), interval is not None

    def _compute_interval(self, base: BackendTime, other: BackendTime) -> tuple[float, float] | None:
        """95 % of the other's time over the base's, less 1; None where no spread is known."""
        if not base.processes or not other.processes:
            return None
        estimates = [
            self._noise.estimate_noise(_format_case(timed), timed.median_us, timed.processes[0].timer)
            for timed in (base, other)
        ]
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(estimates):
            return None
        cards = max(known, key=lambda estimate: estimate.card_sd)
        wider = max(known, key=lambda estimate: estimate.relative_sd)
        wider = replace(wider, card_sd=cards.card_sd, card_degrees=cards.card_degrees)
        joint = with_degrees_between(wider, base.processes, other.processes)
        degrees = min(joint.degrees_of_freedom, *(estimate.degrees_of_freedom for estimate in known))
        low, high = compare_processes(
            base.processes, other.processes, wider.relative_sd, 0.0, degrees, card_sd=wider.card_sd
        ).interval95
        return low - 1, high - 1


def _pool_noise(points: Sequence[WorkloadPoint]) -> NoiseModel:
    return NoiseModel.from_processes(
        {_format_case(timed): timed.processes for point in points for timed in point.times}
    )


def _format_case(timed: BackendTime) -> str:
    return f"{timed.backend} {timed.workload}"


def _rank_backends(points: Sequence[WorkloadPoint], incumbent: str) -> Mapping[str, list[str]]:
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


def _require_known(incumbent: str, points: Sequence[WorkloadPoint]) -> None:
    known = sorted({timed.backend for point in points for timed in point.times})
    if incumbent and incumbent not in known:
        raise UsageError(f"--incumbent {incumbent!r} was not measured; measured were: {', '.join(known)}")

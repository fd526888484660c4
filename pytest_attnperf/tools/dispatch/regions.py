"""Makes regions of points' choices. A region is a run of neighbouring sizes of one shape that choose one backend.

Between two measured sizes that choose the same backend, the choice is assumed to hold. Where they choose differently,
the sizes between them count as unmeasured: a table says so, and a function returns the incumbent there. A size with
only one measured backend shows that it works, not that it is fastest, so it is a region of its own.

The ratio of two backends has an interval over the processes of both, with the spread that `stats.noise` pools over all
cases. Interleaved pairs are not used: they hold two revisions of one backend, never two backends. Two cases may have
been recorded on different days or cards. That moves a ratio by up to 0.5 % beyond the interval, so the margin must be
larger.
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
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, LeftOut, WorkloadPoint

COMBINED = {"dtype": str, "head_dim": int, "batch": int}
"""Field -> type. Combinations of their values that were never measured are listed."""

CLEAR = "clear"
"""Every other backend is slower by the margin or more, and no interval of a ratio includes 1."""
TIE = "tie"
"""Some other backend is within the margin of the fastest, or their difference is not detectable."""
ALONE = "alone"
"""No other backend was measured."""
NO_SAMPLES = "no samples: confidence unknown"

MARGIN = 0.02
"""Least extra time of another backend to count as slower, as a fraction."""


@dataclass(frozen=True)
class Region:
    """Neighbouring sizes of one shape that choose one backend."""

    backend: str
    choices: tuple[BackendChoice, ...]

    @property
    def first(self) -> int:
        """Smallest measured size of the region (neighbouring sizes with one choice); 0 if the shape has no size."""
        return self.choices[0].point.size

    @property
    def last(self) -> int:
        """Largest measured size of the region (neighbouring sizes with one choice); 0 if the shape has no size."""
        return self.choices[-1].point.size

    @property
    def is_sampled(self) -> bool:
        """Whether intervals could be computed for every size of the region: times of single processes are known."""
        return all(choice.sampled for choice in self.choices)

    @property
    def confidence(self) -> str:
        """How sure the choice is: 'clear' (fastest), 'tie' (another is as fast), 'alone' (no other was measured), or
        mixed, 'clear, tie at 1024'. Without times of single processes, a tie depends on the margin only."""
        tied = [choice.point.size for choice in self.choices if choice.confidence == TIE]
        if not tied or len(tied) == len(self.choices):
            return self.choices[0].confidence
        return f"{CLEAR}, {TIE} at {_format_sizes(tied)}"

    @property
    def backends(self) -> tuple[int, int]:
        """The smallest and the largest number of backends measured at one size of the region."""
        counts = [len(choice.point.times) for choice in self.choices]
        return min(counts), max(counts)

    @property
    def margins(self) -> tuple[float, float] | None:
        """Smallest and largest extra time of the fastest other backend over the chosen one, as fractions (0.02: 2 %);
        negative if the chosen one won a tie; None if there is no other."""
        margins = [choice.margin for choice in self.choices if choice.margin is not None]
        return (min(margins), max(margins)) if margins else None

    @property
    def against(self) -> tuple[str, ...]:
        """Names of the fastest backends besides the chosen one at the region's sizes, in order of size, each once."""
        return tuple(dict.fromkeys(choice.against for choice in self.choices if choice.against))


@dataclass(frozen=True)
class ShapeGroup:
    """One shape with its regions, ordered by size."""

    shape: WorkloadShape
    regions: tuple[Region, ...]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(first, last) size of each unmeasured stretch between two neighbouring regions."""
        pairs = itertools.pairwise(self.regions)
        return [(left.last + 1, right.first - 1) for left, right in pairs if left.last + 1 < right.first]

    @property
    def absent(self) -> dict[int, list[str]]:
        """Size -> the backends that were measured at another size of this shape, but not at this one."""
        points = [choice.point for region in self.regions for choice in region.choices]
        every = sorted({timed.backend for point in points for timed in point.times})
        absent = {point.size: [name for name in every if point.find_time(name) is None] for point in points}
        return {size: names for size, names in absent.items() if names}

    @property
    def has_choice(self) -> bool:
        """Whether two or more backends were measured at any size."""
        return any(region.against for region in self.regions)


@dataclass(frozen=True)
class DispatchTable:
    """The decisions of all shapes.

    incumbents   by family: the backend that is chosen at ties and for everything unmeasured
    margin       as a fraction
    left_out     cases that no decision uses
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
    """Chooses a backend for every point, joins neighbouring sizes of one choice into regions, and returns the table.

    Holds only shapes of `family`, all if that is ''; noise is estimated from all families. `incumbent` is chosen at
    ties. Raises UsageError for no points, an unknown family or incumbent, and an invalid margin."""
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
    """Returns (family, fields) of each combination of dtype, head dimension and batch that was never measured, although
    each value was."""
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
    """The backend that is chosen for one point.

    confidence   CLEAR, TIE or ALONE
    sampled      whether intervals could be computed; if not, only the margin decides (NO_SAMPLES)
    against      the fastest other backend, '' if there is none
    margin       extra time of `against`, as a fraction; negative if the incumbent won a tie
    interval     95 % interval of `margin` over processes; None without samples
    """

    point: WorkloadPoint
    backend: str
    confidence: str
    sampled: bool
    against: str = ""
    margin: float | None = None
    interval: tuple[float, float] | None = None


class PointJudge:
    """Chooses backends. incumbent: the user's; '' for the backend that is fastest most often in its family."""

    def __init__(self, points: Sequence[WorkloadPoint], margin: float = MARGIN, incumbent: str = "") -> None:
        if not 0 <= margin < 1:
            raise UsageError(f"--margin is {margin * 100:g} %, must be at least 0 and below 100")
        self._margin = margin
        self._noise = _pool_noise(points)
        self._preferred = _rank_backends(points, incumbent)
        _require_known(incumbent, points)

    @property
    def incumbents(self) -> dict[str, str]:
        """Family -> incumbent: the backend that is chosen at ties and for everything unmeasured."""
        return {family: order[0] for family, order in self._preferred.items()}

    def decide_point(self, point: WorkloadPoint) -> BackendChoice:
        """Returns the choice for one workload: the fastest backend; at a tie, the incumbent, else the tied one that is
        fastest most often in its family."""
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
        """Returns (whether `timed` is shown to be slower than the point's fastest backend, whether an interval of
        their ratio could be computed)."""
        interval = self._compute_interval(point.fastest, timed)
        beyond = timed.median_us / point.fastest.median_us - 1 >= self._margin
        return beyond and (interval is None or interval[0] > 0), interval is not None

    def _compute_interval(self, base: BackendTime, other: BackendTime) -> tuple[float, float] | None:
        """Returns the 95 % interval of (`other`'s time / `base`'s time - 1); None if either's spread is not known."""
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
    """Returns family -> its backends, the incumbent first, then by how often each is the fastest of several."""
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

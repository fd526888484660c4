"""What `attnperf dispatch --json` prints, as typed records that are read back strictly; pages are made of them.

Percentages are of the chosen backend's time. Format: `SCHEMA`, whose number increases when a field is renamed or
changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.tools.dispatch.regions import BackendChoice, DispatchTable, ShapeGroup

FieldValue = int | float | bool | str | tuple[int, ...]

KIND, VERSION = "attnperf.dispatch", 1
SCHEMA = f"{KIND}/{VERSION}"


@dataclass(frozen=True)
class PointRecord:
    """One workload: the chosen backend, how sure that is, and every measured time in microseconds per call.

    against              the fastest other backend, '' if there is none
    margin_percent       its extra time; None if there is no other
    interval95_percent   of the margin; None without samples
    """

    workload: str
    size: int
    backend: str
    confidence: str
    samples: bool
    against: str
    margin_percent: float | None
    interval95_percent: tuple[float, float] | None
    times_us: dict[str, float]


@dataclass(frozen=True)
class RegionRecord:
    """Neighbouring sizes of one shape that choose one backend."""

    first: int
    last: int
    backend: str
    confidence: str
    samples: bool
    points: tuple[PointRecord, ...]


@dataclass(frozen=True)
class ShapeRecord:
    """One shape with its regions, ordered by size. `axis` is the field that sizes belong to, '' for none."""

    family: str
    shape: str
    fields: dict[str, FieldValue]
    axis: str
    regions: tuple[RegionRecord, ...]
    unmeasured_between: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LeftOutRecord:
    """A case that no decision uses, and why."""

    backend: str
    workload: str
    why: str


@dataclass(frozen=True)
class DispatchRecord:
    """The decisions of all shapes, and where the times are from (`told`, sentences)."""

    schema: str
    told: tuple[str, ...]
    margin_percent: float
    incumbents: dict[str, str]
    groups: tuple[ShapeRecord, ...]
    never_combined: tuple[dict[str, FieldValue], ...]
    left_out: tuple[LeftOutRecord, ...]


def make_record(table: DispatchTable, told: Sequence[str]) -> DispatchRecord:
    """Returns the record of a table, with nothing shortened."""
    from pytest_attnperf.tools.dispatch.regions import list_never_combined

    return DispatchRecord(
        SCHEMA,
        tuple(told),
        table.margin * 100,
        dict(table.incumbents),
        tuple(map(_record_group, table.groups)),
        tuple({"family": family, **fields} for family, fields in list_never_combined(table.groups)),
        tuple(LeftOutRecord(case.backend, case.workload, case.why) for case in table.left_out),
    )


def decode_record(data: bytes, where: str) -> DispatchRecord:
    """Reads what `attnperf dispatch --json` printed. Raises UsageError naming `where` for anything else."""
    import msgspec

    try:
        return msgspec.json.decode(data, type=DispatchRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: is not what attnperf dispatch --json printed ({error}); make it again") from error


def _record_group(group: ShapeGroup) -> ShapeRecord:
    regions = tuple(
        RegionRecord(
            region.first,
            region.last,
            region.backend,
            region.confidence,
            region.is_sampled,
            tuple(map(_record_choice, region.choices)),
        )
        for region in group.regions
    )
    shape = group.shape
    return ShapeRecord(shape.family, shape.label, dict(shape.fields), shape.axis, regions, tuple(group.gaps))


def _record_choice(choice: BackendChoice) -> PointRecord:
    interval = choice.interval
    return PointRecord(
        choice.point.workload,
        choice.point.size,
        choice.backend,
        choice.confidence,
        choice.sampled,
        choice.against,
        None if choice.margin is None else choice.margin * 100,
        None if interval is None else (interval[0] * 100, interval[1] * 100),
        {timed.backend: timed.median_us for timed in choice.point.times},
    )

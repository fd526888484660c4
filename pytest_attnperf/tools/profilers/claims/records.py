"""Frozen data of claims: what a report says of a device, a kernel and a profile, as it says it. See examples/claims.

Every claim has `said`, the words of the report. Figures are texts with a unit ('31.3 us'); counts are whole numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pytest_attnperf.tools.profilers.claims.figures import (
    Amount,
    ByteRate,
    Capacity,
    ChipSize,
    Factor,
    FlopRate,
    Intensity,
    Percent,
    Rate,
    Time,
)

CLAIMS_SCHEMA = 1

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
"""Nothing that a terminal would act on."""

Said = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=_PRINTABLE)]
Name = Said
Line = Annotated[str, msgspec.Meta(max_length=1000, pattern=_PRINTABLE)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Size3 = tuple[Positive, Positive, Positive]
Nature = Literal["compute", "conversion", "copy", "fill", "communication", "other"]
Unit = Literal["CU", "WGP", "SIMD", "workgroup", "wave", "lane"]
Dtype = Literal["f16", "bf16", "f32", "f8", "i8"]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all: a field that is not known is an error."""


class Claim(Record, frozen=True, kw_only=True):
    """said: the words of the report."""

    said: Said


class Peak(Claim, frozen=True, kw_only=True):
    """A ceiling. word: what the report calls it; of: what it is a rate of."""

    rate: Rate
    of: Literal["f16", "bf16", "f32", "f8", "i8", "DRAM"]
    word: Literal["peak", "measured"] = "peak"


class Limit(Claim, frozen=True, kw_only=True):
    """What a unit of the device holds at most: '128 KB', '32 waves', '512 VGPRs'."""

    most: Capacity
    per: Unit


class ReportedDevice(Record, frozen=True, kw_only=True):
    """The device that the report is about.

    arch         'gfx1151'
    product      as vendors print it, or as `device_specs` does
    wave_size    where it is not the architecture's usual one
    """

    arch: Name
    product: Line = ""
    compute_units: Positive | None = None
    wave_size: Literal[32, 64] | None = None
    peaks: tuple[Peak, ...] = ()
    limits: tuple[Limit, ...] = ()


class Counted(Claim, frozen=True, kw_only=True):
    """A count, and what it is counted per."""

    count: Count
    per: Unit | Literal["thread", ""] = ""


class Sized(Claim, frozen=True, kw_only=True):
    """LDS of a workgroup."""

    size: ChipSize


class ReportedKernel(Record, frozen=True, kw_only=True):
    """The kernel that the report is about.

    family            'attention' and 'gemm' multiply matrices
    grid_items        work-items of the launch in x, y, z, as rocprofv3 counts; or `grid_workgroups`, as HIP does
    outputs_checked   whether its outputs were compared with a reference
    """

    name: Name = "kernel"
    family: Literal["attention", "gemm", "other"] = "other"
    workgroup: Size3 | None = None
    grid_items: Size3 | None = None
    grid_workgroups: Size3 | None = None
    threads: Counted | None = None
    waves: Counted | None = None
    lds: Sized | None = None
    vgprs: Counted | None = None
    agprs: Counted | None = None
    sgprs: Counted | None = None
    outputs_checked: bool | None = None


class OccupancyBound(Claim, frozen=True, kw_only=True):
    """How many workgroups or waves one resource allows."""

    by: Literal["lds", "vgprs", "slots"]
    workgroups: Count | None = None
    waves: Count | None = None
    per: Literal["CU", "WGP"] = "CU"


class OccupancyClaim(Claim, frozen=True, kw_only=True):
    """word: what the report calls it; counters: names of hardware counters that it was read of."""

    percent: Percent
    word: Literal["calculated", "measured"] = "calculated"
    counters: tuple[Name, ...] = ()


class PassesClaim(Claim, frozen=True, kw_only=True):
    """Forward passes (batches, steps) in the profile."""

    count: Positive


class Model(Record, frozen=True, kw_only=True):
    """What one call of the kernel works on.

    layers       calls of the kernel per forward pass
    sequences    independent ones per call (batch, positions), of `tokens` each
    kv_heads     heads of keys and values, `heads` where not given
    """

    layers: Positive | None = None
    sequences: Positive | None = None
    tokens: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Positive | None = None
    dtype: Dtype = "f16"
    causal: bool = False
    passes: PassesClaim | None = None


class TimeClaim(Claim, frozen=True, kw_only=True):
    """A time."""

    time: Time


class ShareClaim(Claim, frozen=True, kw_only=True):
    """A part of a whole."""

    percent: Percent


class Computing(Claim, frozen=True, kw_only=True):
    """FLOP/s reached; `percent` of `peak`, where the report says so."""

    rate: FlopRate
    percent: Percent | None = None
    peak: FlopRate | None = None


class Moving(Claim, frozen=True, kw_only=True):
    """Bytes per second reached; `percent` of `peak`; counters: names of hardware counters it was read of."""

    rate: ByteRate
    percent: Percent | None = None
    peak: ByteRate | None = None
    counters: tuple[Name, ...] = ()


class IntensityClaim(Claim, frozen=True, kw_only=True):
    """FLOP per byte."""

    intensity: Intensity


class Roof(Claim, frozen=True, kw_only=True):
    """bandwidth x intensity = rate."""

    bandwidth: ByteRate
    intensity: Intensity
    rate: FlopRate


class Performance(Record, frozen=True, kw_only=True):
    """Of the kernel, over all its calls. own_roof: the rate reached over the lower of `memory_roof` and peak."""

    calls: Counted | None = None
    total: TimeClaim | None = None
    per_call: TimeClaim | None = None
    computing: Computing | None = None
    moving: Moving | None = None
    intensity: IntensityClaim | None = None
    memory_roof: Roof | None = None
    own_roof: ShareClaim | None = None


class BoundClaim(Claim, frozen=True, kw_only=True):
    """What binds the kernel, or, where `denied`, what does not; counters: names of hardware counters it was read of."""

    bound: Literal["memory", "compute", "launch", "instruction latency", "occupancy", "cache"]
    denied: bool = False
    counters: tuple[Name, ...] = ()


class Member(Record, frozen=True, kw_only=True):
    """A kernel within a row. nature: what it really does; found by its name where not given."""

    name: Name
    calls: Count
    time: Time | None = None
    nature: Nature | None = None


class ReportedRow(Record, frozen=True, kw_only=True):
    """A row of a table of times. family: its name in a profile; nature: what the report says it does."""

    name: Name
    time: Time
    calls: Count | None = None
    percent: Percent | None = None
    family: Line = ""
    nature: Nature | None = None
    members: tuple[Member, ...] = ()


class ReportedTable(Record, frozen=True, kw_only=True):
    """Where the time goes; `total` and `calls` as the report sums them up."""

    rows: tuple[ReportedRow, ...]
    total: TimeClaim | None = None
    calls: Counted | None = None


class Ratio(Claim, frozen=True, kw_only=True):
    """top / bottom = ratio. word: in which words the ratio was put."""

    top: Amount
    bottom: Amount
    ratio: Factor
    word: Literal["", "slower", "faster"] = ""


class GainPartsClaim(Claim, frozen=True, kw_only=True):
    """A gain explained by parts. share: of the whole time, where the parts speed up only that."""

    whole: Percent
    parts: tuple[Percent, ...]
    share: Percent | None = None


class Speedup(Claim, frozen=True, kw_only=True):
    """A gain of `alone` on a `share` of the time is one of `overall`; without `alone` that share takes no time."""

    share: Percent
    overall: Percent
    alone: Percent | None = None


class TileSize(Claim, frozen=True, kw_only=True):
    """Tiles, each by its sizes in elements, and the bytes that they are said to take together."""

    tiles: tuple[tuple[Positive, ...], ...]
    dtype: Dtype
    size: ChipSize


class Expectation(Claim, frozen=True, kw_only=True):
    """Something that only a hardware counter can show, and the counters that were read."""

    what: Name
    value: Percent
    counters: tuple[Name, ...] = ()


class Recommendation(Claim, frozen=True, kw_only=True):
    """A gain that is promised. on: a row of the table; alone: on that row; evidence: the measurement behind it."""

    on: Line = ""
    alone: Percent | None = None
    overall: Percent | None = None
    evidence: Line = ""


class Claims(Record, frozen=True, kw_only=True):
    """Everything that one report claims."""

    schema: int
    title: Line = ""
    source: Line = ""
    device: ReportedDevice | None = None
    kernel: ReportedKernel = ReportedKernel()
    occupancy: OccupancyClaim | None = None
    bounds: tuple[OccupancyBound, ...] = ()
    model: Model = Model()
    performance: Performance = Performance()
    verdicts: tuple[BoundClaim, ...] = ()
    table: ReportedTable | None = None
    ratios: tuple[Ratio, ...] = ()
    gains: tuple[GainPartsClaim, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    sizes: tuple[TileSize, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()

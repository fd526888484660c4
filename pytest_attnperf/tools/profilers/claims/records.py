"""Frozen data of claims: a report's statements about a device, a kernel and a profile. See examples/claims.

Every claim has `said`, the words of the report. Figures are texts with a unit ('31.3 us'); counts are whole numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    Amount,
    ByteRate,
    Capacity,
    ChipSize,
    Evaluations,
    Factor,
    FlopRate,
    Intensity,
    Nodes,
    Percent,
    Rate,
    Time,
)

CLAIMS_SCHEMA = 1

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
"""Pattern of texts without control characters."""

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
    """Base of all records; an unknown field is an error."""


class Claim(Record, frozen=True, kw_only=True):
    """Base of all claims. `said` is the words of the report."""

    said: Said


class Peak(Claim, frozen=True, kw_only=True):
    """A ceiling. `word` is what the report calls it, `of` the dtype or memory whose rate it is."""

    rate: Rate
    of: Literal["f16", "bf16", "f32", "f8", "i8", "DRAM"]
    word: Literal["peak", "measured"] = "peak"


class Limit(Claim, frozen=True, kw_only=True):
    """The capacity of a unit of the device: '128 KB', '32 waves', '512 VGPRs'."""

    most: Capacity
    per: Unit


class ReportedDevice(Record, frozen=True, kw_only=True):
    """The device that the report is about.

    arch         'gfx1151'
    product      as vendors or `device_specs` print it
    wave_size    if it is not the architecture's usual one
    """

    arch: Name
    product: Line = ""
    compute_units: Positive | None = None
    wave_size: Literal[32, 64] | None = None
    peaks: tuple[Peak, ...] = ()
    limits: tuple[Limit, ...] = ()


class Counted(Claim, frozen=True, kw_only=True):
    """A count, and the unit that it is counted per."""

    count: Count
    per: Unit | Literal["thread", ""] = ""


class Sized(Claim, frozen=True, kw_only=True):
    """LDS size of a workgroup."""

    size: ChipSize


class ReportedKernel(Record, frozen=True, kw_only=True):
    """The kernel that the report is about.

    family            'attention' and 'gemm' multiply matrices
    grid_items        work-items of the launch in x, y, z, as rocprofv3 counts; `grid_workgroups` counts as HIP does
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
    """The number of workgroups or waves that one resource allows."""

    by: Literal["lds", "vgprs", "slots"]
    workgroups: Count | None = None
    waves: Count | None = None
    per: Literal["CU", "WGP"] = "CU"


class OccupancyClaim(Claim, frozen=True, kw_only=True):
    """An occupancy. `word` is what the report calls it, `counters` the hardware counters that it is based on."""

    percent: Percent
    word: Literal["calculated", "measured"] = "calculated"
    counters: tuple[Name, ...] = ()


class PassesClaim(Claim, frozen=True, kw_only=True):
    """Number of forward passes (batches, steps) in the profile."""

    count: Positive


class Model(Record, frozen=True, kw_only=True):
    """The work of one call of the kernel.

    layers       calls of the kernel per forward pass
    sequences    independent sequences per call (batch, positions), of `tokens` each
    kv_heads     heads of keys and values; default: `heads`
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
    """FLOP/s reached; `percent` of `peak`, if the report says so."""

    rate: FlopRate
    percent: Percent | None = None
    peak: FlopRate | None = None


class Moving(Claim, frozen=True, kw_only=True):
    """Bytes per second reached; `percent` of `peak`; `counters` are hardware counters that it is based on."""

    rate: ByteRate
    percent: Percent | None = None
    peak: ByteRate | None = None
    counters: tuple[Name, ...] = ()


class IntensityClaim(Claim, frozen=True, kw_only=True):
    """An arithmetic intensity, in FLOP per byte."""

    intensity: Intensity


class Roof(Claim, frozen=True, kw_only=True):
    """A memory roof: bandwidth x intensity = rate."""

    bandwidth: ByteRate
    intensity: Intensity
    rate: FlopRate


class Performance(Record, frozen=True, kw_only=True):
    """Figures of the kernel over all its calls. `own_roof` is the rate reached over the lower of `memory_roof` and
    peak."""

    calls: Counted | None = None
    total: TimeClaim | None = None
    per_call: TimeClaim | None = None
    computing: Computing | None = None
    moving: Moving | None = None
    intensity: IntensityClaim | None = None
    memory_roof: Roof | None = None
    own_roof: ShareClaim | None = None


class BoundClaim(Claim, frozen=True, kw_only=True):
    """What limits the kernel or, if `denied`, what does not; `counters` are hardware counters that it is based on."""

    bound: Literal["memory", "compute", "launch", "instruction latency", "occupancy", "cache"]
    denied: bool = False
    counters: tuple[Name, ...] = ()


class Member(Record, frozen=True, kw_only=True):
    """A kernel within a row. `nature` is what it really does; found by its name if not given."""

    name: Name
    calls: Count
    time: Time | None = None
    nature: Nature | None = None


class ReportedRow(Record, frozen=True, kw_only=True):
    """A row of a table of times. `family` is its name in a profile, `nature` what the report says it does."""

    name: Name
    time: Time
    calls: Count | None = None
    percent: Percent | None = None
    family: Line = ""
    nature: Nature | None = None
    members: tuple[Member, ...] = ()


class ReportedTable(Record, frozen=True, kw_only=True):
    """A table of times; `total` and `calls` are the report's sums."""

    rows: tuple[ReportedRow, ...]
    total: TimeClaim | None = None
    calls: Counted | None = None


class Ratio(Claim, frozen=True, kw_only=True):
    """A ratio: top / bottom = ratio. `word` is the report's word for it."""

    top: Amount
    bottom: Amount
    ratio: Factor
    word: Literal["", "slower", "faster"] = ""


class SpeedClaim(Claim, frozen=True, kw_only=True):
    """How fast the whole program is. At least one of `nodes` and `evaluations` is given.

    nodes         of a search; a benchmark of the network alone counts each evaluation as a node
    evaluations   sequences that pass the network
    cached        share of the nodes that need no evaluation: answered by a cache, or by the rules of the game
    """

    nodes: Nodes | None = None
    evaluations: Evaluations | None = None
    cached: Percent | None = None


class GainPartsClaim(Claim, frozen=True, kw_only=True):
    """A gain explained by parts. `share` is the part of the whole time that they speed up, if it is not all."""

    whole: Percent
    parts: tuple[Percent, ...]
    share: Percent | None = None


class Speedup(Claim, frozen=True, kw_only=True):
    """A gain `overall` from a gain `alone` on a `share` of the time; without `alone` that share takes no time."""

    share: Percent
    overall: Percent
    alone: Percent | None = None


class TileSize(Claim, frozen=True, kw_only=True):
    """Tiles, each by its sizes in elements, and the bytes that the report gives for all of them."""

    tiles: tuple[tuple[Positive, ...], ...]
    dtype: Dtype
    size: ChipSize


class Expectation(Claim, frozen=True, kw_only=True):
    """A statement that only a hardware counter can prove, and the counters that were read."""

    what: Name
    value: Percent
    counters: tuple[Name, ...] = ()


class Recommendation(Claim, frozen=True, kw_only=True):
    """A promised gain. `on` is a row of the table, `alone` the gain of that row, `evidence` the supporting
    measurement."""

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
    speeds: tuple[SpeedClaim, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    gains: tuple[GainPartsClaim, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    sizes: tuple[TileSize, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()

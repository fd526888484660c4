"""Occupancy as text: a summary line, what a kernel uses, what each resource allows, and where occupancy changes.

Also as one JSON object with units in the keys:

name, arch          '' if the kernel is given by numbers
resources           vgprs_per_lane, agprs_per_lane, sgprs_per_wave, lds_bytes_per_workgroup,
                    threads_per_workgroup, wave_size_lanes, wgp_mode (null if there are no WGPs);
                    reserved_vgprs_per_lane and reserved_sgprs_per_wave of a compiled kernel's descriptor, else 0.
                    `raise` and `staircases` leave these out: with other settings a compiler would not reserve them
allocated           in the hardware's granules: vgprs_per_lane (with the AGPRs if both share a file),
                    sgprs_per_wave (with the trap handler's), lds_bytes_per_workgroup
holds               resources of the unit that shares LDS: block ('CU' or 'WGP'), simds, vgprs_per_simd_lane,
                    vgpr_granule, sgprs_per_simd (null if they limit nothing), lds_bytes,
                    lds_bytes_per_workgroup_most, lds_granule_bytes, workgroups_most (of more than one wave)
occupancy           waves_per_simd (as compilers count), whole_waves_per_simd (of whole workgroups, which the hardware
                    runs), max_waves_per_simd, workgroups_per_block, waves_per_workgroup, limiters, fits
limits_waves_per_simd   what each resource alone would allow: vgprs, lds, sgprs, workgroups (barriers), slots
raise               one_wave_per_simd and one_workgroup_per_block, each null if no more is possible. ways: a
                    list of ways, each a list of savings that are needed together (resource, fewer, value);
                    threads_per_workgroup: other sizes, if no saving suffices; waves_per_simd_after and
                    whole_waves_per_simd_after: null if nothing helps
staircases          vgprs_per_lane and lds_bytes_per_workgroup: steps of first, last, waves_per_simd,
                    whole_waves_per_simd, with the other resources as they are
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.headroom import Raise, compute_headroom, compute_staircase
from pytest_attnperf.codeobject.occupancy import Resources, block_of, compute_allocation, occupancy_with
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.wide_tables import Column, Table, plain_table, render_terminal_tables

PLOT_COLUMNS = 64
"""Columns of a plot; 69 with the axis. It divides the most VGPRs (256) and LDS (64 KiB, 160 KiB) evenly."""

TICKS = 4
"""Number of labels under a plot, at equal distances; the last one is at its right edge."""

RESOURCE_NAMES = {
    "vgprs": "VGPRs",
    "sgprs": "SGPRs",
    "lds": "LDS",
    "workgroups": "barriers",
    "slots": "wave slots",
}
"""Name in `Occupancy.limits` -> printed name."""

SAVED = {
    "vgprs": ("VGPR", "VGPRs"),
    "agprs": ("AGPR", "AGPRs"),
    "sgprs": ("SGPR", "SGPRs"),
    "lds_bytes": ("byte of LDS", "bytes of LDS"),
}
"""Resource that can be saved -> its singular and plural."""


@dataclass(frozen=True)
class UseRow:
    """What a kernel asks for of one resource, and what the hardware allocates for it, as text with units."""

    resource: str
    asks: str
    gets: str


@dataclass(frozen=True)
class LimitRow:
    """The occupancy that one resource allows, as text with units.

    holds            amount in a CU, WGP or SIMD
    takes            amount that a wave or a workgroup takes
    allows           number of waves or workgroups that fit
    waves_per_simd   occupancy that this allows, from `Occupancy.limits`
    binds            whether it limits the kernel
    """

    resource: str
    holds: str
    takes: str
    allows: str
    waves_per_simd: int
    binds: bool


@dataclass(frozen=True)
class OverviewRow:
    """One of several compiled kernels. `vgprs` and `agprs` are per lane, `sgprs` per wave, `lds_bytes` and `threads`
    per workgroup."""

    name: str
    arch: str
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    threads: int
    occupancy: Occupancy


@dataclass(frozen=True)
class PlotInk:
    """Characters of a plot: its steps, `whole` for whole workgroups, `point` for the kernel, and axes."""

    flat: str
    down: str
    upper: str
    lower: str
    whole: str
    point: str
    axis: str
    corner: str


UNICODE = PlotInk("─", "│", "┐", "└", "·", "●", "│", "└")
ASCII = PlotInk("-", "|", "+", "+", ".", "o", "|", "+")


class PlottedStair(Protocol):
    """A step of a plot: the occupancy for values of one resource from `first` to `last`."""

    @property
    def first(self) -> int: ...  # noqa: D102
    @property
    def last(self) -> int: ...  # noqa: D102
    @property
    def waves_per_simd(self) -> int: ...  # noqa: D102
    @property
    def whole_waves_per_simd(self) -> float: ...  # noqa: D102


class PrintedSaving(Protocol):
    """A saving: `fewer` of one resource, which leaves at most `value`."""

    @property
    def resource(self) -> str: ...  # noqa: D102
    @property
    def fewer(self) -> int: ...  # noqa: D102
    @property
    def value(self) -> int: ...  # noqa: D102


def choose_ink(encoding: str | None) -> PlotInk:
    """Returns the characters for plots: UNICODE if `encoding` can show them, ASCII if not or if it is unknown."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def describe_occupancy(arch: str, found: Occupancy) -> str:
    """Returns a summary: 'gfx942: 5 of 8 waves per SIMD, limited by VGPRs; 5 whole workgroups of 4 waves per CU'.

    If whole workgroups make fewer waves than the compiler counts, the summary says that too. If not one workgroup fits,
    it says that and the resources at fault."""
    limited = f"limited by {join_limiters(found)}" if found.limiters else "the most there are"
    if not found.fits:
        return f"{arch}: not one workgroup fits a {found.block}, no launch would succeed: {limited}"
    waves = f"{arch}: {found.waves_per_simd} of {found.max_waves_per_simd} waves per SIMD, {limited}"
    whole = f"{format_count(found.workgroups, 'whole workgroup')} of {format_count(found.waves_per_workgroup, 'wave')}"
    fewer = found.whole_waves_per_simd < found.waves_per_simd
    average = f", which is {found.whole_waves_per_simd:g} waves per SIMD" if fewer else ""
    return f"{waves}; {whole} per {found.block}{average}"


def join_limiters(found: Occupancy) -> str:
    """Returns the names of the resources that limit occupancy as text: 'VGPRs and LDS'; '' if none does."""
    return " and ".join(RESOURCE_NAMES[name] for name in found.limiters)


def render_use_table(rows: Sequence[UseRow]) -> str:
    """Renders a text table of what a workgroup asks for and what the hardware allocates, one line per resource."""
    cells = [(row.resource, row.asks, row.gets) for row in rows]
    return plain_table(("a workgroup", "asks for", "is given"), cells, ("left", "left", "left"))


def render_limit_table(rows: Sequence[LimitRow], block: str) -> str:
    """Renders a text table of what a `block` ('CU' or 'WGP') holds of each resource and how many waves that
    allows. '<- binds' marks the resources that limit occupancy."""
    headers = (f"a {block} holds", "", "taken", "allows", "waves/SIMD", "")
    aligns = ("left", "right", "right", "right", "right", "left")
    cells = [
        (row.resource, row.holds, row.takes, row.allows, str(row.waves_per_simd), "<- binds" if row.binds else "")
        for row in rows
    ]
    kept = len(headers) if any(row.binds for row in rows) else len(headers) - 1
    return plain_table(headers[:kept], [line[:kept] for line in cells], aligns[:kept])


def render_savings(goal: str, ways: Sequence[Sequence[PrintedSaving]]) -> list[str]:
    """Returns 'GOAL: 8 VGPRs fewer (at most 128)' for a single way; for several, 'GOAL:' and then an indented line for
    each, with 'or' from the second on.

    Each of `ways` reaches the goal alone, by all of its savings together."""
    texts = [" and ".join(_format_saving(saving) for saving in way) for way in ways]
    if len(texts) == 1:
        return [f"{goal}: {texts[0]}"]
    return [f"{goal}:", *(f"  {'or ' if index else ''}{text}" for index, text in enumerate(texts))]


def format_sizes(threads: Sequence[int]) -> str:
    """Formats sizes of workgroups: (512, 1024) -> 'workgroups of 512 or 1,024 threads'."""
    return f"workgroups of {' or '.join(f'{size:,}' for size in threads)} threads"


def format_count(count: int, what: str) -> str:
    """Formats a count with its noun `what`, which gets an s unless the count is 1: '1 wave', '2,048 bytes'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def render_staircase(unit: str, stairs: Sequence[PlottedStair], at: int, most_waves: int, ink: PlotInk) -> list[str]:
    """Returns lines of a text plot, 69 columns wide. x is the amount of a resource (`unit`), y the waves per SIMD by
    `stairs`.

    `at` is the kernel's amount, which is marked, `most_waves` the top of the y axis. A column stands for an equal share
    of the amounts and shows the occupancy at the largest of them. Dots show the waves of whole workgroups, rounded
    down, if they are fewer than the compiler counts.
    """
    top = stairs[-1].last
    width = -(-top // PLOT_COLUMNS)
    shown = [_find_stair(stairs, min((column + 1) * width, top)) for column in range(PLOT_COLUMNS)]
    rows = [[" "] * PLOT_COLUMNS for _ in range(most_waves + 1)]
    for column, stair in enumerate(shown):
        before = shown[max(column - 1, 0)].waves_per_simd
        _draw_step(rows, column, before, stair.waves_per_simd, ink)
        if int(stair.whole_waves_per_simd) < stair.waves_per_simd:
            rows[int(stair.whole_waves_per_simd)][column] = ink.whole
    rows[_find_stair(stairs, at).waves_per_simd][max(-(-at // width) - 1, 0)] = ink.point
    dotted = f", {ink.whole} in whole workgroups" if any(ink.whole in row for row in rows) else ""
    return [
        f"waves per SIMD by {unit}, {ink.point} this kernel ({at:,}){dotted}",
        *(f"{level:>3} {ink.axis}{''.join(rows[level])}".rstrip() for level in range(most_waves, -1, -1)),
        f"    {ink.corner}{ink.flat * PLOT_COLUMNS}",
        " " * 5 + "".join(_tick_labels(top, width)),
    ]


def _draw_step(rows: list[list[str]], column: int, before: int, level: int, ink: PlotInk) -> None:
    if before == level:
        rows[level][column] = ink.flat
        return
    rows[before][column], rows[level][column] = ink.upper, ink.lower
    for between in range(level + 1, before):
        rows[between][column] = ink.down


def _find_stair(stairs: Sequence[PlottedStair], value: int) -> PlottedStair:
    return next((stair for stair in stairs if value <= stair.last), stairs[-1])


def _tick_labels(top: int, width: int) -> Iterator[str]:
    """Yields the labels below a plot, each right-aligned in 16 characters: the largest value of every 16th column.
    `top` is the largest value of the plot, `width` the values that one column stands for."""
    columns = PLOT_COLUMNS // TICKS
    for tick in range(1, TICKS + 1):
        yield f"{min(tick * columns * width, top):>{columns},}"


def _format_saving(saving: PrintedSaving) -> str:
    one, several = SAVED[saving.resource]
    return f"{saving.fewer:,} {one if saving.fewer == 1 else several} fewer (at most {saving.value:,})"


def render_overview_table(rows: Sequence[OverviewRow], width: int) -> str:
    """Renders `make_overview_table` for a terminal of `width` columns."""
    return render_terminal_tables((), [make_overview_table(rows)], width)


def make_overview_table(rows: Sequence[OverviewRow]) -> Table:
    """Returns a table with a row per kernel: what it asks for, waves per SIMD as compilers count them and in whole
    workgroups, and what limits them."""
    headers = ["arch", "VGPRs", "AGPRs", "SGPRs", "LDS B", "threads", "waves", "whole", "limited by"]
    body = tuple(
        (
            one_line(row.name),
            row.arch,
            f"{row.vgprs}",
            f"{row.agprs}",
            f"{row.sgprs}",
            f"{row.lds_bytes:,}",
            f"{row.threads}",
            f"{row.occupancy.waves_per_simd} of {row.occupancy.max_waves_per_simd}",
            f"{row.occupancy.whole_waves_per_simd:g}",
            ", ".join(RESOURCE_NAMES[name] for name in row.occupancy.limiters) or "nothing",
        )
        for row in rows
    )
    columns = tuple(Column(name, "left" if name in ("arch", "limited by") else "right") for name in headers)
    legend = ("waves: per SIMD, as compilers count them; whole: of whole workgroups only",)
    return Table("", "kernel", columns, body, legend)


def occupancy_json(arch: str, asked: Resources, name: str = "") -> dict[str, object]:
    """Returns a JSON object about a kernel: name, arch, resources, allocated, holds (of a CU or WGP), occupancy,
    limits_waves_per_simd, raise (what to save for one more wave or workgroup), staircases (occupancy by VGPRs and LDS).

    Raises CodeObjectError for resources that no kernel of the architecture can have."""
    found, room = occupancy_with(arch, asked), compute_headroom(arch, asked.unreserved)
    given = compute_allocation(limits_of(arch), asked)
    return {
        "name": name,
        "arch": arch,
        "resources": _resources_json(arch, asked),
        "allocated": {
            "vgprs_per_lane": given.vgprs,
            "sgprs_per_wave": given.sgprs,
            "lds_bytes_per_workgroup": given.lds_bytes,
        },
        "holds": _block_json(arch, asked),
        "occupancy": _waves_json(found),
        "limits_waves_per_simd": dict(found.limits),
        "raise": {
            "one_wave_per_simd": _raise_json(room.wave),
            "one_workgroup_per_block": _raise_json(room.workgroup),
        },
        "staircases": {
            "vgprs_per_lane": [asdict(stair) for stair in compute_staircase(arch, asked.unreserved, "vgprs")],
            "lds_bytes_per_workgroup": [
                asdict(stair) for stair in compute_staircase(arch, asked.unreserved, "lds_bytes")
            ],
        },
    }


def _resources_json(arch: str, asked: Resources) -> dict[str, object]:
    limits = limits_of(arch)
    return {
        "vgprs_per_lane": asked.vgprs,
        "agprs_per_lane": asked.agprs,
        "sgprs_per_wave": asked.sgprs,
        "lds_bytes_per_workgroup": asked.lds_bytes,
        "threads_per_workgroup": asked.threads,
        "wave_size_lanes": block_of(limits, asked).wave_size,
        "reserved_vgprs_per_lane": asked.reserved_vgprs,
        "reserved_sgprs_per_wave": asked.reserved_sgprs,
        "wgp_mode": asked.wgp_mode if limits.wgp else None,
    }


def _block_json(arch: str, asked: Resources) -> dict[str, object]:
    limits = limits_of(arch)
    block = block_of(limits, asked)
    return {
        "block": block.name,
        "simds": block.simds,
        "vgprs_per_simd_lane": block.vgprs_per_simd,
        "vgpr_granule": block.vgpr_granule,
        "sgprs_per_simd": limits.sgprs_per_simd or None,
        "lds_bytes": block.lds_bytes,
        "lds_bytes_per_workgroup_most": limits.lds_per_workgroup_bytes,
        "lds_granule_bytes": limits.lds_hardware_granule_bytes,
        "workgroups_most": block.max_workgroups,
    }


def _waves_json(found: Occupancy) -> dict[str, object]:
    return {
        "waves_per_simd": found.waves_per_simd,
        "whole_waves_per_simd": found.whole_waves_per_simd,
        "max_waves_per_simd": found.max_waves_per_simd,
        "workgroups_per_block": found.workgroups,
        "waves_per_workgroup": found.waves_per_workgroup,
        "limiters": list(found.limiters),
        "fits": found.fits,
    }


def _raise_json(needed: Raise | None) -> dict[str, object] | None:
    if needed is None:
        return None
    return {
        "ways": [[asdict(saving) for saving in way] for way in needed.ways],
        "threads_per_workgroup": list(needed.threads),
        "waves_per_simd_after": needed.after.waves_per_simd if needed.after else None,
        "whole_waves_per_simd_after": needed.after.whole_waves_per_simd if needed.after else None,
    }

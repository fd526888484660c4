"""What would let more of a kernel run at once: how much less of each resource, and where the steps of occupancy lie.

Nothing here knows the formula: occupancy is recomputed at every value that is tried, and it never falls when a kernel
asks for less. So the largest value that suffices is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.records.code import Occupancy

Reaches = Callable[[Occupancy], bool]


@dataclass(frozen=True)
class ResourceSaving:
    """So many fewer of one resource, down to `value`: 'vgprs', 'agprs', 'sgprs' or 'lds_bytes' of `Resources`."""

    resource: str
    fewer: int
    value: int


@dataclass(frozen=True)
class Raise:
    """What one more wave per SIMD, or one more whole workgroup per block, takes.

    ways      each enough by itself: savings that are needed together, with every other resource as it is; with less
              of any of them saved it does not suffice. Empty where no saving does: the workgroup's size binds
    threads   nearest smaller and larger workgroup that has the most waves with the same registers and LDS; only where
              no saving does
    after     occupancy with the first way, or the first of `threads`; None where nothing helps
    """

    ways: tuple[tuple[ResourceSaving, ...], ...]
    threads: tuple[int, ...]
    after: Occupancy | None


@dataclass(frozen=True)
class Headroom:
    """How a kernel's occupancy can be raised.

    wave        by one wave per SIMD in the compiler's form; None at full occupancy
    workgroup   by one whole workgroup per block; None where all wave slots are taken
    """

    wave: Raise | None
    workgroup: Raise | None


@dataclass(frozen=True)
class OccupancyStair:
    """Occupancy for every value of one resource from `first` to `last`, the others as they are."""

    first: int
    last: int
    waves_per_simd: int
    whole_waves_per_simd: float


def compute_headroom(arch: str, asked: Resources) -> Headroom:
    """What would raise the occupancy of a kernel. Raises CodeObjectError as `occupancy` does."""
    now = occupancy_with(arch, asked)
    wave = workgroup = None
    if now.waves_per_simd < now.max_waves_per_simd:
        more_waves = now.waves_per_simd + 1
        wave = _find_raise(arch, asked, lambda new: new.waves_per_simd >= more_waves)
    if now.whole_waves_per_simd < now.max_waves_per_simd:
        more_waves_on_average = now.whole_waves_per_simd
        workgroup = _find_raise(arch, asked, lambda new: new.whole_waves_per_simd > more_waves_on_average)
    return Headroom(wave, workgroup)


def compute_staircase(arch: str, asked: Resources, resource: str) -> tuple[OccupancyStair, ...]:
    """Occupancy over the range of 'vgprs' or 'lds_bytes', in ascending order.

    VGPRs go from 1 to what one wave can address. LDS goes from 0 to what one workgroup can have, or to what the kernel
    asks for, where that is more. Raises CodeObjectError as `occupancy` does.
    """
    limits = limits_of(arch)
    first, last = {
        "vgprs": (1, limits.addressable_vgprs),
        "lds_bytes": (0, max(limits.lds_per_workgroup_bytes, asked.lds_bytes)),
    }[resource]
    return tuple(_list_stairs(arch, asked, resource, first, last))


def _list_stairs(arch: str, asked: Resources, resource: str, first: int, last: int) -> Iterator[OccupancyStair]:
    while first <= last:
        stair = _find_stair(arch, asked, resource, first, last)
        yield stair
        first = stair.last + 1


def _find_stair(arch: str, asked: Resources, resource: str, first: int, last: int) -> OccupancyStair:
    def compute_figures(value: int) -> tuple[int, float]:
        found = occupancy_with(arch, _replace_resource(asked, resource, value))
        return found.waves_per_simd, found.whole_waves_per_simd

    here = compute_figures(first)
    return OccupancyStair(first, _find_largest(first, last, lambda value: compute_figures(value) == here), *here)


def _find_raise(arch: str, asked: Resources, reaches: Reaches) -> Raise:
    """What it takes until `reaches` holds: occupancy is the least of what each resource allows."""

    def is_enough(resources: Resources) -> bool:
        return reaches(occupancy_with(arch, resources))

    least = replace(asked, vgprs=min(asked.vgprs, 1), agprs=0, sgprs=0, lds_bytes=0)
    if not is_enough(least):
        sizes = _workgroup_sizes(arch, asked, reaches)
        after = occupancy_with(arch, replace(asked, threads=sizes[0])) if sizes else None
        return Raise((), sizes, after)
    freed, others = asked, []
    for resource in ("sgprs", "lds_bytes"):
        saving = _find_saving(asked, resource, least, is_enough)
        freed = _replace_resource(freed, resource, saving.value)
        others += [saving] if saving.fewer else []
    ways = [(*savings, *others) for savings in _register_ways(freed, is_enough)]
    return Raise(tuple(ways), (), occupancy_with(arch, apply_savings(asked, ways[0])))


def apply_savings(asked: Resources, savings: tuple[ResourceSaving, ...]) -> Resources:
    """The resources of a kernel after these savings."""
    for saving in savings:
        asked = _replace_resource(asked, saving.resource, saving.value)
    return asked


def _register_ways(freed: Resources, suffices: Callable[[Resources], bool]) -> list[tuple[ResourceSaving, ...]]:
    """VGPRs alone, AGPRs alone, else both; one empty way where registers do not bind."""
    if suffices(freed):
        return [()]
    alone: list[tuple[ResourceSaving, ...]] = []
    for resource, fewest in (("vgprs", min(freed.vgprs, 1)), ("agprs", 0)):
        if suffices(_replace_resource(freed, resource, fewest)):
            alone.append((_find_saving(freed, resource, _replace_resource(freed, resource, fewest), suffices),))
    if alone:
        return alone
    vgprs = _find_saving(freed, "vgprs", replace(freed, vgprs=min(freed.vgprs, 1), agprs=0), suffices)
    kept = _replace_resource(freed, "vgprs", vgprs.value)
    agprs = _find_saving(kept, "agprs", _replace_resource(kept, "agprs", 0), suffices)
    return [tuple(saving for saving in (vgprs, agprs) if saving.fewer)]


def _find_saving(
    asked: Resources, resource: str, least: Resources, suffices: Callable[[Resources], bool]
) -> ResourceSaving:
    """How much of one resource must go where the others are those of `least`, which suffices."""
    before: int = getattr(asked, resource)
    fewest: int = getattr(least, resource)
    value = _find_largest(fewest, before, lambda value: suffices(_replace_resource(least, resource, value)))
    return ResourceSaving(resource, before - value, value)


def _workgroup_sizes(arch: str, asked: Resources, reaches: Reaches) -> tuple[int, ...]:
    """Nearest smaller and larger of the workgroups, in whole waves, that have the most waves of all."""
    limits = limits_of(arch)
    wave = asked.wave_size or limits.wave_sizes[0]
    sizes = range(wave, limits.max_threads + 1, wave)
    found = {size: occupancy_with(arch, replace(asked, threads=size)) for size in sizes}
    enough = {size: new.whole_waves_per_simd for size, new in found.items() if reaches(new)}
    best = [size for size, waves in enough.items() if waves == max(enough.values())]
    smaller = [size for size in best if size < asked.threads][-1:]
    larger = [size for size in best if size > asked.threads][:1]
    return (*smaller, *larger)


def _find_largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest value that holds, of a condition that holds at `low` and, once it fails, fails for all above."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _replace_resource(asked: Resources, resource: str, value: int) -> Resources:
    if resource == "vgprs":
        return replace(asked, vgprs=value)
    if resource == "agprs":
        return replace(asked, agprs=value)
    if resource == "sgprs":
        return replace(asked, sgprs=value)
    return replace(asked, lds_bytes=value)

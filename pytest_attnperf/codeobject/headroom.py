"""Computes how to raise a kernel's occupancy: the needed saving of each resource, and the steps of occupancy.

This module does not use the formula: it recomputes occupancy at every tried value. Occupancy never falls when a kernel
needs less, so bisection finds the largest sufficient value.
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
    """A reduction of one resource to `value`: 'vgprs', 'agprs', 'sgprs' or 'lds_bytes' of `Resources`."""

    resource: str
    fewer: int
    value: int


@dataclass(frozen=True)
class Raise:
    """How to get one more wave per SIMD, or one more whole workgroup per block.

    ways      alternatives; each is a set of savings that are all needed and minimal, with other resources unchanged.
              Empty if no saving helps, because the workgroup's size is the limit
    threads   nearest smaller and larger workgroup that has the most waves with the same registers and LDS; only if
              no saving helps
    after     occupancy with the first way, or the first of `threads`; None if nothing helps
    """

    ways: tuple[tuple[ResourceSaving, ...], ...]
    threads: tuple[int, ...]
    after: Occupancy | None


@dataclass(frozen=True)
class Headroom:
    """How a kernel's occupancy can be raised.

    wave        for one more wave per SIMD in the compiler's form; None at full occupancy
    workgroup   for one more whole workgroup per block; None if all wave slots are used
    """

    wave: Raise | None
    workgroup: Raise | None


@dataclass(frozen=True)
class OccupancyStair:
    """The constant occupancy for one resource's values from `first` to `last`, other resources unchanged."""

    first: int
    last: int
    waves_per_simd: int
    whole_waves_per_simd: float


def compute_headroom(arch: str, asked: Resources) -> Headroom:
    """Returns how many registers and LDS bytes the kernel must save for one more wave per SIMD, and for one more
    workgroup; None for either if the SIMDs are full. Raises CodeObjectError as `occupancy_with` does."""
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
    """Returns the occupancy over the range of 'vgprs' or 'lds_bytes', in ascending order.

    VGPRs go from 1 to the most that one wave can address. LDS goes from 0 to the most of one workgroup, or to the
    kernel's use if that is more. Raises CodeObjectError as `occupancy_with` does.
    """
    limits = limits_of(arch)
    first, last = {
        "vgprs": (1, limits.addressable_vgprs),
        "lds_bytes": (0, max(limits.lds_per_workgroup_bytes, asked.lds_bytes)),
    }[resource]
    return tuple(_list_stairs(arch, asked, resource, first, last))


def compute_size_stairs(arch: str, asked: Resources) -> tuple[OccupancyStair, ...]:
    """Returns the occupancy over the threads of a workgroup, from 1 to the most there can be, in ascending order.
    Occupancy may fall and rise with them. Raises CodeObjectError as `occupancy_with` does."""
    limits = limits_of(arch)
    wave = asked.wave_size or limits.wave_sizes[0]
    stairs: list[OccupancyStair] = []
    for size in range(wave, limits.max_threads + 1, wave):
        found = occupancy_with(arch, replace(asked, threads=size))
        stair = OccupancyStair(size - wave + 1, size, found.waves_per_simd, found.whole_waves_per_simd)
        if stairs and replace(stair, first=stairs[-1].first, last=stairs[-1].last) == stairs[-1]:
            stairs[-1] = replace(stairs[-1], last=size)
        else:
            stairs.append(stair)
    return tuple(stairs)


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
    """Returns the alternative savings of registers and LDS after which `reaches` accepts the occupancy; if no saving
    suffices, the workgroup sizes that do."""

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
    """Returns the resources with each saved one set to its lower value."""
    for saving in savings:
        asked = _replace_resource(asked, saving.resource, saving.value)
    return asked


def _register_ways(freed: Resources, suffices: Callable[[Resources], bool]) -> list[tuple[ResourceSaving, ...]]:
    """Returns the alternatives for saving registers until `suffices` is true: VGPRs alone and AGPRs alone, those that
    suffice, else both together; one empty way if registers are not the limit."""
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
    """Returns the smallest saving of one resource with which the kernel suffices, if all others are as low as in
    `least`. `least` itself must suffice."""
    before: int = getattr(asked, resource)
    fewest: int = getattr(least, resource)
    value = _find_largest(fewest, before, lambda value: suffices(_replace_resource(least, resource, value)))
    return ResourceSaving(resource, before - value, value)


def _workgroup_sizes(arch: str, asked: Resources, reaches: Reaches) -> tuple[int, ...]:
    """Returns the workgroup sizes to suggest: of those in whole waves whose occupancy `reaches` accepts, and that have
    the most waves, the nearest below and the nearest above the kernel's. Either may be missing."""
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
    """Returns the largest value from `low` to `high` for which `holds` is true, by bisection: it must be true at `low`,
    and false from some value on."""
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

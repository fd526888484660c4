"""Finds what became worse, better or different from the stored kernel. Pure; the policy decides which findings fail.

Occupancy is compared both as the compiler states it and in whole workgroups, as the hardware runs it; VGPRs as
allocated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_attnperf.codeobject.arch import ARCHS
from pytest_attnperf.codeobject.instructions import width_bytes
from pytest_attnperf.codeobject.occupancy import block_of, compute_allocation, resources_of
from pytest_attnperf.gate.code.causes import instruction_kind, list_count_changes
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.rules import (
    MATRIX,
    Compared,
    Said,
    format_count,
    is_matrix,
    join_limiters,
    occupancy_or_note,
)
from pytest_attnperf.records.code import KernelCode, Occupancy

NVIDIA_REGISTER_GRANULE = 8
"""Registers per thread: a warp of 32 is allocated registers by 256 (CUDA's occupancy calculator, 'register allocation
unit size' of compute capabilities 3.0 and later)."""

MOVING = (
    ("global_load", "global load", "global loads"),
    ("global_load_lds", "global load into LDS", "global loads into LDS"),
    ("global_store", "global store", "global stores"),
    ("lds_read", "LDS read", "LDS reads"),
    ("lds_write", "LDS write", "LDS writes"),
)
"""Kinds of instructions that move data of some width, with their singular and plural in sentences."""


def find_regressions(pair: Compared, *, promised: bool) -> Iterator[Said]:
    """Yields findings on what is worse in the new kernel than in the stored one or launched differently, and notes
    (texts) on what was not compared.

    For a kernel of another compiler, only a promise of matrix instructions that was dropped, and the launch size.
    `find_broken_rules` reports spills, scratch and, if `promised` (now or when stored), absent matrix instructions.
    """
    yield from _compare_promise(pair)
    if not pair.is_comparable:
        yield from _compare_launch(pair, [*_size_changes(pair)])
        return
    lds = list(_compare_lds(pair))
    yield from _compare_occupancy(pair)
    yield from _compare_vgprs(pair)
    yield from lds
    yield from _compare_code_size(pair)
    yield from find_worse_instructions(pair, promised=promised)
    said = bool(lds) and not pair.same_machine_code
    yield from _compare_launch(
        pair, [*_size_changes(pair), *_mode_changes(pair), *([] if said else _dynamic_lds_changes(pair))]
    )


def list_improvements(pair: Compared) -> list[str]:
    """Returns what is better in the new kernel than in the stored one, e.g. 'occupancy 2 -> 3'; [] if compilers differ
    and the machine code does, too."""
    if not pair.is_comparable:
        return []
    new, old = pair.new, pair.old
    figures: list[tuple[str, float | None, float | None]] = [
        ("VGPRs", allocated_vgprs(old), allocated_vgprs(new)),
        ("spilled VGPRs", old.vgpr_spills, new.vgpr_spills),
        ("spilled SGPRs", old.sgpr_spills, new.sgpr_spills),
        ("scratch bytes", old.scratch_bytes, new.scratch_bytes),
        ("LDS bytes", old.lds_bytes, new.lds_bytes),
    ]
    found = [f"{name} {before:,} -> {after:,}" for name, before, after in figures if (after or 0) < (before or 0)]
    return [*_list_occupancy_gains(pair), *found]


def list_compiler_differences(pair: Compared) -> list[str]:
    """Returns resource fields that differ between the stored and the new kernel, stored first: 'vgprs 200 -> 208'."""
    old, new = (_compiler_fields(code) for code in (pair.old, pair.new))
    return [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]


def allocated_vgprs(code: KernelCode) -> int:
    """Returns the VGPRs per lane that a wave gets, AGPRs included: those needed or reserved, rounded up."""
    limits = ARCHS.get(code.arch.partition(":")[0])
    if limits is not None:
        return compute_allocation(limits, resources_of(code)).vgprs
    granule = vgpr_granule(code)
    return -(-max(code.unified_vgprs, code.reserved_vgprs, 1) // granule) * granule


def vgpr_granule(code: KernelCode) -> int:
    """Returns the multiple to which a wave's VGPRs are rounded up, by architecture and wave size; 1 if unknown."""
    limits = ARCHS.get(code.arch.partition(":")[0])
    if limits is not None:
        return block_of(limits, resources_of(code)).vgpr_granule
    return NVIDIA_REGISTER_GRANULE if code.arch.startswith("sm_") else 1


def _compare_promise(pair: Compared) -> Iterator[Said]:
    if pair.stored.matrix and not pair.now.matrix and pair.new.instructions.get(MATRIX):
        text = "matrix instructions are no longer promised: without the promise, a kernel without them can be recorded"
        yield pair.make_finding("matrix", "promised", "not promised", text, warns=True)


def _compare_occupancy(pair: Compared) -> Iterator[Said]:
    old, new = occupancy_or_note(pair.old), occupancy_or_note(pair.new)
    if isinstance(old, str) or isinstance(new, str):
        if isinstance(old, str) and not isinstance(new, str):
            yield f"not compared: the stored kernel's {old.removeprefix('not checked: ')}"
        return
    if not new.fits:
        return
    most = f"of {new.max_waves_per_simd} waves per SIMD"
    limits = f"limited by {join_limiters(old.limiters)}, now by {join_limiters(new.limiters)}"
    whole = (
        f"whole workgroups per {new.block} {old.workgroups} -> {new.workgroups} "
        f"({old.whole_waves_per_simd:g} -> {new.whole_waves_per_simd:g} waves per SIMD)"
    )
    if new.waves_per_simd < old.waves_per_simd:
        before, after = (f"{format_count(side.waves_per_simd, 'wave')} per SIMD" for side in (old, new))
        text = f"occupancy fell from {old.waves_per_simd} to {new.waves_per_simd} {most} ({limits}); {whole}"
    elif new.whole_waves_per_simd < old.whole_waves_per_simd:
        before, after = (f"{side.whole_waves_per_simd:g} waves per SIMD in whole workgroups" for side in (old, new))
        text = (
            f"occupancy looks the same in the compiler's form ({old.waves_per_simd} -> {new.waves_per_simd} {most}), "
            f"but the hardware runs whole workgroups: {whole}; {limits}"
        )
    else:
        return
    yield pair.make_finding("occupancy", before, after, text, _any_class)


def _list_occupancy_gains(pair: Compared) -> list[str]:
    old, new = occupancy_or_note(pair.old), occupancy_or_note(pair.new)
    if isinstance(old, str) or isinstance(new, str):
        return []
    if new.waves_per_simd > old.waves_per_simd:
        return [f"occupancy {old.waves_per_simd} -> {new.waves_per_simd}"]
    if new.whole_waves_per_simd > old.whole_waves_per_simd:
        return [f"occupancy in whole workgroups {old.whole_waves_per_simd:g} -> {new.whole_waves_per_simd:g}"]
    return []


def _compare_vgprs(pair: Compared) -> Iterator[Said]:
    old, new = pair.old, pair.new
    before, after = allocated_vgprs(old), allocated_vgprs(new)
    if after <= before:
        return
    needed = f"{old.unified_vgprs} -> {new.unified_vgprs} needed"
    if old.reserved_vgprs != new.reserved_vgprs:
        needed += f", {old.reserved_vgprs} -> {new.reserved_vgprs} reserved"
    text = f"VGPRs allocated per lane {before} -> {after} ({needed}, granule {vgpr_granule(new)})"
    yield pair.make_finding("vgprs", format_count(before, "VGPR"), format_count(after, "VGPR"), text, _any_class)


def _compare_lds(pair: Compared) -> Iterator[Said]:
    before, after = pair.old.lds_bytes, pair.new.lds_bytes
    if _has_grown(before, after, pair.policy):
        text = f"LDS per workgroup {before:,} -> {after:,} bytes{_format_growth(before, after)}"
        yield pair.make_finding("lds", format_count(before, "byte"), format_count(after, "byte"), text, _is_in_lds)


def _compare_code_size(pair: Compared) -> Iterator[Said]:
    before, after = pair.old.code_bytes, pair.new.code_bytes
    if _has_grown(before, after, pair.policy):
        text = f"machine code {before:,} -> {after:,} bytes{_format_growth(before, after)}"
        yield pair.make_finding(
            "code_size", format_count(before, "byte"), format_count(after, "byte"), text, _any_class
        )


def _compare_launch(pair: Compared, changes: list[tuple[str, str]]) -> Iterator[Said]:
    if not changes:
        return
    before, after = (", ".join(side) for side in zip(*changes, strict=True))
    same = "the same machine code is " if pair.same_machine_code else ""
    yield pair.make_finding("launch", before, after, f"{same}launched differently: {before} -> {after}")


def _size_changes(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.workgroup != pair.old.workgroup:
        yield format_count(pair.old.workgroup, "lane"), format_count(pair.new.workgroup, "lane")
    if pair.new.kernarg_bytes != pair.old.kernarg_bytes:
        yield f"{pair.old.kernarg_bytes:,} bytes of arguments", f"{pair.new.kernarg_bytes:,} bytes of arguments"


def _mode_changes(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.wave_size != pair.old.wave_size:
        yield f"wave{pair.old.wave_size}", f"wave{pair.new.wave_size}"
    if pair.new.wgp_mode != pair.old.wgp_mode:
        yield _mode_words(pair.old), _mode_words(pair.new)


def _mode_words(code: KernelCode) -> str:
    return {True: "WGP mode", False: "CU mode", None: "no WGP mode"}[code.wgp_mode]


def _dynamic_lds_changes(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.lds_dynamic_bytes != pair.old.lds_dynamic_bytes:
        yield (
            f"{pair.old.lds_dynamic_bytes:,} bytes of dynamic LDS",
            f"{pair.new.lds_dynamic_bytes:,} bytes of dynamic LDS",
        )


def _compiler_fields(code: KernelCode) -> dict[str, object]:
    found = occupancy_or_note(code)
    return {
        "vgprs": code.vgprs,
        "agprs": code.agprs,
        "allocated vgprs": allocated_vgprs(code),
        "sgprs": code.sgprs,
        "vgpr spills": code.vgpr_spills,
        "sgpr spills": code.sgpr_spills,
        "scratch bytes": code.scratch_bytes,
        "dynamic stack": code.dynamic_stack,
        "LDS bytes": code.lds_bytes,
        "occupancy": found.waves_per_simd if isinstance(found, Occupancy) else "unknown",
        "whole workgroups": found.workgroups if isinstance(found, Occupancy) else "unknown",
        "mode": f"wave{code.wave_size}, {_mode_words(code)}",
        "code bytes": code.code_bytes,
        "instructions": sum(code.instructions.values()) or "unknown",
        "matrix instructions": code.instructions.get(MATRIX, 0) if code.instructions else "unknown",
        "ISA hash": code.isa_hash[:12] or "unknown",
    }


def _has_grown(before: int, after: int, policy: CodePolicy) -> bool:
    return 100 * (after - before) > policy.growth_percent * before and after > before


def _format_growth(before: int, after: int) -> str:
    return f" ({100 * (after / before - 1):+.1f} %)" if before else ""


def _any_class(_: str) -> bool:
    return True


def _is_in_lds(name: str) -> bool:
    return name.startswith("lds_")


def find_worse_instructions(pair: Compared, *, promised: bool) -> Iterator[Said]:
    """Yields findings on lost matrix instructions and on loads that became narrower (fewer bytes per lane).

    Leaves out matrix instructions if `promised`, because `find_broken_rules` reports those. Yields only a note if the
    stored kernel was not decoded, and nothing if the new one was not.
    """
    if pair.old.undecoded or not pair.old.instructions:
        yield f"not compared: instructions (stored: {pair.old.undecoded or 'it was not disassembled'})"
    elif pair.new.instructions and not pair.new.undecoded:
        yield from _compare_matrix(pair, promised)
        for kind, one, several in MOVING:
            yield from _compare_widths(pair, kind, one, several)


def _compare_matrix(pair: Compared, promised: bool) -> Iterator[Said]:
    before, after = (code.instructions.get(MATRIX, 0) for code in (pair.old, pair.new))
    looped, loops = (code.in_loops.get(MATRIX, 0) for code in (pair.old, pair.new))
    if before and not after and not promised:
        text = f"all {before} matrix instructions are gone"
        yield pair.make_finding(
            "matrix", format_count(before, "matrix instruction"), "0 matrix instructions", text, is_matrix
        )
    elif after and loops < looped:
        text = f"matrix instructions inside loops {looped} -> {loops} (in all {before} -> {after})"
        before_text, after_text = (f"{count} matrix instructions in loops" for count in (looped, loops))
        yield pair.make_finding("matrix", before_text, after_text, text, is_matrix, warns=True)


def _compare_widths(pair: Compared, kind: str, one: str, several: str) -> Iterator[Said]:
    """Yields a finding if loads of one `kind` became narrower (bytes per lane); only warns inside loops and for LDS.

    Where some widths are not known, it yields a note instead.

    Code may have moved out of the loop, and LDS widths follow from the tile's layout: another tile changes them in
    either direction.
    """
    tile = f"{kind}_tile"

    def concerns(name: str) -> bool:
        return instruction_kind(name) in (kind, tile)

    for scope, old, new in (
        ("", pair.old.instructions, pair.new.instructions),
        (" inside loops", pair.old.in_loops, pair.new.in_loops),
    ):
        before, after = _count_by_width(old, kind), _count_by_width(new, kind)
        if not _has_narrowed(before, after):
            continue
        changes = ", ".join(list_count_changes(new, old, concerns))
        if any(new.get(name, 0) > old.get(name, 0) for name in (kind, tile)):
            yield f"not compared: widths of {several}{scope}, some of which have no known width ({changes})"
            return
        narrower = [f"{_mean_width(side):.3g} bytes per {one}" for side in (before, after)]
        text = (
            f"{several}{scope} narrowed from {_mean_width(before):.3g} to {_mean_width(after):.3g} bytes per "
            f"lane: {changes}"
        )
        warns = bool(scope) or kind.startswith("lds_")
        yield pair.make_finding("wider_loads", narrower[0], narrower[1], text, concerns, warns=warns)
        return


def _count_by_width(counts: Mapping[str, int], kind: str) -> dict[int, int]:
    """Returns bytes per lane -> number of instructions of a kind ('global_load'), without unknown widths."""
    sized = {width_bytes(name): count for name, count in counts.items() if instruction_kind(name) == kind and count}
    return {width: count for width, count in sized.items() if width is not None}


def _mean_width(counts: Mapping[int, int]) -> float:
    return sum(width * count for width, count in counts.items()) / sum(counts.values())


def _has_narrowed(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Returns whether the mean width (bytes per lane) fell, and some width above the narrowest one now has fewer
    instructions. False if either side is empty."""
    if not before or not after or _mean_width(after) >= _mean_width(before):
        return False
    return any(after.get(width, 0) < count for width, count in before.items() if width > min(after))

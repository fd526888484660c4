"""What became worse, better or other than the stored kernel. Pure; the policy says what of it fails.

Occupancy is compared in the compiler's form and in whole workgroups, which the hardware runs; VGPRs by what is
allocated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_attnperf.codeobject.arch import ARCHS
from pytest_attnperf.codeobject.instructions import width_bytes
from pytest_attnperf.codeobject.occupancy import allocation, block_of, resources_of
from pytest_attnperf.gate.code.causes import counts_changed, kind_of
from pytest_attnperf.gate.code.policy import CodePolicy
from pytest_attnperf.gate.code.rules import MATRIX, Compared, Said, counted, in_words, is_matrix, occupancy_or_note
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
"""Kinds of instructions that move data of some width, and what a sentence calls one and several of them."""


def worse(pair: Compared, *, promised: bool) -> Iterator[Said]:
    """What is worse than stored, and other in how it is launched: findings, and notes of what could not be compared.

    Of a kernel that another compiler made, only what no compiler may change. Spills, scratch and promised matrix
    instructions (`promised`, by either side) are rules of their own and not repeated.
    """
    yield from _promise(pair)
    if not pair.comparable:
        yield from _launch(pair, [*_size_and_signature(pair)])
        return
    lds = list(_lds(pair))
    yield from _occupancy(pair)
    yield from _vgprs(pair)
    yield from lds
    yield from _code_size(pair)
    yield from worse_instructions(pair, promised=promised)
    said = bool(lds) and not pair.same_machine_code
    yield from _launch(pair, [*_size_and_signature(pair), *_mode(pair), *([] if said else _dynamic_lds(pair))])


def better(pair: Compared) -> list[str]:
    """What is better than stored, where one compiler made both: 'occupancy 2 -> 3'."""
    if not pair.comparable:
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
    return [*_occupancy_gained(pair), *found]


def incomparable(pair: Compared) -> list[str]:
    """Fields that another compiler may change, and that differ: 'vgprs 200 -> 208'."""
    old, new = (_of_the_compiler(code) for code in (pair.old, pair.new))
    return [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]


def allocated_vgprs(code: KernelCode) -> int:
    """VGPRs per lane that a wave is given, AGPRs included: what it needs or reserves, rounded up to the granule."""
    limits = ARCHS.get(code.arch.partition(":")[0])
    if limits is not None:
        return allocation(limits, resources_of(code)).vgprs
    granule = vgpr_granule(code)
    return -(-max(code.unified_vgprs, code.reserved_vgprs, 1) // granule) * granule


def vgpr_granule(code: KernelCode) -> int:
    """What the VGPRs of a wave are rounded up to on its architecture, in its wave size; 1 where that is not known."""
    limits = ARCHS.get(code.arch.partition(":")[0])
    if limits is not None:
        return block_of(limits, resources_of(code)).vgpr_granule
    return NVIDIA_REGISTER_GRANULE if code.arch.startswith("sm_") else 1


def _promise(pair: Compared) -> Iterator[Said]:
    if pair.stored.matrix and not pair.now.matrix and pair.new.instructions.get(MATRIX):
        text = "matrix instructions are no longer promised: without the promise a kernel that lost them can be recorded"
        yield pair.finding("matrix", "promised", "not promised", text, warns=True)


def _occupancy(pair: Compared) -> Iterator[Said]:
    old, new = occupancy_or_note(pair.old), occupancy_or_note(pair.new)
    if isinstance(old, str) or isinstance(new, str):
        if isinstance(old, str) and not isinstance(new, str):
            yield f"not compared: the stored kernel's {old.removeprefix('not checked: ')}"
        return
    if not new.fits:
        return
    most = f"of {new.max_waves_per_simd} waves per SIMD"
    limits = f"limited by {in_words(old.limiters)}, now by {in_words(new.limiters)}"
    whole = (
        f"whole workgroups per {new.block} {old.workgroups} -> {new.workgroups} "
        f"({old.whole_waves_per_simd:g} -> {new.whole_waves_per_simd:g} waves per SIMD)"
    )
    if new.waves_per_simd < old.waves_per_simd:
        before, after = (f"{counted(side.waves_per_simd, 'wave')} per SIMD" for side in (old, new))
        text = f"occupancy fell from {old.waves_per_simd} to {new.waves_per_simd} {most} ({limits}); {whole}"
    elif new.whole_waves_per_simd < old.whole_waves_per_simd:
        before, after = (f"{side.whole_waves_per_simd:g} waves per SIMD in whole workgroups" for side in (old, new))
        text = (
            f"occupancy looks the same in the compiler's form ({old.waves_per_simd} -> {new.waves_per_simd} {most}), "
            f"but the hardware runs whole workgroups: {whole}; {limits}"
        )
    else:
        return
    yield pair.finding("occupancy", before, after, text, _any_class)


def _occupancy_gained(pair: Compared) -> list[str]:
    old, new = occupancy_or_note(pair.old), occupancy_or_note(pair.new)
    if isinstance(old, str) or isinstance(new, str):
        return []
    if new.waves_per_simd > old.waves_per_simd:
        return [f"occupancy {old.waves_per_simd} -> {new.waves_per_simd}"]
    if new.whole_waves_per_simd > old.whole_waves_per_simd:
        return [f"occupancy in whole workgroups {old.whole_waves_per_simd:g} -> {new.whole_waves_per_simd:g}"]
    return []


def _vgprs(pair: Compared) -> Iterator[Said]:
    old, new = pair.old, pair.new
    before, after = allocated_vgprs(old), allocated_vgprs(new)
    if after <= before:
        return
    needed = f"{old.unified_vgprs} -> {new.unified_vgprs} needed"
    if old.reserved_vgprs != new.reserved_vgprs:
        needed += f", {old.reserved_vgprs} -> {new.reserved_vgprs} reserved"
    text = f"VGPRs allocated per lane {before} -> {after} ({needed}, granule {vgpr_granule(new)})"
    yield pair.finding("vgprs", counted(before, "VGPR"), counted(after, "VGPR"), text, _any_class)


def _lds(pair: Compared) -> Iterator[Said]:
    before, after = pair.old.lds_bytes, pair.new.lds_bytes
    if _grew(before, after, pair.policy):
        text = f"LDS per workgroup {before:,} -> {after:,} bytes{_by(before, after)}"
        yield pair.finding("lds", counted(before, "byte"), counted(after, "byte"), text, _in_lds)


def _code_size(pair: Compared) -> Iterator[Said]:
    before, after = pair.old.code_bytes, pair.new.code_bytes
    if _grew(before, after, pair.policy):
        text = f"machine code {before:,} -> {after:,} bytes{_by(before, after)}"
        yield pair.finding("code_size", counted(before, "byte"), counted(after, "byte"), text, _any_class)


def _launch(pair: Compared, changes: list[tuple[str, str]]) -> Iterator[Said]:
    if not changes:
        return
    before, after = (", ".join(side) for side in zip(*changes, strict=True))
    same = "the same machine code is " if pair.same_machine_code else ""
    yield pair.finding("launch", before, after, f"{same}launched otherwise: {before} -> {after}")


def _size_and_signature(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.workgroup != pair.old.workgroup:
        yield counted(pair.old.workgroup, "lane"), counted(pair.new.workgroup, "lane")
    if pair.new.kernarg_bytes != pair.old.kernarg_bytes:
        yield f"{pair.old.kernarg_bytes:,} bytes of arguments", f"{pair.new.kernarg_bytes:,} bytes of arguments"


def _mode(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.wave_size != pair.old.wave_size:
        yield f"wave{pair.old.wave_size}", f"wave{pair.new.wave_size}"
    if pair.new.wgp_mode != pair.old.wgp_mode:
        yield _mode_words(pair.old), _mode_words(pair.new)


def _mode_words(code: KernelCode) -> str:
    return {True: "WGP mode", False: "CU mode", None: "no WGP mode"}[code.wgp_mode]


def _dynamic_lds(pair: Compared) -> Iterator[tuple[str, str]]:
    if pair.new.lds_dynamic_bytes != pair.old.lds_dynamic_bytes:
        yield (
            f"{pair.old.lds_dynamic_bytes:,} bytes of dynamic LDS",
            f"{pair.new.lds_dynamic_bytes:,} bytes of dynamic LDS",
        )


def _of_the_compiler(code: KernelCode) -> dict[str, object]:
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


def _grew(before: int, after: int, policy: CodePolicy) -> bool:
    return 100 * (after - before) > policy.growth_percent * before and after > before


def _by(before: int, after: int) -> str:
    return f" ({100 * (after / before - 1):+.1f} %)" if before else ""


def _any_class(_: str) -> bool:
    return True


def _in_lds(name: str) -> bool:
    return name.startswith("lds_")


def worse_instructions(pair: Compared, *, promised: bool) -> Iterator[Said]:
    """Matrix instructions that went (where no promise makes that a rule of its own) and loads that narrowed.

    Nothing of a candidate that was not decoded: that is a rule's note already.
    """
    if pair.old.undecoded or not pair.old.instructions:
        yield f"not compared: instructions (stored: {pair.old.undecoded or 'it was not disassembled'})"
    elif pair.new.instructions and not pair.new.undecoded:
        yield from _matrix(pair, promised)
        for kind, one, several in MOVING:
            yield from _widths(pair, kind, one, several)


def _matrix(pair: Compared, promised: bool) -> Iterator[Said]:
    before, after = (code.instructions.get(MATRIX, 0) for code in (pair.old, pair.new))
    looped, loops = (code.in_loops.get(MATRIX, 0) for code in (pair.old, pair.new))
    if before and not after and not promised:
        text = f"all {before} matrix instructions are gone"
        yield pair.finding("matrix", counted(before, "matrix instruction"), "0 matrix instructions", text, is_matrix)
    elif after and loops < looped:
        text = f"matrix instructions inside loops {looped} -> {loops} (in all {before} -> {after})"
        before_text, after_text = (f"{count} matrix instructions in loops" for count in (looped, loops))
        yield pair.finding("matrix", before_text, after_text, text, is_matrix, warns=True)


def _widths(pair: Compared, kind: str, one: str, several: str) -> Iterator[Said]:
    """Narrower anywhere is a finding; it only warns inside loops and of LDS.

    Code may have moved out of the loop, and widths in LDS follow from the tile's layout: another tile moves them in
    both directions.
    """
    tile = f"{kind}_tile"

    def concerns(name: str) -> bool:
        return kind_of(name) in (kind, tile)

    for scope, old, new in (
        ("", pair.old.instructions, pair.new.instructions),
        (" inside loops", pair.old.in_loops, pair.new.in_loops),
    ):
        before, after = _by_width(old, kind), _by_width(new, kind)
        if not _narrowed(before, after):
            continue
        changes = ", ".join(counts_changed(new, old, concerns))
        if any(new.get(name, 0) > old.get(name, 0) for name in (kind, tile)):
            yield f"not compared: widths of {several}{scope}, some of which have none ({changes})"
            return
        narrower = [f"{_mean(side):.3g} bytes per {one}" for side in (before, after)]
        text = f"{several}{scope} narrowed from {_mean(before):.3g} to {_mean(after):.3g} bytes per lane: {changes}"
        warns = bool(scope) or kind.startswith("lds_")
        yield pair.finding("wider_loads", narrower[0], narrower[1], text, concerns, warns=warns)
        return


def _by_width(counts: Mapping[str, int], kind: str) -> dict[int, int]:
    """Instructions of a kind by the bytes they move per lane."""
    sized = {width_bytes(name): count for name, count in counts.items() if kind_of(name) == kind and count}
    return {width: count for width, count in sized.items() if width is not None}


def _mean(counts: Mapping[int, int]) -> float:
    return sum(width * count for width, count in counts.items()) / sum(counts.values())


def _narrowed(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Whether instructions move less on average and some that move more than the narrowest left are fewer."""
    if not before or not after or _mean(after) >= _mean(before):
        return False
    return any(after.get(width, 0) < count for width, count in before.items() if width > min(after))

"""Classifies AMD instructions by their mnemonics, and counts cycles and operations of matrix instructions.

Mnemonics from LLVM's AMDGPU instruction syntax pages (AMDGPUAsmGFX9, GFX90a, GFX940, GFX10, GFX11, GFX12) and AMD's ISA
documents of CDNA 2 to 4 and RDNA 2 to 4; checked against every mnemonic that LLVM 22's assembler knows.

Passes of matrix instructions from the guides of CDNA 2 to 4 ("VALU matrix instructions"): a pass is 4 cycles of a
SIMD's matrix unit. An instruction that multiplies one pair of matrices into 32 x 32 (16 x 16) sums takes 8 (4) passes,
with fp32 elements twice as many, because it has a quarter of the products; the one for elements of 4 to 8 bits twice as
many if either matrix has 8. Of instructions on several small pairs, only the size of a sum counts. On CDNA 2 every
instruction takes 16 (8, 2) passes for sums of 32 x 32 (16 x 16, 4 x 4) at its type's rate. llvm-mca agrees
(`-instruction-tables`, HWXDL), except that it does not look at the element types of `f8f6f4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from pytest_attnperf.codeobject.instructions import SIZED, Instruction, with_width

RETURN_ADDRESS = "s[30:31]"
"""Registers that hold a called function's return address (LLVM, AMDGPUUsage, "Calling Conventions")."""

_NEVER_FALL_THROUGH = re.compile(r"s_(branch|endpgm\w*|setpc_b64|set_pc_i64|rfe\w*)$")

# The first match counts; the empty pattern at the end of a list is the default class of that prefix.
_RULES = {
    "v": (
        (r"(mfma|wmma)_ld_scale", "valu"),
        (r"mfma_|smfmac_|wmma_|swmmac_", "matrix"),
        (r"(dual_)?dot\d", "dot"),
        (r"readlane|readfirstlane|writelane|permlane", "cross_lane"),
        (r"accvgpr_", "agpr_move"),
        (r"nop|pipeflush", "nop"),
        (r"", "valu"),
    ),
    "s": (
        (r"barrier|get_barrier_state|wakeup_barrier", "barrier"),
        (r"wait", "wait"),
        (r"branch|cbranch|subvector_loop", "branch"),
        (r"swappc|swap_pc|setpc|set_pc|add_pc|call_|rfe", "call"),
        (r"endpgm", "end"),
        (r"scratch_load", "scratch_load"),
        (r"scratch_store", "scratch_store"),
        (r"(buffer_)?atomic", "global_atomic"),
        (r"(buffer_)?store", "scalar_store"),
        (r"(buffer_)?load", "scalar_load"),
        (r"dcache|icache|gl1_inv|(buffer_)?prefetch|atc_probe", "cache"),
        (r"nop|buffer_nop|code_end|delay_alu|clause|sleep|monitor_sleep|wakeup|setprio", "nop"),
        (r"inst_prefetch|set_inst_prefetch", "nop"),
        (r"", "salu"),
    ),
    "ds": (
        (r"bpermute|permute|swizzle", "cross_lane"),
        (r"(read|load|param_load|direct_load)", "lds_read"),
        (r"(write|store(?!xchg))", "lds_write"),
        (r"gws_", "barrier"),
        (r"nop", "nop"),
        (r"(storexchg|wrxchg|condxchg|add|sub|rsub|inc|dec|wrap|min|max|and|or|xor|mskor)", "lds_atomic"),
        (r"(cmpst|cond_sub|pk_add|append|consume|ordered_count|atomic|bvh_stack)", "lds_atomic"),
    ),
    "lds": ((r"(param|direct)_load", "lds_read"),),
    "image": (
        (r"atomic", "global_atomic"),
        (r"store", "image_store"),
        (r"load|sample|gather|get|msaa|bvh", "image_load"),
    ),
    "scratch": ((r"load", "scratch_load"), (r"store", "scratch_store")),
    "tensor": ((r"load_to_lds", "global_load_tile"), (r"store_from_lds", "global_store_tile")),
    "global": (
        (r"atomic", "global_atomic"),
        (r"load", "global_load"),
        (r"store", "global_store"),
        (r"inv|wb|prefetch|gl\d_inv", "cache"),
    ),
}
_RULES |= dict.fromkeys(("buffer", "tbuffer", "flat", "cluster"), _RULES["global"])

CYCLES_PER_PASS = 4

PEAK_FLOPS_PER_CYCLE = {
    "gfx90a": {16: 256, 8: 256, 32: 64, 64: 64},
    "gfx942": {16: 512, 8: 1024, 32: 64, 64: 64, 19: 256},
    "gfx950": {16: 1024, 8: 2048, 4: 4096, 32: 64, 64: 32},
}
"""Architecture -> bits of an element (19: xf32) -> operations per cycle of one SIMD's matrix unit by its best
instruction. Four times as many are the FLOP per clock and CU in AMD's gpu-arch-specs page and CDNA white papers."""

_MFMA = re.compile(
    r"v_mfma_(?:scale_)?(?:f32|i32|f64)_(?P<rows>\d+)x(?P<columns>\d+)x(?P<depth>\d+)(?:_(?P<pairs>\d+)b)?_?"
    r"(?P<element>f16|bf16|f32|xf32|f64|i8|(?:fp8|bf8)_(?:fp8|bf8)|f8f6f4)(?P<wide>_1k)?(?:_e64)?$"
)
_ELEMENT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 19, "f64": 64}
_SINGLE_PASSES, _SEVERAL_PASSES = {32: 8, 16: 4}, {32: 16, 16: 8, 4: 2}
_FACTOR_FORMAT = re.compile(r"\b(?:cbsz|blgp):(\d)")

_FORMAT = re.compile(r"format_(?:d16_)?(?:hi_)?([xyzw]+)$")
_DWORDS = re.compile(r"dword(?:x(\d{1,4}))?")
_BITS = re.compile(r"_[bui](\d{1,4})(?:_|$)")
_NAMED_BYTES = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2}
_TWO_ADDRESSES = re.compile(r"_(read2|write2|load_2addr|store_2addr)")


def classify(mnemonic: str, operands: str = "", *, scratch_resource: str = "") -> str:
    """Returns the class of an AMD instruction, e.g. 'matrix'; 'other' for an unknown prefix (an unknown v_ or s_ is
    arithmetic). `scratch_resource` names four SGPRs, e.g. 's[8:11]': a buffer access through them is private memory
    (scratch). '': none."""
    name = _by_mnemonic(mnemonic)
    if name == "valu" and ":: v_dual_dot" in operands:
        return "dot"
    if mnemonic.startswith("s_setpc") and operands.strip() == RETURN_ADDRESS:
        return "return"
    if name.startswith(("global_load", "global_store")):
        if scratch_resource and mnemonic.startswith("buffer_") and scratch_resource in operands:
            return "scratch_load" if name.startswith("global_load") else "scratch_store"
        if name.startswith("global_load") and "lds" in operands.split():
            return with_width("global_load_lds", _width_bytes(mnemonic))
    return name


def falls_through(mnemonic: str) -> bool:
    """Returns whether the next instruction may run after this one; False for an unconditional jump or an end."""
    return not _NEVER_FALL_THROUGH.match(mnemonic)


def scratch_resource(instructions: Iterable[Instruction], arch: str, scratch_bytes: int) -> str:
    """Returns the four SGPRs that describe private memory to buffer instructions, e.g. 's[8:11]'; '' if there are none.

    Before gfx940 and gfx11 spills are buffer accesses. A kernel that needs scratch gets the resource in s[0:3] (LLVM,
    AMDGPUUsage, "Private Segment Buffer"), moves it to free registers if it can, and adds the wave's offset to its
    base. Both happen before the first conditional branch.
    """
    if scratch_bytes <= 0 or not re.match(r"gfx(90[0-9ac]|10)", arch):
        return ""
    moved: dict[str, str] = {}
    bases: set[int] = set()
    for one in instructions:
        parts = [part.strip() for part in one.operands.split(",")]
        if one.mnemonic == "s_mov_b64":
            moved[parts[-1]] = parts[0]
        elif (
            one.mnemonic == "s_add_u32"
            and parts[1:2] == parts[:1]
            and re.fullmatch(r"s\d{1,3}s\d{1,3}", parts[0] + parts[-1])
        ):
            bases.add(int(parts[0][1:]))
        elif one.mnemonic.startswith("s_cbranch"):
            break
    for base in bases:
        pairs = f"s[{base}:{base + 1}]", f"s[{base + 2}:{base + 3}]"
        if (moved.get("s[0:1]"), moved.get("s[2:3]")) == pairs:
            return f"s[{base}:{base + 3}]"
    return "s[0:3]" if 0 in bases else ""


@lru_cache(maxsize=4096)
def _by_mnemonic(mnemonic: str) -> str:
    prefix, _, rest = mnemonic.partition("_")
    rules = _RULES.get(prefix, ()) if rest else ()
    name = next((name for pattern, name in rules if re.match(pattern, rest)), "other")
    if name == "global_load" and "_lds" in mnemonic:
        name = "global_load_lds"
    return with_width(name, _width_bytes(mnemonic)) if name in SIZED else name


def _width_bytes(mnemonic: str) -> int | None:
    """Returns bytes per lane by dwordx4, b128, u16, ubyte or format_xyzw in the mnemonic, of both words in two-address
    forms; None if it does not say."""
    if found := _FORMAT.search(mnemonic):
        return len(found[1]) * (2 if "d16" in mnemonic else 4)
    if found := _DWORDS.search(mnemonic):
        return 4 * int(found[1] or 1)
    if found := _BITS.search(mnemonic):
        return int(found[1]) // 8 * (2 if _TWO_ADDRESSES.search(mnemonic) else 1)
    if mnemonic.endswith(("param_load", "direct_load")):
        return 4
    return next((_NAMED_BYTES[word] for word in mnemonic.split("_") if word in _NAMED_BYTES), None)


@dataclass(frozen=True)
class MatrixStep:
    """One matrix instruction of a wave: cycles that it occupies the matrix unit, operations, bits of an element."""

    cycles: int
    flops: int
    bits: int


def read_matrix_step(mnemonic: str, operands: str, arch: str) -> MatrixStep | None:
    """Returns cycles and operations of an MFMA instruction; None for another instruction, for a sparse one, and for an
    architecture or a shape that is not known."""
    found = _MFMA.match(mnemonic)
    peaks = PEAK_FLOPS_PER_CYCLE.get(arch)
    if found is None or peaks is None:
        return None
    if arch == "gfx90a":
        return _read_cdna2_step(found)
    rows, pairs = int(found["rows"]), int(found["pairs"] or 1)
    bits = _ELEMENT_BITS.get(found["element"], 8)
    passes = (_SINGLE_PASSES if pairs == 1 else _SEVERAL_PASSES).get(rows)
    if found["element"] == "f8f6f4":
        # Formats 0 and 1 are fp8 and bf8; an operand without a format has 0. The others have 6 or 4 bits.
        formats = [int(one) for one in _FACTOR_FORMAT.findall(operands)]
        bits = 8 if len(formats) < 2 or min(formats) < 2 else 4
        passes = None if passes is None else passes * (2 if bits == 8 else 1)
    elif bits == 64:
        passes = {16: 8 if arch == "gfx942" else 16, 4: 4}.get(rows)
    elif bits == 32 and pairs == 1 and passes is not None:
        passes *= 2
    if passes is None or bits not in peaks:
        return None
    return MatrixStep(passes * CYCLES_PER_PASS, 2 * rows * int(found["columns"]) * int(found["depth"]) * pairs, bits)


def _read_cdna2_step(found: re.Match[str]) -> MatrixStep | None:
    """Returns the step of a gfx90a instruction, whose name does not say how many pairs it multiplies. bf16 of CDNA 1
    (without `_1k`) and small fp64 products run at half of the type's rate."""
    rows, bits = int(found["rows"]), _ELEMENT_BITS.get(found["element"], 8)
    passes = ({16: 8, 4: 4} if bits == 64 else {32: 16, 16: 8, 4: 2}).get(rows)
    if passes is None or found["element"] not in ("f16", "bf16", "f32", "f64", "i8"):
        return None
    cycles = passes * CYCLES_PER_PASS
    halved = (found["element"] == "bf16" and not found["wide"]) or (bits == 64 and rows == 4)
    return MatrixStep(cycles, cycles * PEAK_FLOPS_PER_CYCLE["gfx90a"][bits] // (2 if halved else 1), bits)

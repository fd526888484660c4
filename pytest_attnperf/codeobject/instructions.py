"""One decoded instruction, and the classes by which instructions of every vendor are counted.

Every instruction has exactly one class, so that counts add up to the kernel's length:

    matrix              MFMA, SMFMAC, WMMA, SWMMAC; HMMA, HGMMA and the like on NVIDIA
    dot                 v_dot*, IDP
    global_load_<N>B    from global memory into registers, N bytes per lane: global_*, buffer_*, flat_*; the plain name
                        `global_load` where the mnemonic does not give the width
    global_load_lds_<N>B    from global memory straight into LDS (global_load_lds_*, buffer_load_* with `lds`, LDGSTS):
                        a global load, and no instruction that writes LDS is needed
    global_load_tile, global_store_tile     a whole tile by one instruction (UTMALDG, tensor_load_to_lds)
    global_store_<N>B, image_store, scalar_store, global_atomic     every other way to write global memory
    image_load          image and texture reads
    scalar_load         s_load*, s_buffer_load*, LDC
    lds_read_<N>B, lds_write_<N>B   N bytes per lane, both words of a two-address form together
    lds_atomic          read-modify-write of LDS
    cross_lane          values that move between lanes; DPP modifiers are not counted
    scratch_load, scratch_store     private memory: spills and stack
    wait                for memory, counters or hazards
    barrier             of the workgroup; a gfx12 barrier is two instructions (signal, wait)
    branch              jumps within the kernel
    call                calls, and jumps whose target is in a register
    agpr_move           between accumulation registers (on sm_100 tensor memory) and ordinary ones
    cache               invalidation, write-back, prefetch
    valu, salu          arithmetic per lane and per wave
    nop                 no work: padding, and hints to the scheduler (s_nop, s_delay_alu, s_clause)
    return              from a function to its caller
    end                 of the wave
    other               unknown instructions

A flat (AMD) or generic (NVIDIA) access may also reach LDS or scratch; it is counted as global. `amdgcn.classify` and
`sass.classify` map mnemonics to classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""A source file, as the line table names it, and a line number."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    mnemonic        'v_mfma_f32_32x32x8_f16', 'LDG.E.128'; without predicate
    operands        as the disassembler writes them
    address         in bytes, as the ELF counts them; its index for assembler text
    target          address of the instruction that a branch or a call jumps to, where that lies in the kernel
    place           its source line if the line table has one; line 0 is code of no single line
    falls_through   whether the next instruction may run after it: false for an unconditional jump or the end
    """

    mnemonic: str
    operands: str
    address: int
    target: int | None = None
    place: Place | None = None
    falls_through: bool = True


@dataclass(frozen=True)
class Listing:
    """The instructions of one kernel, and why some are missing ('' if none are)."""

    instructions: tuple[Instruction, ...]
    undecoded: str = ""


WIDTHS_BYTES = (1, 2, 4, 6, 8, 12, 16, 32)
"""Bytes per lane that one instruction moves."""

SIZED = ("global_load", "global_load_lds", "global_store", "lds_read", "lds_write")
"""Classes with widths; the name without a width means an unknown width."""


def _list_sized(kind: str) -> tuple[str, ...]:
    return (*(f"{kind}_{width}B" for width in WIDTHS_BYTES), kind)


CLASSES: tuple[str, ...] = (
    "matrix",
    "dot",
    *_list_sized("global_load"),
    *_list_sized("global_load_lds"),
    "global_load_tile",
    "image_load",
    "scalar_load",
    *_list_sized("global_store"),
    "global_store_tile",
    "image_store",
    "scalar_store",
    "global_atomic",
    *_list_sized("lds_read"),
    *_list_sized("lds_write"),
    "lds_atomic",
    "cross_lane",
    "scratch_load",
    "scratch_store",
    "wait",
    "barrier",
    "branch",
    "call",
    "return",
    "agpr_move",
    "cache",
    "valu",
    "salu",
    "nop",
    "end",
    "other",
)
"""Every class, in the order that reports list them."""

STORE_CLASSES = frozenset(
    {*_list_sized("global_store"), "global_store_tile", "image_store", "scalar_store", "global_atomic"}
)
"""Classes that can write a result: every way to write global memory."""

_WIDTH_OF = {f"{kind}_{width}B": width for kind in SIZED for width in WIDTHS_BYTES}


def is_store(name: str) -> bool:
    """Returns whether this class writes global memory: stores of every kind and atomics, not scratch or LDS."""
    return name in STORE_CLASSES


def width_bytes(name: str) -> int | None:
    """Returns the bytes per lane that an instruction of this class moves; None for a class without width."""
    return _WIDTH_OF.get(name)


def with_width(kind: str, width: int | None) -> str:
    """Returns the class of `kind` ('global_load', 'lds_read' ...) for that width; `kind` itself for other widths."""
    return f"{kind}_{width}B" if width in WIDTHS_BYTES else kind

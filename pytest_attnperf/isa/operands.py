"""Reads the operands and modifiers of one instruction from LLVM's text.

Known forms only: another spelling raises UnknownInstructionError. `Operand` says what is read or written,
`DecodedInstruction` holds an instruction's operands in order and its modifiers by name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.faults import UnknownInstructionError
from pytest_attnperf.isa.spellings import WITHOUT_OPERANDS, rename
from pytest_attnperf.isa.swizzle import is_swizzle, read_pattern

Kind: TypeAlias = Literal["v", "s", "special", "integer", "bits", "float", "off"]

ACCUMULATORS = 256
"""Number of the first AGPR among the vector registers of a wave: v0 to v255, then a0 to a255."""

MOVED = (2 * ACCUMULATORS, 2 * ACCUMULATORS + 1)
"""Numbers of two further ones, which hold the first source of a DPP instruction with its lanes moved."""

VCC, M0, EXEC = 106, 124, 126
"""Numbers of the special scalar registers, as the encoding has them."""

FLAT_SCRATCH = 102
"""Number of the pair that says on gfx9 before gfx942 where scratch begins."""

TTMP = 108
"""Number of ttmp0. gfx12 starts a kernel with its workgroup's numbers in ttmp7 and ttmp9."""

_SPECIAL = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "m0": (M0, 1), "exec": (EXEC, 2),
    "flat_scratch": (FLAT_SCRATCH, 2), "flat_scratch_lo": (FLAT_SCRATCH, 1), "flat_scratch_hi": (FLAT_SCRATCH + 1, 1),
    "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
}  # fmt: skip

CACHE_HINTS = frozenset({"glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope"})
"""Modifiers that choose caches and coherence. They do not change what an execution in order returns, except sc0 (glc)
of an atomic, which asks for the old value: no atomic is implemented."""

_FLAGS = CACHE_HINTS | {"offen", "idxen", "lds", "clamp", "gds", "tfe"}
_LISTS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "quad_perm", "dpp8")
_NUMBERS = (
    *("offset", "offset0", "offset1", "bitop3", "mul", "div", "cbsz", "abid", "blgp", "row_mask", "bank_mask"),
    *("row_shl", "row_shr", "row_ror", "row_bcast", "row_newbcast", "row_share", "row_xmask"),
    *("wave_shl", "wave_shr", "wave_rol", "wave_ror", "bound_ctrl", "fi"),
)
_WORDS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel", "th", "scope")
_BARE = frozenset({"row_mirror", "row_half_mirror"})

_MODIFIER = re.compile(r"([a-z_]+[0-9]?(?:_[a-z]+)?):(\[[-0-9,]*\]|[A-Za-z0-9_]+|-\d+)|([a-z_0-9]+)")
_REGISTER = re.compile(r"([vsa]|ttmp)(\d+)|([vsa]|ttmp)\[(\d+):(\d+)\]")
_COUNTERS = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")


@dataclass(frozen=True)
class Operand:
    """One operand.

    kind      'v' a vector register, 's' a scalar one, 'integer' an inline constant, 'bits' a 32-bit literal (hex),
              'float' an inline float, 'off' none
    first     number of the first register (AGPRs from 256 on), or the integer or bits
    count     registers
    half      0 or 1 of one half of a register with 16 bits of its own (v7.l, v7.h: gfx11 and later); None is no half
    number    value of an inline float
    negative, absolute   modifiers of the source
    part      'WORD_1' or 'BYTE_2' of the register with SDWA; '' is all of it
    extended  whether a part as a source is sign-extended
    unused    what becomes of the other bits of a destination: 'UNUSED_PAD', 'UNUSED_SEXT' or 'UNUSED_PRESERVE'
    """

    kind: Kind
    first: int = 0
    count: int = 1
    number: float = 0.0
    negative: bool = False
    absolute: bool = False
    text: str = ""
    half: int | None = None
    part: str = ""
    extended: bool = False
    unused: str = ""

    @property
    def null(self) -> bool:
        """Whether it is the register `null`: it reads as the integer 0, and drops what is written."""
        return self.text == "null"

    @property
    def constant(self) -> bool:
        """Whether it is a literal or an inline constant."""
        return self.kind in ("integer", "bits", "float")


@dataclass(frozen=True)
class DecodedInstruction:
    """One instruction with its operands.

    name        mnemonic without its encoding: 'v_add_f32' of 'v_add_f32_e32'
    encoding    'e32', 'e64', 'sdwa', 'dpp' or ''
    operands    in the order of the text, the destination first
    modifiers   name -> True, a number, a word or a tuple
    arch        'gfx942'
    lanes       of a wave: 64 or 32
    """

    instruction: Instruction
    name: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, object] = field(default_factory=dict)
    arch: str = "gfx942"
    lanes: int = 64

    @property
    def rdna(self) -> bool:
        """Whether the architecture is gfx11 or later, not gfx9."""
        return not self.arch.startswith("gfx9")

    @property
    def mask_words(self) -> int:
        """Scalar registers of a mask of lanes."""
        return self.lanes // 32

    def refuse(self, what: str) -> UnknownInstructionError:
        """Returns the error that names `what` of this instruction as unknown."""
        error = UnknownInstructionError(f"{what} is not implemented; the interpreter stops instead of guessing")
        error.locate(self.instruction)
        return error

    def number(self, name: str, default: int = 0) -> int:
        """Returns the value of a modifier that is a number."""
        value = self.modifiers.get(name, default)
        return value if isinstance(value, int) else default

    def numbers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the value of a modifier that is a list."""
        value = self.modifiers.get(name, default)
        return value if isinstance(value, tuple) else default

    def allow(self, *names: str) -> None:
        """Raises UnknownInstructionError for a modifier that is neither in `names` nor a cache hint."""
        for name in self.modifiers:
            if name not in names and name not in CACHE_HINTS:
                raise self.refuse(f"the modifier {name!r} here")


@lru_cache(maxsize=1 << 14)
def decode(instruction: Instruction, arch: str = "gfx942", lanes: int = 64) -> DecodedInstruction:
    """Returns the instruction's operands and modifiers, as a wave of `lanes` on `arch` executes it.

    Raises UnknownInstructionError for a form that is unknown.
    """
    name, encoding = instruction.mnemonic, ""
    for suffix in ("dpp", "dpp8", "sdwa", "e32", "e64"):
        if name.endswith(f"_{suffix}"):
            name, encoding = name[: -len(suffix) - 1], encoding or suffix.removesuffix("8")
    if not arch.startswith("gfx9"):
        name = rename(name)
    plain = DecodedInstruction(instruction, name, encoding, (), {}, arch, lanes)
    if name == "s_waitcnt":
        return _decode_counters(plain)
    if name in WITHOUT_OPERANDS:
        return plain
    texts = _split_operands(instruction.operands)
    if not texts:
        return plain
    last, modifiers = _split_modifiers(plain, texts[-1])
    operands = tuple(_read_operand(plain, text) for text in (*texts[:-1], *([last] if last else [])))
    decoded = _join_halves(replace(plain, operands=operands, modifiers=modifiers))
    return _choose_parts(decoded) if encoding == "sdwa" else decoded


def _choose_parts(decoded: DecodedInstruction) -> DecodedInstruction:
    """Returns an SDWA instruction whose operands name the parts of registers that its modifiers choose."""
    operands, rest = list(decoded.operands), dict(decoded.modifiers)
    # Comparisons write a mask of lanes, and carries stand between the destination and the sources.
    first_source = 2 if "_co_" in decoded.name else 1
    places = {"dst_sel": 0, "src0_sel": first_source, "src1_sel": first_source + 1}
    unused = str(rest.pop("dst_unused", ""))
    for name, place in places.items():
        if name in rest:
            part = str(rest.pop(name))
            operands[place] = replace(operands[place], part="" if part == "DWORD" else part)
    operands[0] = replace(operands[0], unused=unused)
    return replace(decoded, operands=tuple(operands), modifiers=rest)


def _join_halves(decoded: DecodedInstruction) -> DecodedInstruction:
    """Returns an instruction on halves without op_sel, which says of the sources in order, and of the destination last,
    what their names say, too. Raises UnknownInstructionError where it says something else."""
    target, *sources = decoded.operands or (Operand("off"),)
    chosen = decoded.numbers("op_sel", ())
    if not chosen or all(one.half is None for one in decoded.operands):
        return decoded
    # V_CMPX has no destination, and its first operand is a source.
    in_order = decoded.operands if decoded.name.startswith("v_cmpx_") else (*sources[: len(chosen) - 1], target)
    named = [one.half or 0 for one in in_order][: len(chosen)]
    if list(chosen) != named:
        raise decoded.refuse(f"op_sel with the halves {named}")
    rest = {name: value for name, value in decoded.modifiers.items() if name != "op_sel"}
    return replace(decoded, modifiers=rest)


def _decode_counters(plain: DecodedInstruction) -> DecodedInstruction:
    text = plain.instruction.operands
    if _COUNTERS.sub("", text).replace("&", "").strip():
        raise plain.refuse(f"the operand {text!r}")
    counters = {found[1]: int(found[2]) for found in _COUNTERS.finditer(text)}
    return replace(plain, modifiers=counters)


def _split_operands(text: str) -> list[str]:
    """Returns the parts between commas outside of brackets and parentheses."""
    return [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text)] if text else []


def _split_modifiers(plain: DecodedInstruction, text: str) -> tuple[str, dict[str, object]]:
    """Returns the last operand and the modifiers behind it."""
    operand, _, rest = text.partition(" ") if not text.startswith(("hwreg(", "gpr_idx(")) else (text, "", "")
    known = _MODIFIER.fullmatch(operand)
    if known and (operand in _FLAGS or (known[1] in (*_LISTS, *_NUMBERS, *_WORDS))):
        operand, rest = "", text
    modifiers: dict[str, object] = {}
    for part in rest.split():
        if is_swizzle(part) and (pattern := read_pattern(part)) is not None:
            modifiers["offset"] = pattern
            continue
        found = _MODIFIER.fullmatch(part)
        if found is None:
            raise plain.refuse(f"the modifier {part!r}")
        name, value = found[1] or found[3], found[2]
        if value is None and (name in _FLAGS or name in _BARE):
            modifiers[name] = True
        elif value is not None and name in _LISTS:
            modifiers[name] = tuple(int(one) for one in value.strip("[]").split(","))
        elif value is not None and name in _NUMBERS:
            modifiers[name] = int(value, 0)
        elif value is not None and name in _WORDS:
            modifiers[name] = value
        else:
            raise plain.refuse(f"the modifier {part!r}")
    return operand, modifiers


def _read_operand(plain: DecodedInstruction, text: str) -> Operand:
    inner, negative, absolute, extended = text, False, False, False
    if inner.startswith("sext(") and inner.endswith(")"):
        inner, extended = inner[5:-1], True
    if inner.startswith("neg(") and inner.endswith(")"):
        inner, negative = inner[4:-1], True
    elif inner.startswith("-") and (inner[1:2] in ("v", "s", "a", "|")):
        inner, negative = inner[1:], True
    if len(inner) > 2 and inner[0] == inner[-1] == "|":
        inner, absolute = inner[1:-1], True
    if inner == "null":
        return Operand("integer", text=inner)
    half = {".l": 0, ".h": 1}.get(inner[-2:])
    inner = inner if half is None else inner[:-2]
    if inner in _SPECIAL:
        first, count = _SPECIAL[inner]
        return Operand("s", first, count, 0.0, negative, absolute, text)
    if inner == "off":
        return Operand("off", text=text)
    if inner in ("scc", "src_shared_base", "src_private_base") or inner.startswith(("hwreg(", "gpr_idx(")):
        return Operand("special", text=text)
    if found := _REGISTER.fullmatch(inner):
        bank = found[1] or found[3]
        first = int(found[2] or found[4])
        count = int(found[5]) - first + 1 if found[5] else 1
        base = {"a": ACCUMULATORS, "ttmp": TTMP}.get(bank, 0)
        kind: Kind = "v" if bank in "va" else "s"
        return Operand(kind, base + first, count, 0.0, negative, absolute, text, half, extended=extended)
    if re.fullmatch(r"0x[0-9a-f]{1,8}", inner):
        return Operand("bits", int(inner, 16), 1, 0.0, negative, absolute, text)
    if re.fullmatch(r"-?\d+", inner):
        return Operand("integer", int(inner), 1, 0.0, negative, absolute, text)
    if re.fullmatch(r"-?\d+\.\d+", inner):
        return Operand("float", 0, 1, float(inner), negative, absolute, text)
    raise plain.refuse(f"the operand {text!r}")


def float_bits(number: float) -> int:
    """Returns the 32 bits of an inline float. 0.15915494 is 1 / (2 pi), as the encoding rounds it."""
    return 0x3E22F983 if number == 0.15915494 else int(struct.unpack("<I", struct.pack("<f", number))[0])


def wide_float_bits(number: float) -> int:
    """Returns the 64 bits of an inline float."""
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def name_scalar(number: int) -> str:
    """Returns 's7', 'vcc_lo', 'm0'."""
    return {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0"}.get(number, f"s{number}")


def name_vector(number: int) -> str:
    """Returns 'v7' or 'a7'."""
    return f"v{number}" if number < ACCUMULATORS else f"a{number - ACCUMULATORS}"

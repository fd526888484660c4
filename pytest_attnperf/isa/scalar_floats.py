"""Scalar instructions that gfx11.5 and gfx12 add: float32 arithmetic, comparisons and conversions, and 64-bit sums and
products that leave SCC as it is.

The float ones compute what the vector instruction of that name computes; not checked against a document (see `rdna`).
Those with results of 16 bits are refused: sources disagree on the upper half of the register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader, scalar_writer
from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS
from pytest_attnperf.isa.wave import Step, Wave

_TYPES: Mapping[str, Any] = {"f32": np.float32, "u32": np.uint32, "i32": np.int32, "b32": np.uint32}

_INFINITY, _QUIET = 0x7F800000, 0x7FC00000

_FLOATS = {
    f"s_{name}": f"v_{vector}"
    for name, vector in (
        *((f"{one}_f32", f"{one}_f32") for one in ("add", "sub", "mul", "ceil", "floor", "trunc", "rndne")),
        *((f"{one}_num_f32", f"{one}_f32") for one in ("max", "min")),
        # gfx11.5 names them so; gfx12 has other semantics of NaN under these names, and is refused below.
        *((f"{one}_f32", f"{one}_f32") for one in ("max", "min")),
        *((f"cvt_{one}", f"cvt_{one}") for one in ("f32_i32", "f32_u32", "i32_f32", "u32_f32")),
    )
}
"""Name -> the vector instruction that computes it."""

_LONG: Mapping[str, Callable[[int, int], int]] = {
    "s_add_nc_u64": lambda a, b: a + b,
    "s_sub_nc_u64": lambda a, b: a - b,
    "s_mul_u64": lambda a, b: a * b,
}


def make_scalar_float_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a scalar float or 64-bit instruction of gfx11.5 or gfx12, or of S_BITSET; None for another
    one."""
    name = decoded.name
    if name in _FLOATS:
        return _make_operation(decoded)
    if name in _LONG:
        return _make_long(decoded)
    if name.startswith("s_fma") and name.endswith("_f32"):
        return _make_fma(decoded)
    if name.startswith("s_cmp_") and name.endswith("_f32"):
        return _make_compare(decoded)
    if name in ("s_bitset0_b32", "s_bitset1_b32"):
        return _make_bit(decoded)
    return None


def _number_reader(decoded: DecodedInstruction, source: Operand, kind: str) -> Callable[[Wave], Any]:
    """Returns a reader of 32 bits as an array without dimensions. A source has no modifiers in these encodings."""
    if source.negative or source.absolute:
        raise decoded.refuse(f"the source modifier of {source.text!r}")
    read, dtype = scalar_reader(decoded, source, 32), _TYPES[kind]
    if kind != "f32":
        return lambda wave: np.array(read(wave), np.uint32).view(dtype)

    def read_float(wave: Wave) -> Any:
        bits = read(wave)
        # numpy's functions of one number tell signalling NaNs from quiet ones.
        return np.array(_QUIET if bits & 0x7FFFFFFF > _INFINITY else bits, np.uint32).view(dtype)

    return read_float


def _number_writer(decoded: DecodedInstruction, target: Operand, kind: str) -> Callable[[Wave, Any], None]:
    write, dtype = scalar_writer(decoded, target, 32), _TYPES[kind]
    return lambda wave, value: write(wave, int(np.asarray(value, dtype).view(np.uint32)))


def _make_operation(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    if decoded.name in ("s_max_f32", "s_min_f32") and decoded.arch.startswith("gfx12"):
        raise decoded.refuse("the opcode")
    operation = OPERATIONS[_FLOATS[decoded.name]]
    target, *sources = decoded.operands
    if len(sources) != len(operation.sources):
        raise decoded.refuse(f"the form with {len(sources)} sources")
    reads = [_number_reader(decoded, one, kind) for one, kind in zip(sources, operation.sources, strict=True)]
    write = _number_writer(decoded, target, operation.result)
    return lambda wave: write(wave, operation.compute(*(read(wave) for read in reads)))


def _make_fma(decoded: DecodedInstruction) -> Step:
    """S_FMAC_F32 (the destination is the addend), S_FMAMK_F32 (a * K + b) and S_FMAAK_F32 (a * b + K)."""
    decoded.allow()
    if decoded.name not in ("s_fmac_f32", "s_fmamk_f32", "s_fmaak_f32"):
        raise decoded.refuse("the opcode")
    target, *sources = decoded.operands
    a, b, c = (
        _number_reader(decoded, one, "f32") for one in (*sources, *([target] if decoded.name == "s_fmac_f32" else []))
    )
    write = _number_writer(decoded, target, "f32")
    return lambda wave: write(wave, floats.fma_f32(a(wave), b(wave), c(wave)))


def _make_compare(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    relation = decoded.name.split("_")[2]
    if relation not in COMPARISONS:
        raise decoded.refuse("the opcode")
    compute = COMPARISONS[relation]
    a, b = (_number_reader(decoded, one, "f32") for one in decoded.operands)

    def run(wave: Wave) -> None:
        wave.scc = int(compute(a(wave), b(wave)))

    return run


def _make_long(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    compute = _LONG[decoded.name]
    target, first, second = decoded.operands
    write = scalar_writer(decoded, target, 64)
    # A literal has 32 bits, extended with zeros.
    a, b = scalar_reader(decoded, first, 64), scalar_reader(decoded, second, 64)
    return lambda wave: write(wave, compute(a(wave), b(wave)))


def _make_bit(decoded: DecodedInstruction) -> Step:
    """S_BITSET0_B32 and S_BITSET1_B32: one bit of the destination; SCC stays."""
    decoded.allow()
    target, source = decoded.operands
    write, old = scalar_writer(decoded, target, 32), scalar_reader(decoded, target, 32)
    read, sets = scalar_reader(decoded, source, 32), decoded.name == "s_bitset1_b32"

    def run(wave: Wave) -> None:
        bit = 1 << (read(wave) & 31)
        write(wave, old(wave) | bit if sets else old(wave) & ~bit)

    return run

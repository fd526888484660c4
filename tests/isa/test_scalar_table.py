from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from pytest_attnperf.isa.scalar import ONE_SOURCE, TWO_SOURCES
from tests.isa.one_wave import make_wave, run
from tests.isa.operand_sets import draw
from tests.isa.statements import signed

Two = Callable[[int, int, int], "tuple[int, object]"]
One = Callable[[int], "tuple[int, object]"]

KEPT = None
"""SCC stays as it was."""


def _overflow(value: int) -> bool:
    return signed(value) != value


def _field(a: int, b: int, bits: int, *, sign: bool) -> tuple[int, object]:
    offset, width = b % bits, min(b >> 16 & 127, bits)
    found = (signed(a, bits) if sign else a) // 2**offset % 2**width
    if sign and width:
        found = signed(found, width) if offset + width <= bits else signed(a, bits) // 2**offset
    found %= 2**bits
    return found, found


def _logic(compute: Callable[[int, int], int], bits: int) -> Two:
    def run_logic(a: int, b: int, _scc: int) -> tuple[int, object]:
        value = compute(a, b) % 2**bits
        return value, value

    return run_logic


LOGIC: Mapping[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip

STATED_TWO: dict[str, Two] = {
    "s_add_u32": lambda a, b, _: (a + b, a + b >= 2**32),
    "s_sub_u32": lambda a, b, _: (a - b, a < b),
    "s_addc_u32": lambda a, b, c: (a + b + c, a + b + c >= 2**32),
    "s_subb_u32": lambda a, b, c: (a - b - c, a < b + c),
    "s_add_i32": lambda a, b, _: (a + b, _overflow(signed(a) + signed(b))),
    "s_sub_i32": lambda a, b, _: (a - b, _overflow(signed(a) - signed(b))),
    "s_min_i32": lambda a, b, _: (min(signed(a), signed(b)), signed(a) < signed(b)),
    "s_max_i32": lambda a, b, _: (max(signed(a), signed(b)), signed(a) > signed(b)),
    "s_min_u32": lambda a, b, _: (min(a, b), a < b),
    "s_max_u32": lambda a, b, _: (max(a, b), a > b),
    "s_mul_i32": lambda a, b, _: (a * b, KEPT),
    "s_mul_hi_u32": lambda a, b, _: (a * b // 2**32, KEPT),
    "s_mul_hi_i32": lambda a, b, _: (signed(a) * signed(b) // 2**32, KEPT),
    "s_cselect_b32": lambda a, b, c: ((b, a)[c], KEPT),
    "s_cselect_b64": lambda a, b, c: ((b, a)[c], KEPT),
    "s_lshl_b32": lambda a, b, _: (a * 2 ** (b % 32) % 2**32,) * 2,
    "s_lshr_b32": lambda a, b, _: (a // 2 ** (b % 32),) * 2,
    "s_ashr_i32": lambda a, b, _: (signed(a) // 2 ** (b % 32),) * 2,
    "s_lshl_b64": lambda a, b, _: (a * 2 ** (b % 64) % 2**64,) * 2,
    "s_lshr_b64": lambda a, b, _: (a // 2 ** (b % 64),) * 2,
    "s_ashr_i64": lambda a, b, _: (signed(a, 64) // 2 ** (b % 64),) * 2,
    "s_bfe_u32": lambda a, b, _: _field(a, b, 32, sign=False),
    "s_bfe_i32": lambda a, b, _: _field(a, b, 32, sign=True),
    "s_bfe_u64": lambda a, b, _: _field(a, b, 64, sign=False),
    "s_bfe_i64": lambda a, b, _: _field(a, b, 64, sign=True),
    "s_bfm_b32": lambda a, b, _: ((2 ** (a % 32) - 1) * 2 ** (b % 32), KEPT),
    "s_pack_ll_b32_b16": lambda a, b, _: (a % 2**16 + b % 2**16 * 2**16, KEPT),
    "s_pack_lh_b32_b16": lambda a, b, _: (a % 2**16 + b // 2**16 * 2**16, KEPT),
    "s_pack_hh_b32_b16": lambda a, b, _: (a // 2**16 + b // 2**16 * 2**16, KEPT),
    **{f"s_lshl{n}_add_u32": lambda a, b, _, n=n: (a * 2**n + b, a * 2**n + b >= 2**32) for n in (1, 2, 3, 4)},
    **{f"s_{name}_b{bits}": _logic(do, bits) for name, do in LOGIC.items() for bits in (32, 64)},
}


def _leading(a: int, bits: int) -> int:
    return f"{a:0{bits}b}".find("1")


def _signs(a: int, bits: int) -> int:
    return f"{a:0{bits}b}".find("10"[a >> (bits - 1)])


STATED_ONE: dict[str, One] = {
    "s_mov_b32": lambda a: (a, KEPT),
    "s_mov_b64": lambda a: (a, KEPT),
    "s_not_b32": lambda a: (2**32 - 1 - a, a != 2**32 - 1),
    "s_not_b64": lambda a: (2**64 - 1 - a, a != 2**64 - 1),
    "s_abs_i32": lambda a: (abs(signed(a)), a),
    "s_brev_b32": lambda a: (int(f"{a:032b}"[::-1], 2), KEPT),
    "s_brev_b64": lambda a: (int(f"{a:064b}"[::-1], 2), KEPT),
    "s_sext_i32_i8": lambda a: (signed(a, 8), KEPT),
    "s_sext_i32_i16": lambda a: (signed(a, 16), KEPT),
    "s_bcnt1_i32_b32": lambda a: (f"{a:b}".count("1"), a),
    "s_bcnt1_i32_b64": lambda a: (f"{a:b}".count("1"), a),
    "s_ff1_i32_b32": lambda a: (f"{a:032b}"[::-1].find("1"), KEPT),
    "s_ff1_i32_b64": lambda a: (f"{a:064b}"[::-1].find("1"), KEPT),
    "s_flbit_i32_b32": lambda a: (_leading(a, 32), KEPT),
    "s_flbit_i32_b64": lambda a: (_leading(a, 64), KEPT),
    "s_flbit_i32": lambda a: (_signs(a, 32), KEPT),
    "s_flbit_i32_i64": lambda a: (_signs(a, 64), KEPT),
}
"""Name -> value and SCC (as a truth), KEPT where it stays."""

batches = pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.soak)])


def registers(bits: int, first: int) -> str:
    """'s4' or 's[4:5]'."""
    return f"s{first}" if bits == 32 else f"s[{first}:{first + 1}]"


def execute(name: str, sizes: tuple[int, ...], operands: tuple[int, ...], scc: int) -> tuple[int, int | None]:
    """Value and SCC; the first size is the result's."""
    wave = make_wave()
    wave.scc = scc
    for place, (bits, operand) in enumerate(zip(sizes[1:], operands, strict=True)):
        wave.write_scalar(2 * place, operand & 0xFFFFFFFF)
        if bits == 64:
            wave.write_scalar(2 * place + 1, operand >> 32)
    sources = ", ".join(registers(bits, 2 * place) for place, bits in enumerate(sizes[1:]))
    run(wave, f"{name} {registers(sizes[0], 8)}, {sources}")
    return (wave.read_scalar(8) if sizes[0] == 32 else wave.read_scalar_pair(8)), wave.scc


@batches
@pytest.mark.parametrize("name", STATED_TWO)
def test_operations_of_two_sources(name: str, count: int) -> None:
    """Value and SCC of every scalar operation agree with Python's integers."""
    random, sizes = Random(name), TWO_SOURCES[name][:3]
    for _ in range(count):
        a, b = (draw(random, f"u{bits}") for bits in sizes[1:])
        if "bfe" in name and random.random() < 0.7:
            b = random.randrange(64) | random.randrange(70) << 16
        before = random.getrandbits(1)
        value, scc = STATED_TWO[name](a, b, before)
        expected = (value % 2 ** sizes[0], before if scc is KEPT else int(bool(scc)))
        assert execute(name, sizes, (a, b), before) == expected, (name, hex(a), hex(b), before)


@batches
@pytest.mark.parametrize("name", STATED_ONE)
def test_operations_of_one_source(name: str, count: int) -> None:
    """Value and SCC of every scalar operation agree with Python's integers."""
    random, sizes = Random(name), ONE_SOURCE[name][:2]
    for _ in range(count):
        a, before = draw(random, f"u{sizes[1]}"), random.getrandbits(1)
        value, scc = STATED_ONE[name](a)
        expected = (value % 2 ** sizes[0], before if scc is KEPT else int(bool(scc)))
        assert execute(name, sizes, (a,), before) == expected, (name, hex(a), before)


def test_all_scalar_operations_have_a_statement() -> None:
    """No operation of the tables is without one."""
    assert TWO_SOURCES.keys() == STATED_TWO.keys()
    assert ONE_SOURCE.keys() == STATED_ONE.keys()

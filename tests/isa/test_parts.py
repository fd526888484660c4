from __future__ import annotations

from random import Random

import pytest

from pytest_attnperf.isa.faults import UnknownInstructionError
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.semantics import WORD, signed

PARTS = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{n}": (8 * n, 8) for n in range(4)}}
RANDOM = Random(8)
A, B, OLD = ([RANDOM.getrandbits(32) for _ in range(64)] for _ in range(3))


def part(word: int, name: str, *, extended: bool = False) -> int:
    """The part of a word as a source."""
    shift, bits = PARTS[name]
    value = word >> shift & (1 << bits) - 1
    return (signed(value, bits) if extended else value) & WORD


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("extended", [False, True])
def test_parts_as_sources(name: str, extended: bool) -> None:
    """Bytes and halves of both sources, extended with zeros or their sign."""
    wave = make_wave()
    set_vector(wave, 0, A)
    set_vector(wave, 1, B)
    source = "sext(v1)" if extended else "v1"
    run(wave, f"v_add_u32_sdwa v2, v0, {source} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:{name}")
    expected = [part(a, "BYTE_2") + part(b, name, extended=extended) & WORD for a, b in zip(A, B, strict=True)]
    assert vector(wave, "v2").tolist() == expected


@pytest.mark.parametrize("name", [name for name in PARTS if name != "DWORD"])
@pytest.mark.parametrize("unused", ["PAD", "SEXT", "PRESERVE"])
def test_parts_as_destinations(name: str, unused: str) -> None:
    """A part is written; the rest is zero, the sign above and zero below, or stays."""
    wave = make_wave()
    for place, values in enumerate((A, B, OLD)):
        set_vector(wave, place, values)
    run(wave, f"v_xor_b32_sdwa v2, v0, v1 dst_sel:{name} dst_unused:UNUSED_{unused} src0_sel:DWORD src1_sel:DWORD")
    shift, bits = PARTS[name]
    mask = (1 << bits) - 1 << shift
    for a, b, old, found in zip(A, B, OLD, vector(wave, "v2").tolist(), strict=True):
        low = (a ^ b) & (1 << bits) - 1
        expected = {
            "PAD": low << shift,
            "SEXT": signed(low, bits) << shift & WORD,
            "PRESERVE": low << shift | old & ~mask,
        }[unused]
        assert found == expected & WORD


def test_comparisons_selections_and_carries() -> None:
    """SDWA of instructions that write or read masks: each source has its own part."""
    wave = make_wave()
    set_vector(wave, 0, A)
    set_vector(wave, 1, B)
    run(wave, "v_cmp_lt_u32_sdwa vcc, v0, v1 src0_sel:WORD_1 src1_sel:WORD_0")
    for lane, (a, b) in enumerate(zip(A, B, strict=True)):
        assert wave.read_scalar_pair(106) >> lane & 1 == (a >> 16 < b & 0xFFFF)
    sel = "dst_sel:DWORD dst_unused:UNUSED_PAD"
    run(wave, f"v_cndmask_b32_sdwa v2, v0, v1, vcc {sel} src0_sel:BYTE_3 src1_sel:WORD_1")
    run(wave, f"v_add_co_u32_sdwa v3, vcc, v0, v1 {sel} src0_sel:DWORD src1_sel:BYTE_1")
    chosen = [b >> 16 if a >> 16 < b & 0xFFFF else a >> 24 for a, b in zip(A, B, strict=True)]
    assert vector(wave, "v2").tolist() == chosen
    assert vector(wave, "v3").tolist() == [a + (b >> 8 & 255) & WORD for a, b in zip(A, B, strict=True)]


def test_floats_and_halves_in_parts() -> None:
    """float16 of an upper half with neg and abs, and a result into a half."""
    wave = make_wave()
    set_vector(wave, 0, [0xBC00_4000] * 64)
    set_vector(wave, 1, [0x0000_1111] * 64)
    run(wave, "v_add_f16_sdwa v1, |v0|, -v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0")
    assert vector(wave, "v1")[0] == 0xBC00_1111


def test_two_registers_have_no_parts() -> None:
    """SDWA of 64-bit values does not exist, and is refused."""
    with pytest.raises(UnknownInstructionError):
        run(make_wave(), "v_lshlrev_b64_sdwa v[0:1], v2, v[4:5] dst_sel:WORD_1 src0_sel:DWORD src1_sel:DWORD")

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.semantics import as_float, signed, to_float_bits

WORDS = 8

OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: (a + b) % 2**n,
    "sub": lambda a, b, n: (a - b) % 2**n,
    "smin": lambda a, b, n: min(signed(a, n), signed(b, n)) % 2**n,
    "smax": lambda a, b, n: max(signed(a, n), signed(b, n)) % 2**n,
    "umin": lambda a, b, _n: min(a, b),
    "umax": lambda a, b, _n: max(a, b),
    "and": lambda a, b, _n: a & b,
    "or": lambda a, b, _n: a | b,
    "xor": lambda a, b, _n: a ^ b,
    "inc": lambda a, b, _n: 0 if a >= b else a + 1,
    "dec": lambda a, b, _n: b if a == 0 or a > b else a - 1,
    "swap": lambda _a, b, _n: b,
}
LDS_NAMES = {
    "add": "add_rtn_u", "sub": "sub_rtn_u", "smin": "min_rtn_i", "smax": "max_rtn_i", "umin": "min_rtn_u",
    "umax": "max_rtn_u", "and": "and_rtn_b", "or": "or_rtn_b", "xor": "xor_rtn_b", "inc": "inc_rtn_u",
    "dec": "dec_rtn_u", "swap": "wrxchg_rtn_b",
}  # fmt: skip


def wave_with(words: list[int], bits: int, places: list[int], operands: list[int]) -> Wave:
    """A wave with `words` in a buffer at s[0:1] and in LDS, v0 the places in bytes, v[2:3] the operands."""
    wave = make_wave()
    content = b"".join(word.to_bytes(bits // 8, "little") for word in words)
    buffer = wave.memory.add("counts", len(content), content)
    wave.write_scalar_pair(0, buffer.base)
    wave.lds.store(np.arange(0, len(content), 4), 4, np.frombuffer(content, np.uint32)[:, None], 0)
    set_vector(wave, 0, [bits // 8 * place for place in places])
    set_vector(wave, 2, [one % 2**32 for one in operands])
    set_vector(wave, 3, [one >> 32 for one in operands])
    return wave


def held(wave: Wave, bits: int, memory: str) -> list[int]:
    """The words in the buffer or in LDS."""
    content = (
        wave.memory.buffers[0].read_bytes() if memory == "global" else wave.lds.data[: WORDS * bits // 8].tobytes()
    )
    return [int.from_bytes(content[at : at + bits // 8], "little") for at in range(0, len(content), bits // 8)]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("memory", ["global", "lds"])
def test_integer_atomics(memory: str, name: str, bits: int) -> None:
    """Lanes that meet in one word are served one after another: memory and each returned value are as if each had its
    turn."""
    random = Random(name)
    edges = (0, 1, 2**bits - 1, 2 ** (bits - 1), 5, 7)
    words, operands = ([random.choice(edges) for _ in range(count)] for count in (WORDS, 64))
    places = [random.randrange(WORDS) for _ in range(64)]
    wave = wave_with(words, bits, places, operands)
    pair = "v[4:5]" if bits == 64 else "v4"
    source = "v[2:3]" if bits == 64 else "v2"
    if memory == "global":
        suffix = "_x2" if bits == 64 else ""
        run(wave, f"global_atomic_{name}{suffix} {pair}, v0, {source}, s[0:1] sc0", "s_waitcnt vmcnt(0)")
    else:
        run(wave, f"ds_{LDS_NAMES[name]}{bits} {pair}, v0, {source}", "s_waitcnt lgkmcnt(0)")
    for lane, (place, operand) in enumerate(zip(places, operands, strict=True)):
        found = int(vector(wave, "v4")[lane]) | (int(vector(wave, "v5")[lane]) << 32 if bits == 64 else 0)
        assert found == words[place]
        words[place] = OPERATIONS[name](words[place], operand, bits)
    assert held(wave, bits, memory) == words


def test_compare_and_swap() -> None:
    """The new value comes first in global memory, the compared one first in DS_CMPST of gfx9."""
    wave = wave_with([5, 6, 7, 8, 0, 0, 0, 0], 32, [lane % 4 for lane in range(64)], [100 + lane for lane in range(64)])
    set_vector(wave, 3, [6] * 64)
    run(wave, "global_atomic_cmpswap v4, v0, v[2:3], s[0:1] sc0", "s_waitcnt vmcnt(0)")
    assert held(wave, 32, "global")[:4] == [5, 101, 7, 8]
    assert vector(wave, "v4").tolist()[:6] == [5, 6, 7, 8, 5, 101]
    run(wave, "ds_cmpst_rtn_b32 v4, v0, v3, v2", "s_waitcnt lgkmcnt(0)")
    assert held(wave, 32, "lds")[:4] == [5, 101, 7, 8]


def test_float_atomics() -> None:
    """Sums of float32 are rounded one after another, denormals flushed in memory; float64, pairs of halves, maxima."""
    values = [0.1 * lane - 3 for lane in range(64)]
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    wave = wave_with([0x3F800000] * WORDS, 32, [1] * 64, bits)
    run(wave, "global_atomic_add_f32 v0, v2, s[0:1]", "ds_add_f32 v0, v2", "s_waitcnt vmcnt(0) lgkmcnt(0)")
    total = 0x3F800000
    for one in bits:
        total = to_float_bits(Fraction(as_float(total)) + Fraction(as_float(one)))
    assert held(wave, 32, "global")[1] == held(wave, 32, "lds")[1] == total
    wave = wave_with([1] * WORDS, 32, [0] * 64, [1] * 64)
    run(wave, "s_mov_b64 exec, 1", "global_atomic_add_f32 v0, v2, s[0:1]", "ds_add_f32 v0, v2")
    run(wave, "s_waitcnt vmcnt(0) lgkmcnt(0)")
    assert (held(wave, 32, "global")[0], held(wave, 32, "lds")[0]) == (0, 2)
    wave = wave_with([0x4000_3C00] * WORDS, 32, [2] * 64, [0x3C00_4000] * 64)
    run(wave, "s_mov_b64 exec, 3", "global_atomic_pk_add_f16 v0, v2, s[0:1]", "s_waitcnt vmcnt(0)")
    assert held(wave, 32, "global")[2] == 0x4400_4500
    double = struct.unpack("<Q", struct.pack("<d", 1.5))[0]
    wave = wave_with([double] * WORDS, 64, [3] * 64, [double] * 64)
    run(wave, "s_mov_b64 exec, 3", "global_atomic_add_f64 v0, v[2:3], s[0:1]", "s_waitcnt vmcnt(0)")
    assert held(wave, 64, "global")[3] == struct.unpack("<Q", struct.pack("<d", 4.5))[0]


def test_buffer_atomics_are_bounded() -> None:
    """An atomic through a buffer resource returns into its operand; beyond the bytes it does nothing and gives 0."""
    wave = wave_with([10] * WORDS, 32, list(range(64)), [1] * 64)
    base = wave.read_scalar_pair(0)
    for place, value in enumerate((base % 2**32, base >> 32, 16, 0x27000)):
        wave.write_scalar(4 + place, value)
    run(wave, "buffer_atomic_add v2, v0, s[4:7], 0 offen sc0", "s_waitcnt vmcnt(0)")
    assert held(wave, 32, "global") == [11] * 4 + [10] * 4
    assert vector(wave, "v2").tolist() == [10] * 4 + [0] * 60


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("global_atomic_add v0, v2, s[0:1] offset:2", "4 does not divide"),
        ("global_atomic_add_x2 v0, v[2:3], s[0:1] offset:4", "8 does not divide"),
        ("ds_add_u64 v0, v[2:3] offset:4", "8 does not divide"),
    ],
)
def test_misaligned_atomics_are_faults(text: str, named: str) -> None:
    """An atomic at an address that its size does not divide; the aligned one runs."""
    wave = wave_with([0] * WORDS, 64, [0] * 64, [1] * 64)
    run(wave, text.partition(" offset")[0], "s_waitcnt vmcnt(0) lgkmcnt(0)")
    run(wave, text)
    with pytest.raises(ExecutionFault, match=named):
        run(wave, "s_waitcnt vmcnt(0) lgkmcnt(0)")


def test_atomics_of_waves_do_not_race_but_reads_do() -> None:
    """Two waves may update one word of LDS between barriers; who reads it then, races."""
    wave = wave_with([0] * WORDS, 32, [0] * 64, [1] * 64)
    wave.lds.pass_barrier()
    wave.lds.update(np.array([0]), 4, lambda _place, old: old + 1, 0)
    assert wave.lds.update(np.array([0]), 4, lambda _place, old: old + 1, 1) == [1]
    with pytest.raises(ExecutionFault, match="several waves wrote"):
        wave.lds.load(np.array([0]), 4, 2)
    wave.lds.pass_barrier()
    assert wave.lds.load(np.array([0]), 4, 2)[0, 0] == 2
    with pytest.raises(ExecutionFault, match="wave 1 updates byte 0 of the LDS, which wave 2 read"):
        wave.lds.update(np.array([0]), 4, lambda _place, old: old, 1)


def test_unknown_atomics_are_refused() -> None:
    """A minimum without a sign, and an operation that does not exist."""
    for text in ("global_atomic_min v0, v1, s[0:1]", "global_atomic_nand v0, v1, s[0:1]", "ds_mskor_b32 v0, v1, v2"):
        with pytest.raises(UnknownInstructionError, match="opcode"):
            run(make_wave(), text)

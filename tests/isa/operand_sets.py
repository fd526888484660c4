"""Draws operands of every type: ends of ranges, NaN, infinities, denormals, zeros of both signs, ties, and bits at
random."""

from __future__ import annotations

from random import Random

from tests.isa.formats import FORMATS

LANES = 64

_INTEGER_EDGES = (0, 1, 2, 15, 16, 31, 32, 63, 64, 0x7F, 0x80, 0xFF)


def edges(kind: str) -> tuple[int, ...]:
    """Bits of special values of a type."""
    width = int(kind.lstrip("bfiu"))
    top = 1 << (width - 1)
    found = [*_INTEGER_EDGES, top - 1, top, top + 1, 2 * top - 1, 1 << width // 2, (1 << width // 2) - 1]
    # 24 bits, for products of that width, and -1, which integers and NaN share.
    found += [0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000] if width >= 32 else []
    form = FORMATS.get(kind)
    if form is not None:
        one = form.bias << form.mantissa
        half = 1 << (form.mantissa - 1)
        sizes = [
            0, 1, (1 << form.mantissa) - 1, 1 << form.mantissa, one - 1, one, one + 1, one | half, form.infinity - 1,
            form.infinity, form.infinity | half, form.infinity + 1,
            # 0.5, 2, 3, 2.5 and 0.1 times powers of two; ties of whole numbers.
            one - (1 << form.mantissa), one + (1 << form.mantissa), one + (1 << form.mantissa) + half,
            one + (1 << form.mantissa) + half // 2, one + (form.mantissa << form.mantissa) + 1,
        ]  # fmt: skip
        # Limits of fp16, bfloat16 and of integers, as float32.
        sizes += [0x38800000, 0x387FE000, 0x477FF000, 0x477FE000, 0x4F000000, 0x4F800000, 0x3F808000] * (width == 32)
        sizes += [0x36A0000000000000, 0x47EFFFFFF0000000, 0x41DFFFFFFFC00000, 0x41F0000000000000] * (width == 64)
        found += [size | sign for size in sizes for sign in (0, form.sign)]
    return tuple(one & (2 * top - 1) for one in found)


def draw(random: Random, kind: str) -> int:
    """The bits of one operand."""
    width = int(kind.lstrip("bfiu"))
    choice = random.random()
    if choice < 0.35:
        return random.choice(edges(kind))
    if choice < 0.5:
        return random.getrandbits(random.randrange(1, width + 1))
    form = FORMATS.get(kind)
    if form is not None and choice < 0.75:
        # Near one: sums cancel, products round.
        exponent = form.bias + random.randrange(-3, 4)
        return random.getrandbits(1) << (width - 1) | exponent << form.mantissa | random.getrandbits(form.mantissa)
    return random.getrandbits(width)


def draw_set(random: Random, kinds: tuple[str, ...]) -> list[list[int]]:
    """For each source the operands of a wave's lanes."""
    return [[draw(random, kind) for _ in range(LANES)] for kind in kinds]

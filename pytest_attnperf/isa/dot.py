"""Dot products of the elements of two registers (V_DOT2, V_DOT4, V_DOT8).

The document adds one product after another to the third source; float products of 16-bit elements are exact in
float32, and each sum is rounded. On gfx90a V_DOT2 of floats flushes denormal inputs and results. Sources: AMD, "CDNA4
Instruction Set Architecture", VOP3P; PyTorch, "Numerical accuracy", on MI200.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction
from pytest_attnperf.isa.sources import bits_reader, reader, writer
from pytest_attnperf.isa.wave import Step, Wave

_NAME = re.compile(r"v_dot(2|4|8)(c?)_(f32|i32|u32)_(f16|bf16|i16|u16|i8|u8|i4|u4)")


def make_dot_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a dot product; None for another instruction."""
    found = _NAME.fullmatch(decoded.name)
    if found is None:
        return None
    decoded.allow()
    count, accumulate, result, element = int(found[1]), bool(found[2]), found[3], found[4]
    target, first, second, *rest = decoded.operands
    third = target if accumulate else rest[0]
    a, b, c = bits_reader(decoded, first), bits_reader(decoded, second), reader(decoded, third, result)
    write = writer(decoded, target, result)
    elements = _make_elements(element, count, flush=decoded.arch == "gfx90a" and result == "f32")
    flush = floats.flush if decoded.arch == "gfx90a" and result == "f32" else (lambda value: value)

    def run(wave: Wave) -> None:
        total = c(wave)
        for left, right in zip(elements(a(wave)), elements(b(wave)), strict=True):
            total = total + left * right
        write(wave, flush(total))

    return run


def _make_elements(element: str, count: int, *, flush: bool) -> Callable[[Any], list[Array]]:
    """Returns a function that splits uint32 into `count` elements, the lowest first."""
    bits = 32 // count
    if bits != int(element.lstrip("bfiu")):
        raise ValueError(f"{count} elements of {element}")
    signed, above = element[0] == "i", 32 - bits

    def split(word: Any) -> list[Array]:
        top = [np.asarray(word) << np.uint32(above - bits * place) for place in range(count)]
        if element == "bf16":
            wide = [(one & np.uint32(0xFFFF0000)).view(np.float32) for one in top]
            return [floats.flush(one) for one in wide] if flush else wide
        if element == "f16":
            halves = [(one >> np.uint32(16)).astype(np.uint16).view(np.float16) for one in top]
            return [(floats.flush_half(one) if flush else one).astype(np.float32) for one in halves]
        return [one.view(np.int32) >> np.int32(above) if signed else one >> np.uint32(above) for one in top]

    return split

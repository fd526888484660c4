"""The three instructions around a division of the compiler: V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP, of each width.

Sources: AMD, "CDNA3 Instruction Set Architecture", VOP3; "RDNA3.5" for the scale of V_DIV_FMAS, which the older
document states without its sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Quotients:
    """Numbers of one width.

    mantissa   stored bits of it
    far        exponents that lie so far apart that the quotient is scaled
    few        exponents of a numerator up to this one are scaled up
    power      of the scale
    gone       difference of exponents below which the quotient is 0; None where the document has no such case
    """

    kind: Any
    mantissa: int
    far: int = 0
    few: int = 0
    power: int = 0
    gone: int | None = None

    @property
    def bits(self) -> Any:
        """The unsigned integer of this width."""
        return np.dtype(f"u{np.dtype(self.kind).itemsize}").type

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return int(1 << (8 * np.dtype(self.kind).itemsize - self.mantissa - 2)) - 1

    def exponent(self, a: Any) -> Any:
        """Returns the exponents as they are stored."""
        return (np.asarray(a, self.kind).view(self.bits) >> self.bits(self.mantissa)).astype(np.int64) & (
            2 * self.bias + 1
        )

    def is_denormal(self, a: Any) -> Any:
        """Returns whether numbers, of this width or a larger one, lie below the normal ones."""
        return (a != 0) & (np.abs(a) < np.finfo(self.kind).smallest_normal)


HALVES = Quotients(np.float16, 10)
FLOATS = Quotients(np.float32, 23, 96, 23, 64, -150)
DOUBLES = Quotients(np.float64, 52, 768, 53, 128, -1075)


def scale(form: Quotients, chosen: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """Returns (scaled value, mask of quotients to be scaled back) of V_DIV_SCALE; `chosen` is one of the others.

    Where 1 / denominator and the quotient are both denormal, the document scales the denominator up, which would
    overflow; down here, with which the compiler's sequence gives the quotient.
    """
    chosen, denominator, numerator = np.broadcast_arrays(chosen, denominator, numerator)
    wide = denominator.astype(np.float64)
    inverse_small = form.is_denormal(1.0 / wide)
    quotient_small = form.is_denormal(numerator.astype(np.float64) / wide)
    is_denominator = chosen.view(form.bits) == denominator.view(form.bits)
    is_numerator = chosen.view(form.bits) == numerator.view(form.bits)
    up, down = chosen * form.kind(2.0**form.power), chosen * form.kind(2.0**-form.power)
    conditions = [
        (numerator == 0) | (denominator == 0),
        form.exponent(numerator) - form.exponent(denominator) >= form.far,
        form.is_denormal(denominator),
        inverse_small & quotient_small,
        inverse_small,
        quotient_small,
        form.exponent(numerator) <= form.few,
    ]
    values = [
        np.full_like(chosen, np.nan),
        np.where(is_denominator, up, chosen),
        up,
        np.where(is_denominator, down, chosen),
        down,
        np.where(is_numerator, up, chosen),
        up,
    ]
    nothing = np.zeros(chosen.shape, bool)
    flags = [nothing, ~nothing, nothing, ~nothing, nothing, ~nothing, nothing]
    return np.select(conditions, values, chosen), np.select(conditions, flags, nothing)


def scale_back(form: Quotients, total: Any, addend: Any, scaled: Any) -> Any:
    """Returns the sum of V_DIV_FMAS, scaled back where the quotient was scaled."""
    large, small = form.kind(2.0**form.power), form.kind(2.0**-form.power)
    return np.where(scaled, total * np.where(form.exponent(addend) > form.bias, large, small), total)


def fix_up(form: Quotients, quotient: Any, denominator: Any, numerator: Any) -> Any:
    """Returns the quotient with the results of special operands (V_DIV_FIXUP).

    A NaN as the quotient of numbers means that it overflowed in the steps before: infinite, as IEEE 754 has it.
    """
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    sign = np.where(np.signbit(denominator) != np.signbit(numerator), form.kind(-1), form.kind(1))
    infinite, zero = sign * form.kind(np.inf), sign * form.kind(0)
    both = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    conditions = [
        np.isnan(numerator) | np.isnan(denominator) | both,
        (denominator == 0) | np.isinf(numerator),
        np.isinf(denominator) | (numerator == 0),
    ]
    special = [np.full_like(quotient, np.nan), infinite, zero]
    if form.gone is not None:
        conditions += [form.exponent(numerator) - form.exponent(denominator) < form.gone, np.isnan(quotient)]
        special += [zero, infinite]
    return np.select(conditions, special, sign * np.abs(quotient)).astype(form.kind)

"""Errors of an output against its reference, element by element."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.correctness.budget import budget
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import ErrorFigures, Tolerance

if TYPE_CHECKING:
    import torch


class MismatchError(AttnperfError):
    """An output cannot be compared with its reference at all: it is wrong whatever its values are."""


@dataclass(frozen=True)
class Yardstick:
    """What the plain computation of one output is off by: the measure of every budget.

    dtype       what the output must be stored in: the plain computation's
    max_error   largest |plain - reference|
    rms_error   root mean square of plain - reference
    """

    dtype: torch.dtype
    max_error: float
    rms_error: float

    def joined(self, other: Yardstick) -> Yardstick:
        """The larger errors of two draws of the same problem."""
        return Yardstick(self.dtype, max(self.max_error, other.max_error), max(self.rms_error, other.rms_error))


def measure(name: str, reference: torch.Tensor, plain: torch.Tensor) -> Yardstick:
    """The yardstick of output `name`: `reference` in fp32 or fp64, `plain` in the working dtype, of one shape.

    Raises MismatchError when they cannot be compared, or one is empty or not finite.
    """
    import torch

    if reference.shape != plain.shape or reference.device != plain.device:
        raise MismatchError(
            f"the reference of {name!r} is {tuple(reference.shape)} on {reference.device}, the plain computation "
            f"{tuple(plain.shape)} on {plain.device}: they must agree"
        )
    if not reference.numel():
        raise MismatchError(f"the reference of {name!r} has no elements (shape {tuple(reference.shape)})")
    for tensor, what in ((reference, "reference"), (plain, "plain computation")):
        if not bool(tensor.isfinite().all()):
            raise MismatchError(
                f"the {what} of {name!r} holds NaN or Inf: no error can be measured against it, so a check could not "
                "fail; use inputs it is finite on"
            )
    with torch.no_grad():
        difference = plain.double() - reference.double()
        return Yardstick(plain.dtype, float(difference.abs().max()), _rms(difference))


def compare(
    check: str, name: str, got: torch.Tensor, reference: torch.Tensor, yardstick: Yardstick, tolerance: Tolerance
) -> ErrorFigures:
    """Figures of one output; whether they are good enough is said by `budget.problems`.

    got         the output under judgement, in the yardstick's dtype, of the reference's shape and device
    reference   the truth in fp32 or fp64, finite (as `measure` has checked)

    Element i may be off by multiplier * yardstick.max_error + eps * max(|reference_i|, rms(reference)), with eps
    the rounding step of the output type at 1. The step is taken at the element's own magnitude, so that one huge
    element does not excuse an error on a small one; and at no less than the typical magnitude, because an element that
    is small by cancellation carries the rounding of the sum it came from. The figures are those of the element that
    exceeds its budget most.

    The root mean square may be multiplier * yardstick.rms_error + eps / 2 * rms(reference): rounding to nearest
    moves a value by at most half a step. It sees what the maximum does not, such as half the elements off by a
    little.

    Figures are always finite, so that they can be stored: an overflowing error becomes the largest float.
    Where `got` is not finite, `worst_index` is the first such element and `worst_got` says nothing.

    Raises MismatchError for another layout, shape, dtype or device.
    """
    import torch

    _require_comparable(name, got, reference, yardstick)
    with torch.no_grad():
        work = reference.double()
        difference = got.double() - work
        eps, typical = _eps(got.dtype), _rms(work)
        base = budget(yardstick.max_error, 0.0, tolerance)
        allowed = work.abs().clamp_(min=typical).mul_(eps).add_(base)
        place = _unravel(_worst(got, difference.abs(), allowed), got.shape)
        return ErrorFigures(
            check=check,
            output=name,
            max_error=_storable(float(difference[place].abs())),
            max_budget=_storable(float(allowed[place])),
            rms_error=_storable(_rms(difference)),
            rms_budget=_storable(budget(yardstick.rms_error, eps * typical / 2, tolerance)),
            worst_index=place,
            worst_got=_storable(float(got[place])),
            worst_expected=float(work[place]),
            nan_count=int(got.isnan().sum()),
            inf_count=int(got.isinf().sum()),
            elements=got.numel(),
        )


def _require_comparable(name: str, got: torch.Tensor, reference: torch.Tensor, yardstick: Yardstick) -> None:
    pairs = (
        ("layout", got.layout, reference.layout),
        ("shape", tuple(got.shape), tuple(reference.shape)),
        ("dtype", got.dtype, yardstick.dtype),
        ("device", got.device, reference.device),
    )
    for what, ours, expected in pairs:
        if ours != expected:
            raise MismatchError(f"output {name!r} has {what} {ours}, expected {expected}")


def _worst(got: torch.Tensor, error: torch.Tensor, allowed: torch.Tensor) -> int:
    """Flat index of the first element that is not finite, else of the one furthest beyond its budget."""
    not_finite = got.isfinite().logical_not().flatten()
    if bool(not_finite.any()):
        return int(not_finite.int().argmax())
    # Any error beats none where nothing is allowed; 0 / 0 is an element that is exactly right.
    return int((error / allowed).nan_to_num_(nan=0.0, posinf=math.inf).flatten().argmax())


def _unravel(index: int, shape: torch.Size) -> tuple[int, ...]:
    place: tuple[int, ...] = ()
    for size in reversed(shape):
        index, part = divmod(index, size)
        place = (part, *place)
    return place


def _eps(dtype: torch.dtype) -> float:
    """The spacing of the type at 1; 0 for integers, which are compared exactly."""
    import torch

    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def _rms(values: torch.Tensor) -> float:
    return math.sqrt(float(values.square().mean()))


def _storable(value: float) -> float:
    return max(-sys.float_info.max, min(value, sys.float_info.max)) if value == value else sys.float_info.max

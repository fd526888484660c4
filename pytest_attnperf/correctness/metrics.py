"""Errors of an output against its reference, element by element, and the exact pattern of NaN and Inf."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import scan
from pytest_attnperf.correctness.budget import compute_budget
from pytest_attnperf.correctness.lines import Lines, WorstLine, find_worst_line, measure_lines
from pytest_attnperf.correctness.scan import Allowed, Scan
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import ErrorFigures, Tolerance
from pytest_attnperf.workloads.input_memory import as_integers

if TYPE_CHECKING:
    import torch

AROUND = 2
"""Elements shown on either side of the worst one: enough to distinguish one bad element from a bad row."""

COMPARABLE = (
    *("float64", "float32", "float16", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)
"""Attributes of torch: the dtypes an output may have. A complex one is compared as its real view."""


class MismatchError(AttnperfError):
    """An output that cannot be compared with its reference: it is wrong whatever its values are."""


@dataclass(frozen=True)
class Yardstick:
    """The error of the plain computation of one output: the measure of every budget.

    dtype       the dtype that the output must have: the plain computation's
    max_error   largest |plain - reference|
    rms_error   root mean square of plain - reference
    lines       these errors of single rows and columns (see `lines`)
    """

    dtype: torch.dtype
    max_error: float
    rms_error: float
    lines: Lines = field(default_factory=dict)

    def merge(self, other: Yardstick) -> Yardstick:
        """Returns this yardstick with the larger max_error and rms_error of the two, which come from two draws (seeds)
        of one problem; `lines` are this one's."""
        return replace(
            self, max_error=max(self.max_error, other.max_error), rms_error=max(self.rms_error, other.rms_error)
        )

    def scale_largest(self, factor: float) -> Yardstick:
        """Returns this yardstick with `max_error` times `factor`, to make up for a maximum over few elements."""
        return replace(self, max_error=self.max_error * factor)

    def limit_rms(self, rms_error: float) -> Yardstick:
        """Returns this yardstick with `rms_error` as the upper limit of its root mean square error."""
        return replace(self, rms_error=min(self.rms_error, rms_error))

    def loosen(self, other: Yardstick) -> Yardstick:
        """Returns the larger errors of two plain computations of the same inputs, line by line if both have them."""
        lines = {kind: one.merge(other.lines[kind]) for kind, one in self.lines.items() if kind in other.lines}
        return replace(self.merge(other), lines=self.lines | lines)


def measure_yardstick(
    name: str, reference: torch.Tensor, plain: torch.Tensor, *, non_finite: bool = False, by_line: bool = True
) -> Yardstick:
    """Measures the yardstick of output `name`, which is the error of the plain computation: `reference` in fp32 or
    fp64, `plain` in the working dtype, of one shape.

    If the reference is integer or boolean, `plain` must equal it exactly. If it is real-valued and the output integer
    (the values before a quantising kernel rounds them), the plain computation's rounding is the yardstick.

    non_finite   the reference may hold NaN and Inf; the plain computation must hold the same at the same places, and
                 errors are over the elements that are finite
    by_line      whether lines (rows, columns) are measured, too

    Raises MismatchError when they cannot be compared, when no element or, without `non_finite`, not every element is
    finite, and when the reference is narrower than the output.
    """
    import torch

    _require_pair(name, reference, plain)
    with torch.no_grad():
        unit = Allowed(1.0, 0.0, torch.zeros((), dtype=torch.float64, device=reference.device))
        found = scan.scan_finite(plain, reference, unit)
        if found is None:
            found = scan.scan_any(plain, reference, unit)
            _require_measurable(name, reference, plain, found, non_finite=non_finite)
        if found.largest and _is_exact(reference):
            ours, truth = _read_values(plain, reference, found.worst)
            raise MismatchError(
                f"the reference of {name!r} holds {reference.dtype}, which is compared exactly, but the plain "
                f"computation differs from it, most at {scan.unravel(found.worst, plain.shape)}: {ours:.6g} against "
                f"{truth:.6g}; use inputs whose rounding changes no element, or return a floating-point reference: the "
                "values before they are rounded"
            )
        comparable = by_line and found.finite == plain.numel() and not _is_exact(reference)
        lines = measure_lines(plain, reference) if comparable else {}
        return Yardstick(plain.dtype, found.largest, found.rms, lines)


def compare_output(
    check: str, name: str, got: torch.Tensor, reference: torch.Tensor, yardstick: Yardstick, tolerance: Tolerance
) -> ErrorFigures:
    """Measures the error figures of one output; `budget.list_problems` decides whether they are good enough.

    got         the output to check, in the yardstick's dtype, of the reference's shape and device
    reference   the exact result in fp32 or fp64 (as `measure_yardstick` has checked), or integers; may hold NaN and Inf

    Where the reference is NaN or Inf, the output must be the same NaN or Inf; elsewhere it must be finite. The allowed
    error of any other element i is multiplier * yardstick.max_error + eps * max(|reference_i|, rms(reference)), with
    eps the rounding step of the output type at 1. The step is taken at the element's own magnitude, so that one huge
    element does not excuse an error on a small one. It is taken at no less than the typical magnitude, because an
    element that is small by cancellation carries the rounding of the sum it came from. The figures are those of the
    element that exceeds its budget most.

    The allowed root mean square is multiplier * yardstick.rms_error + eps / 2 * rms(reference): rounding to nearest
    moves a value by at most half a step. It detects what the maximum does not, such as small errors of half the
    elements. Both use the elements that are finite on both sides. Where all are finite, single rows and columns have
    their own budgets (`lines`), which detect losses that are small compared with the other elements.

    Figures are always finite, so that they can be stored: an overflowing error becomes the largest float. Where the
    pattern of NaN and Inf is wrong, the figures are those of the first such element, and `around_got` and
    `around_expected` show it.

    Raises MismatchError if layout, shape, dtype or device differ, if there are no elements, if the budget is not
    finite, and if the squares of the reference overflow.
    """
    import torch

    _require_comparable(name, got, reference, yardstick)
    multiplier = tolerance.for_output(name)
    base, rms_base = (compute_budget(error, 0.0, multiplier) for error in (yardstick.max_error, yardstick.rms_error))
    if not math.isfinite(base + rms_base):
        raise MismatchError(
            f"the budget of {name!r} is not finite ({multiplier:g} x {yardstick.max_error:.3g}): no result could "
            "exceed it; use a finite multiplier, and inputs whose plain error is finite"
        )
    with torch.no_grad():
        allowed = Allowed(base, rounding_step(got.dtype), scan.typical_magnitude(reference))
        found = scan.scan_finite(got, reference, allowed)
        if found is None:
            allowed = replace(allowed, typical=scan.typical_finite_magnitude(reference))
            found = scan.scan_any(got, reference, allowed)
        typical = found.typical
        if not math.isfinite(typical):
            raise MismatchError(
                f"the reference of {name!r} is too large to be judged: its squares overflow fp64; use smaller inputs"
            )
        figures = _measure_worst(check, name, got, reference, found, allowed)
        figures = replace(
            figures,
            rms_error=_clamp_to_finite(found.rms),
            rms_budget=_clamp_to_finite(rms_base + allowed.eps * typical / 2),
        )
        if not found.violations:
            figures = _with_line(figures, find_worst_line(got, reference, yardstick.lines, multiplier, allowed.eps))
        if not found.violations and figures.max_error <= figures.max_budget:
            return figures
        count, first, last = scan.find_violations(got, reference, allowed)
        return replace(figures, beyond_count=count, beyond_first=first, beyond_last=last)


def find_constant_value(reference: torch.Tensor) -> float | None:
    """Returns the value that all finite elements have; None if they differ or are fewer than two."""
    import torch

    with torch.no_grad():
        if reference.dtype in (torch.float32, torch.float64):
            lowest, highest = torch.stack(reference.aminmax()).tolist()
            if -math.inf < lowest < highest < math.inf:
                return None
        finite = reference[reference.isfinite()]
        return None if finite.numel() < 2 or bool((finite != finite[0]).any()) else float(finite[0])


def describe_constant(name: str, value: float) -> str:
    """Returns the message for output `name`, of which all elements of the reference have this value."""
    return (
        f"the reference of {name!r} is constant ({value:.6g} everywhere): many wrong results would agree "
        "with it; use inputs that give different elements"
    )


@functools.cache
def rounding_step(dtype: torch.dtype) -> float:
    """Returns the distance from 1 to a dtype's next larger number: 2^-10 for f16, 2^-7 for bf16; 0 for integers and
    bool. Reads it from the bits of 1, because `torch.finfo(torch.float8_e5m2fnuz).eps` is 2^-3 (torch 2.13), half of
    what two bits of mantissa give (2^-2)."""
    import torch

    if not dtype.is_floating_point:
        return 0.0
    one = torch.ones(1, dtype=dtype, device="cpu")
    return float((as_integers(one) + 1).view(dtype).double()) - 1.0


def _with_line(figures: ErrorFigures, line: WorstLine | None) -> ErrorFigures:
    if line is None:
        return figures
    return replace(
        figures, line=line.name, line_error=_clamp_to_finite(line.error), line_budget=_clamp_to_finite(line.allowed)
    )


def _measure_worst(
    check: str, name: str, got: torch.Tensor, reference: torch.Tensor, found: Scan, allowed: Allowed
) -> ErrorFigures:
    """Returns the figures of the worst element and the elements around it; the root mean square figures are 0."""
    place = scan.unravel(found.worst, got.shape)
    first, ours, truth = scan.read_neighbours(got, reference, place, AROUND)
    middle = (place[-1] if place else 0) - first
    worst, expected = ours[middle], truth[middle]
    magnitude = max(abs(expected), found.typical) if math.isfinite(expected) else found.typical
    return ErrorFigures(
        check=check,
        output=name,
        max_error=0.0 if worst == expected else _clamp_to_finite(abs(worst - expected)),
        max_budget=_clamp_to_finite(magnitude * allowed.eps + allowed.base),
        rms_error=0.0,
        rms_budget=0.0,
        worst_index=place,
        worst_got=_clamp_to_finite(worst),
        worst_expected=_clamp_to_finite(expected),
        nan_count=found.nan_count,
        inf_count=found.inf_count,
        finite_count=found.finite_count,
        elements=got.numel(),
        around_first=first,
        around_got=tuple(_as_json_value(value) for value in ours),
        around_expected=tuple(_as_json_value(value) for value in truth),
    )


def _require_pair(name: str, reference: torch.Tensor, plain: torch.Tensor) -> None:
    """Raises MismatchError unless both tensors have elements, dtypes that can be compared, one shape and one device."""
    import torch

    for tensor, what in ((reference, "reference"), (plain, "plain computation")):
        _require_known(f"the {what} of {name!r}", tensor)
    if reference.shape != plain.shape or reference.device != plain.device:
        raise MismatchError(
            f"the reference of {name!r} is {tuple(reference.shape)} on {reference.device}, the plain computation "
            f"{tuple(plain.shape)} on {plain.device}: they must agree"
        )
    if not reference.numel():
        raise MismatchError(
            f"the reference of {name!r} has no elements (shape {tuple(reference.shape)}); use inputs that give some"
        )
    if _is_exact(reference):
        fits = _is_exact(plain) and (reference.dtype == torch.bool) == (plain.dtype == torch.bool)
        advice = "return both as integers, both as booleans, or the reference in fp32 or fp64"
    else:
        wide = reference.dtype in (torch.float32, torch.float64)
        fits = wide and plain.dtype != torch.bool and rounding_step(reference.dtype) <= _own_step(plain.dtype)
        advice = (
            "compute it in fp32 or fp64, at least as precise as the output: its own rounding would pass for the truth"
        )
    if not fits:
        raise MismatchError(
            f"the reference of {name!r} is {reference.dtype}, the plain computation {plain.dtype}: {advice}"
        )


def _own_step(dtype: torch.dtype) -> float:
    return rounding_step(dtype) if dtype.is_floating_point else 1.0


def _require_known(what: str, tensor: torch.Tensor) -> None:
    """Raises MismatchError, naming `what`, unless it is a dense torch.Tensor with a dtype of COMPARABLE."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise MismatchError(f"{what} is a {type(tensor).__name__}, not a torch.Tensor; return a tensor")
    if tensor.layout != torch.strided:
        raise MismatchError(f"{what} has layout {tensor.layout}, expected torch.strided; return a dense tensor")
    if tensor.dtype not in [getattr(torch, dtype) for dtype in COMPARABLE]:
        advice = "return its real view (torch.view_as_real)" if tensor.dtype.is_complex else "return one of these"
        raise MismatchError(f"{what} has dtype {tensor.dtype}; comparable are {', '.join(COMPARABLE)}: {advice}")


def _require_measurable(
    name: str, reference: torch.Tensor, plain: torch.Tensor, found: Scan, *, non_finite: bool
) -> None:
    """Raises MismatchError if NaN or Inf occurs without `non_finite`, or at different places in the two, if no element
    is finite, or if errors overflow fp64."""
    for tensor, what in ((reference, "reference"), (plain, "plain computation")):
        if not non_finite and not all(
            bool(part.isfinite().all()) for _, part, _ in scan.iterate_chunks(tensor, tensor)
        ):
            raise MismatchError(
                f"the {what} of {name!r} holds NaN or Inf: no error can be measured against it, so a check could not "
                "fail; use inputs it is finite on, or announce the output in the workload's `non_finite_outputs`"
            )
    if found.violations:
        ours, truth = _read_values(plain, reference, found.worst)
        raise MismatchError(
            f"the plain computation of {name!r} must hold the NaN and Inf of the reference and no others: "
            f"{found.violations} of {reference.numel()} elements differ, first at "
            f"{scan.unravel(found.worst, reference.shape)}: {ours:.6g} against {truth:.6g}"
        )
    if not found.finite:
        raise MismatchError(
            f"the reference of {name!r} holds no finite element among {reference.numel()}: no error can be measured "
            "against it; use inputs that give some"
        )
    if not math.isfinite(found.norm):
        raise MismatchError(f"errors of the plain computation of {name!r} overflow fp64; use smaller inputs")


def _require_comparable(name: str, got: torch.Tensor, reference: torch.Tensor, yardstick: Yardstick) -> None:
    pairs = (
        ("layout", got.layout, reference.layout, "return a dense tensor"),
        ("shape", tuple(got.shape), tuple(reference.shape), ""),
        ("dtype", got.dtype, yardstick.dtype, "return the result in the type of the plain computation"),
        ("device", got.device, reference.device, "return the result where its inputs are"),
    )
    for what, ours, expected, advice in pairs:
        if ours != expected:
            advice = advice or _shape_advice(tuple(got.shape), tuple(reference.shape))
            raise MismatchError(f"output {name!r} has {what} {ours}, expected {expected}; {advice}")
    _require_known(f"output {name!r}", got)
    if not got.numel():
        raise MismatchError(
            f"output {name!r} has no elements (shape {tuple(got.shape)}): nothing can be compared; use inputs "
            "that give some"
        )


def _shape_advice(seen: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if sorted(seen) == sorted(expected):
        free = list(range(len(seen)))
        order = []
        for size in expected:
            order.append(next(dim for dim in free if seen[dim] == size))
            free.remove(order[-1])
        return f"the layout looks transposed: permute{tuple(order)} gives the expected shape"
    if math.prod(seen) == math.prod(expected):
        return "it has as many elements: reshape it if they are in the expected order"
    return "return every element of the result, in the expected layout"


def _is_exact(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point()


def _read_values(ours: torch.Tensor, truth: torch.Tensor, index: int) -> tuple[float, float]:
    """Returns the values of both tensors at a flat index."""
    _, mine, theirs = scan.read_neighbours(ours, truth, scan.unravel(index, ours.shape), 0)
    return mine[0], theirs[0]


def _as_json_value(value: float) -> float | str:
    """Returns a finite number unchanged, NaN and Inf as 'nan', 'inf' and '-inf', because JSON has none."""
    return float(value) if math.isfinite(value) else str(value)


def _clamp_to_finite(value: float) -> float:
    return max(-sys.float_info.max, min(float(value), sys.float_info.max)) if value == value else sys.float_info.max

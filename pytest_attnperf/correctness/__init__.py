"""Checks that outputs are right. `assert_within_budget` can be used alone, in any test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import (
    MismatchError,
    Yardstick,
    compare_output,
    describe_constant,
    find_constant_value,
    measure_yardstick,
)
from pytest_attnperf.records import Tolerance

if TYPE_CHECKING:
    import torch

__all__ = ["assert_within_budget"]

Results: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor] | Mapping[str, torch.Tensor]"

_CHECK = "assert_within_budget"


def assert_within_budget(
    got: Results,
    reference: Results,
    plain: Results,
    *,
    tolerance: Tolerance | None = None,
    name: str = "out",
    non_finite: bool = False,
) -> None:
    """Raises AssertionError, saying where and by how much, unless `got` is within the measured budget.

    The first three arguments are a tensor each, or a tuple or list of tensors, or a dict by output name.

    got          the output to check, floating point (fp8 included), integer or bool
    reference    the exact result, same shape and device, in fp32 or fp64, and at least as precise as `plain`; integers
                 or booleans where the result must be exact
    plain        the plain computation in the dtype of `got`; its own error against `reference` defines the budget
    tolerance    default: 2 x the error of the plain computation
    name         name of a single tensor in messages; those of a tuple are called `name` plus number: out0, out1
    non_finite   NaN and Inf in the reference are intended, and must be in `plain` and `got` at the same places

    Example:
        q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        def attention(q, k, v):
            return torch.softmax(q @ k.mT / 8, -1) @ v
        reference = attention(q.double(), k.double(), v.double())
        plain = attention(q, k, v)
        assert_within_budget(my_kernel(q, k, v), reference, plain)

    Raises ValueError where the check would prove nothing: a reference that is narrower than `plain`, constant, empty
    or, without `non_finite`, not finite, or whose names, shapes or devices differ from those of `plain`.
    """
    __tracebackhide__ = True
    _require_tolerance(tolerance)
    references, plains = _name_results(reference, name), _name_results(plain, name)
    yardsticks = _measure_yardsticks(references, plains, non_finite=non_finite)
    outputs = _name_results(got, name)
    found = _other_names(outputs, references)
    for each in [each for each in references if each in outputs]:
        found += _list_output_problems(
            each, outputs[each], references[each], yardsticks[each], tolerance or Tolerance()
        )
    if found:
        raise AssertionError("\n".join(found))


def _require_tolerance(tolerance: object) -> None:
    __tracebackhide__ = True
    if not isinstance(tolerance, Tolerance | None):
        raise ValueError(
            f"{_CHECK}: tolerance is {tolerance!r}, but must be a factor of the plain computation's error with its "
            "reason, e.g. pytest_attnperf.records.Tolerance(3.0, 'two roundings in bf16')"
        )


def _name_results(results: Any, name: str) -> dict[str, Any]:
    if isinstance(results, Mapping):
        return dict(results)
    if isinstance(results, (tuple, list)):
        return {f"{name}{number}": result for number, result in enumerate(results)}
    return {name: results}


def _measure_yardsticks(
    references: dict[str, torch.Tensor], plains: dict[str, torch.Tensor], *, non_finite: bool
) -> dict[str, Yardstick]:
    """Returns by output name the yardstick: the error of the plain computation against the reference, which defines the
    budget. Raises ValueError if there is no output, names differ, tensors cannot be compared, a reference is constant
    or, without `non_finite`, not finite."""
    __tracebackhide__ = True
    if not references or references.keys() != plains.keys():
        raise ValueError(
            f"{_CHECK}: the reference holds {sorted(references)}, the plain computation {sorted(plains)}; both must "
            "hold the same outputs, at least one"
        )
    yardsticks = {}
    for name, reference in references.items():
        try:
            yardsticks[name] = measure_yardstick(name, reference, plains[name], non_finite=non_finite)
        except MismatchError as error:
            raise ValueError(f"{_CHECK}: {error}{_describe_order(reference, plains[name])}") from None
        if (value := find_constant_value(reference)) is not None:
            raise ValueError(f"{_CHECK}: {describe_constant(name, value)}")
    return yardsticks


def _describe_order(reference: Any, plain: Any) -> str:
    """Returns advice where the reference is narrower than fp32 or than the plain computation, as where arguments are
    swapped; else ''."""
    widths = [getattr(getattr(result, "dtype", None), "itemsize", 0) for result in (reference, plain)]
    return f"; the order is {_CHECK}(got, reference, plain)" if 0 < widths[0] < max(4, widths[1]) else ""


def _other_names(outputs: dict[str, Any], references: dict[str, Any]) -> list[str]:
    missing, extra = sorted(references.keys() - outputs.keys()), sorted(outputs.keys() - references.keys())
    said = [f"is missing {', '.join(map(repr, missing))}"] if missing else []
    said += [f"holds {', '.join(map(repr, extra))}, which no reference is given for"] if extra else []
    advice = "give all three as a tensor, or all as a list or dict"
    return [f"{_CHECK}: the result {' and '.join(said)}; expected are {sorted(references)}: {advice}"] if said else []


def _list_output_problems(
    name: str, got: Any, reference: torch.Tensor, yardstick: Yardstick, tolerance: Tolerance
) -> list[str]:
    """Returns, in words, what is wrong with output `name`: no tensor, another shape or dtype, or too large an error."""
    import torch

    if not isinstance(got, torch.Tensor):
        return [f"{_CHECK}: output {name!r} is a {type(got).__name__}, not a torch.Tensor; pass a tensor"]
    try:
        return list(list_problems([compare_output(_CHECK, name, got, reference, yardstick, tolerance)]))
    except MismatchError as error:
        return [f"{_CHECK}: {error}"]

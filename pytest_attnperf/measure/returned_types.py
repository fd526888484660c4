"""Checks the types of what a backend's and a workload's methods return: errors name the method and what to return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.records.call_fit import format_kind
from pytest_attnperf.records.listing import find_class_place


def require_inputs(workload_id: str, inputs: object) -> None:
    """Raises CaseFailedError if what a workload's `make_inputs` returned is not a tuple."""
    if not isinstance(inputs, tuple):
        kind = type(inputs).__name__
        raise CaseFailedError(f"{workload_id}: make_inputs() returned {kind}; return a tuple of tensors")


def require_reasons(backend: Backend, reasons: Any) -> list[str]:
    """Returns the reasons that `unsupported_reasons` returned. Raises UsageError if they are no list."""
    if not isinstance(reasons, (list, tuple)):
        raise UsageError(
            f"{_place_of(backend)}.unsupported_reasons() returned {type(reasons).__name__}; return a list of texts, "
            "[] if it can run"
        )
    return list(reasons)


def require_prepared(backend: Backend, prepared: object) -> None:
    """Raises UsageError if `backend.prepare` returned something that is no Prepared, or one with a field of another
    type."""
    where = _place_of(backend)
    if not isinstance(prepared, Prepared):
        raise UsageError(f"{where}.prepare() returned {type(prepared).__name__}; return a Prepared")
    for name, allowed, advice in (
        ("tensors", (tuple, list), "give a tuple, e.g. tensors=(x,)"),
        ("call", Callable, "give a function of the tensors"),
        ("convert", Callable, "give a function from inputs to tensors, e.g. convert=lambda inputs: inputs"),
        ("outputs", Callable, "give a function, e.g. outputs=lambda result: {'out': result}"),
        ("config", dict, "give a dict of texts, e.g. config={'block': '64'}"),
        ("declares", Declares, "give e.g. declares=Declares(operators=('aten::mul',))"),
    ):
        if not isinstance(value := getattr(prepared, name), allowed):  # type: ignore[arg-type]
            raise UsageError(f"{where}.prepare() returned a Prepared whose {name} is {format_kind(value)}; {advice}")
    for name, value in prepared.config.items():
        if not isinstance(value, str):
            raise UsageError(f"{where}: config[{name!r}] is {value!r}; give text, e.g. {str(value)!r}")


def _place_of(backend: Backend) -> str:
    return f"{find_class_place(type(backend))}: {backend.name}"

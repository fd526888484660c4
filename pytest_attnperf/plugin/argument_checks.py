"""Checks what a test gives to `attnperf.run`, `attnperf.gate` and `gpu_timer`: misuse fails it in one sentence."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ParamSpec, TypeVar

import pytest

from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UsageError, propose_name
from pytest_attnperf.records import Tolerance
from pytest_attnperf.records.call_fit import format_kind
from pytest_attnperf.workloads.adhoc import CACHE_STATES
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.gradients import PASSES

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
_TAKEN = "take both from the test's own arguments: def test_mine(attnperf, backend, workload)"


def refuse_misuse(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Returns the function with its arguments checked. A call that does not fit its signature, an argument of another
    kind, and a usage error that it raises fail the test in one sentence.

    name   how the function is called in a test; default: `attnperf.` and its own name
    """
    name = name or f"attnperf.{function.__name__}"

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        if misfit := _find_misfit(function, args, kwargs):
            pytest.fail(f"{name}(): {misfit}", pytrace=False)
        try:
            return function(*args, **kwargs)
        except (UsageError, pytest.UsageError) as error:
            problem = str(error)
        pytest.fail(problem, pytrace=False)  # here, so that the error is not shown as its context

    return checked


def _find_misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Returns what is wrong with the arguments of a call, '' if nothing is: an unknown or a missing one, or, in the
    order of the signature, one of another kind."""
    signature = inspect.signature(function)
    for keyword in kwargs:
        if keyword not in signature.parameters:
            near = propose_name(keyword, signature.parameters)
            return f"unknown argument {keyword!r}{near or '; known: ' + ', '.join(signature.parameters)}"
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return f"{error}; call it with ({_list_required(signature)})"
    if callable(given.get("name")) and isinstance(given.get("fn"), str):
        return (
            f"name and fn are swapped: name is {format_kind(given['name'])}, fn is {given['fn']!r}; the name is first"
        )
    for key, value in given.items():
        if key in CHECKS and (problem := CHECKS[key](value)):
            return f"{key} is {_show_value(value)}, but must be {problem}"
    if given.get("times", PASSES[0]) != PASSES[0] and not given.get("backward"):
        return f"times is {given['times']!r}, which needs backward=True: without it only the forward pass runs"
    return ""


def _list_required(signature: inspect.Signature) -> str:
    """Returns the arguments without a default, as they are written in a call: 'name, fn, reference=..., inputs=...'."""
    return ", ".join(
        f"{one.name}=..." if one.kind is inspect.Parameter.KEYWORD_ONLY else str(one).partition(":")[0]
        for one in signature.parameters.values()
        if one.default is inspect.Parameter.empty and one.name != "self"
    )


def _show_value(value: object) -> str:
    """Returns the repr of a short plain value; of anything else its kind."""
    if isinstance(value, (str, int, float)) and len(repr(value)) <= 60:
        return repr(value)
    return format_kind(value)


def _check_name(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return ""
    return "a name of letters, digits, '_', '.', '+' and '-', e.g. 'my_kernel'"


def _check_figure(value: object) -> str:
    is_figure = value is None or (not isinstance(value, bool) and isinstance(value, Real) and float(value) >= 0)
    return "" if is_figure else "a number of at least 0, e.g. 1e9, or None if it is unknown"


def _check_tolerance(value: object) -> str:
    if value is None or isinstance(value, Tolerance):
        return ""
    return "a factor and its reason, e.g. Tolerance(3.0, 'sums in bf16') of pytest_attnperf.records"


def _check_switch(value: object) -> str:
    return "" if isinstance(value, bool) else "True or False"


def _check_texts(value: object) -> str:
    texts = (value,) if isinstance(value, str) else value
    is_texts = isinstance(texts, (tuple, list, set, frozenset)) and all(isinstance(text, str) for text in texts)
    return "" if is_texts else "a text or a tuple of texts, e.g. ('a', 'b')"


def _check_backend(value: object) -> str:
    if isinstance(value, Backend):
        return ""
    return f"a backend{', and a workload comes second' if isinstance(value, Workload) else ''}: {_TAKEN}"


def _check_workload(value: object) -> str:
    return "" if isinstance(value, Workload) and not isinstance(value, str) else f"a workload: {_TAKEN}"


def _choose_from(allowed: tuple[str, ...]) -> Callable[[object], str]:
    """Returns a check that a value is one of these."""
    words = ", ".join(map(repr, allowed))
    return lambda value: (
        "" if value in allowed else f"one of {words}{propose_name(value, allowed) if isinstance(value, str) else ''}"
    )


CHECKS: Mapping[str, Callable[[object], str]] = {
    "name": _check_name,
    "backend": _check_backend,
    "workload": _check_workload,
    "flops": _check_figure,
    "bytes_min": _check_figure,
    "tolerance": _check_tolerance,
    "cache_state": _choose_from(CACHE_STATES),
    "backward": _check_switch,
    "times": _choose_from(PASSES),
    "in_place": _check_texts,
    "host_sync": _check_switch,
    "contiguous": _check_switch,
    "invariant": _check_switch,
    "kernels": _check_texts,
    "operators": _check_texts,
    "never": _check_texts,
    "non_finite": _check_texts,
}
"""Argument -> function of its value that returns what it must be, or '' if it is that."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter.signatures import NO_DEFAULT, match_arguments, parameters_of
from pytest_attnperf.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("versioned")


@pytest.fixture
def versioned(aiter_package: Callable[..., Path]) -> None:
    """An aiter whose version messages can name."""
    aiter_package({"_version.py": "version = '0.1.9'"})


def new(q: Any, k: Any, scale: float, causal: bool, sink: Any = None, out: Any = None, splits: int = 0) -> None:
    """As a later version has it."""


def old(q: Any, k: Any, scale: float, causal: bool, out: Any = None) -> None:
    """As an earlier version has it."""


VALUES = {"q": 1, "k": 2, "scale": 0.5, "causal": True, "out": 9, "splits": 1}


def test_only_what_a_version_takes_is_passed_by_name() -> None:
    """An older version is not given what it does not know."""
    assert match_arguments(new, VALUES) == ((), VALUES)
    assert match_arguments(old, VALUES) == ((), {name: value for name, value in VALUES.items() if name != "splits"})


def test_by_position_gaps_are_filled_with_defaults() -> None:
    """What stands in between and has no value is its default; what comes after the last value is left out."""
    assert match_arguments(new, VALUES, positional=True) == ((1, 2, 0.5, True, None, 9, 1), {})
    assert match_arguments(old, VALUES, positional=True) == ((1, 2, 0.5, True, 9), {})
    few = {name: VALUES[name] for name in ("q", "k", "scale", "causal")}
    assert match_arguments(new, few, positional=True) == ((1, 2, 0.5, True), {})


def test_a_value_that_matters_and_is_not_taken() -> None:
    """Leaving out what changes the result would time another computation."""
    with pytest.raises(
        UnsupportedError, match=r"^aiter 0\.1\.9: old takes no splits; it takes causal, k, out, q, scale$"
    ):
        match_arguments(old, VALUES, needed=["causal", "splits"])
    assert match_arguments(new, VALUES, needed=["causal", "splits"])[1] == VALUES


def test_a_parameter_that_nobody_knows() -> None:
    """A new parameter without a default stops the case, named with the version."""
    with pytest.raises(
        UnsupportedError, match=r"^aiter 0\.1\.9: new asks for causal, which this adapter does not know$"
    ):
        match_arguments(new, {"q": 1, "k": 2, "scale": 0.5})


def test_kinds_of_parameters_are_kept() -> None:
    """Positional-only ones are passed by position even by name, keyword-only ones by name even by position."""

    def mixed(a: int, /, b: int, *, c: int = 3) -> None:
        """Takes every kind."""

    values = {"a": 1, "b": 2, "c": 4}
    assert match_arguments(mixed, values) == ((1,), {"b": 2, "c": 4})
    assert match_arguments(mixed, values, positional=True) == ((1, 2), {"c": 4})


def test_a_decorated_function_is_followed() -> None:
    """`functools.wraps` leaves the original's signature to be found."""

    @functools.wraps(old)
    def decorated(*args: Any, **kwargs: Any) -> None:
        old(*args, **kwargs)

    assert [one.name for one in parameters_of(decorated)] == ["q", "k", "scale", "causal", "out"]


def _guarded(load_name: str) -> Callable[..., Any]:
    """As aiter's torch_guard.py leaves a compiled function: no name, no signature, no `__wrapped__`."""

    def wrapper_custom(*args: Any, **kwargs: Any) -> Any:
        return (load_name, args, kwargs)

    return wrapper_custom


def _with_cell(loadName: str) -> Callable[..., Any]:
    def wrapper_custom(*args: Any, **kwargs: Any) -> Any:
        return (loadName, args, kwargs)

    return wrapper_custom


def _of_the_first_versions(op_name: str) -> Callable[..., Any]:
    def outer_wrapper(*args: Any, **kwargs: Any) -> Any:
        return (op_name, args, kwargs)

    return outer_wrapper


@pytest.fixture
def operators() -> Iterator[Any]:
    """Operators of torch registered under aiter's name, as its torch_guard.py does, gone afterwards."""
    torch = pytest.importorskip("torch")
    library = torch.library.Library("aiter", "FRAGMENT")
    library.define("attnperf_dense(Tensor q, float scale, Tensor? out=None, bool causal=False) -> Tensor")
    library.define("attnperf_dummy(Tensor dummy, int batch, str name='x') -> int")
    yield library
    library._destroy()


@pytest.mark.usefixtures("operators")
def test_a_compiled_function_takes_what_its_operator_takes() -> None:
    """Behind `wrapper_custom(*args, **kwargs)` the schema of torch.ops.aiter says names, order and defaults."""
    dense = parameters_of(_with_cell("attnperf_dense"))
    assert [(one.name, one.default) for one in dense] == [
        ("q", NO_DEFAULT),
        ("scale", NO_DEFAULT),
        ("out", None),
        ("causal", False),
    ]
    values = {"q": 1, "scale": 0.5, "causal": True}
    assert match_arguments(_with_cell("attnperf_dense"), values, positional=True) == ((1, 0.5, None, True), {})
    with pytest.raises(UnsupportedError, match="attnperf_dense asks for scale"):
        match_arguments(_with_cell("attnperf_dense"), {"q": 1})


@pytest.mark.usefixtures("operators")
def test_the_tensor_that_aiter_puts_in_front_is_not_a_parameter() -> None:
    """A function whose first parameter is no tensor gets a `dummy` from aiter's own wrapper."""
    for function in (_with_cell("attnperf_dummy"), _of_the_first_versions("attnperf_dummy")):
        assert [one.name for one in parameters_of(function)] == ["batch", "name"]


def test_a_function_that_is_not_registered_is_found_in_the_closure() -> None:
    """aiter leaves some functions without an operator; the original is in a closure, two steps down."""

    @functools.wraps(old)
    def inner(*args: Any, **kwargs: Any) -> None:
        old(*args, **kwargs)

    def custom_wrapper(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)

    def outer(*args: Any, **kwargs: Any) -> None:
        custom_wrapper(*args, **kwargs)

    assert [one.name for one in parameters_of(outer)] == ["q", "k", "scale", "causal", "out"]


def test_what_cannot_be_read_is_unsupported() -> None:
    """A function that hides what it takes is not called on a guess."""
    said = "aiter 0.1.9: what wrapper_custom takes cannot be read, neither from its signature nor from a torch operator"
    with pytest.raises(UnsupportedError, match="^" + re.escape(said)):
        parameters_of(_guarded("nobody"))
    with pytest.raises(UnsupportedError, match="what attnperf_nobody takes"):
        match_arguments(_with_cell("attnperf_nobody"), {})

"""Says why a call does not fit a function, before it is made: Python's error would come with this package's frames."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def find_misfit(function: Callable[..., Any], *args: Any, **named: Any) -> str:
    """Returns why the function cannot be called with these arguments: "takes (a, b): missing a required argument: 'b'";
    '' if it can, or does not say what it takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without a signature
        return ""
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        return f"takes ({', '.join(signature.parameters)}): {error}"
    return ""


def format_kind(value: object) -> str:
    """Returns 'None', or 'a' and the name of the value's type."""
    return "None" if value is None else f"a {type(value).__name__}"

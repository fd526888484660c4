"""What aiter's import and its calls raise, and the reason that each stands for.

Read in aiter's source (v0.1.9 to 2026-08) and provoked on machines without a GPU; none was seen on an AMD GPU. What is
raised while importing says that aiter cannot be used here, whatever it is; of a call only what is listed does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_attnperf.errors import UnsupportedError


@dataclass(frozen=True)
class Row:
    """How a failure is recognised, and its reason.

    kinds    types of the exception
    seen     whether this exception is meant, its text given
    reason   why the case cannot run, before the exception itself is quoted
    """

    kinds: tuple[type[Exception], ...]
    seen: Callable[[Exception, str], bool]
    reason: Callable[[str], str]


def _with(part: str) -> Callable[[Exception, str], bool]:
    return lambda error, text: part in text


def _always(reason: str) -> Callable[[str], str]:
    return lambda text: reason


def _lacks(module: str) -> Callable[[Exception, str], bool]:
    return lambda error, text: isinstance(error, ImportError) and (error.name or "").partition(".")[0] == module


def _no_driver(error: Exception, text: str) -> bool:
    """Without an active driver Triton asks for its target by way of jax; aiter never needs jax."""
    return _lacks("jax")(error, text) and any("0 active drivers" in str(one) for one in _chain(error))


def _other_package(error: Exception, text: str) -> bool:
    name = error.name if isinstance(error, ImportError) else None
    return bool(name) and str(name).partition(".")[0] != "aiter"


def _no_config(text: str) -> str:
    arch = re.search(r"(gfx\w+?)(?:-|/triton/)", text)
    return f"no Triton MHA config for {arch.group(1) if arch else 'this arch'}"


_FLYDSL = Row((ImportError,), _lacks("flydsl"), _always("flydsl missing"))
_NO_CONFIG = Row(
    (OSError,),
    lambda error, text: isinstance(error, FileNotFoundError) and ".json" in text and "MHA" in text.upper(),
    _no_config,
)
_NO_DRIVER = Row((ImportError,), _no_driver, _always("no GPU for Triton"))
_BUILD = Row(
    (RuntimeError,),
    lambda error, text: re.search(r"\[aiter\] build \[.*\].* failed", text) is not None,
    _always("JIT build failed (its log is in the worker's log; attach it to a report)"),
)

_NO_HIPCC = _always("hipcc missing: core module cannot build")
"""v0.1.9 says it by the FileNotFoundError of a subprocess, later versions by an assertion."""

IMPORT_ROWS: tuple[Row, ...] = (
    Row(
        (ModuleNotFoundError,),
        lambda error, text: getattr(error, "name", "") == "aiter",
        _always("aiter not installed"),
    ),
    Row((RuntimeError,), _with("ROCm version file not found"), _always("ROCm not found")),
    Row((RuntimeError,), _with("Get GPU arch from rocminfo failed"), _always("no GPU visible")),
    Row((AssertionError,), _with("Could not find hipcc"), _NO_HIPCC),
    Row((FileNotFoundError,), _with("'hipcc'"), _NO_HIPCC),
    Row((KeyError,), _with("Unknown GPU architecture"), _always("arch unsupported by this aiter")),
    _BUILD,
    _NO_DRIVER,
    Row((ValueError,), _with("not kernel arguments"), _always("aiter older than Triton")),
    _NO_CONFIG,
    _FLYDSL,
    Row((ModuleNotFoundError,), _other_package, _always("a package that aiter needs is not installed")),
)
CALL_ROWS: tuple[Row, ...] = (
    _NO_CONFIG,
    _FLYDSL,
    Row(
        (RuntimeError,),
        lambda error, text: re.search(r"invalid argument for fmha_\w+", text) is not None,
        _always("no kernel for shape"),
    ),
    _NO_DRIVER,
    _BUILD,
)


def import_reason(error: Exception, what: str) -> str:
    """Why aiter cannot be used, where importing `what` raised `error`; its type and text in one line."""
    return _told(IMPORT_ROWS, error, f"import of {what}") or f"import of {what} failed ({_quoted(error)})"


def call_failure(error: Exception, what: str) -> Exception:
    """What to raise where a call of `what` raised `error`: UnsupportedError if it is listed, else the error itself."""
    told = _told(CALL_ROWS, error, f"call of {what}")
    return UnsupportedError(told) if told else error


def _told(rows: tuple[Row, ...], error: Exception, doing: str) -> str:
    text = str(error)
    for row in rows:
        if isinstance(error, row.kinds) and row.seen(error, text):
            return f"{row.reason(text)} ({doing} raised {_quoted(error)})"
    return ""


def _quoted(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised while handling, or from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]

"""Turns exceptions of aiter's import and calls into reasons why a case cannot run.

Read in aiter's source (v0.1.9 to 2026-08) and provoked on machines without a GPU; none was seen on an AMD GPU. Any
exception during the import means that aiter cannot be used here. During a call only a listed one does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_attnperf.errors import UnsupportedError


@dataclass(frozen=True)
class KnownFailure:
    """How to recognise a failure, and its reason.

    kinds    types of the exception
    seen     (exception, its text) -> whether it is this failure
    reason   the exception's text -> why the case cannot run; the exception is quoted after it
    """

    kinds: tuple[type[Exception], ...]
    seen: Callable[[Exception, str], bool]
    reason: Callable[[str], str]


def _match_text(part: str) -> Callable[[Exception, str], bool]:
    return lambda error, text: part in text


def _give_reason(reason: str) -> Callable[[str], str]:
    return lambda text: reason


def _match_missing_module(module: str) -> Callable[[Exception, str], bool]:
    return lambda error, text: isinstance(error, ImportError) and (error.name or "").partition(".")[0] == module


def _is_without_driver(error: Exception, text: str) -> bool:
    """Returns whether the exception says that Triton found no active driver. Triton then asks jax for the target, and
    that import fails."""
    return _match_missing_module("jax")(error, text) and any(
        "0 active drivers" in str(one) for one in _walk_causes(error)
    )


def _is_other_package(error: Exception, text: str) -> bool:
    name = error.name if isinstance(error, ImportError) else None
    return bool(name) and str(name).partition(".")[0] != "aiter"


def _reason_no_config(text: str) -> str:
    arch = re.search(r"(gfx\w+?)(?:-|/triton/)", text)
    return f"no Triton MHA config for {arch.group(1) if arch else 'this arch'}"


_FLYDSL = KnownFailure((ImportError,), _match_missing_module("flydsl"), _give_reason("flydsl missing"))
_NO_CONFIG = KnownFailure(
    (OSError,),
    lambda error, text: isinstance(error, FileNotFoundError) and ".json" in text and "MHA" in text.upper(),
    _reason_no_config,
)
_NO_DRIVER = KnownFailure((ImportError,), _is_without_driver, _give_reason("no GPU for Triton"))
_BUILD = KnownFailure(
    (RuntimeError,),
    lambda error, text: re.search(r"\[aiter\] build \[.*\].* failed", text) is not None,
    _give_reason("JIT build failed (its log is in the worker's log; attach it to a report)"),
)

_NO_HIPCC = _give_reason("hipcc missing: core module cannot build")
"""v0.1.9 raises the FileNotFoundError of a subprocess, later versions an AssertionError."""

IMPORT_ROWS: tuple[KnownFailure, ...] = (
    KnownFailure(
        (ModuleNotFoundError,),
        lambda error, text: getattr(error, "name", "") == "aiter",
        _give_reason("aiter not installed"),
    ),
    KnownFailure((RuntimeError,), _match_text("ROCm version file not found"), _give_reason("ROCm not found")),
    KnownFailure((RuntimeError,), _match_text("Get GPU arch from rocminfo failed"), _give_reason("no GPU visible")),
    KnownFailure((AssertionError,), _match_text("Could not find hipcc"), _NO_HIPCC),
    KnownFailure((FileNotFoundError,), _match_text("'hipcc'"), _NO_HIPCC),
    KnownFailure((KeyError,), _match_text("Unknown GPU architecture"), _give_reason("arch unsupported by this aiter")),
    _BUILD,
    _NO_DRIVER,
    KnownFailure((ValueError,), _match_text("not kernel arguments"), _give_reason("aiter older than Triton")),
    _NO_CONFIG,
    _FLYDSL,
    KnownFailure(
        (ModuleNotFoundError,), _is_other_package, _give_reason("a package that aiter needs is not installed")
    ),
)
CALL_ROWS: tuple[KnownFailure, ...] = (
    _NO_CONFIG,
    _FLYDSL,
    KnownFailure(
        (RuntimeError,),
        lambda error, text: re.search(r"invalid argument for fmha_\w+", text) is not None,
        _give_reason("no kernel for shape"),
    ),
    _NO_DRIVER,
    _BUILD,
)


def import_reason(error: Exception, what: str) -> str:
    """Returns in one line why aiter cannot be used after the import of `what` raised `error`; quotes the error."""
    return _find_reason(IMPORT_ROWS, error, f"import of {what}") or f"import of {what} failed ({_quote_error(error)})"


def call_failure(error: Exception, what: str) -> Exception:
    """Returns what to raise after a call of `what` raised `error`: an UnsupportedError with the reason if the failure
    is in CALL_ROWS, else `error` itself."""
    told = _find_reason(CALL_ROWS, error, f"call of {what}")
    return UnsupportedError(told) if told else error


def _find_reason(rows: tuple[KnownFailure, ...], error: Exception, doing: str) -> str:
    text = str(error)
    for row in rows:
        if isinstance(error, row.kinds) and row.seen(error, text):
            return f"{row.reason(text)} ({doing} raised {_quote_error(error)})"
    return ""


def _quote_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, then all exceptions that caused it or during whose handling it was raised."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]

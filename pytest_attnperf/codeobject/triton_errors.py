"""What went wrong when Triton compiled, in a few lines. Runs in a compile worker: standard library and Triton only.

Triton's front end raises with the syntax node; its passes print a diagnostic and hundreds of lines of IR to file
descriptor 2 and raise 'PassManager::run failed'.
"""

from __future__ import annotations

import inspect
import os
import re
import stat
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from pytest_attnperf.errors import CodeObjectError, ToolMissingError

TEXT_LIMIT = 800
"""Characters of a compiler's message that are kept."""

_READ_BYTES = 1 << 18
_DIAGNOSTIC = re.compile(r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: error: (?P<text>.+)$", re.MULTILINE)
_LLVM = re.compile(r"^(?:LLVM ERROR|error): (?P<text>.+)$", re.MULTILINE)
_SUMMARY = "Failures have been detected"
_UNSUPPORTED = "unsupported target"


class StandardError:
    """What is written to file descriptor 2 meanwhile, also by a C++ library.

    Read back from the file that the descriptor is (a worker's log, pytest's capture) instead of being redirected:
    a compiler that aborts the process loses nothing. Where the descriptor is a terminal or a pipe, nothing is known.
    """

    def __enter__(self) -> StandardError:
        sys.stderr.flush()
        self._start = _size()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def text(self) -> str:
        """The beginning of it, '' where it is not known."""
        if self._start is None:
            return ""
        try:
            with open("/proc/self/fd/2", "rb") as stream:
                stream.seek(self._start)
                return stream.read(_READ_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return ""


def _size() -> int | None:
    status = os.fstat(2)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def explained(error: Exception, said: str, who: str, functions: Sequence[Any], compiler: str) -> CodeObjectError:
    """The error to raise: who, the source line, what the compiler said, and which compiler.

    ToolMissingError where the compiler does not know the architecture. `functions` are those compiled, to find lines
    in; `said` is what was printed.
    """
    place, line, text = _front_end(error, functions) or _diagnostic(said) or ("", "", "")
    text = text or f"{type(error).__name__}: {error}"
    shown = "\n".join(filter(None, (f"{who}: {place}{': ' if place else ''}{_short(text)}", line and f"    {line}")))
    if _UNSUPPORTED in text:
        return ToolMissingError(f"{shown}\n{compiler} has no code generator for it; install a newer Triton")
    return CodeObjectError(f"{shown}\n(compiled by {compiler})")


def _front_end(error: BaseException, functions: Sequence[Any]) -> tuple[str, str, str] | None:
    """(file:line, the line, message) of the innermost error of Triton's front end: it wraps one per call."""
    from triton.compiler.errors import CompilationError

    innermost = None
    cause: BaseException | None = error
    while cause is not None:
        innermost = cause if isinstance(cause, CompilationError) else innermost
        last, cause = cause, cause.__cause__ or cause.__context__
    if innermost is None:
        return None
    message = innermost.error_message or (f"{type(last).__name__}: {last}" if last is not innermost else str(innermost))
    number = getattr(innermost.node, "lineno", None)
    if number is None or innermost.src is None:
        return "", "", str(message)
    lines = innermost.src.splitlines()
    line = lines[number - 1].strip() if number <= len(lines) else ""
    owner = next((each for each in functions if getattr(each, "src", None) == innermost.src), None)
    return _place(owner, number), line, str(message)


def _place(owner: Any, number: int) -> str:
    """File and line of line `number` of a function's source; Triton counts from its `def`, behind the decorators."""
    if owner is None:
        return f"line {number} of a function"
    lines, start = inspect.getsourcelines(owner.fn)
    before = next((index for index, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return f"{owner.fn.__code__.co_filename}:{start + before + number - 1}"


def _diagnostic(said: str) -> tuple[str, str, str] | None:
    """(file:line, '', message) of the first diagnostic that says more than that there was one."""
    for found in _DIAGNOSTIC.finditer(said):
        if not found["text"].startswith(_SUMMARY):
            return found["place"], "", found["text"]
    fatal = _LLVM.search(said)
    return ("", "", fatal["text"]) if fatal else None


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT].rstrip()} ... ({len(text):,} characters in all)"

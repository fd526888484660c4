"""Whether a case failed because this machine has no C or C++ compiler, which many lines of a library say badly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

INDUCTOR_ERROR = "InvalidCxxCompiler"
"""The class of what torch.compile raises; importing it would import Inductor."""

TRITON_BUILD = "triton.runtime.build"
"""The module that compiles Triton's driver, and its launchers, with a C compiler."""

ADVICE = "install gcc or clang (Debian: apt-get install gcc g++), or name yours in {variable}"


def why(error: BaseException, environ: Mapping[str, str] = os.environ) -> str:
    """One line about the missing compiler; '' where it is not what `error`, or what led to it, is about."""
    for one in _chain(error):
        if type(one).__name__ == INDUCTOR_ERROR:
            return f"no C++ compiler was found, and torch.compile needs one on a CPU: {ADVICE.format(variable='CXX')}"
        if _raised_in(one) == TRITON_BUILD and not _has_compiler(environ):
            return f"no C compiler was found, and Triton builds its driver with one: {ADVICE.format(variable='CC')}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it, each once."""
    seen: set[int] = set()
    left: list[object] = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            left += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]
            yield one


def _raised_in(error: BaseException) -> str:
    """The module whose line raised it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return str(frame.tb_frame.f_globals.get("__name__", "")) if frame is not None else ""


def _has_compiler(environ: Mapping[str, str]) -> bool:
    return any(shutil.which(name, path=environ.get("PATH", "")) for name in (environ.get("CC"), "gcc", "clang") if name)

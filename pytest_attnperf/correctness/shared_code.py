"""Whether a reference reaches code that the function under judgement reaches: its faults would then be shared."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import Any

NAMED_MOST = 3

NOT_OURS = ("torch", "triton", "numpy", "pytest_attnperf", "_pytest", "pluggy")
"""Packages whose code everybody uses."""


def shared(fn: Callable[[], Any], reference: Callable[[], Any]) -> list[str]:
    """Functions that calls of both enter, as 'name (file:line)', the first entered first.

    Of Python's functions only those defined outside torch, Triton and the standard library count; what a kernel
    launches is shared where the function that launches it is.
    """
    ours, theirs = _entered(fn), _entered(reference)
    return [
        f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        for code in ours
        if code in theirs
    ]


def warning(names: list[str]) -> str:
    """What is said of shared code; '' where there is none."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return (
        f"the reference runs code that the kernel runs, too: {', '.join(names[:NAMED_MOST])}{more}; a fault there "
        "would not be seen"
    )


def _entered(call: Callable[[], Any]) -> dict[CodeType, None]:
    """Code of the functions that a call enters, in order."""
    entered: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            entered.setdefault(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        _put_back(before)
    return {code: None for code in entered if _counts(code.co_filename)}


def _put_back(profiler: Any) -> None:
    """A function as it was; a profiler of C code (cProfile's) is no function, and starts itself again."""
    start = getattr(profiler, "enable", None)
    if start is None:
        sys.setprofile(profiler)
    else:
        start()


@functools.cache
def _counts(filename: str) -> bool:
    """Whether code of a file is the user's, or a library's that holds kernels; '<string>' and the like are not."""
    path = os.path.realpath(filename)
    return os.path.isabs(filename) and not path.startswith(_everybodys())


@functools.cache
def _everybodys() -> tuple[str, ...]:
    """Folders of the standard library and of packages that everybody uses; `site-packages` lies within the former."""
    folders = []
    for name in NOT_OURS:
        spec = find_spec(name)
        folders += [os.path.realpath(os.path.dirname(spec.origin)) + os.sep] if spec and spec.origin else []
    library = os.path.realpath(sysconfig.get_paths()["stdlib"])
    own = [
        os.path.join(library, entry) for entry in os.listdir(library) if entry not in ("site-packages", "dist-packages")
    ]
    return tuple(folders + own)

"""Notices that something compiled while a block ran: such a block timed a compiler and is measured again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

MAX_REJECTED_IN_A_ROW = 3
"""A case that compiles in more consecutive batches than this never settles."""


class CompileWatch:
    """Counts compilations by torch.compile and by Triton's JIT between entering and leaving.

    Neither library is imported: what is not loaded when the watch begins has its import, not only a compilation,
    still before it. Counting costs two dictionary look-ups; the hook runs only when Triton does not find a kernel
    in its in-process cache, so a recompilation served from the disk cache counts, too.
    """

    def __init__(self) -> None:
        self._triton_compilations = 0
        self._owner: Any = None
        self._attribute = ""
        self._previous: Callable[..., Any] | None = None
        self._installed: Callable[..., Any] | None = None

    @property
    def count(self) -> int:
        """Compilations so far; only differences mean something."""
        return self._triton_compilations + _dynamo_graphs()

    def __enter__(self) -> CompileWatch:
        self._owner, self._attribute = _triton_hook()
        if self._owner is not None:
            self._previous = getattr(self._owner, self._attribute)
            self._installed = self._counting_hook
            setattr(self._owner, self._attribute, self._installed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner is not None and getattr(self._owner, self._attribute) is self._installed:
            setattr(self._owner, self._attribute, self._previous)
        self._owner = self._installed = None

    def _counting_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Count, then do what the hook found before us does: a true answer tells Triton not to compile."""
        self._triton_compilations += 1
        return self._previous(*args, **kwargs) if self._previous is not None else None


def _dynamo_graphs() -> int:
    """Graphs that torch.compile has made in this process; 0 while it is not loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0


def _triton_hook() -> tuple[Any, str]:
    """The object and attribute that hold Triton's hook before a compilation, or (None, '') while it is not loaded.

    Triton 3.4 moved the hook from a class attribute of JITFunction to `triton.knobs.runtime`.
    """
    knobs = sys.modules.get("triton.knobs")
    if knobs is not None and hasattr(knobs.runtime, "jit_cache_hook"):
        return knobs.runtime, "jit_cache_hook"
    jit = sys.modules.get("triton.runtime.jit")
    if jit is not None and hasattr(jit.JITFunction, "cache_hook"):
        return jit.JITFunction, "cache_hook"
    return None, ""

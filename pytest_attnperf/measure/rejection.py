"""Notices that something compiled or tuned during a block; such a block timed a compiler and is measured again."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pytest_attnperf.measure.autotuners import INDUCTOR, TRITON, inductor_use
from pytest_attnperf.measure.patching import Patch, Patches

MAX_REJECTED_IN_A_ROW = 3
"""Most consecutive batches that may compile; a case with more never settles."""

NAMED_MOST = 6

AITER_LOGGER = "aiter"
_LOADING = re.compile(r"(?:\b|\x1b\[\d+m)(?:(start build|finish build)\s+\[?|(import)\s+\[)([^\s,\]]+)")
"""aiter writes 'start build [mha_fwd_bf16] under ...', 'finish build [mha_fwd_bf16], cost 71.3s', sometimes coloured,
and 'import [mha_fwd_bf16] under ...'; its ctypes interfaces write no brackets, but a folder.
"""


class BuildLog(logging.Filter):
    """Reads from aiter's logger which modules it builds or loads, while the context is open.

    It works at any level of the logger, and other listeners get no additional records. It adds no handler, because
    aiter sets up its own only if there is none.

    built   module -> seconds of its build, up to the end of the context if the build has not finished
    """

    def __init__(self, seen: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.built: dict[str, float] = {}
        self._seen = seen
        self._started: dict[str, float] = {}
        self._logger = logging.getLogger(AITER_LOGGER)
        self._before = (logging.NOTSET, False)
        self._audible = logging.NOTSET

    def __enter__(self) -> BuildLog:
        self._before = (self._logger.level, self._logger.disabled)
        self._audible = logging.CRITICAL + 1 if self._logger.disabled else self._logger.getEffectiveLevel()
        self._logger.filters.insert(0, self)  # first, because a filter that rejects a record hides it from later ones
        self._logger.disabled = False
        if self._audible > logging.INFO:
            self._logger.setLevel(logging.INFO)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeFilter(self)
        level, disabled = self._before
        self._logger.disabled = disabled
        if self._audible > logging.INFO and self._logger.level == logging.INFO:
            self._logger.setLevel(level)
        for name, start in self._started.items():
            self.built[name] = time.monotonic() - start

    def filter(self, record: logging.LogRecord) -> bool:
        """Counts a build or load that aiter's log record reports; returns whether the record is to be logged at all."""
        found = _LOADING.search(record.getMessage())
        if found is not None:
            event = found.group(1) or found.group(2)
            name = found.group(3).rstrip("/").rpartition("/")[2]
            if event == "start build":
                self._started[name] = time.monotonic()
            elif event == "finish build":
                self.built[name] = time.monotonic() - self._started.pop(name, time.monotonic())
            if self._seen is not None:
                self._seen(f"'{event} {name}' in aiter's log")
        return record.levelno >= self._audible


class CompileWatch:
    """Counts what compiles or tunes while its context is open.

    It counts graphs of torch.compile, kernels of Triton's JIT, configurations that Triton's autotuner times or looks up
    on disk, those that Inductor's autotuner compiles or times, and modules that aiter builds or loads. aiter is watched
    by its functions and by its log (from its source, never run): if another process builds, a call waits without a log
    entry. Nothing is imported, and nothing runs while nothing compiles. The hooks are where a library misses its
    in-process cache, so a kernel loaded from a disk cache counts, too.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._graphs_before = _count_dynamo_graphs()
        self._patches = Patches(self._make_patches())
        self._log = BuildLog(self._count_event)

    @property
    def count(self) -> int:
        """Number of compilations and tunings seen so far; only differences are meaningful."""
        return sum(self._seen.values()) + _count_dynamo_graphs()

    @property
    def description(self) -> str:
        """What was compiled in the context: '2 x graph of torch.compile, 3 x Triton kernel add'; '' for nothing."""
        graphs = _count_dynamo_graphs() - self._graphs_before
        parts = [f"{graphs} x graph of torch.compile"] if graphs else []
        parts += [f"{count} x {what}" for what, count in self._seen.most_common(NAMED_MOST)]
        more = len(self._seen) - NAMED_MOST
        return ", ".join([*parts, f"{more} more"] if more > 0 else parts)

    def __enter__(self) -> CompileWatch:
        self._graphs_before = _count_dynamo_graphs()
        self._patches.__enter__()
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__(kind, error, trace)
        self._patches.__exit__(kind, error, trace)

    def _count_event(self, what: str) -> None:
        self._seen[what] += 1

    def _make_patches(self) -> list[Patch]:
        """Returns patches that count what Triton, Inductor and aiter compile or tune.
        Triton 3.4 moved the JIT's hook from JITFunction to `triton.knobs.runtime`, so both places are patched."""
        tuned = self._make_counter(lambda args: f"configuration of the autotuned kernel {args[0].base_fn.__name__}")
        module = self._make_counter(lambda args: f"build of aiter's {args[0]}")
        library = self._make_counter(lambda args: f"build of aiter's {args[1]}")
        inductor = self._make_counter(lambda args: f"configuration of Inductor's kernel {inductor_use(args[0]).kernel}")
        return [
            Patch("triton.knobs", "runtime", "jit_cache_hook", self._counting_hook),
            Patch("triton.runtime.jit", "JITFunction", "cache_hook", self._counting_hook),
            Patch(*TRITON, "_bench", tuned),
            Patch(*TRITON, "check_disk_cache", tuned),
            Patch(*INDUCTOR, "bench", inductor),
            Patch(*INDUCTOR, "_precompile_config", inductor),
            Patch("aiter.jit.core", "", "build_module", module),
            Patch("csrc.cpp_itfs.utils", "", "compile_lib", library),
        ]

    def _make_counter(self, name: Callable[[tuple[Any, ...]], str]) -> Callable[[Any], Any]:
        """Returns a wrapper for a function that counts its calls under `name(positional arguments)`."""

        def wrap(previous: Callable[..., Any]) -> Callable[..., Any]:
            def count_and_call(*args: Any, **kwargs: Any) -> Any:
                try:
                    what = name(args)
                except Exception:  # another version's internals: the count must not depend on the name
                    what = "kernel that cannot be named"
                self._seen[what] += 1
                return previous(*args, **kwargs)

            return count_and_call

        return wrap

    def _counting_hook(self, previous: Callable[..., Any] | None) -> Callable[..., Any]:
        """Returns a hook that counts, then calls the earlier hook, whose true answer tells Triton not to compile."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            self._seen[f"Triton kernel {getattr(kwargs.get('fn'), 'name', 'that cannot be named')}"] += 1
            return previous(*args, **kwargs) if previous is not None else None

        return hook


def _count_dynamo_graphs() -> int:
    """Returns the number of graphs that torch.compile made in this process; 0 while it is not loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0

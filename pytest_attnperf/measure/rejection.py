"""Notices that something compiled or tuned while a block ran: such a block timed a compiler and is measured again."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pytest_attnperf.measure.autotuners import INDUCTOR, TRITON, inductor_use
from pytest_attnperf.measure.patching import Patch, Patches

MAX_REJECTED_IN_A_ROW = 3
"""A case that compiles in more consecutive batches than this never settles."""

NAMED_MOST = 6


class CompileWatch:
    """Counts what compiles or tunes between entering and leaving.

    That is: graphs of torch.compile, kernels of Triton's JIT, configurations that Triton's autotuner times or looks up
    on disk, those that Inductor's autotuner compiles or times, and modules that aiter builds (read from its source,
    never run). Nothing is imported, and nothing runs when nothing compiles: the hooks stand where these libraries do
    not find what they need in the process, so a kernel served from a disk cache counts, too.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._graphs_before = _dynamo_graphs()
        self._patches = Patches(self._hooks())

    @property
    def count(self) -> int:
        """Compilations and tunings so far; only differences mean something."""
        return sum(self._seen.values()) + _dynamo_graphs()

    @property
    def described(self) -> str:
        """What was seen since entering, e.g. '2 x graph of torch.compile, 3 x Triton kernel add'; '' for nothing."""
        graphs = _dynamo_graphs() - self._graphs_before
        parts = [f"{graphs} x graph of torch.compile"] if graphs else []
        parts += [f"{count} x {what}" for what, count in self._seen.most_common(NAMED_MOST)]
        more = len(self._seen) - NAMED_MOST
        return ", ".join([*parts, f"{more} more"] if more > 0 else parts)

    def __enter__(self) -> CompileWatch:
        self._graphs_before = _dynamo_graphs()
        self._patches.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.__exit__(kind, error, trace)

    def _hooks(self) -> list[Patch]:
        """Triton 3.4 moved the JIT's hook from a class attribute of JITFunction to `triton.knobs.runtime`."""
        tuned = self._counting(lambda args: f"configuration of the autotuned kernel {args[0].base_fn.__name__}")
        inductor = self._counting(lambda args: f"configuration of Inductor's kernel {inductor_use(args[0]).kernel}")
        return [
            Patch("triton.knobs", "runtime", "jit_cache_hook", self._counting_hook),
            Patch("triton.runtime.jit", "JITFunction", "cache_hook", self._counting_hook),
            Patch(*TRITON, "_bench", tuned),
            Patch(*TRITON, "check_disk_cache", tuned),
            Patch(*INDUCTOR, "bench", inductor),
            Patch(*INDUCTOR, "_precompile_config", inductor),
            Patch("aiter.jit.core", "", "build_module", self._counting(lambda args: f"build of aiter's {args[0]}")),
        ]

    def _counting(self, name: Callable[[tuple[Any, ...]], str]) -> Callable[[Any], Any]:
        """What wraps a function so that its calls are counted under `name(positional arguments)`."""

        def wrap(previous: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **kwargs: Any) -> Any:
                try:
                    what = name(args)
                except Exception:  # another version's internals: the count must not depend on the name
                    what = "kernel that cannot be named"
                self._seen[what] += 1
                return previous(*args, **kwargs)

            return counted

        return wrap

    def _counting_hook(self, previous: Callable[..., Any] | None) -> Callable[..., Any]:
        """Count, then do what the hook found before us does: a true answer tells Triton not to compile."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            self._seen[f"Triton kernel {getattr(kwargs.get('fn'), 'name', 'that cannot be named')}"] += 1
            return previous(*args, **kwargs) if previous is not None else None

        return hook


def _dynamo_graphs() -> int:
    """Graphs that torch.compile has made in this process; 0 while it is not loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0

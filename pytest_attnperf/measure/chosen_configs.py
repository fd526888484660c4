"""What autotuners chose for a case, as entries of its configuration: stored with a baseline, compared, and replayed.

An autotuner picks what was fastest in a few milliseconds of timing, so two machines, or two runs, may pick otherwise:
the time then changes without any change of code. `triton.autotune` keeps its choice in the process, Inductor in a cache
folder of the machine. `pinned_backend.py` replays what this file records.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from pytest_attnperf.measure.autotuners import (
    INDUCTOR,
    NOT_PADDED,
    PADDED,
    PADDING,
    TRITON,
    Use,
    config_text,
    inductor_text,
    inductor_use,
    padding_use,
    triton_use,
)
from pytest_attnperf.measure.patching import Patch, Patches

UNKNOWN_KEY = "autotuned"


class Chosen:
    """Choices seen while recording, the last one of each use."""

    def __init__(self) -> None:
        self._choices: dict[str, dict[str, tuple[Use, str]]] = {}
        self._unknown = ""

    def config(self) -> dict[str, str]:
        """{'autotuned.<kernel>': 'BLOCK_M: 64, num_warps: 4'}, in alphabetical order.

        Where one kernel was tuned several times in a call with different results, each use has an entry of its own,
        'autotuned.<kernel>(<where>)'. 'autotuned' says why a choice could not be read, if one could not.
        """
        entries = {UNKNOWN_KEY: f"unknown: {self._unknown}"} if self._unknown else {}
        for uses in self._choices.values():
            several = len({text for _, text in uses.values()}) > 1
            for use, text in uses.values():
                exact, plain = use.entries
                entries[exact if several else plain] = text
        return dict(sorted(entries.items()))

    def note(self, read: Callable[[], tuple[Use, str] | None]) -> None:
        """Keep what `read` gives. What it raises is kept as the reason for an unknown choice: a case must not fail."""
        try:
            found = read()
        except Exception as error:  # internals of another version of Triton or torch
            self._unknown = f"{type(error).__name__}: {error}"
            return
        if found is not None:
            use, text = found
            self._choices.setdefault(use.kernel, {})[use.where] = (use, text)


@contextlib.contextmanager
def recording() -> Iterator[Chosen]:
    """Record what autotuned kernels run with until the context ends; nothing is imported, and nothing is changed.

    Seen are kernels of `triton.autotune` with more than one configuration, kernels that Inductor wrote (torch.compile,
    FlexAttention), and whether Inductor pads a matrix product where it measures that. The last is seen only in a
    process that traces the graph: where AOTAutograd's cache has the whole graph, nobody decides.
    """
    chosen = Chosen()
    patches = [
        Patch(*TRITON, "run", functools.partial(_recording_triton, chosen)),
        Patch(*INDUCTOR, "run", functools.partial(_recording_inductor, chosen)),
        Patch(*PADDING, "_should_pad", functools.partial(_recording_padding, chosen)),
    ]
    with Patches(patches):
        yield chosen


def _recording_triton(chosen: Chosen, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(autotuner, *args, **kwargs)
        chosen.note(lambda: _triton_choice(autotuner, args, kwargs))
        return result

    return run


def _triton_choice(autotuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Use, str] | None:
    if len(autotuner.configs) < 2:
        return None
    arguments = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    return triton_use(autotuner, arguments), config_text(autotuner.best_config)


def _recording_inductor(chosen: Chosen, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(autotuner, *args, **kwargs)
        chosen.note(lambda: (inductor_use(autotuner), inductor_text(autotuner, autotuner.launchers[0].config)))
        return result

    return run


def _recording_padding(chosen: Chosen, previous: Callable[..., Any]) -> Callable[..., Any]:
    def should_pad(match: Any, left: Any, right: Any, operator: Any, *further: Any, **named: Any) -> Any:
        result = previous(match, left, right, operator, *further, **named)
        chosen.note(lambda: (padding_use(left, right, operator), PADDED if result else NOT_PADDED))
        return result

    return should_pad

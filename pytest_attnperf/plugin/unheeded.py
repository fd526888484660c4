"""Typed options that this run would not heed: a usage error, because nobody notices what silently does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.options import timed

OF_TIMING = (
    *("interleave", "pairs", "timer", "processes", "second-look", "blocks", "block-us", "budget-ms", "results"),
    *("report", "history", "benchmark", "threshold", "floor-us", "creep", "suite-rate", "record-local", "strict"),
)
"""What says how a run measures, judges times, or where what it measured goes."""

OF_A_BASE = ("interleave", "pairs")
NEEDS_TIMING = "without it this run only proves that cases are right: nothing is timed, gated or written"


def refuse_unheeded(config: pytest.Config) -> None:
    """Raise UsageError for typed options that need another one. What stands in an ini file is for other runs, too."""
    for name, needed, why in _needs(config):
        word = _typed(config.invocation_params.args, f"--attnperf-{name}")
        if word:
            raise pytest.UsageError(f"{word} needs {needed}: {why}. Add {needed.split(' or ')[0]}, or drop {word}")


def refuse_useless_base(config: pytest.Config) -> None:
    """Raise UsageError for a base side of a run that has cases, times none and compiles no kernel.

    Stored kernels are read from a base side in a run that times nothing, too.
    """
    word = _typed(config.invocation_params.args, options.BY_NAME["against"].flag)
    if word and not timed(config):
        raise pytest.UsageError(f"{word} needs --attnperf: {NEEDS_TIMING}. Add --attnperf, or drop {word}")


def _needs(config: pytest.Config) -> Iterator[tuple[str, str, str]]:
    """(option, what it needs, what happens without that) of everything that this run would not heed."""
    if not timed(config):
        written = ("results",) if config.getoption("attnperf_profile") else ()
        yield from ((name, "--attnperf", NEEDS_TIMING) for name in OF_TIMING if name not in written)
    against, candidate = (options.run_text(config, name) for name in ("against", "candidate"))
    if not against:
        why = "without a base side no case is measured in pairs"
        yield from ((name, "--attnperf-against", why) for name in OF_A_BASE)
    if not against and not candidate:
        yield "build", "--attnperf-against or --attnperf-candidate", "there is no other tree to build"
    if not config.getoption("attnperf_update_baselines"):
        yield "accept", "--update-baselines", "it says why a recorded slowdown is wanted, and nothing is recorded"


def _typed(words: Sequence[object], flag: str) -> str:
    """The option as it stands on the command line; '' where it does not."""
    return next((word for word in map(str, words) if word == flag or word.startswith(f"{flag}=")), "")

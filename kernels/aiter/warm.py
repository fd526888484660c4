"""The first run of a case: everything that aiter builds for it is built then, and is told apart from what is timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.aiter.importing import call_failure, restored_environment
from kernels.aiter.paths import which_path
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure.rejection import BuildLog

PATH, BUILT = "path", "built"
"""Configuration entries. The second tells of this machine's cache of builds, never of what ran."""


@dataclass(frozen=True)
class FirstRun:
    """What the first run gave.

    result   what the call returned
    path     the implementation that ran, as `which_path` tells it; '' where none was seen
    built    seconds of each module that aiter built meanwhile, by name
    """

    result: Any
    path: str
    built: Mapping[str, float] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, str]:
        """Configuration entries: `path` where it is known, and `built` where something was."""
        entries = {PATH: self.path} if self.path else {}
        if self.built:
            entries[BUILT] = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.built.items())
        return entries

    def require_path(self, path: str, what: str) -> FirstRun:
        """This run again. Raises AttnperfError unless exactly that path ran: a backend must not time another one."""
        if self.path != path:
            ran = self.path or "none that is known"
            raise AttnperfError(
                f"{what} is to run aiter's {path}, but what ran is: {ran}; nothing was timed. The backend aiter.auto "
                "times whatever aiter's dispatcher takes"
            )
        return self


def warm_up(call: Callable[[], Any], what: str, also: Mapping[tuple[str, str], str] | None = None) -> FirstRun:
    """Run once and wait for the device. Raises UnsupportedError where aiter has nothing for this; see `call_failure`.

    `also` adds functions to those that tell the path, as `which_path` takes them.
    """

    def call_and_wait() -> Any:
        result = call()
        _wait_for_device()
        return result

    with restored_environment(), BuildLog() as log:
        try:
            result, path = which_path(call_and_wait, also)
        except Exception as error:
            told = call_failure(error, what)
            if told is error:
                raise
            raise told from error
    return FirstRun(result, path, log.built)


def _wait_for_device() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()

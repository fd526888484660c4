"""The first, untimed run of a case, in which aiter builds its modules. It records the path and the build times."""

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
"""Keys of `Prepared.config`. BUILT depends on this machine's build cache, not on what ran."""


@dataclass(frozen=True)
class FirstRun:
    """Result of the first run.

    result   what the call returned
    path     the implementation that ran, from `which_path`; '' where none was detected
    built    module name -> seconds that aiter's build took during the run
    """

    result: Any
    path: str
    built: Mapping[str, float] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, str]:
        """Entries for `Prepared.config`: 'path' (which implementation ran) if known, and 'built' (the modules that
        aiter compiled, with seconds) if any."""
        entries = {PATH: self.path} if self.path else {}
        if self.built:
            entries[BUILT] = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.built.items())
        return entries

    def require_path(self, path: str, what: str) -> FirstRun:
        """Returns this object. Raises AttnperfError unless exactly `path` ran, because a backend must not time another
        implementation."""
        if self.path != path:
            ran = self.path or "none that is known"
            raise AttnperfError(
                f"{what} is to run aiter's {path}, but what ran is: {ran}; nothing was timed. To time whatever "
                "aiter's dispatcher chooses, use the backend aiter.auto"
            )
        return self


def warm_up(call: Callable[[], Any], what: str, also: Mapping[tuple[str, str], str] | None = None) -> FirstRun:
    """Runs `call` once, waits for the device, and returns its result, path and build times. Raises UnsupportedError for
    the failures that `call_failure` knows.

    `also` adds functions that identify a path, as for `which_path`.
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

"""Neighbours of the fake device: processes of one project that measure at the same time, and what they cost.

A process that measures holds a lock on a file of its own below the project's `.attnperf/`; who wants to know how many
others do tries their locks. Locks end with their process, so a killed one measures nothing any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(".attnperf") / "measuring"


def slowed(script: Mapping[str, Any], folder: Path = FOLDER) -> float:
    """How many times as long a block takes, after having really taken the script's `block_s` seconds.

    1 + `interference` where another process of this folder was measuring meanwhile, else 1; a script with neither
    takes no time and touches no file.
    """
    seconds, cost = float(script.get("block_s", 0.0)), float(script.get("interference", 0.0))
    if not cost:
        time.sleep(seconds)
        return 1.0
    with _measuring(folder) as own:
        before = _others(folder, own)
        time.sleep(seconds)
        return 1.0 + cost * (before or _others(folder, own))


@contextlib.contextmanager
def _measuring(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{os.getpid()}.lock"
    with own.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield own


def _others(folder: Path, own: Path) -> bool:
    return any(_is_held(path) for path in folder.glob("*.lock") if path != own)


def _is_held(path: Path) -> bool:
    with path.open() as other:
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

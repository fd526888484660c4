"""A plugin for workers, loaded by `-p`: writes down which modules a worker has imported when it ends.

`attnperf blame` loads it. In a process without the environment variable, as in the controller, it does nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pytest_attnperf.workers.launch import IMPORTED


def pytest_unconfigure() -> None:
    """Writes the names of all imported modules into the folder that the environment variable IMPORTED names, in a file
    of this process's own."""
    folder = os.environ.get(IMPORTED, "")
    if folder:
        names = "\n".join(sorted(map(str, tuple(sys.modules))))
        Path(folder, f"{os.getpid()}.txt").write_text(names, encoding="utf-8", errors="replace")

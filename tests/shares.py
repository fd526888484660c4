"""Which of two processes runs which test files in `make test`: each collects its own and knows nothing of the rest.

With `-n 2` both would import and rewrite every file, which takes as long as a tenth of the tests, and prepare twice
what a file's tests share. Makefile starts a process of xdist for each share, named in an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

VARIABLE = "TEST_SHARE"
"""`1/2` in the first of two processes."""
SECONDS = Path(__file__).with_name("seconds.txt")
"""What files of a second and more take (written by benchmarks/choose_tests.py)."""
OTHER_SECONDS = 0.3
"""What another takes, collecting it included."""


def seconds_by_file(path: Path = SECONDS) -> dict[str, float]:
    """What the list says: a file's path in this repository, and its seconds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    return {file: float(seconds) for seconds, file in pairs}


def shares(files: Iterable[str], seconds: Mapping[str, float], number: int) -> list[set[str]]:
    """`number` groups of files that take about as long: each file, the longest first, goes where least is."""
    groups: list[set[str]] = [set() for _ in range(number)]
    taken = [0.0] * number
    for file in sorted(files, key=lambda file: (-seconds.get(file, OTHER_SECONDS), file)):
        least = taken.index(min(taken))
        groups[least].add(file)
        taken[least] += seconds.get(file, OTHER_SECONDS)
    return groups


class OwnShare:
    """A plugin of a process that leaves the files of the other shares out."""

    def __init__(self, share: str, tests: Path) -> None:
        part, _, number = share.partition("/")
        files = {str(path.relative_to(tests.parent)): path for path in tests.rglob("test_*.py")}
        groups = shares(files, seconds_by_file(), int(number))
        own = groups.pop(int(part) - 1)
        self.own = {files[name] for name in own}
        self._others = {files[name] for group in groups for name in group}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Whether another process collects this file; None leaves it to pytest."""
        return True if collection_path in self._others else None


class AllShares:
    """A plugin of xdist's controller, which takes what one process has collected for the number of all tests."""

    def __init__(self) -> None:
        self._collected: dict[object, int] = {}
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep what shows how far a run is."""
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Count what a process has collected."""
        self._collected[node] = len(ids)

    def pytest_runtest_logstart(self) -> None:
        """Put it right before the first test is shown."""
        if self._session is not None and self._collected:
            self._session.testscollected = sum(self._collected.values())


def install(config: pytest.Config) -> None:
    """Register what this process needs. Its own processes do not inherit the share."""
    share = os.environ.pop(VARIABLE, "")
    if share:
        config.pluginmanager.register(OwnShare(share, Path(__file__).parent), "own-share")
    elif any(VARIABLE in spec for spec in config.getoption("tx", default=None) or ()):
        config.pluginmanager.register(AllShares(), "all-shares")

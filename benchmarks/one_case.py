"""Print which files of the package an ordinary case enters in the user's own pytest, up to its verdict.

python benchmarks/one_case.py [PYTEST-OPTIONS]

The case is SAME: one backend of the fake device against its stored baseline, gated by --attnperf alone, where no other
plugin is loaded: pytest-benchmark, e.g., is given samples. What runs when a file is imported does not count, because it
is read once whatever is asked for; a function that is entered does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_attnperf"
LISTED = "ATTNPERF_ENTERED"
"""Environment variable that names the file to which the watched pytest writes what it entered."""

TEST = """
pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]

def test_same(attnperf_project, monkeypatch):
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.store_baselines()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = attnperf_project.run("-p", "pytest_attnperf.plugin.main", "--attnperf", "-p", "one_case", *{words!r})
    print(result.stdout.str())
    assert result.ret == 0
"""


class Watch:
    """The files whose functions are entered while it is on, in every thread that starts meanwhile."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._importing = threading.local()

    def begin(self) -> None:
        """Watch from here on."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def end(self) -> None:
        """Watch no longer."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _see(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event not in ("call", "return"):
            return
        depth: int = getattr(self._importing, "depth", 0)
        if frame.f_code.co_name == "<module>":
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and depth == 0:
            self.files.add(frame.f_code.co_filename)


_WATCH = Watch()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_finish() -> Generator[None, object, object]:
    """Begin before the run starts its workers."""
    if LISTED in os.environ:
        _WATCH.begin()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End with the case's verdict, before other plugins hear of it."""
    try:
        return (yield)
    finally:
        _WATCH.end()
        if LISTED in os.environ:
            Path(os.environ[LISTED]).write_text("\n".join(sorted(_WATCH.files)))


def entered(*words: str) -> list[str]:
    """Files of the package, from its folder, that a case with these options of pytest's enters."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one_case.py").write_text(TEST.format(words=words))
        listed = folder / "entered.txt"
        paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", str(folder)]
        environ = {**os.environ, "PYTHONPATH": paths, LISTED: str(listed)}
        done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not listed.exists():
            raise RuntimeError(done.stdout + done.stderr)
        found = map(Path, listed.read_text().splitlines())
        return [path.relative_to(PACKAGE).as_posix() for path in found if path.is_relative_to(PACKAGE)]


def main() -> None:
    """Print the number, and the files."""
    files = entered(*sys.argv[1:])
    print(f"files entered {len(files)}", *files, sep="\n  ")


if __name__ == "__main__":
    main()

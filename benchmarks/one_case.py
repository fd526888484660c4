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
from collections.abc import Generator, Iterable
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

def test_same(attnperf_project):
    attnperf_project.backend("fake.a", time_us=100)
    plugin = ("-p", "pytest_attnperf.plugin.main")
    attnperf_project.store_baselines(*plugin)
    result = attnperf_project.run(*plugin, "--attnperf", "-p", "one_case", *{words!r})
    print(result.stdout.str())
    assert result.ret == 0
"""


class Watch:
    """The functions that are entered while it is on, as 'file:function' in the order of their first call, in every
    thread that starts meanwhile. `collected` are those up to `mark`, `functions` those from there on.
    """

    def __init__(self) -> None:
        self.collected: dict[str, None] = {}
        self.functions: dict[str, None] = {}
        self._importing = threading.local()

    def begin(self) -> None:
        """Watch from here on."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def mark(self) -> None:
        """Count from here on; what was entered before is `collected`."""
        self.collected, self.functions = self.functions, {}

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
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            self.functions.setdefault(f"{frame.f_code.co_filename}:{name}")


_WATCH = Watch()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Begin before suites are read."""
    if LISTED in os.environ:
        _WATCH.begin()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_finish() -> Generator[None, object, object]:
    """Count before the run starts its workers."""
    _WATCH.mark()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End with the case's verdict, before other plugins hear of it."""
    try:
        return (yield)
    finally:
        _WATCH.end()
        if LISTED in os.environ:
            Path(os.environ[LISTED]).write_text("\n".join([*_WATCH.collected, "", *_WATCH.functions]))


def entered(*words: str) -> tuple[list[str], list[str]]:
    """Functions of the package, 'file:function' with the file from its folder, that a case with these options of
    pytest's enters: while it is collected, and from there to its verdict.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one_case.py").write_text(TEST.format(words=words))
        listed = folder / "entered.txt"
        paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", str(folder)]
        environ = {**os.environ, "PYTHONPATH": paths, LISTED: str(listed), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environ.pop("PYTEST_PLUGINS", None)
        done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not listed.exists():
            raise RuntimeError(done.stdout + done.stderr)
        collected, _, judged = listed.read_text().partition("\n\n")
        return of_package(collected.splitlines()), of_package(judged.splitlines())


def of_package(functions: Iterable[str]) -> list[str]:
    """Those in the package, with the file from its folder."""
    prefix = f"{PACKAGE}{os.sep}"
    return [name.removeprefix(prefix) for name in functions if name.startswith(prefix)]


def main() -> None:
    """Print the number, and the files."""
    _, functions = entered(*sys.argv[1:])
    files = sorted({name.partition(":")[0] for name in functions})
    print(f"files entered {len(files)}", *files, sep="\n  ")


if __name__ == "__main__":
    main()

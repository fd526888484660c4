"""The commands in workflow files and examples, as this package would read them."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.plugin.options import add_options
from pytest_attnperf.tools.ci import fetch_results

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github/workflows"
EXAMPLES = ROOT / "examples/ci"

VALUES = {
    "REPO": "octo/kernels",
    "HEAD_REPO": "fork/kernels",
    "HEAD_SHA": "a" * 40,
    "BASE_SHA": "b" * 40,
    "RUN_ID": "5",
    "RUN_NUMBER": "12",
    "RUN_ATTEMPT": "1",
    "RUN_URL": "https://github.com/octo/kernels/actions/runs/5",
    "EVENT": "pull_request",
    "VERDICT": "failed",
    "BASE_BRANCH": "main",
    "ARTIFACTS": "attnperf-results attnperf-code-objects",
    "COMMITS": "a" * 40,
    "DEVICE": "gfx942/mi300x",
}
"""Of variables whose values are checked; every other one is a word."""
ARRAYS = {
    "files": "of.json",
    "results": "of.json",
    "names": "--artifact attnperf-results --artifact attnperf-code-objects",
    "commits": "a" * 40,
    "there": "--device any --arch all",
}
"""Of arrays of the shell."""
_COMMANDS = {
    "attnperf": re.compile(r"(?:^|[\s(/])attnperf (gate|report) (.*)"),
    "fetch": re.compile(r"python -m pytest_attnperf\.tools\.ci\.(fetch_results) (.*)"),
    "pytest": re.compile(r"-m (pytest) (.*)"),
}


def workflow(name: str) -> dict[str, Any]:
    """A parsed workflow; YAML reads its key `on` as a truth value."""
    loaded: dict[Any, Any] = yaml.safe_load((WORKFLOWS / name).read_text())
    return {("on" if key is True else key): value for key, value in loaded.items()}


def steps(loaded: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of every job."""
    for job in loaded["jobs"].values():
        yield from job["steps"]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each of our commands in a file: which, and its arguments with every variable given a value."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.lstrip().startswith(("#", "//")):
            continue
        for pattern in _COMMANDS.values():
            found = pattern.search(line)
            if found:
                yield found.group(1), _arguments(found.group(2))


def _arguments(text: str) -> list[str]:
    text = re.split(r"\s(?:\|\||>>|\))\s?|\) \|\|", text)[0]
    text = re.sub(r"\$\{\w+:\+([^}]*)\}", r"\1", text)
    text = re.sub(r'"\$\{(\w+)\[@\]\}"', lambda found: ARRAYS[found.group(1)], text)
    text = re.sub(r"\$\{(\w+):-(\w+)\}", r"\2", text)
    text = re.sub(r"\$(\w+)", lambda found: VALUES.get(found.group(1), "7"), text)
    return shlex.split(text)


def parsed(command: str, arguments: list[str]) -> argparse.Namespace:
    """As the command reads them. Raises ValueError in place of ending the process."""
    if command == "pytest":
        return _parsed_pytest(arguments)
    parser = fetch_results._build_parser()
    if command != "fetch_results":
        parser, arguments = build_parser([command]), [command, *arguments]
    try:
        return parser.parse_args(arguments)
    except SystemExit as error:
        raise ValueError(f"{command} does not take {arguments}") from error


class _Group:
    """What `add_options` needs of pytest's parser, with argparse behind it."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser()

    def getgroup(self, *_: object) -> _Group:
        return self

    def addini(self, *_: object, **__: object) -> None:
        pass

    def addoption(self, *flags: str, **settings: Any) -> None:
        self.parser.add_argument(*flags, **settings)


def _parsed_pytest(arguments: list[str]) -> argparse.Namespace:
    group = _Group()
    add_options(group)  # type: ignore[arg-type]
    group.parser.add_argument("paths", nargs="*")
    group.parser.add_argument("-m", dest="marks")
    group.parser.add_argument("--update-baselines", action="store_true")  # an alias, declared by itself
    try:
        return group.parser.parse_args(arguments)
    except SystemExit as error:
        raise ValueError(f"pytest --attnperf does not take {arguments}") from error

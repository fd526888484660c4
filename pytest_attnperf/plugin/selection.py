"""What of the suite the command line selects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pytest_attnperf.plugin.config import run_config


def is_unfiltered(config: pytest.Config) -> bool:
    """Whether everything was selected: only then does an entry without a case mean that a case has gone."""
    get, asked = config.getoption, run_config(config)
    filters = (
        get("keyword", default=""),
        get("markexpr", default=""),
        get("lf", default=False),
    )
    narrowed = any(filters) or any("::" in str(arg) for arg in config.args)
    by_us = asked.backend or asked.workload or asked.model or asked.code_set
    return not narrowed and not by_us


def whole_parts(config: pytest.Config) -> tuple[Path, ...]:
    """Files and folders that are selected as a whole; none where cases of them were picked out."""
    start = config.invocation_params.dir
    return tuple(Path(start, str(arg)).resolve() for arg in config.args) if is_unfiltered(config) else ()


def asked_suites(config: pytest.Config, suites: Sequence[str]) -> list[str]:
    """Those of stored `suites` without a case that have lost it: their file is selected, or is nowhere, and so is a
    folder.

    A suite that no file is called like may be one that a marker names: it is not asked for where a file that is not
    selected holds its name.
    """
    parts = whole_parts(config)
    if parts and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        parts = (config.rootpath,)  # nobody has typed what the ini file's testpaths leave out
    if not suites or not parts:
        return []
    files = {path: path.stem.removeprefix("test_") for path in _python_files(config)}
    unselected = [path for path in files if not any(path.is_relative_to(part) for part in parts)]
    folders = any(part.is_dir() for part in parts)
    asked = []
    for suite in suites:
        named = [path for path, name in files.items() if name == suite]
        elsewhere = not named and any(suite in path.read_text(errors="replace") for path in unselected)
        if any(path not in unselected for path in named) or (folders and not named and not elsewhere):
            asked.append(suite)
    return asked


def _python_files(config: pytest.Config) -> Iterator[Path]:
    """All of a project that pytest would look at."""
    left_out = config.getini("norecursedirs")
    for folder, folders, names in os.walk(config.rootpath):
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in left_out)]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))

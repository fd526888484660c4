"""What a session is to pytest-xdist."""

from __future__ import annotations

import pytest


def is_xdist_worker(config: pytest.Config) -> bool:
    """Whether this session runs some of the cases, for the session that started it."""
    return hasattr(config, "workerinput")


def is_xdist_controller(config: pytest.Config) -> bool:
    """Whether the cases run in xdist's workers, not here."""
    return not is_xdist_worker(config) and config.getoption("dist", default="no") != "no"


def is_distributed(config: pytest.Config) -> bool:
    """Whether cases are spread over the workers of xdist."""
    return is_xdist_worker(config) or is_xdist_controller(config)


def processes(config: pytest.Config) -> int:
    """How many workers xdist's controller starts: by -n, --maxprocesses and --tx, as xdist reads them."""
    found = 0
    for text in config.getoption("tx", default=None) or []:
        times, star, _ = str(text).partition("*")
        found += int(times) if star and times.isdigit() else 1
    return found

"""Tests whose marker is invalid: each is one item that fails with the reason, and the other tests of its file run."""

from __future__ import annotations

import pytest

_REASONS = pytest.StashKey[dict[str, str]]()
"""Id of a test without parameters -> what is wrong with its marker."""


def keep_reason(config: pytest.Config, nodeid: str, reason: str) -> None:
    """Remembers what is wrong with the marker of a test, so that its item fails with it. Raises CollectError where no
    item runs (`--collect-only`)."""
    if config.getoption("collectonly"):
        raise pytest.Collector.CollectError(reason)
    config.stash.setdefault(_REASONS, {})[nodeid] = reason


def find_reason(item: pytest.Item) -> str:
    """Returns what is wrong with the item's marker, '' if nothing is."""
    name = getattr(item, "originalname", item.name)
    parent = item.parent.nodeid if item.parent is not None else ""
    return item.config.stash.get(_REASONS, {}).get(f"{parent}::{name}", "")


def fail_invalid(item: pytest.Item) -> None:
    """Fails an item whose marker is invalid, in one sentence; does nothing for others."""
    if reason := find_reason(item):
        pytest.fail(reason, pytrace=False)

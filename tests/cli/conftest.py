"""What the tests of commands share: processes that start quickly."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def only_our_plugin(lean_processes: None) -> None:
    """Commands start pytest, and that starts workers."""

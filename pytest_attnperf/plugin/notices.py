"""What collecting left out, said behind the number of collected tests, where anything was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


class Notice:
    """Plugin object of a session that leaves something out."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what was left out, and why."""
        return self._lines


def notice(config: pytest.Config, name: str, lines: Sequence[str]) -> None:
    """Have lines said, by whom `name` says; nothing without any."""
    if lines:
        config.pluginmanager.register(Notice(lines), name)

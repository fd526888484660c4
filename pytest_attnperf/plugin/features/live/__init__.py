"""How far a run is, on a line of a terminal or now and then in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.live.live_line import LiveLine

LINE: pytest.StashKey[LiveLine] = pytest.StashKey()
"""The session's line on its terminal, where it has one (see `live_line`)."""

"""`--attnperf-isolate=none`: cases run in pytest's own process, for debugging."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_attnperf.plugin.fixtures import SERVER
from pytest_attnperf.plugin.session_setup import device_for
from pytest_attnperf.workers.local import LocalPool, LocalServer

if TYPE_CHECKING:
    import pytest

    from pytest_attnperf.workers.pool import Pool


def serve(pool: Pool, item: pytest.Function, judged: Callable[[], None]) -> None:
    """Let the item's body run here; `judged` is called where its `attnperf.run()` stands."""
    assert isinstance(pool, LocalPool)
    pool.device = pool.device or device_for(item.config)
    item.config.stash[SERVER] = LocalServer(pool, judged)

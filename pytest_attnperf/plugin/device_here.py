"""Whether an import has initialised the GPU in the user's own pytest process, which never needs it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

WHY = (
    "the process of pytest itself, where nothing is measured, now holds memory on the GPU, and in an exclusive compute "
    "mode no worker gets it: import or initialise it inside the test, or in what it calls"
)


class DeviceHere:
    """Plugin object: sees after which import the GPU is initialised; asks nothing of torch where nobody imported it."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        """What a reader of the run must know; empty where all is well."""
        self._look("a conftest.py or a plugin")

    def _look(self, by: str) -> None:
        if not self.notes and is_initialised():
            self.notes = (f"{by} initialised the GPU while tests were collected: {WHY}",)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Name the first file whose import did it."""
        report = yield
        self._look(collector.nodeid or "a plugin")
        return report


def is_initialised() -> bool:
    """Whether torch has a context on a GPU in this process."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # torch may be half imported, or a stand-in
    asked = getattr(cuda, "is_initialized", None)
    return bool(asked()) if callable(asked) else False

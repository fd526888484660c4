"""By which key a test item is judged; collectors give it (see `cases` and `code_items`)."""

from __future__ import annotations

import pytest

from pytest_attnperf.records import CaseKey

CASE, BUILD = pytest.StashKey[CaseKey](), pytest.StashKey[CaseKey]()


def case_key(item: pytest.Item) -> CaseKey | None:
    """The item's case key; None when it is an ordinary test."""
    return item.stash.get(CASE, None)


def build_key(item: pytest.Item) -> CaseKey | None:
    """The key of the compiled kernel that the item is about; None when it is about none."""
    return item.stash.get(BUILD, None)

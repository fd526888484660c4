"""By what a test item is judged; collectors give it a key (see `cases` and `code_items`), `plan_cases` the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.records import CaseKey

if TYPE_CHECKING:
    from pytest_attnperf.session.settings import Case

CASE, BUILD = pytest.StashKey[CaseKey](), pytest.StashKey[CaseKey]()
PLANNED: pytest.StashKey[Case] = pytest.StashKey()
"""The whole case, without the one behind it; in the session that judges."""


def case_key(item: pytest.Item) -> CaseKey | None:
    """The item's case key; None when it is an ordinary test."""
    return item.stash.get(CASE, None)


def build_key(item: pytest.Item) -> CaseKey | None:
    """The key of the compiled kernel that the item is about; None when it is about none."""
    return item.stash.get(BUILD, None)

"""By what a test item is judged; collectors give it a key (see `cases` and `code_items`), `plan_cases` the rest.

Which case comes behind it is found once for all items, because a run asks for every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


_FOLLOWING = pytest.StashKey["_Following"]()


def find_next_case(items: Sequence[pytest.Item], after: pytest.Item) -> CaseKey | None:
    """The key of the first case behind `after`: what a worker is told comes next.

    Found for all items at the first call, and anew where they have become more or fewer.
    """
    stash = after.config.stash
    known = stash.get(_FOLLOWING, None)
    if known is None or known.items is not items or known.count != len(items):
        known = stash[_FOLLOWING] = _Following.from_items(items)
    return known.keys.get(id(after))


@dataclass(frozen=True)
class _Following:
    """The key of the case behind each of `items`, by the item's id; there were `count` of them."""

    items: Sequence[pytest.Item]
    count: int
    keys: dict[int, CaseKey]

    @classmethod
    def from_items(cls, items: Sequence[pytest.Item]) -> _Following:
        keys: dict[int, CaseKey] = {}
        following: CaseKey | None = None
        for item in reversed(items):
            if following is not None:
                keys[id(item)] = following
            following = case_key(item) or following
        return cls(items, len(items), keys)

"""What test items carry for judging: their case key, set by collectors (see `cases` and `code_items`), and their plan.

The next case of each item is found once for all items, because a run needs it for every one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey

if TYPE_CHECKING:
    from pytest_attnperf.session.settings import Case

CASE, BUILD = pytest.StashKey[CaseKey](), pytest.StashKey[CaseKey]()
PLANNED: pytest.StashKey[Case] = pytest.StashKey()
"""The whole case of an item, set by `plan_cases` in the session that judges; its `next_key` is not filled in yet."""


def case_key(item: pytest.Item) -> CaseKey | None:
    """Returns the item's case key, or None for an ordinary test."""
    return item.stash.get(CASE, None)


def build_key(item: pytest.Item) -> CaseKey | None:
    """Returns the key of the kernel that the item compiles, or None if it compiles none."""
    return item.stash.get(BUILD, None)


def refuse_duplicates(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError if two items have the same key: they would share a baseline."""
    seen: dict[CaseKey, str] = {}
    for item in items:
        key = case_key(item)
        if key is None:
            continue
        if key in seen:
            raise UsageError(
                f"two tests are the same case {key}: {seen[key]} and {item.nodeid}; "
                "give one of them @pytest.mark.attnperf(label=...)"
            )
        seen[key] = item.nodeid


_FOLLOWING = pytest.StashKey["_Following"]()


def find_next_case(items: Sequence[pytest.Item], after: pytest.Item) -> CaseKey | None:
    """Returns the key of the first case after the item `after`; None if there is none. The worker gets it.

    The first call finds the keys for all items; they are found again if the list of items changes.
    """
    stash = after.config.stash
    known = stash.get(_FOLLOWING, None)
    if known is None or known.items is not items or known.count != len(items):
        known = stash[_FOLLOWING] = _Following.from_items(items)
    return known.keys.get(id(after))


@dataclass(frozen=True)
class _Following:
    """The case after each item. `keys`: Python id of an item -> key of the next case; `count`: number of items."""

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

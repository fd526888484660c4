"""Which case comes behind an item."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin import keys
from pytest_attnperf.plugin.keys import find_next_case
from pytest_attnperf.records import CaseKey


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Items that were asked for their key, which is an attribute here."""
    seen: list[Any] = []

    def key_of(item: Any) -> Any:
        seen.append(item)
        return item.key

    monkeypatch.setattr(keys, "case_key", key_of)
    return seen


def items_of(*keys: str | None) -> list[Any]:
    """Items of one session with these keys, None for ordinary tests."""
    config = SimpleNamespace(stash=pytest.Stash())
    return [SimpleNamespace(config=config, key=key and CaseKey("suite", "backend", key)) for key in keys]


def behind(items: list[Any], index: int) -> str | None:
    """The workload of the case that is said to come next."""
    key = find_next_case(items, items[index])
    return None if key is None else key.workload


def test_ordinary_tests_between_cases_are_passed_over(asked: list[Any]) -> None:
    """The next case is that behind any number of ordinary tests, and none behind the last one."""
    items = items_of("a", None, "b", None, "c", None)
    assert [behind(items, index) for index in range(6)] == ["b", "b", "c", "c", None, None]


def test_every_item_is_asked_for_its_key_once(asked: list[Any]) -> None:
    """A run of many cases asks for the one behind each, and does not go through all of them every time."""
    items = items_of(*map(str, range(100)))
    for item in items:
        find_next_case(items, item)
    assert len(asked) == 100


def test_items_that_have_gone_are_not_promised(asked: list[Any]) -> None:
    """Where fewer items are left than were looked at before, the order is found anew."""
    items = items_of("a", "b", "c")
    assert behind(items, 0) == "b"
    del items[1]
    assert behind(items, 0) == "c"

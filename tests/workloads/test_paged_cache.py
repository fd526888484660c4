"""Paged caches: what is scattered is gathered again, what nobody owns is poison, and wrong tables are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.workloads import paged_cache

LENGTHS = [70, 17, 32]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["f16", "f32", "f8e4m3", "f8e4m3fnuz", "i8"])
def test_what_is_scattered_is_gathered(dtype: str) -> None:
    """Every key comes back from its page, all sequences at once and one alone."""
    dense, scale = paged_cache.store(torch.randn(3, 70, 2, 8), dtype)
    table = paged_cache.make_block_table(LENGTHS, 16, 3, "cpu")
    cache = paged_cache.scatter(dense, LENGTHS, table, 16)
    assert cache.shape == (paged_cache.count_pages(LENGTHS, 16), 16, 2, 8)
    everything = paged_cache.gather(cache, table)
    assert everything.shape == (3, 80, 2, 8)
    for b, length in enumerate(LENGTHS):
        want = paged_cache.load(dense[b, :length], scale, torch.float64)
        assert torch.equal(paged_cache.load(everything[b, :length], scale, torch.float64), want)
        assert torch.equal(
            paged_cache.load(paged_cache.gather_one(cache, table, b, length), scale, torch.float64), want
        )


@pytest.mark.parametrize(("dtype", "value"), [("f16", 512.0), ("f8e4m3", 448.0), ("f8e4m3fnuz", 240.0), ("i8", 127.0)])
def test_what_nobody_owns_is_poison(dtype: str, value: float) -> None:
    """Slots past the end, in the last page, in pages of nobody and in a contiguous cache, hold large finite values."""
    dense, _ = paged_cache.store(torch.randn(3, 70, 2, 8), dtype)
    table = paged_cache.make_block_table(LENGTHS, 16, 3, "cpu")
    everything = paged_cache.gather(paged_cache.scatter(dense, LENGTHS, table, 16), table)
    paged_cache.poison_past(dense, LENGTHS)
    for b, length in enumerate(LENGTHS):
        assert (everything[b, length:].float() == value).all()
        assert (dense[b, length:].float() == value).all()


def test_a_table_is_a_permutation_fixed_by_the_seed() -> None:
    """Every page is owned once; the order is the seed's; entries past the end name the page of nobody."""
    table, again, other = (paged_cache.make_block_table(LENGTHS, 16, seed, "cpu") for seed in (1, 1, 2))
    assert torch.equal(table, again)
    assert not torch.equal(table, other)
    counts = paged_cache.page_counts(LENGTHS, 16)
    owned = [int(page) for row, count in zip(table, counts, strict=True) for page in row[:count]]
    assert len(set(owned)) == len(owned) == paged_cache.count_pages(LENGTHS, 16) - 1
    (spare,) = set(range(len(owned) + 1)) - set(owned)
    assert {int(page) for row, count in zip(table, counts, strict=True) for page in row[count:]} == {spare}


def _set(row: int, column: int, value: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    def change(table: Any, lengths: Any) -> tuple[Any, Any]:
        table[row, column] = value
        return table, lengths

    return change


BAD: list[tuple[Callable[[Any, Any], tuple[Any, Any]], str]] = [
    (_set(0, 4, 10), "block_table[0, 4] is 10, allowed is 0 to 9"),
    (_set(2, 1, -1), "block_table[2, 1] is -1, allowed is 0 to 9"),
    (
        lambda table, lengths: (table.long(), lengths),
        "block_table must be int32 (B, pages_per_sequence), got torch.int",
    ),
    (lambda table, lengths: (table[0], lengths), "block_table must be int32 (B, pages_per_sequence), got"),
    (lambda table, lengths: (table, lengths[:2]), "seq_lens must be int32 (3,) as block_table has rows, got"),
    (lambda table, lengths: (table, lengths + 11), "seq_lens[0] is 81, allowed is 1 to 80, 5 pages"),
    (lambda table, lengths: (table, lengths - 17), "seq_lens[1] is 0, allowed is 1 to 80"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_wrong_table_is_named(change: Callable[[Any, Any], tuple[Any, Any]], message: str) -> None:
    """The argument, the entry, its value and the allowed range are said."""
    table = paged_cache.make_block_table(LENGTHS, 16, 3, "cpu")
    table, lengths = change(table, paged_cache.make_seq_lens(LENGTHS, "cpu"))
    with pytest.raises(UsageError, match=re.escape(message)):
        paged_cache.require_block_table(table, lengths, 10, 16)


def test_entries_past_the_end_may_be_anything() -> None:
    """A table whose unused entries are -1, as engines leave them, is taken."""
    table = paged_cache.make_block_table(LENGTHS, 16, 3, "cpu")
    table[1, 2:] = -1
    paged_cache.require_block_table(table, paged_cache.make_seq_lens(LENGTHS, "cpu"), 10, 16)


@pytest.mark.parametrize("page", [1, 8, 24, 100])
def test_a_page_is_a_power_of_two(page: int) -> None:
    """Other sizes are refused with the value seen."""
    with pytest.raises(WorkloadError, match=f"page must be a power of two of at least 16, got {page}"):
        paged_cache.require_page_size("decode", page)

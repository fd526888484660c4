"""The cache of keys and values: where rows land, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.layer.cache import KeyValueCache
from pytest_attnperf.errors import UsageError

SHAPE = (2, 5, 1, 4)


@pytest.fixture
def cache() -> KeyValueCache:
    """Of two sequences, with room for five positions, all zeros."""
    torch = pytest.importorskip("torch")
    return KeyValueCache(torch.zeros(SHAPE), torch.zeros(SHAPE))


def test_new_rows_land_at_their_position_and_nowhere_else(cache: KeyValueCache) -> None:
    """Keys and values go to their own tensors, from the position on, also from a view; a full cache is no error."""
    import torch

    new = torch.arange(1.0, 33.0).view(2, 4, 1, 4).transpose(0, 1).contiguous().transpose(0, 1)[:, :2]
    assert cache.room == 5
    cache.append(new, -new, 3)
    assert torch.equal(cache.k[:, 3:], new)
    assert torch.equal(cache.v[:, 3:], -new)
    assert not cache.k[:, :3].any()
    assert not cache.v[:, :3].any()


@pytest.mark.parametrize(
    ("k", "v", "position", "said"),
    [
        ((2, 3, 1, 4), (2, 3, 1, 4), 3, "cache too small: 3 tokens at position 3 need room for 6, it is 5; make one"),
        ((2, 1, 1, 4), (2, 1, 1, 4), -1, r"position must be 0 to 4, for the cache has room for 5, got -1"),
        ((2, 1, 1, 4), (2, 1, 1, 4), 5, r"position must be 0 to 4, for the cache has room for 5, got 5"),
        ((1, 1, 1, 4), (2, 1, 1, 4), 0, r"new k must be \(2, S, 1, 4\) with S of at least 1, got shape \(1, 1, 1, 4\)"),
        ((2, 1, 1, 4), (2, 1, 2, 4), 0, r"new v must be \(2, S, 1, 4\) .* got shape \(2, 1, 2, 4\)"),
        ((2, 1, 4), (2, 1, 4), 0, r"new k must be \(2, S, 1, 4\) .* got shape \(2, 1, 4\)"),
        ((2, 0, 1, 4), (2, 0, 1, 4), 0, r"new k must be \(2, S, 1, 4\) .* got shape \(2, 0, 1, 4\)"),
        ((2, 2, 1, 4), (2, 1, 1, 4), 0, "the new v must hold the 2 tokens of the new k, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    cache: KeyValueCache, k: tuple[int, ...], v: tuple[int, ...], position: int, said: str
) -> None:
    """The error names the value and what is allowed, and nothing is written."""
    import torch

    with pytest.raises(UsageError, match=said):
        cache.append(torch.ones(k), torch.ones(v), position)
    assert not cache.k.any()
    assert not cache.v.any()


@pytest.mark.parametrize(
    ("k", "v", "said"),
    [
        ({"size": (2, 5, 4)}, {"size": SHAPE}, r"k must be \(B, positions, Hk, D\), got shape \(2, 5, 4\)"),
        ({"size": SHAPE}, {"size": (2, 4, 1, 4)}, r"v must have the shape of k, \(2, 5, 1, 4\), got \(2, 4, 1, 4\)"),
        (
            {"size": SHAPE, "dtype": "float16"},
            {"size": SHAPE},
            "v must have the dtype of k, torch.float16, got torch.fl",
        ),
        ({"size": SHAPE}, {"size": SHAPE, "device": "meta"}, "v must have the device of k, cpu, got meta"),
    ],
)
def test_a_cache_of_two_kinds_is_refused(k: dict[str, Any], v: dict[str, Any], said: str) -> None:
    """Keys and values must be alike and of four dimensions."""
    torch = pytest.importorskip("torch")

    def made(dtype: str = "float32", **how: Any) -> Any:
        return torch.zeros(dtype=getattr(torch, dtype), **how)

    with pytest.raises(UsageError, match=said):
        KeyValueCache(made(**k), made(**v))

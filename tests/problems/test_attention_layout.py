from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.attention_layout import AttentionLayout, find_attention
from pytest_attnperf.problems.trace_schema import TraceDefinition, read_record
from tests.problems_folder import PRODUCT, STORED

PAGES, SIZE, HEADS, DIM = 9, 4, 2, 32
LAYOUT = AttentionLayout(("q",), ("k_cache",), ("v_cache",), True, False, False, ("lse",), True)


def paged(**changed: Any) -> dict[str, Any]:
    """Two sequences of 10 and 4 keys, and one of none, in pages of 4."""
    return {
        "q": torch.randn(3, HEADS, DIM),
        "k_cache": torch.randn(PAGES, SIZE, 1, DIM),
        "v_cache": torch.randn(PAGES, SIZE, 1, DIM),
        "kv_indptr": torch.tensor([0, 3, 4, 4]),
        "kv_indices": torch.tensor([5, 2, 8, 1]),
        "kv_last_page_len": torch.tensor([2, 4, 1]),
        "sm_scale": DIM**-0.5,
        **changed,
    }


def test_a_published_attention_is_recognised() -> None:
    """By the names of its inputs; a product is none."""
    data = (STORED / "definitions" / "gqa_paged_decode_h5_kv1_d128_ps1.json").read_bytes()
    found = find_attention(read_record(data, TraceDefinition, "d"))
    assert found == LAYOUT
    assert find_attention(read_record(json.dumps(PRODUCT).encode(), TraceDefinition, "d")) is None


def test_sequences_have_their_own_slots() -> None:
    """In the order of the page table, up to the length of the last page."""
    (_, first), (_, second), (rows, empty) = LAYOUT.list_sequences(paged())
    assert first.tolist() == [20, 21, 22, 23, 8, 9, 10, 11, 32, 33]
    assert second.tolist() == [4, 5, 6, 7]
    assert (rows, len(empty)) == (slice(2, 3), 0)


def test_unused_slots_hold_what_shows() -> None:
    """NaN and Inf in pages that no sequence has, large numbers behind the last key of a page; all else is finite."""
    planted = LAYOUT.plant(paged(), 0)
    for name in ("k_cache", "v_cache"):
        cache = planted[name].view(PAGES * SIZE, DIM)
        unused = torch.tensor([page * SIZE + slot for page in (0, 3, 4, 6, 7) for slot in range(SIZE)])
        assert not cache[unused].isfinite().all(-1).any()
        assert (cache[[34, 35]].abs() == 1000).any(-1).all()
        assert cache[[20, 33, 4]].isfinite().all()


@pytest.mark.parametrize("scale", [DIM**-0.5, 0.05, 1.0])
def test_a_lost_key_decides_a_row(scale: float) -> None:
    """Whatever the scale of the scores: a row has half of its weight on the last key, another on the first."""
    favourites = set()
    for seed in range(8):
        planted = LAYOUT.plant(paged(sm_scale=scale), seed)
        (rows, slots), *_ = LAYOUT.list_sequences(planted)
        keys = planted["k_cache"].view(-1, DIM)[slots]
        weights = torch.softmax(planted["q"][rows][0] @ keys.T * scale, -1)
        favourites |= {int(row.argmax()) for row in weights if row.max() > 0.5}
    assert {0, 9} <= favourites


def test_parts_of_latent_keys_are_planted_together() -> None:
    """A score sums over both parts."""
    layout = AttentionLayout(("q_nope", "q_pe"), ("ckv_cache", "kpe_cache"), (), True, False, False, (), True)
    inputs = {
        **paged(),
        "q_nope": torch.randn(3, HEADS, DIM).bfloat16(),
        "q_pe": torch.randn(3, HEADS, 8).bfloat16(),
        "ckv_cache": torch.randn(PAGES, SIZE, DIM).bfloat16(),
        "kpe_cache": torch.randn(PAGES, SIZE, 8).bfloat16(),
    }
    planted = layout.plant(inputs, 0)
    q = torch.cat([planted["q_nope"], planted["q_pe"]], -1).float()[1]
    keys = torch.cat([planted["ckv_cache"], planted["kpe_cache"]], -1).float().view(-1, DIM + 8)[4:8]
    assert torch.softmax(q @ keys.T * inputs["sm_scale"], -1).max() > 0.5
    assert planted["q_pe"].dtype == torch.bfloat16


def test_packed_sequences_have_planted_neighbours() -> None:
    """A causal row would see the key behind its own, and the next sequence's first."""
    layout = AttentionLayout(("q",), ("k",), ("v",), False, True, True, (), True)
    k = torch.randn(20, HEADS, DIM)
    bounds = torch.tensor([0, 12, 20])
    inputs = {"q": torch.randn(20, HEADS, DIM), "k": k, "v": k.clone(), "qo_indptr": bounds, "kv_indptr": bounds}
    beyond = 0.0
    for seed in range(4):
        planted = layout.plant(inputs, seed)
        scores = torch.einsum("qhd,khd->hqk", planted["q"], planted["k"]) / math.sqrt(DIM)
        beyond = max(beyond, float(scores[:, :12, 12].max()))
    assert beyond > 3.5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kv_indptr": torch.tensor([0, 3, 2, 4])}, r"kv_indptr is \[0, 3, 2, 4\]; it must not decrease"),
        ({"kv_indptr": torch.tensor([0, 3, 4, 9])}, "and lie between 0 and 4"),
        ({"kv_indptr": torch.tensor([-1, 3, 4, 4])}, "it must not decrease"),
        ({"kv_indices": torch.tensor([5, 2, 9, 1])}, "kv_indices has pages from 1 to 9; there are 9, from 0"),
        ({"kv_indices": torch.tensor([5, 2, -1, 1])}, "kv_indices has pages from -1 to 5"),
        ({"kv_last_page_len": torch.tensor([5, 4, 1])}, "kv_last_page_len has 5; a page holds 4 keys"),
    ],
)
def test_tables_that_point_elsewhere_are_refused(changed: dict[str, Any], said: str) -> None:
    """Instead of reading memory of something else."""
    with pytest.raises(UsageError, match=said):
        LAYOUT.plant(paged(**changed), 0)

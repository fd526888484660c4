"""The order of blocks for several XCDs: nothing is left out, and the heads of a K/V head share one."""

from __future__ import annotations

from typing import Any

import pytest

ORDERS = [
    "order 8 4 5 8",
    "order 16 1 3 8",
    "order 9 3 2 8",
    "order 19 2 7 8",
    "order 7 5 4 8",
    "order 1 8 3 8",
    "order 1 1 1 8",
    "order 13 2 3 4",
]
"""K/V heads of all batches, query heads of each, blocks of rows, XCDs."""

CASES = [
    "triton.flash/prefill-b3-s40-h6-hk3-d16-f16-causal-lse",
    "triton.flash_persistent/prefill-b3-s72-h6-hk3-d16-f16-causal",
    "triton.flash_varlen/varlen-q40_1_33-h12-hk6-d16-f16-causal",
    "triton.flash_trans_v/prefill-b3-s64-h6-hk3-d64-f16-causal",
    "triton.flash_backward/backward-b3-s40-h6-hk3-d16-f16-causal",
    "triton.flash_backward/varlen_backward-q40_1_33-h12-hk6-d16-f16-causal",
]


@pytest.fixture(scope="module")
def found(interpret: Any) -> Any:
    """What the interpreting process finds of every case."""
    return interpret("tests.kernels.triton.ordered_on_xcds", (*ORDERS, *CASES))


@pytest.mark.parametrize("case", ORDERS)
def test_every_block_is_done_once(case: str, found: Any) -> None:
    """Odd numbers of blocks, K/V heads that XCDs do not divide, and fewer of them than XCDs."""
    kv_heads, group, blocks, _ = map(int, case.split()[1:])
    order = [tuple(pair) for pair in found[case]["order"].tolist()]
    assert sorted(order) == [(head, rank) for head in range(kv_heads * group) for rank in range(blocks)]


@pytest.mark.parametrize("case", ORDERS)
def test_the_query_heads_of_a_kv_head_are_on_one_xcd(case: str, found: Any) -> None:
    """Workgroup n runs on XCD n % XCDs. As many K/V heads as the XCDs divide are dealt evenly; each XCD works through
    one after another, the first blocks of all its heads first."""
    kv_heads, group, _, xcds = map(int, case.split()[1:])
    order = found[case]["order"].tolist()
    dealt = kv_heads // xcds * xcds
    xcds_of: dict[int, set[int]] = {}
    for number, (head, _) in enumerate(order):
        xcds_of.setdefault(head // group, set()).add(number % xcds)
    assert [xcds_of[kv_head] for kv_head in range(dealt)] == [{kv_head % xcds} for kv_head in range(dealt)]
    for xcd in range(xcds if dealt else 0):
        walked = [(head // group, rank, head) for head, rank in order[xcd::xcds] if head // group < dealt]
        assert walked == sorted(walked)


@pytest.mark.parametrize("case", CASES)
def test_results_in_that_order_are_right(case: str, found: Any, judge: Any) -> None:
    """Of each kernel that knows it, with nine K/V heads or more."""
    assert [value for name, value in found[case]["config"].items() if name.endswith("XCDS")] == ["8"]
    assert judge(case.partition("/")[2], found[case]["outputs"]) == ()

"""Every liar has an honest twin: the same kernel without the lie, on the same workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.records import CheckReport
from pytest_attnperf.workloads.prefill import Prefill

Judged = Callable[..., list[CheckReport]]
Kernel = Callable[..., tuple[torch.Tensor, torch.Tensor]]

SQUARE = Prefill.parse_line("b=2,s=48,h=4,hk=2,d=32,causal,f16")
WIDE = Prefill.parse_line("s=24,kv=88,h=2,d=32,causal,bf16")


def problems(reports: list[CheckReport]) -> list[str]:
    """Everything found wrong, after asserting that a report is right exactly when nothing was."""
    assert all(report.right == (not report.problems) for report in reports)
    assert all(report.figures for report in reports)
    return [problem for report in reports for problem in report.problems]


MASKED_WRONG = [
    ("last key dropped", SQUARE, {"hide_last_keys": 1}),
    ("mask leaks by one", SQUARE, {"diagonal": 1}),
    ("mask short by one", WIDE, {"diagonal": 88 - 24 - 1}),
    ("top-left alignment", WIDE, {"diagonal": 0}),
    ("no mask", SQUARE, {"diagonal": 48}),
    ("wrong scale", SQUARE, {"scale": 1.01 / 32**0.5}),
    ("scale of another head dim", SQUARE, {"scale": 64**-0.5}),
    ("GQA heads swapped", SQUARE, {"key_head": lambda head, group: head % group}),
]


@pytest.mark.parametrize(("workload", "lie"), [case[1:] for case in MASKED_WRONG], ids=[c[0] for c in MASKED_WRONG])
def test_wrong_arithmetic_is_caught(workload: Prefill, lie: dict[str, Any], judged: Judged, honest: Kernel) -> None:
    """A kernel that sees another key, scale or head is off by many budgets; its twin is within them."""
    found = problems(judged(workload, lambda q, k, v: honest(q, k, v, causal=True, **lie)[0]))
    assert any("'out' is off by" in problem and "x the budget" in problem for problem in found)
    assert problems(judged(workload, lambda q, k, v: honest(q, k, v, causal=True)[0])) == []


@pytest.mark.parametrize(("keys", "dtype"), [(1, "bf16"), (16, "bf16"), (1, "f16")])
def test_a_lost_key_among_32768_is_caught(keys: int, dtype: str, judged: Judged, honest: Kernel) -> None:
    """Dropping the last key, or a page of 16, fails planted inputs by far; in bf16 the key alone passes others."""
    workload = Prefill(1, 4, 2, 64, seq_kv=32768, dtype=dtype)
    ordinary, *planted = judged(workload, lambda q, k, v: honest(q, k, v, hide_last_keys=keys)[0])
    assert ordinary.right == ((keys, dtype) == (1, "bf16"))
    for report in planted:
        assert report.figures[0].max_error > 10 * report.figures[0].max_budget
        assert not report.right
    assert problems(judged(workload, lambda q, k, v: honest(q, k, v)[0])) == []


def test_a_key_counted_twice_is_caught(judged: Judged, honest: Kernel) -> None:
    """A key that enters the softmax twice moves its planted row, though it drops nothing."""
    workload = Prefill(1, 4, 2, 64, seq_kv=1024, dtype="bf16")

    def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return honest(q, torch.cat([k, k[:, -1:]], 1), torch.cat([v, v[:, -1:]], 1))[0]

    _, *planted = judged(workload, twice)
    assert not any(report.right for report in planted)


def test_writing_nothing_is_caught(judged: Judged, honest: Kernel) -> None:
    """A kernel that allocates its output and writes nothing is wrong at every check; its twin writes it all."""
    assert not any(report.right for report in judged(SQUARE, lambda q, k, v: torch.empty_like(q)))
    assert problems(judged(SQUARE, lambda q, k, v: torch.empty_like(q).copy_(honest(q, k, v, causal=True)[0]))) == []


def test_one_tile_not_written_is_nan(judged: Judged, honest: Kernel) -> None:
    """A last tile of rows that is never stored shows as NaN, with its count and first place."""

    def partly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.full_like(q, float("nan"))
        out[:, :32] = honest(q, k, v, causal=True)[0][:, :32]
        return out

    for report in judged(SQUARE, partly):
        assert f"'out' holds {2 * 16 * 4 * 32} NaN among {2 * 48 * 4 * 32} elements" in report.problems[0]
        assert "first at (0, 32, 0, 0)" in report.problems[0]


def test_a_persistent_output_written_once_is_caught(judged: Judged, honest: Kernel) -> None:
    """An output buffer that keeps the first, right result is NaN when it is judged again."""
    buffer = torch.empty(2, 48, 4, 32, dtype=torch.float16)
    calls: list[int] = []

    def once(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if not calls:
            buffer.copy_(honest(q, k, v, causal=True)[0])
        calls.append(1)
        return buffer

    first, second, third = judged(SQUARE, once)
    assert first.right
    for report in (second, third):
        assert f"holds {buffer.numel()} NaN among {buffer.numel()} elements" in report.problems[0]
    honest_buffer = torch.empty_like(buffer)
    assert problems(judged(SQUARE, lambda *qkv: honest_buffer.copy_(honest(*qkv, causal=True)[0]))) == []


@pytest.mark.parametrize("which", [0, 1, 2])
def test_changed_inputs_are_named(which: int, judged: Judged, honest: Kernel) -> None:
    """A kernel that is right but scales an input in place is caught, and the tensor is named by its number."""

    def mutate(*qkv: torch.Tensor) -> torch.Tensor:
        out = honest(*qkv, causal=True)[0]
        qkv[which].mul_(0.5)
        return out

    for report in judged(SQUARE, mutate):
        (problem,) = report.problems
        assert f"the call changed its inputs: tensor {which} of 3, shape " in problem


def test_a_result_in_an_inputs_memory_is_named(judged: Judged, honest: Kernel) -> None:
    """Writing the right result over q saves memory and destroys the next call's input."""

    def over_q(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q.copy_(honest(q, k, v, causal=True)[0])

    for report in judged(SQUARE, over_q):
        assert any("the result lies in the memory of an input" in problem for problem in report.problems)
        assert any("changed its inputs: tensor 0" in problem for problem in report.problems)


@pytest.mark.parametrize("workload", [SQUARE, Prefill(2, 48, 4, 32, dtype="f32")])
def test_lower_precision_is_caught(workload: Prefill, judged: Judged, honest: Kernel) -> None:
    """bf16 arithmetic under an f16 or f32 name is off by many budgets."""

    def lower(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return honest(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal=workload.causal)[0].to(q.dtype)

    for report in judged(workload, lower):
        assert report.figures[0].max_error > 2 * report.figures[0].max_budget
        assert report.figures[0].rms_error > 2 * report.figures[0].rms_budget
    assert problems(judged(workload, lambda q, k, v: honest(q, k, v, causal=workload.causal)[0])) == []


@pytest.mark.parametrize("key", ["pointer", "shape"])
def test_a_cached_result_is_caught(key: str, judged: Judged, honest: Kernel) -> None:
    """A result remembered by address or by shape is an earlier input's: fresh inputs go into the same memory."""
    cache: dict[Any, torch.Tensor] = {}

    def cached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found = q.data_ptr() if key == "pointer" else q.shape
        if found not in cache:
            cache[found] = honest(q, k, v, causal=True)[0]
        return cache[found].clone()

    first, second, third = judged(SQUARE, cached)
    assert first.right
    assert not second.right
    assert not third.right


def test_a_wrong_lse_is_caught_beside_a_right_out(judged: Judged, honest: Kernel) -> None:
    """Every output is judged: log-sum-exp in base 2 fails by its name, natural log passes."""
    workload = Prefill(4, 40, 4, 32, causal=True, lse=True)

    def base_two(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = honest(q, k, v, causal=True)
        return out, lse / 0.6931471805599453

    found = problems(judged(workload, base_two))
    assert found
    assert all("'lse'" in problem for problem in found)
    assert problems(judged(workload, lambda q, k, v: honest(q, k, v, causal=True))) == []

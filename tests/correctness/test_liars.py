"""Lies that need the judge's own figures to be told apart; each has an honest twin. `tests/judges` has the others."""

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
    ("mask leaks by one", SQUARE, {"diagonal": 1}),
    ("mask short by one", WIDE, {"diagonal": 88 - 24 - 1}),
    ("no mask", SQUARE, {"diagonal": 48}),
    ("wrong scale", SQUARE, {"scale": 1.01 / 32**0.5}),
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


def test_half_precision_under_fp32_is_caught(judged: Judged, honest: Kernel) -> None:
    """bf16 arithmetic under an f32 name is off by many budgets, element by element and in the mean."""
    workload = Prefill(2, 48, 4, 32, dtype="f32")

    def lower(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return honest(q.bfloat16(), k.bfloat16(), v.bfloat16())[0].to(q.dtype)

    for report in judged(workload, lower):
        assert report.figures[0].max_error > 2 * report.figures[0].max_budget
        assert report.figures[0].rms_error > 2 * report.figures[0].rms_budget
    assert problems(judged(workload, lambda q, k, v: honest(q, k, v)[0])) == []

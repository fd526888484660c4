"""benchmarks/figures/size_injections.py: how the size of an injected slowdown is chosen; measuring needs a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("call_us", "calls", "share", "every", "extra_us", "why"),
    [
        (20.0, 100, 0.01, 100, 0.0, "one extra call per 100 is exactly one per cent"),
        (4.4, 455, 0.01, 91, 0.0, "five in 455"),
        (22.0, 91, 0.005, 91, 10.01, "half a call in a block: one extra call that takes half as long"),
        (1000.0, 2, 0.01, 1, 10.0, "a long kernel has no room for whole calls: a small one before each"),
        (22.0, 28, 0.05, 14, 15.4, "1.4 calls are two that take 0.7 of one"),
    ],
)
def test_extra_calls_are_planned(
    program: Callable[[str], Any], call_us: float, calls: int, share: float, every: int, extra_us: float, why: str
) -> None:
    """Whole calls where they hit the size, else calls on a slice, as many as a block needs."""
    assert program("size_injections").plan_calls(call_us, calls, share) == (every, pytest.approx(extra_us)), why


def test_closest_slice_is_taken(program: Callable[[str], Any]) -> None:
    """The rows whose extra call takes most nearly what is wanted."""
    assert program("size_injections").closest({64: 5.0, 128: 9.0, 256: 16.0}, 11.0) == 128


def test_steps_follow_from_two_ratios(program: Callable[[str], Any]) -> None:
    """A kernel that differs by 0.1 % without extra steps gets as many as bring it to one per cent."""
    module = program("size_injections")
    per_step = 0.0001
    assert module.steps_for(0.01, 1.001, 1.001 + module.PROBE_STEPS * per_step) == 90


def test_steps_that_cost_nothing_are_an_error(program: Callable[[str], Any]) -> None:
    """If the compiler left the extra work out, no slowdown can be made, and the ratios are shown."""
    with pytest.raises(ValueError, match=r"512 extra steps changed the ratio from 1\.00000 to 0\.99900"):
        program("size_injections").steps_for(0.01, 1.0, 0.999)


def test_without_a_gpu_sizes_are_nominal(
    program: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every case of the CPU's suite gets one extra call in 100, 33, 20 or 200, and says that none was measured."""
    out = tmp_path / "injections.json"
    monkeypatch.setattr(sys, "argv", ["size_injections.py", "--device", "cpu", "--out", str(out)])
    assert program("size_injections").main() == 0
    written = json.loads(out.read_text())
    calls = written.pop("copy")
    assert (calls["slow1"]["kind"], calls["slow1"]["share"]) == ("copy", 0.01)
    assert len(written) == 4
    for by_label in written.values():
        assert {label: one["every"] for label, one in by_label.items()} == {
            "slow05": 200, "slow1": 100, "slow3": 33, "slow5": 20,
        }  # fmt: skip
        assert {one["true"] for one in by_label.values()} == {None}


@pytest.mark.gpu
def test_true_size_of_a_whole_extra_call(program: Callable[[str], Any]) -> None:
    """On a GPU one extra call in 20 measures as five per cent."""
    import torch
    from figures_injection import with_extra_calls

    module = program("size_injections")
    matrix = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)

    def call(a: Any) -> Any:
        return a @ a

    slowed = with_extra_calls(call, 20, 0)
    ratio = module.ratio(lambda: call(matrix), lambda: slowed(matrix), 1000.0, 12)
    assert ratio == pytest.approx(1.05, abs=0.01)

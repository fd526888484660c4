"""What no check of a function can see because of its inputs is said; a kernel that profits of it, and its twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.input_notes import notes_on

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
SHAPE = (256, 256)
BF16, F16, F32, F64, F8 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn


def checked(fn: Callable[..., Any], inputs: Callable[..., Any], reference: Callable[..., Any]) -> CheckReport:
    """What is said of a function."""
    subject = TorchSubject(CallableBackend("mine", fn), AdHoc("x", inputs, reference), CPU, Seeds(0, 1, 2))
    subject.prepare()
    return subject.check()


def ignores_w(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Right for ones."""
    return torch.tanh(x)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What is asked for."""
    return torch.tanh(x) * w


def test_an_input_that_never_changes_is_named_and_one_that_does_is_judged() -> None:
    """A kernel that ignores it is right by every check, so that a note says so; drawn, the same kernel is wrong."""
    constant = checked(ignores_w, lambda: (torch.randn(SHAPE), torch.ones(SHAPE)), product)
    assert constant.right
    assert any("the same 'w' for every seed" in note for note in constant.notes)
    drawn = checked(ignores_w, lambda: (torch.randn(SHAPE), torch.randn(SHAPE)), product)
    assert not drawn.right


def test_inputs_that_are_drawn_are_not_named() -> None:
    """Nor is one that is planted though every seed begins with the same, nor a single number."""
    fixed = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
    for second in (lambda: torch.randn(SHAPE), lambda: fixed, lambda: torch.full((1,), 2.0)):
        report = checked(lambda x, w: w * x.tanh(), lambda second=second: (torch.randn(SHAPE), second()), product)
        assert report.right
        assert report.notes == ()


def test_an_input_of_one_sign_is_named() -> None:
    """Without relu the kernel is right for numbers from 0 to 1, and wrong for such of both signs."""

    def without(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w

    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.relu() * w

    for positive in (torch.rand, lambda shape: -torch.rand(shape)):
        of_one = checked(without, lambda positive=positive: (positive(SHAPE), torch.randn(SHAPE)), lambda x, w: x * w)
        assert [note[:17] for note in of_one.notes] == ["'x' has one sign:"]
    assert checked(without, lambda: (torch.rand(SHAPE), torch.randn(SHAPE)), reference).right
    assert not checked(without, lambda: (torch.randn(SHAPE), torch.randn(SHAPE)), reference).right

    def planted(seed: int, planted: bool) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(SHAPE)
        return x - 0.5 * planted, torch.randn(SHAPE)

    assert not checked(without, planted, reference).right
    assert checked(lambda x, w: x.clamp_min(0) * w, planted, reference).notes == ()


def test_an_input_that_the_result_does_not_show_is_named() -> None:
    """A branch of 1e-5 is below the step of what it is added to, and is left out without a trace; 0.1 of it is not."""

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(SHAPE).to(BF16), (torch.randn(SHAPE) / 16).to(BF16)

    def residual(scale: float) -> Callable[..., torch.Tensor]:
        return lambda x, w: (x.float() + scale * torch.tanh(x.float() @ w.float())).to(x.dtype)

    faint = checked(lambda x, w: x.clone(), inputs, residual(1e-5))
    assert faint.right
    assert [note.partition(" changes")[0] for note in faint.notes] == ["changing 'w'"]
    assert not checked(lambda x, w: x.clone(), inputs, residual(0.1)).right
    shown = checked(lambda x, w: residual(0.1)(x, w), inputs, residual(0.1))
    assert not any("changing" in note for note in shown.notes)
    unread = checked(lambda x, w: x * 2, inputs, lambda x, w: x * 2)
    assert not any("changing" in note for note in unread.notes)


def test_labels_that_never_vary_are_named() -> None:
    """A kernel that takes no notice of ignored labels is right where none is; planted by inputs() it is wrong."""

    def fixed(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(64, 256), torch.arange(64)

    def with_sentinels(seed: int, planted: bool) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 256, (64,))
        return torch.randn(64, 256), labels.masked_fill(torch.arange(64) % 8 == 3, -100) if planted else labels

    def ignores_none(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels.clamp(min=0))

    def reference(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels)

    report = checked(ignores_none, fixed, reference)
    assert report.right
    assert any("the same 'labels' for every seed" in note for note in report.notes)
    assert not checked(ignores_none, with_sentinels, reference).right
    honest = checked(lambda logits, labels: F.cross_entropy(logits, labels), with_sentinels, reference)
    assert honest.right
    assert not any("every seed" in note for note in honest.notes)


def test_an_fp32_product_made_in_bf16_beside_a_bf16_input_is_said() -> None:
    """The narrowest input makes the budget: the kernel passes, and the note names both; with fp32 alone it fails."""

    def rounded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.to(BF16).float() @ y.to(BF16).float()

    def wide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y.float()

    mixed = checked(rounded, lambda: (torch.randn(SHAPE), torch.randn(SHAPE).to(BF16)), wide)
    assert mixed.right
    assert any("budgets are those of bfloat16 because of 'y'" in note and "'x'" in note for note in mixed.notes)
    assert not checked(rounded, lambda: (torch.randn(SHAPE), torch.randn(SHAPE)), wide).right


@pytest.mark.parametrize(
    ("dtypes", "says"),
    [
        (
            (F32, BF16, torch.int64),
            "bfloat16 because of 'b': computing with 'a' in the same low precision would not be detected",
        ),
        (
            (F16, BF16, F32),
            "bfloat16 because of 'b': computing with 'a', 'c' in the same low precision would not be detected",
        ),
        (
            (F64, F32, F32),
            "float32 because of 'b', 'c': computing with 'a' in the same low precision would not be detected",
        ),
        ((BF16, BF16, torch.int32), ""),
        ((F8, BF16, F32), ""),
        ((torch.bool,), ""),
    ],
)
def test_widths_are_said_where_they_differ(dtypes: tuple[torch.dtype, ...], says: str) -> None:
    """The narrowest type counts; none does beside 8 bits, where no budget is made of random rounding."""
    notes = notes_on(("a", "b", "c"), dtypes, ())
    assert [says in note for note in notes] == [True] * bool(says)

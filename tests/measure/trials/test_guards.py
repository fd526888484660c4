"""Guard bands: writes outside of inputs and outputs, reads outside of inputs, and honest calls between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.measure.trials.guards import FILLED, UNFILLED, GuardedOutputs
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.records.trials import TrialEnding
from pytest_attnperf.testing.liars.writing import view_memory
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def tried(fn: Callable[..., Any], inputs: Any, reference: Any, trial: str = "guards", **settings: Any) -> CheckReport:
    """What is said of a function that is right as it is, after a trial."""
    workload = AdHoc("x", inputs, reference, **settings)
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(timed=0, check=1, final=2))
    subject.prepare()
    assert subject.check().problems == ()
    return subject.finish(trials=(trial,)).check


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over rows."""
    return torch.softmax(x, -1)


def rows() -> torch.Tensor:
    """Rows whose memory ends 8 bytes before what malloc uses next."""
    return torch.randn(60, 100)


def writes(bytes_off: int, *, at_input: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    """A softmax that writes 8 bytes, so far behind its end (or, negative, before its beginning), if it is guarded."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape)
        out.copy_(softmax(x))
        own = x if at_input else out
        if own.untyped_storage().nbytes() > own.numel() * 4 + 60_000:
            end = own.data_ptr() + (own.numel() * 4 + bytes_off if bytes_off >= 0 else bytes_off)
            view_memory(end, 2, own).fill_(1.5)
        return out

    return kernel


@pytest.mark.parametrize(
    ("bytes_off", "at_input", "place"),
    [
        (0, False, "0 behind a tensor (60, 100) torch.float32 of torch's empty"),
        (65528, False, "65528 behind a tensor"),
        (-8, False, "0 before a tensor"),
        (-64, False, "56 before a tensor"),
        (16, True, "16 behind tensor 0"),
        (-8, True, "0 before tensor 0"),
    ],
)
def test_a_write_outside_is_incorrect_with_its_distance(bytes_off: int, at_input: bool, place: str) -> None:
    """Before and behind inputs and outputs; the problem says how many bytes, how far away, and at what address."""
    report = tried(writes(bytes_off, at_input=at_input), rows, softmax)
    assert any(f"8 bytes, {place}" in problem and "at address 0x" in problem for problem in report.problems)
    assert [result.ending for result in report.trials] == [TrialEnding.WRONG]


def test_a_read_behind_an_input_shows_even_times_zero() -> None:
    """Memory around inputs is NaN."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        return softmax(x) + 0 * view_memory(x.data_ptr() + x.numel() * 4, 1, x)

    with pytest.raises(AssertionError, match="NaN"):  # already the 512 bytes behind an input in every check show it
        tried(kernel, rows, softmax)


@pytest.mark.parametrize(
    "fn",
    [
        softmax,
        lambda x: torch.softmax(x, -1, out=torch.zeros_like(x)),
        lambda x: torch.full_like(x, 1.0).mul_(softmax(x)),
        lambda x: x.new_empty(0) if x.numel() == 0 else torch.empty_strided(x.shape, (1, 60)).copy_(softmax(x)),
        lambda x: torch.ones(60, 1).expand(60, 100) * softmax(x),
        lambda x: torch.compile(softmax, backend="eager")(x),
    ],
)
def test_honest_calls_are_right(fn: Callable[..., Any]) -> None:
    """Whatever they allocate, and however."""
    report = tried(fn, rows, softmax)
    assert report.problems == ()
    assert [result.ending for result in report.trials] == [TrialEnding.RIGHT]


def test_a_call_that_runs_in_no_dispatch_mode_has_its_inputs_guarded() -> None:
    """The result says that its outputs are not."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if torch._C._len_torch_dispatch_stack():
            raise NotImplementedError("no rule for this mode")
        if x.untyped_storage().nbytes() > x.numel() * 4 + 60_000 and spoils:
            view_memory(x.data_ptr() - 8, 2, x).fill_(1.5)
        return softmax(x)

    spoils = False
    (result,) = tried(kernel, rows, softmax).trials
    why = "outputs are not guarded: NotImplementedError: no rule for this mode"
    assert (result.ending, result.why) == (TrialEnding.RIGHT, why)
    spoils = True
    assert "0 before tensor 0" in tried(kernel, rows, softmax).problems[0]


def test_the_compiler_works_after_a_call_that_runs_in_no_dispatch_mode() -> None:
    """FlexAttention, which is tried in a mode in vain, leaves the next case's FlexAttention compilable."""

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(1, 2, 128, 16) for _ in "qkv")

    def attend(name: str) -> CheckReport:
        def change(score: Any, _batch: Any, _head: Any, row: Any, column: Any) -> Any:
            return score + (row - column if name == "first" else column)

        def plain(q: Any, k: Any, v: Any) -> Any:
            number = torch.arange(128)
            added = number[:, None] - number if name == "first" else number
            return (q @ k.transpose(-1, -2) / 4 + added).softmax(-1) @ v

        return tried(lambda q, k, v: flex_attention(q, k, v, score_mod=change), inputs, plain)

    assert [attend(name).problems for name in ("first", "second")] == [(), ()]


def test_inputs_that_a_call_may_overwrite_and_gradients_are_guarded() -> None:
    """A call in place, and a backward pass, are right between the bands."""
    assert tried(lambda x: x.mul_(2), rows, lambda x: x * 2, overwrites=("x",)).problems == ()
    assert tried(softmax, rows, softmax, times="both").problems == ()


@pytest.mark.parametrize("operator", sorted(UNFILLED | FILLED))
def test_every_factory_is_guarded(operator: str) -> None:
    """Each operator of the lists is one of torch's, and what it makes lies between bands and has its value."""
    x = torch.zeros(3, 4)
    arguments: dict[str, Callable[[], torch.Tensor]] = {
        "empty_strided": lambda: torch.empty_strided((3, 4), (4, 1)),
        "empty_permuted": lambda: torch.empty_permuted((3, 4), (0, 1)),
        "new_empty_strided": lambda: x.new_empty_strided((3, 4), (4, 1)),
        "full": lambda: torch.full((3, 4), 7.0),
        "full_like": lambda: torch.full_like(x, 7.0),
        "new_full": lambda: x.new_full((3, 4), 7.0),
    }

    def make() -> torch.Tensor:
        if operator in arguments:
            return arguments[operator]()
        made: torch.Tensor = (
            getattr(x, operator)((3, 4))
            if operator.startswith("new_")
            else getattr(torch, operator)(x if operator.endswith("_like") else (3, 4))
        )
        return made

    outputs = GuardedOutputs()
    with outputs.guard_allocations():
        made = make()
    assert made.untyped_storage().nbytes() > 2 * 65536
    assert outputs.list_problems() == ()
    if operator in FILLED:
        assert torch.equal(made, make())
    view_memory(made.data_ptr() - 4, 1, made).fill_(3.0)
    assert "0 before a tensor (3, 4) torch.float32" in outputs.list_problems()[0]

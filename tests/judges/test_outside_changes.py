"""Changes of a test that make it easier, seen against what was stored of it; each with an honest change beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_attnperf.baselines.writing import find_worst_check
from pytest_attnperf.gate.comparable import has_lost_planted_keys, list_coarser_outputs, list_truth_changes
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def checked(fn: Callable[..., Any], inputs: Callable[..., Any], reference: Callable[..., Any]) -> CheckReport:
    """What is said of a function."""
    subject = TorchSubject(CallableBackend("mine", fn), AdHoc("x", inputs, reference), CPU, Seeds(0, 1, 2))
    subject.prepare()
    return subject.check()


def rows(seed: int) -> torch.Tensor:
    """(256, 256): one draw of the reference makes a budget."""
    return torch.randn(256, 256)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """As torch has it."""
    return x.softmax(-1)


def test_a_reference_that_was_made_to_round_is_found() -> None:
    """Rounded to bf16, the plain computation is off by 3,000 times what is stored; written otherwise, it is not."""
    stored = checked(softmax, rows, softmax).coarseness
    rounds = checked(softmax, rows, lambda x: x.softmax(-1).bfloat16().float())
    assert rounds.right
    (text,) = list_coarser_outputs((rounds,), stored)
    assert text.startswith("out, off by ")
    rewritten = checked(softmax, rows, lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
    assert list_coarser_outputs((rewritten,), stored) == []


def twice_softmax(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Of both axes, and of `scale` times what is asked for."""
    return x.softmax(-1) * x.softmax(0) * scale


def test_a_reference_that_was_edited_with_its_kernel_is_found() -> None:
    """Both times 1.02 are right, and not what was stored, whichever tree a time is held against; another way to the
    same results, also in the other order of summation, is."""
    stored = find_worst_check([checked(twice_softmax, rows, twice_softmax)])
    assert stored.truth.keys() == {"out", "inputs(): x"}
    edited = checked(lambda x: twice_softmax(x, 1.02), rows, lambda x: twice_softmax(x, 1.02))
    assert edited.right
    (reason,) = list_truth_changes(edited.truth, stored.truth)
    assert reason.startswith("the reference gives another 'out' than when the baseline was recorded, for the same seed")
    assert "here" in reason
    assert reason.endswith("record it again")
    swapped = checked(lambda x: twice_softmax(x).roll(1, 0), rows, lambda x: twice_softmax(x).roll(1, 0))
    assert list_truth_changes(swapped.truth, stored.truth)  # of the same size
    for honest in (lambda x: x.exp().flip(-1) / x.exp().flip(-1).sum(-1, keepdim=True), lambda x: x.log_softmax(-1)):
        rewritten = checked(twice_softmax, rows, lambda x, honest=honest: _as(honest, x) * x.softmax(0))
        assert rewritten.right
        assert list_truth_changes(rewritten.truth, stored.truth) == []
    assert list_truth_changes(edited.truth, {}) == []


def _as(way: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """A softmax over columns from what came back to front, or as a logarithm."""
    found = way(x)
    return found.exp() if bool((found < 0).any()) else found.flip(-1)


def test_inputs_that_were_changed_are_found_and_named_before_the_reference() -> None:
    """Other lengths make less work, and no shape says so. What each process draws anew is held against nobody."""

    def with_lengths(most: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
        return lambda seed: (torch.randn(1024, 64), torch.randint(1, most, (1024,)))

    def masked(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x * (torch.arange(64) < lengths[:, None])

    first, again, shorter = (checked(masked, with_lengths(most), masked) for most in (64, 64, 16))
    assert first.truth == again.truth
    assert [reason.partition(" than")[0] for reason in list_truth_changes(shorter.truth, first.truth)] == [
        "inputs() makes another 'lengths'"
    ]
    assert find_worst_check([first, shorter]).truth.keys() == {"inputs(): x"}


def planted_rows(seed: int, planted: bool) -> torch.Tensor:
    """Rows with one large element where they are to show it."""
    x = torch.randn(256, 256)
    x[:, -1] += 8.0 * planted
    return x


def unplanted_rows(seed: int, planted: bool) -> torch.Tensor:
    """Takes no notice of `planted`."""
    return torch.randn(256, 256)


def test_inputs_that_plant_nothing_are_not_called_planted() -> None:
    """The check says that inputs() is the same, and it is found where the baseline's was planted; an input that is
    planted is called so, and so is one that we plant."""
    stored = find_worst_check([checked(softmax, planted_rows, softmax)])
    assert stored.planted
    lazy = checked(softmax, unplanted_rows, softmax)
    assert lazy.right
    names = {figures.check for figures in lazy.figures}
    assert names == {"timed inputs", "other inputs (not planted: inputs() gives the same for planted=True)"}
    assert has_lost_planted_keys([lazy], stored)
    assert not has_lost_planted_keys([lazy], find_worst_check([lazy]))  # stored so, or before it was known
    for honest in (planted_rows, rows):
        report = checked(softmax, honest, softmax)
        assert {figures.check for figures in report.figures} == {"timed inputs", "planted inputs"}
        assert not has_lost_planted_keys([report], stored)


def pairs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices in fp32."""
    return torch.randn(256, 64), torch.randn(64, 256)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In fp32, unless autocast is on."""
    return (a @ b).float()


def test_autocast_left_on_loosens_no_reference() -> None:
    """A product that autocast rounds is wrong although its reference is the same code, and the text says why; one that
    turns it off is right, and so is one whose reference enters it as well."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wrong = checked(product, pairs, lambda a, b: (a @ b).float())
        assert "'out' is off by" in wrong.problems[0]
        assert wrong.problems[-1].startswith("autocast is on for cpu around the call, but the reference")
        off = torch.autocast("cpu", enabled=False)
        assert checked(off(product), pairs, lambda a, b: a @ b).problems == ()
        on = torch.autocast("cpu", dtype=torch.bfloat16)
        assert checked(lambda a, b: a @ b, pairs, on(lambda a, b: a @ b)).problems == ()

"""Calls that change what their reference reads beside its inputs, and kernels that keep things there and are honest."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import outside_tensors
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
BF16 = torch.bfloat16
F8 = torch.float8_e4m3fn

SAID = "the call changed a tensor that is no input: "


def subject_of(fn: Callable[..., Any], reference: Callable[..., Any]) -> TorchSubject:
    """A function of one (512, 128) tensor, prepared."""
    subject = TorchSubject(
        CallableBackend("mine", fn), AdHoc("x", lambda: torch.randn(512, 128).to(BF16), reference), CPU, Seeds(0, 1, 2)
    )
    subject.prepare()
    return subject


def checked(fn: Callable[..., Any], reference: Callable[..., Any]) -> CheckReport:
    """What is said of it."""
    return subject_of(fn, reference).check()


def weights(*shape: int) -> torch.Tensor:
    """In bf16, not too large."""
    return (torch.randn(shape or (128, 128)) / 16).to(BF16)


def times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """In fp32, rounded once: what a function reads beside its inputs is not widened for it."""
    return (x.float() @ w.float()).to(x.dtype)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """To fp8."""
    return tensor.detach().to(F8).to(tensor.dtype)


W = weights()


def of_global(x: torch.Tensor) -> torch.Tensor:
    """Reads W."""
    return times(x, W)


def by_helper(x: torch.Tensor) -> torch.Tensor:
    """By way of another function."""
    return of_global(x)


class Layer(torch.nn.Module):
    """With a weight, a table that is no buffer, and a workspace."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(128, 128).to(BF16)
        self.table = weights(128)
        self.register_buffer("space", torch.zeros(512, 128, dtype=BF16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both."""
        return (x.float() @ self.linear.weight.float() + self.linear.bias.float() + self.table.float()).to(x.dtype)

    def through_space(self, x: torch.Tensor) -> torch.Tensor:
        """The same, by way of the workspace."""
        self.space: torch.Tensor
        self.space.copy_(self.forward(x).detach())
        return self.space.clone()


def ways() -> dict[str, tuple[torch.Tensor, Callable[..., Any]]]:
    """Tensors, each with a reference that reads it, in every way in which it may."""
    w, layer, held = weights(), Layer(), SimpleNamespace(w=weights())
    listed, default = {"experts": [weights(), weights()]}, weights()

    def keyword(x: torch.Tensor, *, w: torch.Tensor = default) -> torch.Tensor:
        return times(x, w)

    return {
        "w": (w, lambda x: times(x, w)),
        "W": (W, of_global),
        "W by a function": (W, by_helper),
        "weight": (layer.linear.weight, lambda x: layer(x)),
        "module itself": (layer.linear.bias, layer),
        "table": (layer.table, layer.forward),
        "experts": (listed["experts"][1], lambda x: times(x, listed["experts"][0]) + times(x, listed["experts"][1])),
        "default": (default, keyword),
        "partial": (w, functools.partial(times, w=w)),
        "namespace": (held.w, lambda x: times(x, held.w)),
    }


@pytest.mark.parametrize("name", ways())
def test_a_weight_that_is_rounded_in_place_is_named(name: str) -> None:
    """On its first call, so that the reference computes from the rounded one, too; untouched, nothing is said."""
    tensor, reference = ways()[name]
    before = tensor.detach().clone()
    assert checked(reference, reference).problems == ()
    rounds = Once(lambda: tensor.detach().copy_(rounded(tensor)))
    report = checked(lambda x: rounds() or reference(x), reference)
    tensor.detach().copy_(before)
    assert [problem.startswith(SAID) for problem in report.problems] == [True], report.problems


class Once:
    """Does something when it is called for the first time."""

    def __init__(self, work: Callable[[], Any], first: int = 0) -> None:
        self._work, self._left = work, first

    def __call__(self) -> None:
        """Count down, and do it."""
        self._left -= 1
        if self._left == -1:
            self._work()


def test_one_that_is_replaced_is_named_too() -> None:
    """The name then holds another tensor: narrower, of other values, or of other order."""
    for change in (rounded, lambda w: w.roll(3, 0), lambda w: w.to(torch.float16)):
        held = SimpleNamespace(w=weights())
        replaces = Once(lambda held=held, change=change: setattr(held, "w", change(held.w)))
        report = checked(
            lambda x, held=held, replaces=replaces: replaces() or times(x, held.w),
            lambda x, held=held: times(x, held.w),
        )
        assert any(problem.startswith(f"{SAID}'held.w'") for problem in report.problems), report.problems


def test_a_change_after_the_check_is_found_at_the_end() -> None:
    """As soon as it is timed."""
    w = weights()
    subject = subject_of(lambda x: times(x, w), lambda x: times(x, w))
    assert subject.check().right
    w.copy_(rounded(w))
    (problem,) = subject.finish().check.problems
    assert problem.startswith(f"{SAID}'w', (128, 128) bfloat16")


def test_what_a_kernel_keeps_is_its_own() -> None:
    """Caches, counters, packed weights and workspaces, also where the reference could reach them, or writes there."""
    w, layer = weights(), Layer()
    own = {"count": torch.zeros(1), "packed": torch.empty(128, 128, dtype=BF16)}

    def packs(x: torch.Tensor) -> torch.Tensor:
        own["count"] += 1
        own["packed"].copy_(w.t())
        return times(x, own["packed"].t())

    statistics = torch.zeros(128)

    def counts(x: torch.Tensor) -> torch.Tensor:
        statistics.mul_(0.9).add_(x.detach().float().mean(0), alpha=0.1)
        return times(x, w)

    assert checked(packs, lambda x: times(x, w)).problems == ()
    assert checked(packs, lambda x: times(x, w) if own else x).problems == ()  # reached, and not read
    assert checked(layer.through_space, layer.forward).problems == ()
    assert checked(layer.through_space, lambda x: layer(x + 0 * layer.space.fill_(1.0))).problems == ()
    assert checked(counts, counts).problems == ()


def test_more_than_a_bound_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what fits, in the order in which it is found, everything is."""
    w, small = weights(), weights(128)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return times(x, w) + small.float().to(x.dtype)

    def run(tensor: torch.Tensor) -> CheckReport:
        rounds = Once(lambda: tensor.copy_(rounded(tensor)))
        return checked(lambda x: rounds() or reference(x), reference)

    monkeypatch.setattr(outside_tensors, "BYTES_MOST", 1000)
    assert run(w).right
    assert not run(small).right

"""Kernels as training code has them, gated in another project: one run of pytest answers for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.testing.project import full_results

SUITE = '''
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F


class Halves(torch.autograd.Function):
    """Returns views of one tensor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        both = torch.tanh(x)
        return both[:32], both[32:]

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        return torch.cat([first, second]) * (1 - torch.tanh(x) ** 2)


class Swiglu(torch.autograd.Function):
    """Backward writes over what forward was given."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, dout):
        a, b = ctx.saved_tensors
        gate = torch.sigmoid(a)
        da, db = dout * b * gate * (1 + a * (1 - gate)), dout * a * gate
        return a.copy_(da), b.copy_(db)


class LosesLastRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dout):
        x, w = ctx.saved_tensors
        return dout * w, (dout * x)[:-1].sum(0)


@dataclass
class Result:
    out: torch.Tensor
    lse: torch.Tensor
    scale: float = 2.0
    aux: torch.Tensor | None = None


def rows(seed):
    return torch.randn(64, 1024)


def pair(seed):
    return torch.randn(64, 1024), torch.randn(64, 1024)


def halves_in_plain(x):
    return torch.tanh(x[:32]), torch.tanh(x[32:])


@pytest.mark.parametrize("times", ["forward", "backward", "both"])
def test_halves(attnperf, times):
    attnperf.gate("mine", Halves.apply, reference=halves_in_plain, inputs=rows, backward=True, times=times)


def test_halves_of_a_leaf(attnperf):
    """Without being asked for gradients: the function makes its own leaf, and returns views with a graph and a hook."""
    def kernel(x):
        first, second = Halves.apply(x.detach().requires_grad_())
        first.register_hook(lambda gradient: gradient * 2)
        return first, second
    attnperf.gate("mine", kernel, reference=halves_in_plain, inputs=rows)


def test_swiglu(attnperf):
    attnperf.gate("mine", Swiglu.apply, reference=lambda a, b: F.silu(a) * b, inputs=pair, backward=True,
                  times="backward", in_place=("a", "b"))


def test_swiglu_undeclared(attnperf):
    attnperf.gate("mine", Swiglu.apply, reference=lambda a, b: F.silu(a) * b, inputs=pair, backward=True)


def test_lost_row(attnperf):
    attnperf.gate("mine", LosesLastRow.apply, reference=lambda x, w: x * w,
                  inputs=lambda: (torch.randn(1000, 64).bfloat16(), torch.randn(64).bfloat16()), backward=True)


def test_add_in_place(attnperf):
    def kernel(x, residual):
        residual.add_(x)
        x.copy_(torch.tanh(residual))
    attnperf.gate("mine", kernel, reference=lambda x, residual: (torch.tanh(x + residual), x + residual), inputs=pair,
                  in_place=("x", "residual"))


def test_loss(attnperf):
    """An fp32 loss of bf16 logits, by a reference that upcasts."""
    attnperf.gate("mine", lambda x, y: -F.log_softmax(x.float(), -1).gather(1, y[:, None]).mean(),
                  reference=lambda x, y: F.cross_entropy(x.float(), y),
                  inputs=lambda: (torch.randn(64, 1024).bfloat16(), torch.randint(0, 1024, (64,))), backward=True)


def test_dataclass(attnperf):
    attnperf.gate("mine", lambda x: Result(torch.tanh(x), x.logsumexp(-1)),
                  reference=lambda x: {"out": torch.tanh(x), "lse": x.logsumexp(-1), "scale": 2.0}, inputs=rows)


def shared_helper(x):
    return torch.tanh(x) * 2


def test_shares_code(attnperf):
    attnperf.gate("mine", lambda x: shared_helper(x) + 0, reference=shared_helper, inputs=rows)


def test_scalar(attnperf):
    attnperf.gate("mine", lambda x: x.square().sum().item(), reference=lambda x: x.square().sum(), inputs=rows,
                  host_sync=True)
'''

WRONG = {
    "swiglu_undeclared": "where that is meant, gate it with in_place=('a',)",
    "lost_row": "'grad_w' is off by",
}
TIMERS = {
    "halves[backward]": "host_fresh",
    "halves[both]": "host",
    "swiglu": "host_fresh",
    "add_in_place": "host_fresh",
}
SHARING = "shares_code"


_CASES: dict[str, Any] = {}
"""What `cases` gives, of the run that the first of these tests made."""


@pytest.fixture
def cases(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_cases: object
) -> dict[str, Any]:
    """Cases of `pytest --attnperf` by the name of their test: all, or those that the other tests ask for."""
    if _CASES:
        return _CASES
    pytester.makepyfile(test_mine=SUITE)
    pytester.makeini("[pytest]\n")
    for name in ("CI", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    selected = {item.name for item in request.session.items if item.path == request.path}
    every = test_everything_honest_is_right_and_timed.__name__ in selected
    asked = [] if every else [f"test_mine.py::test_{name}" for name in (*WRONG, *TIMERS, SHARING)]
    result = pytester.runpytest_subprocess("--attnperf", "--attnperf-effort=blocks=7", "--no-attnperf-strict", *asked)
    assert result.ret == 1
    results = full_results(pytester.path / ".attnperf" / "results.json")
    _CASES.update({case["nodeid"].partition("::test_")[2]: case for case in results["cases"]})
    return _CASES


def test_everything_honest_is_right_and_timed(cases: dict[str, Any]) -> None:
    """Views behind autograd, hooks, dataclasses, losses in fp32, numbers: each has a time, or says what it lacks."""
    verdicts = {name: (case["verdict"], case["summary"][:200]) for name, case in cases.items() if name not in WRONG}
    assert {verdict for verdict, _ in verdicts.values()} == {"NO_BASELINE"}, verdicts


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str, cases: dict[str, Any]) -> None:
    """A gradient without its last row, and inputs that are overwritten without a word, with what to do."""
    case = cases[name]
    assert case["verdict"] == "INCORRECT"
    assert any(WRONG[name] in problem for check in case["checks"] for problem in check["problems"]), case["checks"]


@pytest.mark.parametrize("name", TIMERS)
def test_calls_that_need_inputs_of_their_own_are_timed_so(name: str, cases: dict[str, Any]) -> None:
    """Backward passes and calls that overwrite their inputs; forward and backward together need none."""
    assert cases[name]["fingerprint"]["must_match"]["timer"] == TIMERS[name]


def test_shared_code_is_a_note(cases: dict[str, Any]) -> None:
    """A reference that calls what the kernel calls is named, and fails nothing."""
    noted = {
        name for name, case in cases.items() if any("runs code that the kernel runs" in note for note in case["notes"])
    }
    assert noted == {SHARING}

"""Whatever a kernel or a reference does, its own test fails with a message, and the rest of the run goes on."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMON = """
import sys, time
import torch

def make_inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(256, 256, generator=generator), torch.randn(256, 256, generator=generator)

def plain(a, b):
    return torch.relu(a @ b)

def honest(a, b):
    return (a @ b).clamp_(min=0)

def into_b(a, b):
    b.copy_(honest(a, b))

def chatty(a, b):
    print("x" * 10_000)
    print("y" * 10_000, file=sys.stderr)
    return honest(a, b)

def strided(a, b):
    return honest(a, b).t().contiguous().t()

def by_numpy(a, b):
    return torch.from_numpy(plain(a, b).detach().numpy().astype("float32"))

class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dout):
        raise NotImplementedError("no dW yet")

CALLS = []

def now_and_then(a, b):
    CALLS.append(1)
    out = honest(a, b)
    if len(CALLS) % 20 == 0:
        out[-1] = 0
    return out

def raising(a, b):
    raise RuntimeError("unsupported head dim 96 in kernel fmha_fwd")

def hanging(a, b):
    time.sleep(3600)

def exiting(a, b):
    sys.exit("leaving")

def transposed_inputs(seed):
    a, b = make_inputs(seed)
    return a.t(), b[:1].expand(256, 256)

def empty_inputs(seed):
    return torch.empty(0, 256), torch.randn(256, 256)

def gate(attnperf, fn=honest, reference=plain, inputs=make_inputs, **more):
    attnperf.gate("mine", fn, reference=reference, inputs=inputs, **more)
"""


@dataclass(frozen=True)
class Bad:
    """A call of `gate`, the verdict it must end in, and what the failure's text must say."""

    arguments: str
    verdict: str
    says: str = ""


CASES = {
    "honest_first": Bad("", "RIGHT"),
    "reference_nan": Bad("reference=lambda a, b: plain(a, b) / 0 * 0", "ERROR", r"holds .*NaN"),
    "reference_inf": Bad("reference=lambda a, b: plain(a, b) / 0", "ERROR", r"reference of 'out' holds"),
    "reference_constant": Bad("reference=lambda a, b: torch.zeros_like(plain(a, b))", "ERROR", "is constant"),
    "reference_narrow": Bad("reference=lambda a, b: plain(a, b).half()", "INCORRECT", "expected torch.float16"),
    "reference_by_numpy": Bad("reference=by_numpy", "ERROR", "not with numpy"),
    "returns_input": Bad("fn=lambda a, b: a", "INCORRECT", "lies in the memory of an input"),
    "returns_view": Bad("fn=lambda a, b: a.t()", "INCORRECT", "lies in the memory of an input"),
    "generator": Bad("fn=lambda a, b: (x for x in (a, b))", "INCORRECT", "returned a generator, which holds no plain"),
    "overwrites": Bad("fn=lambda a, b: honest(a, b.mul_(1.5))", "INCORRECT", r"gate it with in_place=\('b',\)"),
    "no_such_input": Bad("in_place=('x',)", "ERROR", "in_place of .* names 'x'; the inputs are a, b"),
    "no_such_pass": Bad("backward=True, times='backwards'", "ERROR", "must be one of 'both', 'forward', 'backward'"),
    "cold_in_place": Bad("in_place='a', cache_state='cold'", "ERROR", "use cache_state='hot'"),
    "no_gradient": Bad("backward=True, fn=lambda a, b: honest(a, b).detach()", "ERROR", "depends on the inputs"),
    "fails_backward": Bad("backward=True, fn=lambda a, b: FailsBackward.apply(honest(a, b))", "ERROR", "no dW yet"),
    "no_gradient_of_b": Bad("backward=True, fn=lambda a, b: honest(a, b.detach())", "INCORRECT", "'grad_b' is missing"),
    "in_place_honest": Bad("fn=into_b, in_place=('b',)", "RIGHT"),
    "reference_hangs": Bad("reference=hanging", "ERROR", "hang: .*the reference of adhoc-test_reference_hangs"),
    "reference_raises": Bad("reference=lambda a, b: a @ b[:3]", "ERROR", "cannot be multiplied"),
    "reference_of_another_name": Bad("reference=lambda a, b: {'lse': plain(a, b)}", "INCORRECT", "'lse' is missing"),
    "no_inputs": Bad("inputs=lambda seed: 'three'", "ERROR", "must be a tensor or a tuple of tensors"),
    "seed_unused": Bad("inputs=lambda seed: make_inputs(3)", "ERROR", "gives the same for the seeds"),
    "wrong_now_and_then": Bad("fn=now_and_then", "INCORRECT", r"\d+ of \d+ calls on the same inputs are wrong"),
    "zero_size": Bad("inputs=empty_inputs", "ERROR", "has no elements"),
    "strided_inputs": Bad("inputs=transposed_inputs", "RIGHT"),
    "strided_output": Bad("fn=strided", "RIGHT"),
    "wrong_shape": Bad("fn=lambda a, b: honest(a, b)[:, :3]", "INCORRECT", r"shape \(256, 3\), expected \(256, 256\)"),
    "wrong_dtype": Bad("fn=lambda a, b: honest(a, b).double()", "INCORRECT", "has dtype torch.float64, expected"),
    "wrong_device": Bad("fn=lambda a, b: honest(a, b).to('meta')", "INCORRECT", "has device meta, expected cpu"),
    "no_output": Bad("fn=lambda a, b: None", "INCORRECT", "returned None, which holds no plain torch.Tensor"),
    "sparse_output": Bad("fn=lambda a, b: honest(a, b).to_sparse()", "INCORRECT", "sparse"),
    "raising": Bad("fn=raising", "ERROR", "unsupported head dim 96 in kernel fmha_fwd"),
    "exiting": Bad("fn=exiting", "ERROR", "leaving|ended|exit"),
    "hanging": Bad("fn=hanging", "ERROR", "no answer|limit|took longer|within"),
    "chatty": Bad("fn=chatty", "RIGHT"),
    "honest_last": Bad("", "RIGHT"),
}  # fmt: skip


_SAID: dict[str, tuple[str, str]] = {}
"""What `said` gives, of the runs that the first of these tests made."""


@pytest.fixture
def said(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_cases: object
) -> dict[str, tuple[str, str]]:
    """(verdict, failure text) of each case whose test is selected, from one `pytest` of all that end and one of those
    that do not, under a limit that honest cases need not keep on a busy machine."""
    if _SAID:
        return _SAID
    here = (item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function))
    chosen = {name: CASES[name] for name in {item.callspec.params["name"] for item in here}}
    tests = (f"def test_{name}(attnperf):\n    gate(attnperf, {bad.arguments})\n" for name, bad in chosen.items())
    pytester.makepyfile(test_bad=COMMON + "\n" + "\n".join(tests))
    pytester.makeini("[pytest]\n")
    for name in ("CI", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    for words, hang in ((["-k", "hang", "--attnperf-case-limit=2"], True), (["-k", "not hang"], False)):
        ran = [bad for name, bad in chosen.items() if ("hang" in name) == hang]
        result = pytester.runpytest_subprocess("-p", "no:randomly", "--junitxml=report.xml", *words, "test_bad.py")
        assert result.ret == (any(bad.verdict != "RIGHT" for bad in ran) if ran else pytest.ExitCode.NO_TESTS_COLLECTED)
        _SAID.update(_read(pytester.path / "report.xml"))
    return _SAID


def _read(report: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """The name of each case, and its verdict and failure text."""
    for case in ET.parse(report).iter("testcase"):
        properties = {item.get("name"): item.get("value", "") for item in case.iter("property")}
        failure = case.find("failure")
        text = "" if failure is None else f"{failure.get('message', '')}\n{failure.text or ''}"
        yield case.get("name", "").removeprefix("test_"), (properties.get("attnperf.verdict", ""), text)


@pytest.mark.parametrize("name", CASES)
def test_every_case_ends_in_a_verdict_with_a_message(name: str, said: dict[str, tuple[str, str]]) -> None:
    """A verdict each, and a text that names what was wrong."""
    bad, (verdict, text) = CASES[name], said[name]
    assert verdict == bad.verdict, text
    assert re.search(bad.says, text), text

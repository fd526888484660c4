from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import BadReferenceError, References
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.records import CheckReport, Tolerance
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.prefill import Prefill

Judged = Callable[..., list[CheckReport]]
Kernel = Callable[..., tuple[torch.Tensor, torch.Tensor]]
MakeJudge = Callable[..., tuple[Judge, Prepared]]

WORKLOAD = Prefill.parse_line("b=1,s=20,h=2,d=16,causal,f16")
WITH_LSE = Prefill.parse_line("b=1,s=20,h=2,d=16,causal,lse,f16")


class Subclass(torch.Tensor):
    """A tensor that could do its work when it is read."""


def first_problems(judged: Judged, workload: Prefill, call: Callable[..., Any], **changed: Any) -> tuple[str, ...]:
    """What the first check finds."""
    return judged(workload, call, **changed)[0].problems


def test_a_right_call_has_figures_and_no_problem(judged: Judged, honest: Kernel) -> None:
    """A right report names every output it compared, under the check's name, with the tolerance used."""
    for report in judged(WITH_LSE, lambda q, k, v: honest(q, k, v, causal=True)):
        assert report.right
        assert [figure.output for figure in report.figures] == ["out", "lse"]
        assert report.tolerance == Tolerance()
        assert report.seconds > 0


def test_a_missing_output_is_named(judged: Judged, honest: Kernel) -> None:
    """An output the workload asks for must be there; the message says what was."""
    found = first_problems(judged, WITH_LSE, lambda q, k, v: honest(q, k, v, causal=True)[0])
    assert found == ("timed inputs: output 'lse' is missing; the backend gave out; return the reference's outputs",)
    untold, missing = first_problems(judged, WORKLOAD, lambda q, k, v: None, outputs=lambda raw: {})
    assert untold.startswith("timed inputs: the call returned None, which holds no plain torch.Tensor: return the")
    assert missing == "timed inputs: output 'out' is missing; the backend gave nothing; return the reference's outputs"


def test_outputs_without_names_are_no_verdict(judged: Judged, honest: Kernel) -> None:
    """A tuple in place of outputs by name is said, and what to return."""
    with pytest.raises(CaseFailedError, match=r"gave tuple; return e\.g\. \{'out': tensor\}"):
        judged(WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True), outputs=lambda raw: raw)


def test_an_output_nobody_asked_for_is_ignored(judged: Judged, honest: Kernel) -> None:
    """A backend may always return its log-sum-exp."""
    assert first_problems(judged, WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True)) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda out: out.as_subclass(Subclass),
            "test_judge.Subclass, not a plain torch.Tensor: it may compute when it is read",
        ),
        (lambda out: out.tolist(), "output 'out' is a list, not a plain torch.Tensor: it may compute when it is read"),
        (lambda out: out.float(), "output 'out' has dtype torch.float32, expected torch.float16"),
        (lambda out: out.permute(0, 2, 1, 3), "output 'out' has shape (1, 2, 20, 16), expected (1, 20, 2, 16)"),
        (lambda out: out[:, :0], "output 'out' has shape (1, 0, 2, 16), expected (1, 20, 2, 16)"),
    ],
)
def test_anything_but_a_tensor_of_the_right_kind_is_a_problem(
    change: Callable[[torch.Tensor], Any], message: str, judged: Judged, honest: Kernel
) -> None:
    """A result of another type, dtype or shape is said to be one; the check does not crash."""
    *_, problem = first_problems(judged, WORKLOAD, lambda q, k, v: change(honest(q, k, v, causal=True)[0]))
    assert problem.startswith("timed inputs: ")
    assert message in problem


def test_a_result_may_be_a_parameter(judged: Judged, honest: Kernel) -> None:
    """A parameter is a plain tensor that is to be trained: it computes nothing when it is read."""
    reports = judged(WORKLOAD, lambda q, k, v: torch.nn.Parameter(honest(q, k, v, causal=True)[0]))
    assert [report.problems for report in reports] == [(), (), ()]


def test_a_result_may_be_strided(judged: Judged, honest: Kernel) -> None:
    """A backend in another layout returns a permuted view, which is compared as it is."""
    layout = {
        "convert": lambda tensors: tuple(tensor.permute(0, 2, 1, 3).contiguous() for tensor in tensors),
        "tensors": tuple(torch.empty(1, 2, 20, 16, dtype=torch.float16) for _ in range(3)),
        "outputs": lambda raw: {"out": raw.permute(0, 2, 1, 3)},
    }

    def heads_first(*qkv: torch.Tensor) -> torch.Tensor:
        return honest(*(x.permute(0, 2, 1, 3) for x in qkv), causal=True)[0].permute(0, 2, 1, 3).contiguous()

    assert [report.problems for report in judged(WORKLOAD, heads_first, **layout)] == [(), (), ()]


def test_the_judges_own_memory_is_no_result(make_judge: MakeJudge, references: References) -> None:
    """A backend that finds the reference in memory and returns it is told so, and what it found is noise."""
    workload = Prefill(1, 20, 2, 16, dtype="f32")

    def thief(*qkv: torch.Tensor) -> torch.Tensor:
        inputs = workload.make_inputs(1, "cpu", planted=False)
        return references.compute_expected(workload, inputs, seed=1, planted=False).sealed["out"]

    judge, prepared = make_judge(workload, thief)
    for _ in range(2):
        problems = judge.check_call("check", prepared.run, seed=1, planted=False).problems
        assert (
            "check: output 'out' is the judge's own memory, not a result; return memory that the call has written"
            in problems
        )
    inputs = workload.make_inputs(1, "cpu", planted=False)
    assert not torch.allclose(prepared.run(), workload.reference(inputs)["out"], rtol=0.5)
    kept = references.compute_expected(workload, inputs, seed=1, planted=False).reference["out"]
    torch.testing.assert_close(kept, workload.reference(inputs)["out"], rtol=0, atol=0)


def test_the_same_function_judges_a_replay(make_judge: MakeJudge, honest: Kernel) -> None:
    """`run` may be anything that computes from the backend's tensors: what it returned before is filled with NaN."""
    judge, prepared = make_judge(WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True)[0])
    static = prepared.run()
    judge.watch(static)

    def replay() -> torch.Tensor:
        assert bool(static.isnan().all())
        return static.copy_(prepared.run())

    assert judge.check_call("replay", replay, seed=1, planted=True).right

    def replay_nothing() -> torch.Tensor:
        return static

    report = judge.check_call("replay", replay_nothing, seed=1, planted=True)
    assert report.problems[0].startswith("replay: 'out' holds 640 NaN among 640 elements")


def test_the_inputs_of_the_seed_are_what_the_backend_sees(make_judge: MakeJudge) -> None:
    """Inputs are put into the same memory in place, planted or not as asked, and stay there."""
    seen: list[tuple[torch.Tensor, ...]] = []
    judge, prepared = make_judge(WORKLOAD, lambda *qkv: seen.append(tuple(x.clone() for x in qkv)) or qkv[0].clone())
    addresses = [tensor.data_ptr() for tensor in prepared.tensors]
    judge.check_call("check", prepared.run, seed=5, planted=True)
    expected = WORKLOAD.make_inputs(5, "cpu", planted=True)
    for given, kept, want in zip(seen[0], prepared.tensors, expected, strict=True):
        assert torch.equal(given, want)
        assert torch.equal(kept, want)
    assert [tensor.data_ptr() for tensor in prepared.tensors] == addresses


def test_what_a_backend_raises_is_passed_on(make_judge: MakeJudge) -> None:
    """The judge turns no error into a wrong result: who measures says ERROR."""

    def broken(*qkv: torch.Tensor) -> torch.Tensor:
        raise MemoryError("no more")

    judge, prepared = make_judge(WORKLOAD, broken)
    with pytest.raises(MemoryError, match="no more"):
        judge.check_call("check", prepared.run, seed=1, planted=False)


@pytest.mark.parametrize("wrong_call", [2, 3, 9])
def test_one_wrong_call_of_many_is_found(
    make_judge: MakeJudge, honest: Kernel, wrong_call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the repeated calls it is, the first one too; without one, nothing is said."""
    ticks = itertools.count()
    clock = SimpleNamespace(
        sleep=lambda seconds: None, perf_counter=lambda: next(ticks) * 1e-4
    )  # a busy machine's own would end the calls early
    monkeypatch.setattr("pytest_attnperf.correctness.repeated_calls.time", clock)
    calls = 0

    def racing(*qkv: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out, _ = honest(*qkv, causal=True)
        return out + (1.0 if calls == wrong_call else 0.0)

    judge, prepared = make_judge(WORKLOAD, racing)
    first = judge.check_call("check", prepared.run, seed=1, planted=False)
    assert first.right
    found = judge.check_again("again", prepared.run, first).problems
    assert found[0].startswith("again: 1 of "), found
    assert f"call {wrong_call - 1} on the same inputs" in found[1]
    second = judge.check_call("check", prepared.run, seed=2, planted=False)
    assert judge.check_again("again", prepared.run, second).right


@pytest.mark.parametrize(("wrong_calls", "said"), [(range(1, 2), r"check: 1 of \d+ calls"), (range(10**9), "")])
def test_a_wrong_call_says_whether_all_are(
    make_judge: MakeJudge, honest: Kernel, wrong_calls: range, said: str
) -> None:
    """A race that hits the check itself is called one; a kernel that is always wrong is not."""
    calls = 0

    def wrong(*qkv: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out, _ = honest(*qkv, causal=True)
        return out + (1.0 if calls in wrong_calls else 0.0)

    judge, prepared = make_judge(WORKLOAD, wrong)
    first = judge.check_call("check", prepared.run, seed=1, planted=False)
    assert not first.right
    added = judge.check_again("check", prepared.run, first).problems[len(first.problems) :]
    assert bool(added) == bool(said)
    assert all(re.match(said, text) for text in added)


def test_a_useless_reference_is_no_verdict(make_judge: MakeJudge) -> None:
    """A check that cannot fail is refused instead of passed."""
    workload = AdHoc("zeros", lambda: torch.rand(300, 100), torch.zeros_like)
    judge, prepared = make_judge(workload, torch.zeros_like)
    with pytest.raises(BadReferenceError, match="is constant"):
        judge.check_call("check", prepared.run, seed=1, planted=False)


def test_inputs_are_gone_when_the_result_is_read(make_judge: MakeJudge, honest: Kernel) -> None:
    """What `outputs` could still compute from is NaN by then; afterwards the inputs of the seed are back."""
    seen: list[bool] = []

    def reading(raw: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.append(all(math.isnan(float(tensor[0, 0, 0, 0])) for tensor in prepared.tensors))
        return {"out": raw}

    judge, prepared = make_judge(WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True)[0], outputs=reading)
    assert judge.check_call("check", prepared.run, seed=5, planted=False).right
    assert seen
    assert all(seen)
    expected = WORKLOAD.make_inputs(5, "cpu", planted=False)
    assert all(torch.equal(own, given) for own, given in zip(prepared.tensors, expected, strict=True))


def test_work_done_while_reading_is_named(make_judge: MakeJudge, honest: Kernel) -> None:
    """Copies of the inputs survive their destruction, but the work on them is seen."""

    def late(raw: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"out": honest(*raw, causal=True)[0]}

    judge, prepared = make_judge(WORKLOAD, lambda *qkv: tuple(x.clone() for x in qkv), outputs=late)
    report = judge.check_call("check", prepared.run, seed=5, planted=False)
    assert report.problems[0].startswith("check: work is done while the result is read: aten::")


def test_old_results_may_be_left_where_they_are(make_judge: MakeJudge, honest: Kernel) -> None:
    """Unpoisoned, a kernel that works only over NaN returns what it computed from other inputs."""
    buffer = torch.full((1, 20, 2, 16), float("nan"), dtype=torch.float16)

    def only_over_nan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if bool(buffer.isnan().any()):
            buffer.copy_(honest(q, k, v, causal=True)[0])
        return buffer

    judge, prepared = make_judge(WORKLOAD, only_over_nan)
    assert judge.check_call("poisoned", prepared.run, seed=5, planted=False).right
    assert judge.check_call("poisoned", prepared.run, seed=6, planted=False).right
    report = judge.check_call("stale", prepared.run, seed=7, planted=False, poisoned=False)
    assert "stale: 'out' is off by" in report.problems[0]


def test_bits_are_compared_over_repeats(make_judge: MakeJudge, honest: Kernel) -> None:
    """The same inputs give the same bits, or not; a last bit is enough."""
    judge, prepared = make_judge(WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True)[0])
    assert judge.compare_repeats(prepared.run, 4).bit_equal
    calls: list[int] = []

    def wavering() -> torch.Tensor:
        calls.append(1)
        out = prepared.run()
        out.view(torch.int16)[0, 0, 0, 0] ^= len(calls) // 4
        return out

    assert not judge.compare_repeats(wavering, 4).bit_equal
    assert len(calls) == 4


def test_a_check_says_where_its_time_went(make_judge: MakeJudge, honest: Kernel) -> None:
    """The parts are named and add up to the whole but for a little."""
    judge, prepared = make_judge(WORKLOAD, lambda q, k, v: honest(q, k, v, causal=True)[0])
    report = judge.check_call("check", prepared.run, seed=5, planted=False)
    assert set(report.parts) == {"inputs", "reference", "poison", "call", "inputs unchanged", "compare"}
    assert 0.5 * report.seconds < sum(report.parts.values()) <= report.seconds

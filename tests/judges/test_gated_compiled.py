"""Functions that torch.compile has compiled are gated like others; so is one that no memory suffices for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test")


def scaled_gelu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Any function of two inputs."""
    return torch.nn.functional.gelu(x) * w


def without_last_column(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same, but for its last column."""
    out = scaled_gelu(x, w)
    return torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), -1)


def subject(fn: Any, inputs: Any, times: str = "") -> TorchSubject:
    """A prepared case of `scaled_gelu`."""
    workload = AdHoc("scaled_gelu", inputs, scaled_gelu, times=times)
    made = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(1, 2, 3))
    made.prepare()
    return made


def small() -> tuple[torch.Tensor, torch.Tensor]:
    """x (700, 96), w (96,): one draw of the reference makes a budget."""
    return torch.randn(700, 96), torch.randn(96)


@pytest.mark.parametrize("times", ["", "both"])
def test_a_compiled_function_is_right_and_timed(times: str) -> None:
    """Compiling writes no result, and gradients come from the compiled backward pass."""
    case = subject(torch.compile(scaled_gelu, backend="aot_eager"), small, times)
    report = case.check()
    assert report.problems == ()
    assert len(case.measure_blocks(3, 300.0, 1e9).block_us) == 3
    assert case.finish().check.problems == ()


def test_a_compiled_function_that_is_wrong_is_incorrect() -> None:
    """What the compiler made is what is judged."""
    problems = subject(torch.compile(without_last_column, backend="aot_eager"), small).check().problems
    assert any("'out' is off by" in problem for problem in problems)


def test_a_function_that_no_memory_suffices_for_is_one_message() -> None:
    """139 GiB of inputs: what was wanted, and what to do."""
    with pytest.raises(CaseFailedError, match=r"out of memory: mine on adhoc-scaled_gelu: .*[Uu]se a smaller workload"):
        subject(scaled_gelu, lambda: (torch.empty(139 * 2**40), torch.randn(1)))

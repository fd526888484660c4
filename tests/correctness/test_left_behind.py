"""What a backend changes for the whole process is named, put back, and its own fault."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_attnperf.correctness.left_behind import LeftBehind, list_settings, watch_settings
from pytest_attnperf.errors import CaseFailedError, UnsupportedError
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo, NotProvenRightError
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test")


class Passing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Changes no operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As without it."""
        return func(*args, **(kwargs or {}))


class PassingOn(torch.overrides.TorchFunctionMode):
    """Changes no function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As without it."""
        return func(*args, **(kwargs or {}))


def ignore_event(frame: FrameType, event: str, argument: Any) -> None:
    """Does nothing."""


LEAVING: dict[str, tuple[Callable[[], object], str]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.bfloat16), "torch's default dtype"),
    "default device": (lambda: torch.set_default_device("meta"), "torch's default device"),
    "gradients": (lambda: torch.set_grad_enabled(False), "whether torch computes gradients"),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "torch's number of threads"),
    "precision": (lambda: torch.set_float32_matmul_precision("medium"), "torch's precision of fp32 products"),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), "whether torch insists on deterministic"),
    "denormals": (lambda: torch.set_flush_denormal(True), "whether denormals are 0"),
    "tf32": (lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"), "torch.backends.cuda.matmul"),
    "cudnn": (lambda: setattr(torch.backends.cudnn, "deterministic", True), "torch.backends.cudnn.deterministic"),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), "whether autocast is on for cpu"),
    "flash": (lambda: torch.backends.cuda.enable_flash_sdp(False), "whether torch may use its flash attention"),
    "mode": (lambda: Passing().__enter__(), "the number of torch's dispatch modes"),  # type: ignore[no-untyped-call]
    "function mode": (lambda: PassingOn().__enter__(), "the number of torch's function modes"),  # type: ignore[no-untyped-call]
    "trace": (lambda: sys.settrace(ignore_event), "Python's trace function"),
    "profile": (lambda: sys.setprofile(ignore_event), "Python's profile function"),
    "folder": (lambda: os.chdir("/"), "the current folder"),
}

SPOILING = ("default dtype", "default device", "threads")
"""What made the next backend wrong, broken or slow."""


@pytest.fixture(autouse=True)
def as_before(tmp_path: Path) -> Any:
    """Whatever a test leaves is no other test's."""
    left: list[LeftBehind] = []
    with watch_settings(left, "cpu"):
        os.chdir(tmp_path)
        yield


def values() -> list[Any]:
    """All settings."""
    return [setting.read() for setting in list_settings()]


def checked(call: Callable[[torch.Tensor], Any]) -> tuple[TorchSubject, CheckReport]:
    """A function, gated on its own, after its check."""
    workload = AdHoc("twice", lambda seed: (torch.randn(8, 16),), lambda x: x * 2)
    subject = TorchSubject(CallableBackend("test.twice", call), workload, CPU, Seeds(0, 1, 2))
    subject.prepare()
    return subject, subject.check()


def accused(call: Callable[[torch.Tensor], Any]) -> tuple[str, ...]:
    """What the case fails with; a call on the meta device breaks whatever comes after it, and names it, too."""
    try:
        subject, report = checked(call)
    except CaseFailedError as error:
        return (str(error),)
    assert not report.right
    with pytest.raises(NotProvenRightError):
        subject.measure_blocks(3, 500.0, 1e5)
    subject.finish()
    return report.problems


@pytest.mark.parametrize(("leave", "name"), LEAVING.values(), ids=LEAVING)
def test_what_is_left_changed_is_named_and_put_back(leave: Callable[[], object], name: str) -> None:
    """With what it was and what it is; afterwards everything is as before."""
    before, left = values(), list[LeftBehind]()
    with watch_settings(left, "cpu"):
        leave()
    assert values() == before
    assert any(one.name.startswith(name) and one.before != one.after for one in left)
    again: list[LeftBehind] = []
    with watch_settings(again, "cpu"):
        pass
    assert again == []


@pytest.mark.parametrize(("leave", "name"), [LEAVING[which] for which in SPOILING], ids=SPOILING)
def test_a_backend_that_leaves_it_fails_and_no_other_does(leave: Callable[[], object], name: str) -> None:
    """Its report names the setting, it may not be timed, and the next backend of the process is right."""

    def lying(x: torch.Tensor) -> torch.Tensor:
        result = x * 2
        leave()
        return result

    def honest(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    before = values()
    assert any(name in problem and "was put back" in problem for problem in accused(lying))
    assert values() == before
    subject, report = checked(honest)
    assert report.problems == ()
    assert subject.finish().check.problems == ()


def test_a_backend_that_puts_it_back_is_right() -> None:
    """What is changed within a call only is nobody else's business."""

    def careful(x: torch.Tensor) -> torch.Tensor:
        result = x * 2
        left: list[LeftBehind] = []
        with watch_settings(left, "cpu"):
            for leave, _ in LEAVING.values():
                leave()
        return result

    subject, report = checked(careful)
    assert report.problems == ()
    assert subject.finish().check.problems == ()


def test_random_numbers_are_put_back_without_a_word() -> None:
    """Drawing them is honest: dropout does. A backend that seeds them changes nothing for the next one either."""

    def draws(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        random.seed(1)
        torch.nn.functional.dropout(x, 0.5)
        return x * 2

    states = torch.random.get_rng_state(), random.getstate()
    subject, report = checked(draws)
    assert report.problems == ()
    assert subject.finish().check.problems == ()
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_an_error_after_a_change_names_it() -> None:
    """The change may be why; what the plugin raises itself keeps its type."""
    left: list[LeftBehind] = []
    named = r"ValueError: broken\. Before that, torch's default dtype was"
    with pytest.raises(CaseFailedError, match=named), watch_settings(left, "cpu"):
        torch.set_default_dtype(torch.float64)
        raise ValueError("broken")
    with pytest.raises(UnsupportedError), watch_settings(left, "cpu"):
        torch.set_default_dtype(torch.float64)
        raise UnsupportedError("no")
    with pytest.raises(ValueError, match=r"^broken$"), watch_settings(left, "cpu"):
        raise ValueError("broken")
    assert torch.get_default_dtype() == torch.float32


def test_what_is_changed_while_it_is_timed_is_a_problem_of_the_last_check() -> None:
    """A call that changes a setting only after a hundred calls is found behind its blocks."""
    calls = 0

    def later(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if timing:
            torch.set_num_threads(torch.get_num_threads() + 1)
        return x * 2

    timing = False
    subject, report = checked(later)
    assert report.right
    timing = True
    subject.measure_blocks(3, 200.0, 1e5)
    timing = False
    (problem,) = subject.finish().check.problems
    assert problem.startswith("torch's number of threads was")

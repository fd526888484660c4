"""What `TorchSubject.prepare` makes of a family's inputs and of a backend's result that are not what they should be."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Tensors
from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.softmax import Softmax

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")


class Unready(Backend[Softmax]):
    """Returns the function that it should wrap."""

    families = ("softmax",)

    def prepare(self, workload: Softmax, inputs: Tensors) -> Any:
        """The function alone."""
        return print


def test_inputs_that_are_no_tuple_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor alone would be taken apart into its rows."""
    monkeypatch.setattr(Softmax, "make_inputs", lambda *_, **__: [])
    with pytest.raises(CaseFailedError, match=r"softmax-r4-c8-f32: make_inputs\(\) returned list; return a tuple of"):
        TorchSubject(Unready("mine"), Softmax(4, 8, "f32"), CPU, Seeds(0, check=1, final=2)).prepare()


def test_what_is_no_prepared_is_refused() -> None:
    """With the place of the backend's class."""
    with pytest.raises(UsageError, match=r"returned\.py:\d+: mine\.prepare\(\) returned builtin_function.*; return"):
        TorchSubject(Unready("mine"), Softmax(4, 8, "f32"), CPU, Seeds(0, check=1, final=2)).prepare()

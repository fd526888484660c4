from __future__ import annotations

import copy

import pytest

from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.measure.interpreter_driver import (
    InterpreterDriver,
    NeedsGpuError,
    NotCompiled,
    activate_interpreter,
)


class Config:
    """In place of Triton's."""

    def set_active(self, driver: InterpreterDriver) -> None:
        """Keep it."""
        self.driver = driver


def test_the_interpreter_is_made_the_active_driver() -> None:
    """The configuration stays what it was, and has the interpreter for its driver."""
    config = Config()
    assert activate_interpreter(config) is config
    assert isinstance(config.driver, InterpreterDriver)


def test_an_interpreter_runs_one_program_at_a_time() -> None:
    """It has one multiprocessor and one device, and nothing of a GPU's memory."""
    driver = InterpreterDriver()
    properties = driver.utils.get_device_properties(driver.get_current_device())
    assert properties["multiprocessor_count"] == 1
    with pytest.raises(NeedsGpuError, match=r"'max_shared_mem' of the device's properties \(an interpreter has multi"):
        properties["max_shared_mem"]


def test_what_only_a_gpu_has_is_named() -> None:
    """The error is one of an unsupported case and one of Triton's without a driver; Python's own look-ups go on."""
    driver = InterpreterDriver()
    with pytest.raises(NeedsGpuError, match=r"driver\.active\.utils\.load_binary was requested, but only a GPU has it"):
        driver.utils.load_binary  # noqa: B018
    with pytest.raises(NeedsGpuError, match="a benchmark was requested, but only a GPU has it"):
        driver.get_benchmarker()(print)
    with pytest.raises(NeedsGpuError, match=r"the compiled kernel softmax\.n_spills was requested"):
        NotCompiled("softmax").n_spills  # noqa: B018
    assert issubclass(NeedsGpuError, UnsupportedError)
    assert issubclass(NeedsGpuError, RuntimeError)
    assert isinstance(copy.copy(driver), InterpreterDriver)

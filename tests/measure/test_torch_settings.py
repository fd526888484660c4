"""Settings of torch that change times are said as they are while a case is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import left_behind
from pytest_attnperf.measure import torch_settings
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test")


@pytest.fixture(autouse=True)
def put_back() -> Any:
    """Whatever a test sets is as before."""
    torch_settings.threads_at_start()
    with left_behind.watch_settings([], "cpu"):
        yield


def set_deterministic() -> None:
    """No lambda: what it takes is not annotated."""
    torch.use_deterministic_algorithms(True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "threads "),
        (lambda: torch.set_float32_matmul_precision("high"), "fp32 products high"),
        (set_deterministic, "deterministic algorithms True"),
        (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cuDNN benchmark True"),
        (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash attention False"),
        (lambda: torch.set_autocast_enabled("cpu", True), "autocast on cpu True"),
    ],
)
def test_what_is_no_default_is_said(change: Callable[[], Any], words: str) -> None:
    """By a name of ours; nothing is said of the others, and putting it back is the default again."""
    assert torch_settings.describe_torch_settings() == torch_settings.DEFAULTS
    change()
    assert torch_settings.describe_torch_settings().startswith(words)
    assert ", " not in torch_settings.describe_torch_settings()


def test_a_precision_under_its_new_name_is_said_alike() -> None:
    """torch 2.9 has another name for it, beside which the old one raises."""
    matmul: Any = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has the old name only")
    matmul.fp32_precision = "tf32"
    assert torch_settings.describe_torch_settings() == "fp32 products high"


def test_times_know_the_settings_that_they_were_taken_with() -> None:
    """Set in a test's body, after the process began: in the blocks, in turns and in what is stored of them."""
    torch.set_float32_matmul_precision("high")
    subject = TorchSubject(
        CallableBackend("mine", lambda x: x.relu()), AdHoc("x", lambda: torch.randn(256, 256), torch.relu), CPU,
        Seeds(0, 1, 2),
    )  # fmt: skip
    subject.prepare()
    assert subject.check().right
    samples = subject.measure_blocks(3, 100.0, 5_000.0)
    assert samples.settings == "fp32 products high"
    assert summarise_process(samples).settings == "fp32 products high"
    assert subject.prepare_turns(100.0).settings == "fp32 products high"

"""What our Triton backends share: pinning of several kernels, missing Triton, and the compile before timing."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernels.configs import ConfigChoice, ConfigRule, KernelConfigError, Space
from kernels.configured import Configured
from kernels.triton.triton_backend import arch_of, compile_ahead, missing_triton
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo

SPLIT = Space("split", {"BLOCK": int}, (), Path("configs"))
REDUCE = Space("reduce", {"WIDTH": int}, (), Path("configs"))
OPTIONS = {"num_warps": 4, "num_stages": 1}
SPLIT_CHOICE = ConfigChoice("sm_90", ConfigRule({}, {"BLOCK": 8, **OPTIONS}, "a test"))
REDUCE_CHOICE = ConfigChoice("default", ConfigRule({}, {"WIDTH": 2, **OPTIONS}, "another"))


@dataclass(frozen=True)
class Two(Configured):
    """A backend of two kernels."""

    @property
    def spaces(self) -> tuple[Space, ...]:
        """Both kernels'."""
        return (SPLIT, REDUCE)


class OnGpu:
    """Stands for a tensor of a GPU."""

    is_cuda = True


def test_two_kernels_are_recorded_and_pinned() -> None:
    """What was recorded under each kernel's name comes back as its choice, and is used in place of the files'."""
    recorded = Two().config_entries({"split": SPLIT_CHOICE, "reduce": REDUCE_CHOICE})
    assert recorded["split.BLOCK"] == "8"
    assert recorded["reduce.config_source"] == "another"
    pinned = Two().replay_config(recorded)
    assert pinned.choose(SPLIT, "gfx942", {}).config == SPLIT_CHOICE.config
    assert pinned.choose(REDUCE, "gfx942", {}).rule.source == "pinned: another"


def test_one_kernel_of_two_is_pinned() -> None:
    """A case that ran one kernel only is replayed with that one."""
    pinned = Two().replay_config(Two().config_entries({"reduce": REDUCE_CHOICE}))
    assert pinned.pinned_choices.keys() == {"reduce"}


def test_what_holds_no_kernel_is_refused() -> None:
    """The error names the kernels, what is stored, and what to do."""
    text = "holds none of the kernels split, reduce; it has BLOCK; record the baseline again"
    with pytest.raises(UsageError, match=text):
        Two().replay_config({"BLOCK": "8"})


def test_a_choice_of_one_kernel_keeps_the_other_s() -> None:
    """A sweep replaces one kernel's configuration; a kernel that is not there is named."""
    both = Two().with_choice("split", SPLIT_CHOICE).with_choice("reduce", REDUCE_CHOICE)
    assert both.pinned_choices == {"split": SPLIT_CHOICE, "reduce": REDUCE_CHOICE}
    with pytest.raises(UsageError, match="Two has no kernel 'gemm'; it has split, reduce"):
        both.with_choice("gemm", SPLIT_CHOICE)


def test_missing_triton_and_missing_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are said; with a GPU, or the interpreter, only the first is."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cpu = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
    gpu = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
    assert [reason.partition(";")[0] for reason in missing_triton(cpu)] == [
        "triton is not installed",
        "Triton compiles for GPUs only",
    ]
    assert missing_triton(gpu) == ["triton is not installed"]


def test_without_a_gpu_nothing_is_called() -> None:
    """The interpreter has nothing to compile."""
    torch = pytest.importorskip("torch")
    compile_ahead(pytest.fail, (torch.zeros(1),), SPLIT, SPLIT_CHOICE)


def test_too_large_a_configuration_is_an_error_of_its_file() -> None:
    """What the device lacks is said with the file, the settings, both figures, and what to do."""
    pytest.importorskip("triton")
    from triton.runtime.errors import OutOfResources

    def call(*tensors: Any) -> None:
        raise OutOfResources(300000, 232448, "shared memory")

    text = (
        r"split.sm_90\.json: split with BLOCK=8, num_warps=4, num_stages=1 needs 300000 of shared memory, and this "
        "device has 232448; take smaller tiles or fewer stages"
    )
    fake: Any = (OnGpu(),)
    with pytest.raises(KernelConfigError, match=text):
        compile_ahead(call, fake, SPLIT, SPLIT_CHOICE)


def test_no_gpu_is_the_interpreter() -> None:
    """Configurations of a CPU are the interpreter's."""
    torch = pytest.importorskip("torch")
    assert arch_of(torch.device("cpu")) == "interpreter"

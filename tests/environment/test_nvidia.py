from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.environment import nvidia
from pytest_attnperf.environment.system import ProbeError, System, run_command


def test_a_refusal_is_told_by_the_text_of_real_commands() -> None:
    """What marks a refused query is in the error of a command that ran and failed, and not of one that is missing."""
    with pytest.raises(ProbeError, match=nvidia._REFUSED):
        run_command(["false"])
    with pytest.raises(ProbeError) as missing:
        run_command(["no-such-tool"])
    assert nvidia._REFUSED not in str(missing.value)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x0, "none"),
        (0x1, "idle"),
        (0x24, "software power cap, software thermal slowdown"),
        (0xC8, "hardware slowdown, hardware thermal slowdown, hardware power brake"),
        (0x204, "software power cap, 0x200"),
    ],
)
def test_reasons_in_words(mask: int, words: str) -> None:
    """Every known bit is a word, and an unknown one is shown as it is."""
    assert nvidia.reasons_in_words(mask) == words


@pytest.mark.parametrize(("answer", "microseconds"), [("25", 25.0), ("25 us", 25.0), ("[N/A]", None), ("-5", None)])
def test_counters_with_and_without_a_unit(tmp_path: Path, answer: str, microseconds: float | None) -> None:
    """nvidia-smi prints a counter with its unit or without; what is no count is not there."""
    field, reason = next(iter(nvidia.COUNTER_FIELDS.items()))
    fields = (*nvidia.STATE_FIELDS, nvidia.REASONS_FIELDS[0], field)

    def nvidia_smi(command: Sequence[str]) -> str:
        return f"GPU-1, 1, 2, 3, 4, 5, Default, Enabled, 0x0, {answer}\n"

    reading = nvidia.read_state("0", System(tmp_path, nvidia_smi), [fields])
    assert reading.throttled_us.get(reason) == microseconds
    assert reading.fields == fields
    assert bool(reading.notes) == (microseconds is None)


class Nvml:
    """A libnvidia-ml.so with one GPU: status of each call, and nanoseconds by policy; others it does not count."""

    def __init__(self, violations_ns: dict[int, int], init: int = 0, found: int = 0) -> None:
        self.violations_ns, self.init, self.found = violations_ns, init, found
        self.asked: list[bytes] = []

    def nvmlInit_v2(self) -> int:
        """Starts."""
        return self.init

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        """Remembers which GPU was asked for."""
        self.asked.append(uuid)
        return self.found

    def nvmlDeviceGetViolationStatus(self, device: Any, policy: int, violation: Any) -> int:
        """Writes two numbers of 64 bits, as nvmlViolationTime_t has them; 3 is NVML_ERROR_NOT_SUPPORTED."""
        if policy not in self.violations_ns:
            return 3
        numbers = ctypes.cast(violation, ctypes.POINTER(ctypes.c_ulonglong * 2)).contents
        numbers[0], numbers[1] = 1_783_215_936_000_000, self.violations_ns[policy]
        return 0


def test_nvml_counts_each_policy_in_microseconds() -> None:
    """Nanoseconds become microseconds by name; a policy that the GPU does not count is left out, not 0."""
    nvml = Nvml({0: 2_500_000, 1: 0})
    counters = nvidia.NvmlCounters("GPU-cb3296dd", lambda name: nvml if name == nvidia.NVML else None)
    first, second = counters.read(), counters.read()
    assert nvml.asked == [b"GPU-cb3296dd"]
    assert first.counts == {"software power cap": 2500.0, "thermal slowdown": 0.0}
    assert second.total > first.total


def missing(_name: str) -> Any:
    """No library."""
    raise OSError("cannot open shared object file")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (missing, "cannot open shared object file"),
        (lambda _name: object(), "nvmlInit_v2"),
        (lambda _name: Nvml({}, init=9), "nvmlInit_v2 returned 9"),
        (lambda _name: Nvml({}, found=6), "device by UUID returned 6"),
    ],
)
def test_nvml_that_cannot_be_used_is_said(load: Any, said: str) -> None:
    """A missing or older library, a driver that does not answer and an unknown GPU are ProbeErrors."""
    with pytest.raises(ProbeError, match=said):
        nvidia.NvmlCounters("GPU-cb3296dd", load)

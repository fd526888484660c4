from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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

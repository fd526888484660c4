from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci.outcome import Conclusion, GateMode, GateOutcome, choose_mode


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (GateOutcome.PASSED, "success"),
        (GateOutcome.FAILED, "failure"),
        (GateOutcome.BROKEN, "error"),
        (GateOutcome.UNMEASURED, "pending"),
    ],
)
def test_block_lets_through_only_what_passed(outcome: GateOutcome, state: str) -> None:
    """A required check takes 'success' alone; without results nothing has passed."""
    assert Conclusion(outcome, GateMode.BLOCK).state == state


@pytest.mark.parametrize("mode", [GateMode.SHADOW, GateMode.WARN])
@pytest.mark.parametrize("outcome", list(GateOutcome))
def test_other_modes_block_nothing(mode: GateMode, outcome: GateOutcome) -> None:
    """Even where the check is required already."""
    assert Conclusion(outcome, mode).state == "success"


def test_warn_says_what_it_would_do() -> None:
    """In the status and in the comment."""
    conclusion = Conclusion(GateOutcome.FAILED, GateMode.WARN)
    assert conclusion.sentence == "would fail (warn)"
    assert conclusion.heading == "**attnperf gate: would fail.** Mode `warn`: nothing is blocked."
    conclusion = Conclusion(GateOutcome.FAILED, GateMode.BLOCK)
    assert conclusion.sentence == "failed"
    assert conclusion.heading == "**attnperf gate: failed.** This commit is blocked."
    assert Conclusion(GateOutcome.PASSED, GateMode.WARN).heading == "**attnperf gate: passed.**"


def test_mode_is_the_option_then_the_variable_then_warn() -> None:
    """Spaces and capitals of a repository variable do not matter."""
    assert choose_mode("", {}) is GateMode.WARN
    assert choose_mode("", {"ATTNPERF_GATE": " Block "}) is GateMode.BLOCK
    assert choose_mode("shadow", {"ATTNPERF_GATE": "block"}) is GateMode.SHADOW


def test_unknown_mode_is_refused_and_never_taken_for_one_that_lets_through() -> None:
    """The message names where it came from and what there is."""
    with pytest.raises(UsageError, match="ATTNPERF_GATE is 'blok'; known: shadow, warn, block"):
        choose_mode("", {"ATTNPERF_GATE": "blok"})
    with pytest.raises(UsageError, match="--mode is 'off'"):
        choose_mode("off", {})

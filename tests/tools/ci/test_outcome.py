from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci.outcome import Conclusion, Mode, Outcome, mode_of


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.PASSED, "success"),
        (Outcome.FAILED, "failure"),
        (Outcome.BROKEN, "error"),
        (Outcome.UNMEASURED, "pending"),
    ],
)
def test_block_lets_through_only_what_passed(outcome: Outcome, state: str) -> None:
    """A required check takes 'success' alone; without results nothing has passed."""
    assert Conclusion(outcome, Mode.BLOCK).state == state


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.WARN])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_other_modes_block_nothing(mode: Mode, outcome: Outcome) -> None:
    """Even where the check is required already."""
    assert Conclusion(outcome, mode).state == "success"


def test_warn_says_what_it_would_do() -> None:
    """In the status and in the comment."""
    conclusion = Conclusion(Outcome.FAILED, Mode.WARN)
    assert conclusion.sentence == "would fail (warn)"
    assert conclusion.heading == "**attnperf gate: would fail.** Mode `warn`: nothing is blocked."
    conclusion = Conclusion(Outcome.FAILED, Mode.BLOCK)
    assert conclusion.sentence == "failed"
    assert conclusion.heading == "**attnperf gate: failed.** This commit is not let through."
    assert Conclusion(Outcome.PASSED, Mode.WARN).heading == "**attnperf gate: passed.**"


def test_mode_is_the_option_then_the_variable_then_warn() -> None:
    """Spaces and capitals of a repository variable do not matter."""
    assert mode_of("", {}) is Mode.WARN
    assert mode_of("", {"ATTNPERF_GATE": " Block "}) is Mode.BLOCK
    assert mode_of("shadow", {"ATTNPERF_GATE": "block"}) is Mode.SHADOW


def test_unknown_mode_is_refused_and_never_taken_for_one_that_lets_through() -> None:
    """The message names where it came from and what there is."""
    with pytest.raises(UsageError, match="ATTNPERF_GATE is 'blok'; known: shadow, warn, block"):
        mode_of("", {"ATTNPERF_GATE": "blok"})
    with pytest.raises(UsageError, match="--mode is 'off'"):
        mode_of("off", {})

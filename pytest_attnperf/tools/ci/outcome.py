"""What a judged run means for a commit in the modes shadow, warn and block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line

MODE_VARIABLE = "ATTNPERF_GATE"


class GateMode(str, Enum):
    """Effect on a pull request. shadow: not shown; warn: shown, never blocks; block: shown, a failure blocks."""

    SHADOW = "shadow"
    WARN = "warn"
    BLOCK = "block"


class GateOutcome(str, Enum):
    """Result of judging. passed, failed: the verdict; broken: the judge failed; unmeasured: there were no results."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    UNMEASURED = "unmeasured"


STATES = {
    GateOutcome.PASSED: "success",
    GateOutcome.FAILED: "failure",
    GateOutcome.BROKEN: "error",
    GateOutcome.UNMEASURED: "pending",
}
"""Outcome -> commit state in mode block. A required check accepts only 'success'."""

SENTENCES = {
    GateOutcome.PASSED: "passed",
    GateOutcome.FAILED: "failed",
    GateOutcome.BROKEN: "could not judge",
    GateOutcome.UNMEASURED: "nothing was measured",
}
EXPLAINED = {
    GateOutcome.BROKEN: "The results could not be judged: see the log of the judging run.",
    GateOutcome.UNMEASURED: "No results reached the judge: the measuring job was skipped, ended before it wrote "
    "any, or "
    "the pull request comes from a fork and no maintainer has let this commit onto the runner yet.",
}
"""Text of a comment if there is no report."""


@dataclass(frozen=True)
class Conclusion:
    """An outcome of judging and the mode that it counts in."""

    outcome: GateOutcome
    mode: GateMode

    @property
    def state(self) -> str:
        """State for GitHub's commit status, by outcome: 'success', 'failure', 'error' or 'pending' in mode block;
        always 'success' in the other modes, so that a required check passes."""
        return STATES[self.outcome] if self.mode is GateMode.BLOCK else "success"

    @property
    def sentence(self) -> str:
        """The outcome in words, such as 'passed' or 'failed'. Unless it passed, a mode other than block is added:
        'would fail (warn)'."""
        if self.outcome is GateOutcome.PASSED or self.mode is GateMode.BLOCK:
            return SENTENCES[self.outcome]
        said = "would fail" if self.outcome is GateOutcome.FAILED else SENTENCES[self.outcome]
        return f"{said} ({self.mode.value})"

    @property
    def heading(self) -> str:
        """First visible line of the comment: the outcome and, unless it passed, whether the commit is blocked."""
        if self.outcome is GateOutcome.PASSED:
            return "**attnperf gate: passed.**"
        consequence = {
            GateMode.BLOCK: "This commit is blocked",
            GateMode.WARN: "Mode `warn`: nothing is blocked",
            GateMode.SHADOW: "Mode `shadow`: nothing is blocked",
        }[self.mode]
        return f"**attnperf gate: {self.sentence.partition(' (')[0]}.** {consequence}."


def choose_mode(text: str, environ: Mapping[str, str]) -> GateMode:
    """Returns the mode named by `text` (option --mode) or, if that is empty, by ATTNPERF_GATE; warn if both are
    empty. Raises UsageError for an unknown name."""
    source = "--mode" if text else MODE_VARIABLE
    wanted = (text or environ.get(MODE_VARIABLE, "")).strip().lower() or GateMode.WARN.value
    try:
        return GateMode(wanted)
    except ValueError:
        known = ", ".join(mode.value for mode in GateMode)
        raise UsageError(f"{source} is {one_line(wanted)!r}; known: {known}") from None

"""What a judged run means for a commit: in the modes shadow, warn and block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line

MODE_VARIABLE = "ATTNPERF_GATE"


class Mode(str, Enum):
    """shadow: nothing is shown on the pull request; warn: shown, blocks nothing; block: a failure blocks."""

    SHADOW = "shadow"
    WARN = "warn"
    BLOCK = "block"


class Outcome(str, Enum):
    """passed, failed: as judged; broken: the judge itself failed; unmeasured: there were no results."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    UNMEASURED = "unmeasured"


STATES = {
    Outcome.PASSED: "success",
    Outcome.FAILED: "failure",
    Outcome.BROKEN: "error",
    Outcome.UNMEASURED: "pending",
}
"""Commit states where the gate blocks; a required check lets only 'success' through."""

SENTENCES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.BROKEN: "could not judge",
    Outcome.UNMEASURED: "nothing was measured",
}
EXPLAINED = {
    Outcome.BROKEN: "The results could not be judged: see the log of the judging run.",
    Outcome.UNMEASURED: "No results reached the judge: the measuring job was skipped, ended before it wrote any, or "
    "the pull request comes from a fork and no maintainer has let this commit onto the runner yet.",
}
"""What a comment says where there is no report."""


@dataclass(frozen=True)
class Conclusion:
    """An outcome in a mode."""

    outcome: Outcome
    mode: Mode

    @property
    def state(self) -> str:
        """Of the commit status: a mode that blocks nothing is 'success' even where the check is required."""
        return STATES[self.outcome] if self.mode is Mode.BLOCK else "success"

    @property
    def sentence(self) -> str:
        """'failed', 'would fail (warn)', 'passed'."""
        if self.outcome is Outcome.PASSED or self.mode is Mode.BLOCK:
            return SENTENCES[self.outcome]
        said = "would fail" if self.outcome is Outcome.FAILED else SENTENCES[self.outcome]
        return f"{said} ({self.mode.value})"

    @property
    def heading(self) -> str:
        """The comment's first line that is seen."""
        if self.outcome is Outcome.PASSED:
            return "**attnperf gate: passed.**"
        consequence = {
            Mode.BLOCK: "This commit is not let through",
            Mode.WARN: "Mode `warn`: nothing is blocked",
            Mode.SHADOW: "Mode `shadow`: nothing is blocked",
        }[self.mode]
        return f"**attnperf gate: {self.sentence.partition(' (')[0]}.** {consequence}."


def mode_of(text: str, environ: Mapping[str, str]) -> Mode:
    """By an option or, where that is empty, ATTNPERF_GATE; 'warn' without either. Raises UsageError."""
    source = "--mode" if text else MODE_VARIABLE
    wanted = (text or environ.get(MODE_VARIABLE, "")).strip().lower() or Mode.WARN.value
    try:
        return Mode(wanted)
    except ValueError:
        known = ", ".join(mode.value for mode in Mode)
        raise UsageError(f"{source} is {one_line(wanted)!r}; known: {known}") from None

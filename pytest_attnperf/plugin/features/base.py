"""What a mode of a run may do besides the judging that every run does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from pytest_attnperf.plugin.ending import Ended
    from pytest_attnperf.records import CaseKey
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.results import CaseResult, RunResult

ENDING = "ending the run"
"""What is done from the last case, or an interrupt, on (see `Feature.enter_phase`)."""


class Feature:
    """A mode of a run, there only where it is on. What it has no part in stays as it is here: nothing."""

    def before_run(self) -> None:
        """Be ready: the first workers are being started."""

    def enter_phase(self, phase: str) -> None:
        """Hear what is done from now on beside judging cases; '' for judging them."""

    def before_case(self) -> None:
        """Hear that a case begins."""

    def judge_case(self, _item: pytest.Item, _key: CaseKey) -> CaseResult | None:
        """Judge a case in the session's place; None leaves it to the session."""
        return None

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Hear a verdict, of this process or of a worker of xdist."""

    def collect_findings(self, _cases: Mapping[CaseKey, CaseResult]) -> Sequence[str]:
        """Find what concerns the whole run, while its workers are still there."""
        return ()

    def before_shutdown(self, *, interrupted: bool) -> None:
        """Do what the workers are needed for; then they are ended."""

    def collect_notes(self, _cases: Iterable[CaseResult]) -> Sequence[str]:
        """Say what a reader of the results must know."""
        return ()

    def after_run(self, ended: Ended) -> None:
        """Hear that the results are written."""

    def render_section(self, _run: RunResult, _width: int) -> tuple[str, Sequence[str]]:
        """Give the lines of a section of its own above the summary, and its title; no lines print none."""
        return "", ()

    def render_lines(self, _run: RunResult) -> Sequence[str]:
        """Give what is printed above the closing lines."""
        return ()

    def print_at_end(self, reporter: Any) -> None:
        """Print behind the closing lines."""

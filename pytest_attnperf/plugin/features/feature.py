"""Base class of features: what a mode of a run can do besides judging cases."""

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
"""Phase after the last case or after an interrupt (see `Feature.enter_phase`)."""


class Feature:
    """Base class of the modes of a run. One exists only if its mode is on, and overrides the methods it needs."""

    def before_run(self) -> None:
        """Called once per run, when its first workers are being started."""

    def enter_phase(self, phase: str) -> None:
        """Called when work other than judging cases begins, named by `phase`; '' when cases are judged again."""

    def before_case(self) -> None:
        """Called before each case is judged, also before one that is skipped."""

    def judge_case(self, _item: pytest.Item, _key: CaseKey) -> CaseResult | None:
        """Returns the result of the case of this item; None leaves judging to the session, which measures."""
        return None

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Called with each result of a case or compiled kernel, also with those from workers of xdist."""

    def collect_findings(self, _cases: Mapping[CaseKey, CaseResult]) -> Sequence[str]:
        """Returns findings on the whole run; called while the workers are still alive."""
        return ()

    def before_shutdown(self, *, interrupted: bool) -> None:
        """Called before the workers are ended, for work that still needs them."""

    def collect_notes(self, _cases: Iterable[CaseResult]) -> Sequence[str]:
        """Returns notes for the record of the whole run."""
        return ()

    def after_run(self, ended: Ended) -> None:
        """Called with the finished run, after baselines and results.json are written."""

    def render_section(self, _run: RunResult, _width: int) -> tuple[str, Sequence[str]]:
        """Returns title and lines of a section above the summary; without lines there is no section."""
        return "", ()

    def render_lines(self, _run: RunResult) -> Sequence[str]:
        """Returns lines that are printed above the closing lines."""
        return ()

    def print_at_end(self, reporter: Any) -> None:
        """Prints with pytest's terminal reporter, after the closing lines."""

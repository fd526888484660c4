"""`--attnperf-profile` at the end of a run: what binds each profiled case."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.summary import noted
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.reports.run.profile_cases import case_lines
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult

LOST_SHOWN = 5


class Profiles(Feature):
    """Of a run that profiles."""

    def section(self, run: RunResult, width: int) -> tuple[str, Sequence[str]]:
        """What binds each profiled case, and which cases have no profile, the first few, each with the reason."""
        lost = noted(run, NoteKind.NOT_PROFILED)
        if len(lost) > LOST_SHOWN:
            lost = [*lost[:LOST_SHOWN], f"not profiled: {len(lost) - LOST_SHOWN} more cases"]
        return "attnperf: profiles", [*case_lines(run, width), *(one_line(line, TEXT_LIMIT) for line in lost)]

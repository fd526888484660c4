"""What a run gives to others when it has ended: a folder of reports, and a line in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult

if TYPE_CHECKING:
    from pytest_attnperf.plugin.ending import Ended
    from pytest_attnperf.records.histories import CaseHistory
    from pytest_attnperf.reports.run.joined import Joined

SHOWN_POINTS = 200
"""Points of a case's history that a report shows."""


class Publishing(Feature):
    """Appends to the history, then writes the reports, which show it. What fails is said; the run is not lost by it."""

    def __init__(self, asked: RunConfig) -> None:
        self._results = asked.results
        self._history = history_url(asked)
        self._folder = report_folder(asked)
        self._lines: list[str] = []
        self._appended = False

    def finish(self, ended: Ended) -> None:
        """Give the run to what was asked for."""
        if self._history:
            self._say("history", lambda: self._append(ended.run))
        if self._folder is not None:
            self._say("report", lambda: self._write(ended))

    def show(self, reporter: Any) -> None:
        """Print what was written where, and what could not be."""
        for line in self._lines:
            reporter.write_line(one_line(line, TEXT_LIMIT))

    def _say(self, what: str, work: Any) -> None:
        try:
            self._lines += work()
        except (AttnperfError, OSError) as error:
            self._lines.append(f"{what}: not written: {error}")
        except Exception as error:  # a library's, which must not cost the tables and the exit status of the run
            self._lines.append(f"{what}: not written: {type(error).__name__}: {error}")

    def _append(self, run: RunResult) -> list[str]:
        from pytest_attnperf.tools.history.store import open_store

        with open_store(self._history) as store:
            appended = store.append(run)
        self._appended = True
        return [f"history: {appended.rows} case{'s' * (appended.rows != 1)} appended to {store.shown}"]

    def _write(self, ended: Ended) -> list[str]:
        from pytest_attnperf.plugin.report_inputs import ceilings_of
        from pytest_attnperf.reports.files.folder import write
        from pytest_attnperf.reports.run.joined import of_one

        assert self._folder is not None
        joined = replace(of_one(ended.run, self._results), failed_by=ended.failed_by)
        # Folders of baselines hold the ceilings that a roofline takes.
        return write(self._folder, joined, histories=self._past(joined), ceilings=ceilings_of(joined, ended.roots))

    def _past(self, joined: Joined) -> Sequence[CaseHistory]:
        """What the store holds of the run's cases; nothing where it could not be appended to, or cannot be read."""
        from pytest_attnperf.plugin.report_inputs import histories_of

        try:
            return histories_of(joined, self._history, SHOWN_POINTS) if self._appended else ()
        except AttnperfError as error:
            self._lines.append(f"report: without the past of its cases: {error}")
            return ()


def history_url(asked: RunConfig) -> str:
    """The store that the run is appended to: a URL, or a file's path from where it was typed; '' for none."""
    text = asked.history
    return text if not text or "://" in text else str(_start(asked, "history") / text)


def report_folder(asked: RunConfig) -> Path | None:
    """The folder of `--attnperf-report`."""
    return _start(asked, "report") / asked.report if asked.report else None


def _start(asked: RunConfig, name: str) -> Path:
    """Where a relative path begins: where it was typed; of the ini file at rootdir."""
    return asked.typed_in if name in asked.typed else asked.root

"""Which modes of a run are loaded."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features import on
from pytest_attnperf.plugin.features.on import find_timed_keys
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.plugin.run import Run
from pytest_attnperf.records import CaseKey
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.testing.project import FakeProject

LOADED = """
import sys

def pytest_unconfigure():
    loaded = [name for name in sys.modules if name.startswith("pytest_attnperf.plugin.features.")]
    open("loaded.txt", "w").write("\\n".join(name.removeprefix("pytest_attnperf.plugin.features.") for name in loaded))
"""
ALWAYS = {
    *("feature", "on", "interrupts", "code_objects", "code_objects.code_items"),
    *("gpus", "gpus.gpu_choice", "gpus.card_watch", "journal", "journal.journaling", "journal.journal_header"),
    *("journal.journal_folder", "live", "live.progress", "live.live_line"),
}


def loaded(project: FakeProject, *words: str) -> set[str]:
    """What of `features` a run loads."""
    project.run(*words)
    return set((project.path / "loaded.txt").read_text().splitlines())


@pytest.mark.usefixtures("own_process")
def test_a_mode_that_is_off_is_not_loaded(attnperf_project: FakeProject, forked_workers: str) -> None:
    """An ordinary gate keeps a journal, shows how far it is, and answers signals; a proof keeps no journal."""
    attnperf_project.conftest(forked_workers + LOADED)
    attnperf_project.backend("fake.a", time_us=100)
    known = loaded(attnperf_project, "--attnperf")
    assert known - ALWAYS == set()
    assert "journal.journaling" in known
    assert "journal.journaling" not in loaded(attnperf_project)


def test_a_run_holds_few_things() -> None:
    """What only a mode needs is held by that mode."""
    assert len(fields(Run)) <= 8


@pytest.mark.parametrize(
    ("kind", "mode", "timed"),
    [("cpu", RunMode.GATE, "native"), ("gpu", RunMode.GATE, "native triton"), ("gpu", RunMode.CHECK, "")],
)
def test_what_may_be_timed(monkeypatch: pytest.MonkeyPatch, kind: str, mode: RunMode, timed: str) -> None:
    """All but what the test or, without a GPU, the backend says is not; nothing in a run that only checks."""
    absent: Any = None
    backends = {"native": True, "triton": False, "proven": True}
    cases: Any = [
        SimpleNamespace(
            stash={PLANNED: SimpleNamespace(key=CaseKey("suite", name, "w"), timed=name != "proven")},
            pair=(SimpleNamespace(times_on_cpu=times_on_cpu), None),
        )
        for name, times_on_cpu in backends.items()
    ]
    monkeypatch.setattr(on, "device_kind", lambda config: (kind, ""))
    monkeypatch.setattr(on, "pair_of", lambda item: item.pair)
    assert find_timed_keys(absent, cases, mode) == {CaseKey("suite", name, "w") for name in timed.split()}

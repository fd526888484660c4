"""What the end of a run prints of what others wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.config import RUN_CONFIG, RunConfig
from pytest_attnperf.plugin.ending import Ended
from pytest_attnperf.plugin.summary import Summary, unresolved_lines
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.session.plausibility import CHANGED
from pytest_attnperf.testing.sample_runs import sample_run

EVIL = "\x1b[2J\n4000 same\u202e" + "z" * 100_000


@pytest.mark.parametrize("verbosity", [-2, -1, 0, 1])
def test_hostile_text_is_one_line(tmp_path: Path, verbosity: int) -> None:
    """No name, summary, note, finding or reason moves the cursor or begins a line of its own."""
    config: Any = SimpleNamespace(stash=pytest.Stash(), get_verbosity=lambda: verbosity)
    printed: list[str] = []
    reporter = SimpleNamespace(
        stats={}, hasmarkup=False, ensure_newline=lambda: None, section=printed.append, write_line=printed.append
    )
    run = sample_run(3, verdicts=[Verdict.UNDECIDED])
    notes = (Note(NoteKind.NEAR_FLOOR, f"near the floor: {EVIL}"), Note(NoteKind.CHANGED, f"{CHANGED} {EVIL}"))
    cases = tuple(
        replace(case, summary=EVIL, notes=notes, key=replace(case.key, backend=EVIL, suite=EVIL)) for case in run.cases
    )
    config.stash[RUN_CONFIG] = RunConfig(root=tmp_path)
    ended = Ended(replace(run, cases=cases, notes=(EVIL,), findings=(EVIL,)), (EVIL,), "results.json", ())
    Summary(config, reporter, ended, ()).show()
    text = "\n".join(printed)
    assert "4000 same" in text
    assert not any(line.startswith("4000") for line in text.splitlines())
    assert not any(character in text for character in "\x1b\u202e")
    assert max(map(len, text.splitlines())) < 5_000


@pytest.mark.parametrize(
    ("earlier", "fresh", "said"),
    [
        (0, 0, []),
        (2, 0, ["2 cases were compared with .attnperf/local, recorded earlier on this machine"]),
        (0, 1, ["1 case was compared with .attnperf/local, recorded in this run: that compares code with itself"]),
        (1, 2, ["2 cases were compared with .attnperf/local, recorded in this", "1 case was compared with .attnperf"]),
    ],
)
def test_only_a_baseline_of_this_run_compares_code_with_itself(earlier: int, fresh: int, said: list[str]) -> None:
    """Each kind of local baseline has a line of its own, which is true of all cases that it counts."""
    notes = [Note(NoteKind.LOCAL, "local")] * earlier + [Note(NoteKind.LOCAL_NEW, "local, now")] * fresh
    run = sample_run(3, verdicts=[Verdict.SAME])
    cases = tuple(replace(case, notes=tuple(notes[at : at + 1])) for at, case in enumerate(run.cases))
    lines = unresolved_lines(replace(run, cases=cases))
    assert len(lines) == len(said)
    assert all(line.startswith(begin) for line, begin in zip(lines, said, strict=True)), lines

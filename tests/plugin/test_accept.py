"""`attnperf baselines accept` the whole way, on the fake device: slower, accepted, and quiet."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.testing.project import FakeProject

REASON = "exact softmax, issue 41"


def entry_of(project: FakeProject, **anchor: float) -> dict[str, Any]:
    """The only stored entry; with fields of its anchor written over, as a case that has crept."""
    file = json.loads(project.baseline().read_text())
    (entry,) = file["entries"].values()
    entry["anchor"].update(anchor)
    if anchor:
        project.baseline().write_text(json.dumps(file))
    return dict(entry)


def test_an_accepted_slowdown_passes_and_has_not_crept(
    attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 % slower is SLOWER; accepted from its second look of 7 it is SAME without a finding, and the file says why.

    Accepting that SAME moves the anchor of a case that has crept.
    """
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    monkeypatch.chdir(attnperf_project.path)
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=108.0)
    attnperf_project.run("--attnperf", "--attnperf-second-look=7")
    assert attnperf_project.verdicts() == {"fake.a": "SLOWER"}
    before = attnperf_project.baseline().read_bytes()
    asked = ["accept", "fake.a", "--from", ".attnperf/results.json", "--reason", REASON, "--author", "Ada"]
    capsys.readouterr()

    assert main([*asked, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("dry run: nothing was written\n")
    assert attnperf_project.baseline().read_bytes() == before
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert re.search(r" us \(\+[789]\.\d %; 7 processes\), accepted by Ada: ", said)
    assert "stored in baselines/fake/fake1/prefill.json, which is not under version control" in said
    entry = entry_of(attnperf_project)
    assert entry["summary"].endswith(f": {REASON}")
    assert entry["accepted"][0]["before_us"] == pytest.approx(100, rel=0.01)
    assert main(asked) == 2
    assert "it has changed since" in capsys.readouterr().err

    again = attnperf_project.run("--attnperf", "--attnperf-strict")
    assert again.ret == 0, again.stdout.str()
    assert attnperf_project.verdicts() == {"fake.a": "SAME"}
    again.stdout.no_fnmatch_line("finding:*crept:*")

    entry_of(attnperf_project, median_us=94.0)
    assert main(asked) == 0
    assert "the anchor moves from 94.00 us, " in capsys.readouterr().out

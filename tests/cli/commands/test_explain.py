"""`attnperf explain`, typed: what it finds, what it prints, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.cli.commands import explain as explain_command
from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Launch, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.stats.noise import NoiseEstimate
from tests import recorded_cases as recorded

KERNEL = CodeResult(CaseKey("code_objects", "triton.flash", "bm128", "gfx942"), "k.py::k", Verdict.SAME, "unchanged")
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type `attnperf explain ...` where .attnperf/results.json holds one case; status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(explain_command, "look_around", lambda told, folder: recorded.HERE)
    stored(recorded.slower())

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["explain", *arguments])
        return status, *capsys.readouterr()

    return run


def stored(*cases: CaseResult, name: str = ".attnperf/results.json", **fields: Any) -> RunResult:
    """A results file of these cases, in a run of as many more as share their false-alarm rate."""
    more = [
        replace(recorded.same(), key=CaseKey("other", "b", f"w{number}"), nodeid=f"other{number}")
        for number in range(recorded.CASES - len(cases))
    ]
    run = replace(recorded.run_of(*cases, *more), **fields)
    json_results.write(Path(name), run)
    return run


def test_the_worst_case_is_explained_unless_another_is_named(typed: Typed) -> None:
    """It says so, exits with 1 for a case that failed, is 80 columns wide in a pipe, and contradicts nothing."""
    status, out, err = typed()
    assert (status, err) == (1, "")
    assert out.startswith("the worst of 120 cases; to explain another, name it\n\nSLOWER (fails its test)\n")
    assert "What contradicts" not in out
    assert "z 5.1" in out
    cut = [line for line in out.splitlines() if not line.startswith("    ") and line != recorded.slower().nodeid]
    assert max(map(len, cut)) <= 80
    assert typed(recorded.TRITON)[1] == out.partition("\n\n")[2]
    status, out, _ = typed("other7")
    assert status == 0
    assert out.startswith("SAME (does not fail its test)\nother/b/w7\n")


def test_a_terminal_may_be_wider_and_coloured(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS is heeded, colours where they are asked for."""
    monkeypatch.setenv("COLUMNS", "130")
    out = typed("--color", "always")[1]
    assert max(len(line) for line in out.splitlines() if not line.startswith("    ")) > 100
    assert "\x1b[1;31mSLOWER\x1b[0m" in out


def test_json_is_one_object(typed: Typed) -> None:
    """With the words, the figures, and the commands."""
    status, out, _ = typed("--json")
    values = json.loads(out)
    assert (status, values["verdict"], values["contradicted"]) == (1, "SLOWER", [])
    assert values["figures"]["relative_sd"] == pytest.approx(0.01, rel=0.01)


def test_a_kernel_is_explained_by_its_key(typed: Typed) -> None:
    """As text and as JSON."""
    stored(recorded.same(), code=(KERNEL,))
    assert typed("bm128")[1].startswith("SAME (does not fail its test)\ncode_objects/triton.flash/bm128/gfx942\n")
    assert json.loads(typed("bm128", "--json")[1])["case"] == "code_objects/triton.flash/bm128/gfx942"


def test_a_doctored_file_is_told_to_be_one(typed: Typed) -> None:
    """Forged verdicts, samples that do not make their median, and a proof that is beyond its budget."""
    slow = recorded.slower()
    beyond = CheckReport((ErrorFigures("c", "out", 9.0, 1.0, 0.1, 1.0, elements=4),))
    first = (replace(slow.first[0], median_us=19.0), *slow.first[1:])
    stored(replace(slow, verdict=Verdict.SAME, fails=False, checks=(beyond,), first=first))
    _, out, _ = typed(recorded.TRITON)
    flat = " ".join(out.split())
    assert "This file contradicts itself, so believe none of it" in flat
    assert "its verdict is stated as SAME, but the 3 processes of its second look give ENVIRONMENT or SLOWER" in flat
    assert "first look, process 1: its median is stated as 19 us" in flat
    assert "it is said to be right: c: 'out' is off by 9" in flat


def test_undecided_lists_what_would_decide_it(typed: Typed) -> None:
    """The number of processes of the decision's own text, pairs beside them, each with its seconds and command."""
    case = recorded.undecided()
    stored(case)
    values = json.loads(typed(recorded.TRITON, "--json")[1])
    processes, pairs = values["options"]
    found = re.fullmatch(r"(\d+) stored processes .* and (\d+) fresh processes instead of 3", processes["what"])
    assert found is not None
    stored_count, fresh = map(int, found.groups())
    assert f"{stored_count} stored and {fresh} fresh processes would decide it" in case.summary
    assert processes["seconds"] == pytest.approx((stored_count + fresh + 1) * recorded.SECONDS_A_PROCESS)
    record, look = processes["commands"]
    assert f"--attnperf-processes={stored_count} " in record
    assert f"--attnperf-second-look={fresh} " in look
    assert pairs["what"].startswith("at most 16 pairs against 4f2c1ab90d11")
    assert pairs["seconds"] == pytest.approx(33 * recorded.SECONDS_A_PROCESS)


def noise_unknown() -> CaseResult:
    """Nothing of its noise is known."""
    unknown = {"threshold": None, "standard_error": None, "interval": None, "degrees_of_freedom": None}
    return replace(recorded.undecided(), **unknown, detection_limit=None)  # type: ignore[arg-type]


def out_of_time() -> CaseResult:
    """A budget ended before its second look."""
    first = recorded.undecided().first
    why = Note(NoteKind.BUDGET, "the budget of 1m ended before its second look")
    return replace(noise_unknown(), second=(), seconds=2.0, summary=str(why), reasons=(why,),
                   median_us=first[0].median_us, ratio=None)  # fmt: skip


def too_noisy() -> CaseResult:
    """Processes 30 % apart."""
    noise = NoiseEstimate(0.3, 18, "given")
    return recorded.by_looks(recorded.TRITON, recorded.processes("B", recorded.TRITON, "slow3"), noise=noise)


def two_pairs() -> CaseResult:
    """Two pairs only, of a 1 % slowdown: their own spread is hardly known."""
    policy = recorded.Policy(threshold_percent=1.0, floor_us=0.1)
    return recorded.by_pairs(recorded.TRITON, recorded.pairs("B", recorded.TRITON, "slow1")[:2], policy)


@pytest.mark.parametrize(
    ("case", "what", "undecidable"),
    [
        (noise_unknown, "a baseline of 7 processes", ""),
        (out_of_time, "both looks of the case alone, 4 processes", ""),
        (too_noisy, "8 pairs against 4f2c1ab90d11; after some pairs it is known", "Not even 200 processes a side"),
        (two_pairs, " pairs against 4f2c1ab90d11 instead of 2", ""),
        (lambda: replace(recorded.undecided(), seconds=0.0), " fresh processes instead of 3", ""),
    ],
)
def test_what_would_decide_is_honest(typed: Typed, case: Callable[[], CaseResult], what: str, undecidable: str) -> None:
    """Where no number would, where the noise or the seconds are not known, and where time ran out."""
    held = case()
    stored(held)
    values = json.loads(typed(recorded.TRITON, "--json")[1])
    assert what in values["options"][0]["what"]
    assert values["undecidable"].startswith(undecidable) if undecidable else not values["undecidable"]
    assert (values["options"][0]["seconds"] is None) == (held.seconds == 0)
    assert values["contradicted"] == []


def test_the_baseline_that_it_was_held_to_is_read(typed: Typed) -> None:
    """What ran and how differs from the entry; an entry that was recorded since says nothing; a folder must be one."""
    case = recorded.same()
    kept = recorded.processes("A", recorded.TRITON, "plain")[:7]
    before = replace(case, verdict=Verdict.RECORDED, first=kept, second=(), config={"BLOCK": "64"},
                     checks=(recorded.RIGHT,) * 7, launches=(Launch("old_kernel"),))  # fmt: skip
    entry = new_entry(before, "4f2c1ab")
    store = BaselineStore(Path("baselines"))
    merge_entries(store, Path("baselines"), "sm_90", "h200", "prefill", {case.key.entry: entry})
    stored(replace(case, config={"BLOCK": "128"}, launches=(Launch("new_kernel"),)))
    out = " ".join(typed(recorded.TRITON)[1].split())
    assert "BLOCK: 128 here, 64 stored" in out
    assert "runs 1 x new_kernel" in out or "runs new_kernel" in out
    stored(replace(case, stored_us=case.stored_us[:6]))
    assert "its entry is not the one that the case was compared with" in " ".join(typed(recorded.TRITON)[1].split())
    status, _, err = typed(recorded.TRITON, "--baselines", "none")
    assert (status, "--baselines none is no folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--results", "gone.json"), "gone.json is no file; explain reads what pytest --attnperf wrote"),
        (("other",), "'other' is part of 119 cases of .attnperf/results.json; name one:"),
        (("tritn.flash/prefill-b4-s1024-h8-d64-f16-causal",), "the nearest names are:"),
    ],
)
def test_what_cannot_be_explained_is_said(typed: Typed, arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2, one text, no traceback."""
    status, out, err = typed(*arguments)
    assert (status, out) == (2, "")
    assert said in err

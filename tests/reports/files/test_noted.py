"""Notes keep their kinds in results files, journals, and between xdist's processes; plain ones are texts as ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind, kind_of
from pytest_attnperf.reports.files.json_results import ResultsFileError, decode, encode
from pytest_attnperf.reports.files.noted import classify_notes, from_values, to_values
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

PATH = Note(NoteKind.OTHER_PATH, "another path ran: ck", "ck")
NOTES = ("plain", Note(NoteKind.CREPT, "crept"), Note(NoteKind.PLAIN, "plain, too"))
CODE = CodeResult(CaseKey("code_objects", "k", "c", "gfx942"), "n", Verdict.SAME, "same", notes=NOTES)


def kinds(texts: tuple[str, ...]) -> list[NoteKind]:
    """The kind of each."""
    return [kind_of(text) for text in texts]


def noted(case: CaseFactory, run: RunFactory) -> RunResult:
    """A run with kinds wherever there may be some."""
    made = run(case(reasons=(PATH,), notes=NOTES), code=(CODE,), notes=(Note(NoteKind.CANDIDATE, "c"),))
    return replace(made, findings=(Note(NoteKind.MISSING_SHARDS, "one is missing"), "crept: x"))


def test_kinds_are_read_as_they_were_written(case: CaseFactory, run: RunFactory) -> None:
    """Of reasons, notes and findings, of a case, of a kernel and of the run."""
    before = noted(case, run)
    after = decode(encode(before), "r.json")
    assert after == before
    [one], [code] = after.cases, after.code
    assert (kinds(one.reasons), kinds(one.notes)) == ([NoteKind.OTHER_PATH], kinds(NOTES))
    assert isinstance(one.reasons[0], Note)
    assert one.reasons[0].about == "ck"
    assert kinds(code.notes) == kinds(NOTES)
    assert (kinds(after.notes), kinds(after.findings)) == (
        [NoteKind.CANDIDATE], [NoteKind.MISSING_SHARDS, NoteKind.PLAIN]
    )  # fmt: skip


def test_a_plain_note_is_a_text_in_the_file(case: CaseFactory, run: RunFactory) -> None:
    """And one of a kind an object."""
    [one] = json.loads(encode(noted(case, run)))["cases"]
    assert one["notes"] == ["plain", {"kind": "crept", "text": "crept"}, "plain, too"]
    assert one["reasons"] == [{"kind": "other path", "text": "another path ran: ck", "about": "ck"}]


class Version(str):
    """As torch's: a text of a class of its own."""

    __slots__ = ()


def test_a_text_of_another_class_is_a_text(case: CaseFactory, run: RunFactory) -> None:
    """A case that ran in the process of pytest has torch's own version in its configuration."""
    read = decode(encode(run(case(config={"torch": Version("2.13.0")}))), "results.json")
    assert read.cases[0].config == {"torch": "2.13.0"}


def test_words_have_no_kind_in_a_file_of_now(case: CaseFactory, run: RunFactory) -> None:
    """Only files of before are told by their texts."""
    after = decode(encode(run(case(notes=("crept: 2 us",)))), "r.json")
    assert kinds(after.cases[0].notes) == [NoteKind.PLAIN]


def test_a_kind_of_a_later_version_is_read_as_a_text(case: CaseFactory, run: RunFactory) -> None:
    """New kinds come without a new schema."""
    text = encode(run(case(reasons=(PATH,)))).replace(b'"other path"', b'"not yet thought of"')
    [reason] = decode(text, "r.json").cases[0].reasons
    assert (reason, type(reason)) == ("another path ran: ck", str)


@pytest.mark.parametrize("odd", [{"kind": "crept"}, {"kind": 1, "text": "x"}, {"kind": "crept", "text": 1}, [], 1])
def test_a_malformed_note_is_refused(case: CaseFactory, run: RunFactory, odd: Any) -> None:
    """By the place where it stands."""
    values = json.loads(encode(run(case(notes=("x",)))))
    values["cases"][0]["notes"] = [odd]
    with pytest.raises(ResultsFileError, match=r"cases\[0\]\.notes\[0\]|cases\[\.\.\.\]\.notes"):
        decode(json.dumps(values).encode(), "r.json")


def test_kinds_reach_the_controller_of_xdist(case: CaseFactory) -> None:
    """As builtins, which is what xdist hands on; what is handed on stays as it is."""
    before = case(reasons=(PATH,), notes=NOTES)
    values = to_values(before)
    for _ in range(2):
        again = from_values(values, CaseResult)
        assert (again, kinds(again.reasons), kinds(again.notes)) == (before, kinds(before.reasons), kinds(NOTES))
    code = from_values(to_values(CODE), CodeResult)
    assert (code, kinds(code.notes)) == (CODE, kinds(NOTES))


OLD_NOTES = {
    "policy loosened since the baseline: threshold_percent 2 -> 5": NoteKind.LOOSENED,
    "crept: 105 us against 100 us on 2026-01-01: +5.0 % since then": NoteKind.CREPT,
    "configuration differs from the baseline's: block_m: 64 here, 128 stored": NoteKind.DRIFTED,
    "what ran has changed since the baseline: k is new": NoteKind.CHANGED,
    "what ran differs from the base side: k is new": NoteKind.CHANGED_SIDE,
    "unchanged: the same machine code was launched in the same way as on the base side": NoteKind.UNCHANGED,
    "the same work was launched as when the baseline was recorded: the code": NoteKind.SAME_LAUNCHES,
    "both sides ran the same files (3): the ratio is that of unchanged code": NoteKind.SAME_FILES,
    "toolchain, base side -> here: rocm: 6 -> 7: this compares the releases, too": NoteKind.RELEASES,
    "baseline under .attnperf/local, recorded 2026-01-01": NoteKind.LOCAL,
    "baseline under .attnperf/local, recorded in this run, in 7 other processes": NoteKind.LOCAL_NEW,
    "near the floor: 10 us is 95 % of it": NoteKind.NEAR_FLOOR,
    "quarantined until 2026-12-31, and not slower: drop the quarantine": NoteKind.NEEDLESS,
    "not profiled: interpreted": NoteKind.NOT_PROFILED,
    "inputs do not fit; stages were not timed: graph capture failed": NoteKind.NO_STAGES,
    "not timed: its test says timed=False; nothing is recorded": NoteKind.PROVEN_ONLY,
    "candidate: image rocm/pytorch:7.0 (docker)": NoteKind.CANDIDATE,
    "of another commit: the results say 'c1', to be judged is c2": NoteKind.OTHER_COMMIT,
    "shards of different commits: c1 in a, c2 in b": NoteKind.MIXED_SHARDS,
    "shards missing: 3 of 4 runs are there": NoteKind.MISSING_SHARDS,
    "threshold 2.0 %: policy 2 % or 0.1 us": NoteKind.LIMIT,
    "noise: 0.5 % per process": NoteKind.NOISE,
    "cards: 0.3 % between cards": NoteKind.CARDS,
    "in cycles +1.0 %: the clock was the same": NoteKind.CYCLES,
    "the canary did not move (gemm +0.1 %)": NoteKind.CANARY,
    "the first look saw +5.0 %": NoteKind.FIRST_LOOK,
    "a slowdown of 2.4 % would have been noticed by this look 99 % of the time": NoteKind.DETECTS,
    "the first look, against the stored baseline, saw +5.0 %": NoteKind.PLAIN,
    "3.1 times faster than stored": NoteKind.PLAIN,
}

FOREIGN, WITH_BASE = "code from another tree ran", "not comparable with the base side: "
ON_PATH = "another path ran: path: ck here, asm stored"
OVER, GONE = "quarantine expired on 2026-01-01: #7; mend it", "unsupported now, but a baseline is stored in p.json: no"
ENDED = "the budget of 1m ended before its second look"
MOVED = "+5.0 %: 105 us against 100 us stored, but the toolchain changed: driver: 1 here, 2 stored"
ONE_TOOLCHAIN = "only measuring both revisions under one toolchain can tell the code from the toolchain"

CASES: tuple[tuple[str, dict[str, Any], list[NoteKind]], ...] = (
    ("INCOMPARABLE", {"summary": FOREIGN, "reasons": ["module k of /x", "l.so"]}, [NoteKind.FOREIGN] * 2),
    ("INCOMPARABLE", {"summary": FOREIGN, "reasons": []}, [NoteKind.FOREIGN]),
    ("INCOMPARABLE", {"summary": f"{ON_PATH}; +1 %", "reasons": [ON_PATH]}, [NoteKind.OTHER_PATH]),
    ("INCOMPARABLE", {"summary": "not comparable: cu: 1, 2", "reasons": ["cu: 1, 2", "workload a: 1, 2"]},
     [NoteKind.MACHINE, NoteKind.WORKLOAD]),
    ("INCOMPARABLE", {"summary": "not comparable: processes: 3", "reasons": ["processes: 3"]}, [NoteKind.PROCESSES]),
    ("INCOMPARABLE", {"summary": "not comparable: base: x", "reasons": ["base: x"], "against": "b"}, [NoteKind.PLAIN]),
    ("INCOMPARABLE", {"summary": f"{WITH_BASE}it is wrong", "reasons": ["it is wrong"]}, [NoteKind.BASE_SIDE]),
    ("INCOMPARABLE", {"summary": "a baseline is stored for sm_90/h100, this is sm_90/h200",
                      "reasons": ["a baseline is stored for sm_90/h100, this is sm_90/h200"]},
     [NoteKind.OTHER_PRODUCT]),
    ("INCOMPARABLE", {"summary": "not every process took the same path: x", "reasons": []}, [NoteKind.MIXED_PATHS]),
    ("ENVIRONMENT", {"summary": MOVED, "reasons": ["noise: 1 %", ONE_TOOLCHAIN]},
     [NoteKind.NOISE, NoteKind.TOOLCHAIN]),
    ("UNDECIDED", {"summary": ENDED, "reasons": [ENDED, "noise: 1 %"]}, [NoteKind.BUDGET, NoteKind.NOISE]),
    ("UNDECIDED", {"summary": ENDED}, [NoteKind.BUDGET]),
    ("SAME", {"summary": OVER, "reasons": [OVER, "SAME: +0.1 %"]}, [NoteKind.EXPIRED, NoteKind.PLAIN]),
    ("UNSUPPORTED", {"summary": GONE, "reasons": [GONE, "no"]}, [NoteKind.GONE, NoteKind.PLAIN]),
    ("SUSPICIOUS", {"summary": "faster than this device can be: 1 us", "reasons": ["faster than this device can be"]},
     [NoteKind.BELOW_FLOOR]),
    ("SUSPICIOUS", {"summary": "remembers its results: x", "reasons": []}, [NoteKind.REMEMBERS]),
    ("SUSPICIOUS", {"summary": "k holds no store of any kind", "reasons": []}, [NoteKind.NO_STORE]),
    ("SUSPICIOUS", {"summary": "the backend promises matrix instructions", "reasons": []}, [NoteKind.NO_MATRIX]),
    ("ERROR", {"summary": "figures contradict each other: x", "reasons": ["figures contradict each other: x"]},
     [NoteKind.CONTRADICTED]),
    ("ERROR", {"summary": "CUDA out of memory", "reasons": ["CUDA out of memory\nTraceback"]},
     [NoteKind.OUT_OF_MEMORY]),
    ("ERROR", {"summary": "worker 0 did not answer 'open'", "reasons": ["worker 0 did not answer 'open'"]},
     [NoteKind.NO_ANSWER]),
    ("ERROR", {"summary": "worker 0 died during 'check'", "reasons": ["worker 0 died during 'check'"]},
     [NoteKind.DIED]),
    ("ERROR", {"summary": "worker 0 ended before 'check'", "reasons": ["x"]}, [NoteKind.DIED]),
    ("ERROR", {"summary": "ValueError: x", "reasons": ["ValueError: x"]}, [NoteKind.PLAIN]),
    ("SLOWER", {"summary": "worker 0 did not answer", "reasons": ["x"]}, [NoteKind.PLAIN]),
)  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), OLD_NOTES.items(), ids=range(len(OLD_NOTES)))
def test_a_note_is_told_by_how_it_begins(text: str, kind: NoteKind) -> None:
    """Each of them as a note of a case and of a run, and as a finding."""
    values: dict[str, Any] = {"cases": [{"summary": "", "notes": [text]}], "findings": [text], "notes": [text]}
    classify_notes(values)
    for note in (*values["cases"][0]["notes"], *values["findings"], *values["notes"]):
        assert (note, kind_of(note)) == (text, kind)


@pytest.mark.parametrize(("verdict", "fields", "kinds"), CASES, ids=range(len(CASES)))
def test_a_cause_is_told_by_summary_and_reasons(verdict: str, fields: dict[str, Any], kinds: list[NoteKind]) -> None:
    """What only the summary says becomes the kind of a reason, as it is written now."""
    case = {"verdict": verdict, **fields}
    classify_notes({"cases": [case]})
    assert [kind_of(reason) for reason in case["reasons"]] == kinds


def test_what_a_note_is_about() -> None:
    """As notes have it that are written now."""
    reasons = {"verdict": "ENVIRONMENT", "summary": MOVED, "reasons": [ONE_TOOLCHAIN]}
    gone = {"verdict": "UNSUPPORTED", "summary": GONE, "reasons": [GONE, ON_PATH]}
    stages = {"summary": "", "notes": ["a; stages were not timed: b", "toolchain, base side -> here: rocm: 6 -> 7"]}
    classify_notes({"cases": [reasons, gone, stages]})
    abouts = [note.about for note in (*reasons["reasons"], *gone["reasons"], *stages["notes"])]  # type: ignore[union-attr]
    assert abouts == [
        "driver: 1 here, 2 stored", "no", "path: ck here, asm stored", "stages were not timed: b", "rocm: 6 -> 7"
    ]  # fmt: skip


def test_an_old_file_is_read_with_kinds(case: CaseFactory, run: RunFactory) -> None:
    """A file of schema 2, as it was: its texts are those of before, and the run is that of now."""
    written = encode(run(case(notes=("crept: 2 us",), reasons=("noise: 1 %",)), findings=("shards missing: 1 of 2",)))
    values = {**json.loads(written), "schema": 2}
    after = decode(json.dumps(values).encode(), "r.json")
    assert [kind_of(text) for text in (*after.cases[0].notes, *after.cases[0].reasons, *after.findings)] == [
        NoteKind.CREPT, NoteKind.NOISE, NoteKind.MISSING_SHARDS
    ]  # fmt: skip
    assert decode(encode(after), "r.json") == after


@pytest.mark.parametrize(
    "odd", [[], {}, {"cases": [1, {"summary": 1}, {"summary": "x", "reasons": [1]}]}, {"notes": 1}]
)
def test_what_is_malformed_is_left(odd: Any) -> None:
    """For the reader of the whole file, which names it."""
    before = json.dumps(odd)
    classify_notes(odd)
    assert json.dumps(odd) == before

"""Facts are data: no part of the package tells one by the words of a note, a reason, a summary or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.prose import Place, places_in, places_of_package

ROOT = Path(__file__).parents[2]

ALLOWED = {
    ("baselines/ceilings_store.py", "drop_figures"): "the form of a stored file: 'figure: note'",
    ("codeobject/triton_function.py", "_import_module"): "Triton's text",
    ("environment/nvidia.py", "read_state"): "nvidia-smi's text",
    ("measure/out_of_memory.py", "_is_out_of_memory"): "torch's text",
    ("measure/patching.py", "find_spec"): "no text: names of modules that are being found",
    ("measure/timers/capture.py", "_synchronising_raises"): "torch's text",
    ("plugin/worker_session.py", "_find_outcome"): "pytest's text of a skip",
    ("plugin/features/gpus/xdist_gpus.py", "busy_text"): "xdist hands on a worker's error as a text only",
    ("reports/files/noted.py", "_classify_summary"): "reads what was written before texts had kinds",
    ("reports/files/noted.py", "_classify_reasons"): "reads what was written before texts had kinds",
    ("reports/run/terminal.py", "_is_said"): "tells nothing: a line that a problem has said already is left out",
    ("session/faults.py", "prefix_cause"): "tells nothing: a word that a foreign text has is not said twice",
    ("tools/doctor/power.py", "_judge_clocks"): "the driver's words for why a clock is low",
    ("tools/history/history_failures.py", "is_passing"): "SQLite's text",
    ("tools/history/history_failures.py", "is_unopenable"): "texts of SQLite and of database drivers",
    ("tools/profilers/claims/claims_page.py", "_describe_error"): "msgspec's text",
    ("tools/profilers/rocpd/rocpd_schema.py", "make_read_error"): "SQLite's text",
    ("tools/tuner/trial_bench.py", "is_death"): "the form of a stored trial: 'died: why'",
    ("tools/tuner/trial_bench.py", "is_wrong"): "the form of a stored trial: 'wrong: why'",
    ("tools/tuner/pruning.py", "_kind_of_reason"): "tells nothing: reasons that begin alike are counted in one line",
}
"""(file, function): whose text it is, and why nobody gives it a kind."""


@pytest.fixture(scope="module")
def places() -> list[Place]:
    """All of the package: reading it takes seconds."""
    return places_of_package(ROOT)


def test_no_fact_is_told_by_words(places: list[Place]) -> None:
    """Everywhere in the package, but for foreign texts and files that were written before."""
    assert [place for place in places if (place.path, place.function) not in ALLOWED] == []


def test_what_is_allowed_is_there(places: list[Place]) -> None:
    """An exception that nothing needs any more is taken out of the list."""
    found = {(place.path, place.function) for place in places}
    assert set(ALLOWED) - found == set()


@pytest.mark.parametrize(
    "code",
    [
        "x = note.startswith('near the floor')",
        "x = [n for n in case.notes if n.startswith(LOOSENED)]",
        "x = any(reason.endswith('again') for reason in case.reasons)",
        "x = case.summary.removeprefix('not comparable: ')",
        "x = run.findings[0].partition(': ')[2]",
        "x = 'canary' in reason",
        "x = FOREIGN in case.reasons",
        "x = MARK not in case.summary.lower()",
        "x = 'is locked' in str(error)",
        "x = str(error.orig).startswith(name)",
        "x = re.match('a slowdown of', reason)",
        "x = PATTERN.search(str(caught))",
        "x = message.find('SIGKILL') >= 0",
        "text = ' '.join((case.summary, *case.reasons)).lower()\n    x = mark in text",
        "for line in case.summary.splitlines():\n        x = line.startswith('noise:')",
        "x = [part for note in case.notes for part in note.split('; ')]",
        "if (said := case.summary) and said.startswith('quarantine'):\n        x = 1",
    ],
)
def test_a_place_that_matches_prose_is_found(code: str) -> None:
    """However the text came there within its function."""
    (place,) = places_in(f"def told(case):\n    {code}\n", "a.py")
    assert (place.path, place.function) == ("a.py", "told")


@pytest.mark.parametrize(
    "code",
    [
        "x = of_kind(case.notes, NoteKind.NEAR_FLOOR)",
        "x = note in case.notes",
        "x = [note for note in case.notes if note not in others.notes]",
        "x = case.reasons.index(reason)",
        "x = case.summary.partition('\\n')[0]",
        "x = str(error).partition(chr(10))[0]",
        "x = case.summary.splitlines()",
        "x = 'gpu' in case.config",
        "x = nodeid.startswith('tests/')",
        "x = str(path).endswith('.json')",
        "x = ', '.join(case.notes)",
        "x = NOTE.startswith('a')",
        "x = re.fullmatch('[0-9]+', commit)",
    ],
)
def test_what_matches_no_prose_is_left(code: str) -> None:
    """Kinds, one note among others, lines of a text, and texts that are names."""
    assert places_in(f"def told(case):\n    {code}\n", "a.py") == []


def test_names_are_bound_in_their_function() -> None:
    """What a name is in one function says nothing of another, and all of those inside of it."""
    source = """
def first(case):
    text = case.summary
    def inner():
        return text.startswith("a")
def second(text):
    return text.startswith("a")
"""
    assert [place.function for place in places_in(source, "a.py")] == ["inner"]

"""What is drawn for a cold reading: docstrings with signatures, and messages with what is filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import read_cold
from benchmarks.read_cold import list_docstrings, list_messages, main


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with one documented method and two messages, one of them too short to be one."""
    folder = tmp_path / "pytest_attnperf"
    folder.mkdir()
    (folder / "a.py").write_text(
        'class A:\n    def read_it(self, path: str) -> int:\n        """Reads it."""\n'
        '        raise ValueError(f"{path} has no line that begins with a number")\n\n'
        'def silent():\n    raise ValueError("too short")\n'
    )
    return tmp_path


def test_docstrings_stand_below_their_signature(tree: Path) -> None:
    """A function without one is not drawn."""
    (text,) = list_docstrings(tree)
    assert text.shown == "A.read_it(self, path: str) -> int\n    Reads it."
    assert text.place == "pytest_attnperf/a.py:2"


def test_messages_show_what_is_filled_in(tree: Path) -> None:
    """As the code names it; a few words are part of another text."""
    (text,) = list_messages(tree)
    assert (text.shown, text.place) == ("{path} has no line that begins with a number", "pytest_attnperf/a.py:4")


def test_a_seed_draws_the_same_texts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places stand in a file of their own, so that nobody sees them while reading."""
    monkeypatch.setattr(read_cold, "TOPS", ("pytest_attnperf/gate", "pytest_attnperf/stats"))
    drawn = []
    for _ in range(2):
        main(["--seed=3", "--docstrings=2", "--messages=1", f"--answers={tmp_path / 'places'}"])
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1]
    assert len((tmp_path / "places").read_text().splitlines()) == 3

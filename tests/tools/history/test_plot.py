from __future__ import annotations

import builtins
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.tools.history import plot as history_plot
from pytest_attnperf.tools.history.plot import write_plot

POINTS = tuple(
    HistoryPoint(f"2026-01-{day:02}", f"{day:012x}", "SAME" if day < 8 else "SLOWER", 100.0 + day, (99.0, 125.0), 100.0)
    for day in range(1, 13)
)
CHANGE = ChangePoint(7, 104.0, 110.0, "a" * 40, "b" * 40, ("torch: 1 -> 2", "driver: 1 -> 2"))
HISTORY = CaseHistory("prefill/ck/w", "sm_90", "h200", POINTS, (CHANGE,))


@pytest.fixture(autouse=True)
def _matplotlib() -> None:
    pytest.importorskip("matplotlib")


def _draw(folder: Path, history: CaseHistory = HISTORY) -> str:
    write_plot(folder / "drawn.svg", [history])
    return (folder / "drawn.svg").read_text(encoding="utf-8")


def _texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_changes_verdicts_and_baseline_are_named(tmp_path: Path) -> None:
    """A change by its size, its commit and what came with it."""
    texts = _texts(_draw(tmp_path))
    for expected in ("+5.8 %", "bbbbbbbbbbbb", "torch: 1 -> 2 ...", "prefill/ck/w", "sm_90/h200"):
        assert expected in texts
    assert {"baseline", "level", "SAME", "SLOWER"} <= set(texts)


def test_the_same_history_gives_the_same_bytes(tmp_path: Path) -> None:
    """No date and no random ids; PNG is a PNG."""
    assert _draw(tmp_path) == _draw(tmp_path)
    assert write_plot(tmp_path / "a.PNG", [HISTORY]) == 0
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_foreign_text_is_text(tmp_path: Path) -> None:
    """Neither markup nor a formula; what XML cannot hold is left out."""
    hostile = "<script>$x^{2$\x00\x1b\ud800|\n" + "y" * 100_000
    points = tuple(replace(one, commit=hostile, verdict=hostile, started=hostile) for one in POINTS)
    change = replace(CHANGE, first_after=hostile, environment=(hostile,))
    svg = _draw(tmp_path, CaseHistory(hostile, hostile, hostile, points, (change,)))
    texts = _texts(svg)
    assert any(text.startswith("<script>$x^{2$") for text in texts)
    assert max(map(len, texts)) <= 120
    assert len(svg) < 200_000


def test_series_beyond_what_a_page_holds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series without a point are not drawn at all."""
    monkeypatch.setattr(history_plot, "SERIES_MAX", 2)
    few = replace(HISTORY, points=POINTS[:1], changes=())
    assert write_plot(tmp_path / "a.svg", [few] * 4 + [replace(few, points=())]) == 2


def test_what_cannot_be_drawn_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suffix, an empty history, a missing library."""
    empty = replace(HISTORY, points=())
    with pytest.raises(UsageError, match=r"cannot be written as 'a\.pdf'; known are \.svg and \.png"):
        write_plot(tmp_path / "a.pdf", [HISTORY])
    with pytest.raises(UsageError, match="none of 1 series has a run with a time"):
        write_plot(tmp_path / "a.svg", [empty])
    real = builtins.__import__

    def fake(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(UsageError, match=r"a plot needs matplotlib .*pip install 'pytest-attnperf\[plots\]'"):
        _draw(tmp_path)

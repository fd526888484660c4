"""docs/judge.md lists every liar, as the code has them."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from pytest_attnperf.testing.liars import LIARS

PAGE = Path(__file__).parents[2] / "docs" / "judge.md"
BEGIN, END = "<!-- liars: begin -->\n", "<!-- liars: end -->"


def table() -> str:
    """One row per liar."""
    rows = [
        (f"`{one.trick}`", one.says, one.verdict.value, "GPU" * one.needs_gpu, "timed" * one.needs_timing)
        for one in LIARS
    ]
    return tabulate(rows, ("liar", "what it does", "verdict", "", " "), tablefmt="pipe") + "\n"


def test_the_page_lists_every_liar() -> None:
    """A trick that is added, renamed or dropped shows on the page; this prints what belongs there."""
    listed = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert listed == table(), f"put this between the markers of {PAGE.name}:\n{table()}"

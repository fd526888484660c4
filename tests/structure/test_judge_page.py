"""tests/judges/README.md lists every liar, as the code has them."""

from __future__ import annotations

from pathlib import Path

from pytest_attnperf.testing.liars import LIARS

PAGE = Path(__file__).parents[2] / "tests" / "judges" / "README.md"
BEGIN, END = "<!-- liars: begin -->\n", "<!-- liars: end -->"


def listing() -> str:
    """Below each verdict a line per liar, with what it needs."""
    lines: list[str] = []
    for verdict in dict.fromkeys(one.verdict for one in LIARS):
        lines += [f"**{verdict.value}**", ""]
        for one in (liar for liar in LIARS if liar.verdict is verdict):
            trial = [f"trial {one.needs_trial}"] * bool(one.needs_trial)
            needs = ", ".join(["GPU"] * one.needs_gpu + ["timed"] * one.needs_timing + trial)
            lines.append(f"- `{one.trick}`{needs and f' ({needs})'}: {one.says}")
        lines.append("")
    return "\n".join(lines)


def test_the_page_lists_every_liar() -> None:
    """A trick that is added, renamed or dropped shows on the page; this prints what belongs there."""
    listed = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert listed == listing(), f"put this between the markers of {PAGE.name}:\n{listing()}"

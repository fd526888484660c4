"""Measures text in terminal cells, pads it for tables, and cuts and wraps foreign text."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable

from pytest_attnperf.reports.text.figures import one_line

ENDS = 200
"""Characters kept at each end of a name that is longer than both."""

CUT = "..."
LONGEST_NAME = 2 * ENDS + len(CUT)
"""Characters of the longest name that is shown."""
_COMMAND = re.compile(
    r"""
    (?:pytest(?=\ [-"'])|attnperf\ [a-z]+(?:\ [a-z]+(?=\ ))?)
    (?:\ (?:-\w\ [^\s-]\S*|-[\w-]+(?:=(?:"[^"]*"|'[^']*'|\S+))?|"[^"]*"|'[^']*'|\S+[/:]\S+|suites/))*
    """,
    re.VERBOSE,
)
"""A command within words, as a message names it: its program, options, and arguments that are quoted or paths."""

_KEPT = "\0"
"""Stands for a space of a command while text is broken."""

GAP = 2
"""Spaces between two columns of a table."""


def display_width(text: str) -> int:
    """Returns the number of terminal cells of a text: 2 for an East Asian wide character, 0 for a combining mark."""
    return len(text) if text.isascii() else sum(map(_count_cells, text))


def pad_text(text: str, width: int, align: str, painted: str | None = None) -> str:
    """Returns text padded to `width` cells; `align` is 'left' or 'right'. `painted` is the text with colours."""
    fill = " " * (width - display_width(text))
    shown = text if painted is None else painted
    return shown + fill if align == "left" else fill + shown


def plain_line(parts: Iterable[str]) -> str:
    """Returns the padded cells of a table row joined to one line, without spaces at its end."""
    return (" " * GAP).join(parts).rstrip()


def both_ends(name: str) -> str:
    """Returns a foreign name without control characters; one of more than 2 x ENDS characters loses its middle."""
    if len(name) > 2 * ENDS:
        name = f"{name[:ENDS]}{CUT}{name[-ENDS:]}"
    return one_line(name, LONGEST_NAME)


def cut_text(text: str, width: int) -> str:
    """Returns text cut to `width` cells: both ends with '...' between them, because names differ at both."""
    if display_width(text) <= width:
        return text
    room = width - len(CUT)
    if room < 2:
        return _cut_head(text, max(0, width))
    tail = _cut_head(text[::-1], room // 2)[::-1]
    return f"{_cut_head(text, room - room // 2)}{CUT}{tail}"


def shorten_distinctly(names: Iterable[str], width: int) -> dict[str, str]:
    """Returns name -> shown text of at most `width` cells. Names that would look the same get a number: 'a...z#2'."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        alike[cut_text(both_ends(name), width)].append(name)
    shown = {same[0]: text for text, same in alike.items() if len(same) == 1}
    taken = set(shown.values())
    for same in alike.values():
        number = 0
        while len(same) > 1 and same[-1] not in shown:
            number += 1
            name = next(name for name in same if name not in shown)
            text = _format_numbered(name, number, width)
            if text not in taken:
                taken.add(text)
                shown[name] = text
    return shown


def wrap_text(text: str, width: int, indent: str = "  ") -> list[str]:
    """Returns lines of at most `width` cells, broken between words, indented from the second. A word that is longer
    stays whole, and so does a command, on a line of its own: they are copied."""
    lines: list[str] = []
    line = ""
    for kept in _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), text).split(" "):
        word = kept.replace(_KEPT, " ")
        longer = f"{line} {word}" if line else word
        if display_width(longer) <= width:
            line = longer
            continue
        if line.strip():
            lines.append(line)
        line = f"{indent if lines else ''}{word}"
    return [*lines, line] if line.strip() or not lines else lines


def cut_before_command(text: str, limit: int) -> str:
    """Returns text cut to `limit` characters, or before the command that the cut would go through."""
    through = next((found for found in _COMMAND.finditer(text) if found.start() < limit < found.end()), None)
    return text if through is None else f"{text[: through.start()]}..."


def _format_numbered(name: str, number: int, width: int) -> str:
    mark = f"#{number}"
    return f"{cut_text(both_ends(name), width - len(mark))}{mark}"


def _cut_head(text: str, width: int) -> str:
    """Returns the longest beginning of `text` that fits into `width` cells."""
    if text.isascii():
        return text[:width]
    used = 0
    for index, character in enumerate(text):
        used += _count_cells(character)
        if used > width:
            return text[:index]
    return text


@functools.lru_cache(maxsize=4096)
def _count_cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1

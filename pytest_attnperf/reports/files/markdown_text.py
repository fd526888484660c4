"""Converts foreign text to GitHub-flavoured Markdown that only shows it.

A workload, a device or a commit may come from a pull request, and a comment is written with a token. Such text must not
end a cell, show an image, make a link, notify anybody, or look like one of our verdicts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from pytest_attnperf.reports.text.figures import one_line

LIMIT = 200
LINE_LIMIT = 2000
APART = "&#8203;"
"""A zero-width space. It keeps GitHub from making a link or a notification of the text around it.

Renovate and Dependabot use it, too. A backslash does not help, because GitHub searches the rendered page for names.
"""

PIECE = 6
"""Hex digits that are too few for GitHub to see a commit."""

_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Invisible or direction-changing characters and lone surrogates, beyond those that `one_line` removes."""

_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_STACKED = re.compile(f"([{_MARKS}]{{3}})[{_MARKS}]+")
"""Combining marks over one letter, so many that they could cover the lines above."""

_MARKUP = {
    "&": "&amp;",
    "<": "&lt;",
    "\\": "&#92;",
    "|": "\\|",
    "*": "\\*",
    "`": "\\`",
    "[": "\\[",
    "~": "\\~",
    "_": "\\_",
    # As GitHub's pages on formulas advise; a backslash works only inside a formula.
    "$": "<span>$</span>",
}
_ACTS = re.compile(
    r"""
      ^(?P<block>[-+#](?=[-+#\s]|$) | >)            # begins a list, a quote or a heading inside an item of a list
    | ^(?P<number>\d)(?=\d{0,8}[.)](?:\s|$))        # begins a numbered list
    | (?P<markup>[&<\\|*`\[~$]
        | (?<![^\W_])_ | _(?![^\W_]))               # at the edge of a word it is emphasis, within 'head_dim' it is not
    | (?P<link>:(?=//) | www(?=\.) | (?:mailto|xmpp)(?=:)
        | @ | \bgh-(?=\d) | \#(?=\d)                # a person, a team, an issue
        | :(?=[\w+-]+:))                            # a picture by its name
    | (?P<commit>\b[0-9a-f]{7,40}\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PLAIN = re.compile(r"[^`|\\<&]+")
_FENCE = re.compile(r"`{3,}")


def make_visible(text: str, limit: int = LIMIT) -> str:
    """Returns the text as one line of at most `limit` characters, without invisible characters."""
    clean = _STACKED.sub(r"\1", _UNSEEN.sub("", text[: 4 * limit]))
    line = " ".join(one_line(clean, 4 * limit).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 3]}..."


def escape_cell(text: str, limit: int = LIMIT) -> str:
    """Returns foreign text as one line for a cell, a list item or a sentence, cut to `limit`, with markup escaped."""
    return _ACTS.sub(_escape_match, make_visible(text, limit))


def format_code(text: str, limit: int = LIMIT) -> str:
    """Returns a foreign name in Markdown's code font, which is safe inside a table, too; '' for an empty name."""
    shown = make_visible(text, limit)
    if not shown:
        return ""
    # In a table, backticks cannot quote a '|' after a backslash, nor other backticks without counting them.
    return f"`{shown}`" if _PLAIN.fullmatch(shown) else f"<code>{_ACTS.sub(_escape_match, shown)}</code>"


def format_html_code(text: str) -> str:
    """Returns a foreign name as HTML <code>, for places where Markdown is not parsed: inside a <summary>."""
    return f"<code>{html.escape(make_visible(text, LIMIT))}</code>"


def format_code_block(lines: Iterable[str], language: str = "") -> str:
    """Returns lines as a fenced Markdown block of `language`, with a fence too long for any line to close."""
    shown = [make_visible(line, LINE_LIMIT) for line in lines]
    opening, closing = fence_lines(
        language, max((len(found) for line in shown for found in _FENCE.findall(line)), default=0)
    )
    return "\n".join([opening, *shown, closing])


def fence_lines(language: str, longest: int = 0) -> tuple[str, str]:
    """Returns the lines around a fenced block in whose lines at most `longest` backticks follow each other."""
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}", fence


def format_table_row(cells: Sequence[str]) -> str:
    """Returns '| a | b |' of cells that are already escaped Markdown."""
    return f"| {' | '.join(cells)} |"


def _escape_match(found: re.Match[str]) -> str:
    text = found.group()
    kind = found.lastgroup
    if kind == "markup":
        return _MARKUP[text]
    if kind == "commit":
        return APART.join(text[start : start + PIECE] for start in range(0, len(text), PIECE))
    return f"\\{text}" if kind == "block" else f"{text}{APART}"

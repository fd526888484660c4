"""No Markdown parser is asked here: what GitHub does with these texts is written down as the rules of its reader."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.reports.files.markdown_text import (
    LINE_LIMIT,
    escape_cell,
    format_code,
    format_code_block,
    format_html_code,
    format_table_row,
    make_visible,
)

ZERO_WIDTH = "\u200b"
ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
HOSTILE = (
    "|", "\\", "`", "``", "*", "_", "__", "[x](http://a.b)", "![i](//c)", "<b>", "</details>", "<!--", "-->", "&lt;",
    "@me", "@org/team", "a@b.c", "#12", "GH-7", "o/r#3", "4f2c1ab", "4f2c1ab90d11", "https://a.b", "www.a.b", "~~",
    "$x$", ":tada:", "- ", "+ ", "# ", "1. ", "2) ", "> ", "---", "\n", "\r\n", "\x1b[31m", "\u202e", "\u200b",
    "\u00ad", "\ud800", "\U000e0041", "e\u0301\u0301\u0301\u0301\u0301", "head_dim", " ", "9",
)  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4)), max_size=12).map("".join)


def shown(markdown: str) -> str:
    """What a reader sees of a cell: escapes and entities read, our own tags gone."""
    plain = re.sub(r"</?(?:span|code)>", "", markdown)
    plain = ESCAPE.sub(lambda found: f"&#{ord(found.group(1))};", plain)
    return html.unescape(plain)


def unescaped(markdown: str, characters: str) -> list[str]:
    """Those of the characters that no backslash takes the meaning from, read from the left as cmark-gfm does."""
    return [character for character in ESCAPE.sub("", markdown) if character in characters]


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_prose_is_shown_and_does_nothing(text: str) -> None:
    """Everything visible is shown, and nothing is markup, a link, a notification, or the start of a block."""
    made = escape_cell(text)
    assert shown(made).replace(ZERO_WIDTH, "") == make_visible(text)
    assert not unescaped(made, "|`*[~\\")
    assert not re.search(r"(?<!\\)\|", made)
    assert set(re.findall(r"<[^>]*>?", made)) <= {"<span>", "</span>"}
    assert not re.search(r"&(?!amp;|lt;|#92;|#8203;)", made)
    assert not re.match(r"[-+#](?:[-+#\s]|$)|>|\d+[.)](?:\s|$)", made)
    seen = shown(made)
    assert not re.search(r"@\w|\bgh-\d|#\d|://|\bwww\.|\b[0-9a-f]{7,40}\b|:[\w+-]+:", seen, re.IGNORECASE)
    assert len(made.splitlines()) <= 1


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_name_is_code_and_nothing_else(text: str) -> None:
    """A name stands between two backticks without any inside, or between tags with everything escaped."""
    made = format_code(text)
    if made.startswith("<code>"):
        inside = made.removeprefix("<code>").removesuffix("</code>")
        assert shown(inside).replace(ZERO_WIDTH, "") == make_visible(text)
        assert not unescaped(inside, "|`*[\\")
        assert set(re.findall(r"<[^>]*>?", inside)) <= {"<span>", "</span>"}
    elif made:
        assert made == f"`{make_visible(text)}`"
        assert not re.search(r"[`|\\<&]", made[1:-1])
    else:
        assert not make_visible(text)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_row_has_its_cells(text: str) -> None:
    """Hostile text in every cell makes neither a cell more nor one less, by cmark's reading and by a simpler one."""
    made = format_table_row([escape_cell(text), format_code(text), "1"])
    assert unescaped(made, "|") == ["|"] * 4
    assert len(re.findall(r"(?<!\\)\|", made)) == 4


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(TEXTS, st.text("`", max_size=9)), max_size=4))
def test_nothing_closes_a_fence(lines: list[str]) -> None:
    """No line inside of a block of code is a fence of its length."""
    first, *inside, last = format_code_block(lines, "sh").split("\n")
    assert first == f"{last}sh"
    assert len(inside) == len(lines)
    assert not any(last in line for line in inside)


@pytest.mark.parametrize(
    "text", ["prefill/hip.flash/prefill-b4-s512-h8-d256-f16-causal", "+6.1 % (-0.4 % .. 3), within 2 %: head_dim", "-5"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """The source of the page stays readable."""
    assert escape_cell(text) == text
    assert format_code(text) == f"`{text}`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@me", "@&#8203;me"),
        ("a|b\\|c", "a\\|b&#92;\\|c"),
        ("fix #12 in o/r#3", "fix #&#8203;12 in o/r#&#8203;3"),
        ("at 4f2c1ab", "at 4f2c1a&#8203;b"),
        ("![x](https://a.b)", "!\\[x](https:&#8203;//a.b)"),
        ("1. one", "1&#8203;. one"),
        ("# big", "\\# big"),
        ("<!-- x -->", "&lt;!-- x -->"),
        ("a\nb\u202ec", "a b c"),
    ],
)
def test_what_is_written(text: str, expected: str) -> None:
    """Each kind of markup in its escaped form."""
    assert escape_cell(text) == expected


def test_text_of_any_length_is_cut() -> None:
    """100 kB are cut to the limit, which counts characters that are seen, and say so."""
    long = "@<|" * 40_000
    assert shown(escape_cell(long, 50)).replace(ZERO_WIDTH, "") == make_visible(long, 50)
    assert len(make_visible(long, 50)) == 50
    assert make_visible(long, 50).endswith("...")
    assert make_visible("\u200b" * 100_000 + "x", 50) == "..."
    assert len(format_code_block(["x" * 100_000])) < LINE_LIMIT + 20


def test_a_title_is_html() -> None:
    """Between tags, where Markdown is not read, a name is escaped as HTML."""
    assert format_html_code("<b>&'\"|*") == "<code>&lt;b&gt;&amp;&#x27;&quot;|*</code>"

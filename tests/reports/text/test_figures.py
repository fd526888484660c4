from __future__ import annotations

import json

import pytest

from pytest_attnperf.reports.text import figures


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "-"), (1.061, "+6.1 %"), (0.95, "-5.0 %"), (0.9996, "0.0 %"), (1.0, "0.0 %"), (3.0, "+200.0 %")],
)
def test_change(ratio: float | None, text: str) -> None:
    """A ratio is a signed percentage, and zero has no sign."""
    assert figures.format_change(ratio) == text


def test_interval_share_and_speedup() -> None:
    """Intervals carry their level, shares are whole percent, speedups have three digits."""
    assert figures.format_interval((1.052, 1.07)) == "95 %: +5.2 % .. +7.0 %"
    assert figures.format_interval(None) == ""
    assert figures.format_share(0.873) == "87 %"
    assert [figures.format_speedup(factor) for factor in (1.0, 12.34, None)] == ["1.00x", "12.3x", "-"]
    assert [figures.format_rate(rate) for rate in (0.5123, 12.34, 1307.4, None)] == ["0.512", "12.3", "1307", "-"]
    assert figures.format_bytes(134217728) == "128.0"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("a\x1b[31mred\x1b[0m", "a [31mred [0m"),
        ("two\nlines\r\tand tab", "two lines and tab"),
        ("over\u202eride", "over ride"),
        ("x" * 100_000, "x" * 17 + "..."),
        ("\n" * 100_000, " ..."),
    ],
)
def test_foreign_text_stays_on_its_line(text: str, safe: str) -> None:
    """No control character and no 100 kB name reaches the terminal."""
    assert figures.one_line(text, 20) == safe


def test_logs_are_cut_at_the_front() -> None:
    """The end of a log is kept, and how much was left out is said."""
    lines = figures.safe_lines("\n".join(f"line {number}" for number in range(10)), 3)
    assert lines == ["... 7 lines before ...", "line 7", "line 8", "line 9"]
    assert figures.safe_lines("one\x1b[2J\n", 3) == ["one [2J"]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("::set-output name=a::b", ": :set-output name=a::b"),
        ("a \u200b::stop-commands::x", "a  : :stop-commands::x"),
        ("a:::b", "a: : :b"),
        ("a##[add-mask]b ##vso[task]", "a# #[add-mask]b # #vso[task]"),
        ("suites/test_a.py::test_b[c] at::native::f", "suites/test_a.py::test_b[c] at::native::f"),
    ],
)
def test_foreign_text_gives_a_ci_system_no_command(text: str, safe: str) -> None:
    """What GitHub and Azure obey in a log is taken apart; names of tests and of C++ stay as they are."""
    assert figures.one_line(text) == safe


def test_json_is_printed_without_what_is_obeyed() -> None:
    """Control letters, DEL, what turns the direction and commands are escapes, and mean what they meant."""
    value = {"a": "x\x7f\x85\u202e\U000e0001 ::set-env##[group]\n", "b": [1]}
    text = figures.printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    assert text.count("\n") == 5
    assert " ::" not in text
    assert "##[" not in text

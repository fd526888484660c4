"""Numbers and foreign text as reports print them. Times are in `records.time_units`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_attnperf.records import ErrorFigures, Tolerance
from pytest_attnperf.records.time_units import format_significant

ABSENT = "-"
BYTES_PER_MIB = 2**20
_PLAIN = " the plain computation's"
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]+"
)
"""Control characters, lone surrogates, and characters that are invisible or change the direction of text."""

_COMMAND = re.compile(r"(?<!\S)::|:{3,}|##(?=\w*\[)")
"""What a CI system takes for a command: GitHub's `::name::` at the start of a line, also after spaces, and `##[name]`
anywhere; Azure's `##vso[name]`."""


def format_change(ratio: float | None) -> str:
    """Returns a ratio new / old as a signed percentage: 1.061 -> '+6.1 %', 0.9996 -> '0.0 %'; '-' for None."""
    if ratio is None:
        return ABSENT
    text = f"{(ratio - 1) * 100:+.1f}"
    return "0.0 %" if text in ("+0.0", "-0.0") else f"{text} %"


def format_interval(interval: Sequence[float] | None) -> str:
    """Returns the 95 % interval of a ratio: (1.052, 1.07) -> '95 %: +5.2 % .. +7.0 %'; '' without one."""
    if interval is None:
        return ""
    return f"95 %: {format_change(interval[0])} .. {format_change(interval[1])}"


def format_share(share: float | None) -> str:
    """Returns a share in whole percent: 0.873 -> '87 %'; '-' for None."""
    return ABSENT if share is None else f"{share * 100:.0f} %"


def format_speedup(factor: float | None) -> str:
    """Returns a factor with two decimals, one from 10 on: 1.0 -> '1.00x', 12.34 -> '12.3x'; '-' for None."""
    return ABSENT if factor is None else f"{factor:.1f}x" if factor >= 10 else f"{factor:.2f}x"


def format_rate(rate: float | None) -> str:
    """Returns a rate in TFLOP/s or GB/s with three significant digits (two below 0.1), without the unit: 0.512,
    1307; '-' for None."""
    return ABSENT if rate is None else format_significant(rate, 3)


BYTES_MOST = 2**63


def format_bytes(count: int | None) -> str:
    """Returns bytes in MiB without the unit: 134217728 -> '128.0'; '-' for None, '2^N or more' for an absurd number."""
    if count is None or abs(count) > BYTES_MOST:  # a file may hold any integer, and Python's are unlimited
        return ABSENT if count is None else f"{'-' if count < 0 else ''}2^{abs(count).bit_length() - 21} or more"
    return f"{count / BYTES_PER_MIB:.1f}"


def format_tolerance(tolerance: Tolerance) -> str:
    """Returns a sentence: "errors up to 3 x the plain computation's are allowed (the paper, table 4)".

    Names multipliers of single outputs: "errors up to 3 x the plain computation's in dq and 2 x in others are".
    """
    own = tolerance.outputs
    named = [f"{factor:g} x{'' if index else _PLAIN} in {name}" for index, (name, factor) in enumerate(own)]
    rest = f"{tolerance.multiplier:g} x{' in others' if own else _PLAIN}"
    source = f" ({tolerance.source})" if tolerance.source else ""
    listed = f"{', '.join(named)} and {rest}" if named else rest
    return f"errors up to {listed} are allowed{source}"


def format_around(figures: ErrorFigures) -> str:
    """Returns values around the worst element, which has stars: 'got 0.5 *7.25* 0.4, expected 0.5 0.3 0.4'; else ''."""
    if len(figures.around_got) < 2 or not figures.worst_index:
        return ""
    middle = figures.worst_index[-1] - figures.around_first
    got, expected = (
        [value if isinstance(value, str) else f"{value:.6g}" for value in values]
        for values in (figures.around_got, figures.around_expected)
    )
    marked = [f"*{value}*" if index == middle else value for index, value in enumerate(got)]
    return f"got {' '.join(marked)}, expected {' '.join(expected)}"


def one_line(text: str, limit: int = 200) -> str:
    """Makes foreign text safe for one line of a terminal or log: no control characters, no commands of a CI system, at
    most `limit` characters.

    A name may come from a file or a pull request. An escape sequence in it must not overwrite the verdict beside it.
    """
    clean = _COMMAND.sub(_break_command, _UNPRINTABLE.sub(" ", text[: 4 * limit]))
    return clean if len(clean) <= limit and len(text) <= 4 * limit else f"{clean[: limit - 3]}..."


def printable_json(text: str) -> str:
    """Returns JSON text, with JSON escapes for the characters that a terminal or a CI system would act on."""
    return _COMMAND.sub(_escape_letter, _UNPRINTABLE.sub(_escape_letter, text))


def safe_lines(text: str, limit: int, width: int = 500) -> list[str]:
    """Returns a log's last `limit` lines, without control characters; a first line counts those left out, if any."""
    lines = text.rstrip().split("\n")
    shown = [one_line(line, width) for line in lines[-limit:]]
    left_out = len(lines) - len(shown)
    return [f"... {left_out} lines before ...", *shown] if left_out else shown


def _break_command(command: re.Match[str]) -> str:
    return " ".join(command.group())


def _escape_letter(found: re.Match[str]) -> str:
    """Returns the matched character as a JSON escape ('\\u001b'). Line breaks stay: they occur only between strings."""
    units = found.group().encode("utf-16-be", "surrogatepass").hex()
    escapes = "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
    return escapes.replace("\\u000a", "\n")

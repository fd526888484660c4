from __future__ import annotations

import base64
import json
import math
import random
import zlib

import pytest

from pytest_attnperf.reports.html.embedding import csp_hash, pack_json, pack_lines, round_figure, script_json


def _lines(packed_text: str) -> list[object]:
    return [json.loads(line) for line in zlib.decompress(base64.b64decode(packed_text)).decode().splitlines()]


def test_script_json_cannot_end_its_element() -> None:
    """No character is left that a page reads as markup, and the value is the same."""
    value = {"</script>": ["<!--", "&amp;", "\u2028\u2029", "]]>"]}
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_script_json_refuses_what_json_cannot_hold() -> None:
    """NaN would be no JSON; it is refused here, and `number` makes it nothing before."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(math.nan)
    assert [round_figure(value) for value in (math.nan, math.inf, -math.inf, None)] == [None] * 4


@pytest.mark.parametrize(("value", "expected"), [(1.23456789, 1.23457), (123456789.0, 123457000.0), (0.0, 0.0)])
def test_number_keeps_six_digits(value: float, expected: float) -> None:
    """More digits than were measured only make the file larger."""
    assert round_figure(value) == expected


def test_packed_is_what_it_was() -> None:
    """Compressed JSON comes back, half a surrogate pair as a question mark, and the same value is the same text."""
    value = {"b": [1, "\u00e9"], "a": "\ud800"}
    assert json.loads(zlib.decompress(base64.b64decode(pack_json(value)))) == {"b": [1, "\u00e9"], "a": "?"}
    assert pack_json(value) == pack_json(value)


@pytest.mark.parametrize("budget", [0, 300, 3_000, 30_000])
def test_packed_lines_keep_their_budget(budget: int) -> None:
    """As many lines as fit are held, the first ones; what says how many is true."""
    draw = random.Random(1)
    lines = [[index, "s", [draw.random() for _ in range(20)]] for index in range(200)]
    text, held = pack_lines(lines, budget)
    assert len(text) <= max(budget, 100)
    assert _lines(text) == lines[:held]
    assert held < len(lines)
    assert held > 0 or budget < 5_000


def test_packed_lines_hold_all_that_fit() -> None:
    """With room enough every line is held, also where they are no whole batch."""
    lines = [[index] for index in range(37)]
    assert pack_lines(lines, 10_000) == (pack_lines(lines, 20_000)[0], 37)
    assert _lines(pack_lines(lines, 10_000)[0]) == lines


def test_csp_hash_is_that_of_the_standard() -> None:
    """The hash of the empty text is the well-known one."""
    assert csp_hash("") == "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"

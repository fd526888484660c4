from __future__ import annotations

import math

import pytest

from pytest_attnperf.tools.export.strict_json import to_json
from tests.tools.export.export_samples import HOSTILE, read_strictly


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_what_is_no_json_is_refused(value: object) -> None:
    """A reader would not take it, or take it for another figure."""
    with pytest.raises(ValueError, match="Out of range float"):
        to_json(value)


def test_a_terminal_sees_plain_letters() -> None:
    """No control character and no line that begins like a command of CI; the values are the same."""
    value = [text for text in HOSTILE if "\ud800" not in text]
    text = to_json(value)
    assert all(line.isprintable() for line in text.splitlines())
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert read_strictly(text) == value

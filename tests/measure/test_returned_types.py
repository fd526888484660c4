"""What a backend's methods return is looked at before it is used; `tests/plugin/test_backend_mistakes.py` has more."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.returned_types import require_prepared, require_reasons


def test_what_prepare_returns_is_looked_at() -> None:
    """Something that is no Prepared, and a choice that is no text, are said with the place of the backend."""
    wrong: Any = {"block": 64}
    with pytest.raises(UsageError, match=r"backends\.py:\d+: mine\.prepare\(\) returned function; return a Prepared"):
        require_prepared(Backend("mine"), lambda: None)
    prepared = Prepared(call=print, tensors=(), convert=lambda new: new, outputs=dict, config=wrong)
    with pytest.raises(UsageError, match=r"mine: config\['block'\] is 64; give text, e\.g\. '64'"):
        require_prepared(Backend("mine"), prepared)


def test_reasons_are_a_list() -> None:
    """The letters of a text would be reasons; None would be none."""
    assert require_reasons(Backend("mine"), ("no",)) == ["no"]
    with pytest.raises(UsageError, match=r"mine\.unsupported_reasons\(\) returned str; return a list of texts"):
        require_reasons(Backend("mine"), "no")

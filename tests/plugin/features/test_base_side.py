from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features import base_side
from pytest_attnperf.plugin.features.base_side import only_on_base, renamed_unseen
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.results import CaseResult

KEY = CaseKey("prefill", "fake.a", "w")
NEW = CaseResult(KEY, "n", Verdict.NO_BASELINE, "", new=True)
AGAINST: Any = SimpleNamespace(name="base side", only_there=lambda _here: [KEY], vanished=("suites/test_old.py",))
CONFIG: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _name: None))


@pytest.mark.parametrize("unfiltered", [True, False])
def test_what_has_gone_is_asked_of_whole_runs(unfiltered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and cases that the base side alone has are findings where everything was selected; else new cases are said
    to be perhaps renamed ones."""
    monkeypatch.setattr(base_side, "is_unfiltered", lambda _config: unfiltered)
    gone = (
        "suites/test_old.py exists on base side and not here: its cases were removed or renamed",
        f"{KEY} exists on base side and not here: it was removed or renamed",
    )
    assert only_on_base(CONFIG, AGAINST, {}) == (gone if unfiltered else ())
    assert only_on_base(CONFIG, None, {}) == ()
    assert bool(renamed_unseen(CONFIG, AGAINST, [NEW])) is not unfiltered
    assert renamed_unseen(CONFIG, AGAINST, []) == ()


def test_xdist_sees_no_base_side() -> None:
    """Where its workers ran the cases, their controller cannot say what has gone, and says that."""
    (note,) = renamed_unseen(CONFIG, None, [NEW])
    assert note.startswith("whether a new case is an old one renamed was not looked at, because workers of xdist")

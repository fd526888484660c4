"""Results in their compact form: what refers to nothing, to too much, or twice to one file is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from pytest_attnperf.records import Launch
from pytest_attnperf.reports.files import compact_form
from pytest_attnperf.reports.files.json_results import ResultsFileError, decode, encode
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

SOURCES = {"a.py": "0a", "b.py": "0b"}


@pytest.fixture
def written(case: CaseFactory, run: RunFactory) -> Any:
    """The JSON of a run whose three cases have everything in common."""
    return json.loads(encode(run(*(case(name, sources=SOURCES, launches=(Launch("k"),) * 2) for name in "abc"))))


def test_what_cases_share_stands_once(written: Any) -> None:
    """Three cases, one entry in every table, and numbers in the cases."""
    shared = written["shared"]
    tables = ("sources", "policy", "fingerprint", "config", "figures", "launches", "reproduce", "compared")
    assert {name: len(shared[name]) for name in tables} == dict.fromkeys(tables, 1)
    assert (shared["files"], shared["sources"]) == ([["a.py", "0a"], ["b.py", "0b"]], [[0, 1]])
    assert [case["launches"] for case in written["cases"]] == [[0, 0]] * 3
    assert all(case["policy"] == case["sources"] == case["reproduce"] == 0 for case in written["cases"])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("cases", 1, "sources"), 1, "$.cases[1].sources is 1, but $.shared.sources has 1 entries, numbered from 0"),
        (("cases", 0, "policy"), -1, "$.cases[0].policy is -1, but $.shared.policy has 1 entries"),
        (("cases", 0, "policy"), True, "$.cases[0].policy must be the number of an entry of $.shared.policy"),
        (("cases", 0, "policy"), {"a": 1}, "$.cases[0].policy must be the number of an entry of $.shared.policy"),
        (("cases", 2, "launches"), [0, 7], "$.cases[2].launches[1] is 7, but $.shared.launches has 1 entries"),
        (("cases", 2, "launches"), 0, "$.cases[2].launches must be a list"),
        (("cases", 0, "checks", 0, "figures", 0), [9], "$.cases[0].checks[0].figures[0] is 9, but $.shared.compared"),
        (
            ("cases", 0, "checks", 0, "figures", 0),
            [0] * 99,
            "figures[0] has 99 values, but $.shared.columns names only 21",
        ),
        (("shared", "sources", 0), [0, 2], "$.shared.sources[0][1] is 2, but $.shared.files has 2 entries"),
        (("shared", "sources", 0), [1, 1], "$.shared.sources[0] names 'b.py' twice"),
        (("shared", "files", 1), ["a.py", "ff"], "$.shared.sources[0] names 'a.py' twice"),
        (("shared", "files", 1), ["a.py"], "$.shared.files[1] must hold 2 texts"),
        (("shared", "reproduce", 0), ["a", 1], "$.shared.reproduce[0][1] must be a text"),
        (("shared", "columns"), ["check", "check"], "$.shared.columns names a column twice"),
        (("shared", "policy"), {}, "$.shared.policy must be a list"),
        (("shared",), [], "$.shared must be an object of tables"),
    ],
)
def test_forged_references_are_refused(written: Any, path: tuple[str | int, ...], value: object, said: str) -> None:
    """By the place in the file, what it holds, and what there is."""
    target = written
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(ResultsFileError) as caught:
        decode(json.dumps(written).encode(), "r.json")
    assert str(caught.value).startswith("r.json is not a results file of this version: ")
    assert said in str(caught.value)
    assert str(caught.value).endswith("; make it again with pytest --attnperf")


def test_a_short_file_stands_for_no_more_than_a_long_one(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases that refer to one large entry again and again are counted with it."""
    written["shared"]["config"][0]["long"] = "x" * 5_000
    monkeypatch.setattr(compact_form, "FULL_BYTES_MAX", 12_000)
    with pytest.raises(ResultsFileError, match=r"\$\.cases\[2\]\.config and the parts before it refer to more than"):
        decode(json.dumps(written).encode(), "r.json")


def test_a_table_of_another_value_is_read_as_any(written: Any) -> None:
    """What an entry holds is checked where a case has it: the field is named there."""
    written["shared"]["fingerprint"][0] = {"must_match": 7, "named": {}}
    with pytest.raises(ResultsFileError, match=r"at `\$\.cases\[0\]\.fingerprint\.must_match`"):
        decode(json.dumps(written).encode(), "r.json")

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, Launch
from pytest_attnperf.reports.files.json_results import (
    FLOAT_FIELDS,
    ResultsFileError,
    build_schema,
    decode,
    encode,
    schema_text,
    write,
)
from pytest_attnperf.reports.run.joined import join_runs
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

SCHEMA_FILE = Path(__file__).parents[3] / "docs/results.schema.json"
REGENERATE = (
    "regenerate it: python -c "
    "'from pytest_attnperf.reports.files.json_results import *; print(schema_text(), end=\"\")'"
)
NOT_FINITE = ErrorFigures("seed 7", "out", math.nan, 0.002, math.inf, 0.0002, (1,), -math.inf, 0.5, 2, 2, 64)


def changed(data: bytes, *path: str | int, to: Any) -> bytes:
    """The JSON with one value replaced."""
    values = json.loads(data)
    target = values
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = to
    return json.dumps(values).encode()


def in_schema_1(run: RunResult) -> Any:
    """A run as schema 1 wrote it: field by field."""
    values = {**msgspec.to_builtins(run, order="deterministic"), "schema": 1}
    for case in values["cases"]:
        for check in case["checks"]:
            for figures in check["figures"]:
                figures.update({name: str_of(figures[name]) for name in FLOAT_FIELDS})
    return values


def str_of(value: float) -> float | str:
    """A number as the file has it."""
    words = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return "NaN" if math.isnan(value) else words.get(value, value)


def test_round_trip(case: CaseFactory, run: RunFactory) -> None:
    """What is written reads back equal, and writing it again gives the same bytes."""
    original = run(case(), case("native.eager", interval=None), findings=("one",))
    data = encode(original)
    assert decode(data, "results.json") == original
    assert encode(decode(data, "results.json")) == data


def test_mappings_are_sorted(case: CaseFactory, run: RunFactory) -> None:
    """The order in which a config was filled does not change the bytes."""
    one, other = case(config={"a": "1", "b": "2"}), case(config={"b": "2", "a": "1"})
    assert encode(run(one)) == encode(run(other))


def test_the_committed_schema_is_current() -> None:
    """docs/results.schema.json is what the code describes."""
    assert SCHEMA_FILE.read_text() == schema_text(), REGENERATE


def test_the_schema_is_the_same_with_every_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.23 adds the empty default of each dict, 0.22 does not; what is published does not depend on it."""
    describe = msgspec.json.schema

    def describe_like_023(kind: Any) -> dict[str, Any]:
        described = describe(kind)
        for definition in described["$defs"].values():
            for found in definition.get("properties", {}).values():
                if found.get("type") == "object":
                    found["default"] = {}
        return described

    monkeypatch.setattr(msgspec.json, "schema", describe_like_023)
    assert SCHEMA_FILE.read_text() == schema_text()


def test_encoded_runs_are_valid(case: CaseFactory, run: RunFactory) -> None:
    """Runs with every kind of field, NaN errors included, fit the published schema, and others do not."""
    check = CheckReport((NOT_FINITE,), ("2 NaN",))
    data = encode(run(case(), case("wrong", checks=(check,)), case("bare", figures=None, fingerprint=None)))
    jsonschema.Draft202012Validator.check_schema(build_schema())
    jsonschema.validate(json.loads(data), build_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(changed(data, "cases", 0, "median_us", to="fast")), build_schema())
    with pytest.raises(jsonschema.ValidationError, match=f"{RESULTS_SCHEMA} was expected"):
        jsonschema.validate(json.loads(changed(data, "schema", to=RESULTS_SCHEMA + 1)), build_schema())


def test_errors_of_a_wrong_output_may_be_nan(case: CaseFactory, run: RunFactory) -> None:
    """NaN and infinite errors survive the file, as strings in it."""
    data = encode(run(case(checks=(CheckReport((NOT_FINITE,)),))))
    values = json.loads(data)
    stored = dict(zip(values["shared"]["columns"], values["cases"][0]["checks"][0]["figures"][0], strict=False))
    assert [stored[name] for name in ("max_error", "rms_error", "worst_got")] == ["NaN", "Infinity", "-Infinity"]
    (figures,) = decode(data, "results.json").cases[0].checks[0].figures
    assert math.isnan(figures.max_error)
    assert replace(figures, max_error=1.0) == replace(NOT_FINITE, max_error=1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_times_may_not_be_nan(case: CaseFactory, run: RunFactory, value: float) -> None:
    """A time that is NaN or infinite is refused by name instead of becoming null."""
    with pytest.raises(
        ResultsFileError, match=r"\$\.cases\[1\]\.median_us is (nan|inf), which is not a measured figure"
    ):
        encode(run(case(), case("b", median_us=value)))


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("schema",), 6, "r.json: field 'schema' is 6, this version reads up to 5; upgrade pytest-attnperf"),
        (("schema",), 0, "r.json: field 'schema' is 0; known: 1 to 5"),
        (("schema",), "1", "r.json has no integer field 'schema'; it is not a results file of pytest-attnperf"),
        (("schema",), True, "r.json has no integer field 'schema'; it is not a results file of pytest-attnperf"),
        (("cases", 0, "median_us"), "fast", r"Expected `float | null`, got `str` - at `$.cases[0].median_us`"),
        (("cases", 0, "median_us"), "NaN", r"Expected `float | null`, got `str` - at `$.cases[0].median_us`"),
        (("cases", 0, "verdict"), "FINE", r"Invalid enum value 'FINE' - at `$.cases[0].verdict`"),
        (("cases", 0, "interval"), [1.0], r"at `$.cases[0].interval`"),
        (("cases", 0, "checks"), {}, r"at `$.cases[0].checks`"),
        (("cases", 0, "checks", 0, "figures", 0), 7, r"at `$.cases[0].checks[0].figures[0]`"),
        (("device",), [], r"at `$.device`"),
    ],
)
def test_wrong_fields_are_named(
    case: CaseFactory, run: RunFactory, path: tuple[str | int, ...], value: object, text: str
) -> None:
    """A field of another type, and a file of another schema, are refused by file, field and what was expected."""
    with pytest.raises(ResultsFileError) as caught:
        decode(changed(encode(run(case())), *path, to=value), "r.json")
    assert str(caught.value).startswith("r.json")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000, b"[1]", b"null", b'"run"', b'{"schema": 1}', b"{}x"],
)
def test_no_results_file(data: bytes) -> None:
    """Empty, truncated, binary, deeply nested and foreign files are clean errors that name the file."""
    with pytest.raises(ResultsFileError, match=r"^some/results\.json "):
        decode(data, "some/results.json")


def test_a_truncated_file_at_any_length(case: CaseFactory, run: RunFactory) -> None:
    """No prefix of a file reads as a run."""
    data = encode(run(case())).rstrip()
    for length in range(0, len(data), 97):
        with pytest.raises(ResultsFileError):
            decode(data[:length], "results.json")


@pytest.mark.parametrize(
    ("word", "said"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"), ("1e999", "inf")]
)
def test_words_that_are_no_json(case: CaseFactory, run: RunFactory, word: str, said: str) -> None:
    """NaN and Infinity as other writers put them into JSON are refused by file and field."""
    data = changed(encode(run(case(), case("b"))), "cases", 1, "first", 0, "block_us", 2, to="HERE")
    with pytest.raises(ResultsFileError) as caught:
        decode(data.replace(b'"HERE"', word.encode()), "r.json")
    assert str(caught.value) == (
        f"r.json: $.cases[1].first[0].block_us[2] is {said}, which is not a measured figure and not JSON"
    )


def test_a_newer_file_is_refused_before_it_is_read(case: CaseFactory, run: RunFactory) -> None:
    """A newer schema may look quite different: what is said is to upgrade, not which field is odd."""
    with pytest.raises(
        ResultsFileError, match=r"^r\.json: field 'schema' is 7, this version .* upgrade pytest-attnperf$"
    ):
        decode(b'{"schema": 7, "cases": {"verdict": "FINE"}, "device": []}', "r.json")


def test_unknown_fields_are_ignored(case: CaseFactory, run: RunFactory) -> None:
    """What a later version of the same schema adds changes nothing for this one."""
    data = changed(encode(run(case())), "cases", 0, "not_yet", to={"deep": [1]})
    assert decode(changed(data, "also", to=None), "r.json") == run(case())


def test_files_of_the_first_form_are_read(case: CaseFactory, run: RunFactory) -> None:
    """A file of schema 1, in full and with or without the fields that were added since, reads as the same run."""
    wrong = case("wrong", sources={"a.py": "00"}, launches=(Launch("k"),), checks=(CheckReport((NOT_FINITE,), ("2",)),))
    for one in (run(case()), run(wrong)):
        data = in_schema_1(one)
        assert repr(decode(json.dumps(data).encode(), "r.json")) == repr(one)
        for added in ("code", "breakdown", "profile", "stored_us", "stored_commit", "stored_at", "detection_limit"):
            del data["cases"][0][added]
        for added in ("code", "run_id", "provenance"):
            del data[added]
        assert repr(decode(json.dumps(data, indent=2).encode(), "r.json")) == repr(one)


def test_a_case_twice_is_read(case: CaseFactory, run: RunFactory) -> None:
    """A file may hold a case twice, as one that was put together may; both are there, and `join` says it."""
    read = decode(encode(run(case(), case(ratio=1.2))), "r.json")
    assert [one.ratio for one in read.cases] == [1.061, 1.2]
    assert "occurs twice" in join_runs([("r.json", read)]).notes[0]


def test_a_deeply_nested_value(case: CaseFactory, run: RunFactory) -> None:
    """What is nested in a field of any form is read and written again; what is nested without end is refused."""
    plain = encode(run(case()))
    data, endless = (
        plain.replace(b'{"threshold_percent":2.0}', b'{"a":' + b"[" * depth + b"]" * depth + b"}")
        for depth in (200, 100_000)
    )
    assert encode(decode(data, "r.json")) == data
    with pytest.raises(ResultsFileError, match=r"^r\.json is not a results file of this version"):
        decode(endless, "r.json")


def test_depth_that_only_another_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12's own JSON reader goes deeper than a function may call itself: the file is refused all the same."""
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]
    monkeypatch.setattr(json, "loads", lambda data: nested)
    with pytest.raises(ResultsFileError, match=r"^r\.json is not a results file of this version"):
        decode(b'{"schema": 1}', "r.json")


def test_what_is_said_of_a_foreign_file_is_short(case: CaseFactory, run: RunFactory) -> None:
    """A verdict of 100 kB with escape sequences is refused in one line without them."""
    with pytest.raises(ResultsFileError, match="Invalid enum value") as caught:
        decode(changed(encode(run(case())), "cases", 0, "verdict", to="\x1b[31m" * 20_000), "r.json")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_a_value_that_is_too_deep_to_write(case: CaseFactory, run: RunFactory) -> None:
    """Writing says what is wrong, too."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ResultsFileError, match="results: some value is nested too deep"):
        encode(run(case(policy={"a": nested})))
    while nested:
        nested = nested.pop()


def test_half_a_surrogate_pair(case: CaseFactory, run: RunFactory) -> None:
    """A path whose bytes are no UTF-8 does not cost the run: its odd bytes are written as escapes."""
    odd = os.fsdecode(b"suites/caf\xe9.py")
    read = decode(encode(run(case(nodeid=odd, config={odd: "1"}), command=odd)), "r.json")
    assert (read.command, read.cases[0].nodeid) == (r"suites/caf\udce9.py",) * 2
    assert read.cases[0].config == {r"suites/caf\udce9.py": "1"}


def test_one_change_is_one_line(case: CaseFactory, run: RunFactory) -> None:
    """Every field of a case has a line of its own, its blocks and all that is deeper too: two files can be compared."""
    before, after = (encode(run(case(), case("b", floor_us=us))).decode().splitlines() for us in (16.0, 17.5))
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [
        ('   "floor_us": 16.0,', '   "floor_us": 17.5,')
    ]
    assert sum('"block_us"' in line for line in before) == 4


def test_ten_thousand_cases_in_proportion() -> None:
    """A case of 1 process and 30 blocks takes less than 2 kB, and the time to write and read it does not run away."""
    made = sample_run(1000)
    started = time.process_time()
    data = encode(made)
    read = decode(data, "r.json")
    assert time.process_time() - started < 3
    assert read == made
    assert len(data) < 1_800 * len(made.cases)


def test_write(tmp_path: Path, case: CaseFactory, run: RunFactory) -> None:
    """Writing makes the folder, replaces the old file, and leaves nothing else behind."""
    path = tmp_path / ".attnperf/results.json"
    write(path, run(case()))
    write(path, run(case("b")))
    assert decode(path.read_bytes(), str(path)) == run(case("b"))
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: CaseFactory, run: RunFactory
) -> None:
    """When the disk is full the old file stays whole and no temporary file remains."""
    path = tmp_path / "results.json"
    write(path, run(case()))
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, run(case("b")))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("max_error", -1.0, "an error or a budget of 'out' is negative"),
        ("rms_budget", -1e-9, "an error or a budget of 'out' is negative"),
        ("max_error", 0.0, "max_error of 'out' is 0, but worst_got is 0.5 and worst_expected 0.25"),
    ],
)
def test_errors_that_no_comparison_gives_are_refused(
    case: CaseFactory, run: RunFactory, field: str, value: float, said: str
) -> None:
    """A negative error, and none beside values that differ, are named with their place in the file."""
    sound = ErrorFigures("c", "out", 0.25, 1.0, 0.1, 1.0, worst_got=0.5, worst_expected=0.25, elements=4)
    plain = in_schema_1(run(case(checks=(CheckReport((sound,)),))))
    plain["cases"][0]["checks"][0]["figures"][0][field] = value
    with pytest.raises(ResultsFileError, match=rf"r\.json is not a results file.*{said}.*figures\[0\]"):
        decode(json.dumps(plain).encode(), "r.json")


def test_a_key_that_stands_twice_is_refused(case: CaseFactory, run: RunFactory) -> None:
    """A file must not show its reader another value than the one that counts."""
    data = encode(run(case()))
    assert decode(data, "r.json").cases
    for place, key in ((b'"mode": ', "mode"), (b'"verdict":', "verdict")):
        twice = data.replace(place, place + b'"SAME", ' + place, 1)
        assert twice != data
        with pytest.raises(ResultsFileError, match=f"r.json: the key '{key}' stands twice in one object: a run writes"):
            decode(twice, "r.json")

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema  # type: ignore[import-untyped]
import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures
from pytest_attnperf.reports.json_results import ResultsFileError, decode, encode, schema, schema_text, write
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

SCHEMA_FILE = Path(__file__).parents[2] / "docs/results.schema.json"
REGENERATE = (
    "regenerate it: python -c 'from pytest_attnperf.reports.json_results import *; print(schema_text(), end=\"\")'"
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


def test_encoded_runs_are_valid(case: CaseFactory, run: RunFactory) -> None:
    """Runs with every kind of field, NaN errors included, fit the published schema, and others do not."""
    check = CheckReport((NOT_FINITE,), ("2 NaN",))
    data = encode(run(case(), case("wrong", checks=(check,)), case("bare", figures=None, fingerprint=None)))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(data), schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(changed(data, "cases", 0, "median_us", to="fast")), schema())


def test_errors_of_a_wrong_output_may_be_nan(case: CaseFactory, run: RunFactory) -> None:
    """NaN and infinite errors survive the file, as strings in it."""
    data = encode(run(case(checks=(CheckReport((NOT_FINITE,)),))))
    stored = json.loads(data)["cases"][0]["checks"][0]["figures"][0]
    assert [stored[name] for name in ("max_error", "rms_error", "worst_got")] == ["NaN", "Infinity", "-Infinity"]
    (figures,) = decode(data, "results.json").cases[0].checks[0].figures
    assert math.isnan(figures.max_error)
    assert replace(figures, max_error=0.0) == replace(NOT_FINITE, max_error=0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_times_may_not_be_nan(case: CaseFactory, run: RunFactory, value: float) -> None:
    """A time that is NaN or infinite is refused by name instead of becoming null."""
    with pytest.raises(ResultsFileError, match=r"\$\.cases\[1\]\.median_us is (nan|inf), which no measured figure"):
        encode(run(case(), case("b", median_us=value)))


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("schema",), 2, "r.json: field 'schema' is 2, this version reads up to 1; upgrade pytest-attnperf"),
        (("schema",), 0, "r.json: field 'schema' is 0; known: 1 to 1"),
        (("schema",), "1", "r.json has no integer field 'schema'; it is no results file of pytest-attnperf"),
        (("schema",), True, "r.json has no integer field 'schema'; it is no results file of pytest-attnperf"),
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
    [b"", b"{", b"\xff\xfe", b'{"schema": 1, "x": NaN}', b"[" * 100_000, b"[1]", b"null", b'{"schema": 1}'],
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

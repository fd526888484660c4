"""What a baseline file holds, how it is read, checked and written, and the line that a reviewer of a diff reads."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest

from pytest_attnperf.baselines.acceptance import Acceptance
from pytest_attnperf.baselines.schema import (
    BaselineFile,
    Check,
    Entry,
    content_id,
    decode_baseline,
    encode_baseline,
    format_digits,
    format_summary,
    json_text,
    to_plain,
)
from pytest_attnperf.baselines.writing import list_lost_fields
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Fingerprint, ProcessSummary, Tolerance
from pytest_attnperf.records.notes import Note, NoteKind
from tests.baselines.edits import replace_field

HERE = Fingerprint({"product": "h200", "arch": "sm_90"}, {"torch": "2.11"})
POLICY: dict[str, Any] = {"threshold_percent": 2.0, "fail_on": ["SLOWER"]}
KEY = "native.eager/prefill-b1-s16-h4-d32-f16"


def sample(commit: str = "") -> BaselineFile:
    """A file of one entry with two processes."""
    processes = tuple(ProcessSummary(us, us - 1, us + 1, (us - 1, us, us + 1), 20, "graph") for us in (100.0, 101.5))
    entry = Entry(
        workload={"heads": 4, "causal": True},
        environment=content_id(HERE),
        policy=content_id(POLICY),
        processes=processes,
        check=Check(0.43, 0.31, Tolerance(3.0, "ROCm/aiter test_mha.py")),
        recorded="2026-01-02",
        harness_version="0.1.0",
        commit=commit,
        peak_memory_bytes=4096,
        config={"BLOCK_M": "64"},
    )
    return BaselineFile(
        1, "prefill", "sm_90", "h200", {content_id(HERE): HERE}, {content_id(POLICY): POLICY}, {KEY: entry}
    )


def edited(*path: str | int, value: Any) -> bytes:
    """The sample's text with one field replaced."""
    return replace_field(encode_baseline(sample()), *path, value=value)


def test_a_file_reads_back_as_written() -> None:
    """Decoding an encoded file gives an equal one, and encoding that the same bytes."""
    data = encode_baseline(sample())
    assert decode_baseline(data, "x.json") == sample()
    assert encode_baseline(decode_baseline(data, "x.json")) == data


def test_the_text_is_made_for_diffs() -> None:
    """Keys are sorted, each process and each small field has a line of its own, and the last line ends."""
    text = encode_baseline(sample()).decode()
    lines = text.splitlines()
    assert text.endswith("}\n")
    assert sum('"median_us"' in line for line in lines) == 2
    assert '        {"median_us":100.0,"min_us":99.0,"mean_us":101.0,"block_us":[99.0,100.0,101.0],' in text
    assert '      "workload": {"causal":true,"heads":4},' in lines
    assert max(len(line) for line in lines) < 200


def test_a_summary_that_lies_is_found() -> None:
    """A reviewer reads one line of an entry: where it says another time than the processes do, the file is refused."""
    honest = encode_baseline(sample()).decode()
    line = "100.8 us, 2 processes within 1.5 %, error 0.43 of budget, recorded 2026-01-02"
    assert f'      "summary": "{line}",' in honest.splitlines()
    for lie in (honest.replace("100.8 us", "90.75 us"), honest.replace('"median_us":101.5', '"median_us":151.5')):
        with pytest.raises(
            BaselineError, match=rf"entry '{KEY}': field `summary` is '.*', but its content gives '.*by hand"
        ):
            decode_baseline(lie.encode(), "x.json")
    dirty = encode_baseline(sample(commit="4f2c1ab90d11+dirty"))
    decode_baseline(dirty.replace(b"from 4f2c1ab90d11+dirty", b"from 4f2c1ab90d11"), "x.json")  # as 0.1.0 wrote it
    unsaid = edited(*ENTRY, "summary", value="")
    assert decode_baseline(unsaid, "x.json") == sample()


def test_acceptances_are_stored_only_where_there_are_any() -> None:
    """An entry that nobody accepted keeps its text; one that was reads back with the whole history."""
    assert b"accepted" not in encode_baseline(sample())
    told = Acceptance("exact softmax", "Ada", "2026-12-01", "7 processes", 101.0, 99.0, changes=("runs a, which",))
    entry = dataclasses.replace(sample().entries[KEY], accepted=(told, told))
    file = dataclasses.replace(sample(), entries={KEY: entry})
    assert decode_baseline(encode_baseline(file), "x.json").entries[KEY].accepted == (told, told)
    assert list_lost_fields(encode_baseline(file), file, "x.json") == []


def test_the_order_of_entries_does_not_depend_on_who_came_first() -> None:
    """Two files of the same content in another order have the same bytes."""
    file = sample()
    one = {KEY: file.entries[KEY], "ck/x": file.entries[KEY]}
    other = dict(reversed(one.items()))
    texts = {
        encode_baseline(BaselineFile(1, "prefill", "sm_90", "h200", file.environments, file.policies, entries))
        for entries in (one, other)
    }
    assert len(texts) == 1


def test_the_stored_check_is_the_measurements_proof() -> None:
    """An entry gives back a measurement of all its processes, proven right by the stored errors and tolerance."""
    measurement = sample().entries[KEY].to_measurement()
    assert measurement.medians_us == (100.0, 101.5)
    assert measurement.peak_memory_bytes == 4096
    figure = measurement.proof[0].figures[0]
    assert (figure.max_error, figure.max_budget, figure.rms_error) == (0.43, 1.0, 0.31)
    assert measurement.proof[1].tolerance.source == "ROCm/aiter test_mha.py"


def test_an_id_is_of_the_content_not_of_its_order() -> None:
    """Equal content hashes alike whatever its order; any change gives another id."""
    assert content_id({"a": 1, "b": [1, 2]}) == content_id({"b": (1, 2), "a": 1})
    assert content_id(HERE) != content_id(Fingerprint(HERE.must_match, {"torch": "2.12"}))


def test_plain_is_what_json_gives_back() -> None:
    """Dataclasses, tuples and mappings become exactly what decoding their JSON would give."""
    value = {"process": sample().entries[KEY].processes[0], "shape": (4, (5, None)), "flag": True}
    assert to_plain(value) == msgspec.json.decode(msgspec.json.encode(to_plain(value)))


def anchor(median_us: float) -> dict[str, Any]:
    """An anchor as the text holds it."""
    return {"median_us": median_us, "recorded": "2026-01-02", "environment": content_id(HERE)}


def told(**changes: Any) -> dict[str, Any]:
    """An acceptance as the text holds it."""
    return {"reason": "why", "author": "Ada", "date": "2026-12-01", "how": "7 processes", "after_us": 1.0, **changes}


ENTRY = ("entries", KEY)
PROCESS = (*ENTRY, "processes", 0)
NAMED = f"x.json: entry '{KEY}': "


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("schema",), 2, "x.json: field `schema` is 2; this version reads 1. Use the pytest-attnperf that wrote it"),
        (("schema",), None, "x.json: field `schema` is None, expected the integer 1"),
        (("schema",), True, "x.json: field `schema` is True, expected the integer 1"),
        (("suite",), 3, "x.json: Expected `str`, got `int` - at `$.suite`"),
        (("entries",), [], "x.json: Expected `object`, got `array` - at `$.entries`"),
        (ENTRY, 7, NAMED + "Expected `object`, got `int`"),
        ((*ENTRY, "processes"), [], NAMED + "field `processes` is empty"),
        ((*PROCESS, "median_us"), "1", NAMED + "Expected `float`, got `str` - at `$.processes[0].median_us`"),
        ((*PROCESS, "median_us"), None, NAMED + "Expected `float`, got `null` - at `$.processes[0].median_us`"),
        ((*PROCESS, "median_us"), 0, NAMED + "field `processes[0]` holds a time that is not positive"),
        ((*PROCESS, "block_us"), [1, -2], NAMED + "field `processes[0]` holds a time that is not positive"),
        ((*ENTRY, "canary"), "zz", NAMED + "field `canary` names 'zz', which is not in `canaries`"),
        ((*ENTRY, "anchor"), anchor(0), NAMED + "field `anchor.median_us` is not positive, in microseconds per call"),
        ((*ENTRY, "accepted"), [told(reason="a\nb")], NAMED + "field `accepted[0]`: `reason` is not one line"),
        ((*ENTRY, "accepted"), [told(author="")], NAMED + "field `accepted[0]`: `author` is empty"),
        ((*ENTRY, "accepted"), [told(date="today")], NAMED + "field `accepted[0]`: `date` is 'today', expected"),
        ((*ENTRY, "accepted"), [told(after_us=0)], NAMED + "field `accepted[0]`: `after_us` is 0.0, expected a time"),
        ((*PROCESS, "timer"), "host", NAMED + "field `processes` mixes timers"),
        ((*ENTRY, "environment"), "zz", NAMED + "field `environment` names 'zz', which is not in `environments`"),
        ((*ENTRY, "policy"), "zz", NAMED + "field `policy` names 'zz', which is not in `policies`"),
        ((*ENTRY, "check", "max_error_over_budget"), 1.5, NAMED + "field `check.max_error_over_budget` is 1.5"),
        ((*ENTRY, "check", "tolerance", "multiplier"), -1, NAMED + "tolerance multiplier must be positive, got -1.0"),
    ],
)
def test_an_unsound_field_is_named(path: tuple[str | int, ...], value: object, text: str) -> None:
    """Every wrong type or impossible value is an error naming file, entry and field."""
    with pytest.raises(BaselineError) as caught:
        decode_baseline(edited(*path, value=value), "x.json")
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("kind", ["environments", "policies", "canaries"])
def test_edited_content_is_found(kind: str) -> None:
    """Content that no longer hashes to its id was edited by hand, and is not trusted."""
    raw = msgspec.json.decode(encode_baseline(sample()))
    identity = next(iter(raw[kind]), "0123")
    raw[kind][identity] = {"must_match": {}, "named": {}, "threshold_percent": 50} if kind != "canaries" else {}
    with pytest.raises(BaselineError, match=f"field `{kind}` has '{identity}', whose content hashes to .* by hand"):
        decode_baseline(msgspec.json.encode(raw), "x.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        encode_baseline(sample())[:-200],
        b"[" * 100_000,
        encode_baseline(sample()).replace(b"100.0,", b"NaN,"),
        b'{"schema": 1, "a": "\xff"}',
    ],
    ids=["empty", "brace", "binary", "truncated", "nested", "NaN", "no UTF-8"],
)
def test_what_is_no_json_is_a_clean_error(data: bytes) -> None:
    """Empty, truncated, binary, absurdly nested and NaN-holding files are BaselineErrors naming the file."""
    with pytest.raises(BaselineError, match=r"^x\.json: "):
        decode_baseline(data, "x.json")


def test_a_number_beyond_floats_is_refused() -> None:
    """A time too large for a float is named by its field rather than becoming infinite."""
    data = encode_baseline(sample()).replace(b'"median_us":100.0', b'"median_us":1e999')
    with pytest.raises(BaselineError, match="Number out of range"):
        decode_baseline(data, "x.json")


def test_unknown_fields_are_counted_as_lost() -> None:
    """A field this version does not know is readable but named, so that a rewrite can refuse to drop it."""
    data = edited(*PROCESS, "fan_rpm", value=1980)
    assert list_lost_fields(data, decode_baseline(data, "x.json"), "x.json") == [
        f"$.entries.{KEY}.processes[0].fan_rpm"
    ]
    assert list_lost_fields(encode_baseline(sample()), sample(), "x.json") == []


def test_a_value_that_is_nested_too_deep_is_a_baseline_error() -> None:
    """A stored value that exhausts the stack is refused, and ends nothing else."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(BaselineError, match="nested too deep"):
        to_plain(value)


def entry(*medians_us: float) -> Entry:
    """An entry of processes with these medians."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians_us)
    check = Check(0.126, 0.413)
    return Entry({}, environment="e", policy="p", processes=processes, check=check, recorded="2026-11-20",
                 harness_version="0.1.0", commit="0123abcdef123456")  # fmt: skip


def test_it_says_what_a_reviewer_must_know() -> None:
    """Time, how many processes and how far apart, the worse error, when and from what; then the last acceptance."""
    line = "154.4 us, 3 processes within 0.39 %, error 0.41 of budget, recorded 2026-11-20 from 0123abcdef12"
    assert format_summary(entry(154.4, 154.9, 154.3)) == line
    dirty = dataclasses.replace(entry(154.4, 154.9, 154.3), commit="0123abcdef12+dirty")
    assert format_summary(dirty) == f"{line}+dirty"
    accepted = tuple(Acceptance(reason, "Ada", "2026-12-01", "7 processes", 1.0) for reason in ("first", "last"))
    one = dataclasses.replace(entry(18.0), commit="", accepted=accepted)
    expected = "18.00 us, 1 process, error 0.41 of budget, recorded 2026-11-20, accepted 2026-12-01 (7 processes): last"
    assert format_summary(one) == expected


@pytest.mark.parametrize("medians_us", [(), (0.0, 0.0), (math.nan, 1.0)])
def test_an_unsound_entry_has_a_line_too(medians_us: tuple[float, ...]) -> None:
    """What is no time is refused when the text is read, by name, and not by a crash here."""
    assert "us, " in format_summary(entry(*medians_us))


@pytest.mark.parametrize(
    ("value", "text"),
    [(18.841, "18.84"), (104312.0, "104312"), (0.0041, "0.004100"), (0.0, "0"), (1e-9, "0.000000001000")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    """Four significant digits, as many decimals as they need."""
    assert format_digits(value) == text


def test_a_note_is_stored_as_its_text() -> None:
    """A kind is nothing that a baseline holds, and JSON of a stored value knows texts only."""
    value = to_plain({"changes": (Note(NoteKind.MACHINE, "power cap: 700 W here, 350 W stored"),)})
    assert type(value["changes"][0]) is str
    assert b'"power cap: 700 W here, 350 W stored"' in json_text(value, open_levels=1)

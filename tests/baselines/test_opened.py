"""A baseline file of which only what is asked for is decoded: never another answer than reading it whole."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.baselines import store as opened_module
from pytest_attnperf.baselines.schema import BaselineFile, Check, Entry, content_id, decode_baseline, encode_baseline
from pytest_attnperf.baselines.store import OpenedFile, open_baseline
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Fingerprint, ProcessSummary

HERE = Fingerprint({"product": "h200"}, {"torch": "2.11"})
POLICY = {"threshold_percent": 2.0}
KEYS = ("ck/a", "ck/b", "ck/\u00fc-1")


def sample() -> BaselineFile:
    """A file of three entries, with a canary behind them."""
    process = ProcessSummary(5.0, 4.0, 6.0, (5.0, 5.25), 20, "graph")
    canary = {"gemm": (dataclasses.replace(process, block_us=()),)}
    entry = Entry(
        workload={"heads": 4},
        environment=content_id(HERE),
        policy=content_id(POLICY),
        processes=(process, process),
        check=Check(0.5, 0.25),
        recorded="2026-01-02",
        harness_version="0.1.0",
        canary=content_id(canary),
    )
    entries = {key: dataclasses.replace(entry, note=key) for key in KEYS}
    tables = ({content_id(HERE): HERE}, {content_id(POLICY): POLICY}, entries, {content_id(canary): canary})
    return BaselineFile(1, "prefill", "sm_90", "h200", *tables)


TEXT = encode_baseline(sample()).decode()


def read_whole(data: bytes) -> BaselineFile:
    """The opened file with all its entries."""
    file = open_baseline(data, "x.json")
    return dataclasses.replace(file.tables, entries={key: file.read_entry(key) for key in file})


def outcome(read: Callable[[bytes], BaselineFile], data: bytes) -> BaselineFile | str:
    """What was read, or the name of the file that is refused."""
    try:
        return read(data)
    except BaselineError as error:
        return str(error).partition(":")[0]


def decoded(data: bytes) -> BaselineFile:
    """The whole file at once."""
    return decode_baseline(data, "x.json")


def is_lazy(file: OpenedFile, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether reading an entry decodes it."""
    with monkeypatch.context() as patch:
        patch.setattr(opened_module, "_decode_entry", lambda *_: "decoded now")
        return file.read_entry(KEYS[0]) == "decoded now"


def test_entries_are_decoded_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file as we write it is opened without reading its entries, and gives each of them as the whole file does."""
    file = open_baseline(TEXT.encode(), "x.json")
    assert is_lazy(file, monkeypatch)
    assert [*file] == sorted(KEYS)
    assert KEYS[1] in file
    assert "ck/c" not in file
    assert read_whole(TEXT.encode()) == decoded(TEXT.encode()) == sample()


def test_stored_baselines_are_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every baseline file of this repository has the layout that is opened without reading its entries."""
    monkeypatch.setattr(opened_module, "decode_baseline", lambda data, source: pytest.fail(f"{source} was read whole"))
    paths = sorted((Path(__file__).parents[2] / "baselines" / "sm_90" / "h200").glob("*.json"))
    keys = [key for path in paths for key in open_baseline(path.read_bytes(), path.name)]
    assert keys == [key for path in paths for key in json.loads(path.read_bytes())["entries"]] != []


def test_a_file_that_was_laid_out_anew_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other white space is no error: such a file costs the time of reading all of it, and says the same."""
    data = TEXT.replace('    "ck/b": {', '    "ck/b":\t{').encode()
    assert not is_lazy(open_baseline(data, "x.json"), monkeypatch)
    assert read_whole(data) == sample()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"note": "ck/b"', '"note": 3', r"entry 'ck/b': Expected `str`, got `int` - at `\$\.note`"),
        ('"note": "ck/b"', '"note": "", "note": "ck/b"', r"entry 'ck/b': the key 'note' stands twice in one object"),
        ('"note": "ck/b"', '"note": "\udcff"', r"entry 'ck/b': is not readable as JSON .*; restore it"),
        ('"note": "ck/b"', '"note": "ck/b", "bound": 4', r"entry 'ck/b': Expected `str`, got `int` - at `\$\.bound`"),
        ('"note": "ck/b"', '"note": "ck/b", "canary": "0"', r"entry 'ck/b': .*twice"),
    ],
)
def test_what_is_wrong_in_an_entry_is_said_when_it_is_read(old: str, new: str, says: str) -> None:
    """An unsound entry is refused with its name and field by who reads it; its neighbours can be read."""
    file = open_baseline(TEXT.replace(old, new).encode(errors="surrogateescape"), "x.json")
    assert file.read_entry("ck/a").note == "ck/a"
    with pytest.raises(BaselineError, match=rf"^x.json: {says}"):
        file.read_entry("ck/b")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema": 1', '"schema": 2'),
        ('"schema": 1', '"schema": true'),
        ('"suite": "prefill"', '"suite": 4'),
        ('"torch":"2.11"', '"torch":"2.12"'),
        ('"threshold_percent": 2.0', '"threshold_percent": 9.0'),
        ('"entries": {', '"entries": {,'),
        (TEXT[-90:], ""),
    ],
)
def test_what_is_wrong_outside_entries_is_said_on_opening(old: str, new: str) -> None:
    """A newer schema, a wrong type, an edited table and a damaged file are refused in the words of the whole file."""
    data = TEXT.replace(old, new, 1).encode()
    with pytest.raises(BaselineError) as whole:
        decoded(data)
    with pytest.raises(BaselineError) as said:
        open_baseline(data, "x.json")
    assert str(said.value) == str(whole.value)


ENTRY_LINES = TEXT[TEXT.index('    "ck/a": {') : TEXT.index('    "ck/b": {')]
ENTRIES = TEXT[TEXT.index('\n  "entries": {\n') : TEXT.index(',\n  "canaries"')]


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(ENTRY_LINES, ENTRY_LINES * 2, 1),
        TEXT.replace(ENTRY_LINES, ENTRY_LINES.replace("5.0", "7.0") + ENTRY_LINES, 1),
        TEXT.replace('\n  "entries": {\n', '\n  "entries": {\n' + ENTRY_LINES.replace("ck/a", "ck/b"), 1),
        TEXT.replace(ENTRIES, f"{ENTRIES},{ENTRIES}", 1),
        TEXT.replace(ENTRIES, f'{ENTRIES},\n  "entries": {{}}', 1),
        TEXT.replace(ENTRIES, f'\n  "entries": {{}},{ENTRIES}', 1),
        TEXT.replace(ENTRIES, f'\n  "other": {{{ENTRIES}}},{ENTRIES.replace(ENTRY_LINES, ENTRY_LINES * 2)}', 1),
        TEXT.replace('\n  "suite"', '\n  "suite": "decode",\n  "suite"', 1),
        TEXT.replace('"torch":"2.11"', '"torch":"2.10","torch":"2.11"', 1),
    ],
)
def test_a_key_cannot_hide_another(text: str) -> None:
    """An entry, a table or a field that stands twice is refused on opening, however it was put in."""
    assert text != TEXT
    with pytest.raises(BaselineError, match=r"^x.json: the key '.*' stands twice in one object"):
        open_baseline(text.encode(), "x.json")


def test_a_hidden_entry_is_found_by_its_text() -> None:
    """Lengths can be made to fit: here, jumping over as much as each entry takes leads from key to key to the end."""
    before = '{"x":{"y":1'
    others = f'"b":{before},\n    "b": {{}}}}}},"c":{before},"":22,\n    "c": {{}}}}}}'
    real = f'{{"z":"{"z" * (len(before) - 1)}"}}'
    assert len(real) == 7 + len(before)
    hiding = f'\n  "entries": {{\n    "a": {{}},{others},"a":{real}     \n  }}'
    assert msgspec.json.decode("{" + hiding + "}")["entries"]["a"]["z"]
    with pytest.raises(BaselineError):
        open_baseline(TEXT.replace(ENTRIES, hiding, 1).encode(), "x.json")


def test_a_decoy_of_the_entries_is_not_taken_for_them() -> None:
    """The same text inside a field that nobody knows changes nothing of what is read."""
    decoy = TEXT.replace(ENTRIES, f'\n  "other": {{{ENTRIES}\n  }},{ENTRIES}', 1)
    assert read_whole(decoy.encode()) == decoded(decoy.encode()) == sample()


LINES = TEXT.splitlines(keepends=True)
PLACE = st.integers(0, len(LINES))


@given(PLACE, PLACE, PLACE, st.sampled_from(["", ",", "}", '"', "\\", "é", "[", "0"]), st.integers(0, len(TEXT)))
@settings(max_examples=400, deadline=None, database=None)
def test_mutated_files_are_read_as_the_whole_is(begin: int, end: int, place: int, other: str, at: int) -> None:
    """Whatever lines are copied elsewhere and whatever is put in: both ways of reading refuse it, or agree."""
    lines = [*LINES[:place], *LINES[begin:end], *LINES[place:]] if begin <= end else LINES[:end] + LINES[begin:]
    text = "".join(lines)
    data = (text[:at] + other + text[at + len(other) :]).encode()
    assert outcome(read_whole, data) == outcome(decoded, data)

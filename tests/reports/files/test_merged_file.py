"""A file of several runs: it comes back as it was, and what is none is named."""

from __future__ import annotations

import pytest

from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.json_results import ResultsFileError
from pytest_attnperf.reports.files.merged_file import decode_merged, encode_merged
from pytest_attnperf.testing.sample_runs import sample_run

RUNS = (sample_run(2, seed=1), sample_run(2, seed=2, product="other"))


def test_there_and_back() -> None:
    """Two runs, each with a name that says which; one run is an ordinary results file; none is refused."""
    data = encode_merged(RUNS)
    assert decode_merged(data, "m.json") == [("m.json (1 of 2)", RUNS[0]), ("m.json (2 of 2)", RUNS[1])]
    assert encode_merged(RUNS[:1]) == json_results.encode(RUNS[0])
    assert decode_merged(encode_merged(RUNS[:1]), "m.json") is None
    with pytest.raises(ValueError, match="at least one"):
        encode_merged([])


def test_readers_of_one_run_say_what_it_is() -> None:
    """Not that a field is missing."""
    with pytest.raises(ResultsFileError, match=r"m.json holds the runs of several devices, .* name the results file"):
        json_results.decode(encode_merged(RUNS), "m.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"schema": 1, "merged": []}', "no list of 1 to 1000 runs"),
        (b'{"schema": 1, "merged": {"a": 1}}', "no list of 1 to 1000 runs"),
        (b'{"schema": 1, "merged": [1]}', r"m.json \(1 of 1\) has no integer field 'schema'"),
        (b'{"schema": 9, "merged": [1]}', "field 'schema' is not one of 1 to 3"),
        (b'{"schema": true, "merged": [1]}', "field 'schema' is not one of 1 to 3"),
        (b'{"schema": 1, "merged": [{"schema": 1, "merged": [1]}]}', "holds the runs of several devices"),
    ],
)
def test_what_is_no_list_of_runs(data: bytes, said: str) -> None:
    """Is refused in words, a merged file within one, too."""
    with pytest.raises(ResultsFileError, match=said):
        decode_merged(data, "m.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{" * 2000, b'{"schema": 1}'])
def test_other_files_are_left_to_their_readers(data: bytes) -> None:
    """None, whatever they hold."""
    assert decode_merged(data, "m.json") is None

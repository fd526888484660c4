"""The committed file of seconds, by which all shards of a commit divide alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.baselines.case_seconds import load_case_seconds, write_case_seconds
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.testing.sample_runs import sample_run


def test_seconds_of_runs_come_back(tmp_path: Path) -> None:
    """Sorted by name, a line each, the longest of a case that two devices ran; what took no time is left out."""
    run = sample_run(3)
    took = replace(run, cases=tuple(replace(case, seconds=number * 1.26) for number, case in enumerate(run.cases)))
    again = replace(run, cases=(replace(run.cases[1], seconds=9.0),))
    path = tmp_path / "new" / "case_seconds.json"
    write_case_seconds(path, [took, again])
    names = [str(case.key) for case in run.cases[1:]]
    assert load_case_seconds(path) == {names[0]: 9.0, names[1]: 2.5}
    assert [line for line in path.read_text().splitlines() if names[0] in line] == [f'    "{names[0]}": 9.0,']
    assert load_case_seconds(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": 2, "seconds": {}}', "field `schema` is 2; this version reads 1"),
        ('{"schema": 1, "seconds": {"a": "1"}}', "holds no seconds of cases (Expected `float`, got `str`"),
        ('{"schema": 1, "seconds": {"a": -1}}', "field `seconds` has -1.0 for 'a', expected 0 to 1e+06"),
        ('{"schema": 1, "seconds": {"a": 1e400}}', "case_seconds.json"),
        ('{"schema": 1, "seconds": {"a": NaN}}', "case_seconds.json"),
        ('{"schema": 1, "seconds": {"a": 1, "a": 2}}', "the key 'a' stands twice"),
        ('{"schema": 1, "seco', "case_seconds.json"),
        ("[]", "case_seconds.json"),
        ("[" * 100_000, "case_seconds.json"),
    ],
)
def test_a_damaged_file_is_refused(content: str, said: str, tmp_path: Path) -> None:
    """Named, with the reason: a shard that ignored it would divide differently from the others."""
    path = tmp_path / "case_seconds.json"
    path.write_text(content)
    with pytest.raises(BaselineError) as refused:
        load_case_seconds(path)
    assert said in str(refused.value)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    """As every file that is no regular one."""
    with pytest.raises(BaselineError, match="is a folder"):
        load_case_seconds(tmp_path)

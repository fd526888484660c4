from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.tools.history.bulk_reading import StoredRun
from pytest_attnperf.tools.history.site.commits import find_address, find_repository, group_commits

SHA = "4f2c1ab90d11aa00bb22cc33dd44ee55ff660077"
JOB = {"ci_url": "https://github.com/o/r/actions/runs/1"}


def run_of(number: int, commit: str = SHA, **more: object) -> StoredRun:
    """A run that started `number` seconds after 1970."""
    base = StoredRun(
        number, f"run {number}", float(number), f"1970-01-01T00:00:{number:02}Z", commit, "main", "attnperf", "1",
        "gate", True, {},
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def test_runs_of_a_commit_are_one() -> None:
    """In the order of their first run; a changed tree is another commit, a run without a commit one of its own."""
    runs = [run_of(5), run_of(1, "b" * 40), run_of(3), run_of(4, f"{SHA}+dirty"), run_of(6, "unknown"), run_of(7, "")]
    found = group_commits(runs)
    assert [one.commit for one in found] == ["b" * 40, SHA, f"{SHA}+dirty", "", ""]
    assert [len(one.runs) for one in found] == [1, 2, 1, 1, 1]
    assert [one.number for one in found] == [0, 1, 2, 3, 4]
    assert len({one.file for one in found}) == 5
    assert [one.name for one in found][1:4] == ["4f2c1ab90d11", "4f2c1ab90d11+dirty", "unknown, 1970-01-01 00:00"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://github.com/o/r/actions/runs/123", "https://github.com/o/r/commit/"),
        ("http://ghe.example:8080/o/r.x/actions/runs/1", "http://ghe.example:8080/o/r.x/commit/"),
        ("https://gitlab.com/g/s/p/-/jobs/9", "https://gitlab.com/g/s/p/-/commit/"),
        ("javascript:alert(1)//x/y/actions/runs/1", ""),
        ('https://github.com/o/r/actions/runs/1"><script>', ""),
        ("ftp://github.com/o/r/actions/runs/1", ""),
        ("https://jenkins.example/job/7/", ""),
        ("", ""),
    ],
)
def test_the_repository_is_found_in_the_address_of_a_job(address: str, expected: str) -> None:
    """Of GitHub and GitLab, over http(s) only; anything else is unknown."""
    assert find_repository({"ci_url": address}) == expected


def test_a_commit_has_an_address_if_its_repository_is_known() -> None:
    """By its own run, or by all others, if they agree; a text that is no hash has none."""
    own, other = run_of(1, provenance=JOB), run_of(2, "c" * 40)
    assert [one.address for one in group_commits([own, other])] == [
        f"https://github.com/o/r/commit/{SHA}",
        f"https://github.com/o/r/commit/{'c' * 40}",
    ]
    fork = run_of(3, "d" * 40, provenance={"ci_url": "https://github.com/fork/r/actions/runs/1"})
    assert [one.address for one in group_commits([own, other, fork])][1] == ""
    assert find_address(f"{SHA}+dirty", [own], "") == f"https://github.com/o/r/commit/{SHA}"
    assert find_address("../../evil", [own], "") == ""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.markdown_commands import (
    EXPLAINED,
    FetchedResults,
    explain_section,
    locate_results,
)
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]
URL = "https://github.com/octo/kernels/actions/runs/5"
FETCHED = FetchedResults("gh run download 5", ".attnperf/run-5/results.json")


def list_blocks(run: RunResult, fetched: FetchedResults | None = FETCHED) -> list[list[str]]:
    """The commands of each fenced block of the section."""
    section = explain_section(join_single(run), fetched)
    text = "" if section is None else section.render_fitting(50_000, "report")
    return [found.splitlines() for found in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def test_the_run_s_results_are_fetched_first() -> None:
    """By GitHub's own command, from the repository that the address names, on another host, too."""
    found = locate_results(URL, "attnperf-results")
    assert found == FetchedResults(
        "gh run download 5 --repo octo/kernels --name attnperf-results --dir .attnperf/run-5",
        ".attnperf/run-5/results.json",
    )
    elsewhere = locate_results("https://git.example.org/o/n/actions/runs/7/attempts/2", "times")
    assert elsewhere is not None
    assert elsewhere.fetch.startswith("gh run download 7 --repo git.example.org/o/n --name times ")


@pytest.mark.parametrize("url", ["", "https://gitlab.com/o/n/-/jobs/5", "https://github.com/o/n", "file:///o/n"])
def test_other_addresses_have_nothing_to_fetch(url: str) -> None:
    """Only runs of GitHub Actions are fetched by `gh`."""
    assert locate_results(url, "attnperf-results") is None


@pytest.mark.parametrize("name", ["", "a b", "-x", "a;b", "ä", "x" * 101])
def test_a_name_that_is_no_artifact(name: str) -> None:
    """It is refused by value: it becomes part of a command."""
    with pytest.raises(UsageError, match="the artifact's name is "):
        locate_results(URL, name)


def test_a_reader_elsewhere_fetches_explains_and_accepts(case: CaseFactory, run: RunFactory) -> None:
    """One block each, with the case named; accepted at once where it was measured in enough processes."""
    measured = case(stored_us=(24.6,) * 7, second=case().second[:1] * 7)
    key = str(measured.key)
    assert list_blocks(run(measured)) == [
        ["gh run download 5"],
        [f"attnperf explain {key} --results .attnperf/run-5/results.json"],
        [f'attnperf baselines accept {key} --results .attnperf/run-5/results.json --reason "..."'],
    ]
    measure = f"pytest --attnperf --attnperf-second-look=7 '{measured.nodeid}'"
    assert list_blocks(run(case(stored_us=(24.6,) * 7)))[2] == [
        measure,
        f'attnperf baselines accept {key} --reason "..."',
    ]


def test_where_the_results_cannot_be_fetched_the_case_is_measured_again(case: CaseFactory, run: RunFactory) -> None:
    """What is explained and accepted is then what the command before it wrote."""
    slower = case(stored_us=(24.6,) * 7, second=case().second[:1] * 7)
    assert list_blocks(run(slower), None) == [
        [f"pytest --attnperf '{slower.nodeid}'", f"attnperf explain {slower.key}"],
        [
            f"pytest --attnperf --attnperf-second-look=7 '{slower.nodeid}'",
            f'attnperf baselines accept {slower.key} --reason "..."',
        ],
    ]


def test_what_is_offered_depends_on_the_verdict(case: CaseFactory, run: RunFactory) -> None:
    """A case without baseline is stored, an undecided or wrong one only explained, one that is the same is not
    named."""
    new = case(verdict=Verdict.NO_BASELINE, fails=False)
    assert list_blocks(run(new))[2:] == [[f"pytest --update-baselines '{new.nodeid}'"]]
    for verdict in (Verdict.UNDECIDED, Verdict.INCORRECT, Verdict.MOVED):
        assert len(list_blocks(run(case(verdict=verdict, stored_us=(1.0,))))) == 2
    assert list_blocks(run(case(verdict=Verdict.SAME, fails=False))) == []


def test_the_baselines_of_the_run(case: CaseFactory, run: RunFactory) -> None:
    """Another folder is named; one that only the measuring machine has is not accepted into."""
    elsewhere = case(stored_us=(1.0,), reproduce=f"pytest --attnperf --attnperf-baselines=times '{case().nodeid}'")
    measure, accept = list_blocks(run(elsewhere))[2]
    assert "--attnperf-baselines=times" in measure
    assert accept.endswith('--baselines times --reason "..."')
    local = case(stored_us=(1.0,), notes=(Note(NoteKind.LOCAL, "compared with .attnperf/local"),))
    assert len(list_blocks(run(local))) == 2


def test_the_worst_are_shown_and_the_others_counted(case: CaseFactory, run: RunFactory) -> None:
    """In the title, however many there are."""
    section = explain_section(join_single(run(*(case(f"b{at}", ratio=1.1 + at / 100) for at in range(9)))), FETCHED)
    assert section is not None
    assert section.title == "how to explain or accept the worst 5 of 9"
    assert section.count == EXPLAINED
    assert "`prefill/b8/" in next(iter(section.rows))


@pytest.mark.parametrize(
    "name", ["--results=/etc/passwd", "a\nb", "a\x1b[2J", "$(reboot)", "`reboot`", "a<!-- x -->", "x" * 3000, "\ud800"]
)
def test_hostile_names_are_not_offered(name: str, case: CaseFactory, run: RunFactory) -> None:
    """A name that would do or show something else in a shell gets no command, in key nor node id."""
    for odd in (case(key=CaseKey(name, "b", "w")), case(nodeid=name)):
        assert list_blocks(run(odd)) == []


def test_the_printed_commands_work_on_fetched_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typed in a checkout where the results lie as `gh` leaves them, `attnperf explain` explains the named case.
    (tests/plugin/printed types what accepts it.)"""
    monkeypatch.chdir(tmp_path)
    run = sample_run(5, verdicts=[Verdict.SLOWER])
    fetched = locate_results(URL, "attnperf-results")
    assert fetched is not None
    target = Path(fetched.path)
    target.parent.mkdir(parents=True)
    json_results.write(target, run)
    typed = [command for block in list_blocks(run, fetched) for command in block]
    explained = [command for command in typed if command.startswith("attnperf explain")]
    assert len(explained) == EXPLAINED
    for command in explained:
        assert main(shlex.split(command)[1:]) == 1
        assert shlex.split(command)[2] in capsys.readouterr().out.replace("\n", "")

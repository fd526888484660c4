"""`attnperf list`, as it is typed in a project."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pytest_attnperf.cli.commands.list import KINDS, WIDTH
from pytest_attnperf.cli.program import main
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s32-h1-d16-f16"
LONG = [f"fake.{letter}{'_and_its_long_name' * 2}" for letter in "abcdef"]
GATED = "def test_own(attnperf):\n    attnperf.gate('own', abs, reference=abs, inputs=list)\n"


INVALID = """
import pytest

@pytest.mark.attnperf(family="prefil", workloads=["prefill-b1-s64-h1-d16-f16"])
def test_own(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """A project with seven backends, two workloads, one of them nightly, and a gated function."""
    for name in ("fake.a", *LONG):
        attnperf_project.backend(name, time_us=100)
    attnperf_project.suite([WORKLOAD, OTHER], f", nightly=[{OTHER!r}]")
    (attnperf_project.path / "suites" / "test_own.py").write_text(GATED)
    return attnperf_project


def type_list(project: FakeProject, *words: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error)."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "list", *words]
    ran = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False, timeout=120)
    return ran.returncode, ran.stdout, ran.stderr


def listed(project: FakeProject, *words: str) -> Any:
    """What is printed with --json."""
    status, out, error = type_list(project, *words, "--json")
    assert (status, error) == (0, "")
    return json.loads(out)


def test_an_overview(project: FakeProject) -> None:
    """A line for each kind fits 80 columns with whole names, and the last line says what to type for more."""
    status, out, error = type_list(project)
    assert (status, error) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[:2] for line in lines[:5]] == [
        ["backends", "7"],
        ["families", "19"],
        ["workloads", "2"],
        ["suites", "2"],
        ["timers", "11"],
    ]
    assert f"{lines[0]}\n".endswith(f"fake.a, {LONG[0]}, ...\n")
    assert lines[2].endswith(f"{WORKLOAD}, {OTHER}")
    assert lines[-1] == "more: attnperf list backends (or families, workloads, suites, timers)"
    assert {kind: found["count"] for kind, found in listed(project).items()} == dict(
        zip(KINDS, (7, 19, 2, 2, 11), strict=True)
    )


def test_each_kind_as_text(project: FakeProject) -> None:
    """Names and ids are whole; what is beside them is wrapped."""
    shown = {kind: type_list(project, kind)[1].splitlines() for kind in KINDS if kind != "timers"}
    assert max(len(line) for lines in shown.values() for line in lines) <= WIDTH
    assert [line.split()[0] for line in shown["backends"] if line.endswith("prefill")] == ["fake.a", *LONG]
    assert shown["families"][:2] == [
        "prefill          shipped, 7 backends: attention over whole sequences",
        f"  {OTHER}",
    ]
    head, _, *rows = (line.split() for line in shown["workloads"])
    assert [head, *rows] == [["workload", "tier"], [WORKLOAD, "pr"], [OTHER, "nightly"]]
    assert shown["suites"] == [
        "suites/test_own.py",
        "  test_own      adhoc, 1 case: pr 1",
        "suites/test_prefill.py",
        "  test_prefill  prefill, 14 cases: pr 7, nightly 7",
    ]


def test_a_family_alone_shows_its_grammar(project: FakeProject) -> None:
    """What a line may contain, for --attnperf-workload."""
    _, out, _ = type_list(project, "families", "--family=softmax")
    assert out.splitlines() == [
        "softmax  shipped, 0 backends: softmax of rows",
        "--attnperf-workload takes r=, c=, dtype= (or a bare f32, f16, bf16)",
    ]


def test_rows_as_data(project: FakeProject) -> None:
    """The same as text, of what is chosen."""
    assert listed(project, "backends", "--backend=e.a", "--tests=suites/test_prefill.py")[0] == {
        "name": "fake.a",
        "families": ["prefill"],
        "unsupported": "",
    }
    assert [row["id"] for row in listed(project, "workloads", "--family=prefill")] == [WORKLOAD, OTHER]
    assert listed(project, "workloads", "--family=rope") == []
    assert type_list(project, "workloads", "--family=rope")[:2] == (0, "no workloads\n")


def test_timers_need_no_project(capsys: pytest.CaptureFixture[str]) -> None:
    """Where each works and with which cache, and nothing is collected."""
    assert main(["list", "timers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "timer        works on  cache  own inputs in each call"
    assert "host_cold    CPU       cold   no" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("backend",), "unknown kind 'backend'; known: backends, families, suites, timers, workloads"),
        (
            ("timers", "--family=rope"),
            "timers belong to no backend, family or suite; drop --backend, --family and --tests",
        ),
        (("suites", "--tests=nowhere"), "nowhere does not exist; run this in the project's folder"),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence with what exists, and status 2."""
    assert main(["list", *words]) == 2
    assert capsys.readouterr().err.startswith(f"attnperf: {message}")


def test_filters_and_suites_that_are_wrong(project: FakeProject) -> None:
    """An unknown family, and a file that pytest cannot import, end with status 2."""
    status, _, error = type_list(project, "workloads", "--family=prefil")
    assert (status, error.startswith("attnperf: unknown family 'prefil'; known: prefill, ")) == (2, True)
    (project.path / "suites" / "test_own.py").write_text("import no_such_module\n")
    status, out, error = type_list(project, "suites")
    assert (status, out) == (2, "")
    assert error.startswith(
        "attnperf: suites/test_own.py cannot be collected: ModuleNotFoundError: No module named 'no_such"
    )
    (project.path / "suites" / "test_own.py").write_text(INVALID)
    status, _, error = type_list(project, "suites")
    assert status == 2
    assert "suites/test_own.py::test_own cannot be collected: suites/test_own.py::test_own: unknown family" in error

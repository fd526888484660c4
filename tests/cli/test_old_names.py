"""Old names of commands and options: what they say, what they do, and that no text of ours uses them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.cli import old_names
from pytest_attnperf.cli.command_files import list_names, list_whole_names, render_list
from pytest_attnperf.cli.old_names import OLD_NAMES, translate
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("stages r.json --cpu c.json --markdown", "report r.json --cpu c.json --markdown - --by stage"),
        (
            "ladder r.json --base a --against=b --write p.md",
            "report r.json --over a --relative-to=b --write p.md --by step",
        ),
        ("merge 1.json 2.json --out m.json --html DIR", "report 1.json 2.json --out m.json --report DIR"),
        (
            "comment --results a.json b.json --markdown=t.md --repo o/r --dry-run",
            "report a.json b.json --comment-text=t.md --repo o/r --dry-run --comment",
        ),
        ("comment --results=a.json --status", "report a.json --status --comment"),
        ("accept CASE --from r.json --reason why", "baselines accept CASE --results r.json --reason why"),
        ("merge-baselines base ours theirs path", "baselines merge base ours theirs path"),
        ("calibrate-device --json --out DIR", "doctor --calibrate --json - --baselines DIR"),
        ("run-kernel b --workload w --suite t", "kernel run b --workload w --tests t"),
        ("build-kernels --arch gfx942 --suite=t", "kernel build --arch gfx942 --tests=t"),
    ],
)
def test_old_words_become_new_ones(typed: str, now: str) -> None:
    """Each old command has a new one that takes its arguments, with options by their new names."""
    name, *given = typed.split()
    words = translate(OLD_NAMES[name], given)
    assert words == now.split()
    whole = words[0] if words[0] in list_whole_names() else " ".join(words[:2])
    assert build_parser([whole]).parse_args(words).command == words[0]


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        (["stages", "{path}"], 2, "attnperf stages is now attnperf report --by stage; the old name goes in 0.3"),
        (["ladder", "{path}"], 2, "attnperf ladder is now attnperf report --by step; the old name goes in 0.3"),
        (["merge", "{path}", "--out", "m.json"], 0, "attnperf merge is now attnperf report --out FILE; the old name"),
        (["merge", "{path}"], 2, "attnperf: attnperf merge needs --out FILE; give it, as attnperf report --out FILE"),
        (["comment", "--results", "{path}"], 2, "attnperf comment is now attnperf report --comment; the old name"),
        (["accept", "x", "--from", "{path}", "--reason", "r"], 2, "attnperf accept is now attnperf baselines accept;"),
        (["merge-baselines", "--resolve"], 2, "attnperf merge-baselines is now attnperf baselines merge; the old"),
        (["calibrate-device", "--processes", "0"], 2, "attnperf calibrate-device is now attnperf doctor --calibrate;"),
        (["run-kernel", "b", "--workload", "w", "--calls", "0"], 2, "attnperf run-kernel is now attnperf kernel run;"),
        (["build-kernels", "--suite", "no/such"], 2, "attnperf build-kernels is now attnperf kernel build; the old"),
    ],
)
def test_an_old_name_answers(
    typed: list[str], status: int, said: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line on standard error names the new command, which then does the work: its own errors follow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / "r.json"
    json_results.write(path, sample_run(1, verdicts=[json_results.read(_written(path)).cases[0].verdict]))
    assert main([word.format(path=path) for word in typed]) == status
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith(said) for line in lines)
    assert lines[0].endswith("; the old name goes in 0.3")
    assert len(lines) == (2 if status else 1)


def _written(path: Path) -> Path:
    json_results.write(path, sample_run(1))
    return path


def test_warm_is_an_option_of_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """`attnperf warm` runs pytest --attnperf-warm with its words, in suites/ where they name no path, and gives its
    exit status."""
    called: list[list[str]] = []
    monkeypatch.setattr(subprocess, "call", lambda command: called.append(command[1:]) or 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_x.py").touch()
    assert main(["warm", "-k", "triton"]) == 1
    (tmp_path / "suites").mkdir()
    assert main(["warm", "-k", "triton"]) == 1
    assert main(["warm", "test_x.py::test_y"]) == 1
    before = ["-m", "pytest", "--attnperf-warm"]
    assert called == [
        [*before, "-k", "triton"],
        [*before, "-k", "triton", "suites"],
        [*before, "test_x.py::test_y"],
    ]
    assert (
        capsys.readouterr().err.splitlines()
        == ["attnperf warm is now pytest --attnperf-warm; the old name goes in 0.3"] * 3
    )


def test_an_installed_merge_driver_keeps_working(tmp_path: Path) -> None:
    """The line that earlier versions put into git's config merges as before."""
    for name in ("base", "ours", "theirs"):
        (tmp_path / name).write_text('{"figures": 1}\n')
    command = [sys.executable, "-m", "pytest_attnperf.cli", "merge-baselines", "base", "ours", "theirs", "path"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_old_names_answer_until_0_3() -> None:
    """They are promised until then; from 0.3 on this test asks for what old_names.py says to delete."""
    assert tuple(int(number) for number in __version__.split(".")[:2]) < (0, 3)


def test_old_names_are_not_listed() -> None:
    """Neither the list of commands nor completion offers them."""
    assert not {*OLD_NAMES} & {*list_names()}
    assert not {*OLD_NAMES} & {line.split()[0] for line in render_list().splitlines() if line.startswith("  ")}


OLD_OPTIONS = [
    ("gate", "--results r.json", "--base", "against"),
    ("report", "", "--html", "report"),
    ("baselines accept", "CASE --reason r", "--from", "results"),
    ("doctor", "--calibrate", "--out", "baselines"),
    ("tune", "b", "--workloads", "workload"),
    *((name, more, "--suite", "tests") for name, more in (("list", ""), ("baselines check", ""), ("tune", "b"))),
    *((name, more, "--suite", "tests") for name, more in (("occupancy", ""), ("kernel build", ""))),
    ("kernel run", "b --workload w", "--suite", "tests"),
]


@pytest.mark.parametrize(("name", "more", "old", "dest"), OLD_OPTIONS)
def test_old_options_are_taken_and_not_shown(name: str, more: str, old: str, dest: str, capsys: Captured) -> None:
    """An option by its old spelling sets what the new one sets; the help has only the new one."""
    parser = build_parser([name])
    typed = [*name.split(), *more.split()]
    usual = vars(parser.parse_args(typed)).get(dest)
    value = vars(parser.parse_args([*typed, old, "here"]))[dest]
    assert str(value[0] if isinstance(value, list) else value) == "here"
    assert usual != value
    with pytest.raises(SystemExit):
        parser.parse_args([*name.split(), "--help"])
    shown = re.findall(r"(?<![\w-])--[\w-]+", capsys.readouterr().out.partition("examples:")[0])
    assert old not in shown
    assert f"--{dest}" in shown


OLD_TEXTS = (
    *(rf"attnperf {name}\b" for name in OLD_NAMES),
    *(r"attnperf gate .*--base\b(?!-)", r"attnperf report .*--html\b", r"baselines accept .*--from\b"),
    *(r"attnperf tune .*--workloads\b", r"attnperf (list|tune|occupancy|kernel|baselines) .*--suite\b"),
)
NOT_OURS = ("kernels/", "suites/", "baselines/", "CHANGELOG.md", "tests/cli/test_old_names.py")
"""Frozen sources, records of what was, and this test."""


def test_no_text_uses_an_old_name() -> None:
    """Neither package, pages, examples nor tests name an old command or option, but for the table of old names."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if not name.startswith(NOT_OURS)]
    pattern = re.compile("|".join(OLD_TEXTS))
    own = Path(old_names.__file__)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for file in files
        if file.is_file() and file != own and file.suffix not in (".png", ".gz", ".db")
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_an_old_name_in_a_text_is_found() -> None:
    """The test above can fail."""
    pattern = re.compile("|".join(OLD_TEXTS))
    for text in ("attnperf stages r.json", "attnperf gate --results r --base main", "attnperf warm"):
        assert pattern.search(text)
    assert not pattern.search("attnperf report r.json --comment --base-branch main")

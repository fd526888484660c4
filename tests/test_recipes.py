"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the tree: a throw-away extension of each kind.

A file is put where the recipe's template is, a line where its list is, and the recipe's proof is typed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files.json_results import write
from pytest_attnperf.testing.project import full_results
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LINES_MOST = 12
COPIED = ("pytest_attnperf", "kernels", "suites", "docs", "conftest.py", "pyproject.toml")

BACKEND = '''"""Backend `native.mine`: the rotary embedding of `native.eager_rope`."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.native.rope import EagerRope
from pytest_attnperf.backends import Backend, Prepared, Tensors
from pytest_attnperf.workloads.rope import Rope


@dataclass(frozen=True)
class Mine(Backend[Rope]):
    """As the other."""

    families = ("rope",)

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """The other's."""
        return EagerRope("native.other").prepare(workload, inputs)


BACKENDS = (Mine("native.mine", 1e7),)
'''
READER = '''"""A profiler's file: name, begin and duration of each kernel, in nanoseconds."""

from __future__ import annotations

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.csv_table import CsvTable
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_forms import CsvForm, FilePart, make_source


def read_launches(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Every launch."""
    rows = 0
    for rows, row in enumerate(table, 1):
        name, begin, duration = row
        builder.add(builder.number_of(KernelShape(name)), int(begin), int(begin) + int(duration))
    return FilePart(*make_source(table, form, rows))
'''
PROBE = '''"""Whether anybody has been here."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """One line."""
    return [DoctorFinding("visitors", Status.NOTE, "nobody", "numbers are as good as without", "look again")]
'''
COMMAND = '''"""`attnperf mine`: says hello."""

from __future__ import annotations

import argparse
import sys

GROUP = "every day"
SUMMARY = "say hello"
DESCRIPTION = "Says hello."
EPILOG = """examples:
  attnperf mine

exit status: 0 said
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing."""


def run(options: argparse.Namespace) -> int:
    """Say it."""
    sys.stdout.write("hello\\n")
    return 0
'''
FEATURE = '''"""`--attnperf-mine=TEXT`: prints it at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_attnperf.plugin.features.feature import Feature

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext


class Mine(Feature):
    """Of a run that was given a text."""

    def __init__(self, text: str) -> None:
        self._text, self._count = text, 0

    def before_case(self) -> None:
        """Count it."""
        self._count += 1

    def print_at_end(self, reporter: Any) -> None:
        """The text, and how many cases there were."""
        reporter.write_line(f"mine: {self._text} before {self._count}")


def make_feature(given: FeatureContext) -> Mine:
    """Of any run."""
    return Mine(given.asked.text("mine"))
'''
FORM = '''"""One line per case."""

from __future__ import annotations

from pytest_attnperf.reports.run.joined import Joined


def render_lines(joined: Joined) -> str:
    """Key and verdict."""
    return "".join(f"{shown.case.key} {shown.case.verdict.value}\\n" for shown in joined.cases)
'''
TIMER = '''"""Times cold calls once more."""

from __future__ import annotations

from pytest_attnperf.measure.timers.host_cold import HostColdTimer


class MineTimer(HostColdTimer):
    """As its base."""
'''


@dataclass(frozen=True)
class Recipe:
    """One section of the page."""

    title: str

    @property
    def text(self) -> str:
        """Its lines."""
        return PAGE.partition(f"\n### {self.title}\n")[2].partition("\n#")[0].strip()

    @property
    def paths(self) -> list[str]:
        """Files and folders that it names."""
        return re.findall(r"`((?:kernels|pytest_attnperf|tests|docs)/[\w./]+)`", self.text)

    def typed(self, what: str, **names: str) -> list[str]:
        """The command behind 'Proof' or 'Tests', with these words filled in, by this interpreter."""
        (line,) = re.findall(rf"^\d\. {what}: `(.*)`\.$", self.text, re.MULTILINE)
        words = [names.get(word, word) for word in shlex.split(line)]
        for name, value in names.items():
            words = [re.sub(rf"\b{name}\b", value, word) for word in words]
        programs = {
            ".venv/bin/python": [sys.executable],
            ".venv/bin/attnperf": [sys.executable, "-m", "pytest_attnperf.cli"],
        }
        return [*programs[words[0]], *words[1:]]


@dataclass(frozen=True)
class Tree:
    """A copy of this repository."""

    path: Path

    def put(self, file: str, text: str) -> None:
        """Write a new file."""
        assert not (self.path / file).exists()
        (self.path / file).write_text(text, encoding="utf-8")

    def add_line(self, file: str, list_name: str, line: str) -> None:
        """Write a line as the first one of a list, which is a tuple over several lines."""
        path = self.path / file
        before, opened, rest = path.read_text(encoding="utf-8").partition(f"\n{list_name}")
        head, newline, others = rest.partition("(\n")
        assert opened
        path.write_text(f"{before}{opened}{head}{newline}    {line}\n{others}", encoding="utf-8")

    def run(self, *words: str) -> tuple[int, str]:
        """(exit status, all that is printed) of a command typed there."""
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path, lean_processes: None, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A fresh copy, without what was measured in this one."""
    for name in COPIED:
        here, there = ROOT / name, tmp_path / name
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(here, there)
    for name in ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "TEST_SHARE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Tree(tmp_path)


ELSEWHERE = {"An op family", "A suite"}
"""Followed by test_recipes_of_workloads.py."""
TITLES = [title for title in re.findall(r"^### (.*)$", PAGE, re.MULTILINE) if title not in ELSEWHERE]


@pytest.mark.parametrize("title", TITLES)
def test_a_recipe_is_short_and_whole(title: str) -> None:
    """At most twelve lines: the template, whether there is a base class, proof and tests; every path exists."""
    recipe = Recipe(title)
    assert len(recipe.text.splitlines()) <= LINES_MOST
    assert recipe.text.startswith("1. Template: `")
    assert re.search(r"base class| over `|`Backend\[", recipe.text)
    assert recipe.typed("Proof")
    assert all((ROOT / word).exists() for word in recipe.typed("Tests") if word.startswith("tests/"))
    assert [path for path in recipe.paths if not (ROOT / path).exists()] == []


def test_a_backend(tree: Tree) -> None:
    """It is measured by its name; a line without a file behind it is named with its place."""
    recipe = Recipe("A backend")
    proof = recipe.typed("Proof", NAME="native.mine")
    assert "kernels/native/rope.py" in recipe.paths
    tree.add_line("kernels/__init__.py", "MODULES", '"native.mine",')
    status, printed = tree.run(*proof)
    place = rf'{tree.path}/kernels/__init__\.py:\d+ names "native\.mine", but there is no kernels/native/mine\.py'
    assert (status, bool(re.search(place, printed))) == (4, True), printed
    tree.put("kernels/native/mine.py", BACKEND)
    status, printed = tree.run(*proof)
    assert status == 0, printed
    assert re.search(r"= 1 passed", printed, re.MULTILINE), printed


def test_a_reader_of_profiles(tree: Tree) -> None:
    """Its file is broken down; a line without a function behind it is named with its place."""
    recipe = Recipe("A reader of profiles")
    listed = "pytest_attnperf/tools/profilers/file_forms.py"
    assert listed in recipe.paths
    line = 'CsvForm("launches", ("Launched",), ("Launched", "Begin", "Ns"), ("launches",), "launches.read_launches"),'
    tree.add_line(listed, "FORMS", line)
    (tree.path / "run_launches.csv").write_text("Launched,Begin,Ns\nattention,10,700\ncopy,900,100\n")
    proof = recipe.typed("Proof", FILE="run_launches.csv")
    place = rf'{tree.path}/{listed}:\d+ names "launches\.read_launches", but there is no pytest_attnperf/'
    status, printed = tree.run(*proof)
    assert (status, bool(re.search(place, printed))) == (2, True), printed
    tree.put("pytest_attnperf/tools/profilers/launches.py", READER)
    status, printed = tree.run(*proof)
    assert status == 0, printed
    assert "launches" in printed
    assert re.search(r"attention .*87\.5", printed), printed


def test_a_look_of_the_doctor(tree: Tree) -> None:
    """Its line is in the report; a line without a module behind it says so, with its place."""
    recipe = Recipe("A check of the doctor")
    listed = "pytest_attnperf/tools/doctor/probes.py"
    assert listed in recipe.paths
    tree.add_line(listed, "PROBES", 'Probe("visitors", PACKAGES, _later("visitors")),')
    _, printed = tree.run(*recipe.typed("Proof"))
    said = rf'{tree.path}/{listed}:\d+names_later\("visitors",butthereisnopytest_attnperf/tools/doctor/visitors\.py'
    assert re.search(said, "".join(printed.split())), printed
    tree.put("pytest_attnperf/tools/doctor/visitors.py", PROBE)
    _, printed = tree.run(*recipe.typed("Proof"))
    assert re.search(r"visitors +nobody", printed), printed


def test_a_command(tree: Tree) -> None:
    """It is typed, listed and on the page of commands; what it lacks is named with its file."""
    recipe = Recipe("A command")
    file = "pytest_attnperf/cli/commands/mine.py"
    assert str(Path(recipe.paths[0]).parent) == str(Path(file).parent)
    tree.put(file, COMMAND.partition("def run(")[0])
    status, printed = tree.run(*recipe.typed("Proof", NAME="mine"))
    place = f"{tree.path}/{file}:1: a command needs"
    assert (status, place in printed, "; run is missing" in printed) == (2, True, True)
    (tree.path / file).write_text(COMMAND)
    status, printed = tree.run(*recipe.typed("Proof", NAME="mine"))
    assert (status, "Says hello." in printed) == (0, True), printed
    assert tree.run(sys.executable, "-m", "pytest_attnperf.cli", "mine") == (0, "hello\n")
    assert tree.run(sys.executable, "docs/make_commands.py")[0] == 0
    assert "### attnperf mine\n" in (tree.path / "docs/commands.md").read_text()


def test_a_feature_of_a_run(tree: Tree) -> None:
    """It acts in a run that has it; a module without `make_feature` is named with its place."""
    recipe = Recipe("A feature of a run")
    listed, options = "pytest_attnperf/plugin/features/on.py", "pytest_attnperf/plugin/options.py"
    file = "pytest_attnperf/plugin/features/mine.py"
    assert {listed, options} <= set(recipe.paths)
    tree.put(file, FEATURE.partition("def make_feature(")[0])
    tree.add_line(listed, "FEATURES", 'Listed("features.mine", lambda run: bool(run.asked.text("mine"))),')
    tree.add_line(options, "OPTIONS", 'Option("mine", "", "what to print", "TEXT"),')
    proof = [*recipe.typed("Proof", NAME="mine", VALUE="hello"), "-k", "native"]
    status, printed = tree.run(*proof)
    place = rf"{tree.path}/{file}:1: has no make_feature\(\), which {tree.path}/{listed}:\d+ names"
    assert (status, bool(re.search(place, printed))) == (4, True), printed
    (tree.path / file).write_text(FEATURE)
    status, printed = tree.run(*proof)
    assert status == 0, printed
    assert re.search(r"^mine: hello before 1$", printed, re.MULTILINE), printed


def test_a_report_format(tree: Tree) -> None:
    """It has an option, and is in the page of commands; without results the command says what writes them."""
    recipe, folder = Recipe("A report format"), "pytest_attnperf/reports/files"
    tree.put(f"{folder}/lines.py", FORM)
    tree.add_line(f"{folder}/forms.py", "FORMS", 'Form("mine", "lines.txt", "a line per case", render_lines),')
    path = tree.path / folder / "forms.py"
    imported = "from pytest_attnperf.reports.files.lines import render_lines\n"
    path.write_text(
        path.read_text(encoding="utf-8").replace(
            "from pytest_attnperf.errors", f"{imported}from pytest_attnperf.errors"
        )
    )
    proof = recipe.typed("Proof", NAME="mine")
    status, printed = tree.run(*proof)
    assert (status, "a run writes .attnperf/results.json" in printed) == (2, True), printed
    write(tree.path / ".attnperf/results.json", run := sample_run(2, verdicts=[Verdict.SAME]))
    status, printed = tree.run(*proof)
    assert (status, printed) == (0, "".join(f"{case.key} SAME\n" for case in run.cases))
    for line, said in (
        (
            'Form("less", "less.txt", "no render"),',
            r"Form\.__init__\(\) missing 1 required positional argument: 'render'",
        ),
        ('Form("less", "less.txt", "it is called", render_lines()),', r"render_lines\(\) missing 1 required"),
    ):
        right = path.read_text(encoding="utf-8")
        tree.add_line(f"{folder}/forms.py", "FORMS", line)
        number = path.read_text(encoding="utf-8").partition(line)[0].count("\n") + 1
        status, printed = tree.run(*proof)
        place = rf"attnperf: {path}:{number}: FORMS cannot be built: TypeError: {said}"
        assert (status, bool(re.match(place, printed)), printed.count("\n")) == (2, True, 1), printed
        path.write_text(right, encoding="utf-8")
    tree.run(sys.executable, "docs/make_commands.py")
    assert "`--mine FILE`: write a line per case" in (tree.path / "docs/commands.md").read_text(encoding="utf-8")


def test_a_timer(tree: Tree) -> None:
    """It times a case where it is asked for by name; a forgotten line and a taken name are said with their places."""
    recipe, folder = Recipe("A timer"), "pytest_attnperf/measure/timers"
    assert f"{folder}/host_cold.py" in recipe.paths
    proof = [*recipe.typed("Proof", NAME="mine"), "-k", "native"]
    tree.put(f"{folder}/mine.py", TIMER)
    status, printed = tree.run(*proof)
    assert (status, f"report_002 (listed in {folder}/__init__.py)" in printed) == (4, True), printed
    table = tree.path / folder / "__init__.py"
    text = table.read_text(encoding="utf-8")
    imported = "from pytest_attnperf.measure.timers.profiler import"
    text = text.replace(imported, f"from pytest_attnperf.measure.timers.mine import MineTimer\n{imported}")
    table.write_text(text.replace("Report002Timer),\n)", "Report002Timer),\n    MineTimer,\n)"), encoding="utf-8")
    status, printed = tree.run(*proof)
    place = (
        rf"{tree.path}/{folder}/mine\.py:8: timer MineTimer has the name 'host_cold' of HostColdTimer; give the class"
    )
    assert (status, bool(re.search(place, printed))) == (4, True), printed
    (tree.path / folder / "mine.py").write_text(f'{TIMER}\n    name = "mine"\n', encoding="utf-8")
    status, printed = tree.run(*proof)
    assert status == 0, printed
    (case,) = full_results(tree.path / ".attnperf/results.json")["cases"]
    assert {process["timer"] for process in case["first"]} == {"mine"}

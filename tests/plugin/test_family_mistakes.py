"""Mistakes in a new op family end before collection, in one line that names the class and says what to write."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_attnperf
from pytest_attnperf.testing.project import FakeProject

MINE = """
from dataclasses import dataclass
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar

@dataclass(frozen=True)
class Mine(FamilyWorkload):
    grammar = Grammar(family="mine", numbers={"b": "batch", "c": "columns"}, required=("c",))

    batch: int
    columns: int
    dtype: str = "f16"

    @property
    def flops(self):
        return 1.0

    @property
    def bytes_min(self):
        return 1.0

    def make_inputs(self, seed, device, *, planted):
        return ()

    def reference(self, inputs):
        return {}

    def plain(self, inputs):
        return {}
"""
REGISTER = """
def pytest_attnperf_register_workloads(families):
    from mine import Mine
    from pytest_attnperf.workloads.families import Family

    families.add(Family.of(Mine, "of a test"))
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """A project with a family of its own."""
    attnperf_project.backend("fake.a")
    attnperf_project.conftest(REGISTER)
    return attnperf_project


def find_error(project: FakeProject, mine: str, *args: str) -> str:
    """The one line in which a run ends, whose exit status is that of invalid usage."""
    (project.path / "mine.py").write_text(mine)
    result = project.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    lines = [line for line in result.errlines if line.strip()]
    return lines[0] if args else "\n".join(lines)


def test_a_whole_family_is_registered(project: FakeProject) -> None:
    """What the others leave out is all that they leave out."""
    (project.path / "mine.py").write_text(MINE)
    project.run().assert_outcomes(passed=1)


IN_CLASS = r"ERROR: \S+mine\.py:6: Mine "
MISTAKES = {
    "hyphen": ('family="mine"', 'family="my-op"', r"family name 'my-op' must be one word without hyphens.*"),
    "misspelled_grammar": ("grammar =", "gramar =", "has no grammar; rename gramar to grammar; write grammar = .*"),
    "no_grammar": ("    grammar =", "    text = 3\n    other =", r"has no grammar; write grammar = Grammar\(.*"),
    "misspelled_method": (
        "def reference",
        "def refrence",
        r"does not define reference; rename refrence to reference; pytest_attnperf/workloads/base\.py describes .*",
    ),
    "field_of_grammar": (
        '"c": "columns"',
        '"c": "colums"',
        "has a grammar that names 'colums', which is no field of it; known: columns, batch, dtype",
    ),
    "no_property": (
        "    @property\n    def flops",
        "    def flops",
        r"has a method flops\(\), which must be a property; write @property above it",
    ),
    "no_planted": (
        "seed, device, *, planted",
        "seed, device",
        r"has make_inputs\(self, seed, device\); write def make_inputs\(self, seed, device, \*, planted\)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_class_lacks_is_said_with_its_place(name: str, project: FakeProject) -> None:
    """Its file and line, what is wrong, and what to write."""
    old, new, says = MISTAKES[name]
    error = find_error(project, MINE.replace(old, new))
    assert re.fullmatch(IN_CLASS.replace("Mine ", "Mine:? ") + says, error), error


def test_a_class_without_its_decorator_is_said_with_its_place(project: FakeProject) -> None:
    """Without it the fields are not arguments of the class."""
    error = find_error(project, MINE.replace("@dataclass(frozen=True)\n", ""))
    says = r"has fields \(batch, columns, dtype\), but is no dataclass; write @dataclass\(frozen=True\) above it"
    assert re.fullmatch(IN_CLASS + says, error), error


@pytest.mark.parametrize(("old", "new"), [("(frozen=True)", ""), ("    batch: int", "    batch: int = 1")])
def test_a_class_that_python_refuses_is_said_with_its_place(old: str, new: str, project: FakeProject) -> None:
    """Not frozen, or its fields in another order: the line of the class, Python's reason, and what helps."""
    error = find_error(project, MINE.replace(old, new))
    says = (
        r"ERROR: \S+mine\.py:6: TypeError: .*; write @dataclass\(frozen=True\) above the class, and fields without .*"
    )
    assert re.fullmatch(says, error), error


@pytest.mark.parametrize(
    ("mine", "says"),
    [
        ("from math import cosh2\n", r"\S+mine\.py:1: ImportError: cannot import name 'cosh2' from 'math' .*"),
        ("import math\n\ndef f(:\n", r"\S+mine\.py:3: SyntaxError: .*"),
        ("import re\n\n\ndef f():\n    re.compile('(')\n\nf()\n", r"\S+mine\.py:5: error: missing \), .*"),
    ],
)
def test_what_an_import_raises_is_said_with_its_place(mine: str, says: str, project: FakeProject) -> None:
    """The deepest line of the user's files and the error; with --full-trace the traceback, too."""
    error = find_error(project, mine)
    assert re.fullmatch(f"ERROR: {says}", error), error
    assert re.fullmatch(f"ERROR: {says}", find_error(project, mine, "--full-trace"))


def test_a_family_is_registered_once(project: FakeProject) -> None:
    """The same class is listed twice; two classes of one name are both named with their places."""
    project.conftest(REGISTER + "    families.add(Family.of(Mine, ''))\n")
    error = find_error(project, MINE)
    assert re.fullmatch(IN_CLASS[:-1] + r": family 'mine' is listed twice; remove one of the lines", error), error
    project.conftest(REGISTER)
    # A name of another length: Python would take the bytecode of a file of the same second and size.
    error = find_error(project, MINE.replace('"mine"', '"softmax"'))
    before = (
        r"family 'softmax' is registered twice, before by \S+softmax\.py:\d+: Softmax: give one of them another name"
    )
    assert re.fullmatch(IN_CLASS[:-1] + f": {before}", error), error


def test_a_class_is_no_family(project: FakeProject) -> None:
    """What to write around it."""
    project.conftest(REGISTER.replace('Family.of(Mine, "of a test")', "Mine"))
    error = find_error(project, MINE)
    says = r'is registered without Family\.of: write Family\.of\(Mine, "what it is"\)'
    assert re.fullmatch(IN_CLASS + says, error), error


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("workloads.rope import Rope", "workloads.rope import Ropes", r"families\.py:\d+: ImportError: cannot import"),
        ("Family.of(Rope,", "(Rope,", r"\(<class '.*Rope'>, 'rotary .*'\) is registered without Family\.of: write"),
        ('Family.of(Mla, "multi', 'Family.of(Rope, "multi', r"rope\.py:\d+: Rope: family 'rope' is listed twice"),
    ],
)
def test_a_mistake_in_the_list_of_families_is_one_line(old: str, new: str, says: str, tmp_path: Path) -> None:
    """That list is imported by the plugin itself, whose own copy is edited here."""
    package = tmp_path / "pytest_attnperf"
    shutil.copytree(Path(pytest_attnperf.__path__[0]), package, ignore=shutil.ignore_patterns("__pycache__"))
    families = package / "workloads" / "families.py"
    families.write_text(families.read_text().replace(old, new))
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "pytest_attnperf.plugin.main", "-p", "no:cacheprovider"]
    env = {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert re.match(rf"ERROR: \S*{says}", line), line

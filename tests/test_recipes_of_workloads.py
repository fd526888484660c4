"""An op family and a suite that are made exactly as CONTRIBUTING.md says, in a copy of this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("pytest_attnperf", "kernels", "suites", "tests", "baselines/sm_90")
FILES = ("conftest.py", "pyproject.toml", "README.md")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".attnperf")
LINES_MOST = 12
LISTS = ("pytest_attnperf/workloads/families.py", "kernels/__init__.py")
"""What the recipe of a family has a line for."""


def recipe(title: str) -> str:
    """A section of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition(f"### {title}\n")[2].partition("\n#")[0].strip()


def commands(title: str) -> list[list[str]]:
    """The words of a recipe's proof and tests, in their order."""
    found = re.findall(r"`\.venv/bin/python ([^`]+)`", recipe(title))
    return [line.split() for line in found]


def renamed(text: str) -> str:
    """A template's text or path as one that is called spin: `property` holds no rope."""
    return re.sub(r"(?<![a-z])rope", "spin", text.replace("Rope", "Spin").replace("ROPE", "SPIN"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the recipes touch, and what their commands read."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(tree: Path, words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Type a command of a recipe in the tree, with more in its environment."""
    foreign = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "TEST_SHARE")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def add_family(tree: Path) -> None:
    """Follow the recipe: its templates under another name, and a line in each of its lists."""
    text = recipe("An op family")
    templates = dict.fromkeys(re.findall(r"[\w/]+/(?:test_)?rope\.py", text))
    assert len(templates) == 5, "a family is a class, a backend, a suite, and tests of the first two"
    for path in templates:
        (tree / renamed(path)).write_text(renamed((ROOT / path).read_text()))
    line, reason = re.findall(r"`(Family\.of\(.*?\)|NO_TRITON_YET = .*?)`", text)
    cls = tree / "pytest_attnperf/workloads/spin.py"
    cls.write_text(cls.read_text().replace("    batch: int\n", f"    {reason}\n\n    batch: int\n", 1))
    for path in LISTS:
        source = (tree / path).read_text()
        imported = re.compile(r"^.*\b(?:native|workloads)\.rope\b.*\n", re.MULTILINE)
        source = imported.sub(lambda found: found[0] + renamed(found[0]), source)
        source = source.replace("BUILT_IN = (\n", f"BUILT_IN = (\n    {renamed(line)},\n")
        (tree / path).write_text(source.replace("*NATIVE_ROPE", "*NATIVE_ROPE, *NATIVE_SPIN"))


@pytest.mark.parametrize("title", ["An op family", "A suite"])
def test_a_recipe_is_short(title: str) -> None:
    """Twelve lines, with a template, the command that proves it and the tests to run."""
    text = recipe(title)
    assert len(text.splitlines()) <= LINES_MOST
    assert [word for word in ("Template: ", "Proof: ", "Tests: ") if word not in text] == []


@pytest.mark.usefixtures("lean_processes")
def test_a_family_made_by_the_recipe_works(tree: Path) -> None:
    """Its native backend is proven right in its suite, its tests pass, and who asks for Triton reads the reason."""
    add_family(tree)
    proof, tests = ([renamed(word) for word in words] for words in commands("An op family"))
    # By its profile for CI, Hypothesis calls no busy machine a failure.
    proven, tested = run(tree, proof), run(tree, tests, CI="true")
    assert re.search(r"\b1 passed, ", proven.stdout), proven.stdout + proven.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr
    asked = run(tree, [word.replace("=native", "=triton") for word in proof])
    assert "; family spin has no Triton backend yet: reason" in asked.stderr


@pytest.mark.soak  # the family above has a suite of the same template
@pytest.mark.usefixtures("lean_processes")
def test_a_suite_made_by_the_recipe_works(tree: Path) -> None:
    """Its case is proven right, and its tests pass."""
    text = (ROOT / "suites/test_rope.py").read_text()
    (tree / "suites/test_turn.py").write_text(text.replace("def test_rope", "def test_turn").replace("ROPE", "TURN"))
    proof, tests = ([word.replace("test_rope", "test_turn") for word in words] for words in commands("A suite"))
    # By its profile for CI, Hypothesis calls no busy machine a failure.
    proven, tested = run(tree, proof), run(tree, tests, CI="true")
    assert re.search(r"\b\d passed, ", proven.stdout), proven.stdout + proven.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr

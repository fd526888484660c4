"""The files that `attnperf init` writes, and the examples that its workflows come from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.starter.files import WORKFLOWS, StarterKernel, find_kernel, plan_files, read_template
from tests.tools.ci.ci_commands import ROOT, commands, parsed

MODULE = "import torch\nfrom os import path\nSCALE = 2\n\ndef rms_norm(x, weight, eps=1e-6):\n    return x\n"

OWN = {
    "github": {
        "# Needs no GPU: everything proven right, Triton kernels in the interpreter.",
        "- run: if [ -f pyproject.toml ]; then pip install -e .; fi # and what your kernel needs: triton, numpy",
        "- run: pytest -rs perf",
        "# Mode `warn` says what would fail: set the variable ATTNPERF_GATE to `block` once your runner's "
        "baselines are committed.",
        "for name in times; do",
    },
    "gitlab": {
        "stages: [measure, judge]",
        "stage: judge",
        "tags: [gpu]",
        "- python3 -m venv --clear --system-site-packages .venv",
        '- .venv/bin/python -m pip install "$ATTNPERF_FROM"',
        '- pip install "$ATTNPERF_FROM"',
        "- pip install torch --index-url https://download.pytorch.org/whl/cpu",
        "- if [ -f pyproject.toml ]; then pip install -e .; fi # and what your kernel needs: triton, numpy",
        "- pytest -rs perf",
        "ATTNPERF_GATE: warn",
        "paths: [summary.md]",
        "- attnperf gate --results measured/results.json --against FETCH_HEAD --strict --markdown summary.md",
    },
}
"""Lines of a template that the examples do not have; comments of the one for GitLab are its own."""

EXAMPLES = {
    "github": ["examples/own-kernel/.github/workflows/perf.yml"],
    "gitlab": [
        "examples/ci/gitlab-ci.yml",
        "examples/ci/gitlab-judge.yml",
        "examples/own-kernel/.github/workflows/perf.yml",
    ],
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a module in src/, and a broken one beside it."""
    (tmp_path / "src" / "starter_pkg").mkdir(parents=True)
    (tmp_path / "src" / "starter_pkg" / "__init__.py").write_text("from starter_pkg.norms import rms_norm\n")
    (tmp_path / "src" / "starter_pkg" / "norms.py").write_text(MODULE)
    (tmp_path / "starter_broken.py").write_text("def f(:\n")
    (tmp_path / "starter_beside.py").write_text("def f():\n    pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "parameters", "folder"),
    [
        ("starter_pkg.norms:rms_norm", ("x", "weight"), "src"),
        ("starter_pkg:rms_norm", ("x",), "src"),
        ("starter_pkg.norms:SCALE", ("x",), "src"),
        ("starter_beside:f", ("x",), "."),
        ("json:dumps", ("x",), None),
    ],
)
def test_a_kernel_is_read_and_not_imported(
    repository: Path, text: str, parameters: tuple[str, ...], folder: str | None
) -> None:
    """Arguments without a default come from the source; a folder is named where the module is not importable."""
    module, _, function = text.partition(":")
    wanted = StarterKernel(module, function, parameters, None if folder is None else Path(folder))
    assert find_kernel(text, repository) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("starter_pkg.norms", "--kernel 'starter_pkg.norms' is not MODULE:FUNCTION; write for example"),
        ("../x:f", "is not MODULE:FUNCTION"),
        ("starter_pkg.norms:rms_nrom", "norms.py 'rms_nrom'; known: rms_norm"),
        ("starter_absent:f", "starter_absent is not installed for"),
        ("starter_broken:f", "starter_broken.py is not Python: "),
    ],
)
def test_a_kernel_that_is_not_there(repository: Path, text: str, message: str) -> None:
    """What was typed, what exists, and what to do."""
    with pytest.raises(UsageError) as raised:
        find_kernel(text, repository)
    assert message in str(raised.value)


@pytest.mark.parametrize("kernel", [None, StarterKernel("pkg.norms", "rms_norm", ("x", "weight"), Path("src"))])
def test_what_is_written_is_python(tmp_path: Path, kernel: StarterKernel | None) -> None:
    """The test and its conftest parse, and gate the function by its name."""
    files = {file.path.as_posix(): file.text for file in plan_files(tmp_path, kernel, "none")}
    for path in (path for path in files if path.endswith(".py")):
        ast.parse(files[path])
    name = "rms_norm" if kernel else "softmax"
    assert (
        f'attnperf.gate("{name}", {name}, reference=plain_{name}, inputs=make_inputs)' in files[f"perf/test_{name}.py"]
    )
    assert ("perf/conftest.py" in files) == (kernel is not None)


def test_a_name_of_another_test_is_not_taken(tmp_path: Path) -> None:
    """Pytest cannot import two files of one name where tests are no packages."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_softmax.py").touch()
    (first, *_) = plan_files(tmp_path, None, "none")
    assert first.path == Path("perf/test_softmax_perf.py")


def code_lines(text: str) -> set[str]:
    """Lines without their indentation; '' is none."""
    return {line.strip() for line in text.splitlines()} - {""}


@pytest.mark.parametrize("ci", WORKFLOWS)
def test_a_workflow_is_made_of_the_examples(ci: str) -> None:
    """Whatever an example changes (a pinned action, an option) has to be changed in the template, too."""
    examples = set().union(*(code_lines((ROOT / path).read_text()) for path in EXAMPLES[ci]))
    examples |= {line.replace("suites/", "perf/") for line in examples}
    own = {line for line in code_lines(read_template(WORKFLOWS[ci][1])) - examples if ci == "github" or line[0] != "#"}
    assert own == OWN[ci]


@pytest.mark.parametrize("ci", WORKFLOWS)
def test_commands_of_a_workflow_parse(ci: str) -> None:
    """It measures and judges by options that exist, and is YAML."""
    text = read_template(WORKFLOWS[ci][1])
    assert {"prove", "judge"} <= set(yaml.safe_load(text)) | set(yaml.safe_load(text).get("jobs", ()))
    found = {command for command, arguments in commands(text) if parsed(command, arguments)}
    assert found == {"pytest", "gate"}

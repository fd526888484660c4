from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files.json_results import build_schema, decode, write
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

PAGE = (Path(__file__).parents[2] / "docs/results-format.md").read_text()
PARTS = PAGE.split("\n## ")


@pytest.mark.parametrize(("record", "heading"), [(RunResult, "The run\n"), (CaseResult, "A case\n")])
def test_every_field_has_its_meaning(record: type[RunResult | CaseResult], heading: str) -> None:
    """The tables name every field, no other, and each once."""
    (part,) = [part for part in PARTS if part.startswith(heading)]
    named = [name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(record))


def test_the_version_is_this_one() -> None:
    """The page says the number and the address of the schema."""
    assert f"**`schema`** is {RESULTS_SCHEMA}." in PAGE
    assert f"`{build_schema()['$id']}`" in PAGE


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_jq_line_works(tmp_path: Path, case: CaseFactory, run: RunFactory) -> None:
    """The line of the page lists what failed, and nothing else."""
    write(tmp_path / "results.json", run(case(), case("b", verdict=Verdict.SAME, fails=False)))
    (line,) = re.findall(r"^jq -r .*$", PAGE, re.MULTILINE)
    made = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert made.stdout == "triton.flash\tprefill-b4-s512-h8-d256-f16-causal\t26.1\t24.6\t1.061\n"


def test_the_python_example_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: CaseFactory, run: RunFactory
) -> None:
    """The lines of the page read a file."""
    write(tmp_path / "results.json", run(case()))
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert names["run"] == decode((tmp_path / "results.json").read_bytes(), "results.json")

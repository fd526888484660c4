"""examples/foreign: the suites of public packages, and the script that installs and runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.elsewhere import ROOT

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")

FOREIGN = ROOT / "examples" / "foreign"
PACKAGES: dict[str, dict[str, Any]] = tomllib.loads((FOREIGN / "packages.toml").read_text())
NEVER_INSTALLED = ("torch", "triton", "numpy", "nvidia")
WHEELS_KB_MAX = 30_000
LINES_MAX = 250
SECONDS_MAX = 3000


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """run.py, as somebody would call it outside a test."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ATTNPERF_"))}
    command = [sys.executable, str(FOREIGN / "run.py"), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )


def table(text: str) -> dict[str, dict[str, int]]:
    """The last table: package -> column -> number."""
    lines = text.splitlines()
    start = max(number for number, line in enumerate(lines) if re.match(r"package +cases ", line))
    head = lines[start].split()
    rows = (line.split() for line in lines[start + 1 :] if not re.match(r"\S+: ", line))
    return {name: dict(zip(head[1:], map(int, numbers), strict=True)) for name, *numbers in rows}


def test_every_suite_has_a_package_pinned_to_one_version() -> None:
    """Each table names a folder of tests and exact versions, and each folder of tests has a table."""
    folders = {path.parent.name for path in FOREIGN.glob("*/test_*.py")}
    assert {package["suite"] for package in PACKAGES.values()} == folders
    assert all(re.fullmatch(r"[\d.]+", package["version"]) for package in PACKAGES.values())
    needs = [need for package in PACKAGES.values() for need in package["needs"]]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", need) for need in needs)
    assert not [need for need in needs if need.startswith(NEVER_INSTALLED)]
    assert all(package["licence"] and package["repository"].startswith("https://") for package in PACKAGES.values())
    assert sum(package["wheel_kb"] for package in PACKAGES.values()) < WHEELS_KB_MAX


def test_each_suite_names_what_it_skips_without_its_package() -> None:
    """A suite whose package is absent is skipped with that reason, and is no error."""
    suites = sorted(FOREIGN.glob("*/test_*.py"))
    assert len(suites) >= len(PACKAGES)
    for suite in suites:
        text = suite.read_text()
        assert re.search(r'importorskip\("[\w.]+", reason="[\w-]+ is not installed"\)', text), suite
        assert len(text.splitlines()) <= LINES_MAX, suite


@pytest.mark.parametrize("arguments", [["no-such-package"], ["liger-kernel", "--record", "--gate"]])
def test_what_makes_no_sense_is_refused(arguments: Sequence[str], tmp_path: Path) -> None:
    """A package without a suite, and two modes at once, are errors of use."""
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr


def test_a_package_that_cannot_be_had_is_skipped_with_a_reason(tmp_path: Path) -> None:
    """An empty folder of wheels installs nothing: one skipped case that says why, and nothing wrong."""
    (tmp_path / "wheels").mkdir()
    options = ["--wheels", str(tmp_path / "wheels"), "--into", str(tmp_path / "into")]
    done = run("sageattention", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert table(done.stdout)["sageattention"] | {"seconds": 0} == {
        "cases": 1,
        "proved": 0,
        "skipped": 1,
        "failed": 0,
        "seconds": 0,
    }
    assert "sageattention: 1 x cannot be installed: ERROR: No matching distribution found" in done.stdout


@pytest.mark.soak
def test_all_packages_that_can_be_had_are_proven(tmp_path: Path) -> None:
    """Nothing is wrong; and whatever was installed has proven something, or skipped all of it for want of a GPU."""
    done = run("--into", str(tmp_path), "--pytest", "-q", "-p", "no:randomly", cwd=tmp_path)
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    assert done.returncode == 0
    rows = table(done.stdout)
    assert set(rows) == set(PACKAGES)
    if all("cannot be installed" in line for line in done.stdout.splitlines() if re.match(r"[\w-]+: 1 x ", line)):
        pytest.skip("no package can be had from here")
    for name, row in rows.items():
        assert row["failed"] == 0
        reasons = [line for line in done.stdout.splitlines() if line.startswith(f"{name}: ")]
        assert row["proved"] or all("needs a GPU" in line or "cannot be installed" in line for line in reasons), name

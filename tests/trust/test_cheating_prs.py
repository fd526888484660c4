"""What a pull request may do to pass, judged by `attnperf gate` in its own checkout, against the base revision."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.gate import MODE_VARIABLE, run
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.records import CheckReport, Tolerance, Verdict, WorkloadFigures
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult
from tests.timed_cases import POLICY, RIGHT, run_of, store_baselines, timed_case

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

FILE = Path("baselines/fake/fake1/prefill.json")
Change = Callable[[CaseResult], CaseResult]


SLOW, SAME = timed_case(110.0, "fake.a"), timed_case(100.2, "fake.b")


def _git(folder: Path, *words: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *words], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose `main` stores 100 us for both cases."""
    folder = tmp_path_factory.mktemp("base")
    store_baselines(folder / "baselines", "fake.a", "fake.b")
    _git(folder, "init", "-q")
    _git(folder, "add", "-f", str(FILE))
    _git(folder, "commit", "-q", "-m", "base")
    _git(folder, "checkout", "-q", "-b", "change")
    return folder


@pytest.fixture
def judged(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """What the base revision's baselines say of these cases, strictly, typed in a copy of the repository."""
    monkeypatch.delenv(MODE_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "checkout"
    shutil.copytree(base, folder, symlinks=True)
    monkeypatch.chdir(folder)

    def gate(*cases: CaseResult, options: tuple[str, ...] = ()) -> tuple[int, str]:
        json_results.write(tmp_path / "results.json", run_of(*cases))
        words = ["gate", "--results", str(tmp_path / "results.json"), "--against", "main", "--strict", *options]
        return run(build_parser(["gate"]).parse_args(words)), capsys.readouterr().out

    return gate


Judged = Callable[..., tuple[int, str]]


def _renamed(**parts: str) -> Change:
    return lambda case: replace(case, key=replace(case.key, **parts))


def _loosened(**policy: object) -> Change:
    return lambda case: replace(case, policy={**POLICY, **policy})


HIDING: dict[str, tuple[Change, str]] = {
    "renames the backend": (_renamed(backend="fake.renamed"), "fake.a/w has a baseline but no case"),
    "renames the workload": (_renamed(workload="w2"), "fake.a/w has a baseline but no case"),
    "renames the label": (_renamed(label="new"), "fake.a/w has a baseline but no case"),
    "renames the suite": (_renamed(suite="prefill2"), "fake.a/w has a baseline but no case"),
    "loosens the threshold": (_loosened(threshold_percent=50.0), "SLOWER"),
    "loosens the floor": (_loosened(floor_us=1000.0), "SLOWER"),
    "fails on nothing": (_loosened(fail_on=[]), "SLOWER"),
    "quarantines itself": (_loosened(quarantine="https://x", until="2999-01-01"), "SLOWER"),
    "leaves it to nightly runs": (_loosened(tier="nightly"), "SLOWER"),
    "calls itself unsupported": (
        lambda case: replace(case, verdict=Verdict.UNSUPPORTED, reasons=("no such dtype",), first=(), second=()),
        "unsupported now, but a baseline is stored",
    ),
    "calls itself unchanged": (lambda case: replace(case, unchanged=True), "SLOWER"),
    "calls itself not failing": (lambda case: replace(case, fails=False, quarantined="https://x"), "SLOWER"),
    "shrinks the workload under its id": (
        lambda case: replace(timed_case(50.0, "fake.a"), figures=WorkloadFigures(None, None, "f16", "hot", {"s": 32})),
        "INCOMPARABLE",
    ),
    "loosens the tolerance": (
        lambda case: replace(timed_case(100.0, "fake.a"), checks=(
            CheckReport(tuple(replace(one, max_error=8e-3, max_budget=1e-2) for one in RIGHT.figures),
                        tolerance=Tolerance(10.0, "because")),
        )),
        "INCORRECT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", HIDING)
def test_what_a_results_file_says_of_itself_hides_nothing(judged: Judged, trick: str) -> None:
    """A slow, smaller or wrong case under another name, policy or verdict fails under strict, and is told why."""
    change, said = HIDING[trick]
    status, text = judged(change(SLOW), SAME)
    assert status == 1
    assert said in text


def test_a_renamed_test_file_is_the_same_case(judged: Judged) -> None:
    """Cases are known by their keys: a test that moves is judged as before, and nothing is missing."""
    moved = replace(SAME, nodeid="suites/moved/test_other.py::test[fake.b]")
    status, text = judged(timed_case(100.3, "fake.a"), moved)
    assert (status, "passed" in text) == (0, True)
    assert judged(SLOW, moved)[0] == 1


def _edited(folder: Path, old: bytes, new: bytes) -> None:
    file = folder / FILE
    file.write_bytes(file.read_bytes().replace(old, new))


CHANGES: dict[str, Callable[[Path], object]] = {
    "deletes the baselines": lambda folder: shutil.rmtree(folder / "baselines"),
    "deletes one suite's file": lambda folder: (folder / FILE).unlink(),
    "makes the file unreadable": lambda folder: _edited(folder, b"{", b"["),
    "links the folder elsewhere": lambda folder: (
        shutil.move(folder / "baselines", folder / "elsewhere"),
        (folder / "baselines").symlink_to("elsewhere"),
    ),
    "commits baselines of this machine": lambda folder: shutil.copytree(
        folder / "baselines", folder / ".attnperf" / "baselines"
    ),
    "loosens the project's settings": lambda folder: (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nattnperf_threshold = "50"\nattnperf_fail_on = "ERROR"\n'
        'addopts = "--no-attnperf-strict --attnperf-threshold=50 -k nothing"\n'
    ),
    "brings a conftest": lambda folder: (folder / "conftest.py").write_text("raise SystemExit('a conftest ran')\n"),
    "brings a module named as ours": lambda folder: (folder / "pytest_attnperf.py").write_text("raise SystemExit\n"),
}


@pytest.mark.parametrize("trick", CHANGES)
def test_what_a_change_does_to_its_own_tree_is_not_read(judged: Judged, trick: str) -> None:
    """Baselines, settings and code of the checkout decide nothing: the slow case fails, the other passes."""
    CHANGES[trick](Path.cwd())
    status, text = judged(SLOW, SAME)
    assert (status, "failed: 1 slower" in text) == (1, True)
    assert judged(timed_case(100.3, "fake.a"), SAME)[0] == 0


def test_a_removed_case_is_missed_even_with_its_baseline(judged: Judged) -> None:
    """A change that deletes a case and its stored entry is told of both by the base's file."""
    _edited(Path.cwd(), b"fake.a/w", b"fake.c/w")
    status, text = judged(SAME)
    assert status == 1
    assert "prefill/fake.a/w has a baseline but no case: it was removed, renamed or deselected" in text
    assert "fake.c" not in text

"""`attnperf tune` as a user types it, on the fake device."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.tune import hash_sources, lease_gpus, parse_default
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.environment.cards import GpuBusyError
from pytest_attnperf.errors import UsageError
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.tuning_records import Candidate, TuningSpace

FASTER = {"pin": {"BLOCK_M": "64"}, "time_us": 80.0}
SPACE = {"values": {"BLOCK_M": [16, 32, 64, 128]}, "default": {"BLOCK_M": 32}}
OTHER = "prefill-b1-s128-h1-d16-f16"
QUICK = ("--budget", "60s", "--processes", "1", "--pairs", "3", "--jobs", "1")


def typed(project: FakeProject, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`attnperf tune ...` in the project's folder."""
    project.write()
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "pytest_attnperf.cli", "tune", *arguments]
    return subprocess.run(command, cwd=project.path, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def tunable(attnperf_project: FakeProject) -> FakeProject:
    """A backend that is 20 % faster with BLOCK_M=64, in a suite of two workloads."""
    attnperf_project.suite([WORKLOAD, OTHER])
    attnperf_project.backend("fake.a", time_us=100.0, space=SPACE, pinned=[FASTER])
    return attnperf_project


def test_the_faster_configuration_is_found_and_written(tunable: FakeProject) -> None:
    """The winner's file, the report and everything measured are written, and the terminal says so."""
    done = typed(tunable, "fake.a", "--workload", WORKLOAD, "--out", "tuned", *QUICK)
    assert (done.returncode, done.stdout.startswith("BETTER: ")) == (0, True), done.stdout + done.stderr
    assert re.search(r"^1 winner +0\.8\d\d +64$", done.stdout, re.MULTILINE)
    assert "written: tuned/configs/fake_kernel/fake.json: the only rule changed" in done.stdout
    written = json.loads((tunable.path / "tuned/configs/fake_kernel/fake.json").read_text())
    assert written["config"] == {"BLOCK_M": 64}
    assert re.fullmatch(r"attnperf tune on fake device, \d{4}-\d\d-\d\d", written["source"])
    result = json.loads((tunable.path / "tuned/tune.json").read_text())
    assert (result["verdict"], result["winner"]["values"]) == ("BETTER", {"BLOCK_M": 64})
    assert {change["workload"]: change["tuned"] for change in result["changes"]} == {WORKLOAD: True, OTHER: False}
    assert "BETTER" in (tunable.path / "tuned/report.md").read_text()
    again = typed(tunable, "fake.a", "--workload", WORKLOAD, "--out", "tuned", *QUICK)
    assert "resuming tuned/journal.jsonl" in again.stderr
    assert json.loads((tunable.path / "tuned/tune.json").read_text())["trials"] == result["trials"]


def test_slower_elsewhere_writes_nothing(tunable: FakeProject) -> None:
    """One rule serves both workloads, and the worst decides: exit 1, and no configuration is written."""
    tunable.backend(
        "fake.a", time_us=100.0, space=SPACE, pinned=[FASTER, {**FASTER, "time_us": 130.0, "only": [OTHER]}]
    )
    done = typed(tunable, "fake.a", "--workload", WORKLOAD, "--out", "tuned", *QUICK)
    assert (done.returncode, done.stdout.startswith("SLOWER_ELSEWHERE: ")) == (1, True), done.stdout + done.stderr
    assert not (tunable.path / "tuned/configs").exists()


OFF = {
    "no space": (("fake.a",), "fake.a declares no tuning space; a backend that can be tuned implements"),
    "refused": (("fake.b",), "two rules serve these"),
    "default": (("fake.c", "--default", "BLOCK_K=1"), "--default: fake_kernel has no BLOCK_K; it has BLOCK_M"),
    "family": (("fake.c", "--family", "decode"), "fake.c implements prefill, not decode"),
    "workload": (("fake.c", "--workload", "s=many"), "s=many"),
    "suite": (("fake.c", "--tests", "nowhere"), "nowhere does not exist"),
    "folder": (("fake.c", "--out", "conftest.py"), "--out conftest.py: the folder cannot be created (File exists)"),
}
"""Commands that are off, and what is said of each."""

EACH_IN_A_FORK = """
import json, os, sys
import pytest_attnperf.plugin.tuning
from pytest_attnperf.cli.program import main
for name, arguments in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        os.dup2(os.open(f"{name}.err", os.O_WRONLY | os.O_CREAT), 2)
        status = main(["tune", *arguments])
        sys.stderr.flush()
        os._exit(status)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Commands share what is the same for all: starting Python and importing pytest."""


def test_what_cannot_be_tuned_is_one_line(attnperf_project: FakeProject) -> None:
    """A command that is off ends with status 2 and says what is wrong."""
    attnperf_project.backend("fake.a")
    attnperf_project.backend("fake.b", space={"refuse": "two rules serve these"})
    attnperf_project.backend("fake.c", space=SPACE)
    commands = json.dumps({name: arguments for name, (arguments, _) in OFF.items()})
    command = [sys.executable, "-c", EACH_IN_A_FORK, commands]
    done = subprocess.run(command, cwd=attnperf_project.path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} 2" for name in OFF]
    for name, (_, said) in OFF.items():
        err = (attnperf_project.path / f"{name}.err").read_text()
        assert (said in err, "Traceback" in err) == (True, False), f"{name}: {err}"


def test_a_backend_that_no_suite_runs(attnperf_project: FakeProject) -> None:
    """Workers run a backend through a suite: without one the error says what is needed."""
    attnperf_project.suite([WORKLOAD], settings=", backends=['fake.b']")
    attnperf_project.backend("fake.a", space=SPACE)
    attnperf_project.backend("fake.b")
    done = typed(attnperf_project, "fake.a")
    assert done.returncode == 2
    assert "no timed test of" in done.stderr
    assert "--tests PATH" in done.stderr


def options(*arguments: str) -> argparse.Namespace:
    """Parsed as the command line is."""
    return build_parser(["tune"]).parse_args(["tune", "fake.a", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pairs", "2"), "--pairs 2 must be at least 3"),
        (("--trials", "0"), "--trials 0 must be at least 1"),
        (("--min-gain", "-1"), "--min-gain -1 must be a percentage"),
        (("--static-files",), "--static-files needs --static ARCH"),
        (("--static", "gfx94"), r"--static gfx94: .*limits of 'gfx94' are not known \(did you mean 'gfx942'\?\)"),
        (("--gpus", "none"), "--gpus 'none' must be 'all' or a number"),
        (("--budget", "soon"), "--budget 'soon' must be a time above 0"),
    ],
)
def test_numbers_that_are_off(arguments: tuple[str, ...], said: str) -> None:
    """They are refused before anything is loaded."""
    from pytest_attnperf.cli.commands.tune import run

    with pytest.raises(UsageError, match=said):
        run(options(*arguments))


def test_a_default_of_ones_own() -> None:
    """Single values of the stored default are replaced, read as the old ones' types."""
    space = TuningSpace("k", {}, Candidate({"BLOCK_M": 128, "PRELOAD_V": False}))
    assert parse_default(space, "") is None
    assert parse_default(space, "PRELOAD_V=true") == Candidate({"BLOCK_M": 128, "PRELOAD_V": True})
    for text, said in (
        ("BLOCK_M=yes", "of the type of the stored 128"),
        ("BLOCK_M", "expected NAME=VALUE"),
        ("a=1,a=2", "twice"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_default(space, text)


def test_gpus_are_leased_once(tmp_path: Path) -> None:
    """As many as are free with 'all', as many as are wanted otherwise; too few hold none."""
    first = lease_gpus(("0", "1", "2"), "1", tmp_path)
    rest = lease_gpus(("0", "1", "2"), "all", tmp_path)
    assert ([lease.token for lease in first], [lease.token for lease in rest]) == (["0"], ["1", "2"])
    with pytest.raises(GpuBusyError):
        lease_gpus(("0", "1"), "1", tmp_path)
    rest[0].release()
    with pytest.raises(UsageError, match=r"--gpus 2: 1 of 3 visible GPUs are free"):
        lease_gpus(("0", "1", "2"), "2", tmp_path)
    assert [lease.token for lease in lease_gpus(("0", "1", "2"), "all", tmp_path)] == ["1"]


def test_an_edited_kernel_is_another_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity of a journal covers the files beside the backend's class."""
    (tmp_path / "own_kernel_package").mkdir()
    source = tmp_path / "own_kernel_package" / "own_kernel.py"
    source.write_text("class Own:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_kernel_package.own_kernel import Own  # type: ignore[import-not-found]

    before = hash_sources(Own())
    assert before == hash_sources(Own())
    source.write_text("class Own:\n    edited = True\n")
    assert hash_sources(Own()) != before


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A status of its own, and no traceback."""
    from pytest_attnperf.cli.commands.tune import INTERRUPTED, run
    from pytest_attnperf.plugin import tuning

    def interrupted(*arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "collect_project", interrupted)
    assert run(options()) == INTERRUPTED
    assert capsys.readouterr().err == "attnperf: interrupted\n"


def test_a_static_run_leaves_timed_results_alone(attnperf_project: FakeProject) -> None:
    """It would put an order that nothing was timed for in place of what was measured."""
    attnperf_project.backend("fake.a", space=SPACE)
    (attnperf_project.path / "tuned").mkdir()
    (attnperf_project.path / "tuned" / "journal.jsonl").write_text("")
    done = typed(attnperf_project, "fake.a", "--out", "tuned", "--static", "gfx942")
    assert (done.returncode, "holds results of a timed run" in done.stderr) == (2, True), done.stderr


def test_a_run_and_its_folder_as_a_page(tunable: FakeProject) -> None:
    """--html writes the page of the run; attnperf report shows the same of its folder later."""
    done = typed(
        tunable, "fake.a", "--workload", WORKLOAD, "--out", "tuned", "--html", "page.html", *QUICK
    )  # fmt: skip
    assert (done.returncode, "written: page.html" in done.stderr) == (0, True), done.stdout + done.stderr
    page = (tunable.path / "page.html").read_text(encoding="utf-8")
    for words in ("Tuning of fake.a", "What each setting costs", "BLOCK_M=64", "The verdict&#39;s pairs"):
        assert words in page
    command = [sys.executable, "-m", "pytest_attnperf.cli", "report", "tuned", "--report", "later"]
    again = subprocess.run(command, cwd=tunable.path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "What each setting costs" in (tunable.path / "later/report.html").read_text(encoding="utf-8")

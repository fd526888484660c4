from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.ci.ci_commands import VALUES, steps, workflow

FAKE_ATTNPERF = """#!/usr/bin/env bash
printf '%s\\n' "$@" >>"$1-arguments"
status=$FAKE_GATE
case $*,$FAKE_CODE in *code-objects/*,?*) status=$FAKE_CODE ;; esac
while [ $# -gt 1 ] && [ "$status" -le 1 ]; do
    case $1 in
        --markdown) echo '# summary' >"$2" ;;
        --json) echo '{}' >"$2" ;;
    esac
    shift
done
exit "$status"
"""


@dataclass(frozen=True)
class Ran:
    """A step that was run."""

    status: int
    outputs: str
    summary: str
    called: dict[str, list[str]]


@dataclass(frozen=True)
class Runner:
    """What runs a step's script as GitHub does: `bash -e`, in a folder, with variables and two files."""

    folder: Path

    def fetched(self, *names: str) -> None:
        """Results that an earlier step has left."""
        for name in names:
            (self.folder / "fetched" / name).mkdir(parents=True)
            (self.folder / "fetched" / name / "results.json").write_text("{}")

    def run(self, step: str, *, gate: int = 0, code: str = "", **variables: str) -> Ran:
        """One step of the judging workflow, with an attnperf whose exit status is given, for code objects by `code`."""
        (script,) = [each["run"] for each in steps(workflow("attnperf-comment.yml")) if each.get("name") == step]
        environ = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            **VALUES,
            "ATTNPERF_GATE": "warn",
            **variables,
        }
        environ |= {"FAKE_GATE": str(gate), "FAKE_CODE": code}
        environ |= {name: str(self.folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        command = ["bash", "-e", "-c", script]
        ran = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        written = [self._text("GITHUB_OUTPUT"), self._text("GITHUB_STEP_SUMMARY")]
        called = {path.name.partition("-")[0]: path.read_text().split("\n")[:-1] for path in self.folder.glob("*-arg*")}
        return Ran(ran.returncode, written[0], written[1], called)

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """In an empty checkout."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/attnperf").write_text(FAKE_ATTNPERF)
    (tmp_path / "bin/attnperf").chmod(0o755)
    return Runner(tmp_path)


@pytest.mark.parametrize(
    ("gate", "code", "verdict"),
    [
        (0, "0", "passed"),
        (1, "0", "failed"),
        (0, "1", "failed"),
        (2, "0", "broken"),
        (137, "1", "broken"),
        (1, "2", "broken"),
    ],
)
def test_verdict_is_the_gate_s_worst_exit_status(runner: Runner, gate: int, code: str, verdict: str) -> None:
    """A gate that could not judge, or was killed, has not passed anything; the step itself goes on."""
    runner.fetched("attnperf-results", "attnperf-code-objects")
    ran = runner.run("Judge", gate=gate, code=code, STATE="measured")
    assert (ran.status, ran.outputs) == (0, f"verdict={verdict}\n")
    assert ran.summary.splitlines()[0] == f"attnperf gate: {verdict} (mode warn)"
    assert ran.summary.count("# summary") == [gate <= 1, int(code) <= 1].count(True)


def test_each_file_is_judged_alone_strictly_and_so_that_it_can_fail(runner: Runner) -> None:
    """Measurements of nothing cannot hide behind code objects that passed."""
    runner.fetched("attnperf-results", "attnperf-code-objects")
    called = runner.run("Judge", STATE="measured").called["gate"]
    assert [part for part in called if part.startswith("fetched/")] == [
        "fetched/attnperf-results/results.json",
        "fetched/attnperf-code-objects/results.json",
    ]
    assert [called.count(part) for part in ("gate", "--strict", "block")] == [2, 2, 2]
    demands = [called[position + 1 : position + 3] for position, part in enumerate(called) if part == "--commit"]
    assert demands == [[VALUES["COMMITS"], "--device"], [VALUES["COMMITS"], "--arch"]]
    assert called[called.index("--device") + 1] == VALUES["DEVICE"]
    assert called[called.index("--arch") + 1] == "all"


def test_without_a_gpu_runner_compiled_kernels_can_pass(runner: Runner) -> None:
    """Then measurements are not asked for, nor judged where somebody uploads some."""
    runner.fetched("attnperf-results", "attnperf-code-objects")
    ran = runner.run("Judge", STATE="measured", ARTIFACTS="attnperf-code-objects")
    assert ran.outputs == "verdict=passed\n"
    assert ran.called["gate"].count("gate") == 1


@pytest.mark.parametrize(("gate", "verdict"), [(0, "unmeasured"), (1, "failed")])
def test_code_objects_alone_can_fail_but_not_pass(runner: Runner, gate: int, verdict: str) -> None:
    """Without measurements nothing passes."""
    runner.fetched("attnperf-code-objects")
    assert runner.run("Judge", gate=gate, STATE="unmeasured").outputs == f"verdict={verdict}\n"


@pytest.mark.parametrize("state", ["broken", "unmeasured"])
def test_nothing_to_judge_is_no_pass(runner: Runner, state: str) -> None:
    """The gate is not asked, and the summary says what is the matter."""
    if state == "broken":
        runner.fetched("attnperf-code-objects")
    ran = runner.run("Judge", STATE=state)
    assert (ran.status, ran.outputs, ran.called) == (0, f"verdict={state}\n", {})
    assert ran.summary == f"attnperf gate: {state} (mode warn)\n"


def test_comment_is_given_the_judged_results(runner: Runner) -> None:
    """Not those that were fetched, and the commit of the event."""
    (runner.folder / "judged").mkdir()
    for name in ("attnperf-results.json", "attnperf-code-objects.json"):
        (runner.folder / "judged" / name).write_text("{}")
    called = runner.run("Comment and set the status", VERDICT="failed", PULL="7").called["report"]
    files = ["judged/attnperf-code-objects.json", "judged/attnperf-results.json"]
    assert called[:6] == ["report", *files, "--comment", "--verdict", "failed"]
    assert called[called.index("--pull") + 1 : called.index("--pull") + 4] == ["7", "--base-branch", "main"]
    assert called[called.index("--head-sha") + 1] == VALUES["HEAD_SHA"]
    assert called[-1] == "--status"


@pytest.mark.parametrize("verdict", ["broken", "unmeasured"])
def test_comment_without_results_says_what_is_the_matter(runner: Runner, verdict: str) -> None:
    """A push has no pull request, and its commit gets its status all the same."""
    (runner.folder / "judged").mkdir()
    called = runner.run("Comment and set the status", VERDICT=verdict, PULL="").called["report"]
    assert called[:4] == ["report", "--comment", "--verdict", verdict]
    assert "--pull" not in called


def test_refused_comment_fails_the_step(runner: Runner) -> None:
    """So that somebody looks."""
    (runner.folder / "judged").mkdir()
    assert runner.run("Comment and set the status", gate=1, VERDICT="broken", PULL="7").status == 1


def test_hostile_names_are_words_and_never_run(runner: Runner) -> None:
    """What a fork is called, and what a variable of the event holds, stays one argument."""
    hostile = "x/$(touch owned);`touch owned` '\" *"
    (runner.folder / "judged").mkdir()
    called = runner.run("Comment and set the status", VERDICT="broken", PULL="7", HEAD_REPO=hostile).called["report"]
    assert called[called.index("--head-repo") + 1] == hostile
    assert not (runner.folder / "owned").exists()

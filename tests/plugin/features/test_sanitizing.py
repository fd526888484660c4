"""`pytest --attnperf-sanitize=...` with a program that stands in for compute-sanitizer: what a user sees of its log."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.features.sanitizing import judge_report
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.sanitizers import SanitizerFinding, SanitizerReport
from pytest_attnperf.session.settings import Case
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.look import Ending, Look
from pytest_attnperf.workers.sanitizers import PROGRAM, PROGRAM_VARIABLE

DATA = Path(__file__).parents[2] / "data" / "sanitizers"
ON_GPU = "--attnperf-device=gpu"

STAND_IN = """#!/bin/bash
while [ $# -gt 0 ]; do
    case "$1" in
        --tool) tool="$2"; shift 2 ;;
        --log-file) log="$2"; shift 2 ;;
        --*) shift 2 ;;
        *) break ;;
    esac
done
echo "$tool" >> {asked}
{before}
"$@"
status=$?
cp {logs}/$tool.log "$log" 2>/dev/null
exit $status
"""


class Stand:
    """A folder with a program that runs its command and then copies a log that is there for its tool."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path, self._program = path, path / PROGRAM
        path.mkdir()
        monkeypatch.setenv(PROGRAM_VARIABLE, str(self._program))
        self.write()

    def write(self, before: str = "") -> None:
        """Writes the program; `before` is what it does before its command."""
        asked = shlex.quote(str(self._path / "asked"))
        self._program.write_text(STAND_IN.format(asked=asked, before=before, logs=shlex.quote(str(self._path))))
        self._program.chmod(0o755)

    def log(self, tool: str, name: str) -> None:
        """What the tool writes, from the tests' data."""
        shutil.copy(DATA / name, self._path / f"{tool}.log")

    @property
    def asked(self) -> list[str]:
        """The tools that ran, in order."""
        return (self._path / "asked").read_text().split()


@pytest.fixture
def stand(installed: Stand, own_process: None) -> Stand:
    """The same, where workers are processes that it starts."""
    return installed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A sanitizer that finds nothing."""
    made = Stand(tmp_path / "cuda tools", monkeypatch)
    for tool in ("memcheck", "initcheck", "synccheck"):
        made.log(tool, "clean.log")
    return made


def test_a_case_in_which_nothing_is_found_is_right(attnperf_project: FakeProject, stand: Stand) -> None:
    """Each tool proves it in a process of its own."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck,initcheck")
    result.assert_outcomes(passed=1)
    assert stand.asked == ["memcheck", "initcheck"]


def test_a_finding_is_incorrect_with_kernel_kind_place_and_address(attnperf_project: FakeProject, stand: Stand) -> None:
    """A right result does not outweigh it; no further tool runs."""
    stand.log("memcheck", "memcheck.log")
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck,initcheck")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*INCORRECT*",
            "*memcheck: Invalid __global__ write of size 4 bytes in kernel scale_kernel, at "
            "/src/kernels/scale.py:17, by thread (18,0,0) in block (3,0,0)*",
        ]
    )
    assert stand.asked == ["memcheck"]


def test_a_finding_belongs_to_the_case_that_ran(attnperf_project: FakeProject, stand: Stand) -> None:
    """Each case has a process and a log of its own."""
    stand.write('case "$(cat count 2>/dev/null)" in "") echo 1 > count ;; *) tool=dirty ;; esac')
    stand.log("dirty", "memcheck.log")
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck", "-rA")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["PASSED *fake.a*", "FAILED *fake.b*"])


def test_a_clean_summary_makes_only_a_proven_case_right(attnperf_project: FakeProject, stand: Stand) -> None:
    """'ERROR SUMMARY: 0 errors' behind a wrong result, a crash, an error or a hang is no pass; a case that is not
    supported ran nothing. A case may take 20 times as long as without a tool."""
    for name, script in {
        "fake.crash": {"fault": "crash"},
        "fake.hang": {"fault": "hang"},
        "fake.other": {"supported": ["needs another device"]},
        "fake.raise": {"fault": "raise"},
        "fake.right": {"time_us": 100.0},
        "fake.wrong": {"fault": "wrong"},
    }.items():
        attnperf_project.backend(name, **script)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck", "--attnperf-case-limit=0.5", "-rA")
    result.assert_outcomes(passed=1, failed=4, skipped=1)
    for line in (
        "under memcheck: *exit status 134*",
        "under memcheck: *did not answer 'check' within 10 s*",
        "under memcheck: *an illegal memory access was encountered*",
        "PASSED *fake.right*",
        "INCORRECT: *fake.wrong*",
    ):
        result.stdout.fnmatch_lines([line])


def test_a_tool_that_sees_nothing_proves_nothing(attnperf_project: FakeProject, stand: Stand) -> None:
    """Its case is an ERROR, although the proof in the process was right."""
    stand.log("memcheck", "not_instrumented.log")
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["ERROR: *", "memcheck proves nothing: *terminated before first instrumented API call"])


def test_a_tool_that_writes_nothing_proves_nothing(attnperf_project: FakeProject, stand: Stand) -> None:
    """A program that only runs its command is no sanitizer."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=racecheck")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["ERROR: *", "racecheck proves nothing: racecheck wrote no log"])


def test_a_tool_that_cannot_start_is_an_error(attnperf_project: FakeProject, stand: Stand) -> None:
    """Its own last words are shown."""
    stand.write("echo 'no driver for this tool' >&2; exit 3")
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["ERROR: *", "under memcheck: *exit status 3", "*no driver for this tool*"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--attnperf-sanitize=memchek",), "*unknown tool of --attnperf-sanitize 'memchek'*memcheck*"),
        (("--attnperf-sanitize=memcheck", "--attnperf"), "*--attnperf with --attnperf-sanitize: *nothing is timed*"),
        (("--attnperf-sanitize=memcheck", "--attnperf-warm"), "*--attnperf-warm with --attnperf-sanitize: *"),
        (("--attnperf-sanitize=memcheck", "--attnperf-isolate=none"), "*needs processes of its own*"),
        (("--attnperf-sanitize=memcheck", "--attnperf-device=cpu"), "*needs a GPU: *-fsanitize=address*"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    attnperf_project: FakeProject, installed: Stand, flags: tuple[str, ...], said: str
) -> None:
    """With what to drop or to do instead."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, *flags)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_a_missing_tool_is_refused(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names where it was looked for and how to install it, before any case runs."""
    monkeypatch.setenv(PROGRAM_VARIABLE, "/no/such/program")
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run(ON_GPU, "--attnperf-sanitize=memcheck")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*compute-sanitizer is not installed; looked for /no/such/program. Nothing was checked; install *"]
    )


REPORT = SanitizerReport("memcheck", log="/no/such/file")
FINDING = SanitizerFinding("Invalid __global__ write", "scale")
CASE = Case(CaseKey("prefill", "fake.a", "prefill-b1-s64-h1-d16-f16"), "suites/test_a.py::test_a", Policy())


@pytest.mark.parametrize(
    ("report", "look", "error", "verdict"),
    [
        (REPORT, Look(Ending.RIGHT), None, Verdict.RIGHT),
        (replace(REPORT, failures=("no summary",)), Look(Ending.RIGHT), None, Verdict.ERROR),
        (replace(REPORT, failures=("no summary",)), Look(Ending.INCORRECT, ("wrong",)), None, Verdict.INCORRECT),
        (replace(REPORT, findings=(FINDING,)), Look(Ending.RIGHT), None, Verdict.INCORRECT),
        (replace(REPORT, findings=(FINDING,)), None, WorkerError("died"), Verdict.INCORRECT),
        (replace(REPORT, findings=(FINDING,), failures=("no summary",)), Look(Ending.RIGHT), None, Verdict.INCORRECT),
        (REPORT, None, WorkerError("died"), Verdict.ERROR),
        (REPORT, None, CaseFailedError("raised"), Verdict.ERROR),
        (REPORT, Look(Ending.UNSUPPORTED, ("no",)), None, Verdict.UNSUPPORTED),
        (replace(REPORT, warnings=("perhaps",)), Look(Ending.RIGHT), None, Verdict.RIGHT),
    ],
)
def test_only_a_tool_that_saw_the_case_makes_it_right(
    report: SanitizerReport, look: Look | None, error: Exception | None, verdict: Verdict
) -> None:
    """Findings come first, then what broke, then the proof, then the tool's own failures."""
    result = judge_report(CASE, report, look, error)
    assert result.verdict is verdict
    assert result.summary
    assert any("perhaps" in note for note in result.notes) == bool(report.warnings)


def test_many_findings_are_cut() -> None:
    """The log has all of them."""
    findings = tuple(replace(FINDING, kernel=f"k{number}") for number in range(20))
    reasons = judge_report(CASE, replace(REPORT, findings=findings), Look(Ending.RIGHT), None).reasons
    assert len(reasons) == 9
    assert reasons[-1] == "memcheck: 12 more findings; all are in /no/such/file"

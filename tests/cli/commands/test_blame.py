from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands import blame as blame_command
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.launch import IMPORTED
from tests.made_packages import make_bare_python, make_package

NODEID = "suites/test_prefill.py::test_prefill[fake.{}-prefill-b1-s64-h1-d16-f16]"
COSTS = "import json, sys\nprint(json.dumps([__import__(name).cost for name in sys.argv[1:]]))"
SLOWED = """
import slowlib, steady_a, steady_b
from pytest_attnperf.testing.fake.device import FakeDevice

read = FakeDevice._read_script

def read_slowed(self):
    script = read(self)
    script["backends"]["fake.a"]["time_us"] *= slowlib.cost
    return script

FakeDevice._read_script = read_slowed
"""


def _parsed(*arguments: str) -> argparse.Namespace:
    return build_parser(["blame"]).parse_args(["blame", *arguments])


def _make_side(folder: Path, version: str, costs: Mapping[str, str]) -> None:
    """Distributions of this version; `cost` of each is an expression."""
    for name, cost in costs.items():
        make_package(folder, name, version, {f"{name}/__init__.py": f"cost = {cost}\n"})


class FakePytest:
    """Stands for pytest: a case takes the product of the costs of these packages, asked of the interpreters that it is
    given, so that the environments are real."""

    def __init__(self, packages: Sequence[str], cases: Sequence[str] = ("a",)) -> None:
        self.packages, self.nodeids = packages, [NODEID.format(name) for name in cases]
        self.verdict = Verdict.UNDECIDED
        self.stop_at = 1000
        self.unaffected = ""
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], log: Path) -> int:
        """Write results as pytest would."""
        if len(self.commands) >= self.stop_at:
            raise KeyboardInterrupt
        self.commands.append(list(command))
        given = dict(word.split("=", 1) for word in command if word.startswith("--attnperf-") and "=" in word)
        base, new = (self._cost_of(given[f"--attnperf-{side}"]) for side in ("against", "candidate"))
        asked = [nodeid for nodeid in self.nodeids if nodeid in command] or self.nodeids
        cases = [self._make_case(nodeid, new / base, int(given["--attnperf-pairs"])) for nodeid in asked]
        run = RunResult(RESULTS_SCHEMA, "0", "gate", "now", "pytest", "c0", None, None, tuple(cases))
        json_results.write(Path(given["--attnperf-results"]), run)
        return 1

    def _make_case(self, nodeid: str, ratio: float, pairs: int) -> CaseResult:
        ratio = 1.0 if nodeid == self.unaffected else ratio
        ratios = [ratio * (1 + 0.0005 * (-1) ** pair) for pair in range(pairs)]
        made = tuple(PairSummary(ratio, 100.0, 100 * ratio, 30, "fake") for ratio in ratios)
        key = CaseKey("prefill", "fake.a", "prefill-b1-s64-h1-d16-f16", nodeid[-30:])
        return CaseResult(key, nodeid, self.verdict, "dq[3] is off", pairs=made)

    def _cost_of(self, command: str) -> float:
        words = shlex.split(command.removeprefix("command:"))
        worker = words.index("-m")
        asked = [*words[:worker], "-c", COSTS, *self.packages]
        costs = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
        for word in words:
            if word.startswith(f"{IMPORTED}="):
                Path(word.partition("=")[2], "1.txt").write_text("\n".join(self.packages))
        product = 1.0
        for cost in costs:
            product *= cost
        return product


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options --old and --new of two environments of one interpreter: `slowlib` costs 20 % more in the new one."""
    python = make_bare_python(tmp_path / "env")
    _make_side(tmp_path / "old", "1.0", {"slowlib": "1.0", "steady_a": "1.0", "steady_b": "1.0", "unused": "1.0"})
    _make_side(tmp_path / "new", "2.0", {"slowlib": "1.2", "steady_a": "1.0", "steady_b": "1.0", "unused": "1.0"})
    monkeypatch.chdir(tmp_path)
    return [f"--old={python}+old", f"--new={python}+new"]


USED = ("slowlib", "steady_a", "steady_b")


def test_the_slow_package_is_named(sides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What changed the time is blamed with its effects both ways, everything else is innocent, and the status is 0."""
    assert blame_command.run(_parsed(*sides, "suites"), FakePytest(USED)) == 0
    printed = capsys.readouterr().out
    assert "4 components differ: slowlib 1.0 -> 2.0, steady-a 1.0 -> 2.0" in printed
    assert "left in rest, because no case imported them: unused" in printed
    assert re.search(r"  slowlib +1\.0 -> 2\.0 +\+20\.0 % \(\+19\.\d\.\.\+20\.\d\) +\+20\.0 % .* blamed\n", printed)
    assert re.search(
        r"  3 others: steady-a, steady-b, rest +0\.0 % \(-0\.\d\.\.\+0\.\d\) +0\.0 % .* innocent\n", printed
    )
    assert "1 of 1 cases changed, 1 explained\nslowlib 1.0 -> 2.0: +20.0 % in 1 case\n4 runs of pytest" in printed


def test_only_changed_cases_go_on(sides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A case that is equally fast in both environments is not measured again, and no reason for a failure."""
    fake = FakePytest(USED, cases="ab")
    fake.unaffected = NODEID.format("b")
    assert blame_command.run(_parsed(*sides, "suites"), fake) == 0
    assert [NODEID.format("b") in command for command in fake.commands] == [False] * 4
    assert [NODEID.format("a") in command for command in fake.commands] == [False, True, True, True]
    assert "new against old: 0.0 % (-0.1..0.0): no change of 1 % or more" in capsys.readouterr().out.replace(
        "+0.1", "0.0"
    )


def test_the_command_line(sides: list[str], tmp_path: Path) -> None:
    """Every measurement is a pytest, interleaved, over what the user selected; the first one notes what is imported."""
    fake = FakePytest(USED)
    blame_command.run(_parsed(*sides, "suites", "--", "-k", "d128"), fake)
    first, second = fake.commands[:2]
    assert first[:6] == [sys.executable, "-m", "pytest", "suites", "-k", "d128"]
    assert first[6:10] == ["-p", "pytest_attnperf.plugin.imported_modules", "--attnperf", "--attnperf-interleave=all"]
    assert second[3:7] == [NODEID.format("a"), "-k", "d128", "--attnperf"]
    assert {"--attnperf-pairs=8", "--no-attnperf-strict"} <= set(first)
    assert {"--attnperf-pairs=4", "--no-attnperf-strict"} <= set(second)
    results = next(word for word in first if word.startswith("--attnperf-results="))
    assert not Path(results.partition("=")[2]).parent.exists()


def test_json(sides: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--json -` prints the result alone, progress goes to standard error; effects are ratios with intervals."""
    assert blame_command.run(_parsed(*sides, "suites", "--json", "-"), FakePytest(USED)) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "4 runs of pytest" in printed.err
    (case,) = found["cases"]
    assert (case["nodeid"], case["outcome"], case["measurements"]) == (NODEID.format("a"), "explained", 4)
    blamed, others = case["groups"]
    assert (blamed["names"], blamed["conclusion"]) == (["slowlib"], "blamed")
    assert blamed["into"]["ratio"] == pytest.approx(1.2, rel=1e-3)
    assert (others["names"], others["conclusion"]) == (["steady-a", "steady-b", "rest"], "innocent")
    assert found["components"][0] == {
        "name": "slowlib", "fixed": "", "is_used": True, "changed": {"slowlib": ["1.0", "2.0"]},
    }  # fmt: skip


def test_packages_that_need_each_other(sides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A package that does not import with the other's old version is not separated from it; why is printed."""
    package = tmp_path / "new" / "slowlib" / "__init__.py"
    package.write_text("import steady_a\nassert steady_a.is_new, 'needs steady_a 2'\ncost = 1.2\n")
    for side, is_new in (("old", False), ("new", True)):
        (tmp_path / side / "steady_a" / "__init__.py").write_text(f"cost = 1.0\nis_new = {is_new}\n")
    assert blame_command.run(_parsed(*sides, "suites"), FakePytest(USED)) == 1
    printed = capsys.readouterr().out
    assert "import slowlib: AssertionError: needs steady_a 2" in printed
    assert "could not be separated in 1 case: {slowlib, steady-a}" in printed


def test_nothing_changed(sides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equally fast environments are one run of pytest, and status 1."""
    (tmp_path / "new" / "slowlib" / "__init__.py").write_text("cost = 1.0")
    assert blame_command.run(_parsed(*sides, "suites"), FakePytest(USED)) == 1
    assert "0 of 1 cases changed, 0 explained\n1 runs of pytest" in capsys.readouterr().out


def test_another_path_is_no_obstacle(sides: list[str]) -> None:
    """A dispatcher that chose another kernel makes a case INCOMPARABLE, and may be what is looked for."""
    fake = FakePytest(USED)
    fake.verdict = Verdict.INCOMPARABLE
    assert blame_command.run(_parsed(*sides, "suites"), fake) == 0


def test_environments_that_cannot_be_compared(sides: list[str]) -> None:
    """If no case gives a ratio the verdict of the first one is the error."""
    fake = FakePytest(USED)
    fake.verdict = Verdict.INCORRECT
    with pytest.raises(blame_command.BlameError, match=r"cannot be compared: .*\]: INCORRECT: dq\[3\] is off"):
        blame_command.run(_parsed(*sides, "suites"), fake)
    with pytest.raises(blame_command.BlameError, match="pytest ended with 4 and left no results: it printed nothing"):
        blame_command.run(_parsed(*sides, "suites"), lambda command, log: 4)


def test_one_environment_twice(sides: list[str]) -> None:
    """There is nothing to blame between an environment and itself."""
    old = sides[0].removeprefix("--old=")
    with pytest.raises(UsageError, match="are one interpreter with the same 4 distributions: nothing could be blamed"):
        blame_command.run(_parsed(f"--old={old}", f"--new={old}", "suites"), FakePytest(USED))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--confidence=2", "confidence is 2"),
        ("--pairs-max=1", "pairs-max is 1"),
        ("--threshold=0", "threshold is 0 %, must be above 0"),
        ("--threshold=nan", "threshold is nan %"),
        ("--library=slowlib=old:new", "--library=slowlib=... has the name of a component; give it another name"),
    ],
)
def test_values_outside_their_range(sides: list[str], option: str, message: str) -> None:
    """A setting outside its range is a usage error, before anything is measured."""
    fake = FakePytest(USED)
    with pytest.raises(UsageError, match=message):
        blame_command.run(_parsed(*sides, option, "suites"), fake)
    assert fake.commands == []


def test_interrupted(sides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C prints the cases that have ended; the status is 130 and no temporary file stays."""
    fake = FakePytest(USED, cases="ab")
    fake.unaffected, fake.stop_at = NODEID.format("b"), 2
    assert blame_command.run(_parsed(*sides, "suites"), fake) == 130
    printed = capsys.readouterr().out
    assert "stopped; what is known so far:" in printed
    assert NODEID.format("b") in printed
    results = next(word for word in fake.commands[0] if word.startswith("--attnperf-results="))
    assert not Path(results.partition("=")[2]).parent.exists()


def test_with_real_workers(attnperf_project: FakeProject, tmp_path: Path) -> None:
    """As a user types it, with workers on the fake device: slowlib is named, in two environments of this Python."""
    project = attnperf_project
    project.script["process_sd"] = 0.0005
    project.backend("fake.a", time_us=100)
    project.conftest(SLOWED)
    for side, version, cost in (("old", "1.0", "1.0"), ("new", "2.0", "1.3")):
        costs = {"slowlib": cost, "steady_a": "1.0", "steady_b": "1.0"}
        _make_side(project.path / side, version, costs)
    command = [
        *(sys.executable, "-m", "pytest_attnperf.cli", "blame", "suites", "--pairs-max=4", "--threshold=5"),
        *(f"--{side}={sys.executable}+{side}" for side in ("old", "new")),
        *("--", "-p", "attnperf"),
    ]
    path = os.pathsep.join([str(Path(blame_command.__file__).parents[3]), str(project.path / "old")])
    environ = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, env=environ, cwd=project.path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"\nslowlib 1\.0 -> 2\.0: \+(29|30)\.\d % in 1 case\n", ended.stdout), ended.stdout

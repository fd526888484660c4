"""A bad value of any option or ini key: one line, exit status 4, nothing is collected. Of a marker: its test fails."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.option_values import CHECKS, read_effort, read_trials
from pytest_attnperf.plugin.options import OPTIONS
from pytest_attnperf.plugin.switches import SWITCHES, Option
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.workers.conversation import BlockPlan

FREE = ("build", "accept", "first")
"""Options that take any text."""

BAD = {
    "trials": "guard",
    "sanitize": "memchek",
    "backend": "fake.z",
    "workload": "b=1,s=0,h=8,d=64",
    "model": "small.json,heads=2",
    "pin-gpu": "no such gpu",
    "against": "mian",
    "candidate": "mian",
    "timer": "sundial",
    "effort": "blocks=4",
    "baselines": "conftest.py",
    "results": "suites",
    "report": "conftest.py",
    "history": "mysql://here/db",
    "tier": "weekly",
    "shard": "5/4",
    "budget": "soon",
    "worker-args": "--mine='a",
    "costs": "speed=5",
    "threshold": "300",
    "floor-us": "-1",
    "creep": "2000",
    "suite-rate": "0.9",
    "fail-on": "SLOWEST",
    "arch": "gfx9999",
    "code-set": "BLOCK_M",
    "code-fail-on": "colour",
    "code-growth": "much",
}
"""Option that is neither number nor choice -> a value that is none of it."""

NEEDS = {
    "candidate": ("--attnperf-against=.",),
    "build": ("--attnperf-against=.",),
    "interleave": ("--attnperf-against=.",),
    "pairs": ("--attnperf-against=.",),
}
"""Options without which another would have no effect."""

BAD_SWITCHES = {
    "--attnperf-calibrate": ("1",),
    "--attnperf-override": ("speed=1", "threshold", "threshold=fast", "fail_on=SLOWEST", "code_growth=much"),
}


def bad_value(option: Option) -> str:
    """A value that is none of the option's."""
    if option.least is not None:
        return "many"
    return "sometimes" if option.choices else BAD[option.name]


def refused(project: FakeProject, *words: str) -> str:
    """The one line with which pytest refuses these words; it collects nothing."""
    project.backend("fake.a", time_us=100.0)
    (project.path / "small.json").write_text("{}")
    result = project.run("-p", "no:rerunfailures", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str() + result.stderr.str()
    lines = [line for line in result.stderr.lines if line]
    assert len(lines) == 1, lines
    assert "Traceback" not in result.stdout.str()
    assert "collect" not in result.stdout.str()
    return lines[0]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("low", BlockPlan(15, 600.0, 60_000.0)),
        ("normal", BlockPlan(30, 600.0, 120_000.0)),
        ("high", BlockPlan(60, 600.0, 240_000.0)),
        ("blocks=7", BlockPlan(7)),
        ("budget_ms=300, blocks=60", BlockPlan(60, 600.0, 300_000.0)),
        ("block_us=1000,budget_ms=0.5e2", BlockPlan(30, 1000.0, 50_000.0)),
    ],
)
def test_an_effort_is_a_word_or_fields(text: str, plan: BlockPlan) -> None:
    """Fields that are not given are those of 'normal'."""
    assert read_effort(RunConfig(effort=text)) == plan


def test_an_effort_is_what_a_process_measures(attnperf_project: FakeProject) -> None:
    """The fake device measures as many blocks as it is told to, up to nine."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.run("--attnperf", "--attnperf-effort=blocks=8")
    (process,) = attnperf_project.results()["cases"][0]["first"]
    assert len(process["block_us"]) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocks=4", "--attnperf-effort: blocks='4' must be a whole number of at least 7"),
        ("block_us=9", "--attnperf-effort: block_us='9' must be a number of at least 10"),
        ("budget_ms=0", "--attnperf-effort: budget_ms='0' must be a number of at least 1"),
        ("blocks=x", "--attnperf-effort: blocks='x' is not a whole number"),
        ("blocks=8,blocks=9", "--attnperf-effort='blocks=8,blocks=9' has blocks twice; allowed: low, normal, high, or"),
        ("lots", "--attnperf-effort='lots' is not known: 'lots'; allowed: low, normal, high, or fields of blocks=30,"),
        ("low,blocks=9", "--attnperf-effort='low,blocks=9' is not known: 'low'; allowed: low, normal, high, or"),
        ("", "--attnperf-effort='' is not known: ''; allowed: low, normal, high, or"),
    ],
)
def test_an_effort_that_cannot_be(text: str, said: str) -> None:
    """Fewer than 7 blocks could not be gated; every error says what is allowed."""
    with pytest.raises(UsageError) as error:
        read_effort(RunConfig(effort=text, typed={"effort": text}))
    assert str(error.value).startswith(said)


def test_every_option_has_a_bad_value() -> None:
    """An option is a number, a choice, has a bad value here, or takes any text; each with a check has a bad value."""
    other = {option.name for option in OPTIONS if option.least is None and not option.choices}
    assert other == BAD.keys() | set(FREE), "give a new option a bad value in BAD, or name it in FREE"
    assert CHECKS.keys() - {"determinism"} <= BAD.keys()  # a number, with a check of its own
    assert {switch.flag for switch in SWITCHES if "metavar" in switch.settings} == {
        *BAD_SWITCHES,
        *("--attnperf-worker-fd", "--attnperf-worker-role"),  # internal
    }


@pytest.mark.parametrize("option", [one for one in OPTIONS if one.name not in FREE], ids=lambda one: one.name)
def test_a_bad_value_of_an_option(option: Option, attnperf_project: FakeProject) -> None:
    """The line names the option, or the key for one that has none."""
    value = bad_value(option)
    word = f"--attnperf-override={option.field}={value}" if option.key else f"{option.flag}={value}"
    line = refused(attnperf_project, "--attnperf", *NEEDS.get(option.name, ()), word)
    assert line.startswith("ERROR: ")


@pytest.mark.parametrize("option", [one for one in OPTIONS if one.name not in FREE], ids=lambda one: one.name)
def test_a_bad_value_of_an_ini_key(option: Option, attnperf_project: FakeProject) -> None:
    """As of its option, also in a run that times nothing, unless only timed runs read it."""
    attnperf_project.pytester.makeini(f"[pytest]\n{option.dest} = {bad_value(option)}\n")
    refused(attnperf_project, "--attnperf", *NEEDS.get(option.name, ()))


@pytest.mark.parametrize(
    ("flag", "value"), [(flag, value) for flag, values in BAD_SWITCHES.items() for value in values]
)
def test_a_bad_value_of_a_switch(flag: str, value: str, attnperf_project: FakeProject) -> None:
    """The same for options without an ini key."""
    timed = () if flag == "--attnperf-calibrate" else ("--attnperf",)
    refused(attnperf_project, *timed, f"{flag}={value}")


@pytest.mark.parametrize("word", ["--attnperf-pairs=x", "--attnperf-fail-on=SLOWEST", "--attnperf-backend=fake.z"])
def test_a_bad_value_with_xdist(word: str, attnperf_project: FakeProject) -> None:
    """The controller refuses it before it starts a worker."""
    refused(attnperf_project, "-p", "xdist.plugin", "-n2", "--attnperf", *NEEDS["pairs"][: "pairs" in word], word)


def test_a_marker_fails_its_test_with_xdist(attnperf_project: FakeProject) -> None:
    """Its workers collect; the failing test comes back as any other."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.suite([WORKLOAD], settings=", threshold=300")
    result = attnperf_project.run("-p", "xdist.plugin", "-n2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = "suites/test_prefill.py::test_prefill: policy threshold_percent is 300.0; allowed: a number from 0 to 100"
    assert said in result.outlines


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="earlier versions have no table of types")
def test_a_number_of_a_toml_file(attnperf_project: FakeProject) -> None:
    """The TOML table of pytest 9 has types; the line names the key and the file."""
    (attnperf_project.path / "tox.ini").unlink()
    attnperf_project.pytester.makepyprojecttoml("[tool.pytest]\nattnperf_threshold = 3\n")
    line = refused(attnperf_project, "--attnperf")
    assert "attnperf_threshold" in line
    assert "pyproject.toml" in line


MARKERS = {
    "threshold": "'fast'",
    "floor_us": "-1",
    "creep": "2000",
    "suite_rate": "0.9",
    "fail_on": "['SLOWEST']",
    "tier": "'weekly'",
    "timed": "'yes'",
    "breakdown": "1",
    "backends": "['fake.z']",
    "without": "'fake.a'",
    "nightly": "['prefill']",
    "cpu": "['prefill']",
    "each": "0",
    "quarantine": "'no link'",
    "until": "'tomorrow'",
    "treshold": "3",
    "costs": "{'peak_byte': 0}",
}


def test_a_bad_value_of_a_marker_fails_its_own_test(attnperf_project: FakeProject) -> None:
    """In one line that names the test; tests of other files, and the others of the file, run."""
    attnperf_project.backend("fake.a", time_us=100.0)
    for keyword, value in MARKERS.items():
        attnperf_project.suite([WORKLOAD], settings=f", {keyword}={value}", name=f"test_{keyword}.py")
    result = attnperf_project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=len(MARKERS))
    assert "Traceback" not in result.stdout.str()
    said = [line for line in result.outlines if "::test_prefill: " in line and not line.startswith("ERROR ")]
    for keyword in MARKERS:
        assert sum(line.startswith(f"suites/test_{keyword}.py::test_prefill: ") for line in said) == 1, keyword


def test_invariance_is_no_part_of_all_trials() -> None:
    """Its switch adds it to whatever trials the run has, to none, too; its name is no trial that may be typed."""
    assert "invariance" not in read_trials(RunConfig(trials="all"))
    assert read_trials(RunConfig(trials="all", invariance=True))[-1] == "invariance"
    assert read_trials(RunConfig(trials="none", invariance=True)) == ("invariance",)
    assert read_trials(RunConfig(invariance=True)) == ("guards", "invariance")
    with pytest.raises(UsageError, match="invariance"):
        read_trials(RunConfig(trials="invariance", typed={"trials": "invariance"}))

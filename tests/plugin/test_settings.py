"""Precedence of settings: override over marker over command line over ini over default; and what is refused."""

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject


@pytest.fixture
def stored(attnperf_project: FakeProject) -> FakeProject:
    """A case stored at 100 us that now takes 104 us: SLOWER by default."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=104.0)
    return attnperf_project


def verdict(project: FakeProject, *args: str) -> str:
    """The verdict of the only case."""
    project.run("--attnperf", *args)
    return project.verdicts()["fake.a"]


def test_default_threshold(stored: FakeProject) -> None:
    """Two percent."""
    assert verdict(stored) == "SLOWER"


def test_ini_beats_default(stored: FakeProject) -> None:
    """attnperf_threshold in the ini file."""
    stored.pytester.makeini("[pytest]\nattnperf_threshold = 6\n")
    assert verdict(stored) == "SAME"


def test_command_line_beats_ini(stored: FakeProject) -> None:
    """--attnperf-threshold over the ini file."""
    stored.pytester.makeini("[pytest]\nattnperf_threshold = 1\n")
    assert verdict(stored, "--attnperf-threshold=6") == "SAME"


def test_marker_beats_command_line(stored: FakeProject) -> None:
    """A marker is more specific than a project: one command-line word must not kill every marker."""
    stored.suite([WORKLOAD], settings=", threshold=6")
    assert verdict(stored, "--attnperf-threshold=1") == "SAME"


def test_override_beats_marker(stored: FakeProject) -> None:
    """--attnperf-override is the one way to beat a marker."""
    stored.suite([WORKLOAD], settings=", threshold=6")
    assert verdict(stored, "--attnperf-override=threshold=1") == "SLOWER"


def test_the_floor_in_microseconds(stored: FakeProject) -> None:
    """A slowdown below floor_us does not fail, whatever its percentage."""
    assert verdict(stored, "--attnperf-override=floor_us=10") == "SAME"


def test_fail_on(stored: FakeProject) -> None:
    """--attnperf-fail-on decides which verdicts fail a test; SLOWER left out is reported, not failed."""
    result = stored.run("--attnperf", "--attnperf-fail-on=INCORRECT")
    assert stored.verdicts() == {"fake.a": "SLOWER"}
    assert result.ret == 0
    assert "1 slower" in result.stdout.lines[-1]
    assert "passed" not in result.stdout.lines[-1]


def test_a_loosened_policy_is_a_finding(stored: FakeProject) -> None:
    """A threshold raised since the baseline was stored is named, and fails a strict run although nothing is slower."""
    result = stored.run("--attnperf", "--attnperf-threshold=6", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*policy loosened since the baseline: threshold_percent 2 -> 6*"])


def test_a_loosened_tolerance_is_a_finding(attnperf_project: FakeProject) -> None:
    """A tolerance above the stored one is named, and fails a strict run although everything is right; a tighter one is
    not."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=100.0, tolerance=1e6)
    result = attnperf_project.run("--attnperf", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*policy loosened since the baseline: tolerance of out 2 -> 1e+06*"])
    attnperf_project.backend("fake.a", time_us=100.0, tolerance=1.5)
    assert attnperf_project.run("--attnperf", "--attnperf-strict").ret == 0


def test_the_effective_policy_is_stored(stored: FakeProject) -> None:
    """Each result carries the policy it was judged by."""
    stored.run("--attnperf", "--attnperf-threshold=6")
    assert stored.results()["cases"][0]["policy"]["threshold_percent"] == 6.0


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--attnperf-threshold=fast", "*threshold='fast' is not a number*"),
        ("--attnperf-threshold=-1", "*threshold='-1' must be a number of at least 0*"),
        (
            "--attnperf-threshold=300",
            "*an option or ini key: policy threshold_percent is 300.0; allowed: a number from 0*",
        ),
        ("--attnperf-override=creep=2000", "*policy creep_percent is 2000.0; allowed: a number from 0 to 1000*"),
        ("--attnperf-processes=3", "*--attnperf-processes='3' must be a whole number of at least 7*"),
        (
            "--attnperf-timer=sundial",
            "*'sundial' is not known; *report_002 (listed in pytest_attnperf/*/timers/__init__.py)",
        ),
        ("--attnperf-device=tpu", "*-device='tpu' is not known (did you mean 'gpu'?); choose one of: auto, gpu, cpu*"),
        ("--attnperf-override=speed=1", "*'speed=1': expected KEY=VALUE with KEY one of*threshold*"),
        ("--attnperf-fail-on=SLOWEST", "*SLOWEST*allowed*SLOWER*"),
        ("--attnperf-backend=fake.z", "*unknown backend 'fake.z'; known: fake.a*"),
        ("--attnperf-workload=b=1,s=0,h=8,d=64", "*positive*"),
        ("--attnperf-workload=b=1,s=512,h=8,q=64", "*q*"),
        ("--attnperf-seed=x", "*--attnperf-seed='x' is not a whole number*"),
    ],
)
def test_bad_values_are_named(attnperf_project: FakeProject, option: str, text: str) -> None:
    """Every bad value is an error that shows it and what is allowed; nothing is measured."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert any(_matches(result, stream, text) for stream in ("stdout", "stderr")), result.stdout.str()
    assert (
        not (attnperf_project.path / ".attnperf" / "results.json").exists() or not attnperf_project.results()["gated"]
    )


def _matches(result: pytest.RunResult, stream: str, text: str) -> bool:
    try:
        getattr(result, stream).fnmatch_lines([text])
    except pytest.fail.Exception:
        return False
    return True


def test_an_unknown_marker_keyword_is_refused(attnperf_project: FakeProject) -> None:
    """A typo in the marker is an error that lists the known keywords, not a setting without effect."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.suite([WORKLOAD], settings=", treshold=6")
    result = attnperf_project.run("--attnperf")
    assert result.ret != 0
    assert "['treshold'] (did you mean 'threshold'?); known keywords: backends, " in result.stdout.str()


def test_a_setting_of_a_marker_is_refused_before_anything_runs(attnperf_project: FakeProject) -> None:
    """A threshold above 100 % in a marker fails its test in one line, not in a traceback inside of it."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.suite([WORKLOAD], settings=", threshold=300")
    result = attnperf_project.run("--attnperf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*::test_*: policy threshold_percent is 300.0; allowed: a number from 0 to 100"])


def test_a_backend_prefix_selects_its_group(attnperf_project: FakeProject) -> None:
    """--attnperf-backend=fake selects every fake.*."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("other.b", time_us=100.0)
    attnperf_project.run("--attnperf", "--attnperf-backend=fake")
    assert set(attnperf_project.verdicts()) == {"fake.a"}

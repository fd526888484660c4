"""Names on the command line that leave tests without a case: said where others have some, refused where none has."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.records import CaseKey
from pytest_attnperf.results import EXPIRED
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

SUITE = """
import pytest

def marked(label, **backends):
    workloads = ["prefill-b1-s64-h1-d16-f16"]
    return pytest.mark.attnperf(family="prefill", workloads=workloads, label=label, **backends)

@marked("one", backends=["fake.a"])
def test_one(attnperf, backend, workload):
    attnperf.run(backend, workload)

@marked("other", without=["fake.a", "more"])
def test_other(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One test of fake.a, and one of all others but a group."""
    for name in ("fake.a", "fake.b", "fake.c", "more.d", "more.e"):
        attnperf_project.backend(name, time_us=100.0)
    (attnperf_project.path / "suites").mkdir(exist_ok=True)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text(SUITE)
    return attnperf_project


def test_a_name_that_selects_nothing_is_an_error(project: FakeProject) -> None:
    """Exit status 4, and what the selected tests have; of two names the one that selects nothing is meant."""
    for typed in ("more.d", "fake.b,more"):
        result = project.run(f"--attnperf-backend={typed}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        name = typed.partition(",")[2] or typed
        result.stderr.fnmatch_lines(
            [
                f"ERROR: --attnperf-backend={name} selects no case: suites/test_prefill.py::test_one has fake.a; "
                "suites/test_prefill.py::test_other has fake.b, fake.c. Select a test that has it, or a backend of *"
            ]
        )


def test_a_name_that_selects_something_leaves_other_tests_out(project: FakeProject) -> None:
    """They are no item, not skipped, and one line names them."""
    result = project.run("--attnperf-backend=fake.b")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["attnperf: no case is selected of suites/test_prefill.py::test_one"])


def test_all_backends_but_some(project: FakeProject) -> None:
    """`without` leaves the rest of the family, in the order of registration, and a group of it out at once."""
    result = project.run("--collect-only", "-q")
    ids = [line.partition("[")[2].partition("-")[0] for line in result.stdout.lines if "::" in line]
    assert ids == ["fake.a", "fake.b", "fake.c"]


def test_workloads_that_no_selected_test_is_for(project: FakeProject) -> None:
    """A workload of another family is an error, too."""
    result = project.run("--attnperf-workload=softmax-r4-c8-f32")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "ERROR: --attnperf-workload=softmax-r4-c8-f32 selects no case: the selected tests are of prefill. Select *"
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ('backends=["fake.a"], without=["fake.b"]', "the attnperf marker has backends= and without=; give one of them"),
        ('without=["fake.x"]', "unknown backend 'fake.x'; known: fake.a, fake.b, fake.c, more.d, more.e"),
        (
            'without=["fake", "more"]',
            "its marker leaves no backend of family 'prefill'; registered are fake.a, fake.b, fake.c, more.d, more.e",
        ),
    ],
)
def test_a_marker_that_leaves_nothing_is_an_error(project: FakeProject, chosen: str, said: str) -> None:
    """As are both ways at once, and a name that nobody registered."""
    suite = project.path / "suites" / "test_prefill.py"
    suite.write_text(SUITE.replace('without=["fake.a", "more"]', chosen))
    result = project.run()
    assert (result.ret, said in result.stdout.str()) == (pytest.ExitCode.TESTS_FAILED, True)


SPIN = """
from dataclasses import replace
from pytest_attnperf.testing.fake.backends import FakeBackend
from pytest_attnperf.workloads.families import Family
from pytest_attnperf.workloads.rope import Rope

class Spin(Rope):
    grammar = replace(Rope.grammar, family="spin")
    NO_TRITON_YET = "its table does not fit"

def pytest_attnperf_register_workloads(families):
    families.add(Family.of(Spin, "rotation"))

def pytest_attnperf_register_backends(registry):
    registry.add(FakeBackend("mine.spin", families=("spin",)))
"""
SPIN_SUITE = """
import pytest

@pytest.mark.attnperf(family="spin", workloads=["spin-b1-s4-h1-d16-f16"]BACKENDS)
def test_spin(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
WHY = "; family spin has no Triton backend yet: its table does not fit"


@pytest.mark.parametrize(
    ("backends", "typed", "said"),
    [
        ("", "triton", f"Select a test that has it, or a backend of these{WHY}"),
        ("", "triton.spin", f"unknown backend 'triton.spin'; known: mine.spin, triton.other, fake.a{WHY}"),
        (', backends=["triton"]', "", f"its marker leaves no backend of family 'spin'; registered are mine.spin{WHY}"),
        (', backends=["triton.spin"]', "", f"known: mine.spin, triton.other, fake.a{WHY}"),
        ("", "fake", "Select a test that has it, or a backend of these"),
    ],
)
def test_a_family_says_why_it_has_no_triton_backend(
    attnperf_project: FakeProject, backends: str, typed: str, said: str
) -> None:
    """Where one is asked for by its name or as one of all, on the command line or in a marker, and nowhere else."""
    project = attnperf_project
    for name in ("fake.a", "triton.other"):
        project.backend(name, time_us=100.0)
    project.conftest(SPIN)
    (project.path / "suites" / "test_prefill.py").write_text(SPIN_SUITE.replace("BACKENDS", backends))
    result = project.run(*([f"--attnperf-backend={typed}"] if typed else []))
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.TESTS_FAILED)
    (line,) = {line for line in (*result.errlines, *result.outlines) if said[:40] in line}
    assert line.endswith(said)


def test_a_test_without_its_triton_backend_is_named_with_the_reason(attnperf_project: FakeProject) -> None:
    """Where other tests have one, the line that names what has no case says why."""
    project = attnperf_project
    project.backend("triton.other", time_us=100.0)
    project.conftest(SPIN)
    (project.path / "suites" / "test_spin.py").write_text(SPIN_SUITE.replace("BACKENDS", ""))
    result = project.run("--attnperf-backend=triton")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines([f"attnperf: no case is selected of suites/test_spin.py::test_spin{WHY}"])


LONG = "prefill-b1-s128-h1-d16-f16"
NIGHTLY = "prefill-b1-s256-h1-d16-f16"
LINK = "https://example.org/issues/7"
KERNEL = [{"name": "attention", "isa_hash": "a" * 40}]
OTHER_CODE = [{"name": "attention", "isa_hash": "b" * 40}]

GATE = """
import pytest

@pytest.mark.attnperf(quarantine="#1")
def test_one(attnperf):
    attnperf.gate("one", print, reference=print, inputs=list)
"""


def cases(project: FakeProject) -> dict[str, dict[str, Any]]:
    """The last timed run's cases by backend."""
    return {case["key"]["backend"]: case for case in project.results()["cases"]}


def test_nightly_cases_are_left_out_and_not_missed(
    attnperf_project: FakeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run leaves out what its marker calls nightly, says how many, and misses none of it where it was stored so;
    --attnperf-tier=nightly runs everything. Moved there since the baseline, it is a finding."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0)
    project.suite([LONG], settings=', tier="nightly", label="long"', name="test_long.py")
    project.suite([NIGHTLY], name="test_moved.py")
    project.store_baselines()
    project.suite([NIGHTLY], settings=', tier="nightly"', name="test_moved.py")
    run = project.run("--attnperf", "--attnperf-strict")
    run.assert_outcomes(passed=1, deselected=2)
    run.stdout.fnmatch_lines(
        ["attnperf: 2 cases left to nightly runs (--attnperf-tier=nightly)", "2 cases left to nightly*"]
    )
    results = project.results()
    assert (results["tier"], [key["suite"] for key in results["left_to_nightly"]]) == ("pr", ["long", "moved"])
    (finding,) = results["findings"]
    left = f"moved/fake.a/{NIGHTLY} is left to nightly runs, and was stored for every run"
    assert finding == f"policy loosened since the baseline: {left}"
    assert run.ret == 1
    judge = ["gate", "--results", ".attnperf/results.json", "--against", "baselines", "--tier"]
    capsys.readouterr()
    said = [(main([*judge, tier, "--strict"]), capsys.readouterr().out) for tier in ("pr", "nightly")]
    assert [status for status, _ in said] == [1, 1]
    assert [text.count("but no case: the suite was removed") for _, text in said] == [1, 2]
    project.run("--attnperf-tier=nightly").assert_outcomes(passed=3)
    typed = project.pytester.runpytest_subprocess(f"suites/test_long.py::test_prefill[fake.a-{LONG}]")
    typed.assert_outcomes(passed=1)


def test_one_test_may_divide_its_cases(attnperf_project: FakeProject) -> None:
    """nightly= leaves some workloads to nightly runs; tier="check" is proven where nothing is timed; each= deals
    workloads to backends, so that together they take all; files are run in the order of --attnperf-first."""
    project = attnperf_project
    for name in ("fake.a", "fake.b"):
        project.backend(name, time_us=100.0)
    project.suite([WORKLOAD, LONG], settings=f', nightly=["{LONG}"]', name="test_some.py")
    project.suite([WORKLOAD, LONG], settings=', timed=False, tier="check", each=1', name="test_dealt.py")
    run = project.run("--attnperf", "-v", "--attnperf-first=test_some")
    assert run.parseoutcomes()["deselected"] == 6
    run.stdout.fnmatch_lines(["attnperf: 6 cases left to nightly runs (--attnperf-tier=nightly)"])
    checked = project.run("-v", "--attnperf-first=test_some,test_dealt").stdout.lines
    taken = [line.split(" PASSED")[0].partition("[")[2] for line in checked if " PASSED" in line]
    some, dealt = (("a", WORKLOAD), ("b", WORKLOAD)), (("a", WORKLOAD), ("b", LONG))
    assert taken[:4] == [f"fake.{name}-{workload}]" for name, workload in (*some, *dealt)]
    project.run("--attnperf-tier=nightly").assert_outcomes(passed=10)
    one = project.run("--attnperf-backend=fake.b", "-v").stdout.str()
    dealt_to_b = [f"test_dealt.py::test_prefill[fake.b-{workload}]" in one for workload in (LONG, WORKLOAD)]
    assert dealt_to_b == [True, False]


def test_a_quarantine_holds_until_its_date(attnperf_project: FakeProject) -> None:
    """In quarantine a slow case is neither failed nor passed nor counted by strict, and a wrong one fails; behind the
    date every one fails, also the one that is as fast as ever."""
    project = attnperf_project
    held, over = (f', quarantine="{LINK}", until="{until}"' for until in ("9999-12-31", "2020-01-01"))
    backends = {"fake.slow": {"time_us": 110.0}, "fake.wrong": {"fault": "wrong"}, "fake.same": {}}
    for name in backends:
        project.backend(name)
    project.suite([WORKLOAD], settings=held)
    project.store_baselines()
    for name, script in (backends | {"fake.new": {}}).items():
        project.backend(name, **script)
    run = project.run("--attnperf", "--attnperf-strict", "-rA")
    assert run.stdout.lines[-1].strip("= ").startswith("1 failed, 1 passed, 2 quarantined in ")
    found = cases(project)
    assert {name: case["fails"] for name, case in found.items() if case["fails"]} == {"fake.wrong": True}
    assert [name for name, case in found.items() if case["quarantined"] == f"{LINK} until 9999-12-31"] == [
        "fake.slow", "fake.new"
    ]  # fmt: skip
    assert found["fake.same"]["notes"][-1].endswith("but not slower: remove the quarantine")
    run.stdout.fnmatch_lines([f"prefill/fake.slow/*: SLOWER, quarantined: {LINK} until 9999-12-31"])
    run.stdout.fnmatch_lines(["prefill/fake.same/*: quarantined until 9999-12-31, but not slower: remove*"])
    run.stdout.no_fnmatch_line("exit status 1: strict*")
    project.suite([WORKLOAD], settings=over)
    run = project.run("--attnperf", "-k", "fake.same or fake.slow")
    run.assert_outcomes(failed=2)
    run.stdout.fnmatch_lines(["1 quarantine expired, 1 slower on *"])
    assert all(case["summary"].startswith(f"{EXPIRED} on 2020-01-01: {LINK}") for case in cases(project).values())


def test_only_what_has_changed_is_timed(attnperf_project: FakeProject) -> None:
    """--attnperf-changed proves all and times what runs other code, or code that is not known; the rest is counted as
    unchanged, is not a pass by time, and is enough for a strict run."""
    project = attnperf_project
    scripts: dict[str, dict[str, Any]] = {
        "fake.known": {"kernels": KERNEL},
        "fake.other": {"kernels": KERNEL},
        "fake.wrong": {"kernels": KERNEL},
        "fake.library": {"kernels": ["cublas"]},
    }
    for name, script in scripts.items():
        project.backend(name, **script)
    project.store_baselines()
    project.backend("fake.known", kernels=KERNEL, time_us=200.0)
    project.backend("fake.other", kernels=OTHER_CODE, time_us=110.0)
    project.backend("fake.wrong", kernels=KERNEL, fault="replay")
    run = project.run("--attnperf", "--attnperf-changed")
    assert run.stdout.lines[-1].strip("= ").startswith("2 failed, 1 passed, 1 unchanged in ")
    verdicts = {name: (case["verdict"], case["unchanged"]) for name, case in cases(project).items()}
    assert verdicts == {
        "fake.known": ("RIGHT", True),
        "fake.other": ("SLOWER", False),
        "fake.wrong": ("INCORRECT", False),
        "fake.library": ("SAME", False),
    }
    run.stdout.fnmatch_lines(["1 case was timed, because the machine code is not known: *"])
    run.stdout.fnmatch_lines(["2 gated, 1 unchanged (not timed)"])
    alone = project.run("--attnperf", "--attnperf-changed", "--attnperf-strict", "-k", "fake.known")
    assert (alone.ret, project.results()["gated"]) == (0, 1)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("--attnperf-tier=weekly", "--attnperf-tier is 'weekly'; known tiers: pr, nightly"),
        ("--attnperf-changed", "--attnperf-changed selects which cases --attnperf times; add --attnperf"),
        ("--attnperf --attnperf-changed --update-baselines", "--update-baselines with --attnperf-changed: only a"),
        (
            "--attnperf --attnperf-changed --attnperf-calibrate=5",
            "--attnperf-calibrate with --attnperf-changed: only a",
        ),
        ("--attnperf --attnperf-changed --attnperf-profile", "--attnperf-profile with --attnperf-changed: only a"),
        ("--attnperf-changed --attnperf-warm", "--attnperf-warm with --attnperf-changed: only a gating run"),
        ("--attnperf --attnperf-changed --attnperf-isolate=none", "--attnperf-isolate=none never gates"),
        ("--attnperf --attnperf-warm", "--attnperf with --attnperf-warm: warming compiles ahead of a run"),
        ("--update-baselines --attnperf-warm", "--update-baselines with --attnperf-warm: warming compiles"),
        ("--attnperf-calibrate=5 --attnperf-warm", "--attnperf-calibrate with --attnperf-warm: warming compiles"),
        ("--attnperf-profile --attnperf-warm", "--attnperf-profile with --attnperf-warm: warming compiles"),
    ],
)
def test_options_that_contradict_each_other_are_refused(attnperf_project: FakeProject, typed: str, text: str) -> None:
    """Each names both options and the way out, before anything is collected."""
    result = attnperf_project.run(*typed.split())
    assert (result.ret, text in result.stderr.str()) == (pytest.ExitCode.USAGE_ERROR, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('tier="weekly"', "tier of the attnperf marker is 'weekly'; known tiers: pr, check, cpu, nightly"),
        ('until="2026-01-01"', "the attnperf marker has until='2026-01-01' without quarantine"),
        ('quarantine="#1", until="soon"', "the attnperf marker has until='soon', which is not a date"),
        ('nightly=["prefill-b9"]', f"nightly='prefill-b9' is not a workload of this test; it has: {WORKLOAD}"),
        ("each=0", "the attnperf marker has each=0; allowed: a whole number of at least 1"),
        ("each=2", "the attnperf marker has each= and is timed; give nightly=[...]"),
        ("each=2, nightly=[]", "the attnperf marker has nightly= and each=; give one of them"),
        ('cpu=["fake.b-x"]', f"cpu='fake.b-x' is not a workload of this test; it has: {WORKLOAD}"),
        (f"cpu=[{WORKLOAD!r}], nightly=[{WORKLOAD!r}]", f"the attnperf marker has {WORKLOAD} in nightly= and in cpu="),
    ],
)
def test_marker_keywords_that_mean_nothing_are_refused(settings: str, said: str, attnperf_project: FakeProject) -> None:
    """A tier that does not exist, half a quarantine and a date that is none are errors that name the test."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.suite([WORKLOAD], settings=f", {settings}")
    result = attnperf_project.run("--attnperf")
    assert (result.ret, f"::test_prefill: {said}" in result.stdout.str()) == (pytest.ExitCode.TESTS_FAILED, True)


def test_a_marker_of_a_test_that_gates_a_function_is_refused(attnperf_project: FakeProject) -> None:
    """As that of a family's test."""
    attnperf_project.backend("fake.a", time_us=100.0)
    (attnperf_project.path / "suites" / "test_a.py").write_text(GATE)
    plain = attnperf_project.run("--attnperf")
    assert plain.ret == pytest.ExitCode.TESTS_FAILED
    assert "test_a.py::test_one: the attnperf marker has quarantine='#1' without until" in plain.stdout.str()


ON_A_GPU = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config):
    config.pluginmanager.get_plugin("attnperf-cases").on_gpu = True
"""


def test_cases_for_a_cpu_are_timed_by_nightly_runs_alone_on_a_gpu(attnperf_project: FakeProject) -> None:
    """cpu= leaves a workload, or one case of it, out of a timed run on a GPU only: a CPU, a run that times nothing and
    a nightly one take it, and its baseline that was stored for every run is a finding there."""
    project = attnperf_project
    for name in ("fake.a", "fake.b"):
        project.backend(name, time_us=100.0)
    project.suite([LONG, NIGHTLY])
    project.store_baselines()
    project.suite([LONG, NIGHTLY], settings=f', cpu=[{LONG!r}, "fake.a-{NIGHTLY}"]')
    project.run("--attnperf").assert_outcomes(passed=4)
    (project.path / "suites" / "conftest.py").write_text(ON_A_GPU)
    run = project.run("--attnperf")
    run.assert_outcomes(passed=1, deselected=3)
    assert {name: case["key"]["workload"] for name, case in cases(project).items()} == {"fake.b": NIGHTLY}
    findings = [finding.rpartition(": ")[2] for finding in project.results()["findings"]]
    left = (f"fake.a/{LONG}", f"fake.a/{NIGHTLY}", f"fake.b/{LONG}")
    assert findings == [f"prefill/{case} is left to nightly runs, and was stored for every run" for case in left]
    project.run("--attnperf", "--attnperf-tier=nightly").assert_outcomes(passed=4)
    project.run().assert_outcomes(passed=4)


def test_a_worker_of_xdist_tells_what_it_left_out() -> None:
    """Its controller, which collects nothing, knows the same cases; a worker that died takes nothing away."""
    told: dict[str, Any] = {}
    key = CaseKey("prefill", "fake.a", WORKLOAD, "long")
    worker: Any = SimpleNamespace(workeroutput=told)
    CaseCollector(worker, on_gpu=False, gpu_reason="", left_to_nightly=(key,)).pytest_sessionfinish()
    controller = CaseCollector(worker, on_gpu=False, gpu_reason="")
    controller.pytest_testnodedown(SimpleNamespace(workeroutput=json.loads(json.dumps(told))))
    controller.pytest_testnodedown(SimpleNamespace())
    assert controller.left_to_nightly == (key,)


def test_policies_that_are_stored_say_tier_and_quarantine(attnperf_project: FakeProject) -> None:
    """What the marker says goes with results and entries, so that ending it or beginning it can be seen."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.suite([WORKLOAD], settings=f', tier="nightly", quarantine="{LINK}", until="9999-12-31"')
    attnperf_project.run("--attnperf", "--attnperf-tier=nightly")
    stored = Policy(tier="nightly", quarantine=LINK, quarantine_until="9999-12-31").to_record()
    assert cases(attnperf_project)["fake.a"]["policy"] == stored

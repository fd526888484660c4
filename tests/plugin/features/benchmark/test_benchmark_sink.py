"""What a user of pytest-benchmark sees of cases: its table, its files, its comparisons, and where it is off."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from pytest_attnperf.plugin.features.benchmark import benchmark_sink
from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.project import FakeProject
from tests.tools.export.export_samples import make_judged

pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark: pip install 'pytest-attnperf[benchmark]'")

pytestmark = pytest.mark.usefixtures("outside_xdist")

LOADED = ("-p", "pytest_benchmark.plugin")
GATE = (*LOADED, "--attnperf", "--no-attnperf-strict")
QUICK_MACHINE = """
import pytest

@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_generate_machine_info():
    return {"node": "a test"}
"""
"""Asking the processor takes half a second, as often as pytest-benchmark asks."""

DRAWN = ("--benchmark-histogram=plots/h",) if importlib.util.find_spec("pygal") else ()
SMALL, LARGE = "prefill-b1-s64-h1-d16-f16", "prefill-b1-s128-h1-d16-f16"
OWN = "def test_own(benchmark):\n    benchmark.pedantic(sum, args=([1, 2],), rounds=3)\n"
NODE = f"suites/test_prefill.py::test_prefill[fake.a-{SMALL}]"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One backend that takes 100 us, nothing stored."""
    attnperf_project.conftest(QUICK_MACHINE)
    attnperf_project.backend("fake.a", time_us=100.0)
    return attnperf_project


def written(project: FakeProject, name: str = "out.json") -> dict[str, Any]:
    """What `--benchmark-json` wrote."""
    loaded: dict[str, Any] = json.loads((project.path / name).read_text())
    return loaded


def tables(result: pytest.RunResult) -> list[str]:
    """Heads of pytest-benchmark's tables."""
    return [line.strip("- ") for line in result.stdout.lines if line.startswith("---") and " benchmark" in line]


def test_table_and_histogram_hold_the_cases_in_their_groups(project: FakeProject) -> None:
    """Backends on one workload stand in one table and one diagram, in microseconds, by pytest's names; own benchmarks
    stay alone."""
    project.backend("fake.b", time_us=50_000.0)
    project.suite([SMALL, LARGE])
    (project.path / "suites" / "test_own.py").write_text(OWN)
    result = project.run(*GATE, "--benchmark-columns=median,rounds", *DRAWN)
    assert tables(result) == [
        "benchmark: 1 tests",
        f"benchmark 'prefill/{LARGE}': 2 tests",
        f"benchmark 'prefill/{SMALL}': 2 tests",
    ]
    assert sum(line.startswith("Name (time in us)") for line in result.stdout.lines) == 2
    result.stdout.fnmatch_lines([f"test_prefill?fake.a-{LARGE}?  *", f"test_prefill?fake.b-{LARGE}?  *49,*"])
    result.assert_outcomes(passed=1)
    if DRAWN:
        drawn = {path.name for path in (project.path / "plots").iterdir()}
        assert {f"h-prefill_{LARGE}.svg", f"h-prefill_{SMALL}.svg"} <= drawn


def test_json_holds_the_samples_and_where_they_were_made(project: FakeProject) -> None:
    """Rounds are the deciding look's blocks in seconds, bit for bit, with the verdict in extra_info and the device in
    machine_info; `-m "not benchmark"` sees no marker of ours."""
    project.device(named={"driver": "6.10.5"})
    project.run(*GATE, "--benchmark-json=out.json", "-m", "not benchmark")
    (case,) = project.results()["cases"]
    stored = written(project)
    (bench,) = stored["benchmarks"]
    (process,) = case["first"]
    assert bench["stats"]["data"] == [us / 1e6 for us in process["block_us"]]
    assert (bench["fullname"], bench["group"]) == (NODE, f"prefill/{SMALL}")
    assert bench["options"]["timer"] == "attnperf_device_clock"
    assert bench["params"] == {"backend": "fake.a", "workload": SMALL}
    info = bench["extra_info"]
    assert (info["verdict"], info["median_us"], info["timer"]) == ("NO_BASELINE", case["median_us"], "host")
    assert (info["device"], info["rounds_are"]) == ("fake/fake1", "blocks")
    assert info["processes"][0]["rounds"] == len(process["block_us"])
    assert stored["machine_info"]["attnperf"]["driver"] == "6.10.5"
    assert stored["machine_info"]["attnperf"]["arch"] == "fake"
    assert "UNSERIALIZABLE" not in (project.path / "out.json").read_text()


def test_own_group_and_unit_are_heeded(project: FakeProject) -> None:
    """The benchmark marker's group wins, so that a case and an own benchmark share a table; so does a unit given. A
    case whose test names both fixtures, and whose body never runs here, reads the replay and no wall clock."""
    path = project.path / "suites" / "test_prefill.py"
    marked = path.read_text().replace("@pytest", "@pytest.mark.benchmark(group='mine')\n@pytest", 1)
    path.write_text(marked.replace("(attnperf,", "(benchmark, attnperf,"))
    (project.path / "suites" / "test_own.py").write_text(
        "import pytest\n\n@pytest.mark.benchmark(group='mine')\n" + OWN
    )
    result = project.run(*GATE, "--benchmark-time-unit=ms", "--benchmark-json=out.json")
    assert tables(result) == ["benchmark 'mine': 2 tests"]
    result.stdout.fnmatch_lines(["Name (time in ms)*"])
    case, own = sorted(written(project)["benchmarks"], key=lambda bench: bench["name"], reverse=True)
    assert (own["name"], own["options"]["timer"]) == ("test_own", "perf_counter")
    assert 90e-6 < case["stats"]["median"] < 110e-6


def test_a_case_in_the_pytest_process_is_given_too(project: FakeProject) -> None:
    """With --attnperf-isolate=none the body runs here, and its time is stored as one that gates nothing; a body that
    uses `benchmark` itself keeps it, with a clock that runs."""
    own = "import pytest\n\ndef test_both(attnperf, benchmark):\n    benchmark.pedantic(sum, args=([1],), rounds=2)\n"
    (project.path / "suites" / "test_both.py").write_text(own)
    project.run(*GATE, "--attnperf-isolate=none", "--benchmark-json=out.json")
    both, case = sorted(written(project)["benchmarks"], key=lambda bench: bench["name"])
    assert (both["name"], both["options"]["timer"], both["stats"]["rounds"]) == ("test_both", "perf_counter", 2)
    assert case["extra_info"]["verdict"] == "RIGHT"


def test_a_plugin_that_blocks_pytest_benchmark_silences_the_sink(project: FakeProject) -> None:
    """pytest-codspeed keeps pytest-benchmark's session from being registered: nothing is asked of it then."""
    blocks = "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_configure(config):\n"
    project.conftest(QUICK_MACHINE + blocks + "    config.pluginmanager.set_blocked('pytest-benchmark')\n")
    result = project.run(*GATE)
    assert project.verdicts() == {"fake.a": "NO_BASELINE"}
    assert result.ret == 0


def test_an_unknown_word_is_refused(project: FakeProject) -> None:
    """--attnperf-benchmark takes two words, and says which."""
    result = project.run(*GATE, "--attnperf-benchmark=always")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--attnperf-benchmark='always' is not known; choose one of: auto, off*"])


def test_autosave_then_compare_then_fail(project: FakeProject) -> None:
    """A stored run is compared with without a word about another machine; --benchmark-compare-fail fails a run whose
    own gate had nothing to compare with, and a device that is another one is named."""
    compare = ("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    project.run(*GATE, "--benchmark-autosave")
    again = project.run(*GATE, *compare)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["*(NOW)*"])
    assert "machine" not in again.stdout.str() + again.stderr.str()
    project.backend("fake.a", time_us=120.0)
    project.device(product="fake2", named={"driver": "7\x1b[2J"})
    slower = project.run(*GATE, *compare)
    assert slower.ret != 0
    assert "Performance has regressed" in slower.stderr.str()
    assert "--benchmark-compare: measured on another machine: product fake2 here, fake1 stored" in slower.stdout.lines


def test_a_failed_case_is_never_stored(project: FakeProject) -> None:
    """A wrong case is in no file and no table, and no warning says that its fixture was not used."""
    project.backend("fake.b", fault="wrong")
    result = project.run(*GATE, "--benchmark-json=out.json", "--benchmark-autosave")
    assert project.verdicts() == {"fake.a": "NO_BASELINE", "fake.b": "INCORRECT"}
    (path,) = (project.path / ".benchmarks").rglob("*.json")
    for stored in (written(project), json.loads(path.read_text())):
        assert [bench["extra_info"]["backend"] for bench in stored["benchmarks"]] == ["fake.a"]
    assert tables(result) == [f"benchmark 'prefill/{SMALL}': 1 tests"]
    assert "not used" not in result.stdout.str()


@pytest.mark.parametrize(
    ("addopts", "typed", "in_table"),
    [
        ("--benchmark-skip", "", False),
        ("--benchmark-disable", "", False),
        ("--benchmark-disable", "--benchmark-enable", True),
        ("", "--attnperf-benchmark=off", False),
    ],
)
def test_the_gate_stands_whatever_is_said_of_benchmarks(
    project: FakeProject, addopts: str, typed: str, in_table: bool
) -> None:
    """What pytest-benchmark is told, also by addopts, switches its table off and on, and never the gate."""
    project.pytester.makeini(f"[pytest]\naddopts = {addopts}\n")
    result = project.run(*GATE, *filter(None, [typed]))
    assert project.verdicts() == {"fake.a": "NO_BASELINE"}
    assert bool(tables(result)) is in_table


def test_only_leaves_out_what_is_no_benchmark(project: FakeProject) -> None:
    """--benchmark-only runs cases that are timed, and skips ordinary tests and cases that are only proven."""
    project.suite([LARGE], ", timed=False, suite='proofs'", name="test_proofs.py")
    (project.path / "suites" / "test_plain.py").write_text("def test_plain():\n    pass\n")
    result = project.run(*GATE, "--benchmark-only")
    assert result.parseoutcomes()["skipped"] == 2
    said = {case["key"]["suite"]: case["verdict"] for case in project.results()["cases"]}
    assert said == {"prefill": "NO_BASELINE", "proofs": "UNSUPPORTED"}
    assert tables(result) == [f"benchmark 'prefill/{SMALL}': 1 tests"]


def test_without_the_flag_cases_are_no_benchmarks(project: FakeProject) -> None:
    """Where nothing is timed, --benchmark-only skips cases as it does other tests."""
    project.run(*LOADED, "--benchmark-only").assert_outcomes(skipped=1)


def test_another_benchmark_fixture_is_left_alone(project: FakeProject) -> None:
    """Where another `benchmark` has taken the place of pytest-benchmark's, as pytest-codspeed's does, nothing is given
    to it, and what it does changes no verdict."""
    suite = project.path / "suites" / "test_prefill.py"
    for name, body in (("other", "return lambda fn, *args: fn(*args)"), ("odd", "pytest.skip('not today')")):
        folder = project.path / "suites" / name
        folder.mkdir()
        stub = f"import pytest\n\n@pytest.fixture\ndef benchmark(request):\n    {body}\n"
        (folder / "conftest.py").write_text(stub)
        (folder / f"test_{name}.py").write_text(suite.read_text())
    suite.unlink()
    result = project.run(*GATE)
    assert "2 no baseline" in result.stdout.lines[-1]
    assert tables(result) == []
    (said,) = [line for line in result.stdout.lines if "could not be given to pytest-benchmark" in line]
    assert said.startswith("1 case could not be given to pytest-benchmark: suites/odd/test_odd.py::")


def test_under_xdist_it_says_where_the_samples_are(project: FakeProject, own_process: None) -> None:
    """With -n1 pytest-benchmark is off: said once, and without its own warning."""
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    result = project.run(*LOADED, "-p", "xdist.plugin", "--attnperf", "-n1", "--no-attnperf-strict")
    assert result.ret == 0
    assert [line for line in result.stdout.lines if "pytest-benchmark" in line] == [
        "pytest-benchmark is off under xdist: the samples of 1 case are in .attnperf/results.json, not in its "
        "table or files"
    ]
    assert "automatically disabled" not in result.stderr.str() + result.stdout.str()


def test_without_the_plugin_no_sink(project: FakeProject) -> None:
    """Where pytest-benchmark is absent or kept out every case is judged as ever."""
    result = project.run("--attnperf", "--no-attnperf-strict", "-p", "no:benchmark")
    assert project.verdicts() == {"fake.a": "NO_BASELINE"}
    assert result.ret == 0
    assert tables(result) == []


def test_a_candidate_is_not_given(pytester: pytest.Pytester) -> None:
    """Samples of another tree are not stored under this tree's commit."""
    sink = benchmark_sink.BenchmarkSink(pytester.parseconfig("--attnperf-candidate=HEAD~1"))
    item: Any = None
    process = ProcessSummary(2.0, 1.0, 2.0, (1.0, 2.0), 10, "graph")
    check = CheckReport((ErrorFigures("check", "out", 0.0, 1.0, 0.0, 1.0),))
    result = CaseResult(CaseKey("s", "b", "w"), "t.py::t", Verdict.SAME, "", first=(process,), checks=(check,))
    sink._offer_case(item, result, "abc")
    assert sink.collect_notes() == [
        "1 case could not be given to pytest-benchmark: --attnperf-candidate measures another tree than the "
        "one pytest-benchmark would name"
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"verdict": Verdict.UNDECIDED}, True),
        ({"verdict": Verdict.RECORDED}, True),
        ({"verdict": Verdict.UNDECIDED, "fails": True}, False),
        ({"verdict": Verdict.SLOWER}, False),
        ({"verdict": Verdict.SUSPICIOUS}, False),
        ({"verdict": Verdict.INCOMPARABLE, "reasons": (Note(NoteKind.FOREIGN, "k.py"),)}, False),
        ({"checks": ()}, False),
        ({"checks": (CheckReport(problems=("wrong",)),)}, False),
    ],
)
def test_what_may_be_stored(changes: dict[str, Any], expected: bool) -> None:
    """Only what was proven right, did not fail, and is this tree's; never a slower time, whatever `fail_on` says."""
    assert benchmark_sink.can_be_stored(make_judged(**changes)) is expected


def test_the_replay_is_exact() -> None:
    """A difference of two readings is the duration itself, bit for bit."""

    class Pedantic:
        def pedantic(self, target: Any, setup: Any, rounds: int, iterations: int) -> None:
            for _ in range(rounds):
                setup()
                start = clock()
                target()
                seen.append(clock() - start)

    clock, seen = benchmark_sink.ReplayClock(), list[float]()
    seconds = [1e-4 / 3, 0.1 + 0.2, 5e-7]
    benchmark_sink.replay(Pedantic(), clock, seconds)
    assert seen == seconds

"""Every way to leave a case out, or to have it shown as something else, where it is stored: none is green."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.testing.project import SUITE, WORKLOAD, FakeProject

OTHER = "prefill-b1-s128-h1-d16-f16"
MARKER = '@pytest.mark.attnperf(family="prefill"'
CALL = "    attnperf.run(backend, workload)"
FILE = "suites/test_prefill.py"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Two suites of a backend each, stored; an ordinary test, which passes, beside them."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.backend("fake.b", time_us=100)
    attnperf_project.suite([WORKLOAD], ", backends=['fake.a']")
    attnperf_project.suite([OTHER], ", backends=['fake.b']", name="test_more.py")
    attnperf_project.store_baselines()
    (attnperf_project.path / "suites/test_plain.py").write_text("def test_plain():\n    pass\n")
    return attnperf_project


Change = Callable[[FakeProject], None]


def text(old: str, new: str) -> Change:
    """A change of the suite's text."""

    def change(project: FakeProject) -> None:
        file = project.path / FILE
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return change


def mark(line: str) -> Change:
    """A decorator above the case."""
    return text(MARKER, f"{line}\n{MARKER}")


def body(line: str) -> Change:
    """A line in front of the rendezvous."""
    return text(CALL, f"    {line}\n{CALL}")


def module(line: str) -> Change:
    """A line at the top of the file."""
    return text("import pytest\n", f"import pytest\n{line}\n")


def conftest(lines: str) -> Change:
    """Code in conftest.py."""
    return lambda project: project.conftest(f"import pytest\n{lines}\n")


def slower(change: Change) -> Change:
    """The change, over a kernel that has become slower."""

    def both(project: FakeProject) -> None:
        project.backend("fake.a", time_us=120)
        change(project)

    return both


def wrong(change: Change) -> Change:
    """The change, over a kernel that has become wrong."""

    def both(project: FakeProject) -> None:
        project.backend("fake.a", time_us=100, fault="wrong")
        change(project)

    return both


HOOK = "def pytest_{name}:\n    {do}\n"
HERE = "'test_prefill.py' in item.nodeid"
PASSED = """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report
"""


def setup(do: str) -> Change:
    """A hook in front of the suite's case."""
    return conftest(HOOK.format(name="runtest_setup(item)", do=f"if {HERE}: {do}"))


def collected(do: str) -> Change:
    """A hook on what was collected."""
    return conftest(HOOK.format(name="collection_modifyitems(items)", do=do))


WAYS: dict[str, Change] = {
    "xfail over slower": slower(mark("@pytest.mark.xfail")),
    "xfail over wrong": wrong(mark("@pytest.mark.xfail")),
    "xfail of a module over slower": slower(module("pytestmark = pytest.mark.xfail")),
    "strict xfail over slower": slower(mark("@pytest.mark.xfail(strict=True)")),
    "strict xfail over right": mark("@pytest.mark.xfail(strict=True)"),
    "xfail without running": mark("@pytest.mark.xfail(run=False)"),
    "xfail added by a hook": slower(collected(f"[item.add_marker('xfail') for item in items if {HERE}]")),
    "pytest.xfail in the body of a slower one": slower(body("pytest.xfail('known')")),
    "a report rewritten": slower(conftest(PASSED)),
    "skip": mark("@pytest.mark.skip"),
    "skipif": mark("@pytest.mark.skipif(True, reason='x')"),
    "pytest.skip in the body": body("pytest.skip('x')"),
    "pytest.importorskip in the body": body("pytest.importorskip('not_there')"),
    "skipped in a fixture": module("@pytest.fixture(autouse=True)\ndef each():\n    pytest.skip('x')"),
    "skipped in setup": setup("pytest.skip('x')"),
    "xfail in setup": setup("pytest.xfail('x')"),
    "skipped module": module("pytestmark = pytest.mark.skip"),
    "pytest.importorskip of a module": module("pytest.importorskip('not_there')"),
    "pytest.skip of a module": module("pytest.skip('x', allow_module_level=True)"),
    "collect_ignore": conftest("collect_ignore = ['suites/test_prefill.py']"),
    "collect_ignore_glob": conftest("collect_ignore_glob = ['*prefill*']"),
    "ignored by a hook": conftest(
        HOOK.format(
            name="ignore_collect(collection_path)", do="return True if 'prefill.py' in collection_path.name else None"
        )
    ),
    "removed by a hook": collected(f"items[:] = [item for item in items if not ({HERE})]"),
    "file removed": lambda project: (project.path / FILE).unlink(),
    "file renamed": lambda project: (project.path / FILE).rename(project.path / "suites/test_renamed.py") and None,
    "no test of that name": text("def test_prefill", "def prefill"),
    "no rendezvous": text(CALL, "    pass"),
    "rendezvous under a condition": text(CALL, f"    if False:\n    {CALL}"),
    "suite renamed by its marker": text("family=", "suite='x', family="),
    "labelled": text("family=", "label='x', family="),
    "timed=False": text("family=", "timed=False, family="),
    "not to be timed here": lambda project: project.backend("fake.a", not_timed="interpreted"),
    "unsupported": lambda project: project.backend("fake.a", supported=["x"]),
    "a second case in one test, its error swallowed": body(
        "for again in (1, 2):\n        try: attnperf.run(backend, workload)\n        except Exception: pass\n    return"
    ),
    "for nightly runs": text("family=", "tier='nightly', family="),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_leaves_the_gate_green(project: FakeProject, way: str) -> None:
    """The exit status is 1, and what is said names the case or its suite; the other suite is judged as ever."""
    WAYS[way](project)
    options = ["--attnperf-tier=pr"] if "nightly" in way else []
    result = project.run("--attnperf", "--attnperf-strict", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert any("prefill/fake.a" in line for line in result.outlines)
    verdicts = {case["key"]["suite"]: case["verdict"] for case in project.results()["cases"]}
    assert verdicts["more"] == "SAME"


@pytest.mark.parametrize("way", ["collect_ignore", "pytest.importorskip of a module", "no rendezvous"])
def test_a_run_without_any_case_is_not_green(project: FakeProject, way: str) -> None:
    """Of a project whose one suite has gone, ordinary tests alone pass no strict gate."""
    (project.path / "suites/test_more.py").unlink()
    (project.path / "baselines/fake/fake1/more.json").unlink()
    WAYS[way](project)
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert any("prefill" in line for line in result.outlines)


def test_what_testpaths_leave_out_is_asked_for(project: FakeProject) -> None:
    """Where nobody types a path, the ini file's testpaths select the tests, and hide no stored suite."""
    project.pytester.makeini("[pytest]\ntestpaths = suites/test_more.py\n")
    result = project.pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf", "--attnperf-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*prefill/fake.a/* has a baseline but no case*"])


@pytest.mark.parametrize(
    ("ini", "typed", "taken"),
    [
        ("testpaths = tests", ("--update-baselines",), True),
        ("testpaths = tests", ("--attnperf",), True),
        ("testpaths = tests", (), False),
        ("testpaths = tests", ("--update-baselines", "tests"), False),
        ("testpaths = .", ("--update-baselines",), True),
        ("", ("--update-baselines",), True),
    ],
)
def test_a_timed_run_without_a_path_takes_the_suites(
    project: FakeProject, ini: str, typed: tuple[str, ...], taken: bool
) -> None:
    """`pytest --update-baselines` alone stores what suites/ has, although testpaths name the project's own tests; a
    plain pytest, and a run with a path, take what they always did."""
    (project.path / "tests").mkdir()
    (project.path / "tests/test_own.py").write_text("def test_own():\n    pass\n")
    stored = project.path / "baselines/fake/fake1/prefill.json"
    stored.unlink()
    project.pytester.makeini(f"[pytest]\n{ini}\n")
    result = project.pytester.runpytest_subprocess("-p", "no:randomly", "-v", *typed)
    assert any("test_prefill" in line for line in result.outlines) is taken
    assert stored.exists() is (taken and "--update-baselines" in typed)
    own = "test_own.py::test_own PASSED" in result.stdout.str()
    assert own is (ini != "testpaths = tests" or not taken)


def test_ordinary_tests_alone(project: FakeProject) -> None:
    """A run of other files is asked for nothing."""
    assert project.run("--attnperf", "--attnperf-strict", "suites/test_plain.py").ret == pytest.ExitCode.OK


def test_one_file_is_asked_for_its_own_cases(project: FakeProject) -> None:
    """A run of one suite says nothing of the others' entries."""
    result = project.run("--attnperf", "--attnperf-strict", FILE)
    assert result.ret == pytest.ExitCode.OK


def test_a_suite_that_a_marker_names_elsewhere(project: FakeProject) -> None:
    """A suite of a file that was not selected, which is called otherwise, is not asked for."""
    folder = project.path / "others"
    folder.mkdir()
    named = SUITE.format(workloads=[WORKLOAD], settings=", suite='prefill'")
    (folder / "test_many.py").write_text(named)
    (project.path / FILE).unlink()
    result = project.run("--attnperf", "--attnperf-strict", "suites")
    assert result.ret == pytest.ExitCode.OK

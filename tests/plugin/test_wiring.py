"""The traps of pytest's wiring, each of which has turned a red run green, or a run into nothing."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject


@pytest.fixture
def slower(attnperf_project: FakeProject) -> FakeProject:
    """One case stored at 100 us that now takes 120 us, one that is unchanged."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=120.0)
    return attnperf_project


@pytest.fixture
def one_case(attnperf_project: FakeProject) -> FakeProject:
    """For what is refused before anything is measured: no baseline is needed."""
    attnperf_project.backend("fake.a", time_us=100.0)
    return attnperf_project


def test_readable_ids_work_with_k(attnperf_project: FakeProject) -> None:
    """Ids join backend and workload, so -k selects by either."""
    attnperf_project.suite(["prefill-b1-s64-h1-d16-f16", "prefill-b1-s64-h1-d32-f16-causal"])
    attnperf_project.backend("fake.a", time_us=1.0)
    attnperf_project.backend("fake.b", time_us=1.0)
    listed = attnperf_project.run("--collect-only", "-q").stdout.str()
    assert "suites/test_prefill.py::test_prefill[fake.b-prefill-b1-s64-h1-d32-f16-causal]" in listed
    attnperf_project.run("-k", "fake.b and d32").assert_outcomes(passed=1, deselected=3)


def test_reruns_are_refused(one_case: FakeProject, other_plugins: None) -> None:
    """--reruns turned a SLOWER into a pass with failures=0: a usage error together with --attnperf."""
    result = one_case.run("--attnperf", "--reruns=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--reruns repeats a SLOWER case until it passes*Drop --reruns*"])


@pytest.mark.parametrize(
    ("ini", "typed", "said"),
    [
        ("reruns = 2", "", "reruns, in the ini file, repeats a SLOWER *Give --reruns=0 *"),
        ("", "--force-reruns=2", "--force-reruns *"),
    ],
)
def test_reruns_by_other_roads_are_refused(
    one_case: FakeProject, other_plugins: None, ini: str, typed: str, said: str
) -> None:
    """The ini file's number and --force-reruns repeat a case as --reruns does."""
    one_case.pytester.makeini(f"[pytest]\n{ini}\n")
    result = one_case.run("--attnperf", *filter(None, [typed]))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


def test_the_flaky_marker_is_refused(one_case: FakeProject, other_plugins: None) -> None:
    """A marker that repeats one case is the same by another road."""
    suite = one_case.path / "suites" / "test_prefill.py"
    suite.write_text(
        suite.read_text().replace("@pytest.mark.attnperf", "@pytest.mark.flaky(reruns=2)\n@pytest.mark.attnperf")
    )
    result = one_case.run("--attnperf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*has @pytest.mark.flaky*"])


def test_x_and_lf_follow_verdicts(slower: FakeProject) -> None:
    """-x stops at the SLOWER case; --lf runs it alone."""
    result = slower.run("--attnperf", "-x")
    result.assert_outcomes(failed=1)
    again = slower.run("--attnperf", "--lf")
    again.assert_outcomes(failed=1, passed=0)


def test_junit_has_verdicts_and_failures(slower: FakeProject) -> None:
    """A regression is a failure of its test; every case carries its verdict and times as properties."""
    slower.run("--attnperf", "--junitxml=out.xml")
    cases = {case.get("name"): case for case in ElementTree.parse(slower.path / "out.xml").iter("testcase")}
    bad = cases[f"test_prefill[fake.a-{WORKLOAD}]"]
    good = cases[f"test_prefill[fake.b-{WORKLOAD}]"]
    assert bad.find("failure") is not None
    assert good.find("failure") is None
    properties = {p.get("name"): p.get("value") for p in good.iter("property")}
    assert properties["attnperf.verdict"] == "SAME"
    assert float(str(properties["attnperf.median_us"])) == pytest.approx(100, rel=0.03)


def test_options_in_addopts_do_not_reach_workers(slower: FakeProject) -> None:
    """`--junitxml`, `--lf` and `-p no:cacheprovider` in addopts act once, in the user's session."""
    slower.pytester.makeini("[pytest]\naddopts = --junitxml=all.xml -p no:cacheprovider\n")
    result = slower.run("--attnperf")
    result.assert_outcomes(failed=1, passed=1)
    assert len(list(ElementTree.parse(slower.path / "all.xml").iter("testcase"))) == 2


def test_pytest_addopts_does_not_reach_workers(slower: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTEST_ADDOPTS='-k fake.b' selects in the user's session only; the worker still finds every case."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k fake.b -v")
    slower.run("--attnperf").assert_outcomes(passed=1, deselected=1)


def test_xdist_gives_the_same_verdicts(slower: FakeProject, other_plugins: None) -> None:
    """With -n1 the results travel from xdist's worker: same verdicts, same exit status, one results file."""
    result = slower.run("--attnperf", "-n1")
    assert result.ret == 1
    result.assert_outcomes(failed=1, passed=1)
    assert slower.verdicts() == {"fake.a": "SLOWER", "fake.b": "SAME"}


def test_more_workers_than_devices_is_refused(slower: FakeProject, other_plugins: None) -> None:
    """Two xdist workers on one device would disturb each other's times."""
    result = slower.run("--attnperf", "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*-n 2 with --attnperf, but one CPU*use -n 1*"])


def test_shuffled_collection_is_put_back(attnperf_project: FakeProject, other_plugins: None) -> None:
    """pytest-randomly shuffles; cases run in canonical order all the same."""
    attnperf_project.suite([f"prefill-b1-s{s}-h1-d16-f16" for s in (16, 32, 48, 64, 80, 96)])
    attnperf_project.backend("fake.a", time_us=1.0)
    result = attnperf_project.pytester.runpytest_subprocess("-v", "-p", "randomly", "-p", "no:xdist", "suites/")
    order = re.findall(r"prefill-b1-s(\d+)", "\n".join(line for line in result.outlines if "PASSED" in line))
    assert order == ["16", "32", "48", "64", "80", "96"]


def test_pytest_timeout_does_not_kill_a_waiting_case(attnperf_project: FakeProject, other_plugins: None) -> None:
    """A case parked between requests is not killed by pytest-timeout inside the worker."""
    pytest.importorskip("pytest_timeout")
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.conftest(
        "import time, pytest_attnperf.workers.conversation as c\n"
        "_check = c.RemoteCase.check\n"
        "c.RemoteCase.check = lambda self, **how: (time.sleep(1.5), _check(self, **how))[1]\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    import pytest\n"
        "    if config.getoption('attnperf_worker_fd') is not None:\n"
        "        for item in items: item.add_marker(pytest.mark.timeout(1, method='thread'))\n"
    )
    attnperf_project.run().assert_outcomes(passed=1)


def test_session_fixtures_survive_from_case_to_case(attnperf_project: FakeProject) -> None:
    """The promised next case keeps module and session fixtures alive in the worker: one set-up for all."""
    attnperf_project.suite([f"prefill-b1-s{s}-h1-d16-f16" for s in (16, 32, 48)])
    attnperf_project.backend("fake.a", time_us=1.0)
    attnperf_project.conftest(
        "import pytest\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def costly(pytestconfig):\n"
        "    if pytestconfig.getoption('attnperf_worker_fd') is not None:\n"
        "        open('setups.txt', 'a').write('x')\n"
        "    yield\n"
    )
    attnperf_project.run().assert_outcomes(passed=3)
    assert (attnperf_project.path / "setups.txt").read_text() == "x"


def test_one_key_twice_is_refused(attnperf_project: FakeProject) -> None:
    """Two tests with one case key would share a baseline; the error names both and the way out."""
    attnperf_project.backend("fake.a", time_us=1.0)
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    body = suite.read_text()
    suite.write_text(body + body.replace("import pytest", "").replace("test_prefill", "test_again"))
    result = attnperf_project.run("--attnperf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*two tests are the same case prefill/fake.a/*test_again*label=*"])


def test_a_renamed_test_keeps_its_baseline(slower: FakeProject) -> None:
    """Cases are matched by key, not by node id: renaming the function changes nothing."""
    suite = slower.path / "suites" / "test_prefill.py"
    suite.write_text(suite.read_text().replace("def test_prefill(", "def test_attention("))
    slower.run("--attnperf").assert_outcomes(failed=1, passed=1)


def test_a_vanished_case_is_a_finding(slower: FakeProject) -> None:
    """A baseline entry without a case is named on an unfiltered run, and not on a filtered one."""
    del slower.script["backends"]["fake.a"]
    slower.write()
    result = slower.run("--attnperf", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*prefill/fake.a/{WORKLOAD} has a baseline but no case*"])
    assert slower.run("--attnperf", "--attnperf-strict", "-k", "fake.b").ret == 0


def test_the_alias_gives_way_to_a_projects_own_option(attnperf_project: FakeProject) -> None:
    """A conftest that already has --update-baselines keeps it; the canonical name still works."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.conftest(
        "def pytest_addoption(parser):\n    parser.addoption('--update-baselines', action='store_true', help='mine')\n"
    )
    attnperf_project.run("--update-baselines").assert_outcomes(passed=1)
    assert not attnperf_project.baseline().exists()
    assert attnperf_project.run("--attnperf-update-baselines").ret == 0
    assert attnperf_project.baseline().exists()


def test_a_path_that_moved_rootdir_is_refused(attnperf_project: FakeProject) -> None:
    """`--attnperf-baselines ../base` made rootdir ../base: the error shows the spelling with '='."""
    attnperf_project.backend("fake.a", time_us=100.0)
    base = attnperf_project.path.parent / f"{attnperf_project.path.name}-base"
    base.mkdir()
    result = attnperf_project.run("--attnperf", "--attnperf-baselines", str(base))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*write --attnperf-baselines={base}*"])


def test_collecting_and_help_do_not_import_torch(attnperf_project: FakeProject, own_process: None) -> None:
    """`--collect-only` and `--help` work without torch ever being imported."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.conftest(
        "import sys\ndef pytest_unconfigure():\n    open('loaded.txt', 'w').write(str('torch' in sys.modules))\n"
    )
    assert attnperf_project.run("--collect-only").ret == 0
    assert (attnperf_project.path / "loaded.txt").read_text() == "False"
    result = attnperf_project.run("--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--attnperf-update-baselines*", "*--update-baselines*"])


def test_ordinary_tests_are_left_alone(attnperf_project: FakeProject) -> None:
    """A test that is no case runs in the user's own process, with or without --attnperf."""
    attnperf_project.backend("fake.a", time_us=100.0)
    (attnperf_project.path / "suites" / "test_plain.py").write_text(
        "import os\ndef test_plain():\n    open('pid.txt', 'w').write(str(os.getppid()))\n"
    )
    attnperf_project.run("--attnperf").assert_outcomes(passed=1)
    assert (attnperf_project.path / "pid.txt").read_text().isdigit()


def test_isolate_none_runs_here_and_never_gates(slower: FakeProject) -> None:
    """--attnperf-isolate=none measures in the pytest process for a debugger, and judges no time."""
    result = slower.run("--attnperf", "--attnperf-isolate=none")
    result.assert_outcomes(passed=2)
    assert set(slower.verdicts().values()) == {"RIGHT"}
    assert slower.results()["gated"] == 0


def test_times_of_another_protocol_never_gate(slower: FakeProject) -> None:
    """A slowdown that report_002 shows fails nothing, and is recorded nowhere, not even locally."""
    slower.backend("fake.a", time_us=200, timer="report_002")
    slower.backend("fake.b", time_us=200, timer="report_002")
    result = slower.run("--attnperf", "--attnperf-timer=report_002", "--attnperf-record-local")
    result.assert_outcomes(passed=2)
    cases = slower.results()["cases"]
    assert {case["verdict"] for case in cases} == {"RIGHT"}
    assert {case["summary"] for case in cases} == {"timed by report_002, which never gates"}
    assert slower.results()["gated"] == 0
    assert not (slower.path / ".attnperf" / "local").exists()


def test_command_line_workloads_never_become_baselines(attnperf_project: FakeProject) -> None:
    """--attnperf-workload replaces the suite's workloads, from text or a file, and is refused with an update."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.run("--attnperf", "--attnperf-workload=b=1, s=128, h=2, d=64, causal, f16")
    assert attnperf_project.results()["cases"][0]["key"]["workload"] == "prefill-b1-s128-h2-d64-f16-causal"
    (attnperf_project.path / "w.jsonl").write_text('"s=16,h=1,d=16"\n{"s": 32, "h": 1, "d": 16}\n')
    attnperf_project.run("--attnperf", "--attnperf-workload=w.jsonl")
    assert len(attnperf_project.results()["cases"]) == 2
    result = attnperf_project.run("--update-baselines", "--attnperf-workload=w.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*workloads given on the command line are never stored*"])


TWO_TESTS_AND_A_GEMM = """
import pytest

@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"])
def test_first(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s32-h1-d16-f16"])
def test_second(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(family="gemm", workloads=["gemm-m8-n8-k8-f16"])
def test_gemm(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
GEMM_BACKEND = """
def pytest_attnperf_register_backends(registry):
    from pytest_attnperf.testing.fake.backends import FakeBackend
    registry.add(FakeBackend("fake.gemm", families=("gemm",)))
"""


def test_command_line_workloads_are_for_the_families_that_read_them(attnperf_project: FakeProject) -> None:
    """Tests of other families are left out, a case that two tests would give is run once, nonsense is still refused."""
    attnperf_project.conftest(GEMM_BACKEND)
    attnperf_project.backend("fake.a", time_us=100.0)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text(TWO_TESTS_AND_A_GEMM)
    listed = attnperf_project.run("--co", "-q", "--attnperf-workload=s=16,h=1,d=16")
    listed.stdout.fnmatch_lines(["*::test_first[[]fake.a-prefill-b1-s16-h1-d16-f16]", "*1/3 tests collected*"])
    listed = attnperf_project.run("--co", "-q", "--attnperf-workload=m=16,n=16,k=16")
    listed.stdout.fnmatch_lines(["*::test_gemm[[]fake.gemm-gemm-m16-n16-k16-f16]", "*1/3 tests collected*"])
    attnperf_project.run("--co", "-q", "--attnperf-workload=s=16,h=1,z=16").stdout.fnmatch_lines(["*unknown*z*"])


def test_the_interpreter_is_this_one(attnperf_project: FakeProject) -> None:
    """Workers run under the interpreter that runs pytest."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.conftest(
        "import sys\ndef pytest_configure(config):\n    open('python.txt', 'a').write(sys.executable + '\\n')\n"
    )
    attnperf_project.run()
    assert set((attnperf_project.path / "python.txt").read_text().split()) == {sys.executable}


TWO_TESTS_OF_ONE_NAME = """
import pytest

class TestOne:
    @pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"], backends=["fake.a"])
    def test_it(self, attnperf, backend, workload):
        attnperf.run(backend, workload)

class TestOther:
    @pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s65-h1-d16-f16"], backends=["fake.a"])
    def test_it(self, attnperf, backend, workload):
        attnperf.run(backend, workload)
"""


def test_tests_that_no_backend_is_left_for_are_one_error(attnperf_project: FakeProject) -> None:
    """Two tests of one name and family, of whose backends none was asked for, are not one case twice."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", time_us=100.0)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text(TWO_TESTS_OF_ONE_NAME)
    result = attnperf_project.run("--attnperf-backend=fake.b")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --attnperf-backend=fake.b selects no case: *::TestOne::test_it has fake.a; *"])

"""Options that the run would not heed."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject

ALONE = [
    *("interleave=all", "pairs=3", "timer=host", "processes=9", "second-look=4", "effort=low"),
    *(
        "results=r.json",
        "report=out",
        "history=h.db",
        "benchmark=off",
        "threshold=3",
        "record-local",
        "strict",
        "against=.",
    ),
]


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One right backend."""
    attnperf_project.backend("fake.a", time_us=100)
    return attnperf_project


def test_options_of_timing_need_attnperf(project: FakeProject) -> None:
    """Without --attnperf each is a usage error of one line that names both, and nothing runs."""
    for option in ALONE:
        result = project.run(f"--attnperf-{option}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR, option
        said = [line for line in result.stderr.lines if line]
        assert len(said) == 1, said
        assert said[0].startswith(f"ERROR: --attnperf-{option} needs --attnperf: without it this run only proves"), said
        assert said[0].endswith(f"Add --attnperf, or drop --attnperf-{option}")


@pytest.mark.parametrize(
    "flag", ["--update-baselines", "--attnperf-calibrate=2", "--attnperf-against=.", "--attnperf-changed"]
)
def test_a_timer_that_never_gates_is_refused_by_what_stores_or_compares(project: FakeProject, flag: str) -> None:
    """Times of another protocol are not stored, compared with a base side, or a reason to leave a case out."""
    gate = () if flag.startswith(("--update", "--attnperf-calibrate")) else ("--attnperf",)
    result = project.run(*gate, flag, "--attnperf-timer=report_002")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {flag.partition('=')[0]} with --attnperf-timer=report_002: *never gates*"])


def test_a_value_of_its_own_word_is_found_too(project: FakeProject) -> None:
    """`--attnperf-report out` is the same as `--attnperf-report=out`."""
    result = project.run("--attnperf-report", "out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --attnperf-report needs --attnperf: *"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attnperf", "--attnperf-pairs=3"), "--attnperf-pairs=3 needs --attnperf-against: *"),
        (("--attnperf", "--attnperf-interleave=all"), "--attnperf-interleave=all needs --attnperf-against: *"),
        (("--attnperf-build=make",), "--attnperf-build=make needs --attnperf-against or --attnperf-candidate: *"),
        (("--attnperf-accept=why",), "--attnperf-accept=why needs --update-baselines: *"),
        (("--attnperf-warm", "--attnperf-report=out"), "--attnperf-report=out needs --attnperf: *"),
    ],
)
def test_other_pairs(project: FakeProject, words: tuple[str, ...], said: str) -> None:
    """What belongs to a base side, to a recording or to a timed run is refused without it."""
    result = project.run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


@pytest.mark.parametrize("word", ["--attnperf-candidate=HEAD", "--collect-only"])
def test_what_measures_nothing_of_this_tree_is_typed(project: FakeProject, word: str) -> None:
    """An ini file may not make a gate measure another tree, or nothing: with the same words typed it is let through."""
    project.pytester.makeini(f"[pytest]\naddopts = {word}\n")
    result = project.run("--attnperf", "--attnperf-against=HEAD")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: the ini file or PYTEST_ADDOPTS sets {word}: *"])
    project.pytester.makeini("[pytest]\n")
    result = project.run("--attnperf", "--attnperf-against=HEAD", word)
    assert "the ini file" not in result.stderr.str()


def test_a_method_of_unittest_is_no_case(project: FakeProject) -> None:
    """Whatever is expected of it: one line says how to write it."""
    (project.path / "suites/test_prefill.py").write_text(
        "import pytest, unittest\n\n"
        "class TestIt(unittest.TestCase):\n"
        "    @pytest.fixture(autouse=True)\n"
        "    def handle(self, attnperf):\n        self.attnperf = attnperf\n\n"
        "    @unittest.expectedFailure\n"
        "    def test_it(self):\n        assert False\n"
    )
    result = project.run("--attnperf", "suites")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *test_it is a method of a unittest.TestCase, which *"])


def test_what_a_proof_heeds_is_let_through(project: FakeProject) -> None:
    """Options of proofs work without --attnperf; of timing, they may stand in the ini file for runs that time."""
    project.pytester.makeini(
        "[pytest]\naddopts = --attnperf-threshold=3 --attnperf-report=out\nattnperf_results = x.json\n"
    )
    heeded = ("device=cpu", "backend=fake.a", "isolate=case", "case-limit=99", "seed=3", "determinism=2", "tier=pr")
    result = project.run(*(f"--attnperf-{one}" for one in heeded), "--no-attnperf-strict", "--attnperf-fail-on=")
    result.assert_outcomes(passed=1)


def test_results_of_a_profile_are_written(project: FakeProject) -> None:
    """--attnperf-profile times nothing, and --attnperf-results says where its results go."""
    result = project.run("--attnperf-profile", "--attnperf-results=mine.json")
    assert "needs --attnperf" not in result.stderr.str()
    assert result.ret == 0

"""What a user sees of how results are proven."""

from __future__ import annotations

from pytest_attnperf.testing.project import FakeProject

WORKLOADS = ["prefill-b1-s64-h1-d16-f16", "prefill-b1-s64-h1-d32-f16"]


def processes(project: FakeProject) -> list[str]:
    """The process that measured each case, in order."""
    return [case["first"][0]["process"] for case in project.results()["cases"]]


def test_a_worker_that_used_a_profiler_measures_no_other_case(attnperf_project: FakeProject) -> None:
    """A profiler slows what comes after it, so that the next case gets a fresh process."""
    attnperf_project.suite(WORKLOADS)
    attnperf_project.backend("fake.a")
    attnperf_project.run("--attnperf", "--no-attnperf-strict")
    first, second = processes(attnperf_project)
    assert first == second
    attnperf_project.backend("fake.a", spent=True)
    attnperf_project.run("--attnperf", "--no-attnperf-strict")
    first, second = processes(attnperf_project)
    assert first != second


def test_a_run_that_times_nothing_keeps_a_worker_that_used_a_profiler(attnperf_project: FakeProject) -> None:
    """There the profiler is asked for and harms nothing: one process serves all cases."""
    attnperf_project.suite(WORKLOADS)
    attnperf_project.backend("fake.a", spent=True)
    attnperf_project.run().assert_outcomes(passed=2)
    assert len(list(attnperf_project.path.glob(".attnperf/logs/*/*.log"))) == 1


def test_a_silent_fallback_fails_the_test(attnperf_project: FakeProject) -> None:
    """A right result from another kernel than declared is INCORRECT, and the text says what ran."""
    attnperf_project.backend("fake.a", fault="fallback")
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INCORRECT: prefill/fake.a/*", "*declares the kernel 'flash', but it did not run*"])
    assert attnperf_project.verdicts() == {"fake.a": "INCORRECT"}


def test_a_change_of_kernels_is_said_of_cases_that_pass(attnperf_project: FakeProject) -> None:
    """A library that chooses another kernel shows before it costs time."""
    attnperf_project.backend("fake.a", kernels=["flash_v2"])
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", kernels=["flash_v3"])
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["prefill/fake.a/*: what ran has changed since the baseline: no longer runs flash_v2; runs flash_v3, *"]
    )


def test_a_kernel_that_remembers_is_not_recorded(attnperf_project: FakeProject) -> None:
    """--update-baselines fails the case and stores nothing of it."""
    attnperf_project.backend("fake.a", remembers=9.0)
    result = attnperf_project.run("--update-baselines")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SUSPICIOUS: prefill/fake.a/*", "remembers its results: *"])
    assert not attnperf_project.baseline().exists()


def test_determinism_is_reported_per_backend(attnperf_project: FakeProject) -> None:
    """Asked for, every backend says whether its bits repeat; differing bits fail nothing."""
    attnperf_project.suite(WORKLOADS)
    attnperf_project.backend("fake.a")
    attnperf_project.backend("fake.b", bit_equal=False)
    result = attnperf_project.run("--attnperf-determinism=3")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "determinism: fake.a gave the same bits in 3 calls in 2 of 2 cases",
            "determinism: fake.b gave the same bits in 3 calls in 0 of 2 cases; not in prefill-*",
        ]
    )
    assert "determinism: " not in attnperf_project.run().stdout.str()


def test_trials_are_reported_and_a_wrong_one_fails(attnperf_project: FakeProject) -> None:
    """Guards run unasked; others when they are named, or in a nightly run. Wrong is INCORRECT, refused is told."""
    attnperf_project.suite(WORKLOADS[:1])
    wrong = {"variant": "fused", "ending": "wrong", "why": "layouts, fused: 'out' is off by 9"}
    refused = {"variant": "sliced", "ending": "refused", "why": "ValueError: rows must be dense"}
    attnperf_project.backend("fake.a", trials={"layouts": [refused, {"variant": "fused"}]})
    attnperf_project.backend("fake.b", trials={"layouts": [wrong]})
    plain = attnperf_project.run()
    plain.assert_outcomes(passed=2)
    assert "guards of" not in plain.stdout.str()
    for asked in ("--attnperf-trials=layouts", "--attnperf-trials=all", "--attnperf-tier=nightly"):
        result = attnperf_project.run(asked)
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["*layouts, fused: 'out' is off by 9*"])
        result.stdout.fnmatch_lines(
            ["layouts of 2 cases: 1 right, 1 wrong, 1 refused; refused: fake.a sliced (ValueError: rows must be dense)"]
        )
    for asked in ("--attnperf-trials=none", "--attnperf-trials=guards"):
        attnperf_project.run(asked, "--attnperf-tier=nightly").assert_outcomes(passed=2)


def test_trials_come_once_per_case(attnperf_project: FakeProject) -> None:
    """A timed case that is wrong in a trial is INCORRECT; of a recording, one process goes through them."""
    wrong = {"variant": "fused", "ending": "wrong", "why": "layouts, fused: 'out' is off by 9"}
    attnperf_project.suite(WORKLOADS[:1])
    attnperf_project.backend("fake.a", trials={"layouts": [{"variant": "fused"}]})
    stored = attnperf_project.run("--update-baselines", "--attnperf-trials=layouts")
    stored.stdout.fnmatch_lines(["layouts of 1 cases: 1 right"])
    attnperf_project.backend("fake.a", trials={"layouts": [wrong]})
    attnperf_project.run("--attnperf").assert_outcomes(passed=1)
    attnperf_project.run("--attnperf", "--attnperf-trials=layouts").assert_outcomes(failed=1)


def test_bits_are_compared_over_processes(attnperf_project: FakeProject) -> None:
    """Where a run takes several of a case: to calibrate, to record, and in a second look; other bits fail nothing."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", time_us=100.0, bits="process")
    lines = ["determinism: fake.a gave the same bits in 2 processes in 1 of 1 cases",
             "determinism: fake.b gave the same bits in 2 processes in 0 of 1 cases; not in prefill-*"]  # fmt: skip
    result = attnperf_project.run("--attnperf-calibrate=2", "--attnperf-determinism=3")
    assert result.ret == 0
    result.stdout.fnmatch_lines(lines)
    assert " processes in " not in attnperf_project.run("--attnperf-determinism=3").stdout.str()


def test_invariance_is_asked_for_by_a_switch(attnperf_project: FakeProject) -> None:
    """Each backend then says in how many cases its parts have the bits of the whole; else nothing is said."""
    attnperf_project.suite(WORKLOADS)
    attnperf_project.backend("fake.a", trials={"invariance": [{"variant": "alone", "ulps": 0.0}]})
    attnperf_project.backend("fake.b", trials={"invariance": [{"variant": "alone", "ulps": 2.0}]})
    result = attnperf_project.run("--attnperf-invariance")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "invariance: fake.a gave the same bits in all parts of a batch in 2 of 2 cases",
            "invariance: fake.b gave the same bits in all parts of a batch in 0 of 2 cases; not in prefill-* (within 2 "
            "ulp: alone), *",
        ]
    )
    assert "invariance: " not in attnperf_project.run().stdout.str()


def test_one_call_has_nothing_to_be_compared_with(attnperf_project: FakeProject) -> None:
    """--attnperf-determinism=1 is a usage error that says what to give."""
    attnperf_project.backend("fake.a")
    result = attnperf_project.run("--attnperf-determinism=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--attnperf-determinism=1 compares nothing; give 2 or more calls, or 0 for none*"])


def test_the_cost_of_proving_is_said(attnperf_project: FakeProject) -> None:
    """A timed run says how long its checks took, and what they went to."""
    attnperf_project.backend("fake.a")
    result = attnperf_project.run("--attnperf", "--no-attnperf-strict")
    result.stdout.fnmatch_lines(["proving 1 case took 0.0 s: other 0.0"])

"""What a user types, on the fake device: the verdicts, their outcomes and their texts."""

import json

import pytest

from pytest_attnperf.testing.project import FakeProject

NODE = "suites/test_prefill.py::test_prefill[fake.a-prefill-b1-s64-h1-d16-f16]"


def test_without_the_flag_only_correctness_is_checked(attnperf_project: FakeProject) -> None:
    """`pytest suites/` proves the result right, prints no time, and writes nothing."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*TFLOP*")
    assert not (attnperf_project.path / ".attnperf" / "results.json").exists()


def test_a_wrong_result_fails_without_the_flag_too(attnperf_project: FakeProject) -> None:
    """Correctness alone fails a wrong backend, with the figures and the seed that reproduces it."""
    attnperf_project.backend("fake.a", fault="wrong")
    result = attnperf_project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INCORRECT*", "*40.0x the budget at (0, 1, 2, 3)*", "*--attnperf-seed=*"])


def test_unchanged_code_is_same(stored: FakeProject) -> None:
    """A second run over unchanged code passes as SAME and exits 0."""
    result = stored.run("--attnperf", "-v")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*SAME*"])
    assert stored.verdicts() == {"fake.a": "SAME"}
    assert stored.results()["gated"] == 1


def test_ten_percent_slower_fails(stored: FakeProject) -> None:
    """A slowdown fails the test as SLOWER, with both times, the second look's size, and how to reproduce it."""
    stored.backend("fake.a", time_us=110.0)
    result = stored.run("--attnperf")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SLOWER*"])
    assert f'pytest --attnperf "{NODE}"' in result.stdout.str()
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "SLOWER"
    assert 1.09 < case["ratio"] < 1.11
    assert len(case["second"]) == 3
    assert case["interval"][0] < case["ratio"] < case["interval"][1]


def test_slower_then_accepted_by_updating(stored: FakeProject) -> None:
    """--update-baselines on the slower code makes the next run pass."""
    stored.backend("fake.a", time_us=110.0)
    update = stored.run("--update-baselines")
    assert update.ret == 0
    update.stdout.fnmatch_lines(["*1 recorded*"])
    stored.run("--attnperf").assert_outcomes(passed=1)


def test_faster_passes(stored: FakeProject) -> None:
    """The gate is one-sided: faster passes, and says that the baseline could be updated."""
    stored.backend("fake.a", time_us=80.0)
    result = stored.run("--attnperf")
    result.assert_outcomes(passed=1)
    assert stored.verdicts() == {"fake.a": "FASTER"}


@pytest.mark.parametrize("fault", ["wrong", "nan", "nothing", "late", "replay"])
def test_wrong_results_are_incorrect_and_not_timed(stored: FakeProject, fault: str) -> None:
    """A wrong value, NaN, nothing, wrong only at the end, wrong only when replayed: INCORRECT, without a time."""
    stored.backend("fake.a", time_us=10.0, fault=fault)
    result = stored.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INCORRECT*"])
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "INCORRECT"
    assert case["median_us"] is None
    assert case["reasons"]


def test_no_baseline_is_not_a_pass(attnperf_project: FakeProject) -> None:
    """Without a baseline the case has its own category and names the command; strict makes the run fail."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf", "-rA")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["pytest *--update-baselines *", "*gated 0 of 1*"])
    assert "1 no baseline" in result.stdout.str()
    assert " passed" not in result.stdout.lines[-1]
    strict = attnperf_project.run("--attnperf", "--attnperf-strict")
    assert strict.ret == 1
    strict.stdout.fnmatch_lines(["*strict: 1 cases are NO_BASELINE*", "*strict: gated 0 of 1*"])


def test_ci_is_strict_by_default(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI is set, NO_BASELINE fails the run; --no-attnperf-strict takes that back."""
    attnperf_project.backend("fake.a", time_us=100.0)
    monkeypatch.setenv("CI", "true")
    assert attnperf_project.run("--attnperf").ret == 1
    assert attnperf_project.run("--attnperf", "--no-attnperf-strict").ret == 0


def test_another_products_baseline_is_incomparable(stored: FakeProject) -> None:
    """A baseline of the same arch but another product does not gate this one, and is named."""
    stored.device(product="fake2")
    result = stored.run("--attnperf")
    assert stored.verdicts() == {"fake.a": "INCOMPARABLE"}
    assert "stored for fake/fake1, this is fake/fake2" in stored.results()["cases"][0]["summary"]
    assert "1 incomparable" in result.stdout.str()


def test_another_products_other_case_is_no_baseline(stored: FakeProject) -> None:
    """A case that no product has stored is NO_BASELINE, though another product has stored others of the suite."""
    stored.device(product="fake2")
    stored.backend("fake.b", time_us=100.0)
    stored.run("--attnperf")
    assert stored.verdicts() == {"fake.a": "INCOMPARABLE", "fake.b": "NO_BASELINE"}


def test_other_settings_of_torch_are_incomparable(attnperf_project: FakeProject) -> None:
    """More threads than stored times were taken with hide a slower kernel: named with both, and counted by strict."""
    attnperf_project.backend("fake.a", time_us=100.0, settings="torch's defaults")
    attnperf_project.store_baselines()
    attnperf_project.run("--attnperf")
    assert attnperf_project.verdicts() == {"fake.a": "SAME"}
    attnperf_project.backend("fake.a", time_us=100.0, settings="threads 8")
    assert attnperf_project.run("--attnperf", "--attnperf-strict").ret == 1
    (case,) = attnperf_project.results()["cases"]
    assert case["verdict"] == "INCOMPARABLE"
    assert "settings of torch: threads 8 here, torch's defaults stored" in case["summary"]


@pytest.mark.parametrize(("mebibytes", "noted"), [(12, True), (11, False), (5, False)])
def test_more_memory_than_stored_is_noted(attnperf_project: FakeProject, mebibytes: int, noted: bool) -> None:
    """A kernel that is fast because it saves more passes, and a note says how much more; 10 % is nothing."""
    attnperf_project.backend("fake.a", time_us=100.0, peak_memory_bytes=10 << 20)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=100.0, peak_memory_bytes=mebibytes << 20)
    attnperf_project.run("--attnperf")
    (case,) = attnperf_project.results()["cases"]
    assert case["verdict"] == "SAME"
    assert ("peak memory grew: 12.0 MiB here, 10.0 MiB stored" in case["notes"]) == noted


def test_a_baseline_that_knows_no_settings_is_compared(stored: FakeProject) -> None:
    """Times that were stored before settings were go on gating."""
    stored.backend("fake.a", time_us=110.0, settings="threads 8")
    stored.run("--attnperf")
    assert stored.verdicts() == {"fake.a": "SLOWER"}


def test_another_power_cap_is_incomparable(stored: FakeProject) -> None:
    """A must-match field that differs is named with both values."""
    stored.device(must_match={"power_cap_w": "500"})
    stored.run("--attnperf")
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "INCOMPARABLE"
    assert case["reasons"] == ["power_cap_w: 500 here, absent stored"]


def test_slower_under_another_toolchain_is_environment(stored: FakeProject) -> None:
    """Slower with another driver cannot be told from the driver against a stored baseline: ENVIRONMENT, named."""
    stored.backend("fake.a", time_us=110.0)
    stored.device(named={"driver": "581"})
    result = stored.run("--attnperf")
    assert result.ret == 0
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "ENVIRONMENT"
    assert "driver: 581 here, absent stored" in case["summary"]


def test_unsupported_is_skipped_with_its_reason(attnperf_project: FakeProject) -> None:
    """A backend that cannot run says why under -rs."""
    attnperf_project.backend("fake.a", supported=["head_dim 16 is below 32"])
    result = attnperf_project.run("--attnperf", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*head_dim 16 is below 32*"])


@pytest.mark.parametrize("options", [("--attnperf",), ("--attnperf", "--attnperf-isolate=none"), ()])
def test_what_trying_finds_unsupported_is_skipped(attnperf_project: FakeProject, options: tuple[str, ...]) -> None:
    """A backend whose library cannot be loaded, or called, here is skipped with the reason that only trying it gave."""
    attnperf_project.backend("fake.a", fault="unsupported")
    attnperf_project.backend("fake.b", fault="unsupported", fault_at="check")
    result = attnperf_project.run(*options, "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED [[]2] *scripted: hipcc missing*"])


def test_support_that_vanished_fails(stored: FakeProject) -> None:
    """A case with a baseline cannot hide by calling itself unsupported."""
    stored.backend("fake.a", supported=["too hard today"])
    result = stored.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unsupported now, but a baseline is stored*too hard today*"])
    stored.backend("fake.a", fault="unsupported")
    result = stored.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unsupported now, but a baseline is stored*scripted: hipcc missing*"])


def test_an_impossible_time_is_suspicious(attnperf_project: FakeProject) -> None:
    """A time below the device's floor fails as SUSPICIOUS before anything is compared."""
    attnperf_project.suite(["prefill-b4-s4096-h32-d128-f16-causal"])
    attnperf_project.backend("fake.a", time_us=5.0)
    attnperf_project.device(arch="sm_90", product="h200", compute_units=132)
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=1)
    assert attnperf_project.verdicts() == {"fake.a": "SUSPICIOUS"}
    update = attnperf_project.run("--update-baselines")
    assert update.ret == 1
    assert not attnperf_project.baseline("sm_90", "h200").exists()


def test_a_time_near_the_floor_warns(attnperf_project: FakeProject) -> None:
    """Within a tenth of the floor nothing fails, and the run says to look twice."""
    attnperf_project.suite(["prefill-b4-s4096-h32-d128-f16-causal"])
    attnperf_project.script["process_sd"] = 0.0
    # 5.5e11 useful FLOP at 1070 TFLOP/s, the H200's dense f16 rate at its highest clock, take 514 us.
    attnperf_project.backend("fake.a", time_us=525.0)
    attnperf_project.device(arch="sm_90", product="h200", compute_units=132)
    result = attnperf_project.run("--attnperf")
    assert attnperf_project.verdicts() == {"fake.a": "NO_BASELINE"}
    result.stdout.fnmatch_lines(["*warning: prefill/fake.a/*near the floor:*"])


def test_noise_beyond_the_threshold_is_undecided(attnperf_project: FakeProject) -> None:
    """A slowdown that noise could make is UNDECIDED with what would decide it: no pass, no fail."""
    attnperf_project.script["process_sd"] = 0.02
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.script["process_sd"] = 0.0
    attnperf_project.backend("fake.a", time_us=104.0)
    result = attnperf_project.run("--attnperf")
    assert attnperf_project.verdicts() == {"fake.a": "UNDECIDED"}
    assert "1 undecided" in result.stdout.str()
    assert "would decide it" in attnperf_project.results()["cases"][0]["summary"]


def test_update_leaves_out_what_is_wrong(attnperf_project: FakeProject) -> None:
    """A failing case is not stored, the rest is, and the run exits 1."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", fault="wrong")
    result = attnperf_project.run("--update-baselines")
    assert result.ret == 1
    entries = json.loads(attnperf_project.baseline().read_text())["entries"]
    assert [key.split("/")[0] for key in entries] == ["fake.a"]
    assert len(next(iter(entries.values()))["processes"]) == 7


def test_a_partial_update_merges(stored: FakeProject) -> None:
    """Updating one backend with -k keeps the others' entries."""
    stored.backend("fake.b", time_us=50.0)
    stored.run("--update-baselines", "-k", "fake.b")
    entries = json.loads(stored.baseline().read_text())["entries"]
    assert sorted(key.split("/")[0] for key in entries) == ["fake.a", "fake.b"]


def test_record_local_gates_in_the_same_run(attnperf_project: FakeProject) -> None:
    """Without a stored baseline, --attnperf-record-local makes one under .attnperf/local and gates against it."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf", "--attnperf-record-local")
    assert result.ret == 0
    assert attnperf_project.verdicts() == {"fake.a": "SAME"}
    assert (attnperf_project.path / ".attnperf/local/fake/fake1/prefill.json").is_file()
    assert not attnperf_project.baseline().exists()
    result.stdout.fnmatch_lines(["1 case was compared with .attnperf/local, recorded in this run: that compares code*"])
    assert any("recorded in this run" in note for note in attnperf_project.results()["cases"][0]["notes"])
    again = attnperf_project.run("--attnperf")
    again.stdout.fnmatch_lines(["1 case was compared with .attnperf/local, recorded earlier on this machine:*"])


def test_an_unsupported_case_costs_no_fresh_processes(attnperf_project: FakeProject) -> None:
    """Recording goes on in the same seven processes behind a case that only the first of them was asked about."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", supported=["not here"])
    attnperf_project.backend("fake.c", time_us=50.0)
    result = attnperf_project.run("--update-baselines")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
    assert len(list((attnperf_project.path / ".attnperf" / "logs").glob("*/worker*.log"))) == 7

"""`--attnperf-shard`, typed as a user types it: who gets which case, what is refused, and what results hold."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.baselines.case_seconds import CASE_SECONDS
from pytest_attnperf.plugin.features.sharding.sharding import Sharding
from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.shards import find_shard_faults
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.project import FakeProject

WORKLOADS = [f"prefill-b1-s{64 * number}-h1-d16-f16" for number in (1, 2, 3)]
PLAIN = "def test_plain():\n    pass\n"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Two backends and three workloads, one of them nightly, and an ordinary test."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100)
    attnperf_project.suite(WORKLOADS, f", nightly=[{WORKLOADS[2]!r}]")
    (attnperf_project.path / "suites/test_plain.py").write_text(PLAIN)
    return attnperf_project


def collect(project: FakeProject, shard: str, *typed: str) -> list[str]:
    """The tests of a shard, without their file."""
    result = project.run("--attnperf", f"--attnperf-shard={shard}", "--co", "-q", *typed)
    return re.findall(r"^suites/test_\w+\.py::test_(\S+)", result.stdout.str(), re.MULTILINE)


@pytest.mark.parametrize(
    ("typed", "selected"),
    [
        (("-p", "randomly"), 4),
        (("-k", "fake.a"), 2),
        (("--attnperf-tier=nightly",), 6),
    ],
    ids=["random order", "-k", "tier"],
)
def test_what_is_selected_is_divided(project: FakeProject, typed: tuple[str, ...], selected: int) -> None:
    """Each case is in one part, after every other selection; ordinary tests are in the first."""
    first, second = (collect(project, f"{index}/2", *typed) for index in (1, 2))
    cases = [name for name in (*first, *second) if name != "plain"]
    assert len(set(cases)) == len(cases) == selected
    assert abs(len(first) - len(second)) <= 1
    assert "plain" not in second


def test_stored_seconds_decide(project: FakeProject) -> None:
    """One long case is as much as all others; a file that cannot be read is refused, with its name."""
    stored = project.path / "baselines" / CASE_SECONDS
    stored.parent.mkdir()
    seconds = {f"prefill/fake.b/{WORKLOADS[0]}": 60, "x/y/prefill-": 20, "x/z/prefill-": 20}
    stored.write_text(json.dumps({"schema": 1, "seconds": seconds}))
    assert collect(project, "1/2", "-k", "prefill") == [f"prefill[fake.b-{WORKLOADS[0]}]"]
    result = project.run("--attnperf", "--attnperf-shard=2/2", "--co", "-q")
    assert "shard 2 of 2: 3 of 4 cases, about 60 s by baselines/case_seconds.json, 3 of all by" in result.stdout.str()
    stored.write_text("{")
    result = project.run("--attnperf", "--attnperf-shard=2/2", "--co")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert CASE_SECONDS in result.stderr.str()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--attnperf", "--attnperf-shard=5/4"), "--attnperf-shard='5/4' is part 5 of 4; the index must be 1 to COUNT"),
        (("--attnperf", "--attnperf-shard=0/4"), "is part 0 of 4"),
        (("--attnperf", "--attnperf-shard=1/99999"), "COUNT at most 10000"),
        (("--attnperf", "--attnperf-shard=a/4"), "'a/4' is no part of a run; give INDEX/COUNT, e.g. 1/4 to 4/4, or"),
        (("--attnperf", "--attnperf-shard=auto"), "--attnperf-shard=auto found no part of a run in the environment"),
        (("--attnperf-shard=1/4",), "--attnperf-shard=1/4 needs --attnperf: "),
        (("--update-baselines", "--attnperf-shard=1/4"), "--update-baselines with --attnperf-shard: only a run that"),
    ],
)
def test_what_is_refused(project: FakeProject, typed: tuple[str, ...], said: str) -> None:
    """Before anything is collected, with what to type."""
    ran = project.run(*typed)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert said in ran.stderr.str()


def read(path: Path) -> RunResult:
    """A results file."""
    return json_results.decode(path.read_bytes(), path.name)


def test_an_empty_shard_is_green_and_leaves_results(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the joining command needs; a strict run whose selection has no case at all is refused, sharded or not."""
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "4")
    monkeypatch.setenv("ATTNPERF_SHARD_COUNT", "5")
    monkeypatch.setenv("ATTNPERF_SHARD_RUN", "job 7")
    result = project.run("--attnperf", "--attnperf-strict", "--attnperf-shard=auto", "--attnperf-results=s.json")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["attnperf: shard 5 of 5 is empty: 4 cases for 5 shards; nothing was to do"])
    run = read(project.path / "s.json")
    assert run.shard_manifest is not None
    assert (run.shard_manifest.run, [len(part) for part in run.shard_manifest.parts]) == ("job 7", [1, 1, 1, 1, 0])
    assert (run.shards[0].index, run.shards[0].count, run.complete, run.mode) == (5, 5, True, "gate")
    assert [text.partition(";")[0] for text in find_shard_faults([("s.json", run)])] == [
        "shards missing: 1, 2, 3 and 1 more of 5"
    ]
    none = project.run("--attnperf", "--attnperf-strict", "--attnperf-shard=5/5", "-k", "plain")
    assert none.ret == pytest.ExitCode.TESTS_FAILED
    none.stdout.fnmatch_lines(["exit status 1: strict: gated 0 of 6 cases collected*"])


@pytest.fixture
def beside_xdist(
    own_process: None, project: FakeProject, forked_workers: str, monkeypatch: pytest.MonkeyPatch
) -> FakeProject:
    """Of other plugins only pytest-xdist."""
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    project.conftest(forked_workers)
    return project


def test_a_shard_with_workers_of_xdist_fits_one_without(beside_xdist: FakeProject) -> None:
    """What the parts are; a shard with workers and one without write the same manifest."""
    words = ("--attnperf", "--no-attnperf-strict", "-k", "fake.a or plain")
    for index, more in ((1, ()), (2, ("-n1",))):
        ran = beside_xdist.run(*words, f"--attnperf-shard={index}/2", f"--attnperf-results={index}.json", *more)
        assert ran.ret == pytest.ExitCode.OK, ran.stdout.str()
    runs = [(name, read(beside_xdist.path / name)) for name in ("1.json", "2.json")]
    assert find_shard_faults(runs) == []
    assert [len(run.cases) for _, run in runs] == [1, 1]
    assert all("--attnperf-shard" not in case.reproduce for _, run in runs for case in run.cases)


def test_a_part_that_gates_nothing_is_for_the_join_to_judge(project: FakeProject) -> None:
    """Other parts may gate what this one cannot; a part that is the whole run fails as a run without shards does."""
    for name in ("fake.a", "fake.b"):
        project.backend(name, supported=["no such dtype"])
    words = ("--attnperf", "--attnperf-strict", "-k", "fake.a")
    assert project.run(*words, "--attnperf-shard=1/2").ret == pytest.ExitCode.OK
    whole = project.run(*words, "--attnperf-shard=1/1")
    assert whole.ret == pytest.ExitCode.TESTS_FAILED
    whole.stdout.fnmatch_lines(["exit status 1: strict: gated 0 of 2"])


def test_a_worker_of_xdist_tells_its_controller_the_parts() -> None:
    """Which collects nothing; a worker that died takes nothing away."""
    told: dict[str, Any] = {}
    worker: Any = SimpleNamespace(workeroutput=told, workerinput={})
    session: Any = SimpleNamespace()
    other = CaseKey("prefill", "fake.b", "w", "label")
    Sharding(worker, 1, 2, (("a",), ("b",)), (other,)).pytest_sessionfinish(session)
    controller = Sharding(session, 1, 2)
    controller.pytest_testnodedown(SimpleNamespace(workeroutput=json.loads(json.dumps(told))))
    controller.pytest_testnodedown(SimpleNamespace())
    assert (controller.parts, controller.elsewhere) == ((("a",), ("b",)), (other,))


def test_cases_of_other_shards_have_not_gone(project: FakeProject) -> None:
    """A strict shard is green although most stored cases are elsewhere; one that no shard has is a finding."""
    project.suite(WORKLOADS[:2])
    project.store_baselines()
    words = ("--attnperf", "--attnperf-strict", "--attnperf-shard=2/4")
    assert project.run(*words).ret == pytest.ExitCode.OK
    assert [len(project.results()[name]) for name in ("cases", "findings")] == [1, 0]
    project.suite(WORKLOADS[:1])
    assert project.run(*words).ret == pytest.ExitCode.TESTS_FAILED
    assert [text.rpartition(": ")[0] for text in project.results()["findings"]] == [
        f"prefill/fake.{backend}/{WORKLOADS[1]} has a baseline but no case" for backend in "ab"
    ]


def test_both_sides_of_a_case_are_on_one_card(project: FakeProject, tmp_path: Path) -> None:
    """With a base side, a shard compares its own cases in pairs, each pair on one card, and no other shard's."""
    base = tmp_path.parent / f"{tmp_path.name}-base"
    project.suite(WORKLOADS[:1])
    shutil.copytree(project.path, base)
    words = ("--attnperf", f"--attnperf-against={base}", "--attnperf-interleave=all", "--attnperf-pairs=2")
    compared: list[str] = []
    for index in (1, 2):
        ran = project.run(*words, f"--attnperf-shard={index}/2", f"--attnperf-results={index}.json")
        assert ran.ret == pytest.ExitCode.OK, ran.stdout.str()
        (case,) = read(project.path / f"{index}.json").cases
        assert len({pair.device_id for pair in case.pairs} | {one.device_id for one in case.first}) == 1
        assert all(pair.base_process and pair.new_process for pair in case.pairs)
        compared.append(case.key.backend)
    assert sorted(compared) == ["fake.a", "fake.b"]

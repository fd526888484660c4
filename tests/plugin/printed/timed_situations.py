"""Situations in which a time was judged, or stored."""

from __future__ import annotations

import os

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from tests.plugin.printed.arranging import IGNORED, commit_all, git, run, set_time, situation

KERNEL = [{"name": "attention", "isa_hash": "a" * 40}]
CHOICE = {"autotuned.forward": "BLOCK_M: 128, num_warps: 8"}
OTHER_CHOICE = {"autotuned.forward": "BLOCK_M: 64, num_warps: 8"}
QUARANTINE = ', quarantine="https://example.com/issues/7", until="{until}"'

IF_MISSING = """
import json, pathlib
path = pathlib.Path(__file__).with_name("fake_device.json")
if not path.exists():
    path.write_text(json.dumps({script!r}))
"""
"""Lines of a conftest for revisions that are checked out without the script of the fake device."""


@situation
def slower_than_local_in_a_dirty_tree(project: FakeProject) -> str:
    """A first local gate: recorded by its first run, then slowed without a commit."""
    set_time(project, 100)
    commit_all(project, "fast")
    run(project, "--attnperf", "--attnperf-record-local")
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-record-local")


@situation
def slower_than_local_without_git(project: FakeProject) -> str:
    """The same in a folder that is no repository."""
    set_time(project, 100)
    run(project, "--attnperf", "--attnperf-record-local")
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-record-local")


@situation
def slower_than_local_where_nothing_is_ignored(project: FakeProject) -> str:
    """The same in a repository without a .gitignore, in which nothing was ever committed."""
    set_time(project, 100)
    git(project, "init", "-q", "-b", "main")
    run(project, "--attnperf", "--attnperf-record-local")
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-record-local")


@situation
def local_recorded_now(project: FakeProject) -> str:
    """The run that records."""
    set_time(project, 100)
    return run(project, "--attnperf", "--attnperf-record-local")


@situation
def slower_by_a_commit(project: FakeProject) -> str:
    """Stored baselines, and a commit that slows the kernel."""
    set_time(project, 100)
    commit_all(project, "fast")
    run(project, "--update-baselines")
    commit_all(project, "baselines")
    set_time(project, 115)
    commit_all(project, "slow")
    return run(project, "--attnperf")


@situation
def slower_without_git(project: FakeProject) -> str:
    """Stored baselines in a folder that is no repository."""
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    return run(project, "--attnperf")


@situation
def slower_in_results_elsewhere(project: FakeProject) -> str:
    """Results and baselines in folders that the command line names."""
    set_time(project, 100)
    commit_all(project, "fast")
    run(project, "--update-baselines", "--attnperf-baselines=perf")
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-baselines=perf", "--attnperf-results=build/run.json")


@situation
def slower_in_a_nightly_case(project: FakeProject) -> str:
    """A case that only nightly runs have."""
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"], ', nightly=["prefill-b2-s64-h1-d16-f16"]')
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-tier=nightly")


@situation
def slower_in_pairs(project: FakeProject) -> str:
    """Pairs with a revision."""
    set_time(project, 100)
    commit_all(project, "fast")
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-against=HEAD")


@situation
def slower_on_workers_of_xdist(project: FakeProject) -> str:
    """The cases ran in two processes of pytest-xdist."""
    project.device(gpus=2)
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    return run(project, "-p", "xdist", "-n2", "--attnperf")


@situation
def stale(project: FakeProject) -> str:
    """The base revision's kernel is not the one of the baseline."""
    set_time(project, 100)
    project.conftest(IF_MISSING.format(script=project.script))
    (project.path / "suites/kernel.json").write_text('{"loops": 1}')
    commit_all(project, "fast")
    git(project, "rm", "-q", "--cached", "fake_device.json")
    (project.path / ".gitignore").write_text(f"{IGNORED}fake_device.json\n")
    commit_all(project, "device ignored")
    run(project, "--update-baselines")
    (project.path / "suites/kernel.json").write_text('{"loops": 2}')
    commit_all(project, "slow")
    git(project, "update-ref", "refs/remotes/origin/main", "HEAD")
    set_time(project, 119)
    (project.path / "README.md").write_text("words\n")
    commit_all(project, "words")
    os.environ["GITHUB_BASE_REF"] = "main"
    return run(project, "--attnperf")


@situation
def moved(project: FakeProject) -> str:
    """The same code, slower."""
    set_time(project, 100, kernels=KERNEL)
    project.store_baselines()
    set_time(project, 110, kernels=KERNEL)
    return run(project, "--attnperf")


@situation
def drifted(project: FakeProject) -> str:
    """An autotuner chose otherwise."""
    set_time(project, 100, kernels=KERNEL, config=CHOICE, pinned=[{"pin": CHOICE, "time_us": 100.0}])
    project.store_baselines()
    set_time(project, 110, kernels=KERNEL, config=OTHER_CHOICE, pinned=[{"pin": CHOICE, "time_us": 100.0}])
    return run(project, "--attnperf")


@situation
def on_a_slower_machine(project: FakeProject) -> str:
    """The canary became slower, too."""
    project.device(canary={"copy": 100.0, "gemm": 100.0})
    set_time(project, 100)
    project.store_baselines()
    project.device(canary={"copy": 110.0, "gemm": 110.0})
    set_time(project, 110)
    return run(project, "--attnperf")


@situation
def undecided(project: FakeProject) -> str:
    """More than is allowed, and within the noise."""
    project.script["process_sd"] = 0.02
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 106)
    return run(project, "--attnperf")


@situation
def undecided_in_pairs(project: FakeProject) -> str:
    """The same of pairs."""
    project.script["process_sd"] = 0.02
    set_time(project, 100)
    commit_all(project, "fast")
    set_time(project, 104)
    return run(project, "--attnperf", "--attnperf-against=HEAD", "--attnperf-pairs=3")


@situation
def undecided_for_unknown_noise(project: FakeProject) -> str:
    """A baseline of one process."""
    set_time(project, 100)
    run(project, "--update-baselines", "--attnperf-processes=1")
    set_time(project, 115)
    return run(project, "--attnperf")


@situation
def out_of_time(project: FakeProject) -> str:
    """A budget that ends before the second look."""
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    return run(project, "--attnperf", "--attnperf-budget=1")


@situation
def quarantined(project: FakeProject) -> str:
    """A slow case that fails nothing until a date."""
    project.suite([WORKLOAD], QUARANTINE.format(until="2999-01-01"))
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    return run(project, "--attnperf")


@situation
def quarantined_too_long(project: FakeProject) -> str:
    """The date has passed."""
    project.suite([WORKLOAD], QUARANTINE.format(until="2020-01-01"))
    set_time(project, 100)
    project.store_baselines()
    return run(project, "--attnperf")


@situation
def crept(project: FakeProject) -> str:
    """Slower step by step, each recorded."""
    project.script["process_sd"] = 0.001
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 106.5)
    run(project, "--update-baselines")
    return run(project, "--attnperf")


@situation
def grew(project: FakeProject) -> str:
    """Another cost of the call."""
    project.suite([WORKLOAD], ', costs={"peak_bytes": 0}')
    set_time(project, 100, costs={"peak_bytes": 1000.0})
    commit_all(project, "lean")
    project.store_baselines()
    set_time(project, 100, costs={"peak_bytes": 3000.0})
    return run(project, "--attnperf")


@situation
def faster(project: FakeProject) -> str:
    """A gain."""
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 80)
    return run(project, "--attnperf")


@situation
def same(project: FakeProject) -> str:
    """Nothing changed."""
    set_time(project, 100)
    project.store_baselines()
    return run(project, "--attnperf")


@situation
def same_with_a_history(project: FakeProject) -> str:
    """Nothing changed, and runs are kept."""
    pytest.importorskip("sqlalchemy")
    set_time(project, 100)
    project.store_baselines()
    return run(project, "--attnperf", "--attnperf-history=.attnperf/history.sqlite")


@situation
def recorded(project: FakeProject) -> str:
    """A recording."""
    set_time(project, 100)
    return run(project, "--update-baselines")


@situation
def unchanged(project: FakeProject) -> str:
    """Not timed, because nothing changed."""
    set_time(project, 100, kernels=KERNEL)
    project.store_baselines()
    return run(project, "--attnperf", "--attnperf-changed")

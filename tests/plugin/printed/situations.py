"""Projects in the state in which a run, or a command, prints what to type next."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from tests.plugin.printed.typed_commands import run_attnperf

IGNORED = ".attnperf/\n__pycache__/\n.pytest_cache/\n"
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

STOPS = """
import pytest

def pytest_runtest_setup(item):
    if "b2" in item.nodeid:
        pytest.exit("stopped", returncode=2)
"""

OBJECTS = Path(__file__).parents[2] / "data" / "code_objects"
CODE_SUITE = """
import pytest

@pytest.mark.attnperf_code
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build)
"""
KERNELS = """
from pathlib import Path
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, ObjectFile

class Prebuilt(Kernel):
    def unsupported_reasons(self, arch):
        return [] if arch == "gfx942" else ["not built for it"]

    def builds(self, arch):
        file = ObjectFile(Path(__file__).parent / "saxpy.gfx942.co", "", compiler="clang 22.1.8")
        return [KernelBuild(self.name, "plain", arch, file, where="conftest.py")] if arch == "gfx942" else []

def pytest_attnperf_register_kernels(kernels):
    kernels.add(Prebuilt("hip.saxpy", ("hip.saxpy",)))
"""

Arrange = Callable[[FakeProject], str]

SITUATIONS: dict[str, Arrange] = {}
"""By name: makes the project, and returns what its last command printed."""


def situation(arrange: Arrange) -> Arrange:
    """Lists a situation by the name of its function."""
    SITUATIONS[arrange.__name__] = arrange
    return arrange


def git(project: FakeProject, *words: str) -> str:
    """Runs git as nobody in particular."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", *who, *words], cwd=project.path, env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def commit_all(project: FakeProject, message: str) -> None:
    """Commits every file, in a repository that is made first where there is none."""
    if not (project.path / ".git").exists():
        git(project, "init", "-q", "-b", "main")
        (project.path / ".gitignore").write_text(IGNORED)
    git(project, "add", "-A")
    git(project, "commit", "-qm", message)


def run(project: FakeProject, *words: str) -> str:
    """What `pytest WORDS suites/` prints."""
    return str(project.run(*words).stdout)


def set_time(project: FakeProject, time_us: float, **script: object) -> None:
    """The only backend takes so long."""
    project.backend("fake.a", time_us=time_us, **script)


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
    project.store_baselines()
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
def wrong(project: FakeProject) -> str:
    """A wrong result in a gating run."""
    set_time(project, 100, fault="wrong")
    return run(project, "--attnperf")


@situation
def wrong_without_timing(project: FakeProject) -> str:
    """A wrong result in a run that only proves, and writes no results."""
    set_time(project, 100, fault="wrong")
    return run(project)


@situation
def without_baseline(project: FakeProject) -> str:
    """Nothing is stored, and there is no git."""
    set_time(project, 100)
    return run(project, "--attnperf")


@situation
def without_baseline_of_a_typed_workload(project: FakeProject) -> str:
    """The workload is on the command line only."""
    set_time(project, 100)
    return run(project, "--attnperf", "--attnperf-workload=b=3,s=64,h=1,d=16")


@situation
def new_in_this_revision(project: FakeProject) -> str:
    """The base side lacks the case."""
    set_time(project, 100)
    commit_all(project, "one")
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"])
    return run(project, "--attnperf", "--attnperf-against=HEAD")


@situation
def of_another_product(project: FakeProject) -> str:
    """A baseline of another GPU model."""
    set_time(project, 100)
    commit_all(project, "one")
    project.store_baselines()
    project.device(product="fake2")
    return run(project, "--attnperf")


@situation
def at_another_power_cap(project: FakeProject) -> str:
    """A baseline of a machine whose times cannot be compared."""
    set_time(project, 100)
    project.store_baselines()
    project.device(power_cap_watts="500")
    return run(project, "--attnperf")


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


@situation
def crashed(project: FakeProject) -> str:
    """The worker died."""
    set_time(project, 100, fault="crash")
    return run(project, "--attnperf")


@situation
def implausible(project: FakeProject) -> str:
    """Less time than the device needs."""
    set_time(project, 0.001, bytes_min=1_000_000_000)
    return run(project, "--attnperf")


@situation
def no_longer_supported(project: FakeProject) -> str:
    """It ran before."""
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 100, supported=["no such dtype"])
    return run(project, "--attnperf")


@situation
def interrupted(project: FakeProject) -> str:
    """The run ends in its second case."""
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"])
    set_time(project, 100)
    project.conftest(STOPS)
    text = run(project, "--attnperf")
    project.conftest()
    return text


@situation
def compiled_worse(project: FakeProject) -> str:
    """A kernel spills that did not."""
    register_kernel(project)
    run(project, "--update-baselines", "--attnperf-arch=gfx942")
    shutil.copy(OBJECTS / "spills.gfx942.co", project.path / "saxpy.gfx942.co")
    return run(project, "--attnperf", "--attnperf-arch=gfx942")


@situation
def compiled_without_baseline(project: FakeProject) -> str:
    """Nothing is stored of a kernel."""
    register_kernel(project)
    return run(project, "--attnperf", "--attnperf-arch=gfx942")


@situation
def reported_without_results(project: FakeProject) -> str:
    """Nothing has run."""
    set_time(project, 100)
    return run_attnperf(project, "report")[1]


@situation
def shown_without_history(project: FakeProject) -> str:
    """A run, and no store of runs."""
    set_time(project, 100)
    run(project, "--attnperf")
    return run_attnperf(project, "history")[1]


@situation
def accepted_too_early(project: FakeProject) -> str:
    """From the three processes of a usual second look."""
    set_time(project, 100)
    project.store_baselines()
    set_time(project, 115)
    run(project, "--attnperf")
    return run_attnperf(project, "baselines", "accept", "fake.a", "--reason", "wanted")[1]


@situation
def accepted_without_entry(project: FakeProject) -> str:
    """Nothing is stored of the case."""
    set_time(project, 100)
    run(project, "--attnperf")
    return run_attnperf(project, "baselines", "accept", "fake.a", "--reason", "wanted")[1]


@situation
def checked_baselines(project: FakeProject) -> str:
    """A case without an entry."""
    set_time(project, 100)
    project.store_baselines()
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"])
    return run_attnperf(project, "baselines", "check")[1]


@situation
def judged_again(project: FakeProject) -> str:
    """Results of a slow and of an unknown case, judged by another machine."""
    set_time(project, 100)
    commit_all(project, "fast")
    project.store_baselines()
    commit_all(project, "baselines")
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"])
    set_time(project, 115)
    run(project, "--attnperf")
    return run_attnperf(project, "gate", "--results", ".attnperf/results.json", "--against", "HEAD")[1]


@situation
def looked_over(project: FakeProject) -> str:
    """What the project has, and what the machine is fit for."""
    set_time(project, 100)
    return "".join(run_attnperf(project, *words)[1] for words in (["list"], ["doctor", "--quick"]))


def register_kernel(project: FakeProject) -> None:
    """A suite over one prebuilt code object of gfx942."""
    (project.path / "suites/test_prefill.py").unlink()
    (project.path / "suites/test_code_objects.py").write_text(CODE_SUITE)
    shutil.copy(OBJECTS / "saxpy.gfx942.co", project.path)
    project.conftest(KERNELS)
    project.write()

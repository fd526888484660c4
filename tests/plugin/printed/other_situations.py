"""Situations in which no time was judged, and those of commands."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from tests.plugin.printed.arranging import commit_all, run, set_time, situation
from tests.plugin.printed.timed_situations import grew
from tests.plugin.printed.typed_commands import run_attnperf

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


def register_kernel(project: FakeProject) -> None:
    """A suite over one prebuilt code object of gfx942."""
    (project.path / "suites/test_prefill.py").unlink()
    (project.path / "suites/test_code_objects.py").write_text(CODE_SUITE)
    shutil.copy(OBJECTS / "saxpy.gfx942.co", project.path)
    project.conftest(KERNELS)
    project.write()


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
def without_some_baselines(project: FakeProject) -> str:
    """One of two cases is stored, in a folder that the command line names; the run profiles, too."""
    set_time(project, 100)
    run(project, "--update-baselines", "--attnperf-baselines=perf")
    project.suite([WORKLOAD, "prefill-b2-s64-h1-d16-f16"])
    return run(project, "--attnperf", "--attnperf-baselines=perf", "--attnperf-profile")


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
def misnamed(project: FakeProject) -> str:
    """A command that is pytest's."""
    set_time(project, 100)
    return run_attnperf(project, "benchmark")[1]


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
def accepted_grown(project: FakeProject) -> str:
    """A cost of the call grew."""
    grew(project)
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

"""`attnperf.gate(...)` and `gpu_timer` in another project: no backends of its own, real torch on the CPU."""

import json

import pytest

from pytest_attnperf.testing.project import FakeProject, full_results

KERNELS = """
import torch

def make_inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(32, 32, generator=generator), torch.randn(32, 32, generator=generator)

def plain(a, b):
    return torch.relu(a @ b)

def fused(a, b):
    return (a @ b).clamp_(min=0)

def off_by_one(a, b):
    out = fused(a, b)
    out[3, 4] += 1
    return out
"""
RIGHT = """
def test_fused(attnperf):
    attnperf.gate("my_kernel", fused, reference=plain, inputs=make_inputs)
    import sys
    assert "kernels" not in sys.modules
"""
WRONG = """
def test_off_by_one(attnperf):
    attnperf.gate("my_kernel", off_by_one, reference=plain, inputs=make_inputs)
"""
TIMED = """
def test_timer(gpu_timer):
    samples = gpu_timer(fused, *make_inputs(0), blocks=4)
    assert samples.timer == "host"
    assert len(samples.block_us) == 4
    assert all(us > 0 for us in samples.block_us)
"""
CALLED_TWICE = """
def test_twice(attnperf):
    attnperf.gate("a", print, reference=print, inputs=print)
    attnperf.{again}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty folder outside this repository, where nothing changes what `pytest` does."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    return pytester


def _run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", *args, timeout=300)


def test_a_callable_is_proven_right_or_wrong(project: pytest.Pytester, own_process: None) -> None:
    """Without the flag the right function passes and the wrong one fails at its wrong element, neither timed."""
    project.makepyfile(test_mine=KERNELS + RIGHT + WRONG)
    result = _run(project)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: mine/gate/test_off_by_one",
            "timed inputs: 'out' is off by 1 at (3, 4), allowed is *",
            'pytest --attnperf-seed=* "test_mine.py::test_off_by_one"',
        ]
    )
    assert not (project.path / ".attnperf" / "results.json").exists()


@pytest.mark.soak
def test_a_callable_is_measured_and_gated_in_one_run(project: pytest.Pytester, own_process: None) -> None:
    """--attnperf --attnperf-record-local: proven, recorded by seven fresh processes, and held against them."""
    project.makepyfile(test_mine=KERNELS + RIGHT)
    # CPU times of a busy machine: whether 100 % is kept says that the gate ran, not how fast the machine is.
    result = _run(project, "--attnperf", "--attnperf-record-local", "--attnperf-override=threshold=100", "-v")
    assert result.ret == 0
    run = full_results(project.path / ".attnperf" / "results.json")
    (case,) = run["cases"]
    assert run["gated"] == 1
    assert case["verdict"] in ("SAME", "FASTER")
    assert case["median_us"] > 0
    assert case["baseline_us"] > 0
    assert any("recorded in this run, in 7 other processes" in note for note in case["notes"])
    (stored,) = (project.path / ".attnperf" / "local").glob("*/*/mine.json")
    (entry,) = json.loads(stored.read_text())["entries"].values()
    assert [process["timer"] for process in entry["processes"]] == ["host"] * 7


def test_the_timer_needs_no_gate(project: pytest.Pytester, own_process: None) -> None:
    """`gpu_timer(fn, *tensors)` gives blocks by the host's clock for CPU tensors, in the user's own process."""
    project.makepyfile(KERNELS + TIMED)
    _run(project).assert_outcomes(passed=1)


def test_what_is_no_function_is_said_in_one_message(attnperf_project: FakeProject) -> None:
    """inputs=, reference= or fn that cannot be called is named with its type, without a traceback."""
    attnperf_project.backend("fake.a")
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text(
        "def test_a(attnperf):\n    attnperf.gate('a', print, reference=print, inputs=(1, 2))\n"
        "def test_b(attnperf):\n    attnperf.gate('b', None, reference='x', inputs=print)\n"
    )
    result = attnperf_project.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "ERROR: prefill/gate/test_a",
            "call: attnperf.gate(): inputs is a tuple, but must be a function: fn(*tensors), *called several times",
            "ERROR: prefill/gate/test_b",
            "call: attnperf.gate(): fn is a NoneType, reference is a str, but must be a function: *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*gate('a', print*")


@pytest.mark.parametrize("again", ["gate('b', print, reference=print, inputs=print)", "run(None, None)"])
def test_a_second_case_in_one_test_is_an_error(attnperf_project: FakeProject, again: str) -> None:
    """A test is one case; a second call would be judged by nobody, and its error is the failure's second line."""
    attnperf_project.backend("fake.a")
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text(CALLED_TWICE.format(again=again))
    result = attnperf_project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "ERROR: prefill/gate/test_twice",
            "call: attnperf.run() or attnperf.gate() was called twice in one test; a test is one case: "
            "parametrise it, or write a second test",
        ]
    )


@pytest.mark.parametrize("name", ["backend", "workload"])
def test_a_parameter_without_the_marker_is_an_error(project: pytest.Pytester, name: str) -> None:
    """A test that asks for `backend` or `workload` is told which marker provides them."""
    project.makepyfile(test_mine=f"def test_bare({name}):\n    pass\n")
    result = _run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"the fixture '{name}' is provided by @pytest.mark.attnperf(family=..., workloads=[[]...]), which *test_bare*"]
    )


def test_a_project_may_use_the_names_for_its_own_things(project: pytest.Pytester) -> None:
    """`backend` and `workload` of its own parameters or fixtures run, whatever they are and however large."""
    project.makepyfile(
        "import pytest\n"
        "@pytest.fixture(params=['large'])\n"
        "def workload(request):\n"
        "    return request.param\n"
        "@pytest.mark.parametrize('backend', ['redis', 'sqlite'])\n"
        "def test_queue(backend, workload):\n"
        "    assert workload == 'large'\n",
        test_objects=(
            "import pytest\n"
            "from pytest_attnperf.testing.fake.backends import FakeBackend\n"
            "from pytest_attnperf.workloads.prefill import Prefill\n"
            "PROBLEM = Prefill.parse('prefill-b4-s4096-h32-d128-f16')\n"
            "@pytest.mark.parametrize(('backend', 'workload'), [(FakeBackend('a', cpu_flops_max=1.0), PROBLEM)])\n"
            "def test_figures(backend, workload):\n"
            "    assert workload.flops > backend.cpu_flops_max\n"
        ),
    )
    _run(project).assert_outcomes(passed=3)
    _run(project, "--attnperf").assert_outcomes(passed=3)


def test_a_conftest_that_concerns_one_folder_only(attnperf_project: FakeProject) -> None:
    """Folders with and without a conftest.py of their own may be named in one command."""
    attnperf_project.backend("fake.a", time_us=100.0)
    other = attnperf_project.path / "other"
    other.mkdir()
    (other / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef three():\n    return 3\n")
    (other / "test_other.py").write_text("def test_three(three):\n    assert three == 3\n")
    attnperf_project.run("other/").assert_outcomes(passed=2)
    result = attnperf_project.run("other/", "--attnperf")
    result.assert_outcomes(passed=1)
    assert attnperf_project.verdicts() == {"fake.a": "NO_BASELINE"}


def test_a_misspelt_method_is_answered_with_the_nearest(attnperf_project: FakeProject) -> None:
    """`attnperf.gat(...)` names gate."""
    attnperf_project.backend("fake.a")
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text("def test_a(attnperf):\n    attnperf.gat('a', print, reference=print, inputs=print)\n")
    result = attnperf_project.run()
    result.assert_outcomes(failed=1)
    assert "attnperf has no 'gat' (did you mean 'gate'?); call run() or gate()" in result.stdout.str()

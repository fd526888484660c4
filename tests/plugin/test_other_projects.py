"""What the conftest of another repository does to every test: fixtures that all use, other plugins, patched torch."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject

WHO = """
import os, pathlib, pytest
HERE = pathlib.Path(__file__).parent

def said(what):
    with (HERE / "said").open("a") as file:
        file.write(f"{what} {'worker' if 'ATTNPERF_WORKER' in os.environ else 'pytest'}\\n")

@pytest.fixture(autouse=True, scope="session")
def of_session():
    said("session")
    yield

@pytest.fixture(autouse=True)
def of_function(request):
    said("function")
    yield
"""
FAILS = """
import pytest
@pytest.fixture(autouse=True)
def seeds():
    raise RuntimeError("no seed today")
"""
PLAIN = "def test_plain(): pass\n"
TORCH = """
import pytest, torch

EMPTY, EMPTY_LIKE = torch.empty, torch.empty_like

def filled(out):
    return out.fill_(float("nan")) if out.is_floating_point() else out

torch.empty = lambda *args, **kwargs: filled(EMPTY(*args, **kwargs))
torch.empty_like = lambda *args, **kwargs: filled(EMPTY_LIKE(*args, **kwargs))

@pytest.fixture(autouse=True, scope="session")
def one_dtype():
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("cpu")
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    yield

@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)
"""
GATED = """
import pytest, torch

def make(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 16, generator=generator, dtype=torch.float32)

def into_empty(x):
    out = torch.empty_like(x)
    torch.softmax(x, -1, out=out)
    return out

def forgets_a_row(x):
    out = torch.empty_like(x)
    out[:-1] = torch.softmax(x, -1)[:-1]
    return out

@pytest.mark.parametrize("fn", [into_empty, forgets_a_row])
def test_softmax(attnperf, fn):
    attnperf.gate("mine", fn, reference=lambda x: torch.softmax(x, -1), inputs=make)
"""


def test_fixtures_of_cases_are_set_up_in_workers_only(attnperf_project: FakeProject) -> None:
    """An autouse fixture of any scope runs where the case runs; for ordinary tests it runs in pytest's own process."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.conftest(WHO)
    assert attnperf_project.run("--attnperf").ret == 0
    assert set(said(attnperf_project)) == {"session worker", "function worker"}
    (attnperf_project.path / "suites/test_plain.py").write_text(PLAIN)
    result = attnperf_project.run("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    assert said(attnperf_project).count("function pytest") == 1


def said(project: FakeProject) -> list[str]:
    """What fixtures wrote since they were last asked."""
    path = project.path / "said"
    lines = path.read_text().splitlines()
    path.unlink()
    return lines


def test_a_fixture_that_fails_is_an_error_of_its_case(attnperf_project: FakeProject) -> None:
    """The case is an ERROR with the fixture's message, and the run is complete."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.conftest(FAILS)
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["ERROR: prefill/fake.a/*", "setup: RuntimeError: no seed today"])
    assert attnperf_project.results()["complete"]


def test_beside_rerunfailures_and_xdist(attnperf_project: FakeProject, other_plugins: None) -> None:
    """Both installed, none of them repeats a case, and a proof on two workers sees what one does."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.backend("fake.b", time_us=100, fault="wrong")
    attnperf_project.conftest(WHO)
    result = attnperf_project.run("-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    assert set(said(attnperf_project)) == {"session worker", "function worker"}


def test_a_patched_torch_is_proven_on(pytester: pytest.Pytester, own_process: None) -> None:
    """New tensors full of NaN, another default dtype, seeds and deterministic algorithms: the right function is right,
    and the one that leaves a row unwritten is not."""
    pytester.makeini("[pytest]\n")
    pytester.makeconftest(TORCH)
    pytester.makepyfile(test_mine=GATED)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", timeout=300)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["INCORRECT: mine/gate/test_softmax?forgets_a_row?"])

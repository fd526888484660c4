"""A family that no backend is registered for, as `describe_no_backend` says it."""

from __future__ import annotations

import re

from pytest_attnperf.testing.project import FakeProject

SUITE = """
import pytest

@pytest.mark.attnperf(family="softmax", workloads=["softmax-r4-c8-f16"])
def test_softmax(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


def test_a_family_without_any_backend_names_where_backends_are_registered(attnperf_project: FakeProject) -> None:
    """The file and line of each function that implements the hook."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0)
    (project.path / "suites").mkdir(exist_ok=True)
    (project.path / "suites" / "test_prefill.py").write_text(SUITE)
    (line,) = {line for line in project.run().outlines if "no backend is registered" in line}
    assert (
        "family 'softmax': register one in the hook pytest_attnperf_register_backends, which is implemented at" in line
    )
    assert re.search(r"implemented at \S+\.py:\d+", line)


PACKAGE = """
from pytest_attnperf.testing.fake.backends import FakeBackend

MODULES = ("native.mine",)

class Listed(FakeBackend):
    pass
"""
REGISTER = """
def pytest_attnperf_register_backends(registry):
    import mine
    registry.add(mine.Listed("fake.b"))
"""


def test_the_list_of_modules_of_a_registered_package_is_named(attnperf_project: FakeProject) -> None:
    """Where a repository lists its modules, a line of that list is what is missing."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0)
    project.conftest(REGISTER)
    (project.path / "mine.py").write_text(PACKAGE)
    (project.path / "suites" / "test_prefill.py").write_text(SUITE)
    (line,) = {line for line in project.run().outlines if "no backend is registered" in line}
    assert re.search(r"'softmax': add its module to MODULES in \S+mine\.py:4, or register one in the hook ", line)

"""A pytest plugin that gives coverage the node id of each test as its context, also in processes that a test starts.

    pip install coverage
    cat > rc <<END
    [run]
    branch = True
    parallel = True
    sigterm = True
    context = ${TEST_NODE-none}
    source = pytest_attnperf, kernels
    END
    COVERAGE_PROCESS_START=$PWD/rc PYTHONPATH=$PWD/benchmarks python -m pytest tests -m "not soak" -n 2 \\
        -p coverage_context -p no:randomly --junitxml=junit.xml -o junit_duration_report=total
    coverage combine --rcfile=rc && python benchmarks/choose_tests.py --junit junit.xml --coverage .coverage
"""

from __future__ import annotations

import os

import coverage
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins: what runs from now on, here and in processes that it starts, is its own."""
    os.environ["TEST_NODE"] = nodeid
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(nodeid)

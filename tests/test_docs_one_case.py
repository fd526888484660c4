"""docs/design.md follows a case as it is really judged."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.one_case import PACKAGE, Watch, entered, of_package
from kernels.native.gemm import BACKENDS
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.gemm import Gemm

PAGE = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
STEP = re.compile(r"^(\d+)\. `([^`]+)` \S", re.MULTILINE)


def steps(heading: str) -> list[str]:
    """Functions that the page names below a heading, up to the next one."""
    return [name for _, name in STEP.findall(PAGE.partition(heading)[2].partition("\n**")[0])]


def in_order(named: Sequence[str], seen: Sequence[str]) -> list[str]:
    """The functions of the page in the order in which they were entered first; one that was not is left out."""
    return sorted(set(named) & set(seen), key=list(seen).index)


def test_the_page_has_25_steps_of_functions_that_there_are() -> None:
    """They are numbered, each is a file of the package, and each begins with what it does."""
    numbers = [int(number) for number, _ in STEP.findall(PAGE)]
    assert numbers == list(range(1, 26))
    assert all((PACKAGE / name.partition(":")[0]).is_file() for _, name in STEP.findall(PAGE))


def test_the_user_s_pytest_goes_through_the_page() -> None:
    """Every function is entered by an ordinary SAME case, and none for the first time before the one above it."""
    named = steps("**In the user's pytest**")
    collected, judged = entered()
    assert in_order(named, [*collected, *judged]) == named


def test_the_worker_goes_through_the_page() -> None:
    """The same of the process that measures."""
    named, watch, before = steps("**In the worker**"), Watch(), sys.getprofile()
    device = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
    backend = BACKENDS[0]
    subject = TorchSubject(backend, Gemm.parse("gemm-m16-n16-k16-f32"), device, Seeds(1, 2, 3))
    watch.begin()
    try:
        subject.prepare()
        assert subject.check().right
        subject.measure_blocks(3, 20.0, 2_000.0)
        subject.finish()
    finally:
        watch.end()
        sys.setprofile(before)
    assert in_order(named, of_package(watch.functions)) == named

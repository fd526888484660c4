"""What a project has, as rows, from backends, families and cases that were collected."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_attnperf.backends import Backend, Prepared, Registry, Tensors
from pytest_attnperf.errors import UnknownNameError
from pytest_attnperf.measure.timers import TIMERS
from pytest_attnperf.plugin.own_pytest import Project, ProjectCase
from pytest_attnperf.records import CaseKey, DeviceInfo
from pytest_attnperf.tools.project_list import (
    Filters,
    SuiteRow,
    TimerRow,
    WorkloadRow,
    list_backends,
    list_families,
    list_suites,
    list_timers,
    list_workloads,
    require_known,
)
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import FAMILIES, Families, parse_workload

CPU = DeviceInfo("cpu", "cpu-x86_64", "", interpreted=True)
H200 = DeviceInfo("cuda", "sm_90", "h200")
SMALL, LARGE, ROPE = "softmax-r2-c8-f32", "softmax-r4096-c4096-f16", "rope-b1-s16-h1-d16-f32"
ALL = Filters("", "")


@dataclass(frozen=True)
class Picky(Backend[Workload]):
    """Refuses each workload whose id holds one of the texts."""

    families: tuple[str, ...] = ("softmax",)
    refused: tuple[str, ...] = ()

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """The texts that the id holds."""
        return [f"no {text} on {device.kind}" for text in self.refused if text in workload.id]

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Nothing is run."""
        raise NotImplementedError


def project(*backends: Backend, device: DeviceInfo | None = CPU, tiers: str = "") -> Project:
    """A project whose test_rows.py has each backend on all workloads of its families, and one gated function."""
    registry = Registry()
    registry.add(*backends)
    pairs = [
        (one, work)
        for one in backends
        for work in map(parse_workload, (SMALL, LARGE, ROPE))
        if work.family in one.families
    ]
    cases = [
        ProjectCase(
            CaseKey("rows", one.name, work.id),
            f"suites/test_rows.py::test_rows[{one.name}-{work.id}]",
            tiers,
            one,
            work,
        )
        for one, work in pairs
    ]
    gated = ProjectCase(CaseKey("own", "gate", "test_own"), "perf/test_own.py::test_own", "", None, None)
    return Project(registry, Families(), (*cases, gated), device, device is not CPU)


def unsupported(backend: Backend, device: DeviceInfo | None = CPU) -> str:
    """Why this backend cannot run."""
    (row,) = list_backends(project(backend, device=device), ALL)
    return row.unsupported


@pytest.mark.parametrize(
    ("backend", "device", "why"),
    [
        (Picky("a", 1e9), CPU, ""),
        (Picky("a"), H200, ""),
        (Picky("a"), CPU, "runs on GPUs only"),
        (Picky("a", 10.0), CPU, "too large for a CPU: more than 10 FLOPs"),
        (Picky("a", 1e9, refused=("f16",)), CPU, ""),
        (Picky("a", 1e9, refused=("f16", "f32", "softmax")), CPU, "no softmax on cpu"),
        (Picky("a", refused=("f16", "f32")), H200, "no f32 on cuda"),
        (Picky("a", 1e9, families=("softmax", "rope"), refused=("rope",)), CPU, "rope: no rope on cpu"),
        (Picky("a", 1e9, families=("softmax", "rope"), refused=("o",)), CPU, "no o on cpu"),
        (Picky("a", families=("gemm",)), CPU, ""),
        (Picky("a", 1e9), None, "not known: neither nvidia-smi nor AMD's driver names this GPU"),
    ],
)
def test_why_a_backend_cannot_run_here(backend: Backend, device: DeviceInfo | None, why: str) -> None:
    """A backend that can run any of its workloads has no reason; else those are told that all workloads share."""
    assert unsupported(backend, device) == why


def test_backends_are_chosen_by_a_part_of_the_name_and_by_family() -> None:
    """In the order of registration."""
    found = project(Picky("b.one"), Picky("a.two"), Picky("a.rope", families=("rope",)))
    names = [[row.name for row in list_backends(found, Filters(*one))] for one in (("", ""), ("a.", ""), ("", "rope"))]
    assert names == [["b.one", "a.two", "a.rope"], ["a.two", "a.rope"], ["a.rope"]]


def test_families_say_whose_they_are() -> None:
    """Shipped ones by name, with the number of chosen backends and the shortest id; others are the project's."""
    found = project(Picky("a.one"), Picky("b.one"), Picky("a.mine", families=("mine",)))
    shipped = FAMILIES.get("softmax")
    found.families.add(type(shipped)("mine", shipped.parse, shipped.parse_line))
    softmax, mine = list_families(found, Filters("a.", ""))
    assert softmax[:5] == ("softmax", "softmax of rows", "shipped", 1, SMALL)
    assert softmax.line.startswith("r=, c=, ")
    assert mine == ("mine", "", "project", 1, "", "")
    assert len(list_families(found, ALL)) == len(list(FAMILIES)) + 1


def test_a_workload_is_listed_once() -> None:
    """With its tiers, suites and the number of its cases; a gated function has none."""
    found = project(Picky("a"), Picky("b"), tiers="nightly")
    assert list_workloads(found, ALL) == [
        WorkloadRow(SMALL, "softmax", ("nightly",), ("rows",), 2),
        WorkloadRow(LARGE, "softmax", ("nightly",), ("rows",), 2),
    ]
    assert [row.cases for row in list_workloads(found, Filters("b", "softmax"))] == [1, 1]
    assert list_workloads(found, Filters("b", "rope")) == []


def test_a_test_is_listed_with_its_cases() -> None:
    """By tier; a gated function is of family 'adhoc', and belongs to no backend."""
    found = project(Picky("a"), Picky("b"), tiers="cpu")
    rows = SuiteRow("suites/test_rows.py", "test_rows", "softmax", 4, {"cpu": 4})
    assert list_suites(found, ALL) == [rows, SuiteRow("perf/test_own.py", "test_own", "adhoc", 1, {"pr": 1})]
    assert list_suites(found, Filters("a", "")) == [rows._replace(cases=2, tiers={"cpu": 2})]


def test_timers_are_those_of_the_table() -> None:
    """All of them, in its order."""
    rows = list_timers()
    assert [row.name for row in rows] == [timer.name for timer in TIMERS]
    assert TimerRow("host_cold", "CPU", "cold", False) in rows
    assert TimerRow("graph_fresh", "GPU", "hot", True) in rows


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (Filters("trtion", ""), "unknown backend 'trtion'; known: triton"),
        (Filters("", "sofmax"), "unknown family 'sofmax'; known: softmax, "),
    ],
)
def test_an_unknown_filter_is_refused(chosen: Filters, message: str) -> None:
    """With the nearest names first."""
    with pytest.raises(UnknownNameError) as raised:
        require_known(project(Picky("triton")), chosen)
    assert str(raised.value).startswith(message)

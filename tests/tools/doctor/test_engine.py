from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.tools.doctor.engine import TEXT_LIMIT, DoctorReport, Examined, clean_answer, run_probes
from pytest_attnperf.tools.doctor.probes import PROBES, DoctorFinding, Probe, Status, Surroundings

GOOD = DoctorFinding("good", Status.OK, "fine")


class BadTextError(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class BadList(list[DoctorFinding]):
    """A list that cannot be read."""

    def __iter__(self) -> Any:
        raise BadTextError


def raising(error: BaseException) -> Callable[[Surroundings], Sequence[DoctorFinding]]:
    """A probe that raises."""

    def run(here: Surroundings) -> Sequence[DoctorFinding]:
        raise error

    return run


@pytest.fixture
def hangs() -> Any:
    """A probe that does not answer until the test has ended."""
    ended = threading.Event()
    yield lambda here: ended.wait(30)
    ended.set()


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_each_probe_fails_alone(probe: Probe, make_here: Any, hangs: Any) -> None:
    """Whichever probe raises, ends the process, hangs or answers nonsense is one UNKNOWN line; the others stand."""
    others = [replace(each, run=lambda here: [GOOD]) for each in PROBES if each.name != probe.name]
    failures = {
        "RuntimeError: no driver": raising(RuntimeError("no driver\nsecond line")),
        "SystemExit: 3": raising(SystemExit(3)),
        "time-out": hangs,
        "NoneType": lambda here: None,
        "an error that cannot be printed": lambda here: BadList([GOOD]),
    }
    for said, run in failures.items():
        broken = replace(probe, run=run, limit_s=0.02 if run is hangs else probe.limit_s)
        report = run_probes([*others, broken], make_here("amd"))
        assert report.counts == {"ok": len(others), "note": 0, "warning": 0, "problem": 0, "unknown": 1}
        (unknown,) = [finding for finding in report.findings if finding.status is Status.UNKNOWN]
        assert unknown.name == probe.name
        assert said in unknown.value
        assert unknown.fix


def test_probes_run_side_by_side_and_limits_count_from_their_start(make_here: Any) -> None:
    """Probes that wait for each other all end, because none waits for its turn."""
    barrier = threading.Barrier(4, timeout=5)

    def meet(here: Surroundings) -> Sequence[DoctorFinding]:
        barrier.wait()
        return [GOOD]

    probes = [Probe(f"p{number}", "T", meet) for number in range(4)]
    assert run_probes(probes, make_here()).counts["ok"] == 4


@pytest.mark.parametrize("has_gpu", [True, False])
def test_what_times_runs_by_itself_on_a_gpu(make_here: Any, has_gpu: bool) -> None:
    """On a GPU one probe ends before the others start, and what times starts after them; the report keeps the order."""
    order: list[str] = []

    def run(name: str, seconds: float) -> Callable[[Surroundings], Sequence[DoctorFinding]]:
        def probe(here: Surroundings) -> Sequence[DoctorFinding]:
            time.sleep(seconds)
            order.append(name)
            return [DoctorFinding(name, Status.OK, "")]

        return probe

    probes = [
        Probe("times", "T", run("times", 0.0), alone=True),
        Probe("slow", "T", run("slow", 0.05)),
        Probe("gpu", "T", run("gpu", 0.0), needs_gpu=True, alone=True),
        Probe("first", "T", run("first", 0.05), needs_gpu=True, first=True),
    ]
    report = run_probes(probes, make_here("amd", has_gpu=has_gpu))
    assert order == (["first", "slow", "times", "gpu"] if has_gpu else ["times", "slow"])
    names = ["times", "slow", "gpu", "first"] if has_gpu else ["times", "slow"]
    assert [each.probe for each in report.examined] == names
    assert report.not_run == (() if has_gpu else ("gpu", "first"))


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        7,
        ["x"],
        [DoctorFinding("", Status.OK, "no name")],
        [DoctorFinding("x", "ok", "status is a text")],  # type: ignore[arg-type]
        [DoctorFinding("x", Status.OK, None)],  # type: ignore[arg-type]
        {"name": GOOD},
    ],
)
def test_nonsense_is_told_from_findings(answer: object) -> None:
    """Whatever is no list of whole findings is refused."""
    with pytest.raises((TypeError, ValueError)):
        clean_answer(answer)


def test_texts_of_findings_are_one_safe_line() -> None:
    """What a terminal would obey is taken out of a finding, line ends too; a text without end is cut between words."""
    (found,) = clean_answer([DoctorFinding("a\x1b[31mb", Status.OK, "x\ny", "m" * 5000, details=("p\tq",))])
    assert found == DoctorFinding("a [31mb", Status.OK, "x y", "m" * (TEXT_LIMIT - 3) + "...", details=("p q",))
    (words,) = clean_answer([DoctorFinding("a", Status.OK, "w" * 300 + " " + "v" * 300)])
    assert words.value == "w" * 300 + "..."


def test_exception_that_cannot_be_printed_is_a_line(make_here: Any) -> None:
    """An exception whose text raises is named by its type."""
    (finding,) = run_probes([Probe("p", "T", raising(BadTextError()))], make_here()).findings
    assert "BadTextError: an error that cannot be printed" in finding.value


@pytest.mark.parametrize(
    ("value", "status", "timer"),
    [
        ("graph; an empty kernel takes 1.2 us", Status.OK, "graph"),
        ("host: the clock of the CPU", Status.NOTE, "host"),
        ("none: no device", Status.PROBLEM, "none"),
        ("could not be checked", Status.UNKNOWN, "not known"),
        ("", Status.OK, "not known"),
    ],
)
def test_timer_is_the_first_word_of_its_finding(value: str, status: Status, timer: str) -> None:
    """The report names the timer that the self-test found, and none where that failed."""
    assert DoctorReport((Examined("p", "T", (DoctorFinding("timer", status, value),), 0.0),), 0.0).timer == timer
    assert DoctorReport((), 0.0).timer == "not known"

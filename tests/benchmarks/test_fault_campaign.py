"""The campaign of faults judges its own runs; a whole one is a soak test."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BROKEN, SOUND = ("fake.a", "w"), ("fake.b", "w")
RIGHT = {"verdict": "ERROR", "summary": "", "fault": {"kind": "crash", "kernel": "_attn_fwd", "how": ""}}
SAME = {"verdict": "SAME", "summary": "", "fault": None}


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    """The part that looks at a run, as a module."""
    spec = importlib.util.spec_from_file_location("fault_verdicts", ROOT / "benchmarks" / "fault_verdicts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fault_verdicts"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Ran:
    """A project whose last run left this."""

    def __init__(self, cases: dict[Any, Any], entries: dict[str, Any], left: list[int]) -> None:
        self.path = Path("project")
        self.cases, self.entries, self.left = (lambda: cases), (lambda: entries), (lambda: left)

    def output(self) -> str:
        """Nothing was printed."""
        return ""


def judged(verdicts: ModuleType, *, status: int | None = 1, left: tuple[int, ...] = (), **changed: Any) -> Any:
    """The tally of one run with one broken case; `changed` are cases and entries that are not as they must be."""
    cases = {BROKEN: changed.get("broken", RIGHT), SOUND: changed.get("sound", SAME)}
    entries = changed.get("entries", {"fake.b/w": 1})
    tally = verdicts.Tally()
    broken = {BROKEN: verdicts.Injected("crash", "crash", ("_attn_fwd",))}
    reference = {BROKEN: "SAME", SOUND: "SAME"}
    verdicts.verify(Ran(cases, entries, list(left)), broken, reference, {"fake.b/w": 1}, (status, 2.0), tally)
    return tally


def test_a_run_in_which_everything_else_stands(verdicts: ModuleType) -> None:
    """The fault is found and its kernel named, the neighbour has its verdict, and nothing is wrong."""
    tally = judged(verdicts)
    assert tally.wrong == []
    assert tally.text().splitlines()[-1] == (
        "faults: 1 injected, 1 found, neighbours: 1 of 1 verdicts, baselines harmed: 0, runs that did not end: 0"
    )


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"status": 0}, "exit status 0"),
        ({"status": None}, "exit status None"),
        ({"broken": SAME}, "crash became SAME"),
        ({"broken": {**RIGHT, "fault": {"kind": "hang", "kernel": "_attn_fwd"}}}, "not an ERROR of kind 'crash'"),
        ({"broken": {**RIGHT, "fault": {"kind": "crash", "kernel": "aten.ones"}}}, "named 'aten.ones'"),
        ({"sound": RIGHT}, "ERROR in place of SAME"),
        ({"entries": {}}, "changed or lost"),
        ({"entries": {"fake.b/w": 2}}, "changed or lost"),
        ({"left": (7,)}, "process 7 is left"),
    ],
)
def test_what_does_not_stand_is_wrong(verdicts: ModuleType, changed: dict[str, Any], wrong: str) -> None:
    """Another status, kind, kernel or verdict, a lost or changed baseline, and a process left behind."""
    found = judged(verdicts, **changed).wrong
    assert len(found) == 1
    assert wrong in found[0]


@pytest.mark.soak
def test_a_campaign_through_the_fake_device() -> None:
    """160 faults at random places in runs that gate, record, and take turns with a base side harm nothing else."""
    command = [sys.executable, str(ROOT / "benchmarks" / "fault_campaign.py"), "--fake", "160"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert "baselines harmed: 0, runs that did not end: 0" in ran.stdout

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor import processor
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status


def lines(here: Any, load: float, available_gib: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, DoctorFinding]:
    """Findings by name of a machine with 8 cores, 4 of which this process may use."""
    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(processor.os, "cpu_count", lambda: 8)
    proc = here.system.root / "proc"
    proc.mkdir(exist_ok=True)
    (proc / "loadavg").write_text(f"{load} 0.1 0.1 1/95 99\n")
    (proc / "cpuinfo").write_text("model name\t: AMD EPYC 9B14\n")
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {int(available_gib * 2**20)} kB\n")
    return {finding.name: finding for finding in processor.probe(here)}


def test_load_and_memory_are_judged(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle machine with memory is OK; a load above half a core each, or little memory, warns."""
    found = lines(make_here(), 1.0, 64.0, monkeypatch)
    assert {name: finding.status for name, finding in found.items()} == {"cpu": Status.OK, "memory": Status.OK}
    assert found["cpu"].value == "AMD EPYC 9B14, 4 of 8 cores, load 1.0"
    found = lines(make_here(), 4.5, 1.0, monkeypatch)
    assert {name: finding.status for name, finding in found.items()} == {
        "cpu": Status.WARNING,
        "memory": Status.WARNING,
    }


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_limit_of_a_container_is_read(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    """Of either version of control groups; no limit, and nothing that can be read, are none."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor.read_cpu_quota(System(tmp_path)) == quota


@pytest.mark.parametrize(("quota", "status"), [("200000 100000", Status.WARNING), ("400000 100000", Status.OK)])
def test_limit_below_the_cores_warns(
    make_here: Any, monkeypatch: pytest.MonkeyPatch, quota: str, status: Status
) -> None:
    """A container that is stopped in every period has gaps in its samples, which its cores do not show."""
    here = make_here()
    (here.system.root / "sys/fs/cgroup").mkdir(parents=True)
    (here.system.root / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert lines(here, 0.0, 64.0, monkeypatch)["cpu limit"].status is status

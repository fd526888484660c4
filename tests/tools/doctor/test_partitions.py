from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.partitions import probe
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status
from tests.tools.doctor.gpu_machines import Smi, address, h200, mi300x, no_command, surroundings

CPX = {"current_compute_partition": "CPX", "current_memory_partition": "NPS4"}


def found(system: System, vendor: str, **environ: str) -> dict[str, DoctorFinding]:
    """Findings by name."""
    return {finding.name: finding for finding in probe(surroundings(system, vendor, system.root, **environ))}


def test_whole_cards(tmp_path: Path) -> None:
    """MI300X cards in SPX and NPS1 have nothing to do."""
    lines = found(mi300x(tmp_path, {}, {}), "amd")
    assert [(line.name, line.status, line.value) for line in lines.values()] == [
        ("compute partition", Status.OK, "SPX on all 2 GPUs"),
        ("memory partition", Status.OK, "NPS1 on all 2 GPUs"),
    ]


def test_a_card_that_cannot_be_divided(tmp_path: Path) -> None:
    """A card without these files is whole."""
    none = {"current_compute_partition": "", "current_memory_partition": ""}
    assert {line.status for line in found(mi300x(tmp_path, none), "amd").values()} == {Status.OK}


def test_divided_cards(tmp_path: Path) -> None:
    """CPX and NPS4 are notes: what cannot be compared, and the command that undoes it and whom it disturbs."""
    lines = found(mi300x(tmp_path, CPX), "amd")
    compute = lines["compute partition"]
    assert (compute.status, compute.value) == (Status.NOTE, "CPX")
    assert "baselines recorded with another partition (SPX, say) are INCOMPARABLE" in compute.meaning
    assert f"sudo amd-smi set --gpu {address(0)} --compute-partition SPX" in compute.fix
    assert "rocm-smi --setcomputepartition SPX (needs root and an idle GPU" in compute.fix
    assert "--memory-partition NPS1" in lines["memory partition"].fix


def test_cards_divided_differently(tmp_path: Path) -> None:
    """GPUs that are not alike are a warning, unless only alike ones are visible."""
    system = mi300x(tmp_path, {}, CPX)
    line = found(system, "amd")["compute partition"]
    assert (line.status, line.value) == (Status.WARNING, "SPX on GPU 0; CPX on GPU 1")
    assert "HIP_VISIBLE_DEVICES=1" in line.fix
    assert found(system, "amd", HIP_VISIBLE_DEVICES="0")["compute partition"].status is Status.OK


@pytest.mark.parametrize(
    ("changed", "name", "status", "fix"),
    [
        ({}, "compute mode", Status.OK, ""),
        ({"compute_mode": "Exclusive_Process"}, "compute mode", Status.WARNING, "sudo nvidia-smi -i 0 -c DEFAULT"),
        ({"compute_mode": "Prohibited"}, "compute mode", Status.PROBLEM, "sudo nvidia-smi -i 0 -c DEFAULT"),
        ({"compute_mode": "[N/A]"}, "compute mode", Status.UNKNOWN, ""),
        ({"persistence_mode": "Disabled"}, "persistence mode", Status.NOTE, "sudo nvidia-smi -i 0 -pm 1"),
        ({"mig.mode.current": "Enabled"}, "MIG", Status.NOTE, "sudo nvidia-smi -i 0 -mig 0"),
        ({"mig.mode.current": "Disabled"}, "MIG", Status.OK, ""),
    ],
)
def test_modes_of_nvidia(tmp_path: Path, changed: dict[str, str], name: str, status: Status, fix: str) -> None:
    """A mode that forbids a second process, unloads the driver or divides the card is said, with its command."""
    line = found(h200(tmp_path, Smi(**changed)), "nvidia")[name]
    assert line.status is status
    assert fix in line.fix


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_nothing_can_be_asked(tmp_path: Path, vendor: str) -> None:
    """Without sysfs and without nvidia-smi each fact is its own line, UNKNOWN, that says why."""
    system = mi300x(tmp_path, {"current_compute_partition": ""}) if vendor == "amd" else h200(tmp_path)
    if vendor == "amd":
        (tmp_path / f"sys/bus/pci/devices/{address(0)}").rename(tmp_path / "gone")
    lines = found(System(tmp_path, no_command), vendor)
    assert len(lines) == (2 if vendor == "amd" else 3)
    assert {line.status for line in lines.values()} == {Status.UNKNOWN}
    assert all("does not exist" in line.value or "nvidia-smi not found" in line.value for line in lines.values())
    assert system.root == tmp_path

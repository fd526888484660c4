from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.power import probe
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status
from tests.tools.doctor.gpu_machines import Smi, address, h200, mi300x, no_command, surroundings

CAP = "hwmon/hwmon0/power1_cap"
LEVEL = "power_dpm_force_performance_level"


def found(system: System, vendor: str) -> dict[str, DoctorFinding]:
    """Findings by name."""
    return {finding.name: finding for finding in probe(surroundings(system, vendor, system.root))}


def test_an_mi300x_as_it_is_sold(tmp_path: Path) -> None:
    """The default cap, level auto and a cool card have nothing to do."""
    lines = found(mi300x(tmp_path, {}, {}), "amd")
    assert [(line.name, line.status, line.value) for line in lines.values()] == [
        ("power cap", Status.OK, "750 W, the default on all 2 GPUs"),
        ("performance level", Status.OK, "auto on all 2 GPUs"),
        ("temperature", Status.OK, "44 °C on all 2 GPUs"),
    ]


def test_a_lowered_cap(tmp_path: Path) -> None:
    """A cap below the default is a warning with the command for this card; without a default, the maximum counts."""
    line = found(mi300x(tmp_path, {}, {CAP: "550000000"}), "amd")["power cap"]
    assert line.status is Status.WARNING
    assert line.value == "750 W, the default on GPU 0; 550 W, by default 750 W on GPU 1"
    assert line.fix == f"sudo amd-smi reset --gpu {address(1)} --power-cap (to its maximum; the default is 750 W)"
    older = mi300x(tmp_path / "older", {CAP: "550000000", f"{CAP}_default": ""})
    assert found(older, "amd")["power cap"].value == "550 W, by default 750 W"


def test_caps_that_differ_upwards(tmp_path: Path) -> None:
    """GPUs above their default are a warning only where they are not alike."""
    above = {f"{CAP}_default": "700000000"}
    assert found(mi300x(tmp_path / "one", above, above), "amd")["power cap"].status is Status.OK
    other = {CAP: "800000000", f"{CAP}_default": "700000000"}
    assert found(mi300x(tmp_path / "two", above, other), "amd")["power cap"].status is Status.WARNING


@pytest.mark.parametrize(
    ("level", "status", "meaning"),
    [
        ("high", Status.NOTE, "clocks are fixed"),
        ("perf_determinism", Status.NOTE, "clocks are fixed"),
        ("profile_min_sclk", Status.WARNING, "fixed at its lowest"),
        ("novel", Status.NOTE, "does not know this level"),
    ],
)
def test_levels_other_than_auto(tmp_path: Path, level: str, status: Status, meaning: str) -> None:
    """A level that holds clocks is said with what it does to the numbers; what is known has a command."""
    line = found(mi300x(tmp_path, {LEVEL: level}), "amd")["performance level"]
    assert line.status is status
    assert meaning in line.meaning
    assert (line.fix == f"sudo amd-smi set --gpu {address(0)} --perf-level AUTO") is (level != "novel")


def test_a_hot_card(tmp_path: Path) -> None:
    """A card that is hot before any work is a warning."""
    line = found(mi300x(tmp_path, {"hwmon/hwmon0/temp2_input": "91000"}), "amd")["temperature"]
    assert (line.status, line.value) == (Status.WARNING, "91 °C")


@pytest.mark.parametrize(
    ("changed", "name", "status", "text"),
    [
        ({}, "power cap", Status.OK, "700 W, the default"),
        ({}, "clocks", Status.OK, "nothing holds them down (idle)"),
        ({"power.limit": "400.00"}, "power cap", Status.WARNING, "sudo nvidia-smi -i 0 -pl 700"),
        ({"power.limit": "[N/A]"}, "power cap", Status.UNKNOWN, "asked for power limits"),
        ({"clocks_event_reasons.active": "0x40"}, "clocks", Status.WARNING, "hardware thermal slowdown"),
        ({"clocks_event_reasons.active": "0x2"}, "clocks", Status.NOTE, "sudo nvidia-smi -i 0 -rgc"),
        ({"clocks_event_reasons.active": "0x4"}, "clocks", Status.WARNING, "software power cap"),
        ({"clocks_event_reasons.active": "[N/A]"}, "clocks", Status.UNKNOWN, "does not say why"),
        ({"temperature.gpu": "88"}, "temperature", Status.WARNING, "88 °C"),
        ({"temperature.gpu": "[N/A]"}, "temperature", Status.UNKNOWN, "gives no temperature"),
    ],
)
def test_nvidia(tmp_path: Path, changed: dict[str, str], name: str, status: Status, text: str) -> None:
    """A low cap, a reason that holds the clock down and heat are said, each with what mends it."""
    line = found(h200(tmp_path, Smi(**changed)), "nvidia")[name]
    assert line.status is status
    assert text in f"{line.value} {line.fix}"


def test_one_missing_file_costs_one_line(tmp_path: Path) -> None:
    """A card without a cap and without a level still gives its temperature."""
    lines = found(mi300x(tmp_path, {CAP: "", LEVEL: ""}), "amd")
    assert [line.status for line in lines.values()] == [Status.UNKNOWN, Status.UNKNOWN, Status.OK]
    assert "power1_cap" in lines["power cap"].value


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_nothing_can_be_asked(tmp_path: Path, vendor: str) -> None:
    """Where the driver shows no card, or nvidia-smi is missing, every line is UNKNOWN and says why."""
    if vendor == "nvidia":
        h200(tmp_path)
    else:
        mi300x(tmp_path)
        (tmp_path / f"sys/bus/pci/devices/{address(0)}").rename(tmp_path / "gone")
    lines = found(System(tmp_path, no_command), vendor)
    assert len(lines) == 3
    assert {line.status for line in lines.values()} == {Status.UNKNOWN}

"""Machines made of files and scripted answers: AMD's sysfs, NVIDIA's device nodes and nvidia-smi.

Names of files and the form of their values are those of the Linux kernel's amdgpu and amdkfd documentation, figures
those of an MI300X (304 compute units, 750 W). They were written by hand: no AMD GPU was at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.tools.doctor.probes import Surroundings

NODES = "sys/class/kfd/kfd/topology/nodes"
MI300X_BUSES = (0xC1, 0xC5, 0xC9, 0xCD)

SETTINGS = {
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "power_dpm_force_performance_level": "auto",
    "hwmon/hwmon0/power1_cap": "750000000",
    "hwmon/hwmon0/power1_cap_default": "750000000",
    "hwmon/hwmon0/power1_cap_max": "750000000",
    "hwmon/hwmon0/power1_average": "140000000",
    "hwmon/hwmon0/temp2_input": "44000",
    "vendor": "0x1002",
    "class": "0x120000",
}


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Files below a root, each with a line end."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def address(card: int) -> str:
    """PCI address of a card."""
    return f"0000:{MI300X_BUSES[card]:02x}:00.0"


def mi300x(root: Path, *cards: Mapping[str, str], nodes: bool = True) -> System:
    """A machine with one MI300X for each mapping, which changes some of SETTINGS ('' takes a file away)."""
    write(root, {f"{NODES}/0/gpu_id": "0", f"{NODES}/0/properties": "cpu_cores_count 96"})
    for index, changes in enumerate(cards or ({},)):
        node = {
            "gpu_id": str(50_000 + index),
            "properties": f"location_id {MI300X_BUSES[index] << 8}\ndomain 0\ndrm_render_minor {128 + index}\n"
            f"gfx_target_version 90402\nunique_id {index + 1}",
        }
        write(root, {f"{NODES}/{index + 1}/{name}": text for name, text in node.items()})
        settings = {name: text for name, text in {**SETTINGS, **changes}.items() if text}
        write(root, {f"sys/bus/pci/devices/{address(index)}/{name}": text for name, text in settings.items()})
        if nodes:
            write(root, {f"dev/dri/renderD{128 + index}": ""})
    if nodes:
        write(root, {"dev/kfd": ""})
    return System(root, no_command)


def h200(root: Path, smi: Smi | None = None, *, cards: int = 1) -> System:
    """A machine with NVIDIA's device nodes and this nvidia-smi."""
    names = [*(f"nvidia{index}" for index in range(cards)), "nvidiactl", "nvidia-uvm"]
    write(root, {f"dev/{name}": "" for name in names})
    return System(root, smi or Smi())


def no_command(command: Sequence[str]) -> str:
    """A machine without the tool."""
    raise ProbeError(f"{command[0]} not found")


class Smi:
    """nvidia-smi of GPUs that are alike, in the form of driver 580 on an H200; fields are changed by keyword.

    processes   lines of compute processes, by GPU
    """

    def __init__(self, processes: Mapping[str, str] | None = None, **changed: str) -> None:
        self._processes = processes or {}
        self._fields = {
            "uuid": "GPU-cb3296dd",
            "clocks.sm": "345",
            "clocks.mem": "3201",
            "temperature.gpu": "31",
            "power.draw": "77.93",
            "power.limit": "700.00",
            "power.default_limit": "700.00",
            "compute_mode": "Default",
            "persistence_mode": "Enabled",
            "mig.mode.current": "Disabled",
            "clocks_event_reasons.active": "0x0000000000000001",
        } | {name.replace("__", "."): value for name, value in changed.items()}

    def __call__(self, command: Sequence[str]) -> str:
        """One line of the fields that were asked for; counters of throttling are 0."""
        token = command[-1].removeprefix("--id=")
        asked = command[1].partition("=")
        if asked[0] == "--query-compute-apps":
            return self._processes.get(token, "")
        return ", ".join(self._fields.get(field, "0") for field in asked[2].split(",")) + "\n"


def surroundings(system: System, vendor: str, root: Path, **environ: str) -> Surroundings:
    """What a probe is given on such a machine."""
    return Surroundings(system, environ, root, "python3", lambda: 0.0, has_gpu=bool(vendor), vendor=vendor)

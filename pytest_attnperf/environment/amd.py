"""What the amdgpu driver says of one AMD GPU in sysfs: compute and memory partition, and power cap.

File names from the Linux kernel's amdgpu documentation (driver-misc, and thermal: hwmon power1_cap in microwatts).
"""

from __future__ import annotations

from pytest_attnperf.environment.system import ProbeError, System, stated

MICROWATTS_PER_WATT = 1e6


def must_match(device_id: str, system: System) -> dict[str, str]:
    """power_cap_w, compute_partition and memory_partition of the GPU at this PCI address ('0000:c1:00.0').

    Partitions are what the driver calls them (SPX, CPX; NPS1, NPS4), 'none' on a card that has no such file.
    """
    return {
        "power_cap_w": stated(lambda: _power_cap_w(device_id, system)),
        "compute_partition": stated(lambda: _partition("current_compute_partition", device_id, system)),
        "memory_partition": stated(lambda: _partition("current_memory_partition", device_id, system)),
    }


def _folder(device_id: str, system: System) -> str:
    folder = f"sys/bus/pci/devices/{device_id}"
    if not device_id:
        raise ProbeError("torch gives no PCI address")
    if not (system.root / folder).is_dir():
        raise ProbeError(f"/{folder} does not exist")
    return folder


def _partition(name: str, device_id: str, system: System) -> str:
    path = f"{_folder(device_id, system)}/{name}"
    return system.read(path) if (system.root / path).exists() else "none"


def _power_cap_w(device_id: str, system: System) -> str:
    folder = _folder(device_id, system)
    caps = sorted((system.root / folder).glob("hwmon/hwmon*/power1_cap"))
    if not caps:
        raise ProbeError(f"/{folder} has no hwmon/*/power1_cap")
    text = system.read(str(caps[0].relative_to(system.root)))
    if not text.isdigit():
        raise ProbeError(f"power1_cap holds {text[:40]!r}")
    return f"{int(text) / MICROWATTS_PER_WATT:.0f}"

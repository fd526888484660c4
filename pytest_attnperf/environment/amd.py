"""Reads one AMD GPU from sysfs: its partitions, its power cap and its current state.

File names come from the Linux kernel's amdgpu documentation (driver-misc and thermal). hwmon gives power in microwatts,
temperatures in millidegrees Celsius and clocks in hertz. Tested only on made-up files: no AMD GPU was available.
"""

from __future__ import annotations

import re
import struct

from pytest_attnperf.environment.system import DeviceReading, ProbeError, System, ThrottleReading, probe_or_unknown

MICROWATTS_PER_WATT = 1e6

NO_THROTTLE_STATUS = (
    "amdgpu has no counter of throttling in hwmon, and MI300 and MI350 cards show no status of it; processes read "
    "gpu_metrics where its revision is known"
)

SENSORS: dict[str, tuple[tuple[str, ...], float]] = {
    "power_w": (("power1_average", "power1_input"), MICROWATTS_PER_WATT),
    "power_limit_w": (("power1_cap",), MICROWATTS_PER_WATT),
    "temperature_c": (("temp1_input", "temp2_input"), 1e3),
    "shader_clock_mhz": (("freq1_input",), 1e6),
    "memory_clock_mhz": (("freq2_input",), 1e6),
}
"""For each value of a reading: its hwmon files, of which the first that exists is used, and the divisor to our unit.

temp1 is the edge sensor and temp2 the junction; MI300 has no edge sensor.
"""

METRICS_HEADER = struct.Struct("<HBB")
"""Begin of gpu_metrics: size, format revision, content revision (kgd_pp_interface.h of Linux)."""

RESIDENCIES = {(1, 6): (104, ("PROCHOT", "power cap", "socket temperature", "VR temperature", "HBM temperature"))}
"""By revision: where in `gpu_metrics` the counter of accumulations stands, and what the counters behind it count, each
of 32 bits. Other revisions have them elsewhere or not at all; 1.6 is of MI300."""

_LEVELS = {"shader_clock_mhz": "pp_dpm_sclk", "memory_clock_mhz": "pp_dpm_mclk"}
"""Files for a clock that hwmon lacks; the line with a star is the current level."""

_CURRENT_LEVEL = re.compile(r"^\s*\S+:\s*(\d+)\s*Mhz\s*\*", re.IGNORECASE | re.MULTILINE)


def must_match(device_id: str, system: System) -> dict[str, str]:
    """Returns power_cap_w, compute_partition and memory_partition of the GPU at this PCI address ('0000:c1:00.0').

    Partitions have the driver's names (SPX, CPX; NPS1, NPS4), or 'none' if the card has no such file. A value that
    cannot be read is 'unknown (why)'.
    """
    return {
        "power_cap_w": probe_or_unknown(lambda: _power_cap_w(device_id, system)),
        "compute_partition": probe_or_unknown(lambda: _read_partition("current_compute_partition", device_id, system)),
        "memory_partition": probe_or_unknown(lambda: _read_partition("current_memory_partition", device_id, system)),
    }


def _find_folder(device_id: str, system: System) -> str:
    folder = f"sys/bus/pci/devices/{device_id}"
    if not device_id:
        raise ProbeError("torch gives no PCI address")
    if not (system.root / folder).is_dir():
        raise ProbeError(f"/{folder} does not exist")
    return folder


def _read_partition(name: str, device_id: str, system: System) -> str:
    path = f"{_find_folder(device_id, system)}/{name}"
    return system.read(path) if (system.root / path).exists() else "none"


def _power_cap_w(device_id: str, system: System) -> str:
    folder = _find_folder(device_id, system)
    caps = sorted((system.root / folder).glob("hwmon/hwmon*/power1_cap"))
    if not caps:
        raise ProbeError(f"/{folder} has no hwmon/*/power1_cap")
    text = system.read(str(caps[0].relative_to(system.root)))
    if not text.isdigit():
        raise ProbeError(f"power1_cap holds {text[:40]!r}")
    return f"{int(text) / MICROWATTS_PER_WATT:.0f}"


def read_state(pci_address: str, system: System) -> DeviceReading:
    """Reads power, temperature and clocks of the GPU at this PCI address; a note lists the values that sysfs lacks.
    Raises ProbeError if sysfs has no folder for the address."""
    folder = _find_folder(pci_address, system)
    values = {"device_id": pci_address}
    unknown = []
    for name, (files, per_unit) in SENSORS.items():
        value = _read_sensor(folder, files, per_unit, system) or _read_current_level(folder, name, system)
        if value:
            values[name] = value
        else:
            unknown.append(name)
    notes = [f"/{folder} gives no {', '.join(unknown)}"] if unknown else []
    return DeviceReading(values, notes=(*notes, NO_THROTTLE_STATUS))


def read_throttling(pci_address: str, system: System) -> ThrottleReading:
    """Reads in how many of the firmware's accumulations each reason throttled the GPU at this PCI address.
    Raises ProbeError where the driver's table of metrics is missing or of a revision without these counters."""
    path = system.root / _find_folder(pci_address, system) / "gpu_metrics"
    try:
        table = path.read_bytes()
    except OSError as error:
        raise ProbeError(f"/{path.relative_to(system.root)}: {error.strerror}") from error
    revision = METRICS_HEADER.unpack_from(table)[1:] if len(table) >= METRICS_HEADER.size else ()
    at, reasons = RESIDENCIES.get(revision, (0, ()))
    numbers = struct.Struct(f"<{len(reasons) + 1}I")
    if not reasons or len(table) < at + numbers.size:
        known = ", ".join(".".join(map(str, each)) for each in RESIDENCIES)
        said = ".".join(map(str, revision)) or "none"
        raise ProbeError(f"gpu_metrics of revision {said} has no counters of throttling that are known here ({known})")
    total, *counts = numbers.unpack_from(table, at)
    return ThrottleReading(dict(zip(reasons, map(float, counts), strict=True)), float(total))


def _read_sensor(folder: str, files: tuple[str, ...], per_unit: float, system: System) -> str:
    """Returns the number in the first of these hwmon files that holds one, divided by `per_unit`; '' if none does."""
    for name in files:
        for path in sorted((system.root / folder).glob(f"hwmon/hwmon*/{name}")):
            try:
                text = system.read(str(path.relative_to(system.root)))
            except ProbeError:
                continue  # a sensor of a sleeping card answers with an error
            if text.isdigit():
                return f"{int(text) / per_unit:.0f}"
    return ""


def _read_current_level(folder: str, name: str, system: System) -> str:
    """Reads a current clock in MHz from the driver's list of levels: '1: 2100Mhz *' gives '2100'; '' if unknown.
    `name` is a key of SENSORS; '' also for those that are no clock."""
    if name not in _LEVELS:
        return ""
    try:
        found = _CURRENT_LEVEL.search(system.read(f"{folder}/{_LEVELS[name]}"))
    except ProbeError:
        return ""
    return found[1] if found else ""

"""Makes the fingerprint of a measurement: fields that must match for a comparison, and fields that may differ."""

from __future__ import annotations

from pytest_attnperf.environment import amd, nvidia, software
from pytest_attnperf.environment.device import cpu_must_match
from pytest_attnperf.environment.system import System
from pytest_attnperf.records import DeviceInfo, Fingerprint


def take_fingerprint(device: DeviceInfo, system: System | None = None) -> Fingerprint:
    """Returns the fingerprint of this machine and process. Called once per worker; runs one command at most.

    A value that cannot be read is 'unknown (why)' and matches only the same text. Timer, its method and cache state
    belong to a case; they are added to `must_match` with its samples.
    """
    system = system or System()
    return Fingerprint(
        {**_make_identity(device), **_read_state(device, system)}, software.named_fields(device.kind, system)
    )


def _make_identity(device: DeviceInfo) -> dict[str, str]:
    return {
        "arch": device.arch,
        "product": device.product,
        "compute_units": str(device.compute_units),
    }


def _read_state(device: DeviceInfo, system: System) -> dict[str, str]:
    """Returns fields that must match: power cap and partitions of a GPU; on a CPU the number of threads of torch, which
    is in `compute_units`."""
    if device.kind == "cuda":
        return nvidia.must_match(device.device_id, system)
    if device.kind == "rocm":
        return amd.must_match(device.device_id, system)
    return cpu_must_match(device.compute_units)

"""Computes how many bytes of other inputs a device must read to evict the first inputs from its last-level cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.environment.device_specs import BYTES_PER_MIB, spec_for
from pytest_attnperf.environment.system import System
from pytest_attnperf.records import DeviceInfo

TIMES_THE_CACHE = 2
"""A round over at least two copies reads twice the cache. So one cache full or more is read between two calls on one
copy, even if the cache does not evict the least recently used lines.
"""

UNKNOWN_CACHE_BYTES = 256 * BYTES_PER_MIB
"""Assumed if the size is unknown: the largest size listed (MI300's memory-side cache)."""

_SIZE = re.compile(r"([0-9]+)([KM]?)")
_UNIT_BYTES = {"": 1, "K": 2**10, "M": 2**20}


@dataclass(frozen=True)
class ColdSize:
    """Bytes that all copies together must hold at least. `note` says if the cache's size is an assumption."""

    round_bytes: int
    note: str = ""


def cold_size(device: DeviceInfo, system: System | None = None) -> ColdSize:
    """Returns twice the last-level cache of a device, in bytes; a note says if its size had to be assumed.

    The size comes from Linux on a CPU, from `device_specs.json` for a GPU, and for an unlisted NVIDIA GPU from torch.
    On AMD torch's value is not used, because it is the L2 of one of eight dies.
    """
    cache_bytes = _cache_bytes(device, system or System())
    if cache_bytes:
        return ColdSize(TIMES_THE_CACHE * cache_bytes)
    return ColdSize(
        TIMES_THE_CACHE * UNKNOWN_CACHE_BYTES,
        f"the size of the last-level cache of {device.arch} {device.product} is not known; "
        f"{UNKNOWN_CACHE_BYTES // BYTES_PER_MIB} MiB are assumed",
    )


def _cache_bytes(device: DeviceInfo, system: System) -> int:
    """Returns the size of the device's last-level cache in bytes; 0 if unknown."""
    if device.kind == "cpu":
        return _cpu_cache_bytes(system.root)
    spec = spec_for(device)
    if spec is not None:
        return int(spec.last_level_cache_bytes)
    return _l2_cache_bytes() if device.kind == "cuda" else 0


def _l2_cache_bytes() -> int:
    import torch

    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return int(getattr(properties, "L2_cache_size", 0))


def _cpu_cache_bytes(root: Path) -> int:
    """Returns the total bytes of all caches of the highest level that Linux lists; 0 if it lists none.

    All count, because a process may run on every core. Format: Documentation/ABI/testing/sysfs-devices-system-cpu.
    """
    found: dict[int, dict[str, int]] = {}
    for cache in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, shared, size = (
                (cache / name).read_text(encoding="utf-8").strip() for name in ("level", "shared_cpu_list", "size")
            )
        except OSError:
            continue
        match = _SIZE.fullmatch(size)
        if match and level.isdigit():
            found.setdefault(int(level), {})[shared] = int(match[1]) * _UNIT_BYTES[match[2]]
    return sum(found[max(found)].values()) if found else 0

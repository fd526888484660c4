"""What identifies a CPU: its model name as a slug, and the threads torch uses."""

from __future__ import annotations

import re

from pytest_attnperf.environment.names import slug
from pytest_attnperf.environment.system import ProbeError, System

_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NOISE = re.compile(r"\((R|TM)\)|@.*$|\bCPU\b|\b\d+-Core\b|\bProcessor\b", re.IGNORECASE)


def model_name(system: System) -> str:
    """Model name from /proc/cpuinfo, e.g. 'AMD EPYC 9B14'. Raises ProbeError where it has none (many ARM kernels)."""
    found = _MODEL.search(system.read("proc/cpuinfo"))
    if not found:
        raise ProbeError("/proc/cpuinfo names no model")
    return found[1].strip()


def product(model: str) -> str:
    """'AMD EPYC 9B14 96-Core Processor' -> 'amd-epyc-9b14'; the core count is compared as compute_units instead."""
    return slug(_NOISE.sub(" ", model))


def must_match(threads: int) -> dict[str, str]:
    """What a CPU time depends on beside the product, the way it is taken included; power caps and partitions are not
    visible to a process."""
    return {
        "cpu_threads": str(threads),
        "host_clock": "fastest run, without waits",
        "compute_partition": "none",
        "memory_partition": "none",
        "power_cap_w": "unknown (not read on CPUs)",
    }

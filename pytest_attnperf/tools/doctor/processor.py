"""Checks the CPU that launches kernels and computes references: cores, load, a container's limit, memory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pytest_attnperf.environment.device import read_cpu_model
from pytest_attnperf.environment.device_state import BUSY_LOAD_PER_CORE
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

LITTLE_MEMORY_GIB = 4.0
KIB_PER_GIB = 2**20

_AVAILABLE = re.compile(r"^MemAvailable:\s*(\d+) kB", re.MULTILINE)


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns 'cpu' with its cores and load, 'cpu limit' if a container has one, and 'memory' if its size is known."""
    cores = len(os.sched_getaffinity(0))
    return [_probe_load(here, cores), *_probe_quota(here, cores), *_probe_memory(here.system)]


def _probe_load(here: Surroundings, cores: int) -> DoctorFinding:
    total = os.cpu_count() or cores
    of = f"{cores} core{'s' if cores != 1 else ''}" if cores == total else f"{cores} of {total} cores"
    load = float(here.system.read("proc/loadavg").split()[0])
    value = f"{_read_cpu_name(here.system)}, {of}, load {load:.1f}"
    if load / total <= BUSY_LOAD_PER_CORE:
        return DoctorFinding("cpu", Status.OK, value)
    what = "launches come late and host times vary" if here.has_gpu else "times on the CPU vary by tens of per cent"
    meaning = f"a load above {BUSY_LOAD_PER_CORE:g} per core means that another job runs here: {what}"
    return DoctorFinding("cpu", Status.WARNING, value, meaning, "ps aux --sort=-%cpu | head, and wait for it or end it")


def _read_cpu_name(system: System) -> str:
    try:
        return read_cpu_model(system)
    except ProbeError:
        return "a CPU without a name"


def _probe_quota(here: Surroundings, cores: int) -> list[DoctorFinding]:
    """Returns 'cpu limit', a warning if it is below the number of cores; nothing without a limit. A container that
    exceeds it stops until the next period, even in a sample."""
    quota = read_cpu_quota(here.system)
    if quota is None:
        return []
    value = f"{quota:g} CPUs by the container's limit, {cores} cores are seen"
    if quota >= cores:
        return [DoctorFinding("cpu limit", Status.OK, value)]
    meaning = "the container is stopped for parts of each 100 ms when it uses more: samples have gaps"
    fix = "start it with --cpuset-cpus=0-7 (whole cores) instead of --cpus, or raise the limit"
    return [DoctorFinding("cpu limit", Status.WARNING, value, meaning, fix)]


def read_cpu_quota(system: System) -> float | None:
    """Returns the CPUs that the control group allows, version 2 or 1; None without a limit or if it cannot be read."""
    try:
        quota, period = system.read("sys/fs/cgroup/cpu.max").split()[:2]
    except (ProbeError, ValueError):
        try:
            quota = system.read("sys/fs/cgroup/cpu/cpu.cfs_quota_us")
            period = system.read("sys/fs/cgroup/cpu/cpu.cfs_period_us")
        except ProbeError:
            return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _probe_memory(system: System) -> list[DoctorFinding]:
    found = _AVAILABLE.search(system.read("proc/meminfo"))
    if found is None:
        return []
    available_gib = int(found[1]) / KIB_PER_GIB
    value = f"{available_gib:.1f} GiB available"
    if available_gib >= LITTLE_MEMORY_GIB:
        return [DoctorFinding("memory", Status.OK, value)]
    meaning = "references are computed in double precision on the CPU, and each worker imports torch"
    return [DoctorFinding("memory", Status.WARNING, value, meaning, "close other programs, or run fewer workers (-n)")]

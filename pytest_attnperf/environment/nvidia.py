"""Reads one NVIDIA GPU with nvidia-smi: the settings that a comparison depends on, and its current state.

Field names are those of `nvidia-smi --help-query-gpu`. A driver refuses a whole query if it does not know one field.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from pytest_attnperf.environment.system import DeviceReading, ProbeError, System, ThrottleReading

QUERY = ("power.limit", "mig.mode.current")
_NOT_AVAILABLE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")

STATE_FIELDS = {
    "uuid": "device_id",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "power.limit": "power_limit_w",
    "compute_mode": "compute_mode",
    "persistence_mode": "persistence_mode",
}
"""Fields that every driver since 2015 knows, and their names in a reading."""

_WORDS = frozenset({"uuid", "compute_mode", "persistence_mode"})
"""Those of these fields whose values are not numbers."""

REASONS_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Field with the bits that say why the clock is low: its name in drivers since 535, and the older name."""

COUNTER_FIELDS = {
    "clocks_event_reasons_counters.sw_power_cap": "software power cap",
    "clocks_event_reasons_counters.sw_thermal_slowdown": "software thermal slowdown",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "hardware thermal slowdown",
    "clocks_event_reasons_counters.hw_power_brake_slowdown": "hardware power brake",
}
"""Counters of the microseconds for which a reason kept the clock low."""

REASONS = {
    0x1: "idle",
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
"""Bits by the NVML API reference, NvmlClocksEventReasons."""

NVML = "libnvidia-ml.so.1"
POLICIES = {0: "software power cap", 1: "thermal slowdown", 3: "board limit", 5: "reliability"}
"""nvmlPerfPolicyType_t: policies by which NVML counts for how long the clock was lower than requested."""

_REFUSED = "exited with"
"""Part of a ProbeError's text that shows that nvidia-smi ran, but refused the query."""


def must_match(device_id: str, system: System) -> dict[str, str]:
    """Returns power_cap_w, compute_partition and memory_partition of the GPU with this UUID ('GPU-...').

    It calls nvidia-smi once, because each call costs tens of milliseconds. compute_partition is 'none' for a whole GPU
    and 'mig' for a sliced one, whose product name holds the slice's size. memory_partition is always 'none', because
    NVIDIA has none. A value that cannot be read is 'unknown (why)'.
    """
    try:
        power_limit, mig_mode = _query_fields(device_id, system)
    except ProbeError as error:
        unknown = f"unknown ({error})"
        return {"power_cap_w": unknown, "compute_partition": unknown, "memory_partition": "none"}
    return {
        "power_cap_w": _format_watts(power_limit),
        "compute_partition": "mig" if mig_mode == "Enabled" else "none",
        "memory_partition": "none",
    }


def _query_fields(device_id: str, system: System) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    if not device_id:
        raise ProbeError("torch gives no UUID to ask nvidia-smi about")
    answer = system.run([*command, f"--id={device_id}"])
    fields = [field.strip() for field in answer.strip().split(",")]
    if len(fields) != len(QUERY):
        raise ProbeError(f"nvidia-smi answered {answer.strip()[:80]!r}")
    return fields


def _format_watts(text: str) -> str:
    """Rounds nvidia-smi's power limit '700.00' to '700' (watts); text that is no number gives 'unknown (why)'."""
    if text in _NOT_AVAILABLE:
        return "unknown (nvidia-smi gives no power limit)"
    try:
        return f"{float(text):.0f}"
    except ValueError:
        return f"unknown (nvidia-smi gives the power limit {text[:40]!r})"


def state_queries() -> list[tuple[str, ...]]:
    """Returns the lists of nvidia-smi's fields to request in turn until the driver accepts one.
    The first list has the most fields, the last one only those that every driver knows."""
    known, counters = tuple(STATE_FIELDS), tuple(COUNTER_FIELDS)
    newer, older = REASONS_FIELDS
    return [(*known, newer, *counters), (*known, newer), (*known, older), known]


def read_state(token: str, system: System, queries: Sequence[tuple[str, ...]] | None = None) -> DeviceReading:
    """Reads the state of the GPU that nvidia-smi calls `token` (index or UUID); a new driver needs only one call.

    queries   lists of fields, tried until one is accepted; `DeviceReading.fields` says which

    Raises ProbeError if nvidia-smi is missing, does not answer or refuses every list.
    """
    refusal = ProbeError("no query was given")
    for fields in state_queries() if queries is None else queries:
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={token}"]
        try:
            answer = system.run(command)
        except ProbeError as error:
            if _REFUSED not in str(error):
                raise
            refusal = error
            continue
        return _parse_reading(fields, answer)
    raise refusal


class _ViolationTime(ctypes.Structure):
    """nvmlViolationTime_t: when, in microseconds, and for how long in all, in nanoseconds."""

    _fields_ = (("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong))


class NvmlCounters:
    """Reads within a process for how long each policy has throttled one GPU: in microseconds, where nvidia-smi takes
    tens of milliseconds. Read so by processes on an H200 (driver 580).

    device_id   'GPU-<uuid>'
    load        opens the library

    Raises ProbeError where NVML is missing, does not start or does not know the GPU.
    """

    def __init__(self, device_id: str, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self._nvml = load(NVML)
            self._device = ctypes.c_void_p()
            self._require(self._nvml.nvmlInit_v2(), "nvmlInit_v2")
            named = device_id.encode()
            self._require(self._nvml.nvmlDeviceGetHandleByUUID(named, ctypes.byref(self._device)), "device by UUID")
        except (OSError, AttributeError) as error:
            raise ProbeError(f"{NVML}: {error}") from error

    @staticmethod
    def _require(status: int, what: str) -> None:
        if status != 0:
            raise ProbeError(f"NVML: {what} returned {status}")

    def read(self) -> ThrottleReading:
        """Returns the microseconds of every policy that this GPU counts, and a clock of microseconds."""
        counts = {}
        for policy, reason in POLICIES.items():
            violation = _ViolationTime()
            if self._nvml.nvmlDeviceGetViolationStatus(self._device, policy, ctypes.byref(violation)) == 0:
                counts[reason] = violation.violation_ns / 1e3
        return ThrottleReading(counts, time.monotonic_ns() / 1e3)


def list_compute_processes(token: str, system: System) -> tuple[list[str], list[str]]:
    """Returns (processes, notes): compute processes on a GPU, each 'pid name (memory)'.

    A container often sees none, or sees the host's process ids. Raises ProbeError if nvidia-smi fails.
    """
    answer = system.run(
        ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader", f"--id={token}"]
    )
    processes, strange = [], []
    for line in filter(None, (line.strip() for line in answer.splitlines())):
        # A name may hold commas; the pid and the memory do not.
        found = re.fullmatch(r"(\d+)\s*,\s*(.*?)\s*,\s*([^,]*)", line)
        if found:
            pid, name, memory = found.groups()
            held = "" if memory in _NOT_AVAILABLE else f" ({memory})"
            processes.append(f"{pid} {name.rsplit('/', 1)[-1]}{held}")
        else:
            strange.append(f"nvidia-smi answered {line[:80]!r} to a question for compute processes")
    return processes, strange[:1]


def reasons_in_words(mask: int) -> str:
    """Translates a mask: 0x24 -> 'software power cap, software thermal slowdown'; 0 -> 'none'; unknown bits as hex."""
    words = [word for bit, word in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return ", ".join([*words, *([f"{rest:#x}"] if rest else [])]) or "none"


def _parse_reading(fields: tuple[str, ...], answer: str) -> DeviceReading:
    values = [value.strip() for value in answer.strip().split(",")]
    if len(values) != len(fields):
        raise ProbeError(f"nvidia-smi answered {answer.strip()[:80]!r} to a question for {len(fields)} fields")
    said = dict(zip(fields, values, strict=True))
    state = {name: _parse_state(field, said[field]) for field, name in STATE_FIELDS.items() if field in said}
    if reasons := next((field for field in REASONS_FIELDS if field in said), ""):
        state["throttle_reasons"] = _parse_reasons(said[reasons])
    throttled_us = {
        name: count
        for field, name in COUNTER_FIELDS.items()
        if (count := _parse_microseconds(said.get(field, ""))) is not None
    }
    unknown = [name for name, value in state.items() if not value]
    notes = [f"nvidia-smi gives no {', '.join(unknown)}"] if unknown else []
    if not reasons:
        notes.append("this driver does not say why the clock is low")
    if not throttled_us:
        notes.append("this driver does not count for how long the clock was throttled")
    return DeviceReading({name: value for name, value in state.items() if value}, throttled_us, tuple(notes), fields)


def _parse_state(field: str, value: str) -> str:
    """Parses the value of one of STATE_FIELDS: '700.00' gives '700', words stay; '' if not reported or no number."""
    if value in _NOT_AVAILABLE:
        return ""
    if field in _WORDS:
        return value
    return f"{float(value):g}" if re.fullmatch(r"\d+(\.\d+)?", value) else ""


def _parse_reasons(value: str) -> str:
    return reasons_in_words(int(value, 16)) if re.fullmatch(r"0x[0-9a-fA-F]+", value) else ""


def _parse_microseconds(value: str) -> float | None:
    """Parses '6869275397', or '6869275397 us' as some drivers write it; None for other text."""
    found = re.fullmatch(r"(\d+)( us)?", value)
    return float(found[1]) if found else None

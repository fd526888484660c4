"""Checks what limits or fixes the GPUs' clocks: power cap, performance level, the driver's throttle reasons,
temperature.

Canaries and the fingerprint's power cap detect later changes; this finds faults before anything is measured. No setting
is changed. AMD's files follow the kernel's amdgpu documentation (thermal: hwmon; power and clocks:
power_dpm_force_performance_level); `amd-smi set` and `reset` follow their help. A cap is undone by `reset`, because the
arguments of `set --power-cap` (watts, with the cap's name before, after or not at all) differ between versions. Not
tried on an AMD GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_attnperf.environment import amd, nvidia
from pytest_attnperf.environment.system import DeviceReading, ProbeError, System
from pytest_attnperf.tools.doctor.gpu_list import (
    AMD,
    ask_or_unknown,
    format_by_gpu,
    list_cards,
    list_tokens,
    unknown_finding,
)
from pytest_attnperf.tools.doctor.partitions import NO_SMI
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

CAP_SLACK = 0.99
"""Share of the default cap from which a cap counts as the default, rounded."""

HOT_C = 85.0
"""Temperature in °C that is hot for an idle GPU: GPUs lower their clock some 5 to 15 degrees above it."""

NVIDIA_CAPS = ("power.limit", "power.default_limit")

HELD = ("high", "manual", "profile_standard", "profile_peak", "perf_determinism")
SLOWED = ("low", "profile_min_sclk", "profile_min_mclk")
"""Performance levels other than 'auto'. HELD fix clocks at some value, SLOWED fix one at its lowest."""

Value = TypeVar("Value")

_THERMAL = ("hardware", "thermal", "brake")
_BY_SETTING = ("applications clocks setting", "sync boost", "display clock setting")


@dataclass(frozen=True)
class Cap:
    """Power caps of one GPU in watts: the current one and the default."""

    now_w: float
    default_w: float

    @property
    def is_lowered(self) -> bool:
        """Whether the current cap is below the default by more than rounding."""
        return self.now_w < CAP_SLACK * self.default_w

    def __str__(self) -> str:
        if self.now_w == self.default_w:
            return f"{self.now_w:.0f} W, the default"
        return f"{self.now_w:.0f} W, by default {self.default_w:.0f} W"


def probe(surroundings: Surroundings) -> Sequence[DoctorFinding]:
    """Returns the findings 'power cap' and 'temperature'; also 'performance level' for AMD, 'clocks' for NVIDIA."""
    return _probe_amd(surroundings) if surroundings.vendor == AMD else _probe_nvidia(surroundings)


def _probe_amd(surroundings: Surroundings) -> list[DoctorFinding]:
    system = surroundings.system
    try:
        shown = {token: card.pci_address for token, card in list_cards(surroundings).items()}
    except ProbeError as error:
        return [unknown_finding(name, error) for name in ("power cap", "performance level", "temperature")]

    def suggest_reset(token: str, watts: float) -> str:
        return f"sudo amd-smi reset --gpu {shown[token]} --power-cap (to its maximum; the default is {watts:.0f} W)"

    def read_each(read: Callable[[str, System], Value]) -> dict[str, Value]:
        return {token: read(address, system) for token, address in shown.items()}

    return [
        ask_or_unknown("power cap", "", lambda: _judge_caps(read_each(_read_amd_cap), suggest_reset)),
        ask_or_unknown("performance level", "", lambda: _judge_levels(read_each(_read_level), shown)),
        ask_or_unknown("temperature", "", lambda: _judge_temperatures(read_each(amd.read_state))),
    ]


def _read_amd_cap(address: str, system: System) -> Cap:
    """Returns the current and default power cap (W) of the AMD card at a PCI address. Raises ProbeError without one."""
    folder = f"sys/bus/pci/devices/{address}"
    now = _read_microwatts(folder, "power1_cap", system)
    if now is None:
        raise ProbeError(f"/{folder} has no hwmon/*/power1_cap that holds a number")
    # Kernels before 5.13 have no default; on cards as they are sold the maximum is equal to it.
    default = (
        _read_microwatts(folder, "power1_cap_default", system)
        or _read_microwatts(folder, "power1_cap_max", system)
        or now
    )
    return Cap(now / amd.MICROWATTS_PER_WATT, default / amd.MICROWATTS_PER_WATT)


def _read_microwatts(folder: str, name: str, system: System) -> int | None:
    for path in sorted((system.root / folder).glob(f"hwmon/hwmon*/{name}")):
        text = system.read(str(path.relative_to(system.root)))
        if text.isdigit():
            return int(text)
    return None


def _read_level(address: str, system: System) -> str:
    return system.read(f"sys/bus/pci/devices/{address}/power_dpm_force_performance_level")


def _judge_levels(seen: Mapping[str, str], shown: Mapping[str, str]) -> DoctorFinding:
    name, value = "performance level", format_by_gpu(seen)
    if token := next((token for token, level in seen.items() if level in SLOWED), ""):
        status, meaning = Status.WARNING, "a clock is fixed at its lowest: every time is far too long"
    elif token := next((token for token, level in seen.items() if level in HELD), ""):
        status = Status.NOTE
        meaning = (
            "clocks are fixed: less noise, but other times than under auto, and the fingerprint does not show it; "
            "record and gate under one level"
        )
    elif token := next((token for token, level in seen.items() if level != "auto"), ""):
        return DoctorFinding(name, Status.NOTE, value, "attnperf does not know this level")
    else:
        return DoctorFinding(name, Status.OK, value)
    return DoctorFinding(name, status, value, meaning, f"sudo amd-smi set --gpu {shown[token]} --perf-level AUTO")


def _probe_nvidia(surroundings: Surroundings) -> list[DoctorFinding]:
    system, names = surroundings.system, list_tokens(surroundings)

    def suggest_limit(token: str, watts: float) -> str:
        return f"sudo nvidia-smi -i {token} -pl {watts:.0f}"

    capped = ask_or_unknown(
        "power cap",
        NO_SMI,
        lambda: _judge_caps({token: _read_nvidia_cap(token, system) for token in names}, suggest_limit),
    )
    try:
        state = {token: nvidia.read_state(token, system) for token in names}
    except ProbeError as error:
        return [capped, *(unknown_finding(name, error, NO_SMI) for name in ("clocks", "temperature"))]
    return [capped, _judge_clocks(state), ask_or_unknown("temperature", NO_SMI, lambda: _judge_temperatures(state))]


def _read_nvidia_cap(token: str, system: System) -> Cap:
    command = ["nvidia-smi", f"--query-gpu={','.join(NVIDIA_CAPS)}", "--format=csv,noheader,nounits", f"--id={token}"]
    answer = system.run(command).strip()
    fields = [field.strip() for field in answer.split(",")]
    if len(fields) != len(NVIDIA_CAPS) or not all(re.fullmatch(r"\d+(\.\d+)?", field) for field in fields):
        raise ProbeError(
            f"nvidia-smi answered {answer[:80]!r} when asked for power limits; it must give {len(NVIDIA_CAPS)} numbers"
        )
    return Cap(*map(float, fields))


def _judge_caps(seen: Mapping[str, Cap], more: Callable[[str, float], str]) -> DoctorFinding:
    name, value = "power cap", format_by_gpu({token: str(cap) for token, cap in seen.items()})
    if token := next((token for token, cap in seen.items() if cap.is_lowered), ""):
        meaning = (
            "long compute-bound kernels reach the cap and are slower; baselines recorded under another cap are "
            "INCOMPARABLE"
        )
        return DoctorFinding(name, Status.WARNING, value, meaning, more(token, seen[token].default_w))
    if len({round(cap.now_w) for cap in seen.values()}) > 1:
        meaning = "a case measured on two of these GPUs is INCOMPARABLE"
        return DoctorFinding(
            name, Status.WARNING, value, meaning, "set one cap for all GPUs, or make only equal ones visible"
        )
    return DoctorFinding(name, Status.OK, value)


def _judge_clocks(state: Mapping[str, DeviceReading]) -> DoctorFinding:
    """Returns the finding 'clocks': why the driver lowers NVIDIA GPUs' compute clocks now: heat, a setting or the power
    cap; OK if nothing does. Locked clocks are not found, because the driver does not report them."""
    name = "clocks"
    reasons = {token: reading.values.get("throttle_reasons", "") for token, reading in state.items()}
    clocks = {token: reading.values.get("sm_clock_mhz", "") for token, reading in state.items()}
    if not all(reasons.values()):
        return unknown_finding(name, "this driver does not say why the clock is low")
    details = (
        f"compute clock now, in MHz: {format_by_gpu({token: mhz or 'not known' for token, mhz in clocks.items()})}",
    )
    value = f"held down: {format_by_gpu(reasons)}"
    if any(word in reason for reason in reasons.values() for word in _THERMAL):
        meaning = "the GPU lowers its clock before the benchmark starts: times will be too long and noisy"
        fix = "let it cool, check its fans and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)"
        return DoctorFinding(name, Status.WARNING, value, meaning, fix, details)
    if token := next((token for token, reason in reasons.items() if any(word in reason for word in _BY_SETTING)), ""):
        meaning = "a setting limits the clock: less noise, but other times; record and gate under one setting"
        fix = f"to undo it: sudo nvidia-smi -i {token} -rgc, and -rac for applications clocks"
        return DoctorFinding(name, Status.NOTE, value, meaning, fix, details)
    if any("power cap" in reason for reason in reasons.values()):
        meaning = "the GPU is at its power cap already: something else is running on it, or the cap is low"
        return DoctorFinding(name, Status.WARNING, value, meaning, "see 'power cap' and 'GPU processes'", details)
    return DoctorFinding(name, Status.OK, f"nothing holds them down ({format_by_gpu(reasons)})", details=details)


def _judge_temperatures(state: Mapping[str, DeviceReading]) -> DoctorFinding:
    """Returns the finding 'temperature', a warning from HOT_C on. Raises ProbeError if a GPU gives none."""
    name = "temperature"
    seen = {token: reading.values.get("temperature_c", "") for token, reading in state.items()}
    if not all(seen.values()):
        raise ProbeError("the driver gives no temperature")
    value = format_by_gpu({token: f"{celsius} °C" for token, celsius in seen.items()})
    if max(float(celsius) for celsius in seen.values()) < HOT_C:
        return DoctorFinding(name, Status.OK, value)
    meaning = f"{HOT_C:.0f} °C or more before the benchmark starts: the clock will fall under load"
    return DoctorFinding(
        name, Status.WARNING, value, meaning, "let the GPU cool, and check its fans and other processes on it"
    )

"""Reads the device's state with the machine's own tools, before a run's first worker and after its last one.

Workers use only `open_throttle_counters`. Nothing here imports torch or initialises a device. A value that cannot be
read becomes a note or stays unknown, never an error: a missing vendor tool does not fail a run.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_attnperf.environment import amd, kfd, nvidia
from pytest_attnperf.environment.system import DeviceReading, ProbeError, System, ThrottleReading
from pytest_attnperf.records.gpus import DeviceState

KINDS = ("cpu", "cuda", "rocm", "gpu")

BUSY_LOAD_PER_CORE = 0.5
"""Load above which other work is assumed to share caches, clocks and memory with a run on the CPU."""

_NVIDIA_NODE = re.compile(r"nvidia\d+")
_CORE = re.compile(r"^cpu\d+ ", re.MULTILINE)


@dataclass(frozen=True)
class Watch:
    """A run in progress: the first reading, and what the second one needs. `start_watch` makes it."""

    token: str
    kind: str
    system: System
    before: DeviceReading
    other_processes: tuple[str, ...]
    environ: Mapping[str, str]

    def end(self, device_id: str = "") -> DeviceState:
        """Reads the device again, after the last worker; returns both readings and the seconds throttled in between.

        device_id   `DeviceInfo.device_id` of the workers: a note says if the readings are of another card

        It runs one command at most. A failed reading becomes a note.
        """
        after = self._read_after()
        notes = [*self.before.notes, *(note for note in after.notes if note not in self.before.notes)]
        if note := _other_card(self.before.values.get("device_id", ""), device_id):
            notes.append(note)
        return DeviceState(
            before=self.before.values,
            after=after.values,
            throttled_s=_throttled_s(self.before, after),
            other_processes=self.other_processes,
            notes=tuple(notes),
        )

    def _read_after(self) -> DeviceReading:
        if not self.before.values:
            return DeviceReading()  # the first reading's notes already say what cannot be read
        try:
            return _read_state(self.token, self.kind, self.system, self.environ, self.before.fields)
        except ProbeError as error:
            return DeviceReading(notes=(f"the state of the device after the run is not known: {error}",))


def start_watch(
    token: str, kind: str = "", system: System | None = None, environ: Mapping[str, str] | None = None
) -> Watch:
    """Reads the device's state and lists the processes that compute on it, before the first worker exists.

    token     what CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES accepts (see `gpus.visible_gpus`); '' on a CPU
    kind      'cpu', 'cuda' or 'rocm'; 'gpu' chooses by the device nodes; default: 'gpu' with a token, else 'cpu'
    environ   environment with ROCR_VISIBLE_DEVICES; default: this process's

    What cannot be read becomes a note. Runs at most five commands on NVIDIA, none elsewhere. Raises ValueError for
    another kind.
    """
    kind = kind or ("gpu" if token else "cpu")
    if kind not in KINDS:
        raise ValueError(f"device state: unknown kind {kind!r}; known: {', '.join(KINDS)}")
    system = system or System()
    environ = os.environ if environ is None else environ
    kind = _guess_vendor(system) if kind == "gpu" else kind
    try:
        before = _read_state(token, kind, system, environ)
    except ProbeError as error:
        note = f"the state of the device and other processes on it are not known: {error}"
        return Watch(token, kind, system, DeviceReading(notes=(note,)), (), environ)
    processes, notes = _list_processes(token, kind, system, environ)
    notes = [*before.notes, *notes, *_list_warnings(token, before)]
    return Watch(token, kind, system, replace(before, notes=tuple(notes)), tuple(processes), environ)


def _guess_vendor(system: System) -> str:
    """Returns 'rocm' if there is AMD's driver and no NVIDIA card, else 'cuda'; if 'cuda' is wrong, nvidia-smi fails."""
    nodes = (system.root / "dev").glob("nvidia*")
    amd_only = (system.root / "dev/kfd").exists() and not any(_NVIDIA_NODE.fullmatch(node.name) for node in nodes)
    return "rocm" if amd_only else "cuda"


def _read_state(
    token: str, kind: str, system: System, environ: Mapping[str, str], fields: tuple[str, ...] = ()
) -> DeviceReading:
    """Reads the state of a GPU, or the load per core for kind 'cpu'. Raises ProbeError if it cannot be read.

    fields   of nvidia-smi that the driver accepted before; empty: finds out which it accepts
    """
    if kind == "cuda":
        return nvidia.read_state(token, system, [fields] if fields else None)
    if kind == "rocm":
        return amd.read_state(kfd.find_card(token, system, environ).pci_address, system)
    return DeviceReading({"load_per_core": f"{_read_load(system) / _count_cores(system):.2f}"})


def _list_processes(token: str, kind: str, system: System, environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns (processes that compute on the GPU, notes on what is unknown); both are empty on a CPU.
    No worker of this run exists yet, so all processes are other programs."""
    try:
        if kind == "cuda":
            return nvidia.list_compute_processes(token, system)
        if kind == "rocm":
            return kfd.list_compute_processes(kfd.find_card(token, system, environ).gpu_id, system), []
    except ProbeError as error:
        return [], [f"other processes on the device are not known: {error}"]
    return [], []


def _list_warnings(token: str, before: DeviceReading) -> list[str]:
    """Returns a warning if the compute mode forbids two processes or if the CPU's load is high, else an empty list."""
    mode = before.values.get("compute_mode", "")
    if mode.startswith("Exclusive"):
        return [
            f"compute mode is {mode}: an interleaved second look needs two processes on one GPU at once, which this "
            f"mode forbids; an administrator changes it with: nvidia-smi -i {token} -c DEFAULT"
        ]
    load = float(before.values.get("load_per_core", 0))
    if load > BUSY_LOAD_PER_CORE:
        return [
            f"the 1-minute load before the run was {load:.2f} per core, above {BUSY_LOAD_PER_CORE:g}: another job may "
            "disturb timings"
        ]
    return []


def _throttled_s(before: DeviceReading, after: DeviceReading) -> dict[str, float]:
    """Returns the seconds throttled between two readings by reason, only those above 0.
    Counters that vanished or decreased are left out: the driver was reloaded."""
    grown = {
        reason: (end_us - before.throttled_us[reason]) / 1e6
        for reason, end_us in after.throttled_us.items()
        if reason in before.throttled_us
    }
    return {reason: seconds for reason, seconds in grown.items() if seconds > 0}


def open_throttle_counters(
    kind: str, device_id: str, system: System | None = None
) -> Callable[[], ThrottleReading] | None:
    """Returns a function that reads how long a GPU was throttled and why, cheap enough to be called beside a block;
    None where this device does not count it, or nothing can read it.

    kind        'cuda', 'rocm', or another, which counts nothing
    device_id   as in `DeviceInfo`
    """
    system = system or System()
    try:
        if kind == "cuda" and device_id:
            return nvidia.NvmlCounters(device_id).read
        if kind == "rocm":
            amd.read_throttling(device_id, system)
            return functools.partial(amd.read_throttling, device_id, system)
    except ProbeError:
        return None
    return None


class ThrottleWatch:
    """Measures for how many seconds a GPU is throttled in a span, by reason. Starts when it is made.

    read   of `open_throttle_counters`; None makes `end` return None
    """

    def __init__(
        self, read: Callable[[], ThrottleReading] | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock_s = read, clock_s
        self._before, self._began_s = self._take(), clock_s()

    def _take(self) -> ThrottleReading | None:
        try:
            return self._read() if self._read is not None else None
        except ProbeError:
            return None

    def end(self) -> dict[str, float] | None:
        """Returns the seconds by reason, only those above 0; None where they are not known, or counters went back."""
        after, elapsed_s = self._take(), self._clock_s() - self._began_s
        if self._before is None or after is None or after.total <= self._before.total:
            return None
        grown = {name: count - self._before.counts.get(name, count) for name, count in after.counts.items()}
        if any(count < 0 for count in grown.values()):
            return None
        span = after.total - self._before.total
        seconds = {name: round(min(1.0, count / span) * elapsed_s, 6) for name, count in grown.items()}
        return {name: each for name, each in seconds.items() if each > 0}


def _other_card(read_of: str, measured_on: str) -> str:
    """Returns a note if the card of the readings and the card of the workers are known and differ, else ''."""
    if not read_of or not measured_on or read_of == measured_on:
        return ""
    return (
        f"these readings are of {read_of}, but the run measured on {measured_on}: CUDA counts the fastest card first "
        "and nvidia-smi by PCI address unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set; a MIG slice has a name of its own"
    )


def _read_load(system: System) -> float:
    text = system.read("proc/loadavg")
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        raise ProbeError(f"/proc/loadavg holds {text[:40]!r}") from None


def _count_cores(system: System) -> int:
    """Counts the cores of the whole machine, as the load does; a container's CPU limit does not change it."""
    return max(1, len(_CORE.findall(system.read("proc/stat"))))

"""Finds other programs that compute on the visible GPUs, and GPUs that another timing run holds.

Another program shares the GPU with what is measured. Our own processes are left out if their ids show that they are
ours; in a container, NVIDIA's driver may give ids of the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.environment import kfd, nvidia
from pytest_attnperf.environment.cards import GpuBusyError, lease_directory, lease_gpu
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.doctor.gpu_list import AMD, ask_or_unknown, list_cards, list_tokens, unknown_finding
from pytest_attnperf.tools.doctor.partitions import NO_SMI
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

PROCESSES, LEASE = "GPU processes", "GPU lease"
VISIBLE = {AMD: "HIP_VISIBLE_DEVICES", "nvidia": "CUDA_VISIBLE_DEVICES"}
SHOWN = 3
ANCESTORS_MAX = 50

_LOCK = re.compile(r"^\d+: (?:FLOCK|POSIX|OFDLCK)\s+\S+\s+WRITE\s+(\d+)\s+[0-9a-f]+:[0-9a-f]+:(\d+)\s", re.MULTILINE)
"""Matches a line of /proc/locks (proc_locks(5)): the process's id, and the inode after the device numbers."""


def probe(surroundings: Surroundings, locks: Path | None = None) -> Sequence[DoctorFinding]:
    """Returns two findings: 'GPU processes', other programs on the visible GPUs, and 'GPU lease', GPUs that another
    timing run holds. `locks` is the folder of leases; default: that of runs."""
    return [
        ask_or_unknown(PROCESSES, NO_SMI if surroundings.vendor != AMD else "", lambda: _probe_processes(surroundings)),
        ask_or_unknown(LEASE, "", lambda: _probe_leases(surroundings, locks)),
    ]


def _probe_processes(surroundings: Surroundings) -> DoctorFinding:
    busy = {token: found for token, found in _find_processes(surroundings).items() if found}
    if not busy:
        return DoctorFinding(PROCESSES, Status.OK, "no other compute process on any visible GPU")
    shown = [f"{process} on GPU {token}" for token, found in busy.items() for process in found]
    value = "; ".join(shown[:SHOWN]) + (f"; {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")
    meaning = "it shares compute units, memory and power with what is measured: times are too long and noisy"
    return DoctorFinding(PROCESSES, Status.PROBLEM, value, meaning, _suggest_fix(busy, surroundings), tuple(shown))


def _find_processes(surroundings: Surroundings) -> dict[str, list[str]]:
    """Returns, by GPU, processes that compute on it and were not started by us, each as 'pid name'. Raises ProbeError
    if they cannot be listed."""
    system = surroundings.system
    if surroundings.vendor == AMD:
        found = {
            token: kfd.list_compute_processes(card.gpu_id, system) for token, card in list_cards(surroundings).items()
        }
    else:
        found = {}
        for token in list_tokens(surroundings):
            found[token], strange = nvidia.list_compute_processes(token, system)
            if strange:
                raise ProbeError(strange[0])
    return {token: [process for process in each if not _is_ours(process, system)] for token, each in found.items()}


def _is_ours(process: str, system: System) -> bool:
    return _is_own_descendant(int(process.partition(" ")[0]), system)


def _is_own_descendant(pid: int, system: System) -> bool:
    """Returns whether process `pid` is this one or was started by it, at any depth; False if that cannot be read."""
    for _ in range(ANCESTORS_MAX):
        if pid == os.getpid():
            return True
        try:
            stat = system.read(f"proc/{pid}/stat")
        except ProbeError:
            return False
        # The name, in brackets, may hold any character; state and parent follow it.
        rest = stat.rpartition(")")[2].split()
        if len(rest) < 2 or not rest[1].isdigit() or int(rest[1]) <= 1:
            return False
        pid = int(rest[1])
    return False


def _suggest_fix(busy: Mapping[str, Sequence[str]], surroundings: Surroundings) -> str:
    free = [token for token in list_tokens(surroundings) if token not in busy]
    if free:
        return f"measure on a GPU that is free: export {VISIBLE[surroundings.vendor]}={','.join(free)}"
    first = next(iter(busy.values()))[0].partition(" ")[0]
    return f"wait until it has ended; if it is yours and left over: kill {first}"


def _probe_leases(surroundings: Surroundings, locks: Path | None) -> DoctorFinding:
    """Returns the finding 'GPU lease': which visible GPUs another timing run holds. Takes each lease and releases it at
    once: there is no other way to check."""
    names = list_tokens(surroundings)
    try:
        folder = lease_directory() if locks is None else locks
        held = [token for token in names if _is_held(token, folder, surroundings.environ)]
        holders = _list_lock_holders(folder, surroundings.system)
    except UsageError as error:
        return DoctorFinding(LEASE, Status.PROBLEM, str(error), "no run can measure on a GPU")
    except OSError as error:
        return unknown_finding(
            LEASE, f"the folder of leases: {error.strerror}", "set TMPDIR to a folder that can be written"
        )
    if not held:
        return DoctorFinding(
            LEASE, Status.OK, f"no other run holds {'it' if len(names) == 1 else f'any of {len(names)} GPUs'}"
        )
    by = f" by {', '.join(holders)}" if holders else ""
    value = f"GPU {', '.join(held)} of {', '.join(names)} held{by}"
    if len(held) < len(names):
        return DoctorFinding(
            LEASE, Status.NOTE, value, "another run is measuring; the next one takes a GPU that is free"
        )
    meaning = "another run is measuring: a run with --attnperf ends at once with status 4, and nothing is timed"
    return DoctorFinding(LEASE, Status.PROBLEM, value, meaning, "wait for that run to end, or make another GPU visible")


def _is_held(token: str, folder: Path, environ: Mapping[str, str]) -> bool:
    try:
        lease_gpu([token], folder, environ).release()
    except GpuBusyError:
        return True
    return False


def _list_lock_holders(folder: Path, system: System) -> list[str]:
    """Returns processes that hold a lock in this folder, each as 'pid 12 name'; empty if the kernel lists no locks."""
    try:
        text = system.read("proc/locks")
    except ProbeError:
        return []
    ours = {path.stat().st_ino for path in folder.glob("*.lock")}
    pids = sorted({int(pid) for pid, inode in _LOCK.findall(f"{text}\n") if int(inode) in ours and int(pid) > 0})
    return [f"pid {pid} {kfd.read_process_name(pid, system)}" for pid in pids]

"""Checks space and write access of the folders of results, compiler caches, temporary files and shared memory."""

from __future__ import annotations

import getpass
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.aiter_package import is_rocm_aiter, package_folder
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

GIB = 2**30
LITTLE_BYTES = 2 * GIB
FULL_BYTES = GIB // 5
SMALL_SHM_BYTES = GIB

NETWORK = ("nfs", "nfs4", "lustre", "cifs", "smb3", "gpfs", "ceph", "beegfs", "fuse.sshfs", "afs")
"""Types of network file systems."""


@dataclass(frozen=True)
class WriteFolder:
    """A folder that runs write into; it is made when it is needed.

    use        what is written there, for messages
    variable   environment variable that moves it; '' if there is none
    loaded     whether libraries are loaded from it, which a mount may forbid
    """

    name: str
    folder: Path
    use: str
    variable: str = ""
    loaded: bool = False


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns a finding on space and write access of each folder that runs write into, and on /dev/shm if it exists."""
    return [*(_probe_folder(place, here) for place in list_write_folders(here)), *_probe_shared_memory(here)]


def list_write_folders(here: Surroundings) -> list[WriteFolder]:
    """Returns the folders that runs of this project write into, as the environment places them. Those of Triton,
    Inductor and ROCm's aiter are listed only if the package is installed."""
    temporary = Path(here.environ.get("TMPDIR") or tempfile.gettempdir())
    found = [
        WriteFolder(".attnperf", here.root / ".attnperf", "results, logs, compiled objects and local baselines"),
        WriteFolder("temporary files", temporary, "GPU leases and what compilers write meanwhile", "TMPDIR"),
    ]
    if importlib.util.find_spec("triton") is not None:
        found.append(
            WriteFolder(
                "Triton cache", _triton_cache(here), "Triton's compiled kernels", "TRITON_CACHE_DIR", loaded=True
            )
        )
    if importlib.util.find_spec("torch") is not None:
        inductor = here.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(temporary / f"torchinductor_{_user_name()}")
        use = "what torch.compile built"
        found.append(WriteFolder("Inductor cache", Path(inductor), use, "TORCHINDUCTOR_CACHE_DIR", loaded=True))
    package = package_folder()
    if package is not None and is_rocm_aiter(package):
        folder = Path(here.environ.get("AITER_JIT_DIR") or package / "jit")
        found.append(
            WriteFolder("aiter's modules", folder, "what aiter builds on first use", "AITER_JIT_DIR", loaded=True)
        )
    return found


def _triton_cache(here: Surroundings) -> Path:
    """Returns Triton's cache folder: TRITON_CACHE_DIR, else .triton/cache in TRITON_HOME or the home folder."""
    named = here.environ.get("TRITON_CACHE_DIR")
    if named:
        return Path(named)
    return Path(here.environ.get("TRITON_HOME") or _home_folder(here), ".triton", "cache")


def _home_folder(here: Surroundings) -> str:
    return here.environ.get("HOME") or os.path.expanduser("~")


def _user_name() -> str:
    """Returns the user's name as Inductor uses it in its folder; the id if a container's user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _probe_folder(place: WriteFolder, here: Surroundings) -> DoctorFinding:
    """Returns the finding of a folder, the worst that holds: no folder, cannot be written, full, forbids libraries,
    little space, network disk; else OK."""
    stands = _nearest_existing(place.folder)
    elsewhere = (
        f"export {place.variable}=<a folder with room>" if place.variable else "free space, or mount it otherwise"
    )
    details = (str(place.folder),)
    if not stands.is_dir():
        meaning = f"a file is where a folder is needed for {place.use}"
        return DoctorFinding(place.name, Status.PROBLEM, "no folder", meaning, f"remove the file {stands}", details)
    room = os.statvfs(stands)
    free_bytes = room.f_bavail * room.f_frsize
    kind = _file_system(stands, here)
    value = f"{free_bytes / GIB:.1f} GiB free{f' ({kind})' if kind in NETWORK else ''}"
    if room.f_flag & os.ST_RDONLY or not os.access(stands, os.W_OK | os.X_OK):
        meaning = f"{place.use} cannot be written"
        fix = elsewhere if place.variable else f"chown or remount {stands}"
        return DoctorFinding(place.name, Status.PROBLEM, "cannot be written", meaning, fix, details)
    if free_bytes < FULL_BYTES:
        return DoctorFinding(
            place.name, Status.PROBLEM, value, f"{place.use}: runs will fail for lack of space", elsewhere, details
        )
    if place.loaded and room.f_flag & _noexec_flag():
        meaning = f"mounted noexec: {place.use} cannot be loaded from there"
        return DoctorFinding(place.name, Status.PROBLEM, value, meaning, elsewhere, details)
    if free_bytes < LITTLE_BYTES:
        return DoctorFinding(
            place.name, Status.WARNING, value, f"{place.use}: caches of a long run need more", elsewhere, details
        )
    if kind in NETWORK and place.variable:
        meaning = f"{place.use}: on a network disk every process starts slower, by a varying amount"
        return DoctorFinding(place.name, Status.NOTE, value, meaning, elsewhere, details)
    return DoctorFinding(place.name, Status.OK, value, details=details)


def _nearest_existing(folder: Path) -> Path:
    """Returns the folder, or its nearest parent that exists."""
    return next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))


def _noexec_flag() -> int:
    return int(getattr(os, "ST_NOEXEC", 8))


def _file_system(folder: Path, here: Surroundings) -> str:
    """Returns the type of the file system that holds the folder, e.g. 'nfs4'; '' if the mounts cannot be read."""
    try:
        mounts = [line.split() for line in here.system.read("proc/self/mounts").splitlines()]
    except ProbeError:
        return ""
    real = folder.resolve()
    above = [(len(parts[1]), parts[2]) for parts in mounts if len(parts) > 2 and real.is_relative_to(parts[1])]
    return max(above)[1] if above else ""


def _probe_shared_memory(here: Surroundings) -> list[DoctorFinding]:
    folder = here.system.root / "dev/shm"
    if not folder.is_dir():
        return []
    room = os.statvfs(folder)
    total_bytes = room.f_blocks * room.f_frsize
    value = f"{total_bytes / 2**20:.0f} MiB" if total_bytes < GIB else f"{total_bytes / GIB:.1f} GiB"
    if total_bytes >= SMALL_SHM_BYTES:
        return [DoctorFinding("/dev/shm", Status.OK, value)]
    meaning = "cases do not use it, but RCCL, NCCL and torch's loaders end without a message when it is full"
    return [DoctorFinding("/dev/shm", Status.NOTE, value, meaning, "docker run --ipc=host, or --shm-size=16g")]

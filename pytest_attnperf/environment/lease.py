"""One GPU, one timing run: a file lock per GPU, held for as long as a run measures. Controller only."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_attnperf.errors import UsageError

XDIST_WORKERS = "PYTEST_XDIST_WORKER_COUNT"


class GpuBusyError(UsageError):
    """Every visible GPU is leased; two timing runs on one GPU would disturb each other."""


@dataclass(frozen=True)
class Lease:
    """A GPU held by this process: `token` is what VISIBLE_DEVICES takes. The lock dies with the process."""

    token: str
    lock: FileLock

    def release(self) -> None:
        """Give the GPU back."""
        self.lock.release()


def lease_gpu(tokens: Sequence[str], directory: Path | None = None, environ: Mapping[str, str] = os.environ) -> Lease:
    """Lease the first free GPU of `visible_gpus`, without waiting. Raises GpuBusyError when none is free.

    Locks lie in `directory`, by default a folder of this user's under the temporary directory: other users' runs and
    other containers are not seen.
    """
    folder = lease_directory() if directory is None else directory
    for token in tokens:
        lock = FileLock(folder / f"{_lock_name(token, environ)}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        return Lease(token, lock)
    raise GpuBusyError(_busy_text(tokens, folder, environ))


def lease_directory() -> Path:
    """This user's folder of locks, made if need be. Raises UsageError when another user owns it."""
    folder = Path(tempfile.gettempdir()) / f"attnperf-leases-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.stat().st_uid
    if owner != os.getuid():
        raise UsageError(
            f"GPU leases: {folder} belongs to user id {owner}, not to {os.getuid()}; "
            "have it removed, or set TMPDIR to a folder of your own"
        )
    return folder


def _lock_name(token: str, environ: Mapping[str, str]) -> str:
    """A name for the card itself: HIP's index counts within ROCR_VISIBLE_DEVICES, so two runs may both say '0'."""
    outer = [part.strip() for part in environ.get("ROCR_VISIBLE_DEVICES", "").split(",") if part.strip()]
    card = outer[int(token)] if token.isdigit() and int(token) < len(outer) else token
    return "gpu-" + re.sub(r"[^A-Za-z0-9]+", "-", card)


def _busy_text(tokens: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str:
    count = len(tokens)
    gpus = f"{count} visible GPU{'' if count == 1 else 's'}"
    workers = int(environ.get(XDIST_WORKERS, "0"))
    if workers > count:
        return (
            f"{workers} workers for {gpus}: two workers on one GPU would disturb each other's timings; use -n {count}"
        )
    return (
        f"no free GPU: {gpus} ({', '.join(tokens) or 'none'}), every one leased by another run (locks in {folder}); "
        "wait for it to end, or make another GPU visible"
    )

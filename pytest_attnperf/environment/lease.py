"""One GPU, one timing run: a file lock per GPU, held for as long as a run measures. Controller only."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_attnperf.environment.cards import Card, cards_of
from pytest_attnperf.errors import UsageError

XDIST_WORKERS = "PYTEST_XDIST_WORKER_COUNT"
POLL_S = 0.2
NO_FREE_GPU = "no free GPU: "
"""Begins the text of the error that says so."""


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
    other containers are not seen. They are of cards, so that it does not matter what a run calls them.
    """
    cards = cards_of(tokens, environ)
    return lease_card([replace(card, token=card.index) for card in cards], directory, environ)


def lease_card(
    cards: Sequence[Card], directory: Path | None = None, environ: Mapping[str, str] = os.environ, wait_s: float = 0.0
) -> Lease:
    """Lease the first free one of these cards, and wait so long for it. Raises GpuBusyError when none is free."""
    folder = lease_directory() if directory is None else directory
    until = time.monotonic() + wait_s
    while not (leases := lease_free(cards, folder, most=1)):
        if time.monotonic() >= until:
            raise GpuBusyError(_busy_text([card.index for card in cards], folder, environ))
        time.sleep(POLL_S)
    return leases[0]


def lease_free(cards: Sequence[Card], directory: Path | None = None, most: int | None = None) -> list[Lease]:
    """Lease the free ones of these cards, without waiting, in their order and at most so many; empty where none is."""
    folder = lease_directory() if directory is None else directory
    leases: list[Lease] = []
    for card in cards:
        if len(leases) == most:
            break
        lock = FileLock(folder / f"gpu-{file_name(card.name)}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        leases.append(Lease(card.token, lock))
    return leases


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


def file_name(card: str) -> str:
    """A card's name as a part of a lock's."""
    return re.sub(r"[^A-Za-z0-9]+", "-", card)


def _busy_text(tokens: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str:
    count = len(tokens)
    gpus = f"{count} visible GPU{'' if count == 1 else 's'}"
    workers = int(environ.get(XDIST_WORKERS, "0"))
    if workers > count:
        return (
            f"{workers} workers for {gpus}: two workers on one GPU would disturb each other's timings; use -n {count}"
        )
    return (
        f"{NO_FREE_GPU}{gpus} ({', '.join(tokens) or 'none'}), every one leased by another run (locks in {folder}); "
        "wait for it to end, or make another GPU visible"
    )

"""The GPUs of a run under pytest-xdist: its controller chooses them, and each worker leases one when it starts.

The controller passes its choice in an environment variable before workers start. A worker leases a card and hides the
others from its process before a conftest can import torch. Processes that it starts do not use the variable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from pytest_attnperf.environment.cards import NO_FREE_GPU, Card, Lease, lease_card
from pytest_attnperf.plugin.options import XDIST_GPUS
from pytest_attnperf.workers.launch import VISIBLE_DEVICES

WORKER = "PYTEST_XDIST_WORKER"
WAIT_S = 10.0
"""Seconds that a worker waits for a free card: the dead worker that it replaces may still hold its card."""


@dataclass(frozen=True)
class Handed:
    """What xdist's controller passes to its workers.

    pid        process id of the controller; other processes that inherit the variable ignore it
    cards      cards of the run; each worker leases one of the first `leased`
    own_device whether these are a conftest's own GPUs, to which VISIBLE_DEVICES does not apply
    """

    pid: int
    cards: tuple[Card, ...]
    leased: int
    own_device: bool


@dataclass(frozen=True)
class OfWorker:
    """The cards of the run, and the lease of the one card that a worker of xdist holds."""

    cards: tuple[Card, ...]
    lease: Lease


_HELD = pytest.StashKey[OfWorker]()
_LEASES: list[Lease] = []
"""Leases of this process, held until it ends. The controller ends workers when all have finished: a worker without
cases must still hold its card, on which others record."""


def hand_down(config: pytest.Config, cards: Sequence[Card], leased: int, *, own_device: bool) -> None:
    """Sets the environment variable XDIST_GPUS, from which new workers of xdist read the cards to lease; removes it at
    the end of the session."""
    handed = Handed(os.getpid(), tuple(cards), leased, own_device)
    os.environ[XDIST_GPUS] = msgspec.json.encode(handed).decode()
    config.add_cleanup(_clear_handed_down)


def _clear_handed_down() -> None:
    os.environ.pop(XDIST_GPUS, None)


def lease_in_worker(config: pytest.Config) -> None:
    """Leases a card and hides the others, in a worker of the controller that set XDIST_GPUS; other processes ignore it.
    Raises GpuBusyError if no card is free within `WAIT_S`."""
    handed = msgspec.json.decode(os.environ[XDIST_GPUS], type=Handed)
    if handed.pid != os.getppid() or WORKER not in os.environ:
        return
    cards, first = handed.cards[: handed.leased], _parse_worker_number(os.environ[WORKER]) % handed.leased
    lease = lease_card([*cards[first:], *cards[:first]], wait_s=WAIT_S)
    _LEASES.append(lease)
    config.stash[_HELD] = OfWorker(handed.cards, lease)
    if not handed.own_device:
        os.environ.update(dict.fromkeys(VISIBLE_DEVICES, lease.token))


def busy_text(error: object) -> str:
    """Returns the message of a worker that found no free GPU, from xdist's `error`; '' if the worker ended otherwise.

    This happens if another run leases the GPUs after the controller has chosen them.
    """
    said = (line.partition(f"UsageError: {NO_FREE_GPU}") for line in str(error).splitlines())
    return next((f"{NO_FREE_GPU}{rest}" for _, found, rest in said if found), "")


def find_worker_gpus(config: pytest.Config) -> OfWorker | None:
    """Returns the GPUs that this session holds as a worker of xdist; None if it is none or got no GPU."""
    return config.stash.get(_HELD, None)


def worker_number(config: pytest.Config) -> int:
    """Returns the number of this worker of xdist, 3 for 'gw3'; 0 in other sessions."""
    given = getattr(config, "workerinput", None)
    return _parse_worker_number(given["workerid"]) if given else 0


def _parse_worker_number(worker: str) -> int:
    """Returns 3 for 'gw3'; 0 for another form of name."""
    digits = worker.removeprefix("gw")
    return int(digits) if digits.isdigit() else 0

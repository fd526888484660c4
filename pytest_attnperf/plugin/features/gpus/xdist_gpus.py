"""The GPUs of a run under pytest-xdist: its controller chooses them, each of its workers leases one first of all.

The controller hands its choice down in the environment, before workers start. A worker then holds a card, and shows its
own process no other, before a conftest can import torch. What a worker of xdist starts itself does not inherit that.
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
"""How long the worker that replaces a dead one waits for the card that that one still holds."""


@dataclass(frozen=True)
class Handed:
    """What a controller hands to its workers.

    pid        the controller's: what others inherit of it, and the tests of this package, is none of their business
    cards      of the run; workers lease one of the first `leased` each
    own_device a conftest's own GPUs, which the machine's variables do not name
    """

    pid: int
    cards: tuple[Card, ...]
    leased: int
    own_device: bool


@dataclass(frozen=True)
class OfWorker:
    """What a worker of xdist holds: one card, of the cards of the run."""

    cards: tuple[Card, ...]
    lease: Lease


_HELD = pytest.StashKey[OfWorker]()
_LEASES: list[Lease] = []
"""Given back by the end of this process alone, which the controller brings about when all workers have finished: one
that has no cases left is still the holder of a card that others record on."""


def hand_down(config: pytest.Config, cards: Sequence[Card], leased: int, *, own_device: bool) -> None:
    """Put the choice where workers that start from now on find it, until the session ends."""
    handed = Handed(os.getpid(), tuple(cards), leased, own_device)
    os.environ[XDIST_GPUS] = msgspec.json.encode(handed).decode()
    config.add_cleanup(_clear_handed_down)


def _clear_handed_down() -> None:
    os.environ.pop(XDIST_GPUS, None)


def lease_in_worker(config: pytest.Config) -> None:
    """Lease a card where this process is a worker whose controller handed some down, and show it no other.

    Raises GpuBusyError when none is free within `WAIT_S`.
    """
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
    """What a worker that ended said of the GPUs, from the traceback that xdist sends; '' where it ended otherwise.

    Another run took them after this one's controller had looked.
    """
    said = (line.partition(f"UsageError: {NO_FREE_GPU}") for line in str(error).splitlines())
    return next((f"{NO_FREE_GPU}{rest}" for _, found, rest in said if found), "")


def find_worker_gpus(config: pytest.Config) -> OfWorker | None:
    """What this session holds as a worker of xdist; None where it is none, or was handed nothing."""
    return config.stash.get(_HELD, None)


def worker_number(config: pytest.Config) -> int:
    """Of the worker of xdist that this session is; 0 where it is none."""
    given = getattr(config, "workerinput", None)
    return _parse_worker_number(given["workerid"]) if given else 0


def _parse_worker_number(worker: str) -> int:
    """'gw3' -> 3; 0 for a name that somebody chose."""
    digits = worker.removeprefix("gw")
    return int(digits) if digits.isdigit() else 0

"""Chooses and leases the GPUs of a run, and reads their state before its first worker and after its last."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.environment import device_state
from pytest_attnperf.environment.cards import (
    Card,
    GpuBusyError,
    Lease,
    file_name,
    lease_card,
    lease_directory,
    lease_free,
    make_gpu_record,
    parse_pci_address,
    require_one_product,
    visible_cards,
)
from pytest_attnperf.environment.gpu_tokens import visible_gpus
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import is_xdist_worker, run_config
from pytest_attnperf.plugin.session_setup import device_kind
from pytest_attnperf.records.gpus import DeviceState, GpuRecord, short_name
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.looking import RECORD_PLACES, RECORDING, UNTIMED
from pytest_attnperf.session.settings import RunMode

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.gpus.xdist_gpus import OfWorker

PIN = options.BY_NAME["pin-gpu"].flag
PREFIX_LEAST = 8
"""Least number of characters by which a UUID can be abbreviated."""

_CARDS = pytest.StashKey[tuple[Card, ...]]()


@dataclass(frozen=True)
class CardWatch:
    """Readings of the state of each card of a run, by name; one reading for a CPU."""

    watches: Mapping[str, device_state.Watch]

    @classmethod
    def begin(cls, tokens: Sequence[str], *, own_device: bool = False) -> CardWatch:
        """Reads the state (clocks, load, ...) of each card in `tokens`, or only of the machine if a conftest brings its
        own device, and returns the begun watch."""
        shown = [] if own_device else tokens
        watches = {token: device_state.start_watch(token) for token in shown} or {"": device_state.start_watch("")}
        return cls({_shorten_token(token): watch for token, watch in watches.items()})

    def end(self, device_id: str) -> DeviceState:
        """Reads the state again, after the last worker, and returns both readings, of all cards joined.

        device_id   name of the card as its processes report it, in a run on one card
        """
        if len(self.watches) == 1:
            [watch] = self.watches.values()
            return watch.end(device_id)
        return merge_device_states({name: watch.end() for name, watch in self.watches.items()})


def merge_device_states(states: Mapping[str, DeviceState]) -> DeviceState:
    """Joins the states of several cards. Readings and throttled seconds get the name of their card; a note gets it
    unless all cards have this note.
    """
    said = {name: set(state.notes) for name, state in states.items()}
    of_all = set.intersection(*said.values()) if said else set()
    common = [note for note in next(iter(states.values())).notes if note in of_all] if states else []
    single = [f"{name}: {note}" for name, state in states.items() for note in state.notes if note not in of_all]
    return DeviceState(
        before={f"{key} on {name}": value for name, state in states.items() for key, value in state.before.items()},
        after={f"{key} on {name}": value for name, state in states.items() for key, value in state.after.items()},
        throttled_s={f"{key} on {name}": s for name, state in states.items() for key, s in state.throttled_s.items()},
        other_processes=tuple(
            f"{process} on {name}" for name, state in states.items() for process in state.other_processes
        ),
        notes=(*common, *single),
    )


def _shorten_token(token: str) -> str:
    """Returns 'GPU-1a2b3c4d' for a UUID, 'GPU 3' for an index."""
    return f"GPU {token}" if token.isdigit() else short_name(token)


@dataclass(frozen=True)
class GpuChoice:
    """The GPUs of a session's workers.

    tokens    values for VISIBLE_DEVICES, in the order of the workers' places; empty on a CPU
    leases    leases that the session holds while it measures
    turns     a lock file per token, if other sessions of the run measure on the same cards
    notes     notes on the choice for the results
    watch     readings of the cards' state since before the first worker; None if nothing is timed
    """

    tokens: tuple[str, ...] = ()
    leases: tuple[Lease, ...] = ()
    turns: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    watch: CardWatch | None = None


def usable_gpus(config: pytest.Config) -> tuple[str, ...]:
    """Returns tokens of the GPUs that this run may use: a conftest's own, else the visible ones; of these only the ones
    that --attnperf-pin-gpu names, if given.

    Empty if cases run on a CPU. Raises UsageError if --attnperf-pin-gpu fits no GPU.
    """
    return tuple(card.token for card in usable_cards(config))


def usable_cards(config: pytest.Config) -> tuple[Card, ...]:
    """Returns the GPUs of `usable_gpus` as cards; in a worker of xdist, the whole run's. Raises as `usable_gpus`."""
    held = _find_worker_gpus(config)
    if held is not None:
        return held.cards
    if _CARDS not in config.stash:
        own = own_gpus(config)
        kind, why = device_kind(config)
        found = own or (visible_cards(os.environ) if kind == "gpu" else ())
        pins = run_config(config).pin_gpu
        if pins and not found:
            raise UsageError(f"{PIN}={pins}: no GPU is visible: {why}; drop {PIN}")
        config.stash[_CARDS] = select_pinned(found, pins)
    return config.stash[_CARDS]


def own_gpus(config: pytest.Config) -> tuple[Card, ...]:
    """Returns the GPUs that a conftest's `pytest_attnperf_gpus` names; () if the machine's GPUs are used."""
    tokens = config.hook.pytest_attnperf_gpus(config=config) or ()
    return tuple(Card(str(token), str(token), name=str(token)) for token in tokens)


def check_same_product(config: pytest.Config) -> None:
    """Raises UsageError if the run's cards are not of one product; a conftest's own GPUs are not checked."""
    if not own_gpus(config):
        require_one_product(usable_cards(config), os.environ)


def select_pinned(cards: Sequence[Card], text: str) -> tuple[Card, ...]:
    """Returns the cards that `text` names by index, UUID, start of a UUID, or PCI address; all if it is empty.
    Raises UsageError for a name that fits no card or several."""
    if not text:
        return tuple(cards)
    chosen: list[Card] = []
    for name in (part.strip() for part in text.split(",")):
        fits = [card for card in cards if _is_called(card, name)]
        if len(fits) != 1:
            listed = "; ".join(_format_card(card) for card in cards)
            many = "fits several GPUs" if fits else "is no visible GPU"
            raise UsageError(f"{PIN}={text}: {name!r} {many}; there are: {listed}")
        chosen.append(fits[0])
    return tuple(dict.fromkeys(chosen))


def choose_gpus(config: pytest.Config, mode: RunMode) -> GpuChoice:
    """Returns the GPUs of this session's workers, leased if the run times cases. A run that only checks leases none."""
    if mode is RunMode.CHECK:
        return GpuChoice(_choose_for_checks(config))
    held = _find_worker_gpus(config)
    chosen = _lease_gpus(config, mode) if held is None else _choose_for_xdist_worker(held, mode)
    if held is not None or mode in UNTIMED:
        return chosen
    return replace(chosen, watch=CardWatch.begin(chosen.tokens, own_device=bool(own_gpus(config))))


def _lease_gpus(config: pytest.Config, mode: RunMode) -> GpuChoice:
    cards = usable_cards(config)
    if not cards:
        return GpuChoice()
    if mode is RunMode.TOGETHER or mode in RECORDING:
        check_same_product(config)
        return _lease_all_free(cards, mode)
    lease = lease_card(cards)
    return GpuChoice((lease.token,), (lease,))


def _find_worker_gpus(config: pytest.Config) -> OfWorker | None:
    """Returns the GPUs that this session holds as a worker of xdist; None if it is none or has none."""
    if not is_xdist_worker(config):
        return None
    from pytest_attnperf.plugin.features.gpus.xdist_gpus import find_worker_gpus

    return find_worker_gpus(config)


def gpus_that_measured(config: pytest.Config, results: Iterable[CaseResult]) -> tuple[GpuRecord, ...]:
    """Returns a record of each card that these results were measured on, with its number of cases, sorted by id."""
    cases: Counter[str] = Counter()
    for result in results:
        processes = {process.device_id for process in (*result.first, *result.second)}
        cases.update(filter(None, processes | {pair.device_id for pair in result.pairs}))
    cards = usable_cards(config) if cases else ()
    return tuple(make_gpu_record(device_id, cards, cases[device_id]) for device_id in sorted(cases))


def describe_gpus_used(gpus: Sequence[GpuRecord]) -> tuple[str, ...]:
    """Returns 'measured on 2 GPUs: GPU-1a2b3c4d (0000:17:00.0, 23 cases), ...'; () for fewer than two GPUs."""
    if len(gpus) < 2:
        return ()
    return (f"measured on {len(gpus)} GPUs: {', '.join(map(_describe_gpu, gpus))}",)


def _describe_gpu(gpu: GpuRecord) -> str:
    cases = f"{gpu.cases} case{'s' if gpu.cases != 1 else ''}"
    at = f"{gpu.pci_bus}, " if gpu.pci_bus and gpu.pci_bus != gpu.device_id else ""
    return f"{short_name(gpu.device_id)} ({at}{cases})"


def _is_called(card: Card, name: str) -> bool:
    uuid, wanted = card.uuid.lower(), name.lower()
    begins = len(wanted) >= PREFIX_LEAST and (uuid.startswith(wanted) or uuid.partition("-")[2].startswith(wanted))
    at = card.pci_bus and card.pci_bus in (parse_pci_address(name), parse_pci_address(f"0000:{name}"))
    return name in (card.index, card.token) or bool(begins) or bool(at)


def _format_card(card: Card) -> str:
    """Returns '0 (GPU-1a2b..., 0000:17:00.0)'."""
    more = ", ".join(part for part in (card.uuid, card.pci_bus) if part and part != card.index)
    return f"{card.index} ({more})" if more else card.index


def _choose_for_checks(config: pytest.Config) -> tuple[str, ...]:
    """Returns (token,) of one GPU, which is not leased; () on a CPU. Workers of xdist take the usable GPUs in turn."""
    simple = not own_gpus(config) and not run_config(config).pin_gpu and device_kind(config)[0] == "gpu"
    tokens = visible_gpus(os.environ) if simple else usable_gpus(config)
    if not is_xdist_worker(config):
        return tokens[:1]
    from pytest_attnperf.plugin.features.gpus.xdist_gpus import worker_number

    return (tokens[worker_number(config) % len(tokens)],) if tokens else ()


def _choose_for_xdist_worker(held: OfWorker, mode: RunMode) -> GpuChoice:
    """Returns the GPU leased by this worker of xdist; in a run that stores baselines or calibrates, all cards of the
    run, in an order by the leased one."""
    if mode not in RECORDING:
        return GpuChoice((held.lease.token,), (held.lease,))
    tokens = [card.token for card in held.cards]
    # Place RECORD_PLACES is on the own card, so that sessions begin on different cards.
    shift = tokens.index(held.lease.token) - RECORD_PLACES
    cards = [held.cards[(index + shift) % len(tokens)] for index in range(len(tokens))]
    turns = tuple(lease_directory() / f"turn-{file_name(card.name)}.lock" for card in cards)
    return GpuChoice(tuple(card.token for card in cards), (held.lease,), turns)


def _lease_all_free(cards: Sequence[Card], mode: RunMode) -> GpuChoice:
    """Leases every card that no other run holds; returns these, with a note on the others. Raises GpuBusyError if no
    card is free, in the mode TOGETHER (--attnperf-together) also if any card is busy."""
    leases = lease_free(cards)
    free = {lease.token for lease in leases}
    busy = [card for card in cards if card.token not in free]
    if not leases:
        lease_card(cards)  # raises GpuBusyError
    if busy and mode is RunMode.TOGETHER:
        for lease in leases:
            lease.release()
        raise GpuBusyError(
            f"--attnperf-together: {len(busy)} of {len(cards)} GPUs ({', '.join(card.token for card in busy)}) leased "
            f"by another run (locks in {lease_directory()}); wait for it to end, or choose the others with {PIN}"
        )
    return GpuChoice(tuple(lease.token for lease in leases), tuple(leases), notes=describe_left_out(busy, len(cards)))


def describe_left_out(busy: Sequence[Card], of: int) -> tuple[str, ...]:
    """Returns a note on the `busy` cards of `of` that a recording could not lease; () if there are none."""
    if not busy:
        return ()
    listed = ", ".join(card.token for card in busy)
    return (f"recorded without {len(busy)} of {of} GPUs, which another run had leased: {listed}",)

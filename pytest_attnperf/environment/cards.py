"""Finds the UUID and PCI address of each visible GPU without torch or initialising a device, and locks GPUs.

A GPU's index depends on the environment: '0' in two runs may be two cards, and one card may be '0' here and 'GPU-...'
there. So a lock must belong to the card. AMD support was tested only on made-up files.

One GPU, one timing run: a run holds a file lock per GPU (a lease) while it measures. Only the controller imports this.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_attnperf.environment import amd, gpu_tokens, kfd, nvidia
from pytest_attnperf.environment.device import gpu_product
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.gpus import GpuRecord

ORDER = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"
NVIDIA_FOLDER = "proc/driver/nvidia/gpus"
QUERY = ("nvidia-smi", "--query-gpu=uuid,pci.bus_id,name", "--format=csv,noheader")
"""Command that lists the cards by PCI address: the same order as the sorted folder of the driver."""

ARCH_QUERY = ("nvidia-smi", "--query-gpu=compute_cap,name", "--format=csv,noheader")
"""Command that names a card's compute capability, '9.0, NVIDIA H200'."""

NAMED = ("GPU-", "MIG-")
"""Prefixes of NVIDIA's UUIDs: of a card, and of a MIG slice of one."""

_ARCH = re.compile(r"(\d+)\.(\d+), (.+)")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)


@dataclass(frozen=True)
class Card:
    """A GPU that processes of this environment may use.

    token      what CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES accept for it: NVIDIA's UUID if it is known
    index      the environment's name for it: an index, or the UUID by which it was selected
    uuid, pci_bus, product   of the card; '' if unknown
    name       the same in every run on this machine, whatever the environment calls the card: names the lock file
    """

    token: str
    index: str
    uuid: str = ""
    pci_bus: str = ""
    product: str = ""
    name: str = ""


@dataclass(frozen=True)
class _Nvidia:
    uuid: str
    pci_bus: str
    product: str


def visible_cards(environ: Mapping[str, str], system: System | None = None) -> tuple[Card, ...]:
    """Returns the GPUs that CUDA_ / HIP_VISIBLE_DEVICES in `environ` leaves visible, in the order of that variable."""
    system = system or System()
    return cards_of(gpu_tokens.visible_gpus(environ, system.root), environ, system)


def cards_of(tokens: Sequence[str], environ: Mapping[str, str], system: System | None = None) -> tuple[Card, ...]:
    """Returns a card for each token (an entry of CUDA_ / HIP_VISIBLE_DEVICES), in the same order.
    A card that cannot be identified gets its token as name."""
    system = system or System()
    if not gpu_tokens.nvidia_minors(system.root):
        return tuple(_amd_card(token, environ, system) for token in tokens)
    found = _nvidia_cards(system) if tokens else []
    return tuple(_nvidia_card(token, found, environ) for token in tokens)


def read_device(environ: Mapping[str, str], *, on_gpu: bool, system: System | None = None) -> DeviceInfo | None:
    """Returns kind, architecture and product of the first visible GPU, or of this machine's CPU, without figures.
    None if neither nvidia-smi nor AMD's driver names the GPU's architecture.

    A CPU counts as one that interprets Triton's kernels, as workers do.
    """
    system = system or System()
    if not on_gpu:
        return DeviceInfo("cpu", f"cpu-{platform.machine()}", "", interpreted=True)
    if not gpu_tokens.nvidia_minors(system.root):
        archs = kfd.list_architectures(system)
        return DeviceInfo("rocm", archs[0], "") if archs else None
    try:
        named = [system.run((*ARCH_QUERY, f"--id={card.token}")) for card in visible_cards(environ, system)[:1]]
    except ProbeError:
        return None
    found = [_ARCH.fullmatch(answer.strip()) for answer in named]
    return next((DeviceInfo("cuda", f"sm_{one[1]}{one[2]}", gpu_product(one[3]), one[3]) for one in found if one), None)


def require_one_product(cards: Sequence[Card], environ: Mapping[str, str], system: System | None = None) -> None:
    """Raises UsageError if a run gets several cards of different products, or indices that may name such cards.

    On a machine with several products CUDA numbers cards by speed unless CUDA_DEVICE_ORDER is set, and no tool reports
    that order. So an index names no known product there.
    """
    if len(cards) < 2:
        return
    system = system or System()
    told = all(card.product for card in cards) or not gpu_tokens.nvidia_minors(system.root)
    of_machine = [] if told else _nvidia_cards(system)
    by_speed = _is_sorted_by_speed(of_machine, environ)
    if not by_speed and len({card.product for card in cards}) == 1:
        return
    named = [(card.uuid, card.product) for card in of_machine] or [(card.uuid, card.product) for card in cards]
    listed = ", ".join(f"{uuid} ({product})" for uuid, product in named)
    way = f"Set {ORDER}={PCI_ORDER}, because CUDA counts them by speed, and choose" if by_speed else "Choose"
    raise UsageError(
        f"a run over several GPUs needs cards of one product, but these differ: {listed}. {way} those of one "
        "product with CUDA_VISIBLE_DEVICES=UUID,UUID or --attnperf-pin-gpu"
    )


def make_gpu_record(device_id: str, cards: Sequence[Card], cases: int, system: System | None = None) -> GpuRecord:
    """Makes the record of the GPU with this `device_id` (UUID or PCI address), on which `cases` cases were measured.

    Its partitions and power cap are read now. Its token and product are '' unless exactly one of `cards` has this id.
    """
    system = system or System()
    fits = [card for card in cards if device_id in (card.uuid, card.pci_bus)]
    card = fits[0] if len(fits) == 1 else Card("", "", fits[0].uuid if fits else "", fits[0].pci_bus if fits else "")
    if device_id.startswith(NAMED):
        must = nvidia.must_match(device_id, system)
    elif _PCI.fullmatch(device_id):
        must = amd.must_match(device_id, system)
    else:
        must = {}
    return GpuRecord(
        device_id=device_id,
        token=card.token,
        uuid=card.uuid,
        pci_bus=card.pci_bus,
        product=card.product,
        compute_partition=must.get("compute_partition", ""),
        memory_partition=must.get("memory_partition", ""),
        power_cap_w=must.get("power_cap_w", ""),
        cases=cases,
    )


def parse_pci_address(text: str) -> str:
    """Shortens nvidia-smi's '00000000:17:00.0' to '0000:17:00.0', in lower case; '' for text that is no PCI address."""
    found = _PCI.fullmatch(text.strip())
    return f"{found[1][-4:]}:{found[2]}:{found[3]}.{found[4]}".lower() if found else ""


def _nvidia_cards(system: System) -> list[_Nvidia]:
    """Lists the machine's NVIDIA cards, sorted by PCI address.
    The list is empty if neither the driver's folder nor nvidia-smi lists every card with a device node."""
    minors = gpu_tokens.nvidia_minors(system.root)
    found = _read_driver_cards(system, minors)
    if len(found) != len(minors):
        found = _read_smi_cards(system)
    return found if len(found) == len(minors) else []


def _read_driver_cards(system: System, minors: Sequence[int]) -> list[_Nvidia]:
    """Reads from /proc/driver/nvidia the cards that have a device node; a container may show all cards of the host."""
    folders = {parse_pci_address(path.name): path.name for path in (system.root / NVIDIA_FOLDER).glob("*")}
    found = []
    for address in sorted(filter(None, folders)):
        try:
            said = _parse_information(system.read(f"{NVIDIA_FOLDER}/{folders[address]}/information"))
        except ProbeError:
            continue
        uuid = said.get("GPU UUID", "")
        if said.get("Device Minor", "") in map(str, minors) and uuid.startswith(NAMED) and "?" not in uuid:
            found.append(_Nvidia(uuid, address, said.get("Model", "")))
    return found


def _parse_information(text: str) -> dict[str, str]:
    """Parses lines such as 'GPU UUID: <tab> GPU-...' into a dictionary."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _read_smi_cards(system: System) -> list[_Nvidia]:
    try:
        answer = system.run(QUERY)
    except ProbeError:
        return []
    rows = [[field.strip() for field in line.split(",")] for line in answer.splitlines() if line.strip()]
    good = [row for row in rows if len(row) == 3 and row[0].startswith(NAMED) and parse_pci_address(row[1])]
    found = [_Nvidia(uuid, parse_pci_address(address), product) for uuid, address, product in good]
    return sorted(found, key=lambda card: card.pci_bus) if len(good) == len(rows) else []


def _nvidia_card(token: str, found: Sequence[_Nvidia], environ: Mapping[str, str]) -> Card:
    if token.startswith("MIG-"):
        return Card(token, token, uuid=token, name=token)
    if token.isdigit():
        fits = [found[int(token)]] if int(token) < len(found) and not _is_sorted_by_speed(found, environ) else []
    else:
        fits = [card for card in found if card.uuid.startswith(token)]
    if len(fits) != 1:
        return Card(token, token, uuid="" if token.isdigit() else token, name=token)
    card = fits[0]
    return Card(card.uuid, token, card.uuid, card.pci_bus, card.product, card.uuid)


def _is_sorted_by_speed(found: Sequence[_Nvidia], environ: Mapping[str, str]) -> bool:
    """Tells whether CUDA numbers these cards by speed, the fastest first, and not by PCI address as this file does."""
    return len({card.product for card in found}) > 1 and environ.get(ORDER) != PCI_ORDER


def _amd_card(token: str, environ: Mapping[str, str], system: System) -> Card:
    """Identifies an AMD card. Its partitions share UUID and address, so the name includes the driver's own id.
    If the card cannot be found, its name is the token, or the ROCR_VISIBLE_DEVICES entry that the token selects."""
    try:
        card = kfd.find_card(token, system, environ)
    except ProbeError:
        return Card(token, token, name=_within_rocr(token, environ))
    name = f"{card.uuid or card.pci_address}-{card.gpu_id}"
    return Card(token, token, card.uuid, card.pci_address, "", name)


def _within_rocr(token: str, environ: Mapping[str, str]) -> str:
    """Returns the ROCR_VISIBLE_DEVICES entry that a HIP index selects, else the token itself.
    The index alone would not do as a name: '0' may be another card in a run with another ROCR_VISIBLE_DEVICES."""
    outer = [part.strip() for part in environ.get("ROCR_VISIBLE_DEVICES", "").split(",") if part.strip()]
    return outer[int(token)] if token.isdigit() and int(token) < len(outer) else token


XDIST_WORKERS = "PYTEST_XDIST_WORKER_COUNT"
POLL_S = 0.2
NO_FREE_GPU = "no free GPU: "
"""Start of the message of a GpuBusyError when other runs hold every GPU."""


class GpuBusyError(UsageError):
    """Every visible GPU is leased: two timing runs on one GPU would disturb each other."""


@dataclass(frozen=True)
class Lease:
    """A GPU that this process holds: `token` is what VISIBLE_DEVICES accepts. The lock ends with the process."""

    token: str
    lock: FileLock

    def release(self) -> None:
        """Releases the file lock, so that another run can lease the GPU."""
        self.lock.release()


def lease_gpu(tokens: Sequence[str], directory: Path | None = None, environ: Mapping[str, str] = os.environ) -> Lease:
    """Leases the first free GPU of `tokens` (see `visible_gpus`) without waiting. Raises GpuBusyError if none is free.

    Locks lie in `directory`, by default this user's folder under the temporary directory, so runs of other users and in
    other containers are not seen. A lock is named after the card, not after its index or token.
    """
    cards = cards_of(tokens, environ)
    return lease_card([replace(card, token=card.index) for card in cards], directory, environ)


def lease_card(
    cards: Sequence[Card], directory: Path | None = None, environ: Mapping[str, str] = os.environ, wait_s: float = 0.0
) -> Lease:
    """Leases the first free card; if none is, tries again for `wait_s` seconds, then raises GpuBusyError.

    directory   folder of the lock files; default: this user's (see `lease_directory`)
    """
    folder = lease_directory() if directory is None else directory
    until = time.monotonic() + wait_s
    while not (leases := lease_free(cards, folder, most=1)):
        if time.monotonic() >= until:
            raise GpuBusyError(_describe_busy([card.index for card in cards], folder, environ))
        time.sleep(POLL_S)
    return leases[0]


def lease_free(cards: Sequence[Card], directory: Path | None = None, most: int | None = None) -> list[Lease]:
    """Leases the free cards in their order, at most `most` of them (None: all), without waiting; [] if none is free."""
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
    """Returns this user's folder of lock files and makes it if needed. Raises UsageError if another user owns it."""
    folder = Path(tempfile.gettempdir()) / f"attnperf-leases-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.stat().st_uid
    if owner != os.getuid():
        raise UsageError(
            f"GPU leases: {folder} belongs to user id {owner}, not to {os.getuid()}; "
            "ask that user to remove it, or set TMPDIR to a folder of your own"
        )
    return folder


def file_name(card: str) -> str:
    """Returns a card's name for use in a file name: all but ASCII letters and digits become hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", card)


def _describe_busy(tokens: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str:
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

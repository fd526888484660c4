"""AMD's compute driver (KFD) in sysfs: which card a token means, and which processes compute on it.

Files from the Linux kernel's amdkfd (kfd_topology.c, kfd_process.c). Tried on files made for tests only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_attnperf.environment.system import ProbeError, System

NODES = "sys/class/kfd/kfd/topology/nodes"
PROCESSES = "sys/class/kfd/kfd/proc"


@dataclass(frozen=True)
class Card:
    """A GPU node: KFD's own id, the UUID that ROCR takes, and the PCI address that sysfs and torch's name give."""

    gpu_id: str
    uuid: str
    pci_address: str


def card(token: str, system: System, environ: Mapping[str, str]) -> Card:
    """The card that HIP_VISIBLE_DEVICES means by `token`: an index within ROCR_VISIBLE_DEVICES, or a UUID.

    Raises ProbeError when there is none.
    """
    cards = _visible(_cards(system), environ.get("ROCR_VISIBLE_DEVICES"))
    for index, found in enumerate(cards):
        if token in (str(index), found.uuid):
            return found
    names = ", ".join(f"{index} ({found.uuid or found.pci_address})" for index, found in enumerate(cards))
    raise ProbeError(f"/{NODES} shows no GPU {token!r}; it shows: {names or 'none'}")


def compute_processes(gpu_id: str, system: System) -> list[str]:
    """Processes that hold memory of this card, each 'pid name'; those whose memory is not told are listed, too."""
    folder = system.root / PROCESSES
    pids = sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
    return [f"{pid} {_name(pid, system)}" for pid in pids if _holds_memory(pid, gpu_id, system)]


def _cards(system: System) -> list[Card]:
    nodes = sorted(
        (path for path in (system.root / NODES).glob("*") if path.name.isdigit()), key=lambda path: int(path.name)
    )
    found = (_card(f"{NODES}/{node.name}", system) for node in nodes)
    return [node for node in found if node is not None]


def _card(folder: str, system: System) -> Card | None:
    """None for a CPU, and for a GPU that the container's device cgroup withholds: the kernel then answers EPERM."""
    try:
        gpu_id = system.read(f"{folder}/gpu_id")
        if gpu_id == "0":
            return None
        words = (line.split() for line in system.read(f"{folder}/properties").splitlines())
        properties = {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    except ProbeError:
        return None
    location, domain = properties.get("location_id", 0), properties.get("domain", 0)
    # The lowest three bits are a partition's number on MI300, not a PCI function.
    address = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
    unique_id = properties.get("unique_id", 0)
    return Card(gpu_id, f"GPU-{unique_id:016x}" if unique_id else "", address)


def _visible(cards: list[Card], setting: str | None) -> list[Card]:
    """What ROCR_VISIBLE_DEVICES leaves, in its order; it stops at the first entry that names no card."""
    if setting is None:
        return cards
    by_name = {str(index): found for index, found in enumerate(cards)} | {found.uuid: found for found in cards}
    left = []
    for entry in (part.strip() for part in setting.split(",")):
        if not entry or entry not in by_name:
            break
        left.append(by_name[entry])
    return left


def _holds_memory(pid: int, gpu_id: str, system: System) -> bool:
    try:
        return system.read(f"{PROCESSES}/{pid}/vram_{gpu_id}") != "0"
    except ProbeError:
        return not any((system.root / PROCESSES / str(pid)).glob("vram_*"))


def _name(pid: int, system: System) -> str:
    try:
        return system.read(f"proc/{pid}/comm")
    except ProbeError:
        return "(name not shown)"

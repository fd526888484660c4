"""Reads AMD's compute driver (KFD) from sysfs: the card behind a token, and the processes that compute on a card.

File formats come from the Linux kernel's amdkfd (kfd_topology.c, kfd_process.c). Tested only on made-up files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_attnperf.environment.system import ProbeError, System

NODES = "sys/class/kfd/kfd/topology/nodes"
PROCESSES = "sys/class/kfd/kfd/proc"


@dataclass(frozen=True)
class KfdCard:
    """A GPU node: KFD's own id, the UUID for ROCR, and the PCI address as in sysfs and in torch's properties."""

    gpu_id: str
    uuid: str
    pci_address: str


def find_card(token: str, system: System, environ: Mapping[str, str]) -> KfdCard:
    """Finds the card with this HIP_VISIBLE_DEVICES token: an index within ROCR_VISIBLE_DEVICES, or a UUID.
    Raises ProbeError if there is none."""
    cards = _filter_visible(_list_cards(system), environ.get("ROCR_VISIBLE_DEVICES"))
    for index, found in enumerate(cards):
        if token in (str(index), found.uuid):
            return found
    names = ", ".join(f"{index} ({found.uuid or found.pci_address})" for index, found in enumerate(cards))
    raise ProbeError(f"/{NODES} shows no GPU {token!r}; it shows: {names or 'none'}")


def list_compute_processes(gpu_id: str, system: System) -> list[str]:
    """Lists the processes that hold memory of the card with this KFD id, each as 'pid name'.
    A process whose memory use cannot be read is listed, too."""
    folder = system.root / PROCESSES
    pids = sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
    return [f"{pid} {read_process_name(pid, system)}" for pid in pids if _has_memory(pid, gpu_id, system)]


def list_architectures(system: System) -> list[str]:
    """Lists the architectures of the GPUs that the driver shows, e.g. ['gfx942']; empty without an AMD GPU.

    The driver gives one number, 90402 for gfx942: major, minor and stepping with two decimal digits each. In the name,
    minor and stepping are hexadecimal (90010 is gfx90a).
    """
    found = []
    for node in _list_nodes(system):
        try:
            number = _read_properties(f"{NODES}/{node}", system).get("gfx_target_version", 0)
        except ProbeError:
            continue
        if number > 0:
            found.append(f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
    return list(dict.fromkeys(found))


def _list_cards(system: System) -> list[KfdCard]:
    found = (_read_card(f"{NODES}/{node}", system) for node in _list_nodes(system))
    return [node for node in found if node is not None]


def _list_nodes(system: System) -> list[str]:
    """Lists the node names '0', '1', ... of AMD's driver in sysfs in numeric order; a node is a CPU or a GPU."""
    return sorted((path.name for path in (system.root / NODES).glob("*") if path.name.isdigit()), key=int)


def _read_properties(folder: str, system: System) -> dict[str, int]:
    """Returns name -> value of a node's properties that are whole numbers. Raises ProbeError if unreadable."""
    words = (line.split() for line in system.read(f"{folder}/properties").splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _read_card(folder: str, system: System) -> KfdCard | None:
    """Reads a GPU node; None for a CPU, and for a GPU that the container's device cgroup denies (EPERM)."""
    try:
        gpu_id = system.read(f"{folder}/gpu_id")
        if gpu_id == "0":
            return None
        properties = _read_properties(folder, system)
    except ProbeError:
        return None
    location, domain = properties.get("location_id", 0), properties.get("domain", 0)
    # The lowest three bits are a partition's number on MI300, not a PCI function.
    address = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
    unique_id = properties.get("unique_id", 0)
    return KfdCard(gpu_id, f"GPU-{unique_id:016x}" if unique_id else "", address)


def _filter_visible(cards: list[KfdCard], setting: str | None) -> list[KfdCard]:
    """Returns the cards that `setting` (ROCR_VISIBLE_DEVICES) names, in its order; all cards if it is None.
    It stops at the first entry that names no card."""
    if setting is None:
        return cards
    by_name = {str(index): found for index, found in enumerate(cards)} | {found.uuid: found for found in cards}
    left = []
    for entry in (part.strip() for part in setting.split(",")):
        if not entry or entry not in by_name:
            break
        left.append(by_name[entry])
    return left


def _has_memory(pid: int, gpu_id: str, system: System) -> bool:
    try:
        return system.read(f"{PROCESSES}/{pid}/vram_{gpu_id}") != "0"
    except ProbeError:
        return not any((system.root / PROCESSES / str(pid)).glob("vram_*"))


def read_process_name(pid: int, system: System) -> str:
    """Reads the name of a process; '(name not shown)' if this process may not see it."""
    try:
        return system.read(f"proc/{pid}/comm")
    except ProbeError:
        return "(name not shown)"

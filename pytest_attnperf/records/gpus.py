"""Frozen data of cards: which ones measured, and how they perform while the others work. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field

NAME_SHOWN = 12
"""Characters of a card's name in a line of text: 'GPU-' and eight of its UUID, or a PCI address."""

REFERENCES_SHARE = 64
"""A process keeps references for its next case in at most 1 / 64 of the GPU's memory: up to 16 processes wait there
while one measures. Without a limit they held 7 to 11 GiB each, and an H200 ran out of memory."""


def short_name(device_id: str) -> str:
    """Returns the first characters of a device id, as tables show it: 'GPU-1a2b3c4d' for 'GPU-1a2b3c4d-5e6f-...'."""
    return device_id[:NAME_SHOWN]


@dataclass(frozen=True)
class GpuRecord:
    """A card that took part in a run, and its settings, by the vendor's tools and the driver.

    device_id            as in `ProcessSummary.device_id`: 'GPU-<uuid>' on NVIDIA, the PCI address on AMD
    token                its name in CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES
    uuid, pci_bus        of the card; '' where not known
    compute_partition    'SPX', 'CPX', ...; the MIG mode on NVIDIA; '' where not known
    memory_partition     'NPS1', 'NPS4', ...; '' where there is none
    power_cap_w          watts as text; '' where not known
    cases                number of cases that it measured, alone or with others
    """

    device_id: str
    token: str = ""
    uuid: str = ""
    pci_bus: str = ""
    product: str = ""
    compute_partition: str = ""
    memory_partition: str = ""
    power_cap_w: str = ""
    cases: int = 0


@dataclass(frozen=True)
class TogetherGpu:
    """One card of a case that ran on all cards at once: microseconds per call alone, and while every other worked.

    alone_us, together_us    medians of the blocks of one process; of `together_us` only blocks that lie wholly within
                             the time in which every card was measuring count
    blocks                   number of blocks that count in `together_us`
    """

    device_id: str
    alone_us: float
    together_us: float
    blocks: int

    @property
    def interference(self) -> float:
        """Slowdown of this card while all others work, as a fraction: time together / time alone - 1."""
        return self.together_us / self.alone_us - 1


@dataclass(frozen=True)
class Together:
    """One case on all cards, alone in turns and then at once.

    overlap_s   seconds in which every card was measuring
    """

    gpus: tuple[TogetherGpu, ...]
    timer: str
    overlap_s: float

    @property
    def scaling(self) -> float:
        """Calls per second of all cards at once / those of the median card alone; ideal is the number of cards."""
        alone = sorted(1 / gpu.alone_us for gpu in self.gpus)
        middle = (alone[(len(alone) - 1) // 2] + alone[len(alone) // 2]) / 2
        return sum(1 / gpu.together_us for gpu in self.gpus) / middle


@dataclass(frozen=True)
class DeviceState:
    """The device's state, by the vendor's tools, before a run's first worker and after its last.

    before, after      readings by name and unit, e.g. {'sm_clock_mhz': '1980', 'temperature_c': '41'}
    throttled_s        seconds that the device was throttled during the run, by reason; only reasons that occurred
    other_processes    compute processes that ran before ours, each 'pid name'
    notes              what could not be read and why, and remarks on the device (exclusive mode), one line each
    """

    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    throttled_s: dict[str, float] = field(default_factory=dict)
    other_processes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

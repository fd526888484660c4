"""What a backend's configuration files have for one workload: which entry it takes, how well that fits, how old it is.

`attnperf tune --audit` asks every backend that is `Auditable`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload


class Coverage(str, enum.Enum):
    """How well the entry that is taken fits the workload. JSON has the values."""

    EXACT = "exact"
    """Its key is the workload's own: architecture, element type, and every size that the key names. Sizes that it does
    not name (`TableEntry.unnamed`) may still want another entry."""
    NEAREST = "nearest"
    """It is for other sizes or several element types, and is taken because none is closer."""
    DEFAULT = "default"
    """It is for everything, or of no architecture in particular."""
    NONE = "none"
    """No file has an entry; the library's own choice, or an error, follows."""


@dataclass(frozen=True)
class Tiles:
    """How an entry cuts a workload, as far as its file says.

    programs   programs (workgroups) of the launch
    filled     share of the area of their tiles that holds data, above 0 and at most 1
    """

    programs: int
    filled: float


@dataclass(frozen=True)
class TableEntry:
    """The entry of a configuration file that one kernel takes for one workload.

    kernel      name of the kernel
    file        as people find it, e.g. 'kernels/triton/configs/gemm/gfx942.json'; '' if no file has an entry
    key         the entry's key as text, e.g. 'head_dim_max 128, element_bits 16'
    apart       part of the key -> (the entry's value, the workload's value) where they differ
    unnamed     properties of a workload that the key does not name: the entry serves every value alike
    when        conditions with which `attnperf tune --when` would add an exact entry; empty if it cannot
    versions    software -> version that the file records for this entry; empty if it records none
    source      where the entry's figures come from, in the file's words; '' if it does not say
    tiles       None where the file does not say how the work is cut, with the reason in `no_tiles`
    tunable     whether `attnperf tune` can measure this kernel
    """

    kernel: str
    file: str
    key: str
    coverage: Coverage
    apart: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()
    when: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    tiles: Tiles | None = None
    no_tiles: str = ""
    tunable: bool = True


@runtime_checkable
class Auditable(Protocol):
    """A backend that can say which entries of its configuration files a workload takes. Needs no GPU, compiler or
    torch."""

    def find_entries(self, workload: Workload, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns the entry of each kernel that has a table for workloads of this family; nothing if the backend cannot
        run the workload on the device, whatever is installed here.

        Raises UnsupportedError where this backend has no table for it, and UsageError, naming the file, for a file
        that is malformed, empty, or has a key twice.
        """

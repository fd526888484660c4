"""A backend with a stored configuration in place of what it and its autotuners would choose (--attnperf-pin-config)."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.backends import Pinnable, pinned
from pytest_attnperf.measure.autotuners import PREFIX
from pytest_attnperf.measure.pinning import Pins, pinning
from pytest_attnperf.records import DeviceInfo, Tolerance

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload

PINNED_KEY = "pinned"
"""Entry of a pinned case's configuration: what was replayed, and what could not be."""


def pin(backend: Backend, config: Mapping[str, str]) -> Backend:
    """The backend with a stored configuration: its own choice replayed where it is Pinnable, its autotuners' anyway.

    Raises UsageError as `Pinnable.pinned` does. What an autotuner could not be given does not raise: the entry 'pinned'
    of the prepared configuration says it.
    """
    return PinnedBackend(pinned(backend, config), dict(config), isinstance(backend, Pinnable))


@dataclass(frozen=True)
class PinnedBackend:
    """A backend whose `prepare` runs under `pinning(config)`; everything else is the backend's own.

    replayed    whether the backend itself has taken over the configuration
    """

    backend: Backend
    config: Mapping[str, str]
    replayed: bool = False

    @property
    def name(self) -> str:
        """The backend's."""
        return self.backend.name

    @property
    def families(self) -> frozenset[str]:
        """The backend's."""
        return self.backend.families

    @property
    def cpu_flops_max(self) -> float:
        """The backend's."""
        return self.backend.cpu_flops_max

    @property
    def times_on_cpu(self) -> bool:
        """The backend's."""
        return self.backend.times_on_cpu

    @property
    def tolerance(self) -> Tolerance:
        """The backend's."""
        return self.backend.tolerance

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """The backend's."""
        return self.backend.unsupported_reasons(workload, device)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """As the backend's, and one call where it is needed to pin a kernel that has not run yet."""
        with pinning(self.config) as pins:
            prepared = self.backend.prepare(workload, inputs)
            if pins.unmet:
                prepared.run()
        # The choices lie in autotuners of the whole process: the next case must not find them.
        weakref.finalize(prepared, pins.release).atexit = False
        prepared.config |= {**pins.decided, PINNED_KEY: self._said(pins)}
        return prepared

    def _said(self, pins: Pins) -> str:
        if missed := pins.missed():
            return f"not all that is stored: {'; '.join(missed)}"
        any_entry = any(name.startswith(PREFIX) for name in self.config)
        return "as stored" if self.replayed or any_entry else "nothing: the stored configuration holds no choice"

"""The state of every card of a run, before its first worker and after its last, joined into one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.environment import device_state
from pytest_attnperf.records import DeviceState
from pytest_attnperf.records.gpus import short_name


@dataclass(frozen=True)
class CardWatch:
    """Readings of the cards of a run, by name; of a CPU there is one."""

    watches: Mapping[str, device_state.Watch]

    @classmethod
    def begin(cls, tokens: Sequence[str], *, own_device: bool = False) -> CardWatch:
        """Read every card's state. Of a conftest's own device nothing but the machine's load can be asked."""
        shown = [] if own_device else tokens
        watches = {token: device_state.begin(token) for token in shown} or {"": device_state.begin("")}
        return cls({_short(token): watch for token, watch in watches.items()})

    def end(self, device_id: str) -> DeviceState:
        """Read again, after the last worker.

        device_id   what the processes of a run on one card call it
        """
        if len(self.watches) == 1:
            [watch] = self.watches.values()
            return watch.end(device_id)
        return joined({name: watch.end() for name, watch in self.watches.items()})


def joined(states: Mapping[str, DeviceState]) -> DeviceState:
    """Of several cards, by name: every reading and every second says of which card it is, a note only where it is not
    of all.
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


def _short(token: str) -> str:
    """'GPU-1a2b3c4d' for a UUID, 'GPU 3' for an index."""
    return f"GPU {token}" if token.isdigit() else short_name(token)

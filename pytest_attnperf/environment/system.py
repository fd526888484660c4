"""Access of probes to the machine: files under a root and commands with a time limit, both replaceable in tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND_LIMIT_S = 5.0
"""Seconds after which a vendor tool counts as stuck on its driver."""


class ProbeError(Exception):
    """A value could not be read; the message says why and becomes part of the fingerprint."""


def run_command(command: Sequence[str]) -> str:
    """Returns the standard output of a command. Raises ProbeError if it is missing, fails or takes too long."""
    name = command[0]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    except FileNotFoundError:
        raise ProbeError(f"{name} not found") from None
    except OSError as error:
        raise ProbeError(f"{name}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise ProbeError(f"{name} did not answer in {COMMAND_LIMIT_S:g} s") from None
    if done.returncode:
        raise ProbeError(f"{name} exited with {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class System:
    """The machine: `root` holds /proc, /sys and /dev; `run` executes a command."""

    root: Path = Path("/")
    run: Callable[[Sequence[str]], str] = run_command

    def read(self, path: str) -> str:
        """Returns the stripped text of the file at `path` under `root`, written without a leading slash.
        Raises ProbeError that names the file if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise ProbeError(f"/{path}: {error.strerror}") from error


def probe_or_unknown(probe: Callable[[], str]) -> str:
    """Returns what `probe()` returns, or 'unknown (why)' on a ProbeError, so that a missing value is visible."""
    try:
        return probe()
    except ProbeError as error:
        return f"unknown ({error})"


@dataclass(frozen=True)
class ThrottleReading:
    """Counters of throttling at one moment. A reason was active for the share growth of its count / growth of `total`.

    counts   by reason; what a device does not count is left out, because 0 would say that it never happened
    total    counter of the time itself, in the unit of the counts
    """

    counts: dict[str, float]
    total: float


@dataclass(frozen=True)
class DeviceReading:
    """Values that were read from a device at one moment.

    values         by name and unit, as `records.DeviceState.before`
    throttled_us   microseconds of throttling since the driver was loaded, by reason
    notes          what could not be read and why, a line each
    fields         the fields of the query, so that the same query can be repeated
    """

    values: dict[str, str] = field(default_factory=dict)
    throttled_us: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

"""One look at a device's state, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """What was read of a device at one moment.

    values         by name and unit, as `records.DeviceState.before`
    throttled_us   microseconds that the clock was held down since the driver was loaded, by reason
    notes          what could not be read and why, a line each
    fields         what was asked for, so that the same can be asked again
    """

    values: dict[str, str] = field(default_factory=dict)
    throttled_us: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

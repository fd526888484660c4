"""Which devices and which Triton a Gluon kernel of ours needs. Triton is not imported."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_attnperf.environment.software import TRITON_DISTRIBUTIONS, version_of

if TYPE_CHECKING:
    from pytest_attnperf.records import DeviceInfo


def arch_reasons(who: str, device: DeviceInfo, since: Mapping[str, tuple[int, int]], instead: str) -> list[str]:
    """Returns why the device cannot run a Gluon kernel of ours: none is for it, or this Triton does not compile it.

    since      architecture with a kernel -> the oldest Triton, (major, minor), that compiles it
    instead    a backend to use where there is no kernel
    """
    if device.kind == "cpu":
        return [f"{who} is compiled for {' or '.join(since)}; Triton's interpreter does not run Gluon"]
    if device.arch not in since:
        return [f"{who} has a kernel for {' and '.join(since)}, not for {device.arch}; use {instead}"]
    if importlib.util.find_spec("triton") is None:
        return ["triton is not installed"]
    version = next(filter(None, map(version_of, TRITON_DISTRIBUTIONS)), "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    oldest = since[device.arch]
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < oldest:
        return [f"{who} needs Triton {oldest[0]}.{oldest[1]} or newer on {device.arch}; this is {version}; install one"]
    return []

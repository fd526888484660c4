"""The description of a sweep over the configurations of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Config = Mapping[str, int | bool]


@dataclass(frozen=True)
class SizeClass:
    """Problems that get one rule.

    when          the rule's conditions
    workloads     ids of the workloads it is timed on; the cost of a candidate is the geometric mean of its times over
                  the fastest's
    candidates    configurations tried
    """

    when: Mapping[str, int | bool | str]
    workloads: tuple[str, ...]
    candidates: tuple[Config, ...]


@dataclass(frozen=True)
class Sweep:
    """One kernel of one backend.

    kernel     name of its space, and of its folder of configurations
    backend    name of a registered backend that launches it and is `Configured`
    classes    in the order of the rules: the first that takes a problem is used
    """

    kernel: str
    backend: str
    classes: tuple[SizeClass, ...]

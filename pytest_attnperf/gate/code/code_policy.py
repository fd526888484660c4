"""The policy for compiled kernels: a frozen record, stored with each entry so that loosening it is detected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.errors import BaselineError, UsageError

ALWAYS = ("lds_limit", "matrix", "store")
"""Kinds of findings that always fail: no launch would succeed, or the kernel cannot do its job."""

UNLESS_ACCEPTED = ("spills", "scratch")
"""Kinds that fail unless the stored entry was accepted with at least as many."""

BY_POLICY = ("occupancy", "wider_loads", "vgprs", "lds", "code_size", "launch")
"""Kinds that fail where the policy says so, and warn otherwise."""

KINDS = (*BY_POLICY, *UNLESS_ACCEPTED, *ALWAYS)
"""Every kind of finding."""

DEFAULT_FAIL_ON = frozenset({"occupancy", "wider_loads"})

GROWTH_MAX_PERCENT = 1000.0


@dataclass(frozen=True)
class CodePolicy:
    """Which findings fail. Raises UsageError naming the field, its value and what is allowed.

    fail_on          kinds of `BY_POLICY` that fail the pytest item; naming other kinds has no effect
    growth_percent   growth of LDS or code up to this is no finding
    """

    fail_on: frozenset[str] = DEFAULT_FAIL_ON
    growth_percent: float = 1.0

    def __post_init__(self) -> None:
        kinds: object = self.fail_on
        if isinstance(kinds, str) or not isinstance(kinds, (frozenset, set, list, tuple)):
            raise UsageError(f"code policy fail_on is {kinds!r}; allowed: a set of {', '.join(KINDS)}")
        for kind in sorted(kinds, key=str):
            if kind not in KINDS:
                raise UsageError(f"code policy fail_on has the unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
        object.__setattr__(self, "fail_on", frozenset(kinds) & frozenset(BY_POLICY))
        growth: object = self.growth_percent
        number = isinstance(growth, (int, float)) and not isinstance(growth, bool) and math.isfinite(growth)
        if not number or not 0 <= self.growth_percent <= GROWTH_MAX_PERCENT:
            raise UsageError(
                f"code policy growth_percent is {growth!r}; allowed: a number from 0 to {GROWTH_MAX_PERCENT:g}"
            )

    @classmethod
    def from_text(cls, fail_on: str, growth_percent: str) -> CodePolicy:
        """Returns the policy of two option values: kinds that fail ('occupancy,wider_loads', '' or 'all') and allowed
        growth in percent ('1').

        Raises UsageError naming the field, its value and what is allowed.
        """
        words = [word.strip().lower() for word in fail_on.split(",") if word.strip()]
        try:
            growth = float(growth_percent)
        except ValueError:
            raise UsageError(
                f"code policy growth_percent is {growth_percent!r}; allowed: a number from 0 to {GROWTH_MAX_PERCENT:g}"
            ) from None
        return cls(frozenset(BY_POLICY if words == ["all"] else words), growth)

    def fails_on(self, kind: str) -> bool:
        """Returns whether a finding of this kind fails the test: the policy names it, or cannot switch it off."""
        return kind in self.fail_on or kind not in BY_POLICY

    def to_record(self) -> dict[str, Any]:
        """Returns the policy's fields by name, as builtin types; `fail_on` is sorted so that records compare equal."""
        return {"fail_on": sorted(self.fail_on), "growth_percent": float(self.growth_percent)}

    def list_loosened(self, stored: Mapping[str, Any]) -> list[str]:
        """Returns each setting that is looser than in `stored` (from `to_record`), e.g. 'growth_percent 1 -> 5'.

        Ignores a setting that `stored` does not have. Raises BaselineError when a stored value is of the wrong type.
        """
        found = []
        before = _stored_number(stored.get("growth_percent", self.growth_percent))
        if self.growth_percent > before:
            found.append(f"growth_percent {before:g} -> {self.growth_percent:g}")
        lost = sorted(_stored_kinds(stored.get("fail_on", [])) - self.fail_on)
        if lost:
            found.append(f"fail_on no longer has {', '.join(lost)}")
        return found


def _stored_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BaselineError(f"stored code policy growth_percent is {value!r}, expected a number; record it again")
    return float(value)


def _stored_kinds(value: object) -> set[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(kind, str) for kind in value):
        raise BaselineError(f"stored code policy fail_on is {value!r}, expected a list of kinds; record it again")
    return set(value)

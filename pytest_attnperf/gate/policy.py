"""The policy that a case is judged by: a frozen record, stored with each entry so that loosening is detected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from pytest_attnperf.errors import BaselineError, UsageError, propose_name
from pytest_attnperf.records import Verdict

MAY_FAIL = (
    Verdict.SLOWER,
    Verdict.INCORRECT,
    Verdict.SUSPICIOUS,
    Verdict.ERROR,
    Verdict.UNSUPPORTED,
    Verdict.UNDECIDED,
    Verdict.NO_BASELINE,
    Verdict.INCOMPARABLE,
    Verdict.ENVIRONMENT,
    Verdict.MOVED,
    Verdict.DRIFT,
    Verdict.STALE,
)
"""Verdicts that can be configured to fail. The gate is one-sided: FASTER and SAME never fail."""

DEFAULT_FAIL_ON = (Verdict.SLOWER, Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR)


LOOSER = (("threshold_percent", 1), ("floor_us", 1), ("suite_false_alarm_rate", -1), ("creep_percent", 1))
"""Numeric settings, each with the direction that makes it looser."""

PR, CHECK, CPU, NIGHTLY = "pr", "check", "cpu", "nightly"
TIERS = (PR, NIGHTLY)
"""Values of --attnperf-tier: nightly runs take what pull requests take, and more."""

CASE_TIERS = (PR, CHECK, CPU, NIGHTLY)
"""Values of a marker's `tier`, with the runs that take the case: every run; runs that time nothing, and nightly ones;
runs that time nothing or have no GPU, and nightly ones; nightly ones only."""

LINK_MOST = 300
"""Most characters of a quarantine's link, which every report shows in one line."""


@dataclass(frozen=True)
class Policy:
    """Thresholds and consequences of one case. Raises UsageError naming the field, its value and what is allowed.

    threshold_percent        slower by no more than this is SAME, whatever the noise
    floor_us                 slower by no more than this many microseconds per call is SAME
    creep_percent            slower than the anchor by more than this is a finding, however small each step was
    suite_false_alarm_rate   accepted chance that a run over unchanged code has any false SLOWER
    fail_on                  verdicts that fail the pytest item
    tier                     'nightly' where a timed run of tier 'pr' leaves the case out, 'cpu' where it does so on a
                             GPU, else ''; a case that is never timed has ''
    quarantine               link of the issue because of which its times do not fail the test until `quarantine_until`
                             (YYYY-MM-DD, the last such day), else ''
    """

    threshold_percent: float = 2.0
    floor_us: float = 0.5
    suite_false_alarm_rate: float = 0.01
    creep_percent: float = 5.0
    fail_on: tuple[Verdict, ...] = DEFAULT_FAIL_ON
    tier: str = ""
    quarantine: str = ""
    quarantine_until: str = ""

    def __post_init__(self) -> None:
        _require_number("threshold_percent", self.threshold_percent, "a number from 0 to 100", 0, 100)
        _require_number("floor_us", self.floor_us, "a finite number of microseconds, 0 or more", 0, math.inf)
        _require_number("suite_false_alarm_rate", self.suite_false_alarm_rate, "a number from 1e-6 to 0.4", 1e-6, 0.4)
        _require_number("creep_percent", self.creep_percent, "a number from 0 to 1000", 0, 1000)
        object.__setattr__(self, "fail_on", _parse_verdicts(self.fail_on))
        tier = require_tier(self.tier, "policy tier", CASE_TIERS)
        object.__setattr__(self, "tier", tier if tier in (CPU, NIGHTLY) else "")
        require_quarantine(self.quarantine, self.quarantine_until, "policy")

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Policy:
        """Returns the policy of a `to_record` dict, ignoring unknown fields. Raises UsageError if a value is
        invalid."""
        known = {part.name for part in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known})

    def to_record(self) -> dict[str, Any]:
        """Returns the policy's fields by name, as builtin types; `fail_on` is sorted so that records compare equal.

        Tier and quarantine are left out where they are not set, so that a policy without them keeps the id it had
        before these fields existed.
        """
        optional = {name: getattr(self, name) for name in ("tier", "quarantine", "quarantine_until")}
        return {
            "threshold_percent": float(self.threshold_percent),
            "floor_us": float(self.floor_us),
            "suite_false_alarm_rate": float(self.suite_false_alarm_rate),
            "creep_percent": float(self.creep_percent),
            "fail_on": sorted(verdict.value for verdict in self.fail_on),
            **{name: text for name, text in optional.items() if text},
        }

    def list_loosened(self, stored: Mapping[str, Any]) -> list[str]:
        """Returns each setting that is looser than in `stored` (from `to_record`), e.g. 'threshold_percent 2 -> 5'.

        A smaller false-alarm rate is looser: it requires more evidence. So is a quarantine that is new or lasts longer,
        and a case that only nightly runs measure. Ignores any other setting that `stored` does not have. Raises
        BaselineError when a stored value is of the wrong type.
        """
        ours = self.to_record()
        found = []
        for field, looser in LOOSER:
            if field in stored and looser * (ours[field] - _stored_number(field, stored[field])) > 0:
                found.append(f"{field} {stored[field]:g} -> {ours[field]:g}")
        lost = sorted(_stored_names(stored.get("fail_on", [])) - set(ours["fail_on"]))
        if lost:
            found.append(f"fail_on no longer has {', '.join(lost)}")
        if self.tier and stored.get("tier", "") not in (self.tier, NIGHTLY):
            found.append("measured by nightly runs only" + (", and on a CPU" if self.tier == CPU else ""))
        return [*found, *self._quarantined_since(str(stored.get("quarantine_until", "")))]

    def _quarantined_since(self, stored_until: str) -> list[str]:
        """Returns a line if a quarantine began or was extended since the stored date ('' for none); else []."""
        if self.quarantine_until <= stored_until:
            return []
        if stored_until:
            return [f"quarantine extended {stored_until} -> {self.quarantine_until}: {self.quarantine}"]
        return [f"quarantined until {self.quarantine_until}: {self.quarantine}"]


def require_tier(value: object, what: str, tiers: Sequence[str] = TIERS) -> str:
    """Returns the tier as text, '' for None. Raises UsageError naming `what`, the value and the known tiers."""
    if value not in (None, "", *tiers):
        near = propose_name(str(value), tiers)
        raise UsageError(f"{what} is {value!r}{near}; known tiers: {', '.join(tiers)}")
    return str(value or "")


def require_quarantine(link: object, until: object, where: str) -> None:
    """Raises UsageError, starting with `where`, unless a quarantine has a link and a date (YYYY-MM-DD), or neither."""
    if not link and not until:
        return
    example = 'quarantine="https://... or #123", until="YYYY-MM-DD"'
    if not link or not until:
        given, lacking = (("quarantine", link), "until") if link else (("until", until), "quarantine")
        raise UsageError(f"{where} has {given[0]}={given[1]!r} without {lacking}; a quarantine needs both: {example}")
    shown = repr(link) if len(repr(link)) <= LINK_MOST else f"{repr(link)[:LINK_MOST]}..."
    if not isinstance(link, str) or not link.isprintable() or not link.strip() or len(link) > LINK_MOST:
        raise UsageError(f"{where} has quarantine={shown}; expected the link of an issue: {example}")
    if not isinstance(until, str) or not _is_date(until):
        raise UsageError(f"{where} has until={until!r}, which is not a date YYYY-MM-DD; {example}")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _require_number(field: str, value: object, allowed: str, low: float, high: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
        raise UsageError(f"policy {field} is {value!r}; allowed: {allowed}")


def _parse_verdicts(names: object) -> tuple[Verdict, ...]:
    allowed = ", ".join(verdict.value for verdict in MAY_FAIL)
    if isinstance(names, str) or not isinstance(names, (list, tuple, set, frozenset)):
        raise UsageError(f"policy fail_on is {names!r}; allowed: a list of {allowed}")
    for name in names:
        if name not in MAY_FAIL:
            shown = name.value if isinstance(name, Verdict) else name
            raise UsageError(f"policy fail_on has {shown!r}, which cannot fail a case; allowed: {allowed}")
    return tuple(verdict for verdict in MAY_FAIL if verdict in names)


def _stored_number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BaselineError(f"stored policy {field} is {value!r}, expected a number; record the baseline again")
    return float(value)


def _stored_names(value: object) -> set[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise BaselineError(f"stored policy fail_on is {value!r}, expected a list of verdicts; record it again")
    return set(value)

"""Finds what a kernel does by its name: ordered rules in `kernel_families.json`, after those of a user's own file.

    {"schema": 1, "rules": [
      {"pattern": "^my_attention", "family": "attention", "nature": "compute", "why": "our own kernel"}
    ]}

A pattern is a regular expression of Python, searched anywhere in a name; the first rule that matches decides.

Some regular expressions may take for ever on a name that they do not match. Names are searched up to a limited length.
So the time of unbounded repeats in sequence is bounded by a power of that length. A repeat within a repeat, or of
alternatives, may take exponential time, whatever the length. Such patterns are refused, even if some are harmless.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.regular_file import read_regular

SCHEMA = 1
BYTES_MAX = 1 << 20
NATURES = ("compute", "conversion", "copy", "fill", "communication", "other")
KINDS = ("kernel", "copy", "set", "operator")
NEEDED = ("pattern", "family", "nature")
FIELDS = (*NEEDED, "kind", "why")

MATCHED_CHARACTERS = 1000
"""Most characters of a name that are matched, to bound the time; longer names repeat template arguments."""

_SUFFIXES = (" [clone .kd]", ".kd")

MAX_PATTERN = 500
"""Most characters of a pattern."""

MAX_REPEATS = 3
"""Most unbounded repeats in one pattern: `*`, `+`, `{2,}`."""

_TOKEN = re.compile(
    r"\\."
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<open>\((?:\?(?:[a-zA-Z-]*:|P<\w+>|P=|<?[=!]|\(\w+\)))?)"
    r"|(?P<close>\))"
    r"|(?P<many>(?:[*+]|\{\d*,\})[?+]?)"
    r"|(?P<counted>\{\d+(?:,\d+)?\})"
    r"|(?P<either>\|)"
    r"|.",
    re.DOTALL,
)
"""Matches pieces of a pattern. A class in brackets or an escaped character is one piece and no risk."""


class KernelFamily(NamedTuple):
    """A family of kernels. `nature` is as in `FamilyTime`."""

    name: str
    nature: str


MEMORY_COPY = "memory copy"


ATTENTION = "attention"


SOFTMAX = "softmax"
"""Families of the default rules that other modules use."""


OTHER = KernelFamily("other", "other")
"""Family of a name that matches no rule."""


@dataclass(frozen=True)
class FamilyRule:
    """One rule of a file. `kind` is the only kind that it applies to, '' for all; `why` a source or reason, for
    readers."""

    pattern: re.Pattern[str]
    family: KernelFamily
    kind: str = ""
    why: str = ""


@dataclass(frozen=True)
class FamilyRules:
    """Rules in the order in which they are tried. Results are cached by name, so a name is matched once. The first
    `own` rules are of a user's file."""

    rules: tuple[FamilyRule, ...]
    own: int = 0
    _known: dict[tuple[str, str], KernelFamily] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def load_default() -> FamilyRules:
        """Returns the rules of this package, from kernel_families.json."""
        return _load_default()

    @staticmethod
    def load(path: Path) -> FamilyRules:
        """Returns the rules of a user's file, then those of this package.

        Raises UsageError for a file that cannot be used, with the rule, the field, and what is allowed."""
        try:
            text = read_regular(path, BYTES_MAX).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the rules of kernel families {path}: {error}") from error
        own = _parse_rules(text, str(path))
        return FamilyRules(own + _load_default().rules, len(own))

    def is_own(self, name: str) -> bool:
        """Returns whether a rule of the user's file decides what a kernel is."""
        part = _cut_matched(name)
        return any(rule.kind in ("", "kernel") and rule.pattern.search(part) for rule in self.rules[: self.own])

    def find_beside(self, name: str, family: str) -> KernelFamily | None:
        """Returns what a kernel is by the rules of all families but one; None if none of them matches."""
        part = _cut_matched(name)
        others = (rule for rule in self.rules if rule.kind in ("", "kernel") and rule.family.name != family)
        return next((rule.family for rule in others if rule.pattern.search(part)), None)

    def with_families(self, families: Mapping[str, KernelFamily]) -> FamilyRules:
        """Returns the same rules, but for kernels of these names the families given."""
        return replace(self, _known={(name, "kernel"): family for name, family in families.items()})

    def find_family(self, name: str, kind: str = "kernel") -> KernelFamily:
        """Returns the family of a kernel, copy or memory set by its name; `OTHER` if no rule matches."""
        known = self._known.get((name, kind))
        if known is None:
            known = self._known[name, kind] = self._match_rules(name, kind)
        return known

    def is_memory_work(self, name: str, kind: str = "kernel") -> bool:
        """Returns whether a kernel, copy or memory set only copies or fills memory. The runtime and frameworks do that,
        too, so its calls do not show how many forward passes ran."""
        family = self.find_family(name, kind)
        return kind in ("copy", "set") or family.nature == "fill" or family.name == MEMORY_COPY

    def _match_rules(self, name: str, kind: str) -> KernelFamily:
        part = _cut_matched(name)
        for rule in self.rules:
            if rule.kind in ("", kind) and rule.pattern.search(part):
                return rule.family
        return OTHER


def _cut_matched(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name[:MATCHED_CHARACTERS]


@functools.cache
def _load_default() -> FamilyRules:
    file = resources.files("pytest_attnperf.tools.profilers").joinpath("kernel_families.json")
    return FamilyRules(_parse_rules(file.read_text(encoding="utf-8"), file.name))


def _parse_rules(text: str, where: str) -> tuple[FamilyRule, ...]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise UsageError(f"{where} is no JSON: {error}; see docs/profiling.md for an example") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UsageError(
            f'{where}: schema is {schema!r}; known is {SCHEMA}, as in {{"schema": {SCHEMA}, "rules": [...]}}'
        )
    rows = document.get("rules")
    if not isinstance(rows, list):
        raise UsageError(f"{where}: rules is {type(rows).__name__}, must be a list of objects with {', '.join(FIELDS)}")
    return tuple(_parse_rule(row, f"{where}: rule {number}") for number, row in enumerate(rows, 1))


def _parse_rule(row: Any, where: str) -> FamilyRule:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is {row!r}, must be an object with {', '.join(FIELDS)}")
    for name, value in row.items():
        if name not in FIELDS:
            raise UsageError(f"{where} has a field {name!r}; known are {', '.join(FIELDS)}")
        if not isinstance(value, str):
            raise UsageError(f"{where}: {name} is {value!r}, must be text")
    missing = [name for name in NEEDED if name not in row]
    if missing:
        raise UsageError(f"{where} has no {', '.join(missing)}; needed are {', '.join(NEEDED)}")
    _check_words(row, where)
    family = KernelFamily(row["family"], row["nature"])
    return FamilyRule(_compile_pattern(row["pattern"], where), family, row.get("kind", ""), row.get("why", ""))


def _check_words(row: Mapping[str, str], where: str) -> None:
    if not row["family"].strip():
        raise UsageError(f"{where}: family is {row['family']!r}, must be a name such as 'attention'")
    if row["nature"] not in NATURES:
        raise UsageError(f"{where}: nature is {row['nature']!r}; allowed are {', '.join(NATURES)}")
    if row.get("kind", "") not in ("", *KINDS):
        raise UsageError(f"{where}: kind is {row['kind']!r}; allowed are {', '.join(KINDS)}, or none for all")
    if not row["pattern"] and not row.get("kind"):
        raise UsageError(f"{where}: pattern is empty and would match every name; only a rule with a kind may have none")


def _compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    if len(pattern) > MAX_PATTERN:
        raise UsageError(
            f"{where}: pattern has {len(pattern)} characters, at most {MAX_PATTERN}; split it into several rules"
        )
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{where}: pattern {pattern!r} is no regular expression of Python: {error}") from error
    risk = find_pattern_risk(pattern)
    if risk:
        raise UsageError(f"{where}: pattern {pattern!r} may take for ever: {risk}; simplify it")
    return compiled


def find_pattern_risk(pattern: str) -> str:
    """Returns why matching a regular expression may take too long (e.g. nested repeats); '' if it cannot."""
    repeats = 0
    risky = [False]  # for each open group: whether it holds an unbounded repeat or alternatives
    closed = False  # the same for the group that has just ended
    for token in _TOKEN.finditer(pattern):
        repeated = token["many"] or token["counted"]
        if repeated and closed:
            return f"{repeated!r} repeats a group that itself repeats or has alternatives; write it without that group"
        repeats += bool(token["many"])
        risky[-1] |= bool(token["many"] or token["either"])
        closed = False
        if token["open"]:
            risky.append(False)
        elif token["close"]:
            closed = risky.pop()
            risky[-1] |= closed
    if repeats > MAX_REPEATS:
        return f"{repeats} unbounded repeats, at most {MAX_REPEATS}"
    return ""

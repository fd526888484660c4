"""Claims of a report: read from JSON or YAML, checked, and told in lines. docs/claims.md describes the document."""

from __future__ import annotations

import importlib
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profiles import Finding, ProfileSummary
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.claims import arithmetic as claim_rules_arithmetic
from pytest_attnperf.tools.profilers.claims import bound as claim_rules_bound
from pytest_attnperf.tools.profilers.claims import device as claim_rules_device
from pytest_attnperf.tools.profilers.claims import occupancy as claim_rules_occupancy
from pytest_attnperf.tools.profilers.claims import profile as claim_rules_profile
from pytest_attnperf.tools.profilers.claims import table as claim_rules_table
from pytest_attnperf.tools.profilers.claims import work as claim_rules_work
from pytest_attnperf.tools.profilers.claims.figures import Figure
from pytest_attnperf.tools.profilers.claims.records import CLAIMS_SCHEMA, Claims
from pytest_attnperf.tools.profilers.claims.rules import known_of

RULES = (
    *(claim_rules_device.check, claim_rules_occupancy.check, claim_rules_work.check),
    *(claim_rules_bound.check, claim_rules_table.check, claim_rules_arithmetic.check),
)
"""What is checked of the document alone, in the order of the findings. A new rule is a file here and a name in it."""

MOST_BYTES = 2**20
YAML_ENDINGS = (".yaml", ".yml")

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>.*?)`(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

TEXT_LIMIT = 2000


def check_claims(claims: Claims, summary: ProfileSummary | None = None) -> tuple[Finding, ...]:
    """Every check that the document allows, and with a profile beside it those against the profile."""
    known = known_of(claims)
    found = [one for check in RULES for one in check(known)]
    if summary is not None:
        found += claim_rules_profile.check(known, summary)
    return tuple(found)


def read_claims(path: Path) -> Claims:
    """The claims of a JSON file, or of a YAML file where PyYAML is installed.

    Raises UsageError naming the file, the field, the value seen and what is expected.
    """
    content = _content(path)
    try:
        if path.suffix.lower() in YAML_ENDINGS:
            claims = msgspec.convert(_yaml(content, path), type=Claims, dec_hook=_figure)
        else:
            claims = msgspec.json.decode(content, type=Claims, dec_hook=_figure)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_explained(str(error))}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: is no JSON ({error}); a claims file is a JSON document as docs/claims.md describes, or YAML with "
            f"the ending {YAML_ENDINGS[0]}"
        ) from error
    if claims.schema != CLAIMS_SCHEMA:
        raise UsageError(f"{path}: field `schema` is {claims.schema}; this version reads {CLAIMS_SCHEMA}")
    return claims


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES, advice="; was a trace given?")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _yaml(content: bytes, path: Path) -> object:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise UsageError(
            f"{path}: reading YAML needs PyYAML, which is not installed: pip install 'pytest-attnperf[yaml]', "
            "or write the claims as JSON (any YAML of this form is JSON with quotes and brackets)"
        ) from error
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: is no YAML of plain values ({error})") from error


def _figure(kind: type[Any], value: object) -> object:
    if issubclass(kind, Figure):
        return kind.read(value)
    raise NotImplementedError(f"{kind} is no figure")


def _explained(message: str) -> str:
    """msgspec's message without what a terminal would act on; of an unknown field with the fields that exist there."""
    message = "".join(letter if letter.isprintable() else "?" for letter in message)
    unknown = _UNKNOWN_FIELD.fullmatch(message)
    if unknown is None:
        return message
    path = unknown["path"] or "$"
    fields = _record_at(path).__struct_fields__
    return f"unknown field `{unknown['field']}` at `{path}`; there are: {', '.join(sorted(fields))}"


def _record_at(path: str) -> type[msgspec.Struct]:
    """The record that a path such as `$.table.rows[0]` leads to."""
    record: type[msgspec.Struct] = Claims
    for step in _STEP.findall(path):
        record = _records_in(typing.get_type_hints(record)[step])[0]
    return record


def _records_in(hint: object) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [found for part in typing.get_args(hint) for found in _records_in(part)]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """A line per finding, contradictions first, and a line of counts behind them."""
    wrong = [found for found in findings if found.holds is False]
    open_ = [found for found in findings if found.holds is None]
    right = [found for found in findings if found.holds]
    lines = [_line("CONTRADICTED", found) for found in wrong]
    lines += [_line("OPEN", found) for found in open_]
    lines += [_line("holds", found) for found in right]
    return [*lines, f"{len(wrong)} contradicted, {len(open_)} open, {len(right)} hold"]


def _line(word: str, found: Finding) -> str:
    return one_line(f"{word} {found.rule}: {found.text}", TEXT_LIMIT)

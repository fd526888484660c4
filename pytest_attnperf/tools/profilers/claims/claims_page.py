"""Reads a report's claims from JSON or YAML, checks them alone and against a profile, and formats findings as lines.

examples/claims/README.md describes the document.
"""

from __future__ import annotations

import importlib
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.counters import plain_name
from pytest_attnperf.records.profiles import FamilyTime, KernelShape, KernelTime, ProfileFinding, ProfileSummary
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.claims import claimed_arithmetic as claim_rules_arithmetic
from pytest_attnperf.tools.profilers.claims import claimed_bound as claim_rules_bound
from pytest_attnperf.tools.profilers.claims import claimed_device as claim_rules_device
from pytest_attnperf.tools.profilers.claims import claimed_occupancy as claim_rules_occupancy
from pytest_attnperf.tools.profilers.claims import table as claim_rules_table
from pytest_attnperf.tools.profilers.claims import work as claim_rules_work
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    Known,
    format_count,
    letters_of,
    make_agreement,
    make_contradiction,
    make_known,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    PrintedFigure,
    exact_interval,
    format_percent,
    format_seconds,
)
from pytest_attnperf.tools.profilers.claims.records import CLAIMS_SCHEMA, Claims, ReportedKernel, ReportedRow
from pytest_attnperf.tools.profilers.claims.table import NATURES, format_row

RULES = (
    *(claim_rules_device.assess_claims, claim_rules_occupancy.assess_claims, claim_rules_work.assess_claims),
    *(claim_rules_bound.assess_claims, claim_rules_table.assess_claims, claim_rules_arithmetic.assess_claims),
)
"""Checks of the document alone, in the order of the findings. A new one is a module in this folder and a line here."""

MOST_BYTES = 2**20
YAML_ENDINGS = (".yaml", ".yml")

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>.*?)`(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

TEXT_LIMIT = 2000

NS = 1e-9
MOST_NAMES = 8
"""Most families that a message lists."""


def assess_report(claims: Claims, summary: ProfileSummary | None = None) -> tuple[ProfileFinding, ...]:
    """Returns a finding for each check of a report's claims, alone and, if `summary` is given, against that profile."""
    known = make_known(claims)
    found = [one for check in RULES for one in check(known)]
    if summary is not None:
        found += _assess_against_profile(known, summary)
    return tuple(found)


def read_claims(path: Path) -> Claims:
    """Reads a report's claims from a JSON file, or from a YAML file if PyYAML is installed.

    Raises UsageError that names the file, the field, the value found and what is expected."""
    content = _read_content(path)
    try:
        if path.suffix.lower() in YAML_ENDINGS:
            claims = msgspec.convert(_parse_yaml(content, path), type=Claims, dec_hook=_parse_figure)
        else:
            claims = msgspec.json.decode(content, type=Claims, dec_hook=_parse_figure)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_describe_error(str(error))}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: is no JSON ({error}); a claims file is a JSON document as examples/claims/README.md describes, "
            f"or YAML with the ending {YAML_ENDINGS[0]}"
        ) from error
    if claims.schema != CLAIMS_SCHEMA:
        raise UsageError(f"{path}: field `schema` is {claims.schema}; this version reads {CLAIMS_SCHEMA}")
    return claims


def _read_content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES, advice="; was a trace given?")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _parse_yaml(content: bytes, path: Path) -> object:
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


def _parse_figure(kind: type[Any], value: object) -> object:
    if issubclass(kind, PrintedFigure):
        return kind.parse(value)
    raise NotImplementedError(f"{kind} is no figure")


def _describe_error(message: str) -> str:
    """Returns msgspec's message without control characters. For an unknown field, adds the fields that exist there."""
    message = "".join(letter if letter.isprintable() else "?" for letter in message)
    unknown = _UNKNOWN_FIELD.fullmatch(message)
    if unknown is None:
        return message
    path = unknown["path"] or "$"
    fields = _find_record(path).__struct_fields__
    return f"unknown field `{unknown['field']}` at `{path}`; known: {', '.join(sorted(fields))}"


def _find_record(path: str) -> type[msgspec.Struct]:
    """Returns the record type that a claims document has at a path such as `$.table.rows[0]`."""
    record: type[msgspec.Struct] = Claims
    for step in _STEP.findall(path):
        record = _list_records(typing.get_type_hints(record)[step])[0]
    return record


def _list_records(hint: object) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [found for part in typing.get_args(hint) for found in _list_records(part)]


def finding_lines(findings: Sequence[ProfileFinding]) -> list[str]:
    """Returns a line per finding (contradictions first, then undecided ones, then those that hold) and a line of
    counts."""
    wrong = [found for found in findings if found.holds is False]
    open_ = [found for found in findings if found.holds is None]
    right = [found for found in findings if found.holds]
    lines = [_format_finding("CONTRADICTED", found) for found in wrong]
    lines += [_format_finding("OPEN", found) for found in open_]
    lines += [_format_finding("holds", found) for found in right]
    return [*lines, f"{len(wrong)} contradicted, {len(open_)} open, {len(right)} hold"]


def _format_finding(word: str, found: ProfileFinding) -> str:
    return one_line(f"{word} {found.rule}: {found.text}", TEXT_LIMIT)


@dataclass(frozen=True)
class _Seen:
    """A profile's figures for one name. `nature` is '' for a kernel."""

    name: str
    calls: int
    total_ns: int
    share: float
    nature: str = ""


def _assess_against_profile(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    """Yields a finding for each comparison of a report's device, totals, rows, kernel and passes with a profile."""
    yield from _compare_device(known, summary)
    yield from _compare_totals(known, summary)
    for row in known.claims.table.rows if known.claims.table else ():
        yield from _compare_row(row, summary)
    yield from _compare_kernel(known, summary)
    yield from _compare_passes(known, summary)
    yield from claim_rules_arithmetic.assess_with_profile(known, summary)


def _compare_device(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    device, archs = known.claims.device, {agent.arch for agent in summary.agents if agent.kind == "gpu" and agent.arch}
    if device is None or not archs:
        return
    said = f"a report about {device.arch}"
    text = f"{', '.join(sorted(archs))} in the profile"
    if device.arch in archs:
        yield make_agreement("profile: device", said, f"{said}: {text}")
    else:
        yield make_contradiction("profile: device", said, text)


def _compare_totals(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    table = known.claims.table
    if table and table.total:
        yield _compare_figure("profile: total time", table.total.said, table.total.time, summary.total_ns * NS, "s")
    if table and table.calls:
        yield _compare_count("profile: total calls", table.calls.said, table.calls.count, summary.calls, "call")


def _compare_row(row: ReportedRow, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    said = format_row(row)
    seen = _find_in_profile(row, summary)
    mixed = _describe_mixed_row(row, summary.families) if seen is None or seen.calls != row.calls else ""
    if mixed:
        yield make_contradiction(f"profile: nature of {row.name}", f"{said}, {NATURES[row.nature or 'other']}", mixed)
        return
    if seen is None:
        names = ", ".join(family.family for family in summary.families[:MOST_NAMES]) or "none"
        text = f"{said}: the profile has no family or kernel of this name; families: {names}"
        yield make_open_finding(f"profile: {row.name}", said, text)
        return
    yield _compare_figure(f"profile: time of {row.name}", said, row.time, seen.total_ns * NS, "s")
    if row.calls is not None:
        yield _compare_count(f"profile: calls of {row.name}", said, row.calls, seen.calls, "call")
    if row.percent is not None:
        yield _compare_figure(f"profile: share of {row.name}", said, row.percent, seen.share, "%")
    if row.nature and seen.nature and row.nature != seen.nature:
        text = f"{format_count(seen.calls, 'call')} of {seen.name} are {NATURES.get(seen.nature, seen.nature)}"
        yield make_contradiction(f"profile: nature of {row.name}", f"{said}, {NATURES[row.nature]}", text)
    for member in row.members:
        found = _find_kernel(member.name, summary.kernels)
        if found is not None:
            rule, words = f"profile: calls of {member.name}", f"{row.name}: {member.calls} {member.name}"
            yield _compare_count(rule, words, member.calls, found.spread.calls, "call")


def _find_in_profile(row: ReportedRow, summary: ProfileSummary) -> _Seen | None:
    wanted = letters_of(row.family or row.name)
    for family in summary.families:
        if letters_of(family.family) == wanted:
            return _Seen(family.family, family.calls, family.total_ns, family.share, family.nature)
    kernel = _find_kernel(row.family or row.name, summary.kernels)
    if kernel is None:
        return None
    return _Seen(kernel.name, kernel.spread.calls, kernel.spread.total_ns, kernel.share)


def _describe_mixed_row(row: ReportedRow, families: Sequence[FamilyTime]) -> str:
    """Returns in words which kernel families of a profile a report's row seems to add up: all of the row's nature and
    one or two others, if their calls sum to the row's. '' if no such sum does."""
    own = [family for family in families if family.nature == row.nature]
    others = [family for family in families if family.nature != row.nature]
    if row.nature is None or row.calls is None or not own:
        return ""
    for count in (1, 2):
        for added in combinations(others, count):
            parts = (*own, *added)
            if sum(family.calls for family in parts) == row.calls:
                return " + ".join(_format_family(family) for family in parts)
    return ""


def _format_family(family: FamilyTime) -> str:
    nature = NATURES.get(family.nature, family.nature)
    return f"{family.calls} {nature} ({family.family}, {format_seconds(family.total_ns * NS)})"


def _compare_kernel(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    said, performance = known.claims.kernel, known.claims.performance
    kernel = _find_kernel(said.name, summary.kernels) or _find_only_kernel(said.family, summary.kernels)
    if kernel is None:
        return
    spread = kernel.spread
    if performance.calls:
        yield _compare_count(
            "profile: calls of the kernel", performance.calls.said, performance.calls.count, spread.calls, "call"
        )
    if performance.total:
        rule, time = "profile: time of the kernel", performance.total.time
        yield _compare_figure(rule, performance.total.said, time, spread.total_ns * NS, "s")
    if performance.per_call and spread.mean_ns is not None:
        text = performance.per_call.said
        yield _compare_figure("profile: time per call", text, performance.per_call.time, spread.mean_ns * NS, "s")
    if len(kernel.shapes) == 1:
        yield from _compare_shape(said, kernel.shapes[0].shape)


def _compare_shape(said: ReportedKernel, shape: KernelShape) -> Iterator[ProfileFinding]:
    """Yields findings on the report's registers, LDS, workgroup and grid against the profile's launch `shape`."""
    for name, counted, value in (("vgprs", said.vgprs, shape.vgprs), ("sgprs", said.sgprs, shape.sgprs)):
        if counted and value is not None:
            yield _compare_count(f"profile: {name}", counted.said, counted.count, value, name[:-1].upper())
    if said.lds and shape.lds_bytes is not None:
        yield _compare_count(
            "profile: lds", said.lds.said, round(said.lds.size.interval.middle), shape.lds_bytes, "byte"
        )
    for name, sizes, found in (
        ("workgroup", said.workgroup, shape.workgroup),
        ("work-items", said.grid_items, shape.grid_items),
    ):
        if sizes and found:
            words = f"{name} of {' x '.join(map(str, sizes))}"
            text = f"{' x '.join(map(str, found))} in the profile"
            rule = f"profile: {name}"
            yield (
                make_agreement(rule, words, f"{words}: {text}")
                if sizes == found
                else make_contradiction(rule, words, text)
            )


def _find_only_kernel(family: str, kernels: Sequence[KernelTime]) -> KernelTime | None:
    """Returns the profile's kernel of a family if there is exactly one; None otherwise, and for the family 'other'."""
    fitting = [kernel for kernel in kernels if family != "other" and family in kernel.family.lower()]
    return fitting[0] if len(fitting) == 1 else None


def _find_kernel(name: str, kernels: Sequence[KernelTime]) -> KernelTime | None:
    wanted = letters_of(plain_name(name))
    fitting = [kernel for kernel in kernels if wanted and wanted == letters_of(plain_name(kernel.name))]
    fitting = fitting or [kernel for kernel in kernels if len(wanted) > 3 and wanted in letters_of(kernel.name)]
    return fitting[0] if len(fitting) == 1 else None


def _compare_passes(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    said = known.claims.model.passes
    if said is None or summary.passes is None or summary.passes.count is None:
        return
    text = f"{summary.passes.count} in the profile: {summary.passes.how}"
    if said.count == summary.passes.count:
        yield make_agreement("profile: passes", said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction("profile: passes", said.said, text)


def _compare_figure(rule: str, said: str, figure: PrintedFigure, value: float, unit: str) -> ProfileFinding:
    text = f"{format_percent(value) if unit == '%' else format_seconds(value, 5)} in the profile"
    same = figure.interval.can_equal(exact_interval(value))
    return make_agreement(rule, said, f"{said}: {text}") if same else make_contradiction(rule, said, text)


def _compare_count(rule: str, said: str, count: int, value: int, word: str) -> ProfileFinding:
    text = f"{format_count(value, word)} in the profile"
    return make_agreement(rule, said, f"{said}: {text}") if count == value else make_contradiction(rule, said, text)

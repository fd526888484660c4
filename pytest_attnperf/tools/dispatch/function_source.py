"""Writes a dispatch table as the source of a Python module without imports, which a project pastes or imports.

Text from files (names of backends, families and devices) is written as string literals in ASCII, never as code: a
backend named `"; import os` stays a string. Names of fields are checked to be identifiers.
"""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.features import LINKED, Value, WorkloadShape
from pytest_attnperf.tools.dispatch.regions import NO_SAMPLES, DispatchTable, Region, ShapeGroup

WIDTH = 100
_RESERVED = ("family", "given", "isinstance", "int", "ValueError")
_MEASURED_TYPE = "dict[str, list[tuple[dict[str, object], str, list[tuple[int, int, str]]]]]"

_DOCUMENTED = (
    "Sizes and features are named as in pytest-attnperf's workloads; what is not given is off, or equal to what it "
    "repeats (seq_kv to seq_q, kv_heads to heads). A workload is measured if its shape was, and its size is one that "
    "was measured or lies between two that chose the same backend.",
    "Everything else gets the family's incumbent, which may not even support it: nothing was tried there.",
)

_LOOKUP = '''
def _complete(family: str, given: "dict[str, object]") -> "dict[str, object]":
    """A workload's fields with those that are off, and without those that only repeat others."""
    fields = {**_OFF[family], **given}
    return {name: value for name, value in fields.items() if value != fields.get(_REPEATS.get(name, ""))}


def _found(family: str, given: "dict[str, object]") -> "str | None":
    """The backend of the measured region that a workload lies in, None outside of all."""
    asked = _complete(family, {name: value for name, value in given.items() if value is not None})
    for fixed, axis, sizes in _MEASURED[family]:
        size = asked.get(axis, 0)
        if asked == _complete(family, {**fixed, axis: size} if axis else fixed):
            for first, last, backend in sizes:
                if isinstance(size, int) and first <= size <= last:
                    return backend
    return None
'''


def render_module(table: DispatchTable, told: Sequence[str]) -> str:
    """Returns the source of a module with the table and its functions choose_backend and measured. `told` are the lines
    of its docstring: device, date, source of the figures, caveats. Raises UsageError for a field that is no
    identifier."""
    names = _field_types(group.shape for group in table.groups)
    off = _common_defaults(table.groups)
    defaults = "".join(f"    {family!a}: {_format_mapping(values)},\n" for family, values in off.items())
    return "\n".join(
        [
            _render_docstring(
                ["Which backend to take where, from measurements.", "", *told, "", _describe_rule(table), *_DOCUMENTED]
            ),
            "",
            f'_INCUMBENT: "dict[str, str]" = {_format_mapping(table.incumbents)}',
            "",
            f'_OFF: "dict[str, dict[str, object]]" = {{\n{defaults}}}',
            "",
            f'_REPEATS: "dict[str, str]" = {_format_mapping(LINKED)}',
            "",
            "# family: (fields, the field that sizes are of, ((first size, last size, backend), ...))",
            f"_MEASURED: {_MEASURED_TYPE!r} = {{\n{_render_measured(table, off)}}}",
            "",
            _LOOKUP,
            _render_functions(names),
        ]
    )


def _describe_rule(table: DispatchTable) -> str:
    return (
        f"Of a shape and size the backend that is shown to be the fastest is chosen. Within {table.margin * 100:g} %, "
        "or where the 95 % interval over processes does not exclude a tie, the incumbent is."
    )


def _render_functions(names: Mapping[str, str]) -> str:
    """Returns the source of the functions choose_backend and measured, with every field of every family as a
    keyword."""
    parameters = "".join(f"    {name}: {kind!r} = None,\n" for name, kind in names.items())
    given = "{" + ", ".join(f'"{name}": {name}' for name in names) + "}"
    wrapped = textwrap.fill(
        f'given: "dict[str, object]" = {given}', WIDTH, initial_indent="    ", subsequent_indent="        "
    )
    return f'''
def choose_backend(
    family: str,
    *,
{parameters}) -> str:
    """The measured best backend of a workload; outside of what was measured, the family's incumbent."""
    if family not in _INCUMBENT:
        raise ValueError(f"nothing was measured of the family {{family!r}}, only of {{[*_INCUMBENT]}}")
{wrapped}
    return _found(family, given) or _INCUMBENT[family]


def measured(
    family: str,
    *,
{parameters}) -> bool:
    """Whether choose_backend answers from a measurement."""
{wrapped}
    return family in _INCUMBENT and _found(family, given) is not None
'''


def _field_types(shapes: Iterable[WorkloadShape]) -> dict[str, str]:
    """Returns each field's annotation by name, e.g. 'int | None'. Raises UsageError if a name cannot be a parameter."""
    kinds: dict[str, set[str]] = {}
    for shape in shapes:
        if shape.axis:
            kinds.setdefault(shape.axis, set()).add("int")
        for name, value in (*shape.fields, *shape.defaults):
            kinds.setdefault(name, set()).add("tuple[int, ...]" if isinstance(value, tuple) else type(value).__name__)
        for name in LINKED:
            if LINKED[name] in kinds:
                kinds.setdefault(name, set()).update(kinds[LINKED[name]])
    for name in kinds:
        if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED or not name.isascii():
            raise UsageError(f"a workload has the field {name!r}, which no function can have as a parameter; rename it")
    return {name: " | ".join([*sorted(kinds[name]), "None"]) for name in sorted(kinds)}


def _common_defaults(groups: Iterable[ShapeGroup]) -> dict[str, dict[str, Value]]:
    """Returns, by family, the defaults on which all of its shapes agree. A caller must give the other fields."""
    common: dict[str, dict[str, Value]] = {}
    for group in groups:
        own = dict(group.shape.defaults)
        known = common.setdefault(group.shape.family, own)
        common[group.shape.family] = {name: known[name] for name in known if name in own and own[name] == known[name]}
    return common


def _render_measured(table: DispatchTable, off: Mapping[str, Mapping[str, Value]]) -> str:
    lines: list[str] = []
    for family, defaults in off.items():
        lines.append(f"    {family!a}: [\n")
        lines += [_render_group(group, defaults) for group in table.groups if group.shape.family == family]
        lines.append("    ],\n")
    return "".join(lines)


def _render_group(group: ShapeGroup, off: Mapping[str, Value]) -> str:
    fixed = {name: value for name, value in group.shape.fields if name not in off or off[name] != value}
    sizes = "".join(
        f"                ({region.first}, {region.last}, {region.backend!a}),  # {_format_comment(region)}\n"
        for region in group.regions
    )
    indented = " " * 12
    return (
        f"        "
        f"(\n{indented}{_format_mapping(fixed)},\n{indented}{group.shape.axis!a},\n{indented}[\n{sizes}{indented}],\n"
        "        ),\n"
    )


def _format_comment(region: Region) -> str:
    """Returns a region's confidence and smallest margin as the text of a code comment. It holds no text from files."""
    margins = region.margins
    ahead = f", {margins[0] * 100:+.1f} % at least" if margins else ""
    return f"{region.confidence}{ahead}{'' if region.is_sampled else f'; {NO_SAMPLES}'}"


def _format_mapping(values: Mapping[str, Value]) -> str:
    return "{" + ", ".join(f"{name!a}: {value!a}" for name, value in values.items()) + "}"


def _render_docstring(lines: Iterable[str]) -> str:
    """Returns the lines as source of a triple-quoted string. Quotes and backslashes are escaped, so that no line can
    end it. Lone surrogates are replaced, because Python 3.13 does not compile them."""
    lines = [line.encode("utf-8", "replace").decode() for line in lines]
    filled = [part for line in lines for part in textwrap.wrap(line, WIDTH - 4, break_on_hyphens=False) or [""]]
    escaped = [line.encode("unicode_escape").decode("ascii").replace('"', '\\"') for line in filled]
    return '"""' + "\n".join(escaped) + '\n"""'

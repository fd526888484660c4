"""Rewrites our configuration files for a tuner: changes or adds one rule, and keeps all other bytes.

A rule that serves more than the tuned workloads can be narrowed: the new rule has the same conditions and further ones.
It comes directly before the old rule, so it takes only problems that the old one took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernels import json_text
from kernels.configs import AMD_OPTIONS, ConfigRule, KernelConfigError, Problem, Space
from pytest_attnperf.errors import UsageError

LARGEST = 2**31 - 1
"""Largest number in a rule: the kernels' integers have 32 bits."""

Value = int | bool | str


def rules_of(space: Space, arch: str) -> tuple[ConfigRule, ...]:
    """Returns the rules in the file of `arch`, or in default.json if it has no file. Raises KernelConfigError naming
    file and rule if one is malformed, or if the file changed since this process first read it."""
    return _read_rules(space, arch)[1]


def find_serving_rule(rules: tuple[ConfigRule, ...], problem: Problem) -> int | None:
    """Returns the index of the first rule whose conditions the problem meets; None if there is no such rule."""
    return next((number for number, rule in enumerate(rules) if rule.is_for(problem)), None)


def narrow_conditions(rule: ConfigRule, when: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the rule's conditions together with `when`: the smaller of two `_max` values, the larger of two `_min`
    values. Raises UsageError if any other name has two values, which no problem can meet."""
    found: dict[str, Any] = dict(rule.when)
    for name, value in when.items():
        held = found.get(name, value)
        if name.endswith("_max"):
            found[name] = min(held, value)
        elif name.endswith("_min"):
            found[name] = max(held, value)
        elif held != value:
            raise UsageError(
                f"{name} {value} cannot narrow the rule for {format_conditions(rule.when)}: no problem meets "
                f"both; leave it out, or "
                "choose workloads of another rule"
            )
        else:
            found[name] = value
    return found


def replace_rule(space: Space, arch: str, number: int, new: ConfigRule) -> str:
    """Returns the complete text of the configuration file of `arch` (from its own, or from default.json) with rule
    `number` replaced by `new`. Writes nothing.

    If `new` has other conditions, it is inserted before that rule, which stays. Raises KernelConfigError where the
    present file is malformed or has no such rule, and UsageError where `new` does not fit the space.
    """
    text, rules = _read_rules(space, arch)
    _require_rule(space, new)
    if not 0 <= number < len(rules):
        raise KernelConfigError(
            f"{space.config_path(space.rules_arch(arch))} has {len(rules)} rules, no rules[{number}]"
        )
    start, _ = json_text.find_members(text, json_text.find_start(text))["rules"]
    spans = json_text.find_elements(text, start)
    begin, end = spans[number]
    line = json.dumps({"when": new.when, "config": new.config, "source": new.source}, ensure_ascii=False)
    if dict(new.when) == dict(rules[number].when):
        return text[:begin] + line + text[end:]
    gap = text[text.rindex("," if number else "[", 0, begin) + 1 : begin]
    return text[:begin] + line + "," + gap + text[begin:]


def order_values(space: Space, values: Mapping[str, Value], old: ConfigRule) -> dict[str, int | bool]:
    """Returns a candidate's values as a rule's config, constants first, then options; texts are left out. An option of
    0, which leaves the choice to the compiler, is kept only if the old rule has it."""
    names = [*space.constants, *sorted(space.options, reverse=True), *sorted(space.further, reverse=True)]
    kept = [name for name in names if name in values and (values[name] or name not in AMD_OPTIONS - old.config.keys())]
    return {name: value for name in kept if isinstance(value := values[name], int)}


def format_conditions(when: Mapping[str, Value]) -> str:
    """Returns conditions as text for messages, e.g. 'head_dim_max 128, causal True'; 'everything' if there are none."""
    return ", ".join(f"{name} {value}" for name, value in when.items()) or "everything"


def _read_rules(space: Space, arch: str) -> tuple[str, tuple[ConfigRule, ...]]:
    path = space.config_path(listed := space.rules_arch(arch))
    text, document = json_text.read_json(path, KernelConfigError)
    entries = document.get("rules") if isinstance(document, dict) else None
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        _require_shape(f"{path}: rules[{number}]", entry)
    rules = space.load_rules(listed)  # checks schema, fields and names
    if rules != tuple(ConfigRule(**entry) for entry in entries or ()):
        raise KernelConfigError(f"{path} was changed since this process read it; run the command again")
    return text, rules


def _require_shape(where: str, entry: Any) -> None:
    """Raises KernelConfigError naming `where` unless a rule is an object with a text as `source` and objects of plain
    values as `when` and `config`: whole numbers to LARGEST, booleans, and texts in `when`."""
    if not isinstance(entry, dict) or not isinstance(entry.get("source", ""), str):
        raise KernelConfigError(f"{where} must be an object whose source is a text, got {str(entry)[:80]!r}")
    for part, kinds in (("when", (int, bool, str)), ("config", (int, bool))):
        held = entry.get(part, {})
        if not isinstance(held, dict):
            raise KernelConfigError(f"{where}.{part} must be an object, got {type(held).__name__}")
        for name, value in held.items():
            if type(value) not in kinds or (isinstance(value, int) and not 0 <= value <= LARGEST):
                raise KernelConfigError(
                    f"{where}.{part} has {name} = {str(value)[:40]!r}; a value is a whole number from 0 to {LARGEST}, "
                    + ("true or false" if part == "config" else "true, false or a text")
                )


def _require_rule(space: Space, new: ConfigRule) -> None:
    """Raises UsageError unless the new rule can be loaded again: it has a source, every constant and option that the
    space requires, no unknown name, and only values of the right type from 0 to LARGEST."""
    if not new.source.strip():
        raise UsageError(f"a rule of {space.kernel} needs a source: say which measurement its figures come from")
    known = space.constants.keys() | space.options | space.further
    if strange := sorted(new.config.keys() - known):
        raise UsageError(f"{space.kernel} has no {', '.join(strange)}; it is configured by {', '.join(sorted(known))}")
    if missing := sorted(space.required - new.config.keys()):
        raise UsageError(
            f"a rule of {space.kernel} needs {', '.join(missing)} too: add each to its config, which has only "
            f"{', '.join(sorted(new.config)) or 'nothing'}"
        )
    for name, value in new.config.items():
        kind = space.constants.get(name, int)
        if type(value) is not kind or not 0 <= value <= LARGEST:
            raise UsageError(f"{space.kernel}: {name} = {value!r} is no {kind.__name__} from 0 to {LARGEST}")

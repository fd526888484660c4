"""Launch configurations of our kernels, read from `triton/configs/<kernel>/<arch>.json` or `hip/configs/...`.

A gated run never autotunes: a configuration picked by timing would make two runs compare different kernels. A file
holds a list of rules; the first whose conditions a problem meets is used, and `source` says where its figures come
from. An architecture without a file of its own uses `default.json`, and the result records that it did.

    {"schema": 2, "rules": [
      {"when": {"head_dim_max": 128, "element_bits": 16}, "config": {"BLOCK_M": 64, "num_warps": 4}, "source": "..."}
    ]}

A condition is a property of the problem and the value it must have; with `_max` or `_min` appended, the largest or the
smallest that it may have.

Beside "rules" a file may have "alternatives": {"<name>": [rules]}, e.g. published figures. They are used where a
backend asks for them by name, and are candidates of the tuner.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import AttnperfError, UsageError

FOLDER = Path(__file__).parent / "triton" / "configs"
HIP_FOLDER = Path(__file__).parent / "hip" / "configs"
SCHEMA = 2
DEFAULT = "default"
OPTIONS = frozenset({"num_warps", "num_stages"})
"""Options of Triton's compiler that every rule of a Triton kernel has."""
AMD_OPTIONS = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""Further options that a rule for an AMD architecture may have."""

PINNED = "pinned: "
"""Begins the source of a configuration that was replayed from a baseline instead of read from a file."""

SHOWN = 300
"""Most characters of a file's content that a message quotes."""

Problem = Mapping[str, int | bool | str]
"""Property -> value, by which a rule is chosen, e.g. {'head_dim': 128, 'element_bits': 16}."""


class KernelConfigError(AttnperfError):
    """A configuration file is malformed, lacks a rule, or has one that does not fit; names file and rule."""


@dataclass(frozen=True)
class ConfigRule:
    """One configuration and the problems it is for.

    when      conditions, all of which a problem must meet
    config    the kernel's constants, and the compiler's options
    source    the measurement or publication the figures come from
    """

    when: Mapping[str, int | bool | str]
    config: Mapping[str, int | bool]
    source: str

    def is_for(self, problem: Problem) -> bool:
        """Returns whether the problem meets all conditions of this rule."""
        return all(_is_met(problem, name, wanted) for name, wanted in self.when.items())

    @property
    def options(self) -> dict[str, int | bool]:
        """The compiler's options in `config`, e.g. {'num_warps': 4}."""
        return {name: value for name, value in self.config.items() if name in OPTIONS | AMD_OPTIONS}

    @property
    def constants(self) -> dict[str, int | bool]:
        """The kernel's own constants in `config`: all entries that are no compiler option."""
        return {name: value for name, value in self.config.items() if name not in OPTIONS | AMD_OPTIONS}


@dataclass(frozen=True)
class ConfigChoice:
    """The rule picked for a problem, and the architecture whose file has it ('default' if not its own).

    A replayed choice has a rule of its own, for this problem only.
    """

    arch: str
    rule: ConfigRule

    @property
    def config(self) -> dict[str, int | bool]:
        """The rule's constants and compiler options, by name, for a launch."""
        return dict(self.rule.config)

    def config_entries(self, prefix: str = "") -> dict[str, str]:
        """Returns this choice as texts for `Prepared.config`: constants, options, 'config_arch' and 'config_source',
        each name with `prefix` before it. `Space.read_choice` reads them back."""
        entries = {name: str(value) for name, value in self.rule.config.items()}
        entries |= {"config_arch": self.arch, "config_source": self.rule.source}
        return {prefix + name: value for name, value in entries.items()}


def hip_space(kernel: str, constants: Mapping[str, type], properties: tuple[str, ...]) -> Space:
    """Returns the configuration space of a HIP kernel, whose files are in hip/configs. Its constants are macros of the
    source; it has no compiler options."""
    return Space(kernel, constants, properties, HIP_FOLDER, frozenset(), frozenset())


@dataclass(frozen=True)
class Space:
    """The configuration space of one kernel.

    kernel       its name: that of the folder its files are in
    constants    its own constants -> int or bool
    properties   properties of a problem that conditions may use
    folder       the folder that holds the folders of all kernels
    options      compiler options that every rule has, beside the constants
    further      options that a rule may have
    defaults     constants that a rule may leave out -> the value that this means
    """

    kernel: str
    constants: Mapping[str, type]
    properties: tuple[str, ...]
    folder: Path = FOLDER
    options: frozenset[str] = OPTIONS
    further: frozenset[str] = AMD_OPTIONS
    defaults: Mapping[str, int | bool] = field(default_factory=dict)

    @property
    def required(self) -> frozenset[str]:
        """Names of the constants and options that every rule has."""
        return frozenset(self.constants.keys() - self.defaults.keys() | self.options)

    def config_path(self, arch: str) -> Path:
        """Returns the path <folder>/<kernel>/<arch>.json, whether or not that file exists."""
        return self.folder / self.kernel / f"{arch}.json"

    def rules_arch(self, arch: str) -> str:
        """Returns `arch` if it has a configuration file of its own, else 'default', whose file is used instead."""
        return arch if self.config_path(arch).is_file() else DEFAULT

    def load_rules(self, arch: str) -> tuple[ConfigRule, ...]:
        """Returns the checked rules of the file that `arch` uses (`rules_arch`). A file is read once per process.
        Raises KernelConfigError naming file and rule."""
        return _load_rules(self, self.rules_arch(arch))[0]

    def load_alternatives(self, arch: str) -> Mapping[str, tuple[ConfigRule, ...]]:
        """Returns name -> checked rules of the alternatives in the file that `arch` uses; empty if it has none. Raises
        KernelConfigError naming file and rule."""
        return _load_rules(self, self.rules_arch(arch))[1]

    def find_alternatives(self, arch: str, problem: Problem) -> dict[str, ConfigRule]:
        """Returns name -> rule of each alternative that has one for the problem. Raises as `load_alternatives`."""
        found = self.load_alternatives(arch).items()
        return {name: rule for name, rules in found for rule in rules[::-1] if rule.is_for(problem)}

    def choose_alternative(self, name: str, arch: str, problem: Problem) -> ConfigChoice:
        """Returns the first rule of that alternative whose conditions the problem meets, from the file that `arch`
        uses. Raises KernelConfigError, which says what there is, if there is none."""
        found = self.find_alternatives(arch, problem)
        if name not in found:
            raise KernelConfigError(
                f"{self.config_path(self.rules_arch(arch))} has no alternative {name!r} for "
                f"{_format_conditions(problem)}; it has {', '.join(found) or 'none'} for that. Add one, with its source"
            )
        return ConfigChoice(self.rules_arch(arch), found[name])

    def choose(self, arch: str, problem: Problem) -> ConfigChoice:
        """Returns the first rule whose conditions the problem meets, from the file of `arch`, or of 'default' if it has
        none.

        Raises KernelConfigError when none does, and for a problem with other properties than the space's.
        """
        listed = self.rules_arch(arch)
        if problem.keys() != set(self.properties):
            raise KernelConfigError(
                f"{self.kernel}: a configuration is chosen by {', '.join(self.properties)}, got "
                f"{_format_conditions(problem)}"
            )
        for rule in self.load_rules(arch):
            if rule.is_for(problem):
                return ConfigChoice(listed, rule)
        held = "; ".join(_format_conditions(rule.when) for rule in self.load_rules(arch))
        raise KernelConfigError(
            f"{self.config_path(listed)} has no rule for {_format_conditions(problem)}; it has rules for: "
            f"{held}. Add one, with its source"
        )

    def read_choice(self, stored: Mapping[str, str], prefix: str = "") -> ConfigChoice:
        """Returns the choice that is stored in those entries of a `Prepared.config` that begin with `prefix`. It does
        not depend on the present configuration files.

        Raises UsageError where a value is missing or invalid.
        """
        held = {name.removeprefix(prefix): text for name, text in stored.items() if name.startswith(prefix)}
        missing = sorted(self.required - held.keys())
        if missing:
            raise UsageError(
                f"the stored configuration lacks {', '.join(prefix + name for name in missing)}; it has "
                f"{', '.join(sorted(stored)) or 'nothing'}; record the baseline again, or run without "
                "--attnperf-pin-config"
            )
        names = sorted((self.constants.keys() | self.options | self.further) & held.keys())
        config = {name: self._stored_value(prefix + name, held[name], self.constants.get(name, int)) for name in names}
        source = held.get("config_source", "unknown").removeprefix(PINNED)
        return ConfigChoice(held.get("config_arch", "unknown"), ConfigRule({}, config, PINNED + source))

    @staticmethod
    def _stored_value(name: str, text: str, kind: type) -> int | bool:
        if kind is bool and text in ("True", "False"):
            return text == "True"
        if kind is int and text.isdecimal():
            return int(text)
        wanted = "True or False" if kind is bool else "a whole number of at least 0"
        raise UsageError(
            f"the stored configuration has {name} = {text!r}, which is not {wanted}; record the baseline again, or run "
            "without --attnperf-pin-config"
        )

    def __hash__(self) -> int:
        return hash((self.kernel, self.folder))


def pad_size(size: int) -> int:
    """Returns the smallest power of two that is at least `size`, and at least 16, which a matrix instruction needs."""
    return max(16, 1 << (size - 1).bit_length())


def _is_met(problem: Problem, name: str, wanted: int | bool | str) -> bool:
    for suffix in ("_max", "_min"):
        if name.endswith(suffix):
            value = problem[name.removesuffix(suffix)]
            return value <= wanted if suffix == "_max" else value >= wanted  # type: ignore[operator]
    return problem[name] == wanted


def _format_conditions(properties: Problem) -> str:
    """Returns conditions as text for messages, e.g. 'head_dim_max 128, causal True'; 'everything' if there are none."""
    return ", ".join(f"{name} {value}" for name, value in properties.items()) or "everything"


@functools.cache
def _load_rules(space: Space, arch: str) -> tuple[tuple[ConfigRule, ...], Mapping[str, tuple[ConfigRule, ...]]]:
    """Returns the rules and the alternatives of a file."""
    path = space.config_path(arch)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KernelConfigError(f"{path}: cannot be read as JSON ({error}); restore it or write it anew") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise KernelConfigError(f"{path}: schema is {found!r:.80}, this version reads {SCHEMA}; update one of the two")
    rules = document.get("rules")
    if not isinstance(rules, list) or not rules:
        raise KernelConfigError(f"{path}: 'rules' must be a list of at least one rule")
    alternatives = document.get("alternatives", {})
    if not isinstance(alternatives, dict) or not all(isinstance(held, list) and held for held in alternatives.values()):
        raise KernelConfigError(f"{path}: 'alternatives' must be an object of names, each with a list of rules")
    return _parse_rules(space, f"{path}: rules", rules), {
        name: _parse_rules(space, f"{path}: alternatives.{name:.80}", held) for name, held in alternatives.items()
    }


def _parse_rules(space: Space, where: str, entries: list[Any]) -> tuple[ConfigRule, ...]:
    return tuple(_parse_rule(space, f"{where}[{index}]", entry) for index, entry in enumerate(entries))


def _parse_rule(space: Space, where: str, entry: Any) -> ConfigRule:
    fields = {"when", "config", "source"}
    if not isinstance(entry, dict) or entry.keys() != fields:
        found = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise KernelConfigError(f"{where} has {str(found)[:SHOWN]}, needs exactly {sorted(fields)}")
    for part in ("when", "config"):
        if not isinstance(entry[part], dict):
            raise KernelConfigError(f"{where}.{part} must be an object, got {type(entry[part]).__name__}")
    properties = {name + suffix for name in space.properties for suffix in ("", "_max", "_min")}
    strange = sorted(entry["when"].keys() - properties)
    if strange:
        raise KernelConfigError(
            f"{where}.when asks for {str(strange)[:SHOWN]}; {space.kernel} knows {sorted(space.properties)}, "
            "each also with _max and _min"
        )
    config = entry["config"]
    known = space.constants.keys() | space.options | space.further
    missing, unknown = sorted(space.required - config.keys()), sorted(config.keys() - known)
    if missing or unknown:
        raise KernelConfigError(
            f"{where}.config lacks {missing} and has unknown {str(unknown)[:SHOWN]}; known: {sorted(known)}"
        )
    for name, value in config.items():
        kind = space.constants.get(name, int)
        if type(value) is not kind:
            raise KernelConfigError(f"{where}.config has {name} = {value!r:.80}, which is no {kind.__name__}")
    if not entry["source"]:
        raise KernelConfigError(f"{where} has no source; say which measurement or publication its figures come from")
    return ConfigRule(**entry)

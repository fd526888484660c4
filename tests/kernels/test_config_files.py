"""One rule of a configuration file changed or added, all else as it was; and files that are not what they should be."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels import config_files, json_text
from kernels.configs import FOLDER, ConfigRule, KernelConfigError, Problem, Space
from kernels.tuning import declared_by_kernel
from pytest_attnperf.errors import UsageError

SPACES = {name: declared.space for name, declared in declared_by_kernel().items()}
SHIPPED = sorted((path.parent.name, path.stem) for name in SPACES for path in (FOLDER / name).glob("*.json"))
RULE: dict[str, Any] = {
    "when": {"size_max": 64, "bits": 16},
    "config": {"BLOCK_M": 64, "WIDE": False, "num_warps": 4, "num_stages": 1},
    "source": "a test",
}
VALUES = {
    "head_dim": (16, 64, 96, 128, 192, 256),
    "rows": (16, 64, 65536, 524288, 1048576),
    "programs_per_split": (8, 16, 512),
    "m": (1, 16, 17, 4096),
    "outputs": (64, 2097151, 2097152),
    "columns": (128, 2048, 4096, 8192, 16384, 40000, 65536, 262144),
    "element_bits": (8, 16, 32),
    "cache_bits": (8, 16, 32),
    "int8": ("none", "pv8", "pv16", "kv8"),
}


def problems(space: Space) -> list[Problem]:
    """Up to 100 problems of all kinds, the same every time."""
    choices = [VALUES.get(name, (True, False)) for name in space.properties]
    every = [dict(zip(space.properties, values, strict=True)) for values in itertools.product(*choices)]
    return random.Random(0).sample(every, min(100, len(every)))


def moved(space: Space, arch: str, text: str, folder: Path) -> Space:
    """The same space whose file for `arch` holds this text."""
    path = replace(space, folder=folder).config_path(arch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return replace(space, folder=folder)


def made(folder: Path, text: str) -> Space:
    """A space of its own with this text as default.json."""
    return moved(Space("made", {"BLOCK_M": int, "WIDE": bool}, ("size", "bits", "causal")), "default", text, folder)


def chosen(space: Space, arch: str, problem: Problem) -> ConfigRule | None:
    """The rule for a problem; None where there is none."""
    try:
        return space.choose(arch, problem).rule
    except KernelConfigError:
        return None


def new_rule(rule: ConfigRule, when: Mapping[str, Any] | None = None) -> ConfigRule:
    """Another configuration, as a tuner finds one."""
    return ConfigRule({**rule.when, **(when or {})}, {**rule.config, "num_warps": 16, "num_stages": 7}, "a tuning run")


@pytest.mark.parametrize(("kernel", "arch"), SHIPPED)
def test_a_changed_rule_serves_what_it_served_and_nothing_else(kernel: str, arch: str, tmp_path: Path) -> None:
    """In every shipped file, whichever rule is changed: its problems get the new figures, all others their old rule."""
    space, rules = SPACES[kernel], SPACES[kernel].load_rules(arch)
    for number, rule in enumerate(rules):
        text = config_files.replace_rule(space, arch, number, new_rule(rule))
        written = moved(space, arch, text, tmp_path / str(number))
        assert len(written.load_rules(arch)) == len(rules)
        for problem in problems(space):
            old = chosen(space, arch, problem)
            assert chosen(written, arch, problem) == (new_rule(rule) if old is rule else old)


@pytest.mark.parametrize(("kernel", "arch"), SHIPPED)
def test_a_narrower_rule_takes_only_problems_of_the_one_it_stands_before(
    kernel: str, arch: str, tmp_path: Path
) -> None:
    """In every shipped file, before every rule: the problems that both conditions take change, and no others."""
    space, rules = SPACES[kernel], SPACES[kernel].load_rules(arch)
    served = {id(chosen(space, arch, problem)): problem for problem in problems(space)}
    name = space.properties[0]
    for number, rule in enumerate(rules):
        like = served.get(id(rule), {name: 64})
        when = config_files.narrow_conditions(rule, {f"{name}_max": like[name], f"{name}_min": like[name]})
        new = new_rule(ConfigRule(when, rule.config, ""))
        written = moved(space, arch, config_files.replace_rule(space, arch, number, new), tmp_path / str(number))
        assert written.load_rules(arch) == (*rules[:number], new, *rules[number:])
        for problem in problems(space):
            old = chosen(space, arch, problem)
            assert chosen(written, arch, problem) == (new if old is rule and new.is_for(problem) else old)


@pytest.mark.parametrize(("kernel", "arch"), SHIPPED)
def test_all_other_text_stays_byte_for_byte(kernel: str, arch: str) -> None:
    """Lines of the other rules, and what stands around them, are those of the file."""
    space = SPACES[kernel]
    before = space.config_path(arch).read_text(encoding="utf-8").splitlines(keepends=True)
    for number, rule in enumerate(space.load_rules(arch)):
        after = config_files.replace_rule(space, arch, number, new_rule(rule)).splitlines(keepends=True)
        assert [b == a for b, a in zip(before, after, strict=True)].count(False) == 1
        longer = config_files.replace_rule(space, arch, number, new_rule(rule, {f"{space.properties[0]}_min": 1}))
        lines = longer.splitlines(keepends=True)
        added = next(place for place, line in enumerate(lines) if line not in before)
        assert lines[:added] + lines[added + 1 :] == before


def test_an_architecture_without_a_file_gets_a_copy_of_the_default(tmp_path: Path) -> None:
    """sm_75 has the default's rules today; the file for it holds all of them, one changed."""
    space = SPACES["prefill_forward"]
    rules = space.load_rules("default")
    written = moved(space, "sm_75", config_files.replace_rule(space, "sm_75", 1, new_rule(rules[1])), tmp_path)
    assert written.load_rules("sm_75") == (rules[0], new_rule(rules[1]), *rules[2:])


def test_any_layout_of_json_is_kept(tmp_path: Path) -> None:
    """A file in one line, or indented deeply, is changed in its place only."""
    for number, indent in enumerate((None, 8)):
        text = json.dumps({"more": [{"a": 1}], "schema": 2, "rules": [RULE, RULE | {"when": {}}]}, indent=indent)
        space = made(tmp_path / str(number), text)
        rule = space.load_rules("default")[1]
        written = config_files.replace_rule(space, "default", 1, new_rule(rule))
        assert json.loads(written)["rules"] == [RULE, json.loads(json.dumps(vars(new_rule(rule))))]
        assert written[: text.rindex('{"when"' if indent is None else "{\n" + 24 * " " + '"when"')] in text


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"size_max": 32}, {"size_max": 32, "bits": 16}),
        ({"size_max": 128}, {"size_max": 64, "bits": 16}),
        ({"size_min": 32, "causal": True}, {"size_max": 64, "bits": 16, "size_min": 32, "causal": True}),
        ({"bits": 16}, {"size_max": 64, "bits": 16}),
    ],
)
def test_narrowing_joins_conditions(when: dict[str, Any], expected: dict[str, Any]) -> None:
    """Of two bounds the tighter one holds."""
    assert config_files.narrow_conditions(ConfigRule(RULE["when"], {}, "x"), when) == expected


def test_narrowing_to_nothing_is_refused() -> None:
    """A rule that no problem could reach is not written."""
    with pytest.raises(UsageError, match="bits 32 cannot narrow the rule for size_max 64, bits 16: no problem meets"):
        config_files.narrow_conditions(ConfigRule(RULE["when"], {}, "x"), {"bits": 32})


def _with(part: str, **values: Any) -> str:
    return json.dumps({"schema": 2, "rules": [RULE | {part: RULE[part] | values}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_with("when")[:-40], r"cannot be read as JSON \(.*\); restore it"),
        ("", "cannot be read as JSON"),
        ("\ufeff" + _with("when"), "cannot be read as JSON"),
        ("[" * 10_000 + "]" * 10_000, "cannot be read as JSON"),
        ('{"schema": 2, "rules": ' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "}", "cannot be read as JSON"),
        (_with("when").replace('"schema": 2', '"schema": 2, "schema": 2'), "'schema' is given twice"),
        (_with("config").replace('"BLOCK_M": 64', '"BLOCK_M": 64, "BLOCK_M": 32'), "'BLOCK_M' is given twice"),
        (_with("config", BLOCK_M=float("nan")), "NaN is no JSON number"),
        (_with("config", BLOCK_M=float("inf")), "Infinity is no JSON number"),
        (_with("config", BLOCK_M=10**400), "has BLOCK_M = '1000.*; a value is a whole number from 0 to 2147483647"),
        (_with("config").replace('"BLOCK_M": 64', '"BLOCK_M": ' + "9" * 5000), "cannot be read as JSON|has BLOCK_M"),
        (_with("config", BLOCK_M=-1), "has BLOCK_M = '-1'"),
        (_with("config", BLOCK_M=64.0), r"has BLOCK_M = '64\.0'"),
        (_with("config", BLOCK_M="../../../etc/passwd"), r"has BLOCK_M = '\.\./\.\./"),
        (_with("when", bits=["a"]), r"rules\[0\]\.when has bits"),
        (json.dumps({"schema": 2, "rules": [RULE | {"when": ["size"]}]}), r"rules\[0\]\.when must be an object, got l"),
        (json.dumps({"schema": 2, "rules": [RULE | {"config": None}]}), r"rules\[0\]\.config must be an object, got N"),
        (json.dumps({"schema": 2, "rules": [RULE | {"source": 3}]}), r"rules\[0\] must be an object whose source"),
        (json.dumps({"schema": 2, "rules": ["__import__('os')"]}), r"rules\[0\] must be an object"),
        (json.dumps({"schema": 2, "rules": [RULE | {"source": ""}]}), r"rules\[0\] has no source"),
        (json.dumps({"schema": 2, "rules": {"a": 1}}), "'rules' must be a list"),
        (json.dumps([RULE]), "schema is 'list'"),
        (" " * json_text.BYTES_MAX + _with("when"), "has more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Truncated, hostile or malformed: one error that names the file, nothing executed and nothing written."""
    space = made(tmp_path, text)
    with pytest.raises(KernelConfigError, match=rf"(?s)default\.json.*{message}"):
        config_files.replace_rule(space, "default", 0, ConfigRule(RULE["when"], RULE["config"], "x"))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["default.json"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A binary file is named as unreadable."""
    space = made(tmp_path, "")
    space.config_path("default").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(KernelConfigError, match=r"default\.json: cannot be read as JSON"):
        config_files.rules_of(space, "default")


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    """What was tuned against other rules is not written over them."""
    space = made(tmp_path, _with("when"))
    assert config_files.rules_of(space, "default")
    space.config_path("default").write_text(_with("config", BLOCK_M=32), encoding="utf-8")
    with pytest.raises(KernelConfigError, match="was changed since this process read it; run the command again"):
        config_files.rules_of(space, "default")


@pytest.mark.parametrize(
    ("changes", "source", "message"),
    [
        ({}, " ", "needs a source"),
        ({"BLOCK_K": 1}, "x", "made has no BLOCK_K; it is configured by BLOCK_M, WIDE"),
        ({"WIDE": 1}, "x", "WIDE = 1 is no bool"),
        ({"BLOCK_M": -1}, "x", "BLOCK_M = -1 is no int from 0 to"),
        ({"BLOCK_M": True}, "x", "BLOCK_M = True is no int"),
    ],
)
def test_a_winner_that_would_not_load_is_refused(
    tmp_path: Path, changes: dict[str, Any], source: str, message: str
) -> None:
    """No file is made of a configuration that the kernel does not have."""
    space = made(tmp_path, _with("when"))
    with pytest.raises(UsageError, match=message):
        config_files.replace_rule(space, "default", 0, ConfigRule(RULE["when"], {**RULE["config"], **changes}, source))
    with pytest.raises(UsageError, match="a rule of made needs BLOCK_M too"):
        config = {name: value for name, value in RULE["config"].items() if name != "BLOCK_M"}
        config_files.replace_rule(space, "default", 0, ConfigRule(RULE["when"], config, "x"))
    with pytest.raises(KernelConfigError, match=r"has 1 rules, no rules\[1\]"):
        config_files.replace_rule(space, "default", 1, ConfigRule(RULE["when"], RULE["config"], "x"))

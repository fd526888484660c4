"""What a kernel is configured by: the shipped files, the choice of a rule, and what is replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.configs import FOLDER, KernelConfigError, Space, pad_size
from kernels.triton.prefill.space import PERSISTENT, SPACE
from kernels.triton.varlen.space import PERSISTENT as VARLEN_PERSISTENT
from kernels.triton.varlen.space import SPACE as VARLEN
from pytest_attnperf.errors import UsageError

RULE: dict[str, Any] = {
    "when": {"size_max": 64, "bits": 16},
    "config": {"BLOCK_M": 64, "WIDE": False, "num_warps": 4, "num_stages": 1},
    "source": "a test",
}
ARCHS = ("sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201", "interpreter", "default", "sm_75")


def written(tmp_path: Path, rules: Any, schema: int = 2, arch: str = "default") -> Space:
    """A space of its own whose file for `arch` holds these rules."""
    folder = tmp_path / "made"
    folder.mkdir(exist_ok=True)
    (folder / f"{arch}.json").write_text(json.dumps({"schema": schema, "rules": rules}), encoding="utf-8")
    return Space("made", {"BLOCK_M": int, "WIDE": bool}, ("size", "bits", "causal"), tmp_path)


def problem(**changes: Any) -> dict[str, Any]:
    """What a rule is chosen by."""
    return {"size": 64, "bits": 16, "causal": True} | changes


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("space", [SPACE, PERSISTENT, VARLEN, VARLEN_PERSISTENT], ids=lambda space: space.kernel)
def test_every_problem_has_a_configuration(space: Space, arch: str) -> None:
    """The shipped files answer for every head dimension, width and feature, on listed and unlisted architectures."""
    choices = [
        {"head_dim": head_dim, "causal": causal, "element_bits": bits, "plain": plain, "int8": int8, "rows": 64}
        | {"bias": bias}
        for head_dim in (8, 40, 64, 128, 192, 256)
        for causal in (True, False)
        for plain, bias in ((True, False), (False, False), (False, True))
        for bits, int8 in ((16, "none"), (32, "none"), (8, "none"), (8, "pv8"), (8, "pv16"), (8, "kv8"))
    ]
    for each in choices:
        chosen = space.choose(arch, {name: each[name] for name in space.properties})
        assert chosen.arch == ("default" if arch == "sm_75" else arch)


def test_mi300x_has_the_published_tile_at_d256_as_an_alternative() -> None:
    """The MI300X report's tuned tile at D=256; the source names what differs, and that it was not run."""
    asked = {"head_dim": 256, "causal": True, "element_bits": 16, "plain": True, "int8": "none", "rows": 64}
    rule = SPACE.find_alternatives("gfx942", asked)["published"]
    published = {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True, "waves_per_eu": 2}
    assert rule.config.items() >= (published | {"num_warps": 8, "num_stages": 1, "GROUP_HEADS": 4096}).items()
    assert "with 4 warps; 8 here, because ours spills 27 registers with 4" in rule.source
    assert rule.source.endswith("never run here")
    assert SPACE.choose("gfx942", asked).rule.config != rule.config


def test_what_was_never_run_on_amd_says_so() -> None:
    """Every rule of a gfx file says in its source that it was never run."""
    sources = [
        (path, rule["source"])
        for path in FOLDER.glob("*/gfx*.json")
        for rule in json.loads(path.read_text(encoding="utf-8"))["rules"]
    ]
    assert sources
    assert [path for path, source in sources if "never run" not in source] == []


def test_the_first_rule_that_takes_the_problem_wins(tmp_path: Path) -> None:
    """A rule for causal masks comes before a general one if it is listed before it."""
    causal = RULE | {"when": {"causal": True}, "source": "causal"}
    space = written(tmp_path, [causal, RULE])
    assert space.choose("x", problem()).rule.source == "causal"
    assert space.choose("x", problem(causal=False)).rule.source == "a test"


def test_bounds_hold_their_own_value(tmp_path: Path) -> None:
    """size_max 64 takes 64 and not 65; size_min 65 the reverse."""
    space = written(tmp_path, [RULE, RULE | {"when": {"size_min": 65}, "source": "large"}])
    assert space.choose("x", problem(size=64)).rule.source == "a test"
    assert space.choose("x", problem(size=65)).rule.source == "large"


def test_an_architecture_s_own_file_is_used(tmp_path: Path) -> None:
    """What has a file of its own does not use the default, and the choice says which file it was."""
    written(tmp_path, [RULE])
    space = written(tmp_path, [RULE | {"source": "own"}], arch="sm_90")
    assert (space.choose("sm_90", problem()).arch, space.choose("sm_90", problem()).rule.source) == ("sm_90", "own")
    assert space.choose("sm_75", problem()).arch == "default"


def test_no_rule_for_the_problem(tmp_path: Path) -> None:
    """The error names the file, the problem, and what there is; so does one for other properties."""
    space = written(tmp_path, [RULE])
    text = r"default\.json has no rule for size 128, bits 16, causal True; it has rules for: size_max 64, bits 16\."
    with pytest.raises(KernelConfigError, match=text):
        space.choose("sm_90", problem(size=128))
    with pytest.raises(KernelConfigError, match="made: a configuration is chosen by size, bits, causal, got size 1"):
        space.choose("sm_90", {"size": 1})


@pytest.mark.parametrize(
    ("rules", "schema", "text"),
    [
        ([RULE], 1, "schema is 1, this version reads 2"),
        ([], 2, "'rules' must be a list of at least one rule"),
        ([{"source": "a"}], 2, r"rules\[0\] has \['source'\], needs exactly"),
        ([RULE | {"source": ""}], 2, r"rules\[0\] has no source; say which measurement"),
        ([RULE | {"when": {"sise_max": 1}}], 2, r"rules\[0\]\.when asks for \['sise_max'\]; made knows"),
        (
            [RULE, RULE | {"config": {"BLOCK_M": 64, "wraps": 4}}],
            2,
            r"rules\[1\]\.config lacks \['WIDE', 'num_stages', 'num_warps'\] and has unknown \['wraps'\]; known: ",
        ),
        ([RULE | {"config": RULE["config"] | {"WIDE": 1}}], 2, r"rules\[0\]\.config has WIDE = 1, which is no bool"),
    ],
)
def test_malformed_files_name_file_and_rule(tmp_path: Path, rules: Any, schema: int, text: str) -> None:
    """Whatever is wrong with a configuration file, the error says where and what is expected."""
    with pytest.raises(KernelConfigError, match=rf"default\.json: .*{text}"):
        written(tmp_path, rules, schema).load_rules("default")


@pytest.mark.parametrize("content", ['{"schema": 2,', None])
def test_unreadable_files_are_named(tmp_path: Path, content: str | None) -> None:
    """A truncated or missing file is an error with its path, not an empty set of rules."""
    space = written(tmp_path, [RULE])
    if content is None:
        space.config_path("default").unlink()
    else:
        space.config_path("default").write_text(content, encoding="utf-8")
    with pytest.raises(KernelConfigError, match=r"default\.json: cannot be read as JSON .*; restore it"):
        space.load_rules("default")


STORED = {
    "BLOCK_M": "64",
    "BLOCK_N": "32",
    "PRELOAD_V": "True",
    "GROUP_HEADS": "4096",
    "num_warps": "4",
    "num_stages": "1",
    "waves_per_eu": "2",
    "config_arch": "gfx942",
    "config_source": "a report",
    "pinned": "as stored",
}


def test_a_stored_configuration_is_replayed() -> None:
    """The figures come back as numbers and truth values, and the source says that they were pinned, once only."""
    choice = SPACE.read_choice(STORED)
    figures = {
        "BLOCK_M": 64,
        "BLOCK_N": 32,
        "GROUP_HEADS": 4096,
        "PRELOAD_V": True,
        "num_warps": 4,
        "num_stages": 1,
        "waves_per_eu": 2,
    }
    assert choice.config == figures
    assert (choice.arch, choice.rule.source) == ("gfx942", "pinned: a report")
    assert SPACE.read_choice(choice.config_entries()) == choice
    assert SPACE.read_choice(choice.config_entries("a."), "a.") == choice


def test_what_a_stored_configuration_lacks() -> None:
    """The error names what is missing, what there is, and what to do."""
    text = (
        r"lacks BLOCK_N, GROUP_HEADS, PRELOAD_V, num_stages, num_warps; it has BLOCK_M; record the baseline again, or "
        "run without"
    )
    with pytest.raises(UsageError, match=text):
        SPACE.read_choice({"BLOCK_M": "64"})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("BLOCK_M", "many", "a whole number of at least 0"),
        ("num_stages", "-1", "a whole number of at least 0"),
        ("PRELOAD_V", "1", "True or False"),
    ],
)
def test_a_stored_value_that_is_none(name: str, value: str, wanted: str) -> None:
    """The error names the entry, its value, and what was expected."""
    with pytest.raises(UsageError, match=f"has {name} = '{value}', which is not {wanted}; record the baseline again"):
        SPACE.read_choice(STORED | {name: value})


@pytest.mark.parametrize(("size", "expected"), [(1, 16), (16, 16), (17, 32), (64, 64), (111, 128)])
def test_padded(size: int, expected: int) -> None:
    """The next power of two that a matrix instruction takes."""
    assert pad_size(size) == expected


def with_alternatives(tmp_path: Path, alternatives: Any) -> Space:
    """A space whose file has one rule and these alternatives; WIDE may be left out."""
    space = written(tmp_path, [RULE])
    document = {"schema": 2, "rules": [RULE], "alternatives": alternatives}
    space.config_path("default").write_text(json.dumps(document), encoding="utf-8")
    return Space(space.kernel, space.constants, space.properties, tmp_path, defaults={"WIDE": False})


def test_an_alternative_is_chosen_by_name_only(tmp_path: Path) -> None:
    """The rules choose as before; by its name the alternative's first fitting rule is chosen, with its own source."""
    small = RULE | {"when": {"size_max": 32}, "source": "small"}
    large = RULE | {"config": {"BLOCK_M": 128, "num_warps": 4, "num_stages": 1}, "source": "published"}
    space = with_alternatives(tmp_path, {"published": [small, large]})
    assert space.choose("x", problem()).rule.source == "a test"
    chosen = space.choose_alternative("published", "x", problem())
    assert (chosen.arch, chosen.rule.source, chosen.config["BLOCK_M"]) == ("default", "published", 128)
    assert space.choose_alternative("published", "x", problem(size=8)).rule.source == "small"
    assert space.find_alternatives("x", problem(size=65)) == {}


def test_a_missing_alternative_is_an_error_that_says_what_there_is(tmp_path: Path) -> None:
    """Another name, and a problem that it has no rule for, name the file, the problem and the alternatives."""
    space = with_alternatives(tmp_path, {"published": [RULE]})
    text = r"default\.json has no alternative 'tuned' for size 64, bits 16, causal True; it has published for that"
    with pytest.raises(KernelConfigError, match=text):
        space.choose_alternative("tuned", "x", problem())
    with pytest.raises(KernelConfigError, match=r"no alternative 'published' for size 65, .* it has none for that"):
        space.choose_alternative("published", "x", problem(size=65))


@pytest.mark.parametrize(
    ("alternatives", "text"),
    [
        ([RULE], "'alternatives' must be an object of names, each with a list of rules"),
        ({"a": []}, "'alternatives' must be an object of names, each with a list of rules"),
        ({"a": [RULE | {"source": ""}]}, r"alternatives\.a\[0\] has no source; say which measurement"),
        (
            {"a": [RULE | {"config": {"num_warps": 4}}]},
            r"alternatives\.a\[0\]\.config lacks \['BLOCK_M', 'num_stages'\]",
        ),
    ],
)
def test_malformed_alternatives_name_file_and_rule(tmp_path: Path, alternatives: Any, text: str) -> None:
    """An alternative is checked as a rule is, and has a source; constants with a default may be left out."""
    with pytest.raises(KernelConfigError, match=rf"default\.json: {text}"):
        with_alternatives(tmp_path, alternatives).load_alternatives("x")


def test_every_shipped_alternative_has_a_source_and_was_not_run_on_amd() -> None:
    """Alternatives are published figures: each names its file or report, and on AMD says that it was never run here."""
    found = [
        (path.stem, rule["source"])
        for path in FOLDER.glob("*/*.json")
        for rules in json.loads(path.read_text(encoding="utf-8")).get("alternatives", {}).values()
        for rule in rules
    ]
    assert len(found) >= 7
    places = ("ROCm/triton python/perf-kernels/", "MI300X flash attention report, 2025-12-30")
    assert [source for _, source in found if not any(place in source for place in places)] == []
    assert [arch for arch, source in found if arch.startswith("gfx") and "never run here" not in source] == []


def test_what_a_rule_leaves_out_is_its_default(tmp_path: Path) -> None:
    """A constant with a default is required neither of a rule nor of a stored configuration."""
    space = with_alternatives(tmp_path, {})
    stored = {"BLOCK_M": "64", "num_warps": "4", "num_stages": "1"}
    assert space.read_choice(stored).config == {"BLOCK_M": 64, "num_warps": 4, "num_stages": 1}
    assert space.read_choice(stored | {"WIDE": "True"}).config["WIDE"] is True
    assert space.required == {"BLOCK_M", "num_warps", "num_stages"}

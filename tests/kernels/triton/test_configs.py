from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.triton.configs import PREFILL_FORWARD, KernelConfigError, choose, load, replayed
from pytest_attnperf.errors import UsageError

RULE: dict[str, Any] = {
    "head_dim_max": 64,
    "causal": None,
    "element_bits": 16,
    "config": {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": False, "num_warps": 4, "num_stages": 1},
    "source": "a test",
}


def written(tmp_path: Path, archs: Any, schema: int = 1) -> Path:
    """A configuration file holding these architectures."""
    path = tmp_path / "configs.json"
    path.write_text(json.dumps({"schema": schema, "archs": archs}), encoding="utf-8")
    return path


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx950", "interpreter", "sm_75"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 128, 256])
@pytest.mark.parametrize("element_bits", [16, 32])
def test_every_problem_has_a_configuration(arch: str, head_dim: int, element_bits: int) -> None:
    """The shipped file answers for every head dimension, dtype width and mask, on listed and unlisted architectures."""
    for causal in (True, False):
        choice = choose(arch, head_dim, causal=causal, element_bits=element_bits)
        assert choice.arch == ("default" if arch == "sm_75" else arch)
        assert choice.rule.head_dim_max >= head_dim


def test_mi300x_uses_the_published_tile_at_d256() -> None:
    """gfx942 gets the MI300X report's tuned tile at D=256; the source names what differs, and that it was not run."""
    rule = choose("gfx942", 256, causal=True, element_bits=16).rule
    published = {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True, "num_stages": 1, "waves_per_eu": 2}
    assert rule.config == published | {"num_warps": 8}
    assert "MI300X" in rule.source
    assert "with 4 warps; 8 here, because ours spills 27 registers with 4; never run here" in rule.source


def test_what_was_never_run_on_amd_says_so() -> None:
    """Every gfx rule says in its source that it was never run."""
    rules = [rule for arch, rules in load(PREFILL_FORWARD).items() if arch.startswith("gfx") for rule in rules]
    assert rules
    assert all("never" in rule.source for rule in rules)


def test_the_first_rule_that_takes_the_problem_wins(tmp_path: Path) -> None:
    """A rule for causal masks comes before a general one if it is listed before it."""
    causal = RULE | {"causal": True, "source": "causal"}
    path = written(tmp_path, {"default": [causal, RULE]})
    assert choose("x", 64, causal=True, element_bits=16, path=path).rule.source == "causal"
    assert choose("x", 64, causal=False, element_bits=16, path=path).rule.source == "a test"


def test_no_rule_for_the_problem(tmp_path: Path) -> None:
    """The error names the file, the problem, and what there is."""
    path = written(tmp_path, {"default": [RULE]})
    text = r"configs\.json: default has no rule for head_dim 128, causal, 16-bit elements; it has: 16-bit up to 64\."
    with pytest.raises(KernelConfigError, match=text):
        choose("sm_90", 128, causal=True, element_bits=16, path=path)


@pytest.mark.parametrize(
    ("archs", "schema", "text"),
    [
        ({"default": [RULE]}, 2, "schema is 2, this version reads 1"),
        ([RULE], 1, "'archs' must be an object with an entry 'default'"),
        ({"sm_90": [RULE]}, 1, "'archs' must be an object with an entry 'default'"),
        ({"default": [{"source": "a"}]}, 1, r"default\[0\] has \['source'\], needs exactly"),
        ({"default": [RULE | {"source": ""}]}, 1, r"default\[0\] has no source; say which measurement"),
        (
            {"default": [RULE, RULE | {"config": {"BLOCK_M": 64, "wraps": 4}}]},
            1,
            r"default\[1\]\.config lacks \['BLOCK_N', 'PRELOAD_V', .*\] and has unknown \['wraps'\]; known: ",
        ),
    ],
)
def test_malformed_files_name_file_and_rule(tmp_path: Path, archs: Any, schema: int, text: str) -> None:
    """Whatever is wrong with a configuration file, the error says where and what is expected."""
    with pytest.raises(KernelConfigError, match=rf"configs\.json: .*{text}"):
        load(written(tmp_path, archs, schema))


@pytest.mark.parametrize("content", ['{"schema": 1,', None])
def test_unreadable_files_are_named(tmp_path: Path, content: str | None) -> None:
    """A truncated or missing file is an error with its path, not an empty set of rules."""
    path = tmp_path / "configs.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(KernelConfigError, match=r"configs\.json: cannot be read as JSON .*; restore it"):
        load(path)


STORED = {
    "BLOCK_M": "64",
    "BLOCK_N": "32",
    "PRELOAD_V": "True",
    "num_warps": "4",
    "num_stages": "1",
    "waves_per_eu": "2",
    "config_arch": "gfx942",
    "config_source": "a report",
    "pinned": "as stored",
}


def test_a_stored_configuration_is_replayed() -> None:
    """The figures come back as numbers and truth values, and the source says that they were pinned, once only."""
    choice = replayed(STORED)
    assert choice.rule.config == {
        "BLOCK_M": 64,
        "BLOCK_N": 32,
        "PRELOAD_V": True,
        "num_warps": 4,
        "num_stages": 1,
        "waves_per_eu": 2,
    }
    assert (choice.arch, choice.rule.source) == ("gfx942", "pinned: a report")
    assert replayed(STORED | {"config_source": choice.rule.source}).rule.source == "pinned: a report"


def test_what_a_stored_configuration_lacks() -> None:
    """The error names what is missing, what there is, and what to do."""
    text = r"lacks BLOCK_N, PRELOAD_V, num_stages, num_warps; it has BLOCK_M; record the baseline again, or run without"
    with pytest.raises(UsageError, match=text):
        replayed({"BLOCK_M": "64"})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("BLOCK_M", "many", "a positive whole number"),
        ("num_warps", "0", "a positive whole number"),
        ("num_stages", "-1", "a positive whole number"),
        ("PRELOAD_V", "1", "True or False"),
    ],
)
def test_a_stored_value_that_is_none(name: str, value: str, wanted: str) -> None:
    """The error names the entry, its value, and what was expected."""
    with pytest.raises(UsageError, match=f"has {name} = '{value}', which is not {wanted}; record the baseline again"):
        replayed(STORED | {name: value})

"""Which rule of our files a workload takes, and when that rule is for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels import configs
from kernels.configs import Space
from kernels.table_entries import compare_keys, cut_rows, find_entry
from kernels.triton.gemm.backend import BACKENDS as GEMM_BACKENDS
from kernels.triton.prefill.backend import BACKENDS as PREFILL_BACKENDS
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.tuned_tables import Auditable, Coverage, TableEntry, Tiles
from pytest_attnperf.tuning_records import Tunable
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.prefill import Prefill

MI300X = DeviceInfo("rocm", "gfx942", "mi300x", "MI300X", 304)
WORKLOAD = Prefill.parse("prefill-b1-s512-h8-d96-bf16")
TYPED = {"head_dim_max": 96, "element_bits": 16}
PROBLEM = {"head_dim": 96, "element_bits": 16}

FindIn = Callable[..., TableEntry]


@pytest.fixture
def find_in(tmp_path: Path) -> FindIn:
    """Look `PROBLEM` up for gfx942 in files {name: rules as conditions, or text}."""

    def find(files: dict[str, list[dict[str, Any]] | str], source: str = "measured") -> TableEntry:
        space = Space("prefill_forward", {"BLOCK_M": int}, ("head_dim", "element_bits"), tmp_path, frozenset())
        folder = tmp_path / space.kernel
        folder.mkdir(exist_ok=True)
        for name, rules in files.items():
            held = rules if isinstance(rules, str) else _render(rules, source)
            (folder / f"{name}.json").write_text(held, encoding="utf-8")
        configs._load_rules.cache_clear()
        return find_entry(space, WORKLOAD, PROBLEM, "gfx942")

    return find


def _render(rules: list[dict[str, Any]], source: str) -> str:
    entries = [{"when": when, "config": {"BLOCK_M": 128}, "source": source} for when in rules]
    return json.dumps({"schema": 2, "rules": entries})


@pytest.mark.parametrize(
    ("rules", "coverage", "apart"),
    [
        ([TYPED], Coverage.EXACT, {}),
        ([{"head_dim": 96, "element_bits": 16}], Coverage.EXACT, {}),
        ([{"head_dim_max": 128, "element_bits": 16}], Coverage.NEAREST, {"head_dim_max": (128, 96)}),
        ([{"head_dim_min": 64, "element_bits": 16}], Coverage.NEAREST, {"head_dim_min": (64, 96)}),
        ([{"head_dim_max": 96}], Coverage.NEAREST, {"element_bits": ("any", 16)}),
        ([{"head_dim_max": 96, "element_bits": 32}, TYPED], Coverage.EXACT, {}),
        ([{}], Coverage.DEFAULT, {"element_bits": ("any", 16)}),
        ([{"head_dim_max": 96, "element_bits": 32}], Coverage.NONE, {}),
    ],
)
def test_how_well_a_rule_fits(
    find_in: FindIn, rules: list[dict[str, Any]], coverage: Coverage, apart: dict[str, Any]
) -> None:
    """Exact is the workload's own size and element type; an entry of another or of any type is not."""
    found = find_in({"gfx942": rules})
    assert (found.coverage, found.apart) == (coverage, apart)


def test_a_file_for_another_architecture_is_not_taken(find_in: FindIn) -> None:
    """gfx950 has the exact key, gfx942 no file: default.json is taken, and is never exact."""
    found = find_in({"gfx950": [TYPED], "default": [TYPED]})
    assert (found.coverage, found.file) == (Coverage.DEFAULT, "default.json")


def test_a_source_s_version_and_what_a_key_does_not_name(find_in: FindIn) -> None:
    """The version of Triton is read from the source as the tuner writes it."""
    found = find_in({"gfx942": [{"element_bits": 16}]}, "attnperf tune on MI300X, triton 3.5.1, 2026-01-02")
    assert (found.versions, found.unnamed) == ({"triton": "3.5.1"}, ("head_dim",))
    assert find_in({"gfx942": [TYPED]}, "untuned").versions == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([TYPED, {"head_dim_max": 64}, TYPED], "gfx942.json: rules 1 and 3 have the same conditions (head_dim_max 96"),
        ("", "gfx942.json: cannot be read as JSON"),
        ('{"schema": 2, "rules": []}', "gfx942.json: 'rules' must be a list of at least one rule"),
        ('{"schema": 2, "rules": [{"when"', "cannot be read as JSON"),
        ('{"schema": 2, "schema": 2, "rules": []}', "schema"),
        ('{"schema": 2, "rules": [{"when": {"head_dim": NaN}, "config": {"BLOCK_M": 1}, "source": "s"}]}', "NaN"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_file_that_is_off_is_a_usage_error(find_in: FindIn, content: Any, said: str) -> None:
    """A repeated key, an empty, cut or hostile file: never a wrong answer, never a traceback."""
    with pytest.raises(UsageError) as raised:
        find_in({"gfx942": content})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("backends", "workload"),
    [
        (PREFILL_BACKENDS, Prefill.parse("prefill-b1-s512-h32-hk8-d80-bf16-causal")),
        (GEMM_BACKENDS, Gemm.parse("gemm-m512-n6144-k4096-bf16-nt")),
    ],
)
def test_the_conditions_make_the_rule_exact(backends: Any, workload: Any) -> None:
    """`when` of an entry of our files is taken by the tuner, and a rule with these conditions is exact."""
    backend = backends[0]
    assert isinstance(backend, Auditable)
    assert isinstance(backend, Tunable)
    (entry,) = backend.find_entries(workload, MI300X)
    assert entry.coverage is Coverage.NEAREST
    assert entry.when
    space = backend.tuning_space([workload], "gfx942", kernel=entry.kernel, when=dict(entry.when))  # type: ignore[arg-type]
    assert space.serves.startswith("a new rule (")
    assert 0 < entry.tiles.filled <= 1 if entry.tiles else False


def test_conditions_of_a_whole_space() -> None:
    """Element types of one size are told apart only by a rule that names the type; either name will do."""
    space = Space("gemm", {"B": int}, ("m", "dtype", "element_bits"))
    rule = configs.ConfigRule({"m": 8, "dtype": "bf16"}, {"B": 1}, "s")
    assert compare_keys(space, rule, {"m": 8, "dtype": "bf16", "element_bits": 16}) == ({}, {})


def test_tiles_of_rows() -> None:
    """Two sequences of 100 and 28 rows in blocks of 64 make three blocks for each head; a third is padding."""
    assert cut_rows([100, 28], 64, 4) == Tiles(12, 128 / 192)


def test_a_family_without_a_table() -> None:
    """A kernel that declares no tuning space has nothing that could be looked up."""
    backend = next(each for each in GEMM_BACKENDS if "stream" in each.name)
    with pytest.raises(UnsupportedError, match="none of its kernels declares a tuning space"):
        backend.find_entries(Gemm.parse("gemm-m4096-n4096-k4096-bf16-nt"), MI300X)

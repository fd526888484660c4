"""An audit: what counts as a gap, what as STALE, what is estimated, and the commands that would measure it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import pytest

from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry, Tiles
from pytest_attnperf.testing.fake.backends import FakeBackend, FakeTunableBackend
from pytest_attnperf.tools.tuner.audit import Age, Audit, audit_pairs, compare_versions, estimate_idle
from pytest_attnperf.tools.tuner.audit_text import audit_json, format_apart, render_audit
from pytest_attnperf.workloads.prefill import Prefill

SMALL, LARGE = "prefill-b1-s128-h1-d16-f16", "prefill-b1-s512-h1-d16-f16"
DEVICE = DeviceInfo("rocm", "gfx942", "mi300x", "MI300X", 304)
IN_USE = {"triton": "3.6.0"}
EXACT = {"coverage": "exact", "versions": {"triton": "3.6.0"}, "tiles": [152, 0.5]}
NEAREST = {"coverage": "nearest", "apart": {"head_dim_max": [32, 16]}, "when": {"head_dim_max": 16}}


def audit(**entries: Mapping[str, object]) -> Audit:
    """The audit of one backend, whose entries for SMALL and LARGE are given."""
    scripted = {{"small": SMALL, "large": LARGE}[name]: entry for name, entry in entries.items()}
    backend = FakeTunableBackend("fake.a", space={"entries": scripted})
    return audit_pairs([(backend, Prefill.parse(name)) for name in (SMALL, LARGE, SMALL)], DEVICE, IN_USE)


@pytest.mark.parametrize(
    ("entry", "clean"),
    [
        (EXACT, True),
        ({"coverage": "exact"}, True),
        ({**EXACT, "versions": {"triton": "3.5.9"}}, False),
        (NEAREST, False),
        ({"coverage": "default"}, False),
        ({"coverage": "none"}, False),
    ],
)
def test_what_is_clean(entry: dict[str, object], clean: bool) -> None:
    """Exact and not STALE is; an unknown age is no finding, each of the others is one."""
    found = audit(small=EXACT, large=entry)
    assert (len(found.rows), found.is_clean) == (2, clean)


@pytest.mark.parametrize(
    ("recorded", "used", "age"),
    [
        ("3.6.0", "3.6.0", Age.FRESH),
        ("3.6", "3.6.1", Age.FRESH),
        ("3.9.0", "3.10.0", Age.STALE),
        ("3.6.0+git1", "3.6.1", Age.STALE),
        ("3.7.0", "3.6.0", Age.FRESH),
        ("3.6.0", "none", Age.UNKNOWN),
        ("\x1b[31m", "3.6.0", Age.UNKNOWN),
        ("9" * 5000, "3.6.0", Age.FRESH),
    ],
)
def test_ages(recorded: str, used: str, age: Age) -> None:
    """Versions are compared as numbers, in the digits that the entry records."""
    assert compare_versions({"triton": recorded}, {"triton": used}) is age


def test_no_version_is_of_unknown_age() -> None:
    """Nothing recorded cannot be stale."""
    assert compare_versions({}, IN_USE) is Age.UNKNOWN


@pytest.mark.parametrize(
    ("tiles", "idle"),
    [(Tiles(304, 1.0), 0.0), (Tiles(305, 1.0), 1 - 305 / 608), (Tiles(152, 0.5), 0.75), (Tiles(1, 1.0), 1 - 1 / 304)],
)
def test_the_estimate(tiles: Tiles, idle: float) -> None:
    """Whole waves of full tiles leave nothing idle; one program more costs nearly a wave; padding counts, too."""
    assert estimate_idle(tiles, 304) == pytest.approx(idle)


def test_commands_search_what_is_missing() -> None:
    """One for the workloads of one rule and one set of conditions, as the parser takes it; none for what no rule
    serves, and for kernels that cannot be tuned."""
    both = audit(small=NEAREST, large=NEAREST)
    (command,) = both.list_commands()
    assert command == (
        f"attnperf tune fake.a --kernel fake_kernel --when head_dim_max=16 --workload {SMALL} --workload {LARGE}"
    )
    options = build_parser(["tune"]).parse_args(command.split()[1:])
    assert (options.when, options.workload) == (["head_dim_max=16"], [SMALL, LARGE])
    stale = audit(small={**EXACT, "versions": {"triton": "3.0.0"}})
    assert stale.list_commands() == [f"attnperf tune fake.a --kernel fake_kernel --workload {SMALL}"]
    assert audit(small=EXACT, large={"coverage": "none"}).list_commands() == []
    assert audit(small={**NEAREST, "tunable": False}).list_commands() == []


def test_the_text_says_how_far_and_how_old() -> None:
    """The distance of a nearest key, STALE beside the fit, the estimate by its name, and the totals."""
    text = render_audit(audit(small=NEAREST, large={**EXACT, "versions": {"triton": "3.0.0"}}))
    assert "tables for gfx942 (MI300X, 304 CUs); in use here: triton 3.6.0" in text
    assert "head_dim_max 32 for 16 (x2)" in text
    assert "exact, STALE" in text
    assert "75 %" in text
    assert "idle: an estimate, nothing was timed" in text
    assert "2 looked up: 1 exact, 1 nearest; 1 STALE, 1 of unknown age" in text
    assert "to measure them, on a MI300X:\n  attnperf tune fake.a" in text


def test_what_could_not_be_looked_up_is_said() -> None:
    """Backends without tables by their reason, and pairs that the device cannot run by their number."""
    pairs = [(FakeBackend("fake.b"), Prefill.parse(SMALL)), (FakeTunableBackend("fake.c"), Prefill.parse(SMALL))]
    silent = FakeTunableBackend("fake.d", space={"entries": {}})
    text = render_audit(audit_pairs([*pairs, (silent, Prefill.parse(SMALL))], DEVICE, IN_USE), 1000)
    assert "not audited (no entries are scripted): fake.c prefill" in text
    assert "fake.b prefill" in text
    assert "0 looked up: nothing; 0 STALE, 0 of unknown age; 1 unsupported pairs left out" in text


def test_a_hostile_file_cannot_write_on_the_terminal() -> None:
    """Escape sequences and line breaks of a source, a key or a value are not printed, in the text or in JSON."""
    bad = "\x1b[2K\r\n::error::red"
    hostile = {"coverage": "nearest", "source": bad, "key": bad, "file": bad, "apart": {bad: [bad, 16]}}
    found = audit(small=hostile)
    for text in (render_audit(found), audit_json(found)):
        assert "\x1b" not in text
        assert "\r" not in text
        assert not any(line.startswith("::") for line in text.splitlines())


def test_json_has_all_of_a_row() -> None:
    """Entry, distance, age and estimate by name."""
    found = json.loads(audit_json(audit(small=NEAREST, large=EXACT)))
    nearest, exact = found["rows"]
    assert (found["schema"], found["clean"], found["arch"]) == ("attnperf.audit/1", False, "gfx942")
    assert nearest["apart"] == {"head_dim_max": {"entry": 32, "workload": 16}}
    assert (nearest["coverage"], nearest["age"], nearest["idle_estimate"]) == ("nearest", "unknown", None)
    assert (exact["age"], exact["idle_estimate"], exact["tiles"]["programs"]) == ("fresh", 0.75, 152)
    assert set(nearest) >= {field.name for field in dataclasses.fields(TableEntry)}


def test_a_factor_needs_two_sizes() -> None:
    """Of words and truth values only the values are said."""
    assert (
        format_apart({"dtype": ("any", "bf16"), "causal": (True, False)}) == "dtype any for bf16, causal True for False"
    )
    assert Coverage("none") is Coverage.NONE

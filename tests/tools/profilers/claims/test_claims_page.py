from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profiles import (
    Agent,
    FamilyTime,
    ForwardPasses,
    KernelShape,
    KernelTime,
    ProfileFinding,
    ProfileSummary,
    ShapeTime,
    Spread,
)
from pytest_attnperf.tools.profilers.claims import claims_page as module
from pytest_attnperf.tools.profilers.claims.claims_page import assess_report, finding_lines, read_claims
from pytest_attnperf.tools.profilers.claims.records import Claims

ROOT = Path(__file__).parents[4]
SMALL = {"schema": 1, "table": {"rows": [{"name": "a", "time": "1.0 ms"}]}}

REPORT = Path(__file__).parents[4] / "examples/claims/flash_attention_report.json"
TOTAL = 157_160_000
SHAPE = KernelShape(
    "flash_attention_kernel(half*)",
    workgroup=(32, 8, 1),
    grid_items=(128, 192, 64),
    lds_bytes=1536,
    vgprs=8,
    sgprs=128,
)


def written(folder: Path, content: object, name: str = "claims.json") -> Path:
    """A file with this text, or with this document as JSON."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_document_is_read(tmp_path: Path) -> None:
    """A small document is read, with figures in SI units and the text as printed."""
    claims = read_claims(written(tmp_path, SMALL))
    assert claims.table is not None
    assert claims.table.rows[0].time.text == "1.0 ms"
    assert claims.table.rows[0].time.interval.middle == pytest.approx(1e-3)
    assert [finding.rule for finding in assess_report(claims)] == ["sum of times"]


def test_empty_document_claims_nothing(tmp_path: Path) -> None:
    """Only `schema` is needed, and nothing is found in nothing."""
    assert assess_report(read_claims(written(tmp_path, {"schema": 1}))) == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON (Input data was truncated)"),
        ("kernel_trace,1,2", "is no JSON"),
        ('{"schema": 1, "table": {"rows": ' + "[" * 100_000, "Expected `object`, got `array` - at `$.table.rows[0]`"),
        ({}, "Object missing required field `schema`"),
        ([], "Expected `object`, got `array`"),
        ({"schema": 2}, "field `schema` is 2; this version reads 1"),
        ({"schema": "1"}, "Expected `int`, got `str` - at `$.schema`"),
        ({"schema": 1, "devise": {}}, "unknown field `devise` at `$`; known: bounds, device, expectations, gains"),
        (
            {"schema": 1, "table": {"rows": [{"name": "a", "time": "1 ms", "cals": 3}]}},
            "unknown field `cals` at `$.table.rows[0]`; known: calls, family, members, name, nature, percent, time",
        ),
        (
            {"schema": 1, "performance": {"per_call": {"said": "x", "time": "31.3"}}},
            "'31.3' has no unit: expected a text such as '31.3 us' - at `$.performance.per_call.time`",
        ),
        (
            {"schema": 1, "kernel": {"waves": {"said": "4 waves", "count": "4"}}},
            "Expected `int`, got `str` - at `$.kernel.waves.count`",
        ),
        ({"schema": 1, "kernel": {"waves": {"count": 4}}}, "missing required field `said` - at `$.kernel.waves`"),
        ({"schema": 1, "\x1b[2J": 1}, "unknown field `?[2J` at `$`"),
        (
            {"schema": 1, "table": {"rows": [], "total": {"said": "x", "time": "1 s", "of": "all"}}},
            "unknown field `of` at `$.table.total`; known: said, time",
        ),
        ({"schema": 1, "title": "\x1b[2J"}, "at `$.title`"),
        (
            {"schema": 1, "kernel": {"workgroup": [32, 8]}},
            "Expected `array` of length 3 - at `$.kernel.workgroup`",
        ),
    ],
)
def test_unsound_document_is_refused(tmp_path: Path, content: object, message: str) -> None:
    """The message has the file, the path of the field, what was seen, and what is expected or exists."""
    path = written(tmp_path, content)
    with pytest.raises(UsageError, match=re.escape(str(path)) + "(?s:.*)" + re.escape(message)):
        read_claims(path)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are errors of usage with what they are."""
    with pytest.raises(UsageError, match=r"absent.json: cannot be read \(No such file"):
        read_claims(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="is a folder; give a regular file"):
        read_claims(tmp_path)


def test_large_file_is_refused(tmp_path: Path) -> None:
    """A trace given by mistake is not read to its end."""
    path = written(tmp_path, " " * (module.MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"has 1,048,577 bytes; at most 1,048,576 are read; was a trace given\?"):
        read_claims(path)


def fake_yaml(load: Callable[[bytes], object]) -> Any:
    """A stand-in for PyYAML with nothing but what is to be used of it."""
    return types.SimpleNamespace(safe_load=load, YAMLError=type("YAMLError", (Exception,), {}))


def test_yaml_is_read_as_plain_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML goes through safe_load, which makes no Python objects, and is then held to the same types as JSON."""
    monkeypatch.setitem(sys.modules, "yaml", fake_yaml(lambda content: json.loads(content)))
    assert read_claims(written(tmp_path, SMALL, "claims.yaml")).table is not None
    with pytest.raises(UsageError, match=r"claims.yml: unknown field `nam` at `\$.kernel`; known: agprs, family"):
        read_claims(written(tmp_path, {"schema": 1, "kernel": {"nam": ""}}, "claims.yml"))


def test_broken_yaml_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What safe_load refuses, a Python object among them, is an error of usage with its reason."""
    stand_in = fake_yaml(lambda content: None)

    def refuse(content: bytes) -> object:
        raise stand_in.YAMLError("could not determine a constructor for the tag")

    stand_in.safe_load = refuse
    monkeypatch.setitem(sys.modules, "yaml", stand_in)
    with pytest.raises(UsageError, match=r"is no YAML of plain values \(could not determine a constructor"):
        read_claims(written(tmp_path, "!!python/object:os.system", "claims.yaml"))


def test_real_yaml(tmp_path: Path) -> None:
    """PyYAML itself: a document as people write it is read; tags of Python and bombs of aliases are refused at once."""
    pytest.importorskip("yaml")
    claims = read_claims(written(tmp_path, "schema: 1\ntable:\n  rows:\n    - {name: a, time: 1.0 ms}\n", "c.yaml"))
    assert claims.table is not None
    assert claims.table.rows[0].time.text == "1.0 ms"
    for text in ("schema: !!python/object/apply:os.getcwd []", "schema: [1", "\t- x: y"):
        with pytest.raises(UsageError, match="is no YAML of plain values"):
            read_claims(written(tmp_path, text, "c.yaml"))
    levels = "".join(f"l{level}: &l{level} [{','.join([f'*l{level - 1}'] * 9)}]\n" for level in range(1, 12))
    with pytest.raises(UsageError, match="unknown field"):
        read_claims(written(tmp_path, f"schema: 1\nl0: &l0 [x]\n{levels}", "c.yaml"))


def test_yaml_without_pyyaml_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML is absent, the message has the command that installs it, and JSON as the other way."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match=r"needs PyYAML, .*: pip install 'pytest-attnperf\[yaml\]', or write"):
        read_claims(written(tmp_path, SMALL, "claims.yaml"))


def test_documented_example_is_sound(tmp_path: Path) -> None:
    """Every JSON document that examples/claims/README.md prints of claims is read as it stands."""
    section = (ROOT / "examples/claims/README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        assert assess_report(read_claims(written(tmp_path, block, f"{number}.json")))


def test_documented_fields_are_those_of_the_schema() -> None:
    """examples/claims/README.md describes every top-level field, and no other."""
    text = (ROOT / "examples/claims/README.md").read_text(encoding="utf-8")
    table = text.partition("## The claims document")[2].partition("\n##")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(Claims.__struct_fields__)


def test_yaml_of_half_a_character_is_refused(tmp_path: Path) -> None:
    """Half a surrogate pair, which YAML can write and UTF-8 cannot, is one message."""
    pytest.importorskip("yaml", reason="needs PyYAML")
    with pytest.raises(UsageError, match=r"claims\.yaml"):
        read_claims(written(tmp_path, '"\\ud800\\ud801": 1\n', "claims.yaml"))


def test_contradictions_stand_first_and_all_are_counted() -> None:
    """A reader sees what is wrong before what holds, and how many of each there are."""
    found = (
        ProfileFinding("ratio", True, "51.9x", "", "121.89 / 2.35 is 51.9"),
        ProfileFinding("waves", False, "4", "8", "256 threads are 8 waves"),
        ProfileFinding("hits", None, "90%", "", "no counter"),
    )
    assert finding_lines(found) == [
        "CONTRADICTED waves: 256 threads are 8 waves",
        "OPEN hits: no counter",
        "holds ratio: 121.89 / 2.35 is 51.9",
        "1 contradicted, 1 open, 1 hold",
    ]


def family(name: str, nature: str, calls: int, ns: int) -> FamilyTime:
    """A family of one kernel."""
    return FamilyTime(name, nature, 1, calls, ns, ns / TOTAL)


def summary(**changed: object) -> ProfileSummary:
    """The profile that the report was written from."""
    spread = Spread(75, 2_350_000, median_ns=30_100)
    attention = KernelTime(SHAPE.name, "attention", "kernel", spread, 0.015, shapes=(ShapeTime(SHAPE, spread),))
    copies = KernelTime("__amd_rocclr_copyBuffer", "memory copy", "kernel", Spread(304, 1_220_000), 0.0078)
    made = ProfileSummary(
        name="run",
        sources=(),
        agents=(),
        total_ns=TOTAL,
        calls=1953,
        kernels=(attention, copies),
        families=(
            family("GEMM", "compute", 650, 121_890_000),
            family("normalisation", "compute", 300, 11_440_000),
            family("bias add", "compute", 180, 8_120_000),
            family("fill", "fill", 4, 6_880_000),
            family("memory copy", "copy", 304, 1_220_000),
            family("conversion", "conversion", 400, 4_190_000),
            family("attention", "compute", 75, 2_350_000),
        ),
        passes=ForwardPasses(5, "most kernels have 5 calls"),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


@cache
def claims() -> Claims:
    """The report's claims, read once."""
    return read_claims(REPORT)


def against(profile: ProfileSummary) -> dict[str, ProfileFinding]:
    """What is found of the report beside a profile, by rule, without what is found of it alone."""
    found = assess_report(claims(), profile)
    return {one.rule.removeprefix("profile: "): one for one in found if one.rule.startswith("profile: ")}


def test_figures_of_the_profile_hold() -> None:
    """Time, calls and share of every row that the profile has, and registers and launch of the kernel."""
    found = against(summary())
    right = {rule for rule, one in found.items() if one.holds}
    assert {f"{what} of rocBLAS GEMM" for what in ("time", "calls", "share")} <= right
    assert {"total time", "calls of the kernel", "time of the kernel", "time per call"} <= right
    assert {"vgprs", "sgprs", "lds", "workgroup", "work-items"} <= right
    assert "calls of __amd_rocclr_copyBuffer" not in found


def test_copies_that_are_conversions_are_found_in_the_profile() -> None:
    """704 'copies' are 304 copies and 400 conversions of the profile, with the time of each."""
    found = against(summary())["nature of Memory Copy"]
    assert found.holds is False
    assert found.should == (
        "304 copies (memory copy, 1.22 ms) + 400 kernels that convert between types (conversion, 4.19 ms)"
    )


def test_passes_of_the_profile_contradict_the_batches() -> None:
    """Three batches said, five passes in the profile."""
    found = against(summary())["passes"]
    assert (found.holds, found.should) == (False, "5 in the profile: most kernels have 5 calls")
    assert against(summary(passes=ForwardPasses(3, "layers")))["passes"].holds is True
    assert "passes" not in against(summary(passes=ForwardPasses(None, "nothing fits")))


def test_row_that_the_profile_lacks_is_open() -> None:
    """A row without a family or kernel of its name lists the families there are."""
    found = against(summary())["Other Kernels"]
    assert found.holds is None
    assert found.text.endswith("families: GEMM, normalisation, bias add, fill, memory copy, conversion, attention")
    assert against(summary(families=(), kernels=()))["rocBLAS GEMM"].text.endswith("families: none")


@pytest.mark.parametrize(
    ("changed", "rule", "text"),
    [
        ({"total_ns": 200_000_000}, "total time", "200 ms in the profile"),
        ({"families": (family("GEMM", "compute", 651, 121_890_000),)}, "calls of rocBLAS GEMM", "651 calls"),
        ({"families": (family("GEMM", "compute", 650, 131_890_000),)}, "time of rocBLAS GEMM", "131.89 ms"),
        ({"families": (family("GEMM", "compute", 650, 131_890_000),)}, "share of rocBLAS GEMM", "83.9%"),
        ({"families": (family("GEMM", "other", 650, 121_890_000),)}, "nature of rocBLAS GEMM", "are other kernels"),
    ],
)
def test_figure_that_the_profile_does_not_have_is_contradicted(
    changed: dict[str, object], rule: str, text: str
) -> None:
    """Each of time, calls, share and nature is held against the profile by itself."""
    found = against(summary(**changed))[rule]
    assert found.holds is False
    assert text in found.should


@pytest.mark.parametrize(
    ("shape", "rule", "text"),
    [
        (replace(SHAPE, vgprs=96), "vgprs", "96 VGPRs in the profile"),
        (replace(SHAPE, lds_bytes=16384), "lds", "16,384 bytes in the profile"),
        (replace(SHAPE, workgroup=(256, 1, 1)), "workgroup", "256 x 1 x 1 in the profile"),
    ],
)
def test_resources_of_another_kernel_are_contradicted(shape: KernelShape, rule: str, text: str) -> None:
    """Registers, LDS and launch are those of the profile's attention kernel, whatever the report calls it."""
    spread = Spread(75, 2_350_000)
    kernel = KernelTime("fmha_fwd", "attention", "kernel", spread, 0.015, shapes=(ShapeTime(shape, spread),))
    found = against(summary(kernels=(kernel,)))[rule]
    assert (found.holds, found.should) == (False, text)


def test_kernel_of_several_sizes_has_no_one_launch() -> None:
    """Where a kernel ran at several sizes, its registers and launch are not compared."""
    spread = Spread(75, 2_350_000)
    shapes = (ShapeTime(SHAPE, spread), ShapeTime(replace(SHAPE, grid_items=(64, 1, 1)), spread))
    kernel = KernelTime("fmha_fwd", "attention", "kernel", spread, 0.015, shapes=shapes)
    assert not {"vgprs", "workgroup"} & against(summary(kernels=(kernel,))).keys()


def test_row_may_name_a_kernel() -> None:
    """A row without such a family is matched with the one kernel whose name contains it."""
    found = against(summary(families=()))["calls of Flash Attention"]
    assert found.holds is True


def test_members_are_looked_up_by_name() -> None:
    """A member that the profile has is compared with its own calls."""
    kernels = (KernelTime("__amd_rocclr_copyBuffer", "memory copy", "kernel", Spread(300, 1_220_000), 0.0078),)
    families = (family("Memory Copy", "copy", 704, 5_410_000),)
    found = against(summary(kernels=kernels, families=families))["calls of __amd_rocclr_copyBuffer"]
    assert (found.holds, found.should) == (False, "300 calls in the profile")


@pytest.mark.parametrize(("arch", "holds"), [("gfx1151", True), ("gfx1201", False)])
def test_profile_of_another_device_is_found(arch: str, holds: bool) -> None:
    """A report about gfx1151 beside a profile of another device; where the profile does not say its own, nothing is."""
    found = against(summary(agents=(Agent("Agent 4", arch=arch), Agent("Agent 0", kind="cpu", arch="x86"))))["device"]
    assert (found.holds, f"{arch} in the profile" in found.text) == (holds, True)
    assert "device" not in against(summary())

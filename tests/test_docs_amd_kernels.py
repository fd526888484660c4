"""kernels/AMD_CODE.md shows the machine code that baselines hold, and what was demanded of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from docs import make_amd_kernels as maker
from docs.make_amd_kernels import HEAD, PAGE, Compiled, builds_of, compile_one, kernels_of, section, stored_digest
from kernels.aiter.mha_source import SOURCE_VARIABLE
from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import HipSource, Kernel, KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode, LoopEstimate

RENEW = "run `python docs/make_amd_kernels.py` to renew kernels/AMD_CODE.md"

PEAK_PERCENT_LEAST = {"gfx942": 45.0, "gfx950": 40.0}
"""Demanded of the best kernel, estimated."""

SALU_MOST = 40
SALU_MISSED = {("gfx942", 256)}
"""Where `hip.best` has more SALU instructions per tile of 32 x 32."""

CDNA = ("gfx90a", "gfx942", "gfx950")

LOOP = LoopEstimate(
    waves=2, cycles=4000.0, peak_cycles=2048.0, matrix_cycles=2048, vector_cycles=1800, lds_cycles=1312, matrix=128,
    valu=314, transcendental=34, salu=68, lds=48, loads=8, waits=35, barriers=2, flops=4 * 128 * 32 * 64,
    lds_reads=32, lds_writes=12, lds_read_bytes=32768, lds_write_bytes=8192, load_bytes=64 * 128 * 4 // 4,
    keys=64,
)  # fmt: skip
"""64 keys and 32 rows of a head dimension of 128, four waves."""

CODE = KernelCode(
    name="k", arch="gfx942", vgprs=218, agprs=0, unified_vgprs=218, sgprs=76, vgpr_spills=0, sgpr_spills=0,
    scratch_bytes=0, lds_static_bytes=0, lds_dynamic_bytes=32768, kernarg_bytes=64, threads=256, max_threads=256,
    wave_size=64, wgp_mode=None, dynamic_stack=False, code_bytes=4096, isa_hash="00", key_loop=LOOP,
)  # fmt: skip
SETTINGS = {"BLOCK_M": "128", "BLOCK_N": "64", "num_warps": "4"}
BUILD = KernelBuild("k", "d128-f16-causal-even", "gfx942", HipSource(Path("k.hip"), "k"), SETTINGS)


def compiled(code: KernelCode = CODE, label: str = "k", dtype: str = "f16", rows: int = 32) -> Compiled:
    """One kernel of the page."""
    return Compiled(label, (128, dtype), BUILD, code, rows)


@pytest.fixture(scope="module")
def tables() -> Mapping[str, Mapping[str, dict[str, str]]]:
    """Architecture -> kernel and head dimension -> column -> cell, as the page has them."""
    return {arch: dict(_rows(text)) for arch, text in _sections()}


def _sections() -> Iterator[tuple[str, str]]:
    for part in PAGE.read_text().split("\n## ")[1:]:
        yield part.partition("\n")[0], part


def _rows(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    head, *lines = (line.split() for line in text.partition("```text\n")[2].partition("```")[0].splitlines())
    for line in lines:
        yield line[0], dict(zip(head[1:], line[1:], strict=True))


def test_the_page_shows_the_machine_code_of_the_baselines() -> None:
    """A kernel that changed, and a model that answers otherwise, make the page out of date."""
    assert PAGE.read_text().startswith(HEAD.format(digest=stored_digest())), RENEW


@pytest.mark.parametrize("changed", ["gated", "model_answers"])
def test_an_old_page_is_found(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other machine code of one entry, and another estimate of one loop, give another digest."""
    before, known = stored_digest(), getattr(maker, changed)()
    key: Any = next(key for key in known if "hip.best/d64_f16_causal" in key or changed == "model_answers")
    monkeypatch.setattr(maker, changed, lambda: {**known, key: "other"})
    assert stored_digest() != before


@pytest.mark.parametrize("arch", PEAK_PERCENT_LEAST)
def test_the_best_kernel_reaches_the_peak_that_was_demanded(
    arch: str, tables: Mapping[str, Mapping[str, dict[str, str]]]
) -> None:
    """Estimated, of useful products, for each head dimension and element type."""
    best: dict[tuple[str, int, str], float] = {}
    for name, cells in tables[arch].items():
        shares = cells["peak_%"].split("/")
        for dtype, share in zip(("f16", "bf16"), shares * (3 - len(shares)), strict=False):
            case = (arch, int(name.rpartition("-")[2]), dtype)
            best[case] = max(best.get(case, 0.0), float(share))
    assert len(best) == 6
    assert min(best.values()) >= PEAK_PERCENT_LEAST[arch], best


@pytest.mark.parametrize("arch", PEAK_PERCENT_LEAST)
def test_scalar_instructions_of_the_best_hip_kernel_are_few(
    arch: str, tables: Mapping[str, Mapping[str, dict[str, str]]]
) -> None:
    """Per tile of 32 x 32, but for what is listed as missed."""
    found = {
        int(name.rpartition("-")[2]): max(map(float, cells["SALU"].split("/")))
        for name, cells in tables[arch].items()
        if name.startswith("hip.best-")
    }
    assert found.keys() == {64, 128, 256}
    assert {(arch, head_dim) for head_dim, count in found.items() if count > SALU_MOST} == {
        case for case in SALU_MISSED if case[0] == arch
    }, found


def test_nothing_spills_on_cdna() -> None:
    """No register of any kernel of the page."""
    spilling = {
        (arch, name)
        for arch, text in _sections()
        for name in re.findall(r"([\w.]+-\d+) \(", text.partition("Spilled registers: ")[2].partition(". ")[0])
        if arch in CDNA
    }
    assert spilling == set()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_page_has_the_figures_of_the_object(
    arch: str, tables: Mapping[str, Mapping[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`hip.best` at D = 128, compiled here."""
    monkeypatch.setattr(maker, "CACHE", tmp_path)
    (kernel,) = (kernel for backend, kernel in kernels_of(("hip.best",)) if backend == "hip.best")
    builds = {problem: build for problem, build in builds_of(kernel, arch).items() if problem[0] == 128}
    for reason in unsupported_reasons(builds[128, "f16"]):
        pytest.skip(reason)
    if not build_object(builds[128, "f16"], tmp_path).compiler.startswith("clang 22.1."):
        pytest.skip("the page is of clang 22.1")
    made = section(arch, [compile_one("hip.best", problem, build) for problem, build in builds.items()])
    assert dict(_rows(made)) == {"hip.best-128": tables[arch]["hip.best-128"]}


def test_the_page_has_the_figures_of_all_objects() -> None:
    """Every kernel of every architecture, compiled here."""
    text = PAGE.read_text()
    if ("aiter.triton-" in text) != bool(os.environ.get(SOURCE_VARIABLE)):
        pytest.skip(f"the page and this run differ in {SOURCE_VARIABLE}")
    rows = maker.compile_all(maker.ARCHS)
    for arch in maker.ARCHS:
        assert section(arch, [one for one in rows if one.code.arch == arch]) in f"{text}\n", RENEW


@pytest.mark.parametrize("arch", maker.ARCHS)
def test_every_kernel_is_built_in_both_types(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Causal, with whole tiles; a HIP kernel where only one type is gated, too, with the macro of its type."""
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    found = {backend: builds_of(kernel, arch) for backend, kernel in kernels_of(maker.BACKENDS)}
    assert found.keys() >= {"hip.matrix", "hip.prefetch", "hip.best", "triton.flash"}
    for backend, builds in found.items():
        assert len({dtype for _, dtype in builds}) == (2 if builds else 0), backend
        assert all("causal" in build.config and "ragged" not in build.config for build in builds.values())
    assert list(found["triton.flash"]) == [(d, dtype) for d in (64, 128, 256) for dtype in ("f16", "bf16")]
    source = found["hip.best"][128, "f16"].source
    assert isinstance(source, HipSource)
    assert source.defines["ELEMENT_BF16"] == "0"
    assert found["aiter.triton"] == {}


@dataclass(frozen=True)
class Declared(Kernel):
    """A kernel in these configurations."""

    name: str
    backends: tuple[str, ...]
    configs: tuple[str, ...]

    def builds(self, arch: str) -> list[KernelBuild]:
        """As declared."""
        source = TritonSource("m", "f", {}, {})
        return [KernelBuild(self.name, config, arch, source, SETTINGS) for config in self.configs]


def test_whole_tiles_are_shown_before_ragged_lengths() -> None:
    """A kernel that has only these is shown with them; features, full masks and other sizes are left out."""
    configs = ("d64-f16-causal-ragged", "d64-f16-causal-even", "d64-bf16-causal-ragged", "d64-bf16-full-ragged",
               "d128-bf16-causal-window", "d192-bf16-causal-even", "d128-bf16-causal")  # fmt: skip
    found = builds_of(Declared("k", ("b",), configs), "gfx942")
    assert {problem: build.config for problem, build in found.items()} == {
        (64, "f16"): "d64-f16-causal-even", (64, "bf16"): "d64-bf16-causal-ragged", (128, "bf16"): "d128-bf16-causal",
    }  # fmt: skip


def test_figures_are_those_of_a_tile() -> None:
    """Of 32 keys and 32 rows, from an iteration of 64 keys and as many rows."""
    assert compiled().of_a_tile("MFMA") == (1024,)
    assert compiled().of_a_tile("waits+barriers") == (17.5, 1)
    assert compiled(rows=64).of_a_tile("MFMA") == (512,)
    assert compiled(replace(CODE, key_loop=None)).of_a_tile("MFMA") == ()


def test_a_kernel_that_does_not_say_what_a_tile_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named."""
    monkeypatch.setattr(maker, "build_object", lambda *_: None)
    monkeypatch.setattr(maker, "Analyser", lambda _: lambda *_: CODE)
    with pytest.raises(CodeObjectError, match="k-d128-f16-causal-even-gfx942 does not declare what a tile"):
        compile_one("k", (128, "f16"), BUILD)


def test_a_section_has_what_is_known() -> None:
    """Both types in one cell, spills, and no figures where there is no estimate."""
    slower = replace(CODE, key_loop=replace(LOOP, cycles=5000.0), sgpr_spills=3)
    rows = [compiled(), compiled(slower, dtype="bf16"), compiled(replace(CODE, key_loop=None), label="m")]
    text = section("gfx942", rows)
    assert dict(_rows(text)) == {
        "k-128": {
            "MFMA": "1024", "VALU": "157", "exp": "17", "SALU": "34", "LDS_B": "20480", "waits+barriers": "18+1",
            "cycles": "2000/2500", "waves": "2", "peak_%": "51.2/41.0",
        }
    }  # fmt: skip
    assert "Spilled registers: k-128 (0/3). Another loop inside, no estimate (waves per SIMD): m-128 (2)." in text
    plain = replace(CODE, arch="gfx1100", wave_size=32, key_loop=None, wgp_mode=True)
    assert "RDNA's WMMA is not modelled." in section("gfx1100", [compiled(plain)])


def test_what_is_missing_of_aiter_is_said() -> None:
    """In a line of the page; without a reason there is none."""
    assert "aiter's Triton kernel is not here: A is not set.\n" in maker.page(
        [compiled()], ["A is not set: it names a"]
    )
    assert "aiter" not in maker.page([compiled()], [])

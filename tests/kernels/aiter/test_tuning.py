"""aiter's Triton attention as the tuner sees it: one bucket's values, its own autotuner, pins and files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter import config_files, mha_builds
from kernels.aiter.mha_source import CONFIGS, SOURCE_VARIABLE
from kernels.aiter.triton_attention import PARTS, TritonMha
from kernels.aiter.tuning import AUTOTUNED, TunableMha, tunable_parts
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.tuning_records import Candidate, Tunable
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen

DATA = Path(__file__).parents[2] / "data" / "aiter"
BACKEND = TunableMha("aiter.triton", family="prefill")
D256 = Prefill.parse("prefill-b4-s512-h8-d256-f16-causal")
D64 = Prefill.parse("prefill-b4-s512-h8-d64-bf16")
F32 = Prefill.parse("prefill-b4-s512-h8-d64-f32")
WIDER = Prefill.parse("prefill-b1-s512-h8-d192-dv128-bf16-causal")
PACKED = Varlen.parse("varlen-q512_63-h8-d128-bf16-causal")
TUNED = {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True}
BUCKET_OF_TUNED = {**TUNED, "waves_per_eu": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 1}


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree that AITER_SOURCE names, with aiter's files for gfx942 and gfx950."""
    monkeypatch.setattr(config_files, "find_installed", lambda: None)
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path))
    folder = tmp_path / CONFIGS
    folder.mkdir(parents=True)
    for path in DATA.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_the_default_is_aiter_s_bucket() -> None:
    """The space starts from fwd.default of the architecture's file, completed with Triton's own defaults."""
    space = BACKEND.tuning_space([D256], "gfx942")
    today = json.loads((DATA / "gfx942-MHA-DEFAULT.json").read_text())["fwd"]["default"]
    assert space.default.values == {**today, "matrix_instr_nonkdim": 0, "kpack": 1}
    assert space.serves == (
        "bucket fwd.default of aiter/ops/triton/configs/gfx942-MHA-DEFAULT.json, whatever the lengths, heads and mask"
    )
    assert space.where == "aiter/ops/triton/configs/gfx942-MHA-DEFAULT.json"
    assert space.extra == (AUTOTUNED,)
    every = (dict(zip(space.values, values, strict=True)) for values in itertools.product(*space.values.values()))
    kept = [values for values in every if all(each.holds(values) for each in space.constraints)]
    assert 100 <= len(kept) <= 1000
    assert space.default.values in kept
    assert {**space.default.values, **TUNED} in kept


def test_parameters_that_a_version_or_compiler_lacks_are_not_tried(tree: Path) -> None:
    """kpack on gfx942 only; PRELOAD_V not where the file of an old version has none."""
    assert "kpack" not in BACKEND.tuning_space([D256], "gfx950").values
    text = (tree / "gfx942-MHA-DEFAULT.json").read_text()
    old = "\n".join(line for line in text.splitlines() if "PRELOAD_V" not in line)
    (tree / "gfx942-MHA-DEFAULT.json").write_text(old)
    assert "PRELOAD_V" not in BACKEND.tuning_space([D256], "gfx942").values


@pytest.mark.parametrize(
    ("workload", "arch", "bucket"),
    [
        (D256, "gfx942", "default"),
        (D64, "gfx942", "default"),
        (D64, "gfx950", "small_head"),
        (F32, "gfx942", "dropout_or_fp32"),
        (WIDER, "gfx942", "pe"),
        (PACKED, "gfx942", "default"),
    ],
)
def test_a_workload_is_tuned_in_its_own_bucket(workload: Any, arch: str, bucket: str) -> None:
    """By element type and head dimensions, as aiter's lookup does; every bucket's own values may be tried."""
    space = BACKEND.tuning_space([workload], arch)
    assert f"fwd.{bucket} of" in space.serves
    assert all(value in space.values[name] for name, value in space.default.values.items())
    served = [BACKEND.tuning_serves(each, space, arch) for each in (D256, F32, WIDER)]
    assert served == [bucket == "default", bucket == "dropout_or_fp32", bucket == "pe"]


def test_one_bucket_serves_all_shapes() -> None:
    """What is tuned on 512 rows is used for packed sequences, other masks and head counts, and no other family."""
    space = BACKEND.tuning_space([D256], "gfx942")
    other = Prefill.parse("prefill-b1-s8192-h32-hk8-d128-bf16")
    gemm = Gemm.parse("gemm-m16-n16-k16-f16")
    assert [BACKEND.tuning_serves(each, space, "gfx942") for each in (other, PACKED, gemm)] == [True, True, False]


def test_a_candidate_is_pinned_to_its_values() -> None:
    """The pin gives the call this configuration; the autotuner's takes the other route."""
    space = BACKEND.tuning_space([D256], "gfx942")
    winner = Candidate({**space.default.values, **TUNED})
    assert BACKEND.replay_config(BACKEND.tuning_pin(winner, space)).values == winner.values
    routed = BACKEND.replay_config(BACKEND.tuning_pin(AUTOTUNED, space))
    assert (routed.impl, routed.values, routed.name, routed.family) == ("dao_ai", {}, "aiter.triton", "prefill")
    with pytest.raises(UsageError, match="holds no BLOCK_M"):
        BACKEND.replay_config({"path": "triton"})


def test_files_of_the_published_winner() -> None:
    """The report's change, complete, in both layouts, with a note that one bucket serves all shapes."""
    space = BACKEND.tuning_space([D256], "gfx942")
    winner = Candidate({**space.default.values, **TUNED})
    flat, nested, note = BACKEND.tuned_files(winner, space, [D256], "gfx942", source="attnperf tune on MI300X")
    assert (flat.path, nested.path, note.path) == (
        "aiter_configs/gfx942-MHA-DEFAULT.json",
        "aiter_configs/gfx942/triton/attention/mha/DEFAULT.json",
        "aiter_configs/README.txt",
    )
    assert flat.text == nested.text
    before, after = (json.loads(text) for text in ((DATA / "gfx942-MHA-DEFAULT.json").read_text(), flat.text))
    assert after["fwd"].pop("default") == BUCKET_OF_TUNED
    before["fwd"].pop("default")
    assert after == before
    assert "bucket fwd.default changed, which serves every shape of its kind; 3 other forward buckets" in flat.what
    assert "attnperf tune on MI300X" in note.text
    assert "One bucket serves every length, head count and mask" in note.text


def test_the_autotuner_as_winner_writes_a_route() -> None:
    """There is nothing to configure: the note says how to call dao_ai."""
    space = BACKEND.tuning_space([D256], "gfx942")
    (note,) = BACKEND.tuned_files(AUTOTUNED, space, [D256], "gfx942", source="a run")
    assert note.path == "aiter_configs/README.txt"
    assert "mha_set_impl('dao_ai')" in note.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BACKEND.tuning_space([D256], "gfx942", when={"rows_max": 1}), "--when rows_max: aiter chooses a"),
        (lambda: BACKEND.tuning_space([D256], "gfx942", kernel="gemm"), "no kernel 'gemm' to tune; it has mha_fwd"),
        (lambda: BACKEND.tuning_space([], "gfx942"), "no workload was chosen"),
        (lambda: BACKEND.tuning_space([D256], "cpu"), "nothing can be tuned for 'cpu'"),
        (lambda: BACKEND.tuning_space([D256], "gfx1100"), "configuration for gfx1100; it has gfx942, gfx950"),
        (
            lambda: BACKEND.tuning_space([D256, F32], "gfx942"),
            "served by 2 buckets of .*: fwd.default serves .*; fwd.dropout_or_fp32 serves",
        ),
        (
            lambda: BACKEND.tuning_space([Gemm.parse("gemm-m16-n16-k16-f16")], "gfx942"),
            "is tuned for prefill and varlen: gemm-m16-n16-k16-f16 is neither",
        ),
        (
            lambda: BACKEND.tuned_files(
                Candidate({"BLOCK_M": 1}), BACKEND.tuning_space([D256], "gfx942"), [D256], "gfx942", source="x"
            ),
            "consists of BLOCK_M, BLOCK_N, PRELOAD_V.*; the winner has BLOCK_M",
        ),
        (
            lambda: BACKEND.tuned_files(
                Candidate({**BUCKET_OF_TUNED, "GROUP": 1}), BACKEND.tuning_space([D256], "gfx942"), [D256], "gfx942",
                source="x",
            ),
            "the winner has BLOCK_M, .*GROUP",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_says_so(call: Callable[[], object], message: str) -> None:
    """Each refusal is a UsageError that says what there is and what to do."""
    with pytest.raises(UsageError, match=message):
        call()


def test_builds_are_of_aiter_s_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AITER_SOURCE a candidate's values, as a file would have them, are compiled; else nothing is known."""
    asked: list[dict[str, Any]] = []

    def build_with(values: dict[str, Any], workload: Prefill, arch: str) -> KernelBuild:
        asked.append(values)
        return KernelBuild(workload.id, "made", arch, TritonSource("module", "function", {}, {}))

    monkeypatch.setattr(mha_builds, "build_with", build_with)
    space = BACKEND.tuning_space([D256], "gfx942")
    winner = Candidate({**space.default.values, **TUNED})
    (build,) = BACKEND.tuning_builds(winner, space, D256, "gfx942")
    assert (build.kernel, build.arch, asked) == (D256.id, "gfx942", [BUCKET_OF_TUNED])
    assert BACKEND.tuning_builds(AUTOTUNED, space, D256, "gfx942") == ()
    monkeypatch.delenv(SOURCE_VARIABLE)
    assert BACKEND.tuning_builds(winner, space, D256, "gfx942") == ()


def test_a_kernel_that_is_not_known_is_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the adapter cannot compile aiter's kernel, candidates have no builds and are still timed."""

    def unknown(*_: object) -> None:
        raise CodeObjectError("has arguments that nothing is known of here")

    monkeypatch.setattr(mha_builds, "build_with", unknown)
    space = BACKEND.tuning_space([D256], "gfx942")
    assert BACKEND.tuning_builds(space.default, space, D256, "gfx942") == ()


def test_parts_of_the_default_implementation_become_tunable() -> None:
    """aiter.triton is Tunable for dense and packed attention; aiter.triton_dao and other backends stay as they are."""
    found = {(name, family): part for name, family, part in tunable_parts(PARTS)}
    before = {(name, family): part for name, family, part in PARTS}
    assert found.keys() == before.keys()
    for key, part in found.items():
        default = isinstance(part, TritonMha) and part.impl == "default"
        assert isinstance(part, Tunable) == default
        assert default or part is before[key]

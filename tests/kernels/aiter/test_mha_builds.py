"""aiter's own attention kernel as a build: what it is declared as from a source tree, and the real one compiled."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernels.aiter import mha_kernel
from kernels.aiter.mha_builds import HEAD_DIMS, KERNEL, NAME, build_with, read_shipped_values
from kernels.aiter.mha_source import archs_with_config, config_file, kernel_file
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelBuild, KernelRegistry, TritonSource
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen

D128 = Prefill(batch=4, seq_q=4096, heads=8, kv_heads=2, head_dim=128, dtype="f16", causal=True)
BUCKET = {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "num_warps": 4, "num_stages": 1, "waves_per_eu": 2}
ARGUMENTS = """q_ptr k_ptr v_ptr descale_q_ptr out_ptr alibi_slopes_ptr softmax_lse_ptr stride_qz_in stride_qk_in
stride_oz_in stride_on_in stride_lse_m_in stride_lse_h_in sm_scale cu_seqlens_q dropout_p philox_seed SEQLEN_Q BATCH
IS_CAUSAL! NUM_Q_HEADS! PRELOAD_V! BLOCK_M! BLOCK_N! BLOCK_DMODEL! BLOCK_DMODEL_POW2! BLOCK_DMODEL_PE! VARLEN!
SLIDING_WINDOW!"""
SOURCE = pytest.mark.skipif(
    not os.environ.get("AITER_SOURCE"),
    reason="compiles aiter's own kernel: set AITER_SOURCE to the root of a checkout of ROCm/aiter",
)


def tree(root: Path, arguments: str = ARGUMENTS, place: str = "_triton_kernels/attention/mha.py") -> Path:
    """A source tree with such a kernel, and configurations for gfx942."""
    listed = ", ".join(name.replace("!", ": tl.constexpr") for name in arguments.split())
    kernel = root / "aiter/ops/triton" / place
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(f"import torch\n\n\ndef _attn_fwd({listed}):\n    pass\n")
    configs = root / "aiter/ops/triton/configs/gfx942-MHA-DEFAULT.json"
    configs.parent.mkdir(parents=True, exist_ok=True)
    configs.write_text(json.dumps({"fwd": {"default": BUCKET, "pe": {**BUCKET, "BLOCK_M": 256}}}))
    return root


def source(build: KernelBuild) -> TritonSource:
    """Of a build that is Triton's."""
    assert isinstance(build.source, TritonSource)
    return build.source


def test_every_shipped_head_dimension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Causal, f16 and bf16, under ids of their own that the registry takes."""
    monkeypatch.setenv("AITER_SOURCE", str(tree(tmp_path)))
    registry = KernelRegistry()
    registry.add(KERNEL)
    found = registry.list_builds(["gfx942"])
    assert len(found) == 2 * len(HEAD_DIMS)
    assert {(source(one).constants["BLOCK_DMODEL"], source(one).signature["q_ptr"]) for one in found} == {
        (head_dim, element) for head_dim in HEAD_DIMS for element in ("*fp16", "*bf16")
    }
    assert all(source(one).constants["IS_CAUSAL"] is True and one.kernel == NAME for one in found)
    assert {one.where for one in found} == {"aiter/ops/triton/configs/gfx942-MHA-DEFAULT.json"}


def test_not_among_the_kernels_of_this_repository() -> None:
    """It is not ours: nothing of it may get into the baselines."""
    import kernels

    registry = KernelRegistry()
    kernels.register_kernels(registry)
    assert not any(one.name.startswith("aiter") for one in registry)


def test_without_a_source_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tree, one without the kernel, and an architecture without a file: each says so, and nothing is declared."""
    monkeypatch.delenv("AITER_SOURCE", raising=False)
    assert KERNEL.unsupported_reasons("gfx942")[0].startswith("AITER_SOURCE is not set")
    assert [KERNEL.builds(arch) for arch in ALL_ARCHS] == [[]] * len(ALL_ARCHS)
    monkeypatch.setenv("AITER_SOURCE", str(tmp_path))
    assert KERNEL.unsupported_reasons("gfx942") == [
        f"AITER_SOURCE={tmp_path} holds no Triton attention kernel of aiter under aiter/ops/triton"
    ]
    tree(tmp_path)
    assert KERNEL.unsupported_reasons("gfx90a") == [
        "this aiter ships no Triton attention configuration for gfx90a; it has gfx942"
    ]
    with pytest.raises(CodeObjectError, match="set AITER_SOURCE to the root"):
        build_with(BUCKET, D128, "gfx942", root=tmp_path / "elsewhere")


def test_arguments_as_a_launch_specialises_them(tmp_path: Path) -> None:
    """Absent pointers and strides of 1 are constants; what 16 divides is said; options are apart from constants."""
    found = source(build_with(BUCKET, D128, "gfx942", root=tree(tmp_path)))
    assert found.signature == {
        **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16"),
        "softmax_lse_ptr": "*fp32",
        **dict.fromkeys(("stride_qz_in", "stride_oz_in", "stride_lse_h_in"), "i32"),
        **dict.fromkeys(("philox_seed", "SEQLEN_Q", "BATCH"), "i32"),
        **dict.fromkeys(("sm_scale", "dropout_p"), "fp32"),
    }
    absent = ("descale_q_ptr", "alibi_slopes_ptr", "cu_seqlens_q")
    assert {found.constants[name] for name in absent} == {None}
    assert {found.constants[name] for name in ("stride_qk_in", "stride_on_in", "stride_lse_m_in")} == {1}
    assert (found.constants["BLOCK_M"], found.constants["NUM_Q_HEADS"], found.constants["VARLEN"]) == (128, 8, False)
    assert found.options == {"num_warps": 4, "num_stages": 1, "waves_per_eu": 2}
    assert set(found.signature) - set(found.divisible_by_16) == {"BATCH", "sm_scale", "dropout_p"}


def test_packed_sequences_and_their_strides(tmp_path: Path) -> None:
    """Offsets are given, batches have no stride, and lse is (T, H); slopes have two strides."""
    workload = Varlen(seqs_q=(17, 33), heads=4, head_dim=60, dtype="bf16", alibi=True)
    found = source(build_with(BUCKET, workload, "gfx942", root=tree(tmp_path)))
    assert (found.signature["cu_seqlens_q"], found.signature["alibi_slopes_ptr"]) == ("*i32", "*fp32")
    assert (found.constants["stride_lse_h_in"], found.signature["stride_lse_m_in"]) == (1, "i32")
    assert (found.constants["BLOCK_DMODEL"], found.constants["BLOCK_DMODEL_POW2"]) == (64, 64)
    assert "SEQLEN_Q" not in found.divisible_by_16


def test_an_argument_that_nothing_is_known_of(tmp_path: Path) -> None:
    """A newer kernel is refused by the names of its new arguments, instead of being compiled with a guess."""
    root = tree(tmp_path, f"{ARGUMENTS} HEAD_STRIDE_ALIGNED_8! NEW_TRICK! q_paging_ptr")
    with pytest.raises(CodeObjectError, match="this adapter does not know: NEW_TRICK; this aiter is newer"):
        build_with(BUCKET, D128, "gfx942", root=root)


@pytest.mark.parametrize(
    ("lacking", "workload", "values", "told"),
    [
        ("PRELOAD_V!", D128, BUCKET, "takes no PRELOAD_V; its version of aiter has: BLOCK_M, BLOCK_N"),
        ("", D128, {"BLOCK_N": 64}, "this adapter does not know: PRELOAD_V, BLOCK_M;"),
        ("SLIDING_WINDOW!", Prefill(1, 64, 2, 64, causal=True, window=9), BUCKET, "has no SLIDING_WINDOW, which"),
        ("BLOCK_DMODEL_PE!", Prefill(1, 64, 2, 192, head_dim_v=128), BUCKET, "has no BLOCK_DMODEL_PE, which"),
        ("", Prefill(1, 64, 2, 64, dtype="i8"), BUCKET, "is built for f16, bf16, f32, not for i8"),
    ],
)
def test_what_the_kernel_does_not_take(
    tmp_path: Path, lacking: str, workload: Prefill, values: dict[str, object], told: str
) -> None:
    """Values and features of another version are refused by name."""
    root = tree(tmp_path, ARGUMENTS.replace(lacking, "") if lacking else ARGUMENTS)
    with pytest.raises(CodeObjectError, match=told):
        build_with(values, workload, "gfx942", root=root)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Half a file names itself; none names the architecture."""
    root = tree(tmp_path)
    assert read_shipped_values(root, "gfx942", Prefill(1, 64, 2, 192, head_dim_v=128))["BLOCK_M"] == 256
    path = config_file(root, "gfx942")
    assert path is not None
    for text in ('{"fwd": {"defa', "[]", '{"fwd": {}}'):
        path.write_text(text)
        with pytest.raises(CodeObjectError, match=r"gfx942-MHA-DEFAULT\.json cannot be read"):
            read_shipped_values(root, "gfx942", D128)
    with pytest.raises(CodeObjectError, match="has no Triton attention configuration for gfx950"):
        read_shipped_values(root, "gfx950", D128)


@pytest.mark.parametrize("place", ["_triton_kernels/mha.py", "mha.py"])
def test_older_places(tmp_path: Path, place: str) -> None:
    """Where the kernel was up to v0.1.9 and v0.1.5, and the name of the file up to v0.1.7 and after 2026-08."""
    root = tree(tmp_path, place=place)
    assert kernel_file(root) == root / "aiter/ops/triton" / place
    configs = root / "aiter/ops/triton/configs"
    (configs / "gfx942-MHA-DEFAULT.json").rename(configs / "MI300X-MHA-DEFAULT.json")
    deep = configs / "gfx950/triton/attention/mha/DEFAULT.json"
    deep.parent.mkdir(parents=True)
    deep.write_text("{}")
    assert (config_file(root, "gfx942"), config_file(root, "gfx950")) == (configs / "MI300X-MHA-DEFAULT.json", deep)
    assert archs_with_config(root) == ["gfx942", "gfx950"]


FAKE = """import os
from types import SimpleNamespace
from triton.runtime.driver import driver
import aiter.ops.triton.settings as settings
os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
ARCH = driver.active.get_current_target().arch


def _attn_fwd():
    return ARCH, settings.VALUE
"""


def test_the_module_is_loaded_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `__init__.py` of aiter runs, an architecture sees itself; modules, variables and driver are as before."""
    pytest.importorskip("triton")
    from triton.runtime.driver import driver

    root = tree(tmp_path)
    (root / "aiter/__init__.py").write_text("raise RuntimeError('ROCm version file not found')")
    (root / "aiter/ops/triton/settings.py").write_text("VALUE = 7")
    (root / "aiter/ops/triton/_triton_kernels/attention/mha.py").write_text(FAKE)
    monkeypatch.setenv("AITER_SOURCE", str(root))
    monkeypatch.delenv("TRITON_PRINT_AUTOTUNING", raising=False)
    installed = ModuleType("aiter")
    monkeypatch.setitem(sys.modules, "aiter", installed)
    before = dict(vars(driver))
    for arch in ("gfx942", "gfx950"):
        assert mha_kernel.load_attn_fwd(root, arch)() == (arch, 7)
    assert [name for name in sys.modules if name.startswith("aiter.")] == []
    assert sys.modules["aiter"] is installed
    assert "TRITON_PRINT_AUTOTUNING" not in os.environ
    assert vars(driver) == before


def test_a_module_that_this_triton_refuses(tmp_path: Path) -> None:
    """What its import raised is told with the file; so is a tree that has none, and a name that is none."""
    root = tree(tmp_path)
    path = root / "aiter/ops/triton/_triton_kernels/attention/mha.py"
    path.write_text("raise ValueError('not kernel arguments: ACTUAL_HEAD_DIM')\n\n\ndef _attn_fwd():\n    pass\n")
    with pytest.raises(CodeObjectError, match=r"mha\.py cannot be imported under this Triton \(ValueError: not kernel"):
        mha_kernel.load_attn_fwd(root, "gfx942")
    with pytest.raises(CodeObjectError, match="holds no Triton attention kernel of aiter"):
        mha_kernel.load_attn_fwd(tmp_path / "elsewhere", "gfx942")
    with pytest.raises(AttributeError, match="has no attribute 'attention'"):
        _ = mha_kernel.attention


def test_the_module_without_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile worker that was not given the tree says which variable names it."""
    monkeypatch.delenv("AITER_SOURCE", raising=False)
    with pytest.raises(CodeObjectError, match="AITER_SOURCE is not set"):
        _ = mha_kernel.attn_fwd_gfx90a


@SOURCE
def test_the_real_kernel_compiles(tmp_path: Path) -> None:
    """For gfx942 in the shipped configuration: matrix instructions in its loops, and LDS that a workgroup may have."""
    pytest.importorskip("triton")
    from pytest_attnperf.codeobject.analysis import Analyser
    from pytest_attnperf.codeobject.building import build_object

    declared = KERNEL.builds("gfx942")[0]
    code = Analyser()(build_object(declared, tmp_path), declared)
    assert code.name.startswith("_attn_fwd")
    assert (code.in_loops or {})["matrix"] > 0
    assert 0 < code.lds_bytes <= 65536

"""Real slowdowns of our own kernels, as data: what is written instead of what, at which strengths.

    extra_instruction    more arithmetic: values are multiplied by a number that is 1 at run time only
    smaller_tile         a launch configuration of a smaller tile
    lost_vector_load     some programs load element by element, because an offset is aligned at run time only

An extra instruction multiplies by min(size, 1), which is 1 for every size that is launched, and which no compiler
knows: results keep their bits. How much slower an edit makes a kernel is measured, never assumed:
`gate_quality.py` and `gate_power.py` do so on the GPU at hand.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest_attnperf

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("conftest.py", "pyproject.toml", "kernels", "suites", "baselines")
KINDS = ("extra_instruction", "smaller_tile", "lost_vector_load")
STRENGTH = "STRENGTH"
"""Stands in an edit's new text for the strength."""

TRITON = "kernels/triton"
TILES = f"{TRITON}/prefill/tiles.py"
FORWARD = f"{TRITON}/prefill/forward.py"
DECODE = f"{TRITON}/decode/kernel.py"
SOFTMAX = f"{TRITON}/rows/softmax.py"
RMSNORM = f"{TRITON}/rows/rmsnorm.py"
LAYERNORM = f"{TRITON}/rows/layernorm.py"
GEMM = f"{TRITON}/gemm/kernel.py"
CONFIGS = f"{TRITON}/configs"
"""Where the kernels are: one line each, so that a move is one edit."""


@dataclass(frozen=True)
class Edit:
    """One change of one file.

    old         text that the file holds exactly once
    new         what is written instead, STRENGTH standing for the strength
    strengths   numbers to try, the weakest first
    backend     the backend that it slows, and `workload` the id of a case of `suite` on which that shows
    small       a workload that runs the same lines under Triton's interpreter
    built       'kernel/configuration' that is compiled differently
    """

    name: str
    kind: str
    file: str
    old: str
    new: str
    strengths: tuple[int, ...]
    backend: str
    workload: str
    suite: str
    small: str
    built: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"edit {self.name}: kind {self.kind!r} is not known; one of {', '.join(KINDS)}")
        if STRENGTH not in self.new:
            raise ValueError(f"edit {self.name}: its new text does not say {STRENGTH}")

    @property
    def case(self) -> str:
        """'backend/workload'."""
        return f"{self.backend}/{self.workload}"

    def applied(self, source: str, strength: int) -> str:
        """The source with this change. Raises ValueError where the old text is not in it exactly once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(
                f"edit {self.name}: its old text is {count} times in {self.file}, must be there once; "
                f"the kernel has changed: say in {Path(__file__).name} what to replace now\n{self.old}"
            )
        return source.replace(self.old, self.new.replace(STRENGTH, str(strength)))


FLASH_64 = Edit(
    "flash_rescale",
    "extra_instruction",
    TILES,
    "        rescale = tl.exp2(m_i - shift)  # (BLOCK_M,)\n",
    "        rescale = tl.exp2(m_i - shift)  # (BLOCK_M,)\n"
    "        for _ in tl.static_range(STRENGTH if HEAD_DIM <= 64 else 0):\n"
    "            rescale = rescale * tl.minimum(seq_kv, 1).to(tl.float32)\n",
    (2, 8, 24),
    "triton.flash",
    "prefill-b4-s1024-h8-d64-f16-causal",
    "suites/test_prefill.py",
    "prefill-b1-s128-h1-d64-f16-causal",
    "triton.prefill_forward/d64-f16-causal-even",
)
FLASH_256 = Edit(
    "flash_maximum",
    "extra_instruction",
    TILES,
    "        m_new = tl.maximum(m_i, tl.max(s, 1) * factor)\n",
    "        m_new = tl.maximum(m_i, tl.max(s, 1) * factor)\n"
    "        for _ in tl.static_range(STRENGTH if HEAD_DIM > 128 else 0):\n"
    "            m_new = m_new * tl.minimum(seq_kv, 1).to(tl.float32)\n",
    (4, 16, 48),
    "triton.flash",
    "prefill-b4-s4096-h8-d256-f16-causal",
    "suites/test_prefill.py",
    "prefill-b1-s128-h1-d256-f16-causal",
    "triton.prefill_forward/d256-f16-causal-even",
)
FLASH_FULL = Edit(
    "flash_sum",
    "extra_instruction",
    FORWARD,
    "    out_stride = heads * HEAD_DIM_V\n    out_rows",
    "    for _ in tl.range(0, 0 if CAUSAL else STRENGTH):\n"
    "        l_i = l_i * tl.minimum(seq_kv, 1).to(tl.float32)\n"
    "    out_stride = heads * HEAD_DIM_V\n    out_rows",
    (30, 120, 480),
    "triton.flash",
    "prefill-b1-s512-h8-d64-f16",
    "suites/test_prefill.py",
    "prefill-b1-s128-h1-d64-f16",
    "triton.prefill_forward/d64-f16-full-ragged",
)
FLASH_TILE = Edit(
    "flash_tile",
    "smaller_tile",
    f"{CONFIGS}/prefill_forward/sm_90.json",
    '{"when": {"head_dim_max": 256, "element_bits": 16}, "config": {"BLOCK_M": 128, "BLOCK_N": 64,',
    '{"when": {"head_dim_max": 256, "element_bits": 16}, "config": {"BLOCK_M": 128, "BLOCK_N": STRENGTH,',
    (32,),
    "triton.flash",
    "prefill-b4-s4096-h8-d256-f16-causal",
    "suites/test_prefill.py",
    "prefill-b1-s128-h1-d256-f16-causal",
    "triton.prefill_forward/d256-f16-causal-even",
)
DECODE_TAIL = Edit(
    "decode_sum",
    "extra_instruction",
    DECODE,
    "    if QUANTISED:\n        acc = acc * tl.load(v_scale_ptr)\n",
    "    for _ in tl.range(0, STRENGTH):\n"
    "        l_i = l_i * tl.minimum(length, 1).to(tl.float32)\n"
    "    if QUANTISED:\n        acc = acc * tl.load(v_scale_ptr)\n",
    (500, 2000, 8000),
    "triton.flash_decode",
    "decode-b64-kv4096-h32-hk8-d128-f16",
    "suites/test_decode.py",
    "decode-b1-kv200-h4-hk2-d64-f16",
    "triton.decode/d128-r16-f16",
)
DECODE_TILE = Edit(
    "decode_tile",
    "smaller_tile",
    f"{CONFIGS}/decode/sm_90.json",
    '{"when": {"head_dim_max": 128, "rows_max": 16, "cache_bits": 16, "paged": false}, "config": {"BLOCK_N": 128,',
    '{"when": {"head_dim_max": 128, "rows_max": 16, "cache_bits": 16, "paged": false}, "config": {"BLOCK_N": STRENGTH,',
    (64, 32),
    "triton.flash_decode",
    "decode-b64-kv4096-h32-hk8-d128-f16",
    "suites/test_decode.py",
    "decode-b1-kv200-h4-hk2-d64-f16",
    "triton.decode/d128-r16-f16",
)
SOFTMAX_LOAD = Edit(
    "softmax_load",
    "lost_vector_load",
    SOFTMAX,
    '    x = tl.load(x_ptr + first + offsets, mask=mask, other=float("-inf")).to(tl.float32)\n'
    "    p = tl.exp2((x - tl.max(x, 1)[:, None]) * LOG2_E)\n",
    "    if block % 64 < STRENGTH:\n"
    "        offsets_read = offsets + (tl.minimum(rows, 1) - 1)\n"
    '        x = tl.load(x_ptr + first + offsets_read, mask=mask, other=float("-inf")).to(tl.float32)\n'
    "    else:\n"
    '        x = tl.load(x_ptr + first + offsets, mask=mask, other=float("-inf")).to(tl.float32)\n'
    "    p = tl.exp2((x - tl.max(x, 1)[:, None]) * LOG2_E)\n",
    (4, 16, 64),
    "triton.softmax",
    "softmax-r131072-c1024-f16",
    "suites/test_softmax.py",
    "softmax-r192-c64-f16",
    "triton.softmax/c2048-f16",
)
SOFTMAX_POWER = Edit(
    "softmax_power",
    "extra_instruction",
    SOFTMAX,
    "    p = p * (1.0 / tl.sum(p, 1))[:, None]\n",
    "    total = tl.sum(p, 1)\n"
    "    for _ in tl.range(0, STRENGTH):\n"
    "        total = total * tl.minimum(rows, 1).to(tl.float32)\n"
    "    p = p * (1.0 / total)[:, None]\n",
    (50, 200, 800),
    "triton.softmax",
    "softmax-r131072-c1024-f16",
    "suites/test_softmax.py",
    "softmax-r192-c64-f16",
    "triton.softmax/c2048-f16",
)
RMSNORM_SCALE = Edit(
    "rmsnorm_scale",
    "extra_instruction",
    RMSNORM,
    "    scale = tl.rsqrt(tl.sum(x * x, 1) / columns + eps)\n    # Under a condition",
    "    scale = tl.rsqrt(tl.sum(x * x, 1) / columns + eps)\n"
    "    for _ in tl.range(0, STRENGTH):\n"
    "        scale = scale * tl.minimum(rows, 1).to(tl.float32)\n"
    "    # Under a condition",
    (50, 200, 800),
    "triton.rmsnorm",
    "rmsnorm-r32768-c8192-bf16",
    "suites/test_rmsnorm.py",
    "rmsnorm-r32-c64-f16",
    "triton.rmsnorm/c8192-bf16-residual",
)
RMSNORM_TILE = Edit(
    "rmsnorm_tile",
    "smaller_tile",
    f"{CONFIGS}/rmsnorm/sm_90.json",
    '{"when": {"columns_max": 8192}, "config": {"BLOCK_R": 2, "BLOCK_C": 8192,',
    '{"when": {"columns_max": 8192}, "config": {"BLOCK_R": STRENGTH, "BLOCK_C": 8192,',
    (1,),
    "triton.rmsnorm",
    "rmsnorm-r32768-c8192-bf16",
    "suites/test_rmsnorm.py",
    "rmsnorm-r32-c64-f16",
    "triton.rmsnorm/c8192-bf16-residual",
)
LAYERNORM_SCALE = Edit(
    "layernorm_scale",
    "extra_instruction",
    LAYERNORM,
    "    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + eps)\n",
    "    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + eps)\n"
    "    for _ in tl.range(0, STRENGTH):\n"
    "        scale = scale * tl.minimum(rows, 1).to(tl.float32)\n",
    (50, 200, 800),
    "triton.layernorm",
    "layernorm-r131072-c768-f16",
    "suites/test_layernorm.py",
    "layernorm-r32-c64-f16",
    "triton.layernorm/c2048-bf16-residual",
)
GEMM_STORE = Edit(
    "gemm_result",
    "extra_instruction",
    GEMM,
    "    if SCALED:\n        acc = acc * (tl.load(a_scale_ptr) * tl.load(b_scale_ptr))\n",
    "    one = tl.minimum(size_m, 1).to(acc.dtype)\n"
    "    for _ in tl.range(0, STRENGTH):\n"
    "        acc = acc * one\n"
    "    if SCALED:\n        acc = acc * (tl.load(a_scale_ptr) * tl.load(b_scale_ptr))\n",
    (50, 200, 800),
    "triton.gemm",
    "gemm-m16-n8192-k8192-f16",
    "suites/test_gemm.py",
    "gemm-m16-n64-k64-f16",
    "triton.gemm/m16-n8192-k8192-f16",
)
GEMM_TILE = Edit(
    "gemm_tile",
    "smaller_tile",
    f"{CONFIGS}/gemm/sm_90.json",
    '"config": {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256, "GROUP_M": 8, "DESCRIPTORS": false, "num_warps": 4,',
    '"config": {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": STRENGTH, "GROUP_M": 8, "DESCRIPTORS": false, "num_warps": 4,',
    (128, 64),
    "triton.gemm",
    "gemm-m16-n8192-k8192-f16",
    "suites/test_gemm.py",
    "gemm-m16-n64-k64-f16",
    "triton.gemm/m16-n8192-k8192-f16",
)

EDITS = {
    edit.name: edit
    for edit in (
        FLASH_64, FLASH_256, FLASH_FULL, FLASH_TILE, DECODE_TAIL, DECODE_TILE, SOFTMAX_LOAD, SOFTMAX_POWER,
        RMSNORM_SCALE, RMSNORM_TILE, LAYERNORM_SCALE, GEMM_STORE, GEMM_TILE,
    )
}  # fmt: skip


def make_tree(folder: Path, strengths: Mapping[str, int] | None = None) -> Path:
    """A copy of the tree (kernels, suites, baselines, conftest; no git history) with edits applied; returns `folder`.

    strengths   name of an edit -> its strength; none makes a clean copy

    Raises ValueError for a name that is not known, and where the text that is to be replaced is not there exactly once.
    """
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for name, strength in (strengths or {}).items():
        if name not in EDITS:
            raise ValueError(f"edit {name!r} is not known; there are {', '.join(EDITS)}")
        path = folder / EDITS[name].file
        path.write_text(EDITS[name].applied(path.read_text(encoding="utf-8"), strength), encoding="utf-8")
    return folder


def environment(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Of a pytest in a tree below `folder`: this repository's plugin and nothing else of it, whatever is installed.

    A folder with a link to the plugin is made there and put on the path.
    """
    harness = folder / "harness"
    harness.mkdir(parents=True, exist_ok=True)
    package = Path(pytest_attnperf.__file__).resolve().parent
    if not (harness / package.name).exists():
        (harness / package.name).symlink_to(package, target_is_directory=True)
    kept = {key: value for key, value in inherited.items() if not key.startswith("PYTEST_") and key != "CI"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    others = [path for path in kept.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path).resolve() != ROOT]
    return kept | {"PYTHONPATH": os.pathsep.join([str(harness), *others])}

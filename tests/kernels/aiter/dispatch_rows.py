"""Shapes for every branch of aiter's dispatchers, and a package that has these branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernels.aiter import backward, dense, varlen
from pytest_attnperf.backends import Backend
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

FAMILIES = {"prefill": Prefill, "varlen": Varlen, "backward": Backward, "varlen_backward": VarlenBackward}
PARTS = {(name, family): part for module in (dense, varlen, backward) for name, family, part in module.PARTS}


@dataclass(frozen=True)
class Row:
    """One branch.

    workload     that goes into it
    path         what runs
    arch         on which GPU
    needs        function, or function and parameter, that a version must have for that; '' if all do
    otherwise    what runs in a version without it
    between      what runs in some versions between v0.1.9 and 2026-08, where that is neither
    environment  variables that are set
    """

    workload: str
    path: str
    arch: str = "gfx942"
    needs: str = ""
    otherwise: str = ""
    between: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As a test is named."""
        return f"{self.arch}-{self.path}-{self.workload}"


OPUS = {"AITER_ENABLE_FMHA_OPUS": "1"}
_SPLITS = "mha_fwd_native_splitkv"
_OPUS = "fmha_fwd_bf16_opus_fwd"
_SINK = "fmha_fwd_with_sink_asm"
ROWS = (
    Row("prefill-b1-s8-kv1280-h1-d64-bf16", "native_splitkv", needs=_SPLITS, otherwise="ck"),
    Row("prefill-b1-s8-kv1280-h1-d64-bf16-causal-lse", "native_splitkv", needs=_SPLITS, otherwise="ck"),
    Row("prefill-b1-s8-kv1280-h1-d64-f16", "ck"),
    Row("prefill-b1-s8-kv64-h1-d64-bf16", "ck"),
    Row("prefill-b1-s130-h1-d128-bf16-causal", "asm", "gfx1250", needs=_SINK, otherwise="asm"),
    Row("prefill-b1-s130-h2-hk1-d128-bf16-causal", "asm"),
    Row("prefill-b1-s130-h2-hk1-d128-bf16-causal", "asm", "gfx950"),
    Row("prefill-b1-s130-h1-d128-bf16", "opus", "gfx950", needs=_OPUS, otherwise="asm", environment=OPUS),
    Row("prefill-b1-s130-h1-d128-bf16-lse", "asm", "gfx950", environment=OPUS),
    Row("prefill-b1-s130-h1-d192-dv128-bf16", "opus", "gfx950", needs=_OPUS, otherwise="asm"),
    Row("prefill-b1-s130-h1-d192-dv128-bf16", "asm", "gfx950", environment={"AITER_DISABLE_FMHA_OPUS": "1"}),
    Row("prefill-b1-s130-h1-d192-dv128-bf16", "asm"),
    Row("prefill-b1-s128-h1-d128-bf16-causal", "ck"),
    Row("prefill-b1-s130-h1-d128-f16-causal-lse", "ck"),
    Row("prefill-b1-s130-h1-d128-w16-bf16-causal", "ck"),
    Row("prefill-b1-s130-h2-d128-bf16-causal-alibi", "ck"),
    Row("prefill-b1-s130-h1-d128-bf16-bias", "ck"),
    Row("prefill-b1-s130-kv140-h1-d96-bf16-causal", "ck"),
    Row("prefill-b1-s9-h1-d20-f16-lse", "ck"),
    Row("prefill-b1-s9-kv5-h1-d64-f16-causal", "ck"),
    Row("prefill-b1-s130-h2-hk1-d128-f8e4m3fnuz", "asm", needs="fmha_v3_fwd.q_descale", otherwise="ck"),
    Row("prefill-b1-s130-h3-hk1-d128-f8e4m3fnuz", "ck", between="asm"),
    Row("prefill-b1-s16-h1-d128-f8e4m3-causal", "ck", "gfx950"),
    Row("varlen-q3_20-h2-hk1-d128-bf16-causal-lse", "asm"),
    Row("varlen-q3_20-kv9_31-h2-d128-f16-causal", "ck"),
    Row("varlen-q3_20-kv9_31-h2-d64-bf16-lse", "ck"),
    Row("varlen-q3_20-h2-d128-w8-bf16-causal", "ck"),
    Row("varlen-q3_20-h2-d128-bf16-causal-alibi", "ck"),
    Row("backward-b1-s33-h2-hk1-d128-bf16-causal", "asm"),
    Row("backward-b1-s33-h2-d64-f16", "asm"),
    Row("backward-b1-s33-h2-d64-f16", "ck", "gfx950"),
    Row("backward-b1-s16-h2-d128-bf16", "ck"),
    Row("varlen_backward-q5_20-h2-hk1-d128-bf16-causal", "asm"),
    Row("varlen_backward-q5_20-kv9_31-h2-d32-f16-causal", "ck"),
)
"""Every branch that a workload of this repository can reach, and beside each a shape that just misses it."""


def workload(text: str) -> Prefill | Varlen | Backward | VarlenBackward:
    """The workload of an id of any of the four families."""
    return FAMILIES[text.partition("-")[0]].parse(text)


def device(arch: str) -> DeviceInfo:
    """A GPU of AMD's."""
    return DeviceInfo(kind="rocm", arch=arch, product=arch)


def part(name: str, text: str) -> Backend:
    """The part of a backend that does a workload."""
    return PARTS[name, text.partition("-")[0]]


def package(arch: str = "gfx942", era: str = "head", changed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Files of a package named aiter, whose dispatchers are of that era; `changed` text is replaced in it."""
    text = Path(__file__).with_name("stub_mha.py").read_text(encoding="utf-8")
    for old, new in {
        'ARCH = "gfx942"': f'ARCH = "{arch}"',
        'ERA = "head"': f'ERA = "{era}"',
        **(changed or {}),
    }.items():
        assert old in text, old
        text = text.replace(old, new, 1)
    return {"ops/mha.py": text}

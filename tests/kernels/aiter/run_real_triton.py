"""Runs aiter's real Triton kernels under Triton's interpreter, through the adapters: AITER_SOURCE OUT, saves a table.

A process of its own: Triton decides at import whether it interprets (TRITON_INTERPRET=1), and aiter whether it builds
(AITER_TRITON_ONLY=1). The architecture is pretended to be gfx950. Of aiter's autotuners, none of which runs here, keys
that a newer Triton refuses are dropped, or the snapshot of 2026-08 could not be imported with Triton 3.9. fp16 alone:
the interpreter's products of bf16 are wrong. GEMM is left out: its kernel's assumptions fail in the interpreter.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CASES = (
    "prefill-b2-s70-h4-hk2-d32-f16-causal",
    "prefill-b1-s40-kv90-h4-hk2-d64-f16-causal-lse",
    "prefill-b1-s40-h2-d40-f16",
    "prefill-b1-s70-h2-d32-w20-f16-causal",
    "varlen-q33_20-h4-hk2-d32-f16-causal",
    "backward-b1-s40-h4-hk2-d32-f16-causal",
    "varlen_backward-q33_20-h2-d32-f16-causal",
    "decode-b3-kv90-h4-hk2-d32-page16-f16-ragged",
    "decode-b2-kv40-h4-hk2-d40-page16-f16",
    "decode-b1-kv1300-h2-hk1-d32-page64-f16",
    "mixed-q9s20_2q1s70_q5s33-h4-hk2-d32-page16-f16",
    "mixed-2q7_q9s40_3q1s70-h4-hk2-d40-page32-w10-cap20-f16-sinks",
    "mixed-q9s20_2q1s90-h3-hk1-d32-page64-f16-kvf8e4m3",
    "mla-b2-s1-kv40-h6-d32-dv16-r16-c64-f16-causal",
    "rmsnorm-r5-c130-f16",
    "rmsnorm-r5-c130-f16-residual",
    "layernorm-r5-c130-f16",
    "layernorm-r5-c130-f16-residual",
    "softmax-r5-c130-f16",
    "rope-b1-s8-h2-d32-f16",
)


def pretend() -> None:
    """A gfx950 for Triton and for torch, before anything of aiter is imported."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import autotuner, driver

    target = GPUTarget("hip", "gfx950", 64)
    limits = {"multiprocessor_count": 256, "max_shared_mem": 163840}
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda *_: 0,
            get_active_torch_device=lambda: torch.device("cpu"),
            get_device_interface=lambda: torch.cpu,
            utils=SimpleNamespace(get_device_properties=lambda _: limits),
        )
    )
    figures: Any = SimpleNamespace(multi_processor_count=256, gcnArchName="gfx950", name="gfx950", warp_size=64)
    torch.cuda.get_device_properties = lambda *_: figures
    torch.cuda.current_device = lambda: 0
    made = autotuner.Autotuner.__init__

    def known(self: Any, fn: Any, arg_names: Any, configs: Any, key: Any, *args: Any, **kwargs: Any) -> None:
        made(self, fn, arg_names, configs, [name for name in key if name in arg_names], *args, **kwargs)

    autotuner.Autotuner.__init__ = known


def main(source: str, out: str) -> None:
    """What is wrong with each case, or why it cannot run."""
    sys.path.insert(0, source)
    pretend()
    from kernels.aiter import decode, mixed, mla, rope, rows, triton_attention
    from pytest_attnperf.errors import UnsupportedError
    from pytest_attnperf.workloads.families import FAMILIES
    from tests.kernels.aiter.paged_stubs import found_wrong

    parts = [part for module in (triton_attention, decode, mixed, mla, rows, rope) for part in module.PARTS]
    backends = {family: backend for name, family, backend in parts if name == "aiter.triton"}
    found: dict[str, Any] = {}
    for text in CASES:
        workload = FAMILIES.parse_workload(text)
        try:
            found[text] = list(found_wrong(backends[workload.family], workload))
        except UnsupportedError as error:
            found[text] = str(error)
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])

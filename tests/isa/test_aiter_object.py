"""aiter's own Triton kernel, compiled and executed: nobody of this repository wrote what runs here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.aiter.mha_builds import _make_launch, build_with, read_shipped_values
from kernels.aiter.mha_source import SOURCE_VARIABLE, kernel_arguments, kernel_file, source_root
from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.isa.launch import Output, execute
from pytest_attnperf.kernel_builds import TritonSource
from pytest_attnperf.workloads.prefill import Prefill
from tests.isa.attention import LSE_ERROR, ROUNDING, Problem, draw_inputs, reference, round_to, widen

NO_SOURCE = f"{SOURCE_VARIABLE} names no checkout of ROCm/aiter, whose kernel is compiled"


@pytest.mark.soak
@pytest.mark.skipif(source_root() is None, reason=NO_SOURCE)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("dtype", "head_dim", "causal"), [("bf16", 128, True), ("f16", 64, False)])
def test_aiters_kernel_is_right(arch: str, dtype: str, head_dim: int, causal: bool, tmp_path: Path) -> None:
    """Its shipped configuration on ragged lengths and grouped heads: within the rounding of its elements."""
    root = source_root()
    assert root is not None
    problem = Problem(seq_q=50, seq_kv=83, heads=8, kv_heads=2)
    workload = Prefill(
        batch=1, seq_q=50, seq_kv=83, heads=8, kv_heads=2, head_dim=head_dim, dtype=dtype, causal=causal, lse=True
    )
    values = read_shipped_values(root, arch, workload)
    build = build_with(values, workload, arch, root=root, label="executed")
    if reasons := unsupported_reasons(build):
        pytest.skip("; ".join(reasons))
    built = build_object(build, tmp_path)
    inputs = [round_to(one, dtype) for one in draw_inputs(problem, head_dim)]
    out = Output(np.zeros(inputs[0].shape, inputs[0].dtype), "out")
    lse = Output(np.zeros((1, 8, 50), np.float32), "lse")
    known: dict[str, Any] = dict(zip(("q_ptr", "k_ptr", "v_ptr"), inputs, strict=True))
    known |= {"out_ptr": out, "softmax_lse_ptr": lse, "sm_scale": 1 / math.sqrt(head_dim), "dropout_p": 0.0}
    known |= _make_launch(workload).integers
    path = kernel_file(root)
    assert path is not None
    assert isinstance(build.source, TritonSource)
    names = [name for name in kernel_arguments(path) if name in build.source.signature]
    grid = (8 * -(-50 // int(values["BLOCK_M"])), 1, 1)
    executed = execute(
        object_bytes(built), built.kernel, grid, (built.threads, 1, 1), [known[name] for name in names],
        dynamic_lds_bytes=built.lds_dynamic_bytes,
    )  # fmt: skip
    expected, expected_lse = reference(*(widen(one, dtype) for one in inputs), causal=causal)
    found, found_lse = (executed.arrays[names.index(name)] for name in ("out_ptr", "softmax_lse_ptr"))
    assert found is not None
    assert found_lse is not None
    assert np.abs(widen(found, dtype) - expected).max() <= 2 * ROUNDING[dtype] * np.abs(expected).max()
    assert np.abs(found_lse - expected_lse).max() <= 10 * LSE_ERROR

"""Kernels with one mistake each, for the interpreting process: a case is 'mistake/workload id', and `found` gives the
outputs of the kernel with it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.triton.backward.backend import BACKENDS as BACKWARD
from kernels.triton.mla.backend import BACKENDS as MLA
from pytest_attnperf.workloads.families import parse_workload

SEED = 1


@dataclass(frozen=True)
class Mutation:
    """A mistake.

    backend     that runs the kernel
    module      the kernel's, below kernels.triton
    function    the kernel's name
    launcher    the module that launches it
    right       text that occurs once in the module's file
    wrong       what stands in its place
    """

    backend: Any
    module: str
    function: str
    launcher: str
    right: str
    wrong: str


def _backward(module: str, right: str, wrong: str) -> Mutation:
    return Mutation(BACKWARD[1], f"backward.{module}", f"backward_{module}_kernel", "backward.launch", right, wrong)


def _persistent(right: str, wrong: str) -> Mutation:
    return Mutation(MLA[1], "mla.persistent", "mla_persistent_kernel", "mla.launch", right, wrong)


MUTATIONS = {
    "dq reads v untransposed": _backward(
        "dq", "offs_d.to(tl.int64)[:, None] * seq_kv + keys[None, :]", "offs_d[:, None] + keys[None, :] * row_stride"
    ),
    "dkv reads v untransposed": _backward(
        "dkv",
        "v_ptr + to_values + value_tile, mask=value_mask, other=0.0).T",
        "v_ptr + to_keys + key_tile, mask=key_mask, other=0.0)",
    ),
    "dkv reads k transposed": _backward(
        "dkv",
        "k = tl.load(k_ptr + to_keys + key_tile, mask=key_mask, other=0.0)",
        "k = tl.load(k_ptr + offs_d[None, :] * keys + offs_n[:, None], mask=key_mask, other=0.0)",
    ),
    "dv is written untransposed": _backward(
        "dkv",
        "tl.store(dv_ptr + to_values + value_tile, dv.to(dv_ptr.dtype.element_ty).T, mask=value_mask)",
        "tl.store(dv_ptr + to_keys + key_tile, dv.to(dv_ptr.dtype.element_ty), mask=key_mask)",
    ),
    "dkv takes delta of the row before": _backward(
        "dkv", "delta_base + rows, inside", "delta_base + tl.maximum(rows - 1, 0), inside"
    ),
    "dq takes delta of the row before": _backward(
        "dq", "delta_ptr + to_stats + offs_m", "delta_ptr + to_stats + tl.maximum(offs_m - 1, 0)"
    ),
    "the last item is dropped": _persistent(
        "batch_heads * tl.cdiv(seq_q, BLOCK_M),", "batch_heads * tl.cdiv(seq_q, BLOCK_M) - 1,"
    ),
    "the last rows are dropped": _persistent("tl.cdiv(seq_q, BLOCK_M)", "(seq_q // BLOCK_M)"),
}


def found(case: str) -> dict[str, Any]:
    """The outputs on planted inputs of seed 1."""
    mistake, _, text = case.partition("/")
    mutation = MUTATIONS[mistake]
    launcher = importlib.import_module(f"kernels.triton.{mutation.launcher}")
    right = getattr(launcher, mutation.function)
    with tempfile.TemporaryDirectory() as folder:
        setattr(launcher, mutation.function, _mutated_kernel(mutation, Path(folder)))
        try:
            workload = parse_workload(text)
            prepared = mutation.backend.prepare(workload, workload.make_inputs(SEED, "cpu", planted=True))
            return {name: tensor.clone() for name, tensor in prepared.outputs(prepared.run()).items()}
        finally:
            setattr(launcher, mutation.function, right)


def _mutated_kernel(mutation: Mutation, folder: Path) -> Any:
    """The kernel of a copy of its module that has the mistake."""
    original = importlib.import_module(f"kernels.triton.{mutation.module}")
    source = Path(str(original.__file__)).read_text(encoding="utf-8")
    assert source.count(mutation.right) == 1, f"{mutation.right!r} is not once in {original.__file__}"
    path = folder / "mutated_kernel.py"
    path.write_text(source.replace(mutation.right, mutation.wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutated_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutated_kernel"] = module
    spec.loader.exec_module(module)
    return getattr(module, mutation.function)

"""In place of aiter's compiled modules: functions of its signatures that undo its layouts by indices, and compute.

They are told to lie by name: 'last page' leaves the keys of every last page out, 'half' writes half of the result,
'late' is right and says that another path ran, 'window' is off by one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from tests.kernels.judging import find_problems

if TYPE_CHECKING:
    import torch

MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
MI355X = DeviceInfo(kind="rocm", arch="gfx950", product="mi355x")
RDNA = DeviceInfo(kind="rocm", arch="gfx1100", product="w7900")
REFERENCES = References()
SEED = 1


@dataclass
class Stubs:
    """What stands for aiter: modules by name, how they lie, and the keyword arguments of every call by function."""

    modules: dict[str, ModuleType]
    lie: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def put(self, module: str, *functions: Callable[..., Any], names: tuple[str, ...] = ()) -> None:
        """Functions into a module, under their own names unless others are given."""
        for name, function in zip(names or [one.__name__ for one in functions], functions, strict=True):
            setattr(self.modules[module], name, function)

    def record_keywords(self, module: str, function: str) -> set[str]:
        """The names of all keyword arguments of calls of this function from now on."""
        passed: set[str] = set()
        stub = getattr(self.modules[module], function)

        def recording(*args: Any, **kwargs: Any) -> Any:
            passed.update(kwargs)
            return stub(*args, **kwargs)

        recording.__wrapped__ = stub  # type: ignore[attr-defined]
        self.put(module, recording, names=(function,))
        return passed

    def low_level(self, module: str, name: str) -> None:
        """A function of aiter by which the path is told; it does nothing here."""
        self.put(module, lambda *args, **kwargs: None, names=(name,))

    def note(self, function: str, given: dict[str, Any]) -> None:
        """Remember a call: `locals()` of a function, what was left at None or not given included."""
        self.calls.append((function, dict(given)))

    def ran(self, module: str, name: str) -> None:
        """Go through the function that the path is told by, or through another one where that is the lie."""
        if self.lie == "late":
            self.modules["aiter.ops.attention"].mla_decode_stage1_opus_fwd_ds32()
        else:
            getattr(self.modules[module], name)()

    def length(self, pages: int, page: int, last: int) -> int:
        """Keys of a sequence of so many pages."""
        return (pages - 1) * page + (0 if self.lie == "last page" and pages > 1 else last)

    def write(self, out: torch.Tensor, row: slice | int, result: torch.Tensor) -> None:
        """A sequence's result; with the lie 'half', only its first heads."""
        heads = result.shape[-2] // 2 if self.lie == "half" else result.shape[-2]
        out[row][..., :heads, :] = result[..., :heads, :].to(out.dtype)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> Stubs:
    """Empty modules of these names, of a package with the files by which ROCm's aiter is known."""
    package = folder / "aiter"
    (package / "ops").mkdir(parents=True)
    (package / "jit").mkdir()
    for file in ("__init__.py", "ops/__init__.py", "ops/mha.py"):
        (package / file).touch()
    (package / "_version.py").write_text("version = '0.1.99'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiter"]:
        monkeypatch.delitem(sys.modules, name)
    modules = {name: ModuleType(name) for name in {*names, "aiter.ops.attention"}}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    stubs = Stubs(modules)
    stubs.low_level("aiter.ops.attention", "mla_decode_stage1_opus_fwd_ds32")
    return stubs


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    causal: bool = True,
    left: int = -1,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence in fp64: q (Q, H, D), k and v (L, Hk, D) -> (Q, H, Dv) and the log-sum-exp (H, Q).

    left    keys that a token sees before its own; -1 for all
    """
    import torch

    queries, heads = q.shape[:2]
    keys, kv_heads = k.shape[:2]
    k, v = (tensor.double().repeat_interleave(heads // kv_heads, dim=1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    last = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None]
    hidden = (key > last) if causal else torch.zeros(queries, keys, dtype=torch.bool)
    if left >= 0:
        hidden = hidden | (key < last - left)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(heads, queries, 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :keys]
    return torch.einsum("hqk,khd->qhd", weights, v), torch.logsumexp(scores, dim=-1)


def batch_prefill(stubs: Stubs) -> None:
    """`mha_batch_prefill_func` of the snapshot of 2026-08; pages of other sizes than it is tested with are refused."""

    def mha_batch_prefill_func(
        q: Any, k: Any, v: Any, cu_seqlens_q: Any, kv_indptr: Any, kv_page_indices: Any, max_seqlen_q: Any,
        max_seqlen_k: Any, dropout_p: float = 0.0, softmax_scale: Any = None, logits_soft_cap: float = 0.0,
        causal: bool = False, window_size: Any = (-1, -1), alibi_slopes: Any = None, deterministic: bool = False,
        return_lse: bool = False, return_attn_probs: bool = False, out: Any = None, kv_last_page_lens: Any = None,
        block_table: Any = None, seqlen_k: Any = None, sink_ptr: Any = None, sink_size: int = 0,
    ) -> Any:  # fmt: skip
        stubs.note("mha_batch_prefill_func", locals())
        page = k.shape[1] if k.dim() == 4 else 1
        assert page in (1, 16, 1024)
        assert k.dtype == q.dtype == v.dtype
        for sums in (cu_seqlens_q, kv_indptr, kv_page_indices, kv_last_page_lens):
            assert str(sums.dtype) == "torch.int32"
            assert sums.is_contiguous()
        return _batch_prefilled(stubs, locals() | {"page": page})

    stubs.put("aiter.ops.mha", mha_batch_prefill_func)
    stubs.low_level("aiter.ops.mha", "mha_batch_prefill")


def batch_prefill_v0_1_9(stubs: Stubs) -> None:
    """The same of v0.1.9: pages of one key, no sinks."""

    def mha_batch_prefill_func(
        q: Any, k: Any, v: Any, cu_seqlens_q: Any, kv_indptr: Any, kv_page_indices: Any, max_seqlen_q: Any,
        max_seqlen_k: Any, dropout_p: float = 0.0, softmax_scale: Any = None, logits_soft_cap: float = 0.0,
        causal: bool = False, window_size: Any = (-1, -1), alibi_slopes: Any = None, deterministic: bool = False,
        return_lse: bool = False, return_attn_probs: bool = False, out: Any = None,
    ) -> Any:  # fmt: skip
        stubs.note("mha_batch_prefill_func", locals())
        assert k.dim() == v.dim() == 3
        ones = cu_seqlens_q.new_ones(len(cu_seqlens_q) - 1)
        return _batch_prefilled(stubs, locals() | {"page": 1, "kv_last_page_lens": ones, "sink_ptr": None})

    stubs.put("aiter.ops.mha", mha_batch_prefill_func)
    stubs.low_level("aiter.ops.mha", "mha_batch_prefill")


def _batch_prefilled(stubs: Stubs, given: dict[str, Any]) -> Any:
    import torch

    stubs.ran("aiter.ops.mha", "mha_batch_prefill")
    starts, firsts = given["cu_seqlens_q"].tolist(), given["kv_indptr"].tolist()
    sums = []
    for b, last in enumerate(given["kv_last_page_lens"].tolist()):
        pages = given["kv_page_indices"][firsts[b] : firsts[b + 1]].long()
        length = stubs.length(len(pages), given["page"], last)
        k, v = (given[name][pages].flatten(0, given[name].dim() - 3)[:length] for name in "kv")
        rows = slice(starts[b], starts[b + 1])
        left = given["window_size"][0] + (stubs.lie == "window")
        result, lse = attend(
            given["q"][rows], k, v, given["softmax_scale"], causal=given["causal"], left=left,
            cap=given["logits_soft_cap"], sinks=given["sink_ptr"],
        )  # fmt: skip
        stubs.write(given["out"], rows, result)
        sums.append(lse.float())
    out = given["out"]
    return (out, torch.cat(sums, dim=1)) if given["return_lse"] else out


def found_wrong(backend: Any, workload: Any) -> tuple[str, ...]:
    """What a judge finds wrong with a backend's result for planted inputs that were loaded after it was prepared."""
    prepared = backend.prepare(workload, workload.make_inputs(SEED + 1, "cpu", planted=False))
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    expected = REFERENCES.compute_expected(workload, inputs, seed=SEED, planted=True)
    prepared.load(inputs)
    outputs = prepared.outputs(prepared.run())
    truth = expected.reference
    assert all(outputs[name].shape == truth[name].shape for name in truth)
    assert "out" not in truth or outputs["out"].dtype == inputs[0].dtype
    return find_problems(expected, outputs)

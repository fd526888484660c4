"""Backends `ck` and `aiter.triton` for serving steps over a paged cache, and the call of CK's batch prefill.

    ck              `aiter.mha_batch_prefill_func`, Composable Kernel
    aiter.triton    `unified_attention`, Triton

Written from aiter's source (v0.1.5 to 2026-08); never run on an AMD GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter import paged_binding, paged_layout
from kernels.aiter.attention import CK, MHA, route_reasons
from kernels.aiter.signatures import EntryPoint, match_arguments, parameters_of
from pytest_attnperf.backends import Backend
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.paged_cache import require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

BATCH_PREFILL = "aiter's mha_batch_prefill_func"
UNIFIED = "aiter's unified_attention"
UNIFIED_MODULE, UNIFIED_OLD = "aiter.ops.triton.attention.unified_attention", "aiter.ops.triton.unified_attention"

CK_HEAD_DIM_MAX = 256
"""Checked in aiter's C++ (mha_batch_prefill_kernels.cu), as is that 8 divides the head dimension."""
CK_HEAD_DIM_MULTIPLE = 8
CK_PAGES = (1024, 16, 1)
"""Page sizes that aiter's own test of batch prefill covers, the largest first."""

FP8_PAGE_MIN = 32
"""Smallest page of an 8-bit cache that aiter's own test of unified_attention covers."""

ENTRY_POINTS = (
    EntryPoint(
        MHA,
        "mha_batch_prefill_func",
        needed=(
            *("q", "k", "v", "cu_seqlens_q", "kv_indptr", "kv_page_indices", "max_seqlen_q", "max_seqlen_k"),
            *("softmax_scale", "logits_soft_cap", "causal", "window_size", "return_lse", "out"),
        ),
        offered=("kv_last_page_lens", "sink_ptr"),
    ),
    EntryPoint(
        UNIFIED_MODULE,
        "unified_attention",
        needed=(
            *("q", "k", "v", "out", "cu_seqlens_q", "max_seqlen_q", "seqused_k", "max_seqlen_k", "softmax_scale"),
            *("causal", "window_size", "block_table", "softcap", "q_descale", "k_descale", "v_descale"),
        ),
        offered=("sinks",),
        old=UNIFIED_OLD,
        since="v0.1.6.post2",
    ),
)


@dataclass(frozen=True)
class BatchPrefill:
    """One problem in the terms of `mha_batch_prefill_func`.

    seqs_q, seqs_kv    query tokens and keys of each sequence
    page               keys per page of the canonical cache; 0 for a contiguous one
    window, cap        0 for none
    lse, sinks         whether the log-sum-exp is requested, and whether there are sinks
    """

    seqs_q: tuple[int, ...]
    seqs_kv: tuple[int, ...]
    head_dim: int
    page: int
    window: int
    cap: int
    lse: bool
    sinks: bool

    def keys_per_page(self, function: Callable[..., Any]) -> int:
        """Returns the keys per page that this version's `function` gets. Smaller pages only need a longer table.

        Without `kv_last_page_lens` (before v0.1.12) aiter takes pages of one key only.
        """
        if not self.page or "kv_last_page_lens" not in {one.name for one in parameters_of(function)}:
            return 1
        return next(size for size in CK_PAGES if self.page % size == 0)

    def convert_inputs(
        self, unit: int, q: torch.Tensor, caches: Tensors, table: torch.Tensor, extras: Tensors
    ) -> Tensors:
        """Returns q (T, H, D), keys and values in pages of `unit` keys, then `cu_seqlens_q`, the lists of pages, and
        sinks if any.

        `table` is the canonical block table, or that of a contiguous cache in pages of one key.
        """
        kv_heads = caches[0].shape[-2]
        shape = (-1, kv_heads, self.head_dim) if unit == 1 else (-1, unit, kv_heads, self.head_dim)
        smaller = paged_layout.smaller_pages(table, self.page, unit) if self.page else table
        lists = paged_layout.page_lists(smaller, self.seqs_kv, unit)
        starts = paged_layout.running_sums(self.seqs_q, q.device)
        k, v = (cache.view(shape) for cache in caches)
        return (q, k, v, starts, lists.indptr, lists.indices, lists.last_lens, *extras)

    def collect_arguments(self, tensors: Tensors, out: torch.Tensor) -> dict[str, Any]:
        """Returns aiter's arguments, name -> value, from the tensors of `convert_inputs`."""
        q, k, v, starts, indptr, indices, last_lens, *sinks = tensors
        return {
            "q": q,
            "k": k,
            "v": v,
            "cu_seqlens_q": starts,
            "kv_indptr": indptr,
            "kv_page_indices": indices,
            "max_seqlen_q": max(self.seqs_q),
            "max_seqlen_k": max(self.seqs_kv),
            "softmax_scale": 1.0 / math.sqrt(self.head_dim),
            "logits_soft_cap": float(self.cap),
            "causal": max(self.seqs_q) > 1,
            # (-1, -1) is no window; left counts the keys before a token's own, right those after it.
            "window_size": (self.window - 1, 0) if self.window else (-1, -1),
            "return_lse": self.lse,
            "out": out,
            "kv_last_page_lens": last_lens,
            **({"sink_ptr": sinks[0]} if sinks else {}),
        }

    def needed_arguments(self) -> tuple[str, ...]:
        """Returns the names of arguments that aiter must take because they change the result: the sinks', or none."""
        return ("sink_ptr",) if self.sinks else ()


def batch_prefill_reasons(dtype: str, head_dim: int, cache: str, device: DeviceInfo) -> list[str]:
    """Returns what `mha_batch_prefill_func` refuses, if anything; `cache` is an 8-bit cache's dtype word or ''."""
    found = route_reasons(CK, BATCH_PREFILL, device)
    if dtype not in ("f16", "bf16"):
        found.append(f"{BATCH_PREFILL} takes bf16, f16, not {dtype}")
    if cache:
        found.append(f"{BATCH_PREFILL} takes keys and values in the dtype of q, not {cache}")
    if head_dim > CK_HEAD_DIM_MAX or head_dim % CK_HEAD_DIM_MULTIPLE:
        found.append(
            f"{BATCH_PREFILL} takes a head_dim of at most {CK_HEAD_DIM_MAX} that {CK_HEAD_DIM_MULTIPLE} divides, not "
            f"{head_dim}"
        )
    return found


def bind_batch_prefill(
    problem: BatchPrefill,
    inputs: Tensors,
    parts: Callable[[Tensors], tuple[torch.Tensor, Tensors, torch.Tensor, Tensors]],
    outputs: Callable[[Any], Outputs],
) -> Prepared:
    """Returns a prepared call of `mha_batch_prefill_func`, after one run.

    `parts` splits canonical inputs into q (T, H, D), (k, v), the table, and (sinks,) or ().
    """
    import torch

    mha = paged_binding.import_aiter_module("mha_batch_prefill_func", MHA)
    unit = problem.keys_per_page(mha.mha_batch_prefill_func)
    q = parts(inputs)[0]
    out = torch.empty_like(q)

    def convert_inputs(new: Tensors) -> Tensors:
        q, caches, table, extras = parts(new)
        return problem.convert_inputs(unit, q, caches, table, extras)

    example = problem.collect_arguments(convert_inputs(inputs), out)
    _, taken = match_arguments(mha.mha_batch_prefill_func, example, needed=problem.needed_arguments())

    def call_aiter(*tensors: torch.Tensor) -> Any:
        return mha.mha_batch_prefill_func(**paged_binding.select_values(problem.collect_arguments(tensors, out), taken))

    return paged_binding.prepare_paged_call(
        BATCH_PREFILL,
        call_aiter,
        inputs,
        convert_inputs,
        outputs,
        promised="ck",
        written=out,
        config={"page": str(unit)},
    )


@dataclass(frozen=True)
class CkMixed(Backend[Mixed]):
    """Composable Kernel: fp16 and bf16 caches, read in place; windows, soft caps, and sinks since v0.1.12."""

    families = ("mixed",)

    def unsupported_reasons(self, workload: Mixed, device: DeviceInfo) -> list[str]:
        """Returns what `batch_prefill_reasons` refuses; empty if it can run."""
        return batch_prefill_reasons(workload.dtype, workload.head_dim, workload.cache, device)

    def prepare(self, workload: Mixed, inputs: Tensors) -> Prepared:
        """Returns aiter's call, run once, with the block table converted to lists of pages. Raises UsageError for a
        block table or lengths out of range."""
        require_block_table(inputs[3], inputs[5], inputs[1].shape[0], workload.page)
        problem = BatchPrefill(
            seqs_q=workload.seqs_q,
            seqs_kv=workload.seqs_kv,
            head_dim=workload.head_dim,
            page=workload.page,
            window=workload.window,
            cap=workload.cap,
            lse=False,
            sinks=workload.sinks,
        )

        def split_inputs(new: Tensors) -> tuple[torch.Tensor, Tensors, torch.Tensor, Tensors]:
            return new[0], new[1:3], new[3], new[6:]

        return bind_batch_prefill(problem, inputs, split_inputs, lambda out: {"out": out})


@dataclass(frozen=True)
class TritonMixed(Backend[Mixed]):
    """`unified_attention`: fp16 and bf16 caches, f8e4m3 on gfx950, read in place; windows, soft caps, sinks."""

    families = ("mixed",)

    def unsupported_reasons(self, workload: Mixed, device: DeviceInfo) -> list[str]:
        """Returns what `unified_attention` refuses: 8-bit caches in a foreign format or in small pages."""
        found = paged_binding.device_reasons(device)
        has = paged_binding.FP8_CACHES.get(device.arch, "")
        if workload.cache and workload.cache != has:
            found.append(f"{UNIFIED} takes no {workload.cache} cache on {device.arch}{f', but {has}' if has else ''}")
        if workload.cache and workload.page < FP8_PAGE_MIN:
            found.append(
                f"{UNIFIED} is tested on 8-bit caches with pages of at least {FP8_PAGE_MIN} keys, not {workload.page}"
            )
        return found

    def prepare(self, workload: Mixed, inputs: Tensors) -> Prepared:
        """Binds the arguments and runs once. Raises UsageError for a block table or lengths out of range."""
        import torch

        require_block_table(inputs[3], inputs[5], inputs[1].shape[0], workload.page)
        module = paged_binding.import_aiter_module("unified_attention", UNIFIED_MODULE, UNIFIED_OLD)
        out = torch.empty_like(inputs[0])
        needed = ("sinks",) if workload.sinks else ()
        _, taken = match_arguments(module.unified_attention, unified_values(workload, inputs, out), needed=needed)

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            module.unified_attention(**paged_binding.select_values(unified_values(workload, tensors, out), taken))
            return out

        return paged_binding.prepare_paged_call(
            UNIFIED,
            call_aiter,
            inputs,
            lambda new: new,
            lambda out: {"out": out},
            promised="triton",
            written=out,
            config={},
            also=(module.__name__, "unified_attention"),
        )


def unified_values(workload: Mixed, tensors: Tensors, out: torch.Tensor) -> dict[str, Any]:
    """Returns the arguments of `unified_attention`, name -> value, from canonical tensors and the result `out`."""
    q, k, v, table, starts, seq_lens, *extras = tensors
    k_scale, v_scale = extras[-2:] if workload.cache else (None, None)
    return {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "cu_seqlens_q": starts,
        "max_seqlen_q": max(workload.seqs_q),
        "seqused_k": seq_lens,
        "max_seqlen_k": max(workload.seqs_kv),
        "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
        "causal": True,
        # A token sees 1 + window_size[0] keys, so -1 is no window.
        "window_size": (workload.window - 1, 0) if workload.window else (-1, -1),
        "block_table": table,
        "softcap": float(workload.cap),
        "q_descale": None,
        "k_descale": k_scale,
        "v_descale": v_scale,
        **({"sinks": extras[0]} if workload.sinks else {}),
    }


PARTS: tuple[tuple[str, str, Backend], ...] = (
    ("ck", "mixed", CkMixed("ck")),
    ("aiter.triton", "mixed", TritonMixed("aiter.triton")),
)

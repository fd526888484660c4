"""Backends `ck`, `aiter.hip`, `aiter.asm` and `aiter.triton` for attention decode.

    ck              `aiter.mha_batch_prefill_func`, Composable Kernel
    aiter.hip       `aiter.paged_attention_rocm`
    aiter.asm       `aiter.pa_fwd_asm`
    aiter.triton    `pa_decode.paged_attention_decode`

Written from aiter's source (v0.1.5 to 2026-08); never run on an AMD GPU. Limits are those that its Python and C++
check, and those of its kernels' tables and tile sizes, beyond which a kernel would read wrong memory without an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter import paged_binding, paged_layout
from kernels.aiter.attention import ASM, Route, route_reasons
from kernels.aiter.mixed import BATCH_PREFILL, BatchPrefill, batch_prefill_reasons, bind_batch_prefill
from kernels.aiter.signatures import EntryPoint, match_arguments
from pytest_attnperf.backends import Backend
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.paged_cache import require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

ROCM = "aiter's paged_attention_rocm"
PA_ASM = "aiter's pa_fwd_asm"
PA_TRITON = "aiter's paged_attention_decode"
PA_TRITON_MODULE, PA_TRITON_OLD = "aiter.ops.triton.attention.pa_decode", "aiter.ops.triton.pa_decode"
ATTENTION = "aiter.ops.attention"

HIP = Route("HIP", frozenset({"gfx90a", "gfx942", "gfx950"}), "hip")
"""Architectures whose MFMA instructions its kernels use (csrc/cpp_itfs/pa/pa.cuh)."""

PARTITION = 256
"""Keys per workgroup of paged_attention_rocm, a constant of its kernel."""

HIP_HEAD_DIMS = {2: (64, 128, 192, 256), 1: (64, 128, 256)}
"""Bytes of a cached element -> head dimensions: each of four waves takes an equal number of its 16-column tiles of v,
and loads of a key's 64 bytes fill each half of a head above 128 (pa.cuh, VHELOOP and QKHELOOP)."""

HIP_GROUP_MAX = 16
"""Most query heads per K/V head. Above 16, pa.cuh processes them in two rounds, but computes its first head from the
number in one round: with more than one K/V head that is the wrong head."""

HIP_KEYS_MAX = 65536
"""The longest sequence that aiter's own caller passes to it (paged_attn.py)."""

ASM_HEAD_DIM, ASM_PAGE, ASM_GROUP_MAX = 128, 16, 16
"""The C++ check, and the rows of hsa/gfx942/pa/pa_asm.csv and gfx950's: groups of 8 and 16, smaller ones rounded up."""

ENTRY_POINTS = (
    EntryPoint(
        ATTENTION,
        "paged_attention_rocm",
        needed=(
            *("out", "exp_sums", "max_logits", "tmp_out", "query", "key_cache", "value_cache", "num_kv_heads", "scale"),
            *("block_tables", "context_lens", "block_size", "max_context_len", "alibi_slopes", "kv_cache_dtype"),
            *("k_scale", "v_scale", "partition_size"),
        ),
    ),
    EntryPoint(
        ATTENTION,
        "pa_fwd_asm",
        needed=(
            *("Q", "K", "V", "block_tables", "context_lens", "block_tables_stride0", "max_qlen"),
            *("K_QScale", "V_QScale", "out_", "high_precision"),
        ),
    ),
    EntryPoint(
        PA_TRITON_MODULE,
        "paged_attention_decode",
        needed=(
            *("output", "query", "key_cache", "value_cache", "seq_lens", "block_tables", "attn_scale", "max_seq_len"),
            *("compute_type", "k_scale", "v_scale"),
        ),
        old=PA_TRITON_OLD,
    ),
)


@dataclass(frozen=True)
class AiterDecode(Backend[Decode]):
    """Base class of aiter's four backends for attention decode."""

    families = ("decode",)


@dataclass(frozen=True)
class CkDecode(AiterDecode):
    """Composable Kernel: several tokens, windows, soft caps, log-sum-exp; 16-bit caches, paged or not, read in
    place."""

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns what `batch_prefill_reasons` refuses, and a log-sum-exp with sinks; empty if it can run. Sinks exist
        since v0.1.12, which only `prepare` checks."""
        found = batch_prefill_reasons(workload.dtype, workload.head_dim, workload.kv_dtype, device)
        if workload.sinks and workload.lse:
            found.append(f"{BATCH_PREFILL} does not say whether its log-sum-exp holds the sinks; this workload's does")
        return found

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Returns aiter's call, run once, with the block table converted to lists of pages. Raises UsageError for a
        block table or lengths out of range."""
        _require_table(workload, inputs)
        batch, queries, heads, head_dim = inputs[0].shape
        problem = BatchPrefill(
            seqs_q=(queries,) * batch,
            seqs_kv=workload.lengths,
            head_dim=head_dim,
            page=workload.page,
            window=workload.window,
            cap=workload.cap,
            lse=workload.lse,
            sinks=workload.sinks,
        )

        def split_inputs(new: Tensors) -> tuple[torch.Tensor, Tensors, torch.Tensor, Tensors]:
            given = workload.split_inputs(new)
            table = given.table
            if table is None:
                table = paged_layout.contiguous_table(batch, workload.seq_kv, given.q.device)
            sinks = () if given.sinks is None else (given.sinks,)
            return given.q.view(batch * queries, heads, head_dim), (given.k, given.v), table, sinks

        def name_outputs(result: Any) -> Outputs:
            if not workload.lse:
                return {"out": result.view(batch, queries, heads, head_dim)}
            out, lse = result
            by_sequence = lse.view(heads, batch, queries).transpose(0, 1)
            return {"out": out.view(batch, queries, heads, head_dim), "lse": by_sequence}

        return bind_batch_prefill(problem, inputs, split_inputs, name_outputs)


@dataclass(frozen=True)
class AiterHipDecode(AiterDecode):
    """`paged_attention_rocm`: one token per sequence; pages of 16 bits, or of 8 in the architecture's f8e4m3."""

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns the limits of paged_attention_rocm that the workload exceeds; constants above name their sources."""
        found = route_reasons(HIP, ROCM, device) + plain_reasons(ROCM, workload)
        caches = ["", paged_binding.FP8_CACHES.get(device.arch, "")]
        if workload.kv_dtype not in caches:
            found.append(_cache_problem(ROCM, workload, device))
        head_dims = HIP_HEAD_DIMS[1 if workload.kv_dtype else 2]
        if workload.head_dim not in head_dims:
            bits = "an 8-bit" if workload.kv_dtype else "a 16-bit"
            listed = ", ".join(map(str, head_dims))
            found.append(f"{ROCM} takes head_dim {listed} with {bits} cache, not {workload.head_dim}")
        found.extend(_group_reasons(ROCM, workload, HIP_GROUP_MAX))
        if workload.seq_kv > HIP_KEYS_MAX:
            found.append(f"{ROCM} is called for up to {HIP_KEYS_MAX} keys per sequence, not {workload.seq_kv}")
        return found

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Returns aiter's call, run once, on a reordered cache (untimed) and with buffers for the results of the
        partitions. Raises UsageError for a block table or lengths out of range."""
        import torch

        _require_table(workload, inputs)
        attention = paged_binding.import_aiter_module("paged_attention_rocm", ATTENTION)
        out = torch.empty_like(inputs[0][:, 0])
        partitions = (*out.shape[:2], -(-workload.seq_kv // PARTITION))
        sums, most = (torch.empty(partitions, dtype=torch.float32, device=out.device) for _ in range(2))
        partial = torch.empty((*partitions, workload.head_dim), dtype=out.dtype, device=out.device)
        workspaces = {"out": out, "exp_sums": sums, "max_logits": most, "tmp_out": partial}

        def convert_inputs(new: Tensors) -> Tensors:
            given = workload.split_inputs(new)
            one = torch.ones(1, dtype=torch.float32, device=given.q.device)
            scales = (one if scale is None else scale for scale in (given.k_scale, given.v_scale))
            caches = paged_layout.vector_keys(given.k), paged_layout.transposed_values(given.v)
            return (given.q[:, 0], *caches, *_table_and_lengths(workload, new), *scales)

        example = {**workspaces, **rocm_values(workload, convert_inputs(inputs))}
        _, taken = match_arguments(attention.paged_attention_rocm, example)

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            values = {**workspaces, **rocm_values(workload, tensors)}
            attention.paged_attention_rocm(**paged_binding.select_values(values, taken))
            return out

        return _prepare_decode(ROCM, call_aiter, inputs, convert_inputs, "hip", out, {"partition_size": str(PARTITION)})


def rocm_values(workload: Decode, tensors: Tensors) -> dict[str, Any]:
    """Returns the arguments of `paged_attention_rocm`, name -> value, from (q, k, v, table, lengths, both scales),
    without the buffers that it writes."""
    q, k, v, table, seq_lens, k_scale, v_scale = tensors
    return {
        "query": q,
        "key_cache": k,
        "value_cache": v,
        "num_kv_heads": workload.kv_heads,
        "scale": 1.0 / math.sqrt(workload.head_dim),
        "block_tables": table,
        "context_lens": seq_lens,
        "block_size": workload.page,
        "max_context_len": workload.seq_kv,
        "alibi_slopes": None,
        "kv_cache_dtype": "fp8" if workload.kv_dtype else "auto",
        "k_scale": k_scale,
        "v_scale": v_scale,
        "partition_size": PARTITION,
    }


@dataclass(frozen=True)
class AsmDecode(AiterDecode):
    """`pa_fwd_asm`: one token per sequence, head dimension 128, pages of 16 keys; 8-bit caches with a scale per key."""

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns the limits of pa_fwd_asm that the workload exceeds; the constants above name the source of each."""
        found = route_reasons(ASM, PA_ASM, device) + plain_reasons(PA_ASM, workload)
        if workload.kv_dtype not in ("", "kvi8", paged_binding.FP8_CACHES.get(device.arch, "")):
            found.append(_cache_problem(PA_ASM, workload, device))
        if workload.head_dim != ASM_HEAD_DIM:
            found.append(f"{PA_ASM} takes head_dim {ASM_HEAD_DIM} alone, not {workload.head_dim}")
        if workload.page not in (0, ASM_PAGE):
            found.append(f"{PA_ASM} has kernels for pages of {ASM_PAGE} keys, not {workload.page}")
        return found + _group_reasons(PA_ASM, workload, ASM_GROUP_MAX)

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Returns aiter's call, run once, on a reordered cache with its scales repeated for every key (untimed). Raises
        UsageError for a block table or lengths out of range."""
        import torch

        _require_table(workload, inputs)
        attention = paged_binding.import_aiter_module("pa_fwd_asm", ATTENTION)
        out = torch.empty_like(inputs[0][:, 0])

        def convert_inputs(new: Tensors) -> Tensors:
            given = workload.split_inputs(new)
            caches = paged_layout.vector_keys(given.k), paged_layout.shuffled_values(given.v)
            scales = [scale for scale in (given.k_scale, given.v_scale) if scale is not None]
            spread = (paged_layout.scale_of_every_key(scale, given.k) for scale in scales)
            return (given.q[:, 0], *caches, *_table_and_lengths(workload, new), *spread)

        needed = ("K_QScale", "V_QScale") if workload.kv_dtype else ()
        _, taken = match_arguments(attention.pa_fwd_asm, asm_values(convert_inputs(inputs), out), needed=needed)

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            attention.pa_fwd_asm(**paged_binding.select_values(asm_values(tensors, out), taken))
            return out

        return _prepare_decode(PA_ASM, call_aiter, inputs, convert_inputs, "asm", out, {"high_precision": "1"})


def asm_values(tensors: Tensors, out: torch.Tensor) -> dict[str, Any]:
    """Returns the arguments of `pa_fwd_asm`, name -> value, from (q, k, v, table, lengths[, both scales]). The kernel
    itself scales by 1/sqrt(128); of its three precisions, 1 is its default."""
    q, k, v, table, seq_lens, *scales = tensors
    k_scale, v_scale = scales or (None, None)
    return {
        "Q": q,
        "K": k,
        "V": v,
        "block_tables": table,
        "context_lens": seq_lens,
        "block_tables_stride0": table.stride(0),
        "max_qlen": 1,
        "K_QScale": k_scale,
        "V_QScale": v_scale,
        "out_": out,
        "high_precision": 1,
    }


@dataclass(frozen=True)
class TritonDecode(AiterDecode):
    """`paged_attention_decode`: one token per sequence, pages of 16-bit keys with the heads before the keys.

    The function reads its scales with `.item()`, which waits for the device and cannot be in a captured graph. Scales
    of a 16-bit cache are 1 and are passed as CPU tensors. Those of an 8-bit cache are the workload's.
    """

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns what aiter's paged_attention_decode refuses. It pads its tiles, so it takes any head dimension and
        grouping."""
        found = paged_binding.device_reasons(device) + plain_reasons(PA_TRITON, workload)
        if workload.kv_dtype:
            found.append(
                f"{PA_TRITON} reads the scale of a tensor on the host in every call, which no captured graph can hold; "
                f"this workload's cache is {workload.kv_dtype}"
            )
        return found

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Returns aiter's call on a reordered cache. Raises UsageError for a block table or lengths out of range."""
        import torch

        _require_table(workload, inputs)
        module = paged_binding.import_aiter_module("paged_attention_decode", PA_TRITON_MODULE, PA_TRITON_OLD)
        import triton.language as tl

        out = torch.empty_like(inputs[0][:, 0])
        one = torch.ones(1)
        fixed = {
            "output": out,
            "attn_scale": 1.0 / math.sqrt(workload.head_dim),
            "max_seq_len": workload.seq_kv,
            "compute_type": tl.float16 if workload.dtype == "f16" else tl.bfloat16,
            "k_scale": one,
            "v_scale": one,
        }
        names = ("query", "key_cache", "value_cache", "block_tables", "seq_lens")

        def convert_inputs(new: Tensors) -> Tensors:
            given = workload.split_inputs(new)
            caches = (paged_layout.heads_before_keys(cache) for cache in (given.k, given.v))
            return (given.q[:, 0], *caches, *_table_and_lengths(workload, new))

        def collect_arguments(tensors: Tensors) -> dict[str, Any]:
            return {**fixed, **dict(zip(names, tensors, strict=True))}

        _, taken = match_arguments(module.paged_attention_decode, collect_arguments(convert_inputs(inputs)))

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            module.paged_attention_decode(**paged_binding.select_values(collect_arguments(tensors), taken))
            return out

        also = (module.__name__, "paged_attention_decode")
        return _prepare_decode(PA_TRITON, call_aiter, inputs, convert_inputs, "triton", out, {}, also)


def plain_reasons(who: str, workload: Decode) -> list[str]:
    """Returns what none of aiter's HIP, assembly and Triton kernels for paged decoding computes; `who` names one."""
    found = [] if workload.dtype in ("f16", "bf16") else [f"{who} takes bf16, f16, not {workload.dtype}"]
    if not workload.page:
        found.append(f"{who} reads its cache in pages, this workload's is contiguous")
    if workload.queries > 1:
        found.append(f"{who} is given one token per sequence here, this workload has {workload.queries}")
    extras = {
        f"soft cap, this workload has one of {workload.cap}": workload.cap,
        f"sliding window, this workload has one of {workload.window} keys": workload.window,
        "sinks, this workload has them": workload.sinks,
    }
    found.extend(f"{who} takes no {text}" for text, has in extras.items() if has)
    if workload.lse:
        found.append(f"{who} returns no log-sum-exp")
    return found


def _group_reasons(who: str, workload: Decode, most: int) -> list[str]:
    group = workload.heads // workload.kv_heads
    return [f"{who} takes up to {most} query heads per K/V head, not {group}"] if group > most else []


def _cache_problem(who: str, workload: Decode, device: DeviceInfo) -> str:
    has = paged_binding.FP8_CACHES.get(device.arch)
    return f"{who} takes no {workload.kv_dtype} cache on {device.arch}{f', but {has}' if has else ''}"


def _table_and_lengths(workload: Decode, inputs: Tensors) -> Tensors:
    """Returns (block table, sequence lengths) of the inputs; only (sequence lengths,) for a contiguous cache."""
    return tuple(inputs[3:5]) if workload.page else tuple(inputs[3:4])


def _require_table(workload: Decode, inputs: Tensors) -> None:
    """Raises UsageError if the block table or the lengths are out of range; does nothing for a contiguous cache."""
    given = workload.split_inputs(inputs)
    if given.table is not None:
        require_block_table(given.table, given.seq_lens, given.k.shape[0], workload.page)


def _prepare_decode(
    who: str,
    call: Callable[..., Any],
    inputs: Tensors,
    convert: Callable[[Tensors], Tensors],
    path: str,
    out: torch.Tensor,
    config: dict[str, str],
    also: tuple[str, str] | None = None,
) -> Prepared:
    """Runs `call` once and returns it prepared. Its result `out` is (B, H, D), one token per sequence. Raises
    AttnperfError if another path than `path` ran."""
    return paged_binding.prepare_paged_call(
        who, call, inputs, convert, _with_tokens, promised=path, written=out, config=config, also=also
    )


def _with_tokens(out: torch.Tensor) -> Outputs:
    return {"out": out[:, None]}


PARTS: tuple[tuple[str, str, Backend], ...] = (
    ("ck", "decode", CkDecode("ck")),
    ("aiter.hip", "decode", AiterHipDecode("aiter.hip")),
    ("aiter.asm", "decode", AsmDecode("aiter.asm")),
    ("aiter.triton", "decode", TritonDecode("aiter.triton")),
)

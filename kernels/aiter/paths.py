"""Detects which of aiter's implementations a call takes: CK, assembly, split-K, OPUS, Triton, ...

Read in aiter v0.1.5 to 2026-08 (ops/mha.py, ops/attention.py, mla.py, tuned_gemm.py, ops/gemm_op_*.py, ops/rmsnorm.py,
jit/core.py, jit/utils/torch_guard.py), never run on an AMD GPU. Dispatchers such as `_flash_attn_forward` call the
low-level functions as globals of their own module. Where a dispatcher is itself registered as a torch operator
(`_flash_attn_backward`, `gemm_a16w16`, `rms_norm`), the operator's implementation for the CUDA and CPU keys is the same
Python function. It looks up globals when it runs, so a wrapper in the module's attribute is called. Low-level functions
are Python functions too, which call operators of their own. `from x import *` copies functions, so all loaded modules
of aiter are searched for the same objects, and dictionaries of functions such as `tuned_gemm.solMap` too.

Not detected: a function read from its module earlier (call it as an attribute of the module), an operator called as
`torch.ops.aiter.<name>`, and anything under torch.compile or in a captured graph.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from pytest_attnperf.measure.patching import Patch, Patches

T = TypeVar("T")

CK, ASM, TRITON, TRITON_DAO, HIP, OPUS, FLYDSL = "ck", "asm", "triton", "triton_dao", "hip", "opus", "flydsl"
NATIVE_SPLITKV = "native_splitkv"
HIPBLASLT, TORCH, HIPKITTENS = "hipblaslt", "torch", "hipkittens"

_MHA = {
    CK: "mha_fwd mha_varlen_fwd mha_bwd mha_varlen_bwd mha_batch_prefill",
    ASM: "fmha_v3_fwd fmha_v3_varlen_fwd fmha_v3_bwd fmha_v3_varlen_bwd fmha_fwd_with_sink_asm "
    "fmha_fwd_with_sink_varlen_asm fmha_fwd_mxfp8_asm",
    NATIVE_SPLITKV: "mha_fwd_native_splitkv",
    OPUS: "fmha_fwd_bf16_opus_fwd fmha_fwd_bf16_opus_varlen_fwd",
}
_ATTENTION = {
    ASM: "pa_fwd_asm pa_ps_fwd_asm pa_decode_bf16_asm mla_decode_stage1_asm_fwd mla_decode_v4_asm mla_prefill_asm_fwd "
    "mla_prefill_ps_asm_fwd",
    HIP: "paged_attention_rocm paged_attention_v1 paged_attention_ragged pa_fwd_naive",
    OPUS: "mla_decode_stage1_opus_fwd_ds32 mla_decode_fwd_opus_stage1",
    HIPKITTENS: "hk_mla_v32_decode_fwd hk_mla_v40_decode_fwd hk_mla_decode_fwd",
}
_TUNED_GEMM = {
    HIP: "skinny_gemm",
    HIPBLASLT: "hipb_gemm",
    TORCH: "torch_gemm",
    ASM: "asm_gemm",
    FLYDSL: "flydsl_gemm",
    OPUS: "opus_gemm",
    TRITON: "triton_gemm",
}
_A8W8 = {
    CK: "gemm_a8w8_ck gemm_a8w8_bpreshuffle_ck gemm_a8w8_bpreshuffle_cktile gemm_a8w8_blockscale_ck "
    "gemm_a8w8_blockscale_cktile",
    ASM: "gemm_a8w8_asm flatmm_a8w8_blockscale_asm",
    FLYDSL: "gemm_a8w8_bpreshuffle_flydsl",
}
_RMSNORM = {
    CK: "rms_norm rmsnorm2d_fwd rmsnorm2d_fwd_with_add rmsnorm2d_fwd_ck rmsnorm2d_fwd_with_add_ck",
    HIP: "rmsnorm add_rmsnorm",
    OPUS: "rms_norm_opus rmsnorm2d_fwd_opus rmsnorm2d_fwd_with_add_opus",
}
"""The first three compile CK until 2026; later they are dispatchers, which call one of the others."""
_TRITON_MHA = {TRITON: "flash_attn_func flash_attn_varlen_func"}
_DAO = "aiter.ops.triton._triton_kernels.flash_attn_triton_amd.interface_v2"


def _make_path_rows(module: str, functions: Mapping[str, str]) -> dict[tuple[str, str], str]:
    return {(module, name): path for path, names in functions.items() for name in names.split()}


LOW_LEVEL: dict[tuple[str, str], str] = {
    **_make_path_rows("aiter.ops.mha", _MHA),
    **_make_path_rows("aiter.ops.attention", _ATTENTION),
    **_make_path_rows("aiter.tuned_gemm", _TUNED_GEMM),
    **_make_path_rows("aiter.ops.gemm_op_a16w16", {ASM: "gemm_a16w16_asm"}),
    **_make_path_rows("aiter.ops.gemm_op_a8w8", _A8W8),
    **_make_path_rows("aiter.ops.triton.attention.mha", _TRITON_MHA),
    **_make_path_rows("aiter.ops.triton.mha", _TRITON_MHA),
    **_make_path_rows(_DAO, {TRITON_DAO: "fwd varlen_fwd bwd varlen_bwd fwd_kvcache"}),
    **_make_path_rows("aiter.ops.triton.gemm.basic.gemm_a16w16", {TRITON: "gemm_a16w16"}),
    **_make_path_rows("aiter.ops.triton.gemm_a16w16", {TRITON: "gemm_a16w16"}),
    **_make_path_rows("aiter.ops.triton.gemm.basic.gemm_a8w8", {TRITON: "gemm_a8w8"}),
    **_make_path_rows("aiter.ops.triton.gemm_a8w8", {TRITON: "gemm_a8w8"}),
    **_make_path_rows("aiter.ops.rmsnorm", _RMSNORM),
    **_make_path_rows("aiter.ops.norm", {CK: "layer_norm layernorm2d_fwd layernorm2d_fwd_with_add"}),
}
"""(module, function) -> the path that its call means."""


def which_path(work: Callable[[], T], also: Mapping[tuple[str, str], str] | None = None) -> tuple[T, str]:
    """Runs `work` once. Returns its result and the path that ran: 'ck', or 'ck+asm' in order if there were several.

    If watched functions call each other, only the innermost counts: aiter's Triton `flash_attn_func` with the dao_ai
    implementation is 'triton_dao'. The path is '' if no watched function ran. `also` adds functions in the form of
    LOW_LEVEL. The wrappers are removed afterwards, also after an exception.
    """
    seen: list[str] = []
    watch = _Watch({**LOW_LEVEL, **(also or {})}, seen)
    with watch:
        result = work()
    return result, "+".join(dict.fromkeys(seen))


class _Watch:
    """Wraps the low-level functions wherever aiter's modules hold them."""

    def __init__(self, table: Mapping[tuple[str, str], str], seen: list[str]) -> None:
        self._seen = seen
        self._stacks = threading.local()
        self._ours: dict[int, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        self._patches = Patches(
            Patch(module, "", name, self._make_wrapper(path)) for (module, name), path in table.items()
        )

    def __enter__(self) -> None:
        self._patches.__enter__()
        instead = {id(original): wrapper for wrapper, original in self._ours.values()}
        _replace_values(lambda value: instead.get(id(value), value))

    def __exit__(self, *error: Any) -> None:
        self._patches.__exit__(*error)
        _replace_values(self._find_original)

    def _find_original(self, value: Any) -> Any:
        while id(value) in self._ours:
            value = self._ours[id(value)][1]
        return value

    def _make_wrapper(self, path: str) -> Callable[[Any], Any]:
        def wrap_function(original: Any) -> Any:
            if not callable(original):
                return original

            @functools.wraps(original)
            def call_watched(*args: Any, **kwargs: Any) -> Any:
                with self._track_call(path):
                    return original(*args, **kwargs)

            self._ours[id(call_watched)] = (call_watched, original)
            return call_watched

        return wrap_function

    @contextmanager
    def _track_call(self, path: str) -> Iterator[None]:
        """Records `path` when the block ends, unless another watched function ran inside it."""
        stack = self._stacks.__dict__.setdefault("calls", [])
        for index in range(len(stack)):
            stack[index] = False
        stack.append(True)
        try:
            yield
        finally:
            if stack.pop():
                self._seen.append(path)


def _replace_values(instead: Callable[[Any], Any]) -> None:
    """Calls `instead` with each function in aiter's loaded modules and their dictionaries, and stores what it returns
    in its place."""
    for module in _list_modules():
        for holder in [vars(module), *(value for value in list(vars(module).values()) if type(value) is dict)]:
            for name, value in list(holder.items()):
                new = instead(value) if callable(value) else value
                if new is not value:
                    holder[name] = new


def _list_modules() -> list[ModuleType]:
    named = [(name, module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == "aiter"]
    return [module for _, module in named if isinstance(module, ModuleType)]

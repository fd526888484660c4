"""Where aiter's module of Triton attention is, and how to select its implementation for a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.aiter.importing import import_aiter

if TYPE_CHECKING:
    from types import ModuleType

MHA, OLD_MHA = "aiter.ops.triton.attention.mha", "aiter.ops.triton.mha"
FUNCTIONS = {"prefill": "flash_attn_func", "varlen": "flash_attn_varlen_func"}

HEAD_DIM_MAX = 256
"""The largest that aiter's own tests use (op_tests/triton_tests/attention/test_mha.py)."""


def with_impl(module: ModuleType, impl: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `call` with aiter's Triton implementation `impl` selected during each call, and restored afterwards.

    Raises UnsupportedError where this aiter has only the default implementation.
    """
    if not hasattr(module, "_MHA_IMPL"):
        if impl != "default":
            import_aiter(MHA, "mha_set_impl", old=OLD_MHA)
        return call

    def call_switched(*tensors: Any) -> Any:
        before = module._MHA_IMPL
        module.mha_set_impl(impl)
        try:
            return call(*tensors)
        finally:
            module.mha_set_impl(before)

    return call_switched

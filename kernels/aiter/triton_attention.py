"""Backends `aiter.triton` and `aiter.triton_dao`: aiter's attention in Triton, dense and packed.

Its default implementation (kernel `_attn_fwd`) has a configuration file per architecture, with buckets that do not
depend on lengths. `dao_ai` is a copy of flash-attention's AMD kernels with Triton's autotuner. Written from aiter's
source, v0.1.5 to e4048607a5 (2026-08-22); its kernel was compiled for gfx942 and gfx950, never run on an AMD GPU.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernels.aiter import triton_backward
from kernels.aiter.direct import Direct, Function, device_reasons, prepare_direct
from kernels.aiter.failures import call_failure
from kernels.aiter.importing import toggle_entries
from kernels.aiter.mha_module import FUNCTIONS, HEAD_DIM_MAX, MHA, OLD_MHA, with_impl
from kernels.aiter.mha_source import (
    archs_with_config,
    bucket_of,
    config_file,
    kernel_arguments,
    kernel_file,
    read_config,
)
from kernels.aiter.package import find_installed
from kernels.aiter.signatures import EntryPoint, match_arguments
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.tuning_records import Value
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

PATHS = {"default": "triton", "dao_ai": "triton_dao"}
AUTOTUNE = "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE"

CONFIG_NAMES = ("BLOCK_M", "BLOCK_N", "PRELOAD_V", "num_warps", "num_stages", "waves_per_eu", "num_ctas")
CONFIG_FURTHER = ("matrix_instr_nonkdim", "kpack")
"""Entries of a configuration: CONFIG_NAMES are in every bucket, CONFIG_FURTHER are optional."""

QUANTISES = (
    "aiter's Triton fp8 attention (mha_v3.flash_attn_fp8_func) takes bf16, f16 or f32 and quantises within the call: "
    "stored 8-bit inputs and their scales cannot be given to it"
)

Takes = Prefill | Varlen


@dataclass(frozen=True)
class TritonMha(Backend[Takes]):
    """`flash_attn_func` or `flash_attn_varlen_func` of aiter's Triton attention, with one of its implementations.

    family    'prefill' or 'varlen'
    impl      'default' or 'dao_ai', set during the call and restored after it
    values    configuration that replaces the one of aiter's file; only for the default implementation
    """

    family: str = "prefill"
    impl: str = "default"
    values: Mapping[str, Value] = field(default_factory=dict, compare=False, kw_only=True)

    @property
    def families(self) -> tuple[str, ...]:
        """The op family that this backend implements, as a tuple of one."""
        return (self.family,)

    def with_config(self, values: Mapping[str, Value]) -> TritonMha:
        """Returns a copy that passes this configuration to aiter's call. Raises UsageError for unknown or missing
        names, and for the implementation dao_ai, which aiter autotunes."""
        if self.impl != "default":
            raise UsageError(f"{self.name} ignores a configuration: its kernels are autotuned by aiter")
        unknown = sorted(values.keys() - {*CONFIG_NAMES, *CONFIG_FURTHER})
        lacking = [name for name in ("BLOCK_M", "BLOCK_N") if name not in values]
        if unknown or lacking:
            told = f"has no {', '.join(lacking)}" if lacking else f"has {', '.join(unknown)}"
            raise UsageError(
                f"a configuration of {self.name} {told}; it consists of {', '.join((*CONFIG_NAMES, *CONFIG_FURTHER))}"
            )
        return replace(self, values=dict(values))

    def replay_config(self, config: Mapping[str, str]) -> TritonMha:
        """Returns a copy with a stored result's configuration. For the implementation dao_ai it returns this backend
        unchanged: the harness replays the autotuner's choice.

        Raises UsageError where entries are missing or invalid.
        """
        if self.impl != "default":
            return self
        stored = {name: config[name] for name in (*CONFIG_NAMES, *CONFIG_FURTHER) if name in config}
        if "BLOCK_M" not in stored:
            raise UsageError(
                f"the stored configuration of {self.name} holds no BLOCK_M (aiter's choice was not readable then); it "
                f"has {', '.join(sorted(config)) or 'nothing'}; record it again, or do not pin it"
            )
        return self.with_config({name: _parse_value(name, text) for name, text in stored.items()})

    def bucket_of(self, workload: Takes, arch: str = "") -> str:
        """Returns the name of the bucket that serves a workload, by the installed aiter's file for `arch`, or without
        one by the names that e4048607a5 has."""
        root = _find_root()
        path = config_file(root, arch) if root is not None and arch else None
        return bucket_of(workload, arch, _read_buckets(path) if path is not None else None)

    def unsupported_reasons(self, workload: Takes, device: DeviceInfo) -> list[str]:
        """Returns what aiter's Python code and its kernel refuse, read from the installed files; empty if it can."""
        found = device_reasons(device)
        root = _find_root()
        one = workload.make_sequence(0) if isinstance(workload, Varlen) else workload
        found += refusal_reasons(one, self._make_limits(root))
        if workload.dtype not in (*HALVES, "f32", "tf32") and found:
            found.append(QUANTISES)
        found += [*_head_dim_reasons(one, self.impl), *self._window_reasons(workload), *self._row_reasons(workload)]
        if root is not None and self.impl == "default" and not self.values and config_file(root, device.arch) is None:
            found.append(
                f"this aiter has no Triton attention configuration for {device.arch}; it has "
                f"{', '.join(archs_with_config(root)) or 'none'}; give one by tuning"
            )
        return found

    def prepare(self, workload: Takes, inputs: Tensors) -> Prepared:
        """Imports aiter, copies the inputs, binds the arguments, and runs once."""
        function = Function.import_named(MHA, FUNCTIONS[self.family], PATHS[self.impl], old=OLD_MHA)
        config = self._config_entries(function.module, workload, inputs)
        names = ("q", "k", "v", *(("cu_seqlens_q", "cu_seqlens_k") if isinstance(workload, Varlen) else ()))
        names += ("alibi_slopes",) if workload.alibi else ()
        fixed = {**_call_arguments(workload), **({"config": dict(self.values)} if self.values else {})}
        call = with_impl(function.module, self.impl, function.bind_tensors(names, fixed))
        head_dim = workload.head_dim
        entries = {
            **toggle_entries(),
            "toggle._MHA_IMPL": self.impl,
            **config,
            "padded_in_call": str(head_dim % 8 != 0),
            "allocated_in_call": "out and lse, filled with zeros",
        }
        return prepare_direct(
            Direct(
                function,
                call,
                outputs=lambda result: _canonical_outputs(workload, result, self.impl),
                convert=lambda new: _copy_tensors(workload, new),
                config=entries,
                declares=_make_declares(self.impl, workload.dtype in HALVES),
            ),
            inputs,
        )

    def _make_limits(self, root: Path | None) -> AttentionLimits:
        """Returns what the kernel of the aiter at `root` accepts, by its arguments: older kernels take no window."""
        path = kernel_file(root) if root is not None else None
        known = kernel_arguments(path) if path is not None else ()
        return AttentionLimits(
            f"aiter's Triton attention ({self.impl})",
            dtypes=HALVES | ({"f32", "tf32"} if self.impl == "default" else set()),
            window="SLIDING_WINDOW" in known and self.impl == "default",
            rows_without_keys=True,
            head_dim_v="BLOCK_DMODEL_PE" in known and self.impl == "default",
            bias=False,
        )

    def _window_reasons(self, workload: Takes) -> list[str]:
        if workload.window != 1:
            return []
        return [f"a window of 1 key is given to {FUNCTIONS[self.family]} as (0, -1), which it reads as none"]

    def _row_reasons(self, workload: Takes) -> list[str]:
        """Returns why rows without keys are refused: the default kernel stores a wrong log-sum-exp for them. Empty
        where it does not."""
        if not workload.rows_without_keys or self.impl != "default":
            return []
        if isinstance(workload, Varlen):
            return [
                "aiter's Triton attention (default) stores the log-sum-exp of a block of rows that see no key past the "
                "end of its sequence, and past the end of the buffer for the last one"
            ]
        if workload.lse:
            return ["aiter's Triton attention (default) stores 0 as log-sum-exp of rows that see no key, not -inf"]
        return []

    def _config_entries(self, module: ModuleType, workload: Takes, inputs: Tensors) -> dict[str, str]:
        """Returns the kernel's configuration and its source as entries of `Prepared.config`."""
        if self.impl != "default":
            return {"config_source": "autotuned by aiter", f"env.{AUTOTUNE}": os.environ.get(AUTOTUNE, "1")}
        if self.values:
            _require_preload(module, self.values)
            return {**_format_values(self.values), "config_source": "given to the call"}
        own = _own_config(module, workload, inputs[0].dtype)
        if own is None:
            return {"config_source": "aiter's own, which could not be read"}
        return {**_format_values(own), "config_source": "aiter's file"}


PARTS: tuple[tuple[str, str, Backend], ...] = (
    tuple(
        (name, family, TritonMha(name, family=family, impl=impl))
        for name, impl in (("aiter.triton", "default"), ("aiter.triton_dao", "dao_ai"))
        for family in ("prefill", "varlen")
    )
    + triton_backward.PARTS
)

_OPTIONAL = ("return_lse", "window_size", "alibi_slopes", "config", "dropout_p", "softmax_scale", "causal")
ENTRY_POINTS = (
    EntryPoint(MHA, "flash_attn_func", needed=("q", "k", "v", *_OPTIONAL), old=OLD_MHA),
    EntryPoint(
        MHA,
        "flash_attn_varlen_func",
        needed=("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", *_OPTIONAL),
        old=OLD_MHA,
    ),
    EntryPoint(MHA, "mha_set_impl", needed=("impl",), old=OLD_MHA, since="v0.1.16"),
    *triton_backward.ENTRY_POINTS,
)


def _call_arguments(workload: Takes) -> dict[str, object]:
    found: dict[str, object] = {
        "dropout_p": 0.0,
        "softmax_scale": 1.0 / math.sqrt(workload.head_dim),
        "causal": workload.causal,
        "return_lse": workload.lse,
    }
    if isinstance(workload, Varlen):
        found |= {"max_seqlen_q": workload.max_q, "max_seqlen_k": workload.max_kv}
    if workload.window:
        found["window_size"] = (workload.window - 1, -1)
    return found


def _copy_tensors(workload: Takes, inputs: Tensors) -> Tensors:
    """Returns copies of the inputs; slopes (H,) become (B, H), because aiter's launcher needs two strides."""
    own = tuple(tensor.clone() for tensor in inputs)
    if not workload.alibi:
        return own
    return (*own[:-1], own[-1].expand(workload.batch, -1).contiguous())


def _canonical_outputs(workload: Takes, result: Any, impl: str) -> Outputs:
    """Returns 'out' and, if requested, 'lse' of a result. Packed lse is (T, H) from the default implementation, (H, T)
    from dao_ai; dense lse may be padded along S."""
    if not workload.lse:
        return {"out": result}
    out, lse = result
    if not isinstance(workload, Varlen):
        return {"out": out, "lse": lse[..., : workload.seq_q]}
    return {"out": out, "lse": lse.t() if impl == "default" else lse}


def _make_declares(impl: str, matrix: bool) -> Declares:
    """Returns which kernels must run (named `_attn_fwd...` for the default implementation, `attn_fwd...` for dao_ai)
    and which must not (the other implementation's, scaled_dot_product)."""
    kernel, other = ("^_attn_fwd", "^attn_fwd") if impl == "default" else ("^attn_fwd", "^_attn_fwd")
    return Declares(kernels=(kernel,), never=("scaled_dot_product", other), matrix=matrix)


def _head_dim_reasons(one: Prefill, impl: str) -> list[str]:
    found = []
    wide, narrow = one.head_dim, one.head_dim_v
    if max(wide, narrow) > HEAD_DIM_MAX:
        found.append(
            f"aiter tests its Triton attention up to a head_dim of {HEAD_DIM_MAX}, this one is {max(wide, narrow)}"
        )
    if wide != narrow and impl == "default" and not (_is_power_of_2(narrow) and _is_power_of_2(wide - narrow)):
        found.append(
            "aiter's Triton attention takes q and k wider than v only where v's head_dim and the difference are powers "
            f"of 2 from 16 on, not {wide} and {narrow}"
        )
    return found


def _is_power_of_2(number: int) -> bool:
    return number >= 16 and number & (number - 1) == 0


def _find_root() -> Path | None:
    """Returns the folder that holds the installed package `aiter`; None if ROCm's aiter is not installed."""
    found = find_installed()
    return found.folder.parent if found is not None else None


def _read_buckets(path: Path) -> frozenset[str] | None:
    """Returns the bucket names of a configuration file; None where it cannot be read."""
    try:
        return frozenset(read_config(path)["fwd"])
    except (OSError, ValueError):
        return None


def _own_config(module: ModuleType, workload: Takes, dtype: Any) -> dict[str, Value] | None:
    """Returns name -> value of the configuration that aiter's own lookup takes, called as in `_flash_attn_forward`;
    None where it cannot be called. Raises UnsupportedError where aiter has no file for this GPU."""
    lookup = getattr(module, "_get_config", None)
    if lookup is None:
        return None
    head_dim_v = getattr(workload, "head_dim_v", workload.head_dim)
    values = {
        "enable_dropout": False,
        "dtype": dtype,
        "has_pe": workload.head_dim > head_dim_v,
        "head_dim_v": head_dim_v,
    }
    try:
        _, taken = match_arguments(lookup, values)
    except UnsupportedError:
        return None
    try:
        found = lookup(**taken)
    except Exception as error:
        told = call_failure(error, "_get_config")
        if told is error:
            raise
        raise told from error
    return dict(cast("Mapping[str, Value]", found))


def _require_preload(module: ModuleType, values: Mapping[str, Value]) -> None:
    """Raises UnsupportedError if only one of the configuration and the kernel has the constant PRELOAD_V."""
    names = getattr(getattr(module, "_attn_fwd", None), "arg_names", None)
    if names is None or ("PRELOAD_V" in names) == ("PRELOAD_V" in values):
        return
    told = "needs PRELOAD_V" if "PRELOAD_V" in names else "has no PRELOAD_V"
    raise UnsupportedError(
        f"the configuration does not fit: the kernel _attn_fwd of this aiter {told}; tune with this version"
    )


def _format_values(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _parse_value(name: str, text: str) -> Value:
    if name == "PRELOAD_V":
        if text not in ("True", "False"):
            raise UsageError(f"the stored {name} is {text!r}, must be True or False; record the baseline again")
        return text == "True"
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the stored {name} is {text!r}, must be a whole number; record it again") from None

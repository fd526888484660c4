"""Builds of aiter's own forward attention kernel in its shipped configurations, for comparison with ours.

Names and values only, read from the tree that AITER_SOURCE names, so that listing them imports neither Triton nor
aiter. They are never in this repository's baselines, because the kernel is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.aiter.mha_source import (
    FUNCTION_PREFIX,
    KERNEL_MODULE,
    SOURCE_VARIABLE,
    archs_with_config,
    bucket_of,
    config_file,
    constant_arguments,
    kernel_arguments,
    kernel_file,
    pad_head_dim,
    read_config,
    source_root,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, KeyTile, TritonSource
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen

NAME = "aiter.mha_fwd"
ARCHS = ("gfx942", "gfx950")
"""Architectures compiled for comparison with ours. Others that have a configuration file can be requested."""

HEAD_DIMS = (128, 256)
XCDS = 8
"""Dies (XCDs) of a GPU, by which the kernel orders its workgroups; aiter assumes 8 everywhere (get_num_xcds)."""

LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
"""torch.finfo(dtype).max: a constant of the kernel that only fp8 reads."""

TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32"}
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class AttnFwdLaunch:
    """The arguments of one launch of `_attn_fwd`, as `_flash_attn_forward` would pass them.

    pointers     name -> type, of tensors that are not None
    integers     name -> value: 1 becomes a constant, as in a launch
    floats       names
    constants    name -> value
    """

    pointers: Mapping[str, str] = field(default_factory=dict)
    integers: Mapping[str, int] = field(default_factory=dict)
    floats: Sequence[str] = ()
    constants: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class AiterMhaKernel(Kernel):
    """`_attn_fwd` in the configuration of aiter's file, at head dimensions of 128 and 256."""

    name: str = NAME
    backends: tuple[str, ...] = ("aiter.triton",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns a causal build per head dimension in HEAD_DIMS and dtype (f16, bf16), with 4 sequences of 4,096
        tokens and 8 heads; empty if `unsupported_reasons` gives a reason.

        Raises CodeObjectError where the kernel has arguments that this module does not know.
        """
        root = source_root()
        if root is None or self.unsupported_reasons(arch):
            return []
        return [
            build_with(read_shipped_values(root, arch, workload), workload, arch, root=root, label="shipped")
            for workload in (
                Prefill(batch=4, seq_q=4096, heads=8, head_dim=head_dim, dtype=dtype, causal=True)
                for head_dim in HEAD_DIMS
                for dtype in ("f16", "bf16")
            )
        ]

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns why the kernel is not compiled: no source tree, no kernel in it, or no configuration for the
        architecture. Empty if it is."""
        root = source_root()
        if root is None:
            return [f"{SOURCE_VARIABLE} is not set: it names a checkout of ROCm/aiter, whose own kernel is compiled"]
        if kernel_file(root) is None:
            return [f"{SOURCE_VARIABLE}={root} holds no Triton attention kernel of aiter under aiter/ops/triton"]
        if config_file(root, arch) is None:
            return [
                f"this aiter ships no Triton attention configuration for {arch}; it has "
                f"{', '.join(archs_with_config(root)) or 'none'}"
            ]
        return []


KERNEL = AiterMhaKernel()


def read_shipped_values(root: Path, arch: str, workload: Prefill | Varlen) -> dict[str, Any]:
    """Returns name -> value of the configuration that the aiter at `root` ships for a workload. Raises CodeObjectError
    where it cannot be read."""
    path = config_file(root, arch)
    if path is None:
        raise CodeObjectError(f"{root} has no Triton attention configuration for {arch}")
    try:
        buckets = read_config(path)["fwd"]
        return dict(buckets[bucket_of(workload, arch, buckets)])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CodeObjectError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def build_with(
    values: Mapping[str, Any], workload: Prefill | Varlen, arch: str, *, root: Path | None = None, label: str = ""
) -> KernelBuild:
    """Returns a build of `_attn_fwd` of the tree at `root` (default: AITER_SOURCE) for one workload.

    values    as in aiter's files: BLOCK_M, BLOCK_N, PRELOAD_V, num_warps, num_stages, waves_per_eu, ...
    label     beginning of the configuration's id; '' writes the values

    Raises CodeObjectError where there is no source, where the kernel has unknown arguments, or where it does not take
    one of the values.
    """
    tree = root if root is not None else source_root()
    path = kernel_file(tree) if tree is not None else None
    if path is None:
        raise CodeObjectError(f"set {SOURCE_VARIABLE} to the root of a checkout of ROCm/aiter; {tree} is none")
    names, constexprs = kernel_arguments(path), constant_arguments(path)
    launch = _make_launch(workload)
    dims = workload.head_dim + getattr(workload, "head_dim_v", workload.head_dim)
    _require_features(workload, names, path)
    signature, constants, aligned = _specialise_launch(launch, names, constexprs)
    own, options = _split_values(values, names, path)
    missing = [name for name in names if name not in signature and name not in constants and name not in own]
    missing = [name for name in missing if name not in _WITH_DEFAULT]
    if missing:
        raise CodeObjectError(
            f"_attn_fwd of {path} has arguments that this adapter does not know: {', '.join(missing)}; this aiter is "
            "newer than the adapter, or the configuration lacks them"
        )
    return KernelBuild(
        kernel=NAME,
        config=f"d{workload.head_dim}-{workload.dtype}-{label or _format_config(values)}",
        arch=arch,
        source=TritonSource(
            module=KERNEL_MODULE,
            function=f"{FUNCTION_PREFIX}{arch}",
            signature=signature,
            constants={**constants, **own},
            divisible_by_16=aligned,
            options=options,
        ),
        settings={name: str(value) for name, value in sorted(values.items())},
        matrix=True,
        where=_format_place(path, tree, arch),
        tile=KeyTile(2 * dims, dims * DTYPE_BYTES[workload.dtype]),
    )


def _require_features(workload: Prefill | Varlen, names: Sequence[str], path: Path) -> None:
    """Raises CodeObjectError for a window or two head dimensions if the kernel has no argument for them (`names`). An
    older kernel would compute something else."""
    wanted = {"SLIDING_WINDOW": workload.window > 0}
    wanted["BLOCK_DMODEL_PE"] = getattr(workload, "head_dim_v", workload.head_dim) != workload.head_dim
    lacking = [name for name, needed in wanted.items() if needed and name not in names]
    if lacking:
        raise CodeObjectError(f"_attn_fwd of {path} has no {', '.join(lacking)}, which {workload.id} needs")


def _format_place(path: Path, tree: Path | None, arch: str) -> str:
    """Returns the path of the configuration file of `arch`, or, if there is none, that of the kernel; relative to the
    source tree if `tree` names one."""
    found = (config_file(tree, arch) if tree is not None else None) or path
    return found.relative_to(tree).as_posix() if tree is not None else found.as_posix()


_WITH_DEFAULT = frozenset({"HEAD_STRIDE_ALIGNED_8"})
"""Constants that have a default in the kernel."""


def _format_config(values: Mapping[str, Any]) -> str:
    """Returns the values as part of an id, in alphabetical order, e.g. 'BLOCK_M64-BLOCK_N32-...'."""
    return "-".join(f"{name}{values[name]}" for name in sorted(values))


def _split_values(
    values: Mapping[str, Any], names: Sequence[str], path: Path
) -> tuple[dict[str, object], dict[str, object]]:
    """Returns (kernel constants, compiler options). `names` are the kernel's arguments. Raises CodeObjectError for
    another name in capitals, which is a constant of other versions."""
    own = {name: value for name, value in values.items() if name in names}
    options = {name: value for name, value in values.items() if name not in names}
    foreign = sorted(name for name in options if name[:1].isupper())
    if foreign:
        raise CodeObjectError(
            f"_attn_fwd of {path} takes no {', '.join(foreign)}; its version of aiter has: "
            f"{', '.join(name for name in names if name.startswith(('BLOCK', 'PRELOAD')))}"
        )
    return own, options


def _specialise_launch(
    launch: AttnFwdLaunch, names: Sequence[str], constexprs: frozenset[str]
) -> tuple[dict[str, str], dict[str, object], list[str]]:
    """Returns what Triton derives from a launch, for arguments in `names`: (signature: name -> type, constants: name ->
    value, names of arguments that 16 divides)."""
    signature = {name: kind for name, kind in launch.pointers.items() if name in names}
    aligned = list(signature)
    constants = {name: value for name, value in launch.constants.items() if name in names}
    for name, value in launch.integers.items():
        if name not in names:
            continue
        if name in constexprs or value == 1:
            constants[name] = value
            continue
        signature[name] = "i32" if value <= INT32_MAX else "i64"
        if value % 16 == 0:
            aligned.append(name)
    signature |= dict.fromkeys((name for name in launch.floats if name in names), "fp32")
    absent = {name: None for name in names if name.endswith("_ptr") or name.startswith("cu_seqlens")}
    return signature, {**{n: v for n, v in absent.items() if n not in signature}, **constants}, aligned


def _make_launch(workload: Prefill | Varlen) -> AttnFwdLaunch:
    """Returns the arguments that aiter's `_flash_attn_forward` passes to the kernel for contiguous inputs, without
    dropout and sinks.

    Raises CodeObjectError for a workload that aiter's kernel does not take in 16 or 32 bits.
    """
    if workload.dtype not in TYPES:
        raise CodeObjectError(f"_attn_fwd is built for {', '.join(TYPES)}, not for {workload.dtype}")
    packed = isinstance(workload, Varlen)
    element = f"*{TYPES[workload.dtype]}"
    pointers = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), element), "softmax_lse_ptr": "*fp32"}
    if packed:
        pointers |= {"cu_seqlens_q": "*i32", "cu_seqlens_k": "*i32"}
    if workload.alibi:
        pointers["alibi_slopes_ptr"] = "*fp32"
    seq_q, seq_kv = (
        (workload.max_q, workload.max_kv) if isinstance(workload, Varlen) else (workload.seq_q, workload.seq_kv)
    )
    integers = {**_compute_strides(workload, seq_q, seq_kv), "philox_seed": 0, "philox_offset_base_in": 0}
    integers |= {"SEQLEN_Q": seq_q, "SEQLEN_K": seq_kv, "BATCH": workload.batch}
    return AttnFwdLaunch(pointers, integers, ("sm_scale", "dropout_p"), _kernel_constants(workload, packed))


def _compute_strides(workload: Prefill | Varlen, seq_q: int, seq_kv: int) -> dict[str, int]:
    """Returns argument name -> stride in elements, for contiguous (B, S, H, D) or packed (T, H, D) tensors, and lse (B,
    H, S) or (T, H)."""
    packed = isinstance(workload, Varlen)
    wide = pad_head_dim(workload.head_dim)
    narrow = pad_head_dim(getattr(workload, "head_dim_v", workload.head_dim))
    found: dict[str, int] = {}
    for name, row, seq, heads, width in (
        ("q", "m", seq_q, workload.heads, wide),
        ("k", "n", seq_kv, workload.kv_heads, wide),
        ("v", "n", seq_kv, workload.kv_heads, narrow),
        ("o", "m", seq_q, workload.heads, narrow),
    ):
        last = "n" if name == "o" else "k"
        strides = {"z": 0 if packed else seq * heads * width, "h": width, row: heads * width, last: 1}
        found |= {f"stride_{name}{axis}_in": value for axis, value in strides.items()}
    lse = (0, 1, workload.heads) if packed else (workload.heads * seq_q, seq_q, 1)
    found |= {f"stride_lse_{axis}_in": value for axis, value in zip("zhm", lse, strict=True)}
    found |= {f"stride_descale_{name}_z_in": 0 for name in "qkv"}
    found |= {f"stride_sd_{axis}_in": 0 for axis in "zhmn"}
    return found | {"stride_alibi_z_in": 0, "stride_alibi_h_in": 1 if workload.alibi else 0}


def _kernel_constants(workload: Prefill | Varlen, packed: bool) -> dict[str, object]:
    wide = pad_head_dim(workload.head_dim)
    narrow = pad_head_dim(getattr(workload, "head_dim_v", workload.head_dim))
    return {
        "IS_CAUSAL": workload.causal,
        "NUM_Q_HEADS": workload.heads,
        "NUM_K_HEADS": workload.kv_heads,
        "BLOCK_DMODEL": narrow,
        "BLOCK_DMODEL_POW2": max(16, 1 << (narrow - 1).bit_length()),
        "BLOCK_DMODEL_PE": wide - narrow,
        "RETURN_SCORES": False,
        "ENABLE_DROPOUT": False,
        "IS_FP8": False,
        "FP8_MAX": LARGEST[workload.dtype],
        "VARLEN": packed,
        "NUM_XCD": XCDS,
        "SWIZZLE": "default",
        "USE_INT64_STRIDES": True,
        "ENABLE_SINK": False,
        "SLIDING_WINDOW": max(workload.window - 1, 0),
        "HEAD_STRIDE_ALIGNED_8": True,
    }

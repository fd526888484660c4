"""Finds the kernel and the configuration files of aiter's Triton attention in any version, without importing it.

until v0.1.7   aiter/ops/triton/mha.py                              configs/MI300X-MHA-DEFAULT.json
until v0.1.9   aiter/ops/triton/_triton_kernels/mha.py              configs/gfx942-MHA-DEFAULT.json
then           aiter/ops/triton/_triton_kernels/attention/mha.py    the same, later
                                                                    configs/gfx942/triton/attention/mha/DEFAULT.json
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

SOURCE_VARIABLE = "AITER_SOURCE"
"""Environment variable that names a source tree of ROCm/aiter: the folder that holds `aiter/`."""

KERNEL_MODULE = "kernels.aiter.mha_kernel"
FUNCTION_PREFIX = "attn_fwd_"
"""Where a compile worker finds aiter's kernel, e.g. attribute `attn_fwd_gfx942` of that module."""

KERNEL_MODULES = (
    "aiter/ops/triton/_triton_kernels/attention/mha.py",
    "aiter/ops/triton/_triton_kernels/mha.py",
    "aiter/ops/triton/mha.py",
)
"""Newest first."""

PUBLIC_MODULES = ("aiter/ops/triton/attention/mha.py", "aiter/ops/triton/mha.py")

CONFIGS = "aiter/ops/triton/configs"
DEVICES = {"gfx942": "MI300X", "gfx950": "MI350X"}
"""Architecture -> the device name in file names up to v0.1.7."""


def source_root() -> Path | None:
    """Returns the source tree that AITER_SOURCE names, as an absolute path; None where it is not set."""
    given = os.environ.get(SOURCE_VARIABLE, "")
    return Path(given).absolute() if given else None


def kernel_file(root: Path) -> Path | None:
    """Returns the file that defines `_attn_fwd`, for the tree `root` that holds `aiter/`; None where there is none."""
    return next((root / name for name in KERNEL_MODULES if _has_function(root / name, "_attn_fwd")), None)


def public_file(root: Path) -> Path | None:
    """Returns the file in the tree `root` that defines `flash_attn_func` and `mha_set_impl`; None where there is
    none."""
    return next((root / name for name in PUBLIC_MODULES if (root / name).is_file()), None)


def config_file(root: Path, arch: str) -> Path | None:
    """Returns the file of attention configurations of `arch` in the tree `root`; None where this aiter ships none."""
    folder = root / CONFIGS
    names = [f"{arch}/triton/attention/mha/DEFAULT.json", f"{arch}-MHA-DEFAULT.json"]
    if arch in DEVICES:
        names.append(f"{DEVICES[arch]}-MHA-DEFAULT.json")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def archs_with_config(root: Path) -> list[str]:
    """Returns the architectures, sorted, that the aiter at `root` ships attention configurations for."""
    folder = root / CONFIGS
    by_device = {device: arch for arch, device in DEVICES.items()}
    flat = (path.name.removesuffix("-MHA-DEFAULT.json") for path in folder.glob("*-MHA-DEFAULT.json"))
    deep = (path.parents[3].name for path in folder.glob("*/triton/attention/mha/DEFAULT.json"))
    return sorted({by_device.get(name, name) for name in (*flat, *deep)})


def read_config(path: Path) -> Mapping[str, Any]:
    """Returns the file's content: 'fwd', 'bkwd_fused' and 'bkwd_onekernel' -> buckets. Raises OSError where it cannot
    be read, ValueError for invalid JSON or without 'fwd'."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not isinstance(found.get("fwd"), dict):
        raise ValueError(f"{path} has no object 'fwd'")
    return found


def kernel_arguments(path: Path) -> tuple[str, ...]:
    """Returns the argument names of `_attn_fwd` in order, by parsing the file; () without `_attn_fwd`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "_attn_fwd":
            return tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
    return ()


def constant_arguments(path: Path) -> frozenset[str]:
    """Returns the names of the arguments of `_attn_fwd` that are annotated `tl.constexpr`; empty without
    `_attn_fwd`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "_attn_fwd":
            return frozenset(
                each.arg
                for each in node.args.args
                if each.annotation is not None and ast.unparse(each.annotation).endswith("constexpr")
            )
    return frozenset()


def _has_function(path: Path, function: str) -> bool:
    try:
        return f"\ndef {function}(" in f"\n{path.read_text(encoding='utf-8')}"
    except OSError:
        return False


def bucket_of(workload: Any, arch: str = "", present: Collection[str] | None = None) -> str:
    """Returns the name of the bucket under 'fwd' that aiter takes for a prefill or varlen workload.

    `_get_config` uses the element type, whether q and k are wider than v, and v's head dimension where the file has a
    bucket for it. It uses no length, head count or mask. `present` are the file's buckets; the default are those of
    e4048607a5, where only gfx950 has 'small_head'.
    """
    known = present if present is not None else _BUCKETS | ({"small_head"} if arch == "gfx950" else set())
    in_fp32 = workload.dtype in ("f32", "tf32")
    head_dim_v = getattr(workload, "head_dim_v", workload.head_dim)
    wider = workload.head_dim > head_dim_v
    if wider and in_fp32 and "pe_dropout_or_fp32" in known:
        return "pe_dropout_or_fp32"
    if wider and "pe" in known:
        return "pe"
    if in_fp32:
        return "dropout_or_fp32"
    return "small_head" if 16 < pad_head_dim(head_dim_v) <= 64 and "small_head" in known else "default"


def pad_head_dim(head_dim: int) -> int:
    """Returns the head dimension rounded up to a multiple of 8, which the kernel gets: aiter pads inside the call."""
    return (head_dim + 7) // 8 * 8


_BUCKETS = frozenset({"default", "dropout_or_fp32", "pe", "pe_dropout_or_fp32"})

"""Backend `ck`: aiter's dense forward (Composable Kernel or assembly, as aiter's dispatcher decides).

Written from aiter's source (entry point `aiter.flash_attn_func`, layout (B, S, H, D), causal bottom-right); it has
never run on an AMD GPU here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.prefill_backend import HALVES, Limits, PrefillBackend, own_copies
from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.errors import AttnperfError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

HEAD_DIM_MAX = 256
"""Checked in aiter's C++ (mha_fwd); larger head dimensions are refused there."""


@dataclass(frozen=True)
class AiterFlash(PrefillBackend):
    """fp16 and bf16, grouped K/V heads, head dimensions to 256, log-sum-exp; ROCm only."""

    def limits(self, device: DeviceInfo) -> Limits:
        """What was never tried is not offered: its window, rows without keys, ALiBi, a bias, a head dimension of v."""
        return Limits(
            "aiter's flash_attn_func",
            dtypes=HALVES,
            window=False,
            rows_without_keys=False,
            head_dim_v=False,
            alibi=False,
            bias=False,
        )

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Whether ROCm's aiter is there is read from its files: importing it may start a build."""
        found = []
        if device.kind != "rocm":
            found.append(f"aiter runs on ROCm devices, this one is {device.kind} ({device.arch})")
        found.extend(missing_aiter())
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"aiter's flash_attn_func takes head_dim up to {HEAD_DIM_MAX}, not {workload.head_dim}")
        return found

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Import aiter and run once, so that what it builds on first use is built before timing.

        Raises AttnperfError when aiter is there but cannot be imported, naming what its import raised.
        """
        flash_attn_func = import_flash_attn_func()
        tensors = own_copies(inputs)

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return flash_attn_func(
                q,
                k,
                v,
                dropout_p=0.0,
                softmax_scale=1.0 / math.sqrt(workload.head_dim),
                causal=workload.causal,
                return_lse=workload.lse,
            )

        call(*tensors)
        # Head dimensions that are no multiple of 8 are padded by aiter inside the call, which is then timed with it.
        config = {"aiter": aiter_version(), "padded_in_call": str(workload.head_dim % 8 != 0)}
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical,
            config=config,
            # Which kernel runs, CK's or an assembly one, is the dispatcher's choice.
            declares=Declares(never=("scaled_dot_product",)),
        )


def missing_aiter() -> list[str]:
    """Why ROCm's aiter cannot be used, judged by files alone; empty when it is there."""
    spec = importlib.util.find_spec("aiter")
    if spec is None:
        return ["aiter is not installed (it is ROCm/aiter on GitHub; the package `aiter` on PyPI is unrelated)"]
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if any((folder / "ops" / "mha.py").is_file() and (folder / "jit").is_dir() for folder in folders):
        return []
    where = folders[0] if folders else spec.origin
    if any((folder / "azip.py").is_file() for folder in folders):
        return [f"`aiter` at {where} is PyPI's asyncio package, not ROCm/aiter; uninstall it and install ROCm/aiter"]
    return [f"`aiter` at {where} is an unknown package of that name: ROCm/aiter has ops/mha.py and jit/"]


def import_flash_attn_func() -> Callable[..., Any]:
    """`aiter.flash_attn_func`. Raises AttnperfError naming what the import raised."""
    try:
        from aiter import flash_attn_func
    except Exception as error:  # its import raises AssertionError, KeyError, RuntimeError, ... by what is missing
        raise AttnperfError(
            f"aiter is installed but `from aiter import flash_attn_func` raised {type(error).__name__}: {error}; "
            "try that import by itself on this machine"
        ) from error
    return flash_attn_func  # type: ignore[no-any-return]


def aiter_version() -> str:
    """The installed version; the distribution was named `aiter` until 2025-12 and is `amd-aiter` since."""
    found = {d.name: d.version for name in ("aiter", "amd-aiter") for d in importlib.metadata.distributions(name=name)}
    return found.get("amd-aiter", found.get("aiter", "unknown"))


def _canonical(result: Any) -> Outputs:
    if isinstance(result, tuple):
        return {"out": result[0], "lse": result[1]}
    return {"out": result}

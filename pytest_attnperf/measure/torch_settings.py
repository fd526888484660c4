"""Reads the torch settings that change the duration of a call, as they are while it is timed.

A suite may set them in a conftest or in a test's body, so a comparison with a stored time needs them. Only values other
than torch's defaults are listed, by names that are the same in every release, torch build and machine. A number of
threads is listed if it differs from the process's first one, which depends on the machine and is compared there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

DEVICES = ("cpu", "cuda")

DEFAULTS = "torch's defaults"
"""The description if nothing was set."""


@dataclass(frozen=True)
class TorchSetting:
    """One setting: its name here, how to read it, and torch's default."""

    name: str
    read: Callable[[], Any]
    default: Any


def describe_torch_settings() -> str:
    """Returns e.g. 'threads 1, fp32 products high', or DEFAULTS; leaves out what this torch does not report."""
    found = ((setting, _read_setting(setting)) for setting in _list_settings())
    return ", ".join(f"{one.name} {value}" for one, value in found if value not in (one.default, None)) or DEFAULTS


@functools.cache
def threads_at_start() -> tuple[int, int]:
    """Returns the thread counts within and between operators at the first call: the process began with them."""
    import torch

    return torch.get_num_threads(), torch.get_num_interop_threads()


def _list_settings() -> tuple[TorchSetting, ...]:
    import torch

    threads, interop = threads_at_start()
    flags = (
        ("deterministic cuDNN", "cudnn.deterministic", False),
        ("cuDNN benchmark", "cudnn.benchmark", False),
        ("TF32 in cuDNN", "cudnn.allow_tf32", True),
        ("cuDNN", "cudnn.enabled", True),
        ("oneDNN", "mkldnn.enabled", True),
        ("reduced sums of f16", "cuda.matmul.allow_fp16_reduced_precision_reduction", True),
        ("reduced sums of bf16", "cuda.matmul.allow_bf16_reduced_precision_reduction", True),
        ("f16 accumulation", "cuda.matmul.allow_fp16_accumulation", False),
    )
    attention = ("flash", "mem_efficient", "math")
    return (
        TorchSetting("threads", torch.get_num_threads, threads),
        TorchSetting("threads between operators", torch.get_num_interop_threads, interop),
        TorchSetting("fp32 products", _read_fp32_precision, "highest"),
        TorchSetting("deterministic algorithms", torch.are_deterministic_algorithms_enabled, False),
        *(
            TorchSetting(f"autocast on {kind}", functools.partial(torch.is_autocast_enabled, kind), False)
            for kind in DEVICES
        ),
        *(
            TorchSetting(name, functools.partial(attrgetter(flag), torch.backends), default)
            for name, flag, default in flags
        ),
        *(
            TorchSetting(f"{kind} attention", attrgetter(f"{kind}_sdp_enabled")(torch.backends.cuda), True)
            for kind in attention
        ),
    )


def _read_fp32_precision() -> str:
    """Reads the precision of fp32 products; since torch 2.9 the old name raises if the new one was set."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        matmul: Any = torch.backends.cuda.matmul
        precision = str(matmul.fp32_precision)
        return {"ieee": "highest", "none": "highest", "tf32": "high", "bf16": "medium"}.get(precision, precision)


def _read_setting(setting: TorchSetting) -> Any:
    """Reads a setting; None if this torch does not report it, e.g. because old and new names were mixed."""
    try:
        value = setting.read()
    except (AttributeError, RuntimeError):
        return None
    return value

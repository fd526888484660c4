"""Attention's inputs in 8 bits: the modes of i8, what of q, k and v has a scale, and the words of an id for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads.base import QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import quantise

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

INT8_MODES = ("pv16", "kv8")
"""Modes of an i8 workload that multiply some operands in the dtype of 'out', see `Prefill.int8`."""
OUT_CHOICES = ("f16", "bf16", "f32")
"""Dtypes that 'out' of an 8-bit workload may have, see `Prefill.out`."""


def name_scaled(dtype: str, int8: str) -> tuple[str, ...]:
    """Returns those of 'q', 'k' and 'v' that have a scale in a workload dtype and mode of i8, in this order."""
    if dtype not in QUANTISED:
        return ()
    return ("k", "v") if int8 == "kv8" else ("q", "k", "v")


def parse_int8_id(parse: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any]:
    """Returns the fields that `parse` reads from an id. After the dtype, `kv8` is the mode of i8; before it, among the
    numbers, it means eight keys."""
    numbers, mode, rest = text.partition("-i8-kv8")
    fields = parse(f"{numbers}-i8{rest}" if mode else text)
    return fields | {"int8": "kv8"} if mode else fields


def insert_out(words: Sequence[str], int8: str, out: str) -> list[str]:
    """Returns the words of an id after its dtype with the one for `out`, if it is given, behind that for `int8`."""
    first = int(bool(int8))
    return [*words[:first], *([f"out{out}"] if out else []), *words[first:]]


def store_inputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: str, scaled: Collection[str], wide: torch.dtype
) -> Tensors:
    """Returns q, k and v stored in a workload's dtype, then the fp32 scales (1,) of those named in `scaled`, in this
    order. For an 8-bit dtype, tensors that are not scaled are stored in `wide`."""
    import torch

    found, scales = [], []
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        if name in scaled:
            quantised, scale = quantise(tensor, dtype)
            found.append(quantised)
            scales.append(scale)
        else:
            found.append(tensor.to(wide if scaled else getattr(torch, TORCH_DTYPES[dtype])))
    return (*found, *scales)

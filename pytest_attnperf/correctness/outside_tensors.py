"""Tensors that a reference reads and that are no input: a call may not change them.

A call that rounds a weight of its closure in place makes the reference compute from the rounded weight, and is right by
every comparison. So the bits of what the reference reaches are summed before the first call of a process and after
checks. What a call keeps for itself is not looked at: caches, counters and workspaces, unless the reference reads them.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.input_memory import as_integers, each_once
from pytest_attnperf.workloads.reached import tensors_reached

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference

BYTES_MOST = 2**30
"""Bytes that are summed at most; tensors that would be beyond are not looked at."""

ROW = 1024
"""Words whose sum counts with a factor of its own, so that rows in another order are no longer the same."""

NOTICED = 1e-3
"""A reference depends on a tensor where its result is off by this part of itself without it."""

Sum = tuple[str, tuple[int, ...], int]
"""Dtype, shape and sum of the bits."""


class OutsideTensors:
    """Watches what a reference reads beside its inputs.

    inputs   on which the reference is run once, where it reaches any: what it changes itself is its own
    """

    def __init__(self, reference: Reference, inputs: Tensors) -> None:
        self._reference = reference
        self._before = self._sums()
        if self._before:
            # Whatever it raises is said where its results are needed.
            with contextlib.suppress(Exception):
                reference.plain(inputs)
            again = self._sums()
            self._before = {name: own for name, own in self._before.items() if again.get(name) == own}

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of what is watched."""
        return tuple(self._before)

    def problems(self, inputs: Tensors) -> tuple[str, ...]:
        """In words, which of them calls have changed, as far as the reference's result for `inputs` shows it."""
        if not self._before:
            return ()
        now = self._sums()
        changed = [name for name, before in self._before.items() if now.get(name, before) != before]
        tensors = tensors_reached(self._reference.fn) if changed else {}
        return tuple(
            f"the call changed a tensor that is no input: {name!r}, {tuple(tensors[name].shape)} "
            f"{str(tensors[name].dtype).removeprefix('torch.')}, which the reference reads, too, so that it computes "
            "from what the call has left there: work on a copy, or make it one of inputs()"
            for name in changed
            if name in tensors and self._is_read(tensors[name], inputs)
        )

    def _sums(self) -> dict[str, Sum]:
        chosen: dict[str, torch.Tensor] = {}
        left = BYTES_MOST
        for name, tensor in tensors_reached(self._reference.fn).items():
            size = tensor.numel() * tensor.element_size()
            if size <= left:
                chosen[name], left = tensor, left - size
        sums = [(tensor, _sum_of_bits(tensor)) for tensor in chosen.values()]
        return {
            name: (str(tensor.dtype), tuple(tensor.shape), int(total))
            for name, (tensor, total) in zip(chosen, sums, strict=True)
        }

    def _is_read(self, tensor: torch.Tensor, inputs: Tensors) -> bool:
        """Whether the reference reads it, and does not write to it itself."""
        import torch

        before = _sum_of_bits(tensor)
        results = self._reference.plain(inputs)
        if bool(_sum_of_bits(tensor) != before):
            return False
        own = each_once(tensor.detach())
        kept = own.clone()
        try:
            with torch.inference_mode():
                # Of integers 0, because an index that is none would end more than this case.
                own.fill_(math.nan if own.is_floating_point() or own.is_complex() else 0)
            return _are_apart(results, self._reference.plain(inputs))
        except Exception:
            return True  # what it makes of other values is its own affair
        finally:
            with torch.inference_mode():
                own.copy_(kept)


def _are_apart(results: Outputs, others: Outputs) -> bool:
    """Whether results differ by more than what one and the same function differs from call to call."""
    import torch

    for name, result in results.items():
        one, other = result.double(), others[name].double()
        finite = one[one.isfinite()]
        size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        if not torch.allclose(one, other, rtol=NOTICED, atol=NOTICED * size, equal_nan=True):
            return True
    return False


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Of all elements in row-major order, where they may lie as they like. Shape (), int64, on the tensor's device."""
    import torch

    with torch.no_grad():
        own = tensor.detach()
        own = torch.view_as_real(own.resolve_conj()) if own.is_complex() else own
        flat = as_integers(own.resolve_neg().contiguous()).view(-1)
        width = 8 // flat.element_size()
        if flat.storage_offset() % width == 0 and flat.numel() % width == 0:
            flat = flat.view(torch.int64)
        whole = flat.numel() // ROW
        rows = flat[: whole * ROW].view(whole, ROW).sum(1, dtype=torch.int64)
        factors = 2 * torch.arange(1, whole + 1, dtype=torch.int64, device=flat.device) + 1
        return (rows * factors).sum() + flat[whole * ROW :].sum(dtype=torch.int64)

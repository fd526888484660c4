"""Whether reading a result only rearranges it: work that is done while it is read is done outside the timed region.

Two looks. Layouts and casts move elements one by one, so that one NaN put into what a call returned comes out as one
NaN at most, or in as many places as the call itself shows that element in. A product, a softmax or a reduction spreads
it over a row, whoever computes it. And torch's own operators are listed while the result is read, so that work on
something else than what the call returned shows, too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.returned import detached

_MOVES = re.compile(
    "aten::(view|view_as|reshape|_reshape_alias|_unsafe_view|transpose|transpose_|permute|movedim|swapaxes|t|slice|"
    "select|narrow|expand|expand_as|unsqueeze|squeeze|as_strided|detach|detach_|alias|flatten|unflatten|unbind|split|"
    "split_with_sizes|chunk|to|_to_copy|copy_|clone|contiguous|empty|empty_like|empty_strided|new_empty|zeros|zero_|"
    "fill_|full|zeros_like|empty_quantized|result_type|resolve_conj|resolve_neg|lift_fresh|mul|mul_|div|div_|cat|stack|"
    "constant_pad_nd|pad|index|index_select|gather|flip|view_as_real|type_as|float|half|item|_local_scalar_dense|"
    "is_nonzero|scalar_tensor)"
)
"""Operators that allocate, move, cast or scale."""

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs


def problems(raw: Any, outputs: Callable[[Any], Outputs]) -> list[str]:
    """What is wrong with the way `outputs` reads `raw`; `raw` is changed meanwhile and the same afterwards."""
    if worked := _work(lambda: outputs(raw)):
        return [
            f"work is done while the result is read: {worked[0]} ran in `Prepared.outputs`, which may change layout "
            "and dtype only; compute in `Prepared.call`, which is timed"
        ]
    before = _nan_counts(outputs(raw))
    for number, tensor in enumerate(poison.tensors_in(raw)):
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        already = int(tensor.isnan().sum())
        with _one_destroyed(tensor):
            after = _nan_counts(outputs(raw))
            shown = max(1, int(tensor.isnan().sum()) - already)  # an expanded tensor shows one element in many places
        spread = {name: after[name] - before[name] for name in before if after[name] - before[name] > shown}
        if spread:
            name, count = next(iter(spread.items()))
            return [
                f"work is done while the result is read: one element of tensor {number} that the call returned reaches "
                f"{count} elements of output {name!r}. `Prepared.outputs` may change layout and dtype only; compute in "
                "`Prepared.call`, which is timed"
            ]
    return []


def _work(read: Callable[[], Any]) -> list[str]:
    """Names of operators that did more than move, cast or scale elements."""
    from torch.autograd.profiler_legacy import profile

    with profile() as profiler:  # type: ignore[no-untyped-call]
        read()
    names = [event.name for event in profiler.function_events or ()]
    return [name for name in names if name.startswith("aten::") and not _MOVES.fullmatch(name)]


@contextlib.contextmanager
def _one_destroyed(tensor: torch.Tensor) -> Iterator[None]:
    """Element 0 is NaN meanwhile; through a narrow view, because a tensor may be expanded or of inference mode."""
    import torch

    for dim in range(tensor.dim()):
        tensor = tensor.narrow(dim, 0, 1)
    with torch.inference_mode():
        kept = tensor.clone()
        poison.fill(tensor)
    try:
        yield
    finally:
        with torch.inference_mode():
            tensor.copy_(kept)


def _nan_counts(outputs: Outputs) -> dict[str, int]:
    """NaN elements of each plain floating-point output."""
    import torch

    return {
        name: int(tensor.isnan().sum())
        for name, tensor in ((name, detached(output)) for name, output in outputs.items())
        if type(tensor) is torch.Tensor and tensor.is_floating_point()
    }

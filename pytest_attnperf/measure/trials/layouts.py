"""Layouts: the call again, on the same values that lie in memory as real callers pass them.

A gated function gets its inputs in the other layout, and so does the call of a backend that says `takes_strides`. Any
other backend is prepared with canonical inputs in that layout; where its `convert` copies them, the kernel itself never
sees it, and the result says so, without a call if the copies are those of plain inputs bit for bit. Right, or an error
that refuses the layout, passes: only a wrong result fails.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.measure.trials import TrialCase, Tried
from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.trials import TrialEnding, TrialResult
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.base import in_place
from pytest_attnperf.workloads.input_memory import fill_around

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors

NAME = "layouts"
FIXED = "no input can lie that way"
INT32_END = 1 << 31
"""First index that a signed integer of 32 bits cannot hold."""

ALIGNED = 128
"""Elements to which far strides are rounded up, so that rows stay aligned for the widest loads and for TMA."""

MAP_NORESERVE = 0x4000
"""Linux's flag by which mapped pages count only once they are touched; Python names it from 3.13 on."""

FREE_SHARE = 0.8
"""Share of a GPU's free memory that far inputs may take."""


def run_trial(case: TrialCase) -> Iterator[Tried]:
    """Yields one result for each layout."""
    inputs = CaseInputs(case)
    for variant, lay_out in LAYOUTS.items():
        result = TrialResult(NAME, variant)
        yield case.attempt(result, lambda result=result, lay_out=lay_out: _judge_layout(inputs, case, result, lay_out))  # type: ignore[misc]
    result = TrialResult(NAME, "empty")
    yield case.attempt(result, lambda: _judge_empty(case, result))


class CaseInputs:
    """Inputs of a backend's case that its `convert` is given, from which those in other layouts are made."""

    def __init__(self, case: TrialCase) -> None:
        self._case = case
        self._written = in_place(case.workload)

    @functools.cached_property
    def canonical(self) -> Tensors:
        """Planted ones, as they usually lie."""
        return self._case.workload.make_inputs(self._case.prover.seeds.check, self._case.device, planted=True)

    @functools.cached_property
    def usual(self) -> Tensors:
        """What the backend makes of these."""
        return self._case.backend.prepare(self._case.workload, self.lay_out(lambda tensors: tensors)[0]).tensors

    def lay_out(self, lay_out: Callable[[Tensors], Tensors]) -> tuple[Tensors, Tensors]:
        """Returns (the inputs in another layout, those of them which do lie in another way). Inputs that a call writes
        are copies as they usually lie."""
        laid = _lay_out_others(self.canonical, self._written, lay_out)
        moved = _list_moved(self.canonical, laid)
        return tuple(tensor.clone() if number in self._written else tensor for number, tensor in enumerate(laid)), moved

    def convert_from(self, lay_out: Callable[[Tensors], Tensors], prepared: Prepared) -> Callable[[Tensors], Tensors]:
        """Returns the `convert` of `prepared`, of inputs that are laid out before it gets them."""
        return lambda given: prepared.convert(_lay_out_others(given, self._written, lay_out))


def _judge_layout(
    inputs: CaseInputs, case: TrialCase, result: TrialResult, lay_out: Callable[[Tensors], Tensors]
) -> Tried | CheckReport:
    if isinstance(case.workload, AdHoc):
        if case.workload.contiguous:
            return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why="the test says contiguous=True"))
        return _judge_given(case, result, lay_out, case.workload.learned.overwritten_numbers)
    if case.backend.takes_strides:
        return _judge_given(case, result, lay_out, in_place(case.workload))
    laid, moved = inputs.lay_out(lay_out)
    if not moved:
        return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why=FIXED))
    prepared = case.backend.prepare(case.workload, laid)
    if _have_overlap(prepared.tensors, moved):
        return _judge_prepared(case, result, prepared)
    if not _have_same_strides(prepared.tensors, inputs.usual):  # copies in that layout
        return _judge_prepared(case, result, prepared)
    copied = replace(result, ending=TrialEnding.COPIED)
    if _are_alike(prepared.tensors, inputs.usual):
        return Tried(copied)
    # What the judge loads is to be converted from that layout, too.
    return _judge_prepared(case, copied, replace(prepared, convert=inputs.convert_from(lay_out, prepared)))


def _judge_given(
    case: TrialCase, result: TrialResult, lay_out: Callable[[Tensors], Tensors], kept: Container[int]
) -> Tried | CheckReport:
    """Judges a call that takes inputs as they are; those in `kept` stay."""
    given = case.prepared.tensors
    laid = _lay_out_others(given, kept, lay_out)
    if not _list_moved(given, laid):
        return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why=FIXED))
    return _judge_prepared(case, result, replace(case.prepared, tensors=laid, beside=()))


def _judge_prepared(case: TrialCase, result: TrialResult, prepared: Prepared) -> Tried | CheckReport:
    report = case.judge_call(result.name, prepared)
    return report if report.problems else Tried(result, report)


def _lay_out_others(tensors: Tensors, kept: Container[int], lay_out: Callable[[Tensors], Tensors]) -> Tensors:
    """Returns the tensors, in another layout where their number is not in `kept`."""
    moved = iter(lay_out(tuple(tensor for number, tensor in enumerate(tensors) if number not in kept)))
    return tuple(tensor if number in kept else next(moved) for number, tensor in enumerate(tensors))


def _list_moved(tensors: Tensors, laid: Tensors) -> Tensors:
    return tuple(new for old, new in zip(tensors, laid, strict=True) if new is not old)


def _have_overlap(tensors: Tensors, others: Tensors) -> bool:
    return any(poison.has_overlap(one, other) for one in tensors for other in others)


def _have_same_strides(tensors: Tensors, others: Tensors) -> bool:
    return [tensor.stride() for tensor in tensors] == [tensor.stride() for tensor in others]


def _are_alike(tensors: Tensors, others: Tensors) -> bool:
    """Returns whether the tensors have the same bits."""
    return len(tensors) == len(others) and all(map(poison.is_bit_equal, tensors, others))


def _fill_like(view: torch.Tensor, whole: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Fills `whole` with what nothing may read, and its part `view` with the values of `tensor`; returns the part."""
    fill_around(whole)
    return view.copy_(tensor)


def _fuse(tensors: Tensors) -> Tensors:
    """Returns tensors of one type and equal leading dimensions side by side in one memory, as a fused projection gives
    q, k and v: along the last dimension but one (heads), or along the last of two."""
    laid = list(tensors)
    groups: dict[Any, list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.dim() >= 2 and tensor.numel():
            along = tensor.dim() - (2 if tensor.dim() > 2 else 1)
            others = (*tensor.shape[:along], *tensor.shape[along + 1 :])
            groups.setdefault((tensor.dtype, tensor.dim(), others), []).append(number)
    for numbers in groups.values():
        members = [tensors[number] for number in numbers]
        along = members[0].dim() - (2 if members[0].dim() > 2 else 1)
        sizes = [member.shape[along] for member in members]
        shape = list(members[0].shape)
        shape[along] = sum(sizes) + (len(members) == 1)  # one alone gets a neighbour that is not read
        whole = members[0].new_empty(shape)
        fill_around(whole)
        first = 0
        for number, member, size in zip(numbers, members, sizes, strict=True):
            laid[number] = whole.narrow(along, first, size).copy_(member)
            first += size
    return tuple(laid)


def _transpose(tensors: Tensors) -> Tensors:
    """Returns tensors of three dimensions or more with heads and rows exchanged in memory."""

    def transpose(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 3:
            return tensor
        first = 1 if tensor.dim() > 3 else 0
        return tensor.transpose(first, first + 1).contiguous().transpose(first, first + 1)

    return tuple(map(transpose, tensors))


def _slice(tensors: Tensors) -> Tensors:
    """Returns tensors as every second slice along the last dimension but one of one twice as large."""

    def slice_one(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2:
            return tensor
        whole = tensor.new_empty((*tensor.shape[:-2], 2 * tensor.shape[-2], tensor.shape[-1]))
        return _fill_like(whole[..., ::2, :], whole, tensor)

    return tuple(map(slice_one, tensors))


def _offset(tensors: Tensors) -> Tensors:
    """Returns tensors that begin one element behind the start of their memory, so that 16-byte loads are unaligned."""

    def offset_one(tensor: torch.Tensor) -> torch.Tensor:
        whole = tensor.new_empty(tensor.numel() + 1)
        return _fill_like(whole[1:].view(tensor.shape), whole, tensor) if tensor.dim() else tensor

    return tuple(map(offset_one, tensors))


def _stretch(tensors: Tensors) -> Tensors:
    """Returns tensors whose last dimension has a stride of 2."""

    def stretch_one(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2:
            return tensor
        whole = tensor.new_empty((*tensor.shape, 2))
        return _fill_like(whole[..., 0], whole, tensor)

    return tuple(map(stretch_one, tensors))


def _separate(tensors: Tensors) -> Tensors:
    """Returns tensors whose outermost dimension has so large a stride that index x stride exceeds 2^31 elements.

    An index that wraps to a negative one finds mapped memory, too, so that it gives a wrong result instead of a fault:
    what is wrong is told with its place. All inputs of a type share one buffer; on a CPU only pages that are touched
    take memory. Raises WorkloadError if a GPU has too little.
    """
    laid = list(tensors)
    buffers: dict[Any, list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.dim() >= 2 and any(size > 1 for size in tensor.shape[:-1]) and tensor.numel():
            buffers.setdefault((tensor.dtype, tensor.device), []).append(number)
    for numbers in buffers.values():
        members = [tensors[number] for number in numbers]
        wide = [next(dim for dim, size in enumerate(member.shape) if size > 1) for member in members]
        inner = [prod(member.shape[dim + 1 :]) for member, dim in zip(members, wide, strict=True)]
        room = [-(-size // ALIGNED) * ALIGNED for size in inner]
        least = max(sum(room), *(-(-INT32_END // (m.shape[d] - 1)) for m, d in zip(members, wide, strict=True)))
        stride = -(-least // ALIGNED) * ALIGNED
        span = max((m.shape[d] - 1) * stride for m, d in zip(members, wide, strict=True)) + sum(room)
        memory = _map_memory(span + INT32_END, members[0])
        first = INT32_END
        for number, member, dim, size in zip(numbers, members, wide, room, strict=True):
            strides = [prod(member.shape[at + 1 :]) for at in range(member.dim())]
            strides[: dim + 1] = [stride] * (dim + 1)
            laid[number] = memory.as_strided(member.shape, strides, first).copy_(member)
            first += size
    return tuple(laid)


def _map_memory(elements: int, like: torch.Tensor) -> torch.Tensor:
    """Returns memory of so many elements of the type of `like`, on its device; on a CPU without any page of it."""
    import torch

    size_bytes = elements * like.element_size()
    if like.device.type == "cpu":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        try:
            return torch.frombuffer(mmap.mmap(-1, size_bytes, flags=flags), dtype=torch.uint8).view(like.dtype)
        except OSError as error:
            raise WorkloadError(f"this machine does not map {size_bytes / 2**30:.1f} GiB: {error}") from None
    free_bytes = torch.cuda.mem_get_info(like.device)[0]
    if size_bytes > FREE_SHARE * free_bytes:
        raise WorkloadError(
            f"far inputs take {size_bytes / 2**30:.1f} GiB of memory, and {free_bytes / 2**30:.1f} GiB are free"
        )
    return torch.empty(size_bytes, dtype=torch.uint8, device=like.device).view(like.dtype)


LAYOUTS: dict[str, Callable[[Tensors], Tensors]] = {
    "fused": _fuse,
    "transposed": _transpose,
    "sliced": _slice,
    "one element on": _offset,
    "last stride 2": _stretch,
    "beyond 2^31": _separate,
}
"""Layout -> function that returns inputs of the same values in it; an input that cannot lie so is returned itself."""


def _judge_empty(case: TrialCase, result: TrialResult) -> Tried:
    """Calls a gated function on a first dimension of size 0: its result must have the reference's shapes and types."""
    workload = case.workload
    if not isinstance(workload, AdHoc):
        return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why="op families have no batch of size 0"))
    tensors = case.prepared.tensors
    batch = tensors[0].shape[0] if tensors[0].dim() > 1 else 0
    empty = tuple(t.narrow(0, 0, 0) if t.dim() > 1 and t.shape[0] == batch else t for t in tensors)
    try:
        expected = workload.learned.compute_plain(empty) if batch else {}
    except Exception:
        expected = {}
    if not expected or any(output.numel() for output in expected.values()):
        why = "the reference has no result of size 0 for a batch of size 0"
        return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why=why))
    got = replace(case.prepared, tensors=empty, beside=())
    outputs = case.prepared.outputs(got.run())
    for name, output in expected.items():
        made = outputs.get(name)
        if made is None or made.shape != output.shape or made.dtype != output.dtype:
            is_what = "missing" if made is None else f"{tuple(made.shape)} {made.dtype}"
            why = f"{result.name}: {name!r} is {is_what}, expected {tuple(output.shape)} {output.dtype}"
            return Tried(replace(result, ending=TrialEnding.WRONG, why=why))
    return Tried(result)

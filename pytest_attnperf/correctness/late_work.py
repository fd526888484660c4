"""Checks that reading a result only rearranges it: work done while a result is read is not timed.

There are five checks:
- Layouts and casts move elements one by one. So one NaN written into a returned tensor appears as at most one NaN, or
at as many places as the tensor shows that element. A product, a softmax or a reduction spreads it over a row.
- torch's operators are listed during reading, which shows work on other tensors, too.
- Reading takes little longer than copying. It takes longer if Python computes, or if a thread is waited for.
- What was returned does not change after the call.
- Once all returned tensors are NaN, what is read is NaN. Otherwise it comes from an object of the backend's own that
holds numbers, which no check of tensors sees, and may be computed during reading.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.workloads.input_memory import each_once
from pytest_attnperf.workloads.returned import detach_tensor, elements_of, fields_of

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

_MOVES = re.compile(
    "aten::(view|view_as|reshape|_reshape_alias|_unsafe_view|transpose|transpose_|permute|movedim|swapaxes|t|slice|"
    "select|narrow|expand|expand_as|unsqueeze|squeeze|as_strided|detach|detach_|alias|flatten|unflatten|unbind|split|"
    "split_with_sizes|chunk|to|_to_copy|copy_|clone|contiguous|empty|empty_like|empty_strided|new_empty|zeros|zero_|"
    "fill_|full|zeros_like|empty_quantized|result_type|resolve_conj|resolve_neg|lift_fresh|mul|mul_|div|div_|cat|stack|"
    "constant_pad_nd|pad|index|index_select|gather|flip|view_as_real|type_as|float|half|item|_local_scalar_dense|"
    "is_nonzero|scalar_tensor)"
)
"""Operators that allocate, move, cast or scale."""

_OPERATOR = re.compile(r"(?!profiler::)\w+::")
"""Start of the name of an operator, torch's own or another library's."""

READS = 5
"""Calls whose results are read before reading counts as slow: one may load a kernel, and another be interrupted."""

READ_SECONDS, READ_NS_PER_BYTE = 0.0005, 4
"""Time allowed for reading: a constant, plus a time for each byte that is read (several copies by one thread). Tensors
that were returned but are not read do not count, or a large unused one would buy time."""


def list_problems(raw: Any, outputs: Callable[[Any], Outputs], written: Tensors = ()) -> list[str]:
    """Returns problems, in words, if `outputs` does more than rearrange `raw`; `raw` is changed meanwhile and restored.

    raw       what a call returned
    outputs   `Prepared.outputs`, restricted to outputs that are judged
    written   inputs that a call writes to, which `outputs` may read, too
    """
    if worked := _list_work(lambda: outputs(raw)):
        return [
            f"work is done while the result is read: {worked[0]} ran in `Prepared.outputs`, which may change layout "
            "and dtype only; compute in `Prepared.call`, which is timed"
        ]
    before = _count_nans(outputs(raw))
    for number, tensor in enumerate(poison.tensors_in(raw)):
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        already = int(tensor.isnan().sum())
        with _destroy_one(tensor):
            after = _count_nans(outputs(raw))
            shown = max(1, int(tensor.isnan().sum()) - already)  # an expanded tensor shows one element in many places
        spread = {name: after[name] - before[name] for name in before if after[name] - before[name] > shown}
        if spread:
            name, count = next(iter(spread.items()))
            return [
                f"work is done while the result is read: one element of tensor {number} that the call returned reaches "
                f"{count} elements of output {name!r}. `Prepared.outputs` may change layout and dtype only; compute in "
                "`Prepared.call`, which is timed"
            ]
    return list_unfounded(raw, outputs, (*poison.tensors_in(raw), *written))


def list_late_writes(returned: list[tuple[torch.Tensor, torch.Tensor]]) -> list[str]:
    """Returns a problem, in words, if a tensor changed after the call had returned it; [] otherwise.

    returned   pairs (the returned tensor, a copy made when the call returned)
    """
    changed = [number for number, (now, before) in enumerate(returned) if not poison.is_bit_equal(now, before)]
    if not changed:
        return []
    return [
        f"tensor {changed[0]} that the call returned was still being written after it had returned: wait for threads "
        "in `Prepared.call`, which is timed"
    ]


class ReadingTime:
    """Measures how long reading the results of calls takes, right after each call.

    outputs   `Prepared.outputs`
    wait      waits for the device
    """

    def __init__(self, outputs: Callable[[Any], Outputs], wait: Callable[[], None]) -> None:
        self._outputs = outputs
        self._wait = wait
        self._prompt = False
        self._least_seconds = float("inf")

    def time_reading(self, raw: Any) -> None:
        """Times `outputs(raw)` for a call that was just made; does nothing once a reading was as quick as copying.
        Keeps the shortest time."""
        if self._prompt:
            return
        with _one_thread():  # several wait for each other for milliseconds where others compute on the machine
            self._wait()
            begin = time.perf_counter()
            outputs = self._outputs(raw)
            self._wait()
            seconds = time.perf_counter() - begin
        size = sum(tensor.numel() * tensor.element_size() for tensor in poison.tensors_in(outputs))
        self._least_seconds = min(seconds, self._least_seconds)
        self._prompt = seconds <= READ_SECONDS + READ_NS_PER_BYTE * 1e-9 * size

    def list_problems(self, run: Callable[[], Any]) -> list[str]:
        """Makes up to READS more calls of `run` until one is read quickly; returns a problem if none was."""
        for _ in range(READS):
            if not self._prompt:
                self.time_reading(run())
        if self._prompt:
            return []
        return [
            "work is done while the result is read: reading it takes "
            f"{format_time(self._least_seconds * 1e6)} right after a call, many times "
            "as long as copying it; `Prepared.outputs` may change layout and dtype only. Compute, and "
            "wait for threads, in `Prepared.call`, which is timed"
        ]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limits torch's operators to one CPU thread inside the block; restores the number of threads after it."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _list_work(read: Callable[[], Any]) -> list[str]:
    """Runs `read` under torch's profiler; returns operators that do more than allocate, move, cast or scale."""
    from torch.autograd.profiler_legacy import profile

    with profile() as profiler:  # type: ignore[no-untyped-call]
        read()
    names = [event.name for event in profiler.function_events or ()]
    return [name for name in names if _OPERATOR.match(name) and not _MOVES.fullmatch(name)]


@contextlib.contextmanager
def _destroy_one(tensor: torch.Tensor) -> Iterator[None]:
    """Sets element 0 to NaN inside the block (integers to an extreme value), and restores it after the block. It writes
    through a view of one element, which also works for expanded and inference-mode tensors."""
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


def _count_nans(outputs: Outputs) -> dict[str, int]:
    """Returns by output name the number of NaN elements; leaves out integers and tensors of a subclass."""
    import torch

    return {
        name: int(tensor.isnan().sum())
        for name, tensor in ((name, detach_tensor(output)) for name, output in outputs.items())
        if type(tensor) is torch.Tensor and tensor.is_floating_point()
    }


def list_unfounded(raw: Any, outputs: Callable[[Any], Outputs], returned: Tensors) -> list[str]:
    """Returns a problem, in words, if a floating-point output does not depend on `returned`: the tensors in `raw`, and
    those written in place. All of them are overwritten meanwhile, and restored.

    Elements of 0 and infinity, and outputs with one other value only, may be padding. A Python number may have been
    returned as it is. Where NaN alone does not explain an output, integers are reversed too: they may be indices.
    """
    before = {name: tensor.clone() for name, tensor in _select_floats(outputs(raw)).items()}
    floats = tuple(tensor for tensor in returned if tensor.is_floating_point() or tensor.is_complex())
    others = tuple(tensor for tensor in returned if not (tensor.is_floating_point() or tensor.is_complex()))
    with _replace_values(floats):
        left = _find_unmoved(before, outputs(raw))
    if left and others:
        with _replace_values((*floats, *others)):
            after = _find_unmoved(before, outputs(raw))
        # Two integers that change places may be equal.
        left = {name: same for name, same in after.items() if len(same) > before[name].count_nonzero() / 2}
    numbers = tuple(_numbers_in(raw))
    for name, same in left.items():
        if len(same) > len(numbers) or not all(_is_among(float(element), numbers) for element in same):
            return [
                f"work is done while the result is read: {len(same)} elements of output {name!r} come from something "
                "else than the tensors that the call returned. Return the tensors that hold the result; "
                "`Prepared.outputs` may change their layout and dtype only"
            ]
    return []


def _find_unmoved(before: Outputs, outputs: Outputs) -> dict[str, torch.Tensor]:
    """Returns, by output name, the elements of `before` that are equal in `outputs`. Elements of 0 and Inf, and equal
    elements of one value only, are left out as padding; outputs without any other are left out too."""
    found = {}
    now = _select_floats(outputs)
    for name, first in before.items():
        if name in now and now[name].shape == first.shape:
            same = first[now[name].eq(first)]
            same = same[same.ne(0) & same.isfinite()]
            if same.numel() and (first.numel() == 1 or bool(same.ne(same[0]).any())):
                found[name] = same
    return found


def _is_among(value: float, numbers: tuple[float, ...]) -> bool:
    """Returns whether a value is within 2^-8 (relative) of one of the numbers, as a tensor's dtype may round it."""
    return any(abs(value - number) <= 2**-8 * abs(number) for number in numbers)


def _select_floats(outputs: Outputs) -> Outputs:
    """Returns the plain floating-point outputs, detached; 1-byte types as fp32, so that they can be compared."""
    import torch

    plain = ((name, detach_tensor(output)) for name, output in outputs.items())
    return {
        name: tensor.float() if tensor.dtype.itemsize == 1 else tensor
        for name, tensor in plain
        if type(tensor) is torch.Tensor and tensor.is_floating_point()
    }


@contextlib.contextmanager
def _replace_values(tensors: Tensors) -> Iterator[None]:
    """Overwrites tensors inside the block, and restores them after it; they may share memory. Floating-point elements
    become NaN, and integers are put in reverse order, or become extreme where that changes nothing."""
    import torch

    held = tuple(each_once(tensor) for tensor in tensors if tensor.numel())
    with torch.inference_mode():
        kept = tuple(tensor.clone() for tensor in held)
        for tensor, copy in zip(held, kept, strict=True):
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            turned = copy.reshape(-1).flip(0).reshape(copy.shape) if whole else copy
            if turned is copy or torch.equal(turned, copy):
                poison.destroy((tensor,))
            else:
                tensor.copy_(turned)
    try:
        yield
    finally:
        with torch.inference_mode():
            for tensor, copy in zip(held, kept, strict=True):
                tensor.copy_(copy)


def _numbers_in(raw: Any) -> Iterator[float]:
    """Yields each Python number in what a call returned, as float, at any depth of containers and dataclasses."""
    parts = fields_of(raw)
    if isinstance(raw, (bool, int, float)):
        yield float(raw)
    elif parts is not None:
        for part in parts.values():
            yield from _numbers_in(part)
    elif isinstance(raw, (tuple, list)):
        for part in elements_of(raw):
            yield from _numbers_in(part)

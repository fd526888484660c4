"""Guard bands: the call again, with memory around its inputs and outputs that it may neither read nor write.

Inputs are copied between NaN, so that a read outside of them shows in the result. Outputs are made by the call itself:
whatever it allocates by torch's factories comes from the middle of a larger buffer whose other bytes have a pattern,
and each of these that changes is a write outside. What a library allocates below torch's dispatcher is not seen.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Beside, Side
from pytest_attnperf.correctness import poison
from pytest_attnperf.measure.trials import TrialCase, Tried
from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.trials import TrialEnding, TrialResult
from pytest_attnperf.workloads.input_memory import Guard, copy_guarded, describe_write, memory_span

if TYPE_CHECKING:
    import torch

NAME, CHECK = "guards", "guard bands"
GUARD_BYTES = 65536
"""Bytes before and behind each input and output: a tile of 128 rows of 256 elements of 2 bytes."""

PATTERN_STEP = 167
"""Step from one byte of a band to the next, modulo 256: no word of it is 0, or repeats beside itself."""

UNFILLED = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"})
"""torch operators (aten::) that return memory without content."""

FILLED = frozenset(
    {*("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"), *("full", "full_like", "new_full")}
)
"""torch operators that return memory with one value."""


def run_trial(case: TrialCase) -> Iterator[Tried]:
    """Yields one result: WRONG if the call reads or writes outside of its inputs and outputs."""
    tried = case.attempt(TrialResult(NAME), lambda: _judge_guarded(case, outputs=True))
    if tried.result.ending is not TrialEnding.REFUSED:
        yield tried
        return
    _forget_compiled()
    # Some calls, as torch's flex_attention, do not run inside a dispatch mode: then only inputs are guarded.
    alone = TrialResult(NAME, why=f"outputs are not guarded: {tried.result.why}")
    yield case.attempt(alone, lambda: _judge_guarded(case, outputs=False))


def _forget_compiled() -> None:
    """Makes torch's compiler, if it is loaded, forget what it compiled. A flex_attention that failed inside a dispatch
    mode leaves torch 2.13's compiler unable to compile another one, in every case of the process."""
    if compiler := sys.modules.get("torch._dynamo"):
        compiler.reset()


def _judge_guarded(case: TrialCase, *, outputs: bool) -> CheckReport:
    tensors, beside = copy_guarded(case.prepared.tensors, Guard(GUARD_BYTES, before=True))
    # The judge compares what lies beside inputs that keep their canonical form; a family's backend has its own.
    judged = beside if case.prepared.beside else ()
    guarded = replace(case.prepared, tensors=tensors, beside=judged)
    bands = GuardedOutputs([] if judged else [band for band in beside if band.side is not Side.AROUND])

    def run() -> Any:
        with bands.guard_allocations() if outputs else contextlib.nullcontext():
            return guarded.run()

    report = case.judge_call(CHECK, guarded, run)
    return report.merge_with(CheckReport(problems=bands.list_problems()))


class GuardedOutputs:
    """Gives what a call allocates memory of its own between guard bands, and finds what was written there.

    inputs   bands of its inputs, which are compared, too
    """

    def __init__(self, inputs: Sequence[Beside] = ()) -> None:
        self._inputs = tuple(inputs)
        self._bands: list[Beside] = []

    @contextlib.contextmanager
    def guard_allocations(self) -> Iterator[None]:
        """Puts every tensor that torch's factories return inside the context between guard bands."""
        self._bands = []
        with _make_mode(self._replace):
            yield

    def list_problems(self) -> tuple[str, ...]:
        """Returns, in words, each write outside of the inputs, and of what the call allocated last."""
        return tuple(
            f"{CHECK}: the call wrote to memory that is neither its input nor its output: {place}"
            for band in (*self._inputs, *self._bands)
            if (place := describe_write(band, band.first))
        )

    def _replace(self, operator: str, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor like `tensor`, which torch's `operator` made, in memory between guard bands."""
        import torch

        width = tensor.element_size()
        guard, span = -(-GUARD_BYTES // width) * width, memory_span(tensor) * width
        buffer = torch.empty(span + 2 * guard, dtype=torch.uint8, device=tensor.device)
        inside = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            buffer.untyped_storage(), guard // width, tensor.shape, tensor.stride()
        )
        if operator in FILLED:
            inside.copy_(tensor)
        else:
            poison.fill(inside)
        pattern = torch.arange(guard, device=tensor.device).add(1).mul(PATTERN_STEP).to(torch.uint8)
        bands = {Side.BEFORE: buffer[:guard], Side.BEHIND: buffer[guard + span :]}
        for memory in bands.values():
            memory.copy_(pattern)
        what = f"a tensor {tuple(tensor.shape)} {tensor.dtype} of torch's {operator}"
        self._bands += [Beside(side, what, memory, pattern) for side, memory in bands.items()]
        return inside


def _make_mode(change: Callable[[str, torch.Tensor], torch.Tensor]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which tensors that torch's factories make go through `change`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Returns whether torch's compiler is loaded: torch would load it, for seconds, to exclude this code."""
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            operator = func._schema.name.removeprefix("aten::")
            if operator not in UNFILLED and operator not in FILLED:
                return made
            plain = type(made) is torch.Tensor and made.layout == torch.strided and not made.is_quantized
            if not plain or not made.numel() or made.is_pinned() or made.device.type == "meta":
                return made
            return change(operator, made)

    mode: contextlib.AbstractContextManager[Any] = Mode()  # type: ignore[no-untyped-call]
    return mode

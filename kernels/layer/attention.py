"""An attention backend as stages of a layer: what it is given of the cache, and how its result is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Pipeline, Stage
from pytest_attnperf.workloads.decode import Decode

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Backend, Declares, Outputs, Tensors, Values
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.block import Block
    from pytest_attnperf.workloads.prefill import Prefill

ATTENTION = "attention"
PREFIX = f"{ATTENTION}."
"""Before names of stages, values and settings that are the attention backend's own."""

RESULT = "attended"
"""Name of the value that attention leaves, (B, S, H, D) of any strides."""


@dataclass(frozen=True)
class BoundAttention:
    """Attention, ready to be put between other stages.

    stages      read the values q, k_cache and v_cache, add RESULT and let go of q
    config      the backend's
    declares    the backend's
    copied      which of q, k and v it copies or casts before it computes, e.g. 'v'; '' for none
    """

    stages: tuple[Stage, ...]
    config: dict[str, str]
    declares: Declares
    copied: str


def problem_over_cache(attention: Backend, block: Block, device: DeviceInfo) -> Prefill | Decode:
    """The attention of `block` as this backend is asked for it.

    A decode step is asked for over all rows of the cache, with lengths that say how many are seen. A backend that takes
    no lengths that differ does not read them, and is given views of the rows that are seen.
    """
    problem = block.attention
    if not isinstance(problem, Decode) or block.length == block.room:
        return problem
    known = attention.unsupported_reasons(problem, device)
    ragged = replace(problem, batch=max(2, block.batch), ragged=True)
    reads_lengths = set(attention.unsupported_reasons(ragged, device)) <= set(known)
    return problem if reads_lengths else replace(problem, seq_kv=block.length)


def bind_attention(
    attention: Backend, problem: Prefill | Decode, block: Block, q: torch.Tensor, caches: Tensors
) -> BoundAttention:
    """Prepare the backend for contiguous tensors of these shapes and dtypes; their values do not matter.

    q         (B, S, H, D), contiguous
    caches    of keys and of values
    """
    gather = partial(_collect_inputs, problem, _make_lengths(block, q.device) if isinstance(problem, Decode) else ())
    given = gather({"q": q, "k_cache": caches[0], "v_cache": caches[1]})
    # Of what is prepared, the call alone is kept: the backend's own copies of a cache are let go of.
    prepared = attention.prepare(problem, tuple(tensor.contiguous() for tensor in given))
    take = prepared.arguments or prepared.convert
    taken = {_memory_address(tensor) for tensor in take(given)}
    copied = [name for name, tensor in zip("qkv", given[:3], strict=True) if _memory_address(tensor) not in taken]

    def collect_arguments(values: Values) -> Tensors:
        return take(gather(values))

    stages = _make_stages(prepared.call, collect_arguments, prepared.outputs)
    return BoundAttention(stages, prepared.config, prepared.declares, ", ".join(copied))


def _collect_inputs(problem: Prefill | Decode, lengths: Tensors, values: Values) -> Tensors:
    """The inputs of the problem, as its family states them; keys and values are views of their caches."""
    keys, rows = (values[name][:, : problem.seq_kv] for name in ("k_cache", "v_cache"))
    return (values["q"], keys, rows, *lengths)


def _make_lengths(block: Block, device: torch.device) -> Tensors:
    """seq_lens of a decode problem, (B,) int32."""
    import torch

    return (torch.full((block.batch,), block.length, dtype=torch.int32, device=device),)


def _memory_address(tensor: torch.Tensor) -> int:
    """Where the memory lies that a tensor is a view of."""
    return tensor.untyped_storage().data_ptr()


def _make_stages(
    call: Callable[..., Any], arguments: Callable[[Values], Tensors], outputs: Callable[[Any], Outputs]
) -> tuple[Stage, ...]:
    """One stage, or those of a call that is made of stages."""
    if isinstance(call, Pipeline):
        return inline_stages(call, arguments, outputs)

    def run_attention(values: Values) -> Values:
        return {RESULT: outputs(call(*arguments(values)))["out"]}

    return (Stage(ATTENTION, run_attention, frees=("q",)),)


def inline_stages(
    call: Pipeline, arguments: Callable[[Values], Tensors], outputs: Callable[[Any], Outputs]
) -> tuple[Stage, ...]:
    """The stages of `call` for a longer pipeline, in which their names and values begin with PREFIX.

    arguments    what the call takes, made in the first stage
    outputs      reads what the call returns, in the last
    """
    freed = {name for stage in call.stages for name in stage.frees}
    left = tuple(name for name in dict.fromkeys((*call.inputs, *call.outputs)) if name not in freed)

    def wrap_stage(number: int, stage: Stage) -> Stage:
        first, last = number == 0, number == len(call.stages) - 1

        def run_stage(values: Values) -> Values:
            given = call.name_arguments(arguments(values)) if first else {}
            own = {name.removeprefix(PREFIX): values[name] for name in values if name.startswith(PREFIX)} | given
            added = given | stage.run(own)
            found = {PREFIX + name: value for name, value in added.items()}
            if last:
                whole = own | added
                found[RESULT] = outputs(tuple(whole[name] for name in call.outputs))["out"]
            return found

        frees = tuple(PREFIX + name for name in (*stage.frees, *(left if last else ())))
        return Stage(PREFIX + stage.name, run_stage, (*frees, "q") if first else frees)

    return tuple(wrap_stage(number, stage) for number, stage in enumerate(call.stages))

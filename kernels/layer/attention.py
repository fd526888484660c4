"""Turns an attention backend into stages of a layer: passes it views of the cache, and reads its result."""

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
"""Prefix of the names of the attention backend's own stages, values and settings."""

RESULT = "attended"
"""Name of attention's result, (B, S, H, D) of any strides."""


@dataclass(frozen=True)
class BoundAttention:
    """Attention prepared as stages of a layer.

    stages      read the values q, k_cache and v_cache, add RESULT and free q
    config      the backend's
    declares    the backend's
    copied      which of q, k and v it copies or casts before it computes, e.g. 'v'; '' for none
    """

    stages: tuple[Stage, ...]
    config: dict[str, str]
    declares: Declares
    copied: str


def problem_over_cache(attention: Backend, block: Block, device: DeviceInfo) -> Prefill | Decode:
    """Returns the prefill or decode workload with which this backend computes the attention of `block`.

    A decode step covers all rows of the cache, and lengths say how many are visible. A backend that does not support
    different lengths does not read them; it gets views of the visible rows instead.
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
    """Prepares `attention` and returns it as stages of a layer. Of these tensors only shapes and dtypes matter, not the
    values; the lengths that it is prepared with are those of `block`.

    q         (B, S, H, D), contiguous
    caches    of keys and of values
    """
    gather = partial(_collect_inputs, problem, _make_lengths(block, q.device) if isinstance(problem, Decode) else ())
    given = gather({"q": q, "k_cache": caches[0], "v_cache": caches[1]})
    # Only the prepared call is kept; the backend's own copies of a cache are freed.
    prepared = attention.prepare(problem, tuple(tensor.contiguous() for tensor in given))
    take = prepared.arguments or prepared.convert
    taken = {memory_address(tensor) for tensor in take(given)}
    copied = [name for name, tensor in zip("qkv", given[:3], strict=True) if memory_address(tensor) not in taken]

    def collect_arguments(values: Values) -> Tensors:
        return take(gather(values))

    stages = make_stages(prepared.call, collect_arguments, prepared.outputs)
    return BoundAttention(stages, prepared.config, prepared.declares, ", ".join(copied))


def _collect_inputs(problem: Prefill | Decode, lengths: Tensors, values: Values) -> Tensors:
    """Returns q, views of the first seq_kv rows of both caches, and the lengths: the inputs that the problem's family
    takes, in order."""
    keys, rows = (values[name][:, : problem.seq_kv] for name in ("k_cache", "v_cache"))
    return (values["q"], keys, rows, *lengths)


def _make_lengths(block: Block, device: torch.device) -> Tensors:
    """Returns a tuple of one tensor (B,) int32: the number of keys that each sequence of a decode step sees."""
    import torch

    return (torch.full((block.batch,), block.length, dtype=torch.int32, device=device),)


def memory_address(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's storage, which all views of the same storage share."""
    return tensor.untyped_storage().data_ptr()


def make_stages(
    call: Callable[..., Any],
    arguments: Callable[[Values], Tensors],
    outputs: Callable[[Any], Outputs],
    queries: tuple[str, ...] = ("q",),
) -> tuple[Stage, ...]:
    """Returns one stage for the call, or all its stages if it is a pipeline. `arguments` makes the call's tensors from
    the layer's values; `outputs` names its result, of which the stages keep 'out' as RESULT. `queries` are the layer's
    values that no later stage reads."""
    if isinstance(call, Pipeline):
        return inline_stages(call, arguments, outputs, queries)

    def run_attention(values: Values) -> Values:
        return {RESULT: outputs(call(*arguments(values)))["out"]}

    return (Stage(ATTENTION, run_attention, frees=queries),)


def inline_stages(
    call: Pipeline,
    arguments: Callable[[Values], Tensors],
    outputs: Callable[[Any], Outputs],
    queries: tuple[str, ...] = ("q",),
) -> tuple[Stage, ...]:
    """Returns the stages of `call` for a longer pipeline, with PREFIX before their names and values.

    arguments    makes the call's arguments, in the first stage
    outputs      reads the call's result, in the last stage
    queries      the layer's values that only `arguments` reads
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
        return Stage(PREFIX + stage.name, run_stage, (*frees, *queries) if first else frees)

    return tuple(wrap_stage(number, stage) for number, stage in enumerate(call.stages))

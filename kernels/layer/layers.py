"""Makes layers over a set of attention backends, ours or others, and one layer in plain torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernels.hip.rope import BACKENDS as HIP_ROPE
from kernels.layer.attention import PREFIX
from kernels.layer.layer import EAGER_ROPE, ROPE_PREFIX, Layer
from kernels.native.prefill import CPU_HALF_FLOPS_MAX
from kernels.triton.rope.backend import BACKENDS as TRITON_ROPE
from pytest_attnperf.backends import Backend, Pinnable, replay_choice
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from typing_extensions import Self

    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.block import Block

NAME_PREFIX = "layer."
(_TRITON_ROPE,), (_HIP_ROPE,) = TRITON_ROPE, HIP_ROPE
ROPES: Mapping[str, Backend] = {"triton": _TRITON_ROPE, "hip": _HIP_ROPE}
"""First word of an attention backend's name -> its rope, whose kernel reads contiguous tensors. All other layers use
torch's operators."""

ANY_STRIDES = ("native.", "ck", "triton.staged")
"""Prefixes of the names of attention backends that read keys and values of any strides: torch's operators, aiter, and
our Triton kernels of unfused attention."""


@dataclass(frozen=True)
class PinnableLayer(Layer):
    """A layer whose attention or rope chooses a configuration by itself."""

    def replay_config(self, config: Mapping[str, str]) -> Self:
        """Returns a copy whose attention and rope use the stored configuration. Raises UsageError if one cannot."""
        attention, rope = replay_parts(self.attention, self.rope, config)
        return replace(self, attention=attention, rope=rope)


@dataclass(frozen=True)
class PlainLayer(Layer):
    """A layer in plain torch operators, for whole prompts and decode steps, over a cache of any room."""

    def attention_problem(self, block: Block, device: DeviceInfo) -> Prefill:
        """Returns a prefill workload from the S new queries to all keys so far, also for a decode step."""
        return Prefill(
            block.batch, block.seq, block.heads, block.head_dim, block.length,
            kv_heads=block.kv_heads, dtype=block.dtype, causal=block.seq > 1,
        )  # fmt: skip

    def _other_kind(self, block: Block) -> str:
        return ""


PLAIN = PlainLayer("layer.plain", CPU_HALF_FLOPS_MAX, any_strides=True)


def layers_over(backends: Iterable[Backend]) -> tuple[Layer, ...]:
    """Returns `layer.plain`, and a layer over each backend that implements prefill or decode, in their order.

    A layer's name is 'layer.' and the attention backend's name. It has that backend's CPU limits and error budget.
    """
    attending = (backend for backend in backends if {"prefill", "decode"}.intersection(backend.families))
    return (PLAIN, *map(layer_over, attending))


def layer_over(attention: Backend) -> Layer:
    """Returns the layer over one attention backend, with the rope of its kind in ROPES or torch's; a PinnableLayer if
    the attention or the rope can replay a stored configuration."""
    name = attention.name
    rope = rope_beside(attention)
    kind = PinnableLayer if isinstance(attention, Pinnable) or isinstance(rope, Pinnable) else Layer
    return kind(
        NAME_PREFIX + name,
        attention.cpu_flops_max,
        attention.times_on_cpu,
        attention.tolerance,
        attention=attention,
        rope=rope,
        rope_strides=rope is EAGER_ROPE,
        any_strides=name.startswith(ANY_STRIDES),
    )


def rope_beside(attention: Backend) -> Backend:
    """Returns the rope of the attention backend's kind in ROPES, or torch's."""
    return ROPES.get(attention.name.partition(".")[0], EAGER_ROPE)


def replay_parts(attention: Backend, rope: Backend, config: Mapping[str, str]) -> tuple[Backend, Backend]:
    """Returns a layer's attention and rope with its stored configuration. Raises UsageError if one cannot replay it."""
    return (
        replay_choice(attention, own_settings(config, PREFIX)),
        replay_choice(rope, own_settings(config, ROPE_PREFIX)),
    )


def own_settings(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Returns those entries of a layer's stored configuration that begin with `prefix`, its attention's or rope's,
    without it.

    Autotuners' choices (`autotuned.*`) are stored without a prefix, and every part gets all of them.
    """
    own = {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}
    return own | {name: text for name, text in config.items() if name.startswith("autotuned.")}

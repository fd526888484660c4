"""Makes layers of latent attention over a set of backends, and all layers of a set under their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernels.aiter.by_family import by_family
from kernels.layer.layer import EAGER_ROPE
from kernels.layer.layers import NAME_PREFIX, layers_over, replay_parts, rope_beside
from kernels.layer.mla_layer import MlaLayer
from pytest_attnperf.backends import Backend, Pinnable

if TYPE_CHECKING:
    from typing_extensions import Self

ANY_STRIDES = ("native.", "aiter.")
"""Prefixes of the names of backends that read latents of any strides: torch's operators, and aiter's adapters, which
join latents and k_pe in one cache anyway."""


@dataclass(frozen=True)
class PinnableMlaLayer(MlaLayer):
    """A layer whose attention or rope chooses a configuration by itself."""

    def replay_config(self, config: Mapping[str, str]) -> Self:
        """Returns a copy whose attention and rope use the stored configuration. Raises UsageError if one cannot."""
        attention, rope = replay_parts(self.attention, self.rope, config)
        return replace(self, attention=attention, rope=rope)


def mla_layers_over(backends: Iterable[Backend]) -> tuple[MlaLayer, ...]:
    """Returns a layer over each backend that implements latent attention, in their order, under the name of
    `layers_over`."""
    return tuple(mla_layer_over(backend) for backend in backends if "mla" in backend.families)


def mla_layer_over(attention: Backend) -> MlaLayer:
    """Returns the layer over one backend of latent attention, with its CPU limits and error budget; a PinnableMlaLayer
    if the attention or the rope can replay a stored configuration."""
    rope = rope_beside(attention)
    kind = PinnableMlaLayer if isinstance(attention, Pinnable) or isinstance(rope, Pinnable) else MlaLayer
    return kind(
        NAME_PREFIX + attention.name,
        attention.cpu_flops_max,
        attention.times_on_cpu,
        attention.tolerance,
        attention=attention,
        rope=rope,
        any_strides=rope is EAGER_ROPE and attention.name.startswith(ANY_STRIDES),
    )


def all_layers_over(backends: Iterable[Backend]) -> tuple[Backend, ...]:
    """Returns `layers_over` and `mla_layers_over` of the backends. Over a backend that has both kinds of attention,
    e.g. aiter.asm, it is one backend of both families."""
    given = tuple(backends)
    layers: tuple[Backend, ...] = (*layers_over(given), *mla_layers_over(given))
    named: dict[str, dict[str, Backend]] = {}
    for layer in layers:
        named.setdefault(layer.name, {}).update(dict.fromkeys(layer.families, layer))
    return tuple(
        by_family(name, parts) if len(parts) > 1 else next(iter(parts.values())) for name, parts in named.items()
    )

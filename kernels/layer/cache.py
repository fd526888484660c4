"""A cache of keys and values with room for a fixed number of positions, into which new rows are copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of every sequence of a batch; row j of a sequence is position j.

    k, v    (B, room, Hk, D), of one shape, dtype and device

    Raises UsageError for tensors of other shapes.
    """

    k: torch.Tensor
    v: torch.Tensor

    def __post_init__(self) -> None:
        if self.k.dim() != 4:
            raise UsageError(f"cache: k must be (B, positions, Hk, D), got shape {tuple(self.k.shape)}")
        for what in ("shape", "dtype", "device"):
            ours, theirs = getattr(self.v, what), getattr(self.k, what)
            if ours != theirs:
                raise UsageError(
                    f"cache: v must have the {what} of k, {_format_value(theirs)}, got {_format_value(ours)}"
                )

    @property
    def room(self) -> int:
        """Number of positions for which the cache has memory, per sequence."""
        return self.k.shape[1]

    def append(self, k: torch.Tensor, v: torch.Tensor, position: int) -> None:
        """Copies k and v (B, S, Hk, D) of S new tokens, of any strides, into the rows from `position` on.

        Raises UsageError naming what does not fit, before it writes anything.
        """
        if not 0 <= position < self.room:
            raise UsageError(
                f"cache: position must be 0 to {self.room - 1}, for the cache has room for {self.room}, got {position}"
            )
        batch, _, kv_heads, head_dim = self.k.shape
        for name, new in (("k", k), ("v", v)):
            if new.dim() != 4 or (new.shape[0], *new.shape[2:]) != (batch, kv_heads, head_dim) or not new.shape[1]:
                raise UsageError(
                    f"cache: the new {name} must be ({batch}, S, {kv_heads}, {head_dim}) with S of at least 1, got "
                    f"shape {tuple(new.shape)}"
                )
        if v.shape != k.shape:
            raise UsageError(f"cache: the new v must hold the {k.shape[1]} tokens of the new k, got {v.shape[1]}")
        end = position + k.shape[1]
        if end > self.room:
            raise UsageError(
                f"cache too small: {k.shape[1]} tokens at position {position} need room for {end}, it is {self.room}; "
                "make one with more room, or append fewer tokens"
            )
        self.k[:, position:end].copy_(k)
        self.v[:, position:end].copy_(v)


def _format_value(value: object) -> str:
    """Returns a value as text for a message, a shape as a tuple, e.g. '(1, 64, 8, 128)'."""
    return str(tuple(value)) if isinstance(value, tuple) else str(value)

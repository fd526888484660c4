"""Whether bringing inputs into a backend's layout only rearranges them: `convert` is never timed.

Layouts, paddings and casts move elements one by one, so that what `convert` gives changes in one place where one
element of an input changes, and no place hangs on two inputs. A product, a softmax or a norm does neither. And what
`convert` keeps for itself is another input's by the time of a call, because other inputs are converted in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.input_memory import as_integers

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors

ADVICE = (
    "`Prepared.convert` may move, pad, pack and cast elements only, because nobody times it; compute in `Prepared.call`"
)

BACKWARD = ("backward", "varlen_backward")
"""Op families whose backends may run a forward pass of their own before the call."""


class Decoys:
    """Inputs that a backend converts and never gets: looks at `convert` once, and keeps it busy before each check.

    family    op family of the workload
    wait      waits for the device
    seconds   the shortest time that `convert` took; None before the first, and where it gives its inputs as they are
    """

    def __init__(self, prepared: Prepared, family: str, wait: Callable[[], None]) -> None:
        self.seconds: float | None = None
        self._prepared = prepared
        self._wait = wait
        self._may_work = prepared.declares.own_forward and family in BACKWARD
        self._looked = False

    def convert(self, inputs: Tensors) -> list[str]:
        """Convert inputs that differ from `inputs` everywhere; the first time, say what is wrong with `convert`."""
        import torch

        with torch.no_grad():
            if not self._looked:
                self._looked = True
                return self._looked_at(inputs)
            if self.seconds is not None:
                self._converted(tuple(_other(tensor) for tensor in inputs))
        return []

    def note(self, call_seconds: float) -> str:
        """What a reader must know where bringing inputs into the layout takes longer than the call; else ''."""
        if self.seconds is None or not 0 < call_seconds < self.seconds:
            return ""
        return (
            f"not timed: bringing the inputs into the backend's layout takes {self.seconds * 1e3:.3g} ms, a call "
            f"{call_seconds * 1e3:.3g} ms"
        )

    def _looked_at(self, inputs: Tensors) -> list[str]:
        plain = self._prepared.convert(inputs)
        if all(any(one is given for given in inputs) for one in plain):
            return []
        if any(poison.overlap(one, own) for one in plain for own in self._prepared.tensors):
            return []  # it converts into memory of its own, which must stay as it is loaded
        base = tuple(tensor.clone() for tensor in self._converted(inputs))
        touched: list[torch.Tensor | None] = [None] * len(base)
        found: list[str] = []
        for number, tensor in enumerate(() if self._may_work else inputs):
            if tensor.is_floating_point() and tensor.numel() > 1:  # a single number is a scale, and may be applied
                found += self._spread(inputs, number, base)
                found += self._mixed(inputs, number, base, touched)
        self._converted(tuple(_other(tensor) for tensor in inputs))
        return found[:1]

    def _spread(self, inputs: Tensors, number: int, base: Tensors) -> list[str]:
        """What is wrong where one element of one input changes more than its own copies."""
        other = [*inputs]
        other[number] = _one_changed(inputs[number])
        for place, (before, after) in enumerate(zip(base, self._converted(tuple(other)), strict=True)):
            copies = max(1, -(-before.numel() // inputs[number].numel()))
            changed = int(_differs(before, after).sum())
            if changed > copies:
                return [
                    f"work is done before the call: one element of input {number} reaches {changed} elements of tensor "
                    f"{place} that `convert` gives. {ADVICE}"
                ]
        return []

    def _mixed(self, inputs: Tensors, number: int, base: Tensors, touched: list[torch.Tensor | None]) -> list[str]:
        """What is wrong where elements change with this input that have changed with one before it."""
        other = [*inputs]
        other[number] = _other(inputs[number])
        for place, (before, after) in enumerate(zip(base, self._converted(tuple(other)), strict=True)):
            changed, earlier = _differs(before, after), touched[place]
            both = 0 if earlier is None else int((changed & earlier).sum())
            if both:
                return [
                    f"work is done before the call: {both} elements of tensor {place} that `convert` gives follow from "
                    f"input {number} and from another one together. {ADVICE}"
                ]
            touched[place] = changed if earlier is None else changed | earlier
        return []

    def _converted(self, inputs: Tensors) -> Tensors:
        self._wait()
        begin = time.perf_counter()
        converted = self._prepared.convert(inputs)
        self._wait()
        took = time.perf_counter() - begin
        self.seconds = took if self.seconds is None else min(took, self.seconds)
        return converted


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Another value in every element that is not zero; integers stay, because they may be indices."""
    if not tensor.is_floating_point():
        return tensor
    return (tensor.double() * -0.5).to(tensor.dtype)


def _one_changed(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in which one ordinary element is another: the largest of the first few may be what all are scaled by."""
    other = tensor.clone()
    row = other
    while row.dim() > 1:
        row = row[0]
    row = row.reshape(-1)[:64] if row.dim() else row.reshape(1)
    sizes = row.double().abs()
    place = int(sizes.argsort()[len(sizes) // 2])
    row[place : place + 1].copy_(_other(row[place : place + 1]))
    return other


def _differs(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where the first holds other bits than the second: everywhere, if that has another shape."""
    import torch

    if one.shape != other.shape:
        return torch.ones_like(one, dtype=torch.bool)
    return as_integers(one).ne(as_integers(other))

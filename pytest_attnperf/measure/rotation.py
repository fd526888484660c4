"""Measures whether a call is as fast when its inputs change before every call.

Timed inputs repeat. So a kernel that caches its results, or returns one when its inputs look familiar, is right in
every check and fast in every block. Only its time on changing inputs shows this. The inputs change little before every
call, at a cost that does not grow with their size.

Some 64-bit words of each input, spread over it, change. The bits that change belong to a mantissa, so values stay
finite, normal and of similar size. 0, infinity, NaN and denormals stay, because they may form a mask or an empty cache.
Integers stay, too: a changed index may point anywhere.

Whatever summary of the contents a kernel compares must change. The first element of every word counts the turns, and
the number of words is odd. So the sum and the exclusive or of all bits are new in every turn until that mantissa wraps.
For narrow types the second elements count these wraps, spread so that their sum grows by one. The others of the first
word hold the wraps as digits, so that 64-bit words still differ. In every word except an input's first, the first
element swaps places with a random one: a kernel cannot rely on elements that never change.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.records import Rotation
from pytest_attnperf.workloads.input_memory import as_integers, each_once, memory_span

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from pytest_attnperf.backends import Prepared

ROUNDS = 7
CALLS_PER_BLOCK = 8

WORD_BYTES = 8
WORDS_LEAST = 513
"""Sums of bf16 are new for 65,000 turns, and a turn takes about ten microseconds on a CPU."""

WORDS_PER_US = {"cpu": 4}
WORDS_PER_US_ELSEWHERE = 1000
"""Words per microsecond of the call: turning them takes about a tenth of the call's time."""

WORDS_MOST = 1 << 17
"""They take 16 MiB or more in addition to an input."""


def measure_rotation(prepared: Prepared, torch_device: str, block_us: float, call_us: float) -> Rotation:
    """Times calls on constant inputs, and calls before each of which every floating-point input changes.

    The change itself is timed alone and subtracted. The three take turns, so that other load on the machine affects all
    of them. The inputs change in the memory where they were timed, because a kernel may cache results for that memory
    only. Afterwards they are restored.

    call_us   approximate time of a call, so that a block holds several
    """
    inputs = [each_once(tensor.detach()) for tensor in prepared.tensors]
    kept = [tensor.clone() for tensor in inputs]
    try:
        return _measure_rotation(prepared, torch_device, block_us, call_us)
    finally:
        for tensor, value in zip(inputs, kept, strict=True):
            tensor.copy_(value)


def _measure_rotation(prepared: Prepared, torch_device: str, block_us: float, call_us: float) -> Rotation:
    turn = Turning(prepared.tensors, call_us)

    def turn_and_run() -> Any:
        turn()
        return prepared.run()

    length_us = max(block_us, call_us * CALLS_PER_BLOCK)
    with contextlib.ExitStack() as stack:
        timers = [choose_timer(torch_device, call, length_us) for call in (prepared.run, turn, turn_and_run)]
        for timer in timers:
            stack.callback(timer.close)
        rounds = [[timer.measure(1)[0] for timer in timers] for _ in range(ROUNDS)]
    same, turns, both = (list(times) for times in zip(*rounds, strict=True))
    rotating_us = median(both) - median(turns)
    return Rotation(
        same_us=median(same),
        rotating_us=max(0.0, rotating_us),
        turn_us=median(turns),
        noise_us=max(0.0, rotating_us) - max(0.0, min(both) - sorted(turns)[-2]),
    )


@dataclass(frozen=True)
class WordSample:
    """The words of one input that change, one row each; bits are `fixed | ((turn + start) >> shift) & free`.

    target   a view of the input's memory, as integers of the elements' width
    free     the bits that change; 0 for an element that stays
    """

    target: torch.Tensor
    fixed: torch.Tensor
    free: torch.Tensor
    start: torch.Tensor
    shift: torch.Tensor


class Turning:
    """Changes every floating-point input in place at each call; a captured call changes them at each replay, too.

    call_us   how long the call that is timed with it takes
    """

    def __init__(self, tensors: Iterable[torch.Tensor], call_us: float) -> None:
        import torch

        floats = [_as_real(tensor.detach()) for tensor in tensors]
        self._samples = [
            sample_words(tensor, count_words(tensor, call_us))
            for tensor in floats
            if tensor.is_floating_point() and tensor.numel()
        ]
        if not self._samples:
            return
        # One computation for all inputs: an operator takes as long as some thousand elements.
        self._fixed, self._free, self._start, self._shift = (
            torch.cat([getattr(sample, name).flatten() for sample in self._samples])
            for name in ("fixed", "free", "start", "shift")
        )
        self._turn = torch.zeros((), dtype=torch.int64, device=self._fixed.device)
        self._bits = torch.empty_like(self._fixed)
        sizes = [sample.target.numel() for sample in self._samples]
        parts = torch.split(self._bits, sizes)
        self._parts = [part.view(one.target.shape) for part, one in zip(parts, self._samples, strict=True)]

    def __call__(self) -> None:
        """Writes new values into the sampled words of every input; does nothing if no input is floating-point."""
        import torch

        if not self._samples:
            return
        torch.add(self._start, self._turn.add_(1), out=self._bits)
        self._bits.bitwise_right_shift_(self._shift).bitwise_and_(self._free).bitwise_or_(self._fixed)
        for sample, part in zip(self._samples, self._parts, strict=True):
            sample.target.copy_(part)


def count_words(tensor: torch.Tensor, call_us: float) -> int:
    """Returns how many 8-byte words of a tensor change before a call: 513 to 131072, more if `call_us` is longer."""
    affordable = int(WORDS_PER_US.get(tensor.device.type, WORDS_PER_US_ELSEWHERE) * call_us)
    return min(WORDS_MOST, max(WORDS_LEAST, affordable))


def sample_words(tensor: torch.Tensor, most: int) -> WordSample:
    """Selects at most `most` words of a floating-point tensor, including the first, for any memory layout."""
    import torch

    width, mantissa = tensor.element_size(), _mantissa_bits(tensor.dtype)
    target = _view_words(tensor, most)
    lanes, count = target.shape[-1], target.shape[:-1].numel()
    drawn = random.SystemRandom().randrange(lanes)
    bits = _swap_elements(target.to(torch.int64).reshape(count, lanes), drawn)
    free = torch.full_like(bits, (1 << mantissa) - 1)
    free[1:, 2:] = 0
    free *= _is_normal(bits, width, mantissa)
    if count > 1 and int(free[:, 0].count_nonzero()) % 2 == 0:
        free[free[:, 0].nonzero()[-1:], 0] = 0  # an even number of equal bits would leave the exclusive or unchanged
    start, shift = torch.zeros_like(free), torch.zeros_like(free)
    for lane in range(2, lanes):
        shift[:, lane] = mantissa * (lane - 1)
    if lanes > 1:
        # Each time that the first elements wrap (every 2^mantissa turns), one of these 2^n elements grows.
        place = (free[:, 1] > 0).cumsum(0) - 1
        halvings = max(1, int(place[-1]) + 1).bit_length() - 1
        free[:, 1].masked_fill_(place >= 1 << halvings, 0)
        start[:, 1], shift[:, 1] = place << mantissa, mantissa + halvings
    return WordSample(target, *(_swap_elements(each, drawn) for each in (bits & ~free, free, start, shift)))


def _swap_elements(words: torch.Tensor, other: int) -> torch.Tensor:
    """Swaps the first element of every word except the first word with another element."""
    swapped = words.clone()
    swapped[1:, 0], swapped[1:, other] = words[1:, other], words[1:, 0]
    return swapped


def _view_words(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """Returns at most `most` words as integers, in a view of shape (..., elements of a word); no element is in two."""
    bits = each_once(as_integers(tensor))
    reach = memory_span(bits)
    if reach > bits.numel():  # memory between the elements is not the input's
        while bits.numel() > most:
            longest = max(range(bits.dim()), key=bits.shape.__getitem__)
            bits = bits[(slice(None),) * longest + (slice(None, None, 2),)]
        return bits.unsqueeze(-1)
    lanes = min(WORD_BYTES // bits.element_size(), reach)
    count = min(most, reach // lanes)
    return bits.as_strided((count, lanes), (reach // lanes // count * lanes, 1), bits.storage_offset())


def _is_normal(bits: torch.Tensor, width: int, mantissa: int) -> torch.Tensor:
    """Returns a mask, True where the exponent is neither the least (0, denormals) nor the largest (infinity, NaN)."""
    most = (1 << (8 * width - 1 - mantissa)) - 1
    exponent = (bits >> mantissa) & most
    return (exponent > 0) & (exponent < most)


def _mantissa_bits(dtype: torch.dtype) -> int:
    """Returns the number of stored mantissa bits: eps is the value of the last one relative to 1."""
    import torch

    return round(-torch.log2(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64)).item())


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.view_as_real(tensor) if tensor.is_complex() else tensor

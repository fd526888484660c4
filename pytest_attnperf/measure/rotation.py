"""Measures whether a call is as fast when its inputs change before every call.

Timed inputs repeat. So a kernel that caches its results, or returns one when its inputs look familiar, is right in
every check and fast in every block. Only its time on changing inputs shows this. The inputs change little before every
call, at a cost that does not grow with their size.

Some 64-bit words of each input, spread over it, change; every element does where that costs little. The bits that
change belong to a mantissa, so values stay finite, normal and of similar size. 0, infinity, NaN and denormals stay,
because they may form a mask or an empty cache. Integers stay, too: a changed index may point anywhere.

Whatever summary of the contents a kernel compares must change. The first element of every word counts the turns, and
the number of words is odd. So the sum and the exclusive or of all bits are new in every turn until that mantissa wraps.
For narrow types the second elements count these wraps, spread so that their sum grows by one. The others of the first
word hold the wraps as digits, so that 64-bit words still differ. In every word except an input's first, the first
element swaps places with a random one: a kernel cannot rely on elements that never change. Turns are counted from a
random number: results that another process left on disk are of other inputs.

Where Python runs in every timed call, the last result is compared with that of two calls after a pause, because a call
that knows who calls it may return an old result here, too.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.repeated_calls import PAUSE_SECONDS, list_apart
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.host import HostTimer
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

BYTES_PER_US = {"cpu": 4000}
BYTES_PER_US_ELSEWHERE = 1_000_000
"""Bytes of input whose elements all change in a microsecond: a pass that reads and writes them."""

WHOLE_US, WHOLE_SHARE = 64.0, 0.25
"""Every element changes where that takes no longer than the larger of WHOLE_US and this share of the call. A call that
remembers its results is quick, so its own time alone would excuse it."""

WHOLE_BYTES_MOST = 1 << 28
"""Bytes of all inputs that change whole: finding their normal elements takes several times their memory."""

WHOLE_WORDS = 33
"""Words of an input that change besides all its elements; half of their own elements change seldom."""

FIRST_TURNS, FIRST_STEP = 1 << 30, 256
"""Turns are counted from a random multiple of FIRST_STEP, at most this one, so that the first turn changes a value."""


def measure_rotation(
    prepared: Prepared, torch_device: str, block_us: float, call_us: float, stale: list[str] | None = None
) -> Rotation:
    """Times calls on constant inputs, and calls before each of which every floating-point input changes.

    The change itself is timed alone and subtracted. The three take turns, so that other load on the machine affects all
    of them. The inputs change in the memory where they were timed, because a kernel may cache results for that memory
    only. Afterwards they are restored.

    call_us   approximate time of a call, so that a block holds several
    stale     gets, in words, each result of the last block that is not that of its inputs; None for calls that write
              to their inputs
    """
    inputs = [each_once(tensor.detach()) for tensor in prepared.tensors]
    kept = [tensor.clone() for tensor in inputs]
    try:
        return _measure_rotation(prepared, torch_device, block_us, call_us, stale)
    finally:
        for tensor, value in zip(inputs, kept, strict=True):
            tensor.copy_(value)


def _measure_rotation(
    prepared: Prepared, torch_device: str, block_us: float, call_us: float, stale: list[str] | None
) -> Rotation:
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
        if stale is not None and isinstance(timers[-1], (HostTimer, EventTimer)):
            stale += _list_stale(prepared, turn, timers[-1].last)
    same, turns, both = (list(times) for times in zip(*rounds, strict=True))
    rotating_us = median(both) - median(turns)
    return Rotation(
        same_us=median(same),
        rotating_us=max(0.0, rotating_us),
        noise_us=max(0.0, rotating_us) - max(0.0, min(both) - sorted(turns)[-2]),
    )


def _list_stale(prepared: Prepared, turn: Turning, raw: Any) -> list[str]:
    """Returns, in words, each result in `raw`, what a call on changed inputs returned, that is not the result of two
    calls on these inputs after a pause. A call on other inputs comes between."""
    import torch

    hot = _copy_results(raw)
    held = [each_once(tensor.detach()) for tensor in prepared.tensors]
    turned = [tensor.clone() for tensor in held]
    turn()
    prepared.run()
    with torch.no_grad():
        for tensor, value in zip(held, turned, strict=True):
            tensor.copy_(value)
    time.sleep(PAUSE_SECONDS)
    cool, again = _copy_results(prepared.run()), _copy_results(prepared.run())
    return [
        f"result {number} of a call is off by {off:.3g}, where the rms is {size:.3g}: its inputs change before every "
        "call, and a call on the same inputs after a pause disagrees; a call must compute its result whoever makes it"
        for number, off, size in (list_apart(hot, cool, again) if len(hot) == len(cool) == len(again) else ())
    ]


def _copy_results(raw: Any) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in poison.tensors_in(raw)]


@dataclass(frozen=True)
class WordSample:
    """The words of one input that change, one row each; bits are `fixed | ((turn + start) >> shift) & free`.

    target   a view of the input's memory, as integers of the elements' width
    free     the bits that change; 0 for an element that stays
    turns    in so many turns, from 0 on, no sum of the elements' bits comes again
    """

    target: torch.Tensor
    fixed: torch.Tensor
    free: torch.Tensor
    start: torch.Tensor
    shift: torch.Tensor
    turns: int


class Turning:
    """Changes every floating-point input in place at each call; a captured call changes them at each replay, too.

    call_us    how long the call that is timed with it takes
    whole_us   most microseconds that changing every element may take, if that is more than WHOLE_SHARE of the call
    """

    def __init__(self, tensors: Iterable[torch.Tensor], call_us: float, whole_us: float = WHOLE_US) -> None:
        import torch

        floats = [_as_real(tensor.detach()) for tensor in tensors]
        floats = [tensor for tensor in floats if tensor.is_floating_point() and tensor.numel()]
        wholes = _select_wholes(floats, max(whole_us, WHOLE_SHARE * call_us))
        kinds = dict.fromkeys((tensor.dtype, tensor.device) for tensor in wholes)
        self._wholes = [_Wholes([one for one in wholes if (one.dtype, one.device) == kind]) for kind in kinds]
        self._samples = [
            sample_words(tensor, count_words(tensor, call_us), whole=any(one is tensor for one in wholes))
            for tensor in floats
        ]
        if not self._samples:
            return
        # One computation for all inputs: an operator takes as long as some thousand elements.
        self._fixed, self._free, self._start, self._shift = (
            torch.cat([getattr(sample, name).flatten() for sample in self._samples])
            for name in ("fixed", "free", "start", "shift")
        )
        most = min(FIRST_TURNS, *(sample.turns // 4 for sample in self._samples))
        first = random.SystemRandom().randrange(most + 1) // FIRST_STEP * FIRST_STEP
        self._turn = torch.full((), first, dtype=torch.int64, device=self._fixed.device)
        self._bits = torch.empty_like(self._fixed)
        sizes = [sample.target.numel() for sample in self._samples]
        parts = torch.split(self._bits, sizes)
        self._parts = [part.view(one.target.shape) for part, one in zip(parts, self._samples, strict=True)]

    def __call__(self) -> None:
        """Writes new values into the sampled words of every input, and into all elements of those that change whole;
        does nothing if no input is floating-point."""
        import torch

        if not self._samples:
            return
        torch.add(self._start, self._turn.add_(1), out=self._bits)
        for whole in self._wholes:
            whole.change(self._turn)
        self._bits.bitwise_right_shift_(self._shift).bitwise_and_(self._free).bitwise_or_(self._fixed)
        for sample, part in zip(self._samples, self._parts, strict=True):
            sample.target.copy_(part)


class _Wholes:
    """Inputs of one dtype whose elements all change: their mantissas are combined with a number of the turn, by an
    exclusive or, which is another one for 2^mantissa turns."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        dtype = tensors[0].dtype
        mantissa = _mantissa_bits(dtype)
        self._mask = (1 << mantissa) - 1
        self._factor = random.SystemRandom().randrange(1 << mantissa) | 1
        self._turns = 0
        self._targets = [as_integers(tensor) for tensor in tensors]
        normal = [_is_normal(target, dtype.itemsize, mantissa) for target in self._targets]
        self._free = [
            None if bool(each.all()) else each.to(target.dtype).mul_(self._mask)
            for each, target in zip(normal, self._targets, strict=True)
        ]
        self._changes = [None if free is None else free.clone() for free in self._free]

    def change(self, turn: torch.Tensor) -> None:
        """Replaces the number of the turn before by that of `turn`, shape (), int64."""
        import torch

        changed = self._find_change(turn)
        for target, free, change in zip(self._targets, self._free, self._changes, strict=True):
            target.bitwise_xor_(changed if free is None else torch.bitwise_and(free, changed, out=change))

    def _find_change(self, turn: torch.Tensor) -> Any:
        """Returns the bits by which the numbers of this turn and of the last one differ: a Python number on a CPU, as
        an operator takes as long there as a small input; a tensor where a graph has to compute it."""
        if turn.device.type == "cpu":
            self._turns += 1
            now = self._turns * self._factor
            return (now ^ (now - self._factor)) & self._mask
        wide = turn * self._factor
        return (wide ^ (wide - self._factor)).bitwise_and_(self._mask).to(self._targets[0].dtype)


def _select_wholes(tensors: list[torch.Tensor], most_us: float) -> list[torch.Tensor]:
    """Returns those of some inputs whose elements all change, if that takes at most `most_us` for all: inputs that lie
    densely in memory that no other one shares."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    rates = [BYTES_PER_US.get(tensor.device.type, BYTES_PER_US_ELSEWHERE) for tensor in tensors]
    if sum(size / rate for size, rate in zip(sizes, rates, strict=True)) > most_us or sum(sizes) > WHOLE_BYTES_MOST:
        return []
    return [
        tensor
        for number, tensor in enumerate(tensors)
        if each_once(tensor) is tensor
        and memory_span(tensor) == tensor.numel()
        and not any(poison.has_overlap(tensor, other) for other in tensors[:number] + tensors[number + 1 :])
    ]


def count_words(tensor: torch.Tensor, call_us: float) -> int:
    """Returns how many 8-byte words of a tensor change before a call: 513 to 131072, more if `call_us` is longer."""
    affordable = int(WORDS_PER_US.get(tensor.device.type, WORDS_PER_US_ELSEWHERE) * call_us)
    return min(WORDS_MOST, max(WORDS_LEAST, affordable))


def sample_words(tensor: torch.Tensor, most: int, *, whole: bool = False) -> WordSample:
    """Selects at most `most` words of a floating-point tensor, including the first, for any memory layout. Of a dense
    tensor that changes `whole` it selects few, from a random one on."""
    import torch

    width, mantissa = tensor.element_size(), _mantissa_bits(tensor.dtype)
    target = _view_words(tensor, min(most, WHOLE_WORDS) if whole else most, anywhere=whole)
    lanes, count = target.shape[-1], target.shape[:-1].numel()
    drawn = random.SystemRandom().randrange(lanes)
    bits = _swap_elements(target.to(torch.int64).reshape(count, lanes), drawn)
    free = torch.full_like(bits, (1 << mantissa) - 1)
    free[1:, 2:] = 0
    free *= _is_normal(bits, width, mantissa)
    if count > 1 and int(free[:, 0].count_nonzero()) % 2 == 0:
        free[free[:, 0].nonzero()[-1:], 0] = 0  # an even number of equal bits would leave the exclusive or unchanged
    start, shift, turns = torch.zeros_like(free), torch.zeros_like(free), 1 << mantissa
    for lane in range(2, lanes):
        shift[:, lane] = mantissa * (lane - 1)
    if lanes > 1:
        # Each time that the first elements wrap (every 2^mantissa turns), one of these 2^n elements grows.
        place = (free[:, 1] > 0).cumsum(0) - 1
        halvings = max(1, int(place[-1]) + 1).bit_length() - 1
        free[:, 1].masked_fill_(place >= 1 << halvings, 0)
        start[:, 1], shift[:, 1] = place << mantissa, mantissa + halvings
        turns <<= max(0, mantissa + halvings - 1)
    fixed, free, start, shift = (_swap_elements(each, drawn) for each in (bits & ~free, free, start, shift))
    return WordSample(target, fixed, free, start, shift, turns)


def _swap_elements(words: torch.Tensor, other: int) -> torch.Tensor:
    """Swaps the first element of every word except the first word with another element."""
    swapped = words.clone()
    swapped[1:, 0], swapped[1:, other] = words[1:, other], words[1:, 0]
    return swapped


def _view_words(tensor: torch.Tensor, most: int, *, anywhere: bool = False) -> torch.Tensor:
    """Returns at most `most` words as integers, in a view of shape (..., elements of a word); no element is in two. The
    first word is the tensor's, or with `anywhere` a random one of the first that may come first."""
    bits = each_once(as_integers(tensor))
    reach = memory_span(bits)
    if reach > bits.numel():  # memory between the elements is not the input's
        while bits.numel() > most:
            longest = max(range(bits.dim()), key=bits.shape.__getitem__)
            bits = bits[(slice(None),) * longest + (slice(None, None, 2),)]
        return bits.unsqueeze(-1)
    lanes = min(WORD_BYTES // bits.element_size(), reach)
    count = min(most, reach // lanes)
    step = reach // lanes // count
    first = random.SystemRandom().randrange(step) * lanes if anywhere else 0
    return bits.as_strided((count, lanes), (step * lanes, 1), bits.storage_offset() + first)


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

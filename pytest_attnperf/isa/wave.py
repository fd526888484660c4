"""The state of one wave of 64 or 32 lanes: registers, masks, and what is in flight.

A register has, beside its value, a mask of the lanes that were written. A load clears it at its issue, and writes
register and mask where a wait allows the result: a read before that finds an unwritten register.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault, IsaError
from pytest_attnperf.isa.lds import Lds
from pytest_attnperf.isa.memory import POISON, Array, GlobalMemory
from pytest_attnperf.isa.operands import EXEC, M0, MOVED, name_scalar, name_vector

if TYPE_CHECKING:
    from pytest_attnperf.isa.recording import WaveRecorder

_VECTOR_REGISTERS = MOVED[-1] + 1
_SCALAR_REGISTERS = 128
_WORD = 0xFFFFFFFF

Step: TypeAlias = "Callable[[Wave], object]"
"""One instruction, ready to run. It returns True where the wave stops: at a barrier or its end."""


CounterName: TypeAlias = Literal["vm", "store", "lds", "scalar"]


@dataclass
class Access:
    """A memory access in flight.

    counter    'vm' global memory, 'store' its stores where they have a counter of their own (gfx11), 'lds', 'scalar'
               (the latter two share lgkmcnt before gfx12)
    complete   performs it
    index, place, mask   of its instruction: its number in the program; where a recorder watches, its number among those
                         that the wave executed, and the active lanes
    store      whether it stores to global memory
    flat       whether it counts in two counters, as one that may reach LDS does: it ends in no order with others
    """

    counter: CounterName
    complete: Callable[[], None]
    index: int = -1
    place: int = -1
    mask: int = 0
    store: bool = False
    flat: bool = False


@lru_cache(maxsize=4096)
def lanes_of(mask: int, size: int = 64) -> Array:
    """Returns a mask of `size` bits as booleans, which must not be changed."""
    bits = np.unpackbits(np.frombuffer(mask.to_bytes(size // 8, "little"), np.uint8), bitorder="little").astype(bool)
    bits.setflags(write=False)
    return bits


@lru_cache(maxsize=4096)
def active_of(mask: int) -> Array:
    """Returns the numbers of the lanes in a mask."""
    return np.flatnonzero(lanes_of(mask))


def mask_of(lanes: Array) -> int:
    """Returns the booleans of all lanes as an integer."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


@dataclass
class Wave:
    """One wave.

    number, place     its number in the workgroup, and a text that names both
    size, full        its lanes, and the mask of all of them
    vectors           uint32 (514, size): v0 to v255, a0 to a255, `MOVED`; f32 and i32 are views of it, halves of the
                      lower and of the upper 16 bits of each lane
    written           a mask of lanes per vector register
    scalars           values of 32 bits by number in the encoding; None was never written; `unknown` has the bits of
                      others that were not
    kept_scalars      (vector register, lane) -> a scalar register that is kept there: its value, and its bits that
                      nothing wrote
    index_mode        'SRC0' and 'DST', where M0 raises the register numbers of moves; None does not
    exec_mask, scc    EXEC as an integer; SCC as 0 or 1, None was never written
    indices           address -> number of the instruction, for branches
    index             of the next instruction
    mode              the MODE register: round to nearest even, denormals kept, DX10_CLAMP and IEEE
    clock             what S_MEMTIME read last
    scratch           memory of each lane's own (`scratch.Scratch`), if the kernel has any
    actor             its number among all waves of the launch, for races
    trace             numbers of the last instructions, in a program with hazards
    yielded           whether it sleeps, so that another wave should run
    signalled         whether it has signalled at a barrier that it has not waited at (gfx12)
    """

    number: int
    place: str
    memory: GlobalMemory
    lds: Lds
    indices: Mapping[int, int] = field(default_factory=dict)
    index: int = 0
    size: int = 64
    scc: int | None = None
    ended: bool = False
    signalled: bool = False
    yielded: bool = False
    actor: int = 0
    trace: deque[int] = field(default_factory=lambda: deque(maxlen=24))
    executed: int = 0
    mode: int = 0x3F0
    clock: int = 0
    scalars: list[int | None] = field(default_factory=lambda: [None] * _SCALAR_REGISTERS)
    unknown: dict[int, int] = field(default_factory=dict)
    index_mode: frozenset[str] | None = None
    kept_scalars: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    written: list[int] = field(default_factory=lambda: [0] * _VECTOR_REGISTERS)
    flying: dict[int, int] = field(default_factory=dict)
    landed: dict[int, int] = field(default_factory=dict)
    flying_scalars: set[int] = field(default_factory=set)
    queue: deque[Access] = field(default_factory=deque)
    recorder: WaveRecorder | None = None
    scratch: object = None

    def __post_init__(self) -> None:
        self.full = (1 << self.size) - 1
        self.vectors = np.full((_VECTOR_REGISTERS, self.size), POISON * 0x01010101, np.uint32)
        self.f32 = self.vectors.view(np.float32)
        self.i32 = self.vectors.view(np.int32)
        halves = self.vectors.view(np.uint16)
        self.halves = halves[:, ::2], halves[:, 1::2]
        self.set_exec(self.full)

    def jump(self, address: int) -> None:
        """Continues at an address. Raises ExecutionFault if no instruction begins there."""
        if address not in self.indices:
            raise ExecutionFault(f"jumps to {address:#x}, where no instruction of the kernel begins")
        self.index = self.indices[address]

    # Scalar registers.

    def read_scalar(self, number: int) -> int:
        """Returns 32 bits. Raises ExecutionFault for a register that nothing wrote or whose load is in flight."""
        if number >= EXEC:
            return self.exec_mask >> 32 * (number - EXEC) & _WORD
        value = self.scalars[number]
        if value is None or number in self.unknown:
            how = "its load is in flight: no s_waitcnt covers it" if number in self.flying_scalars else "nothing wrote"
            raise ExecutionFault(f"reads {name_scalar(number)}: {how}")
        return value

    def read_scalar_pair(self, number: int) -> int:
        """Returns the 64 bits of two registers."""
        if number == EXEC:
            return self.exec_mask
        return self.read_scalar(number) | self.read_scalar(number + 1) << 32

    def write_scalar(self, number: int, value: int) -> None:
        """Writes 32 bits. Raises ExecutionFault where a load of the register is in flight."""
        if number >= EXEC:
            shift = 32 * (number - EXEC)
            self.set_exec(self.exec_mask & ~(_WORD << shift) | (value & _WORD) << shift)
            return
        if number in self.flying_scalars:
            raise ExecutionFault(f"writes {name_scalar(number)}, whose load is in flight")
        self.scalars[number] = value & _WORD
        self.unknown.pop(number, None)

    def write_scalar_pair(self, number: int, value: int) -> None:
        """Writes 64 bits into two registers."""
        if number == EXEC:
            self.set_exec(value)
            return
        self.write_scalar(number, value & _WORD)
        self.write_scalar(number + 1, value >> 32)

    def read_known_bits(self, number: int, words: int = 2) -> tuple[int, int]:
        """Returns the bits of `words` registers, and which of them nothing wrote; those are 0 in the first.

        For masks of lanes: compilers keep the bits of some lanes of a register that holds nothing yet, and replace them
        before they matter. Raises ExecutionFault where a load of a register is in flight.
        """
        if number >= EXEC:
            return self.exec_mask >> 32 * (number - EXEC) & (1 << 32 * words) - 1, 0
        value = missing = 0
        for place in range(words):
            held = self.scalars[number + place]
            if held is None and number + place in self.flying_scalars:
                self.read_scalar(number + place)
            unknown = _WORD if held is None else self.unknown.get(number + place, 0)
            value |= (held or 0) << 32 * place
            missing |= unknown << 32 * place
        return value & ~missing, missing

    def write_known_bits(self, number: int, value: int, missing: int, words: int = 2) -> None:
        """Writes the bits of `words` registers, of which those in `missing` are not known. Raises ExecutionFault for
        EXEC, whose bits must."""
        if missing and number >= EXEC:
            raise ExecutionFault("writes bits into exec that nothing wrote")
        (self.write_scalar_pair if words == 2 else self.write_scalar)(number, value)
        for place in range(words):
            if unknown := missing >> 32 * place & _WORD:
                self.unknown[number + place] = unknown

    def read_mask(self, number: int) -> int:
        """Returns a mask of lanes. Raises ExecutionFault if nothing wrote the bit of an active lane."""
        value, missing = self.read_known_bits(number, self.size // 32)
        if missing & self.exec_mask:
            raise ExecutionFault(f"reads {name_scalar(number)} as a mask of lanes: nothing wrote it for an active lane")
        return value

    def read_scc(self) -> int:
        """Returns SCC. Raises ExecutionFault if nothing wrote it."""
        if self.scc is None:
            raise ExecutionFault("reads scc, which nothing wrote")
        return self.scc

    def set_exec(self, mask: int) -> None:
        """Sets the active lanes."""
        self.exec_mask = mask = mask & self.full
        self.lanes = lanes_of(mask, self.size)

    # Vector registers.

    def require_written(self, number: int, mask: int) -> None:
        """Raises ExecutionFault unless the lanes in `mask` of a vector register were written."""
        missing = mask & ~self.written[number]
        if missing:
            lane = (missing & -missing).bit_length() - 1
            how = "nothing wrote it there"
            if self.flying.get(number):
                how = "its load is in flight: no s_waitcnt covers it"
            raise ExecutionFault(f"reads lane {lane} of {name_vector(number)}: {how}")

    def find_missing(self, kind: str, number: int) -> int:
        """Returns the active lanes of a vector ('v') or scalar ('s') register that nothing wrote; a load in flight is
        no such register."""
        if kind == "v":
            return 0 if self.flying.get(number) else self.exec_mask & ~self.written[number]
        if kind != "s" or number >= M0 or number in self.flying_scalars:
            return 0
        return self.exec_mask if self.scalars[number] is None or number in self.unknown else 0

    def require_landed(self, number: int) -> None:
        """Raises ExecutionFault if a load of the vector register is in flight."""
        if self.flying.get(number):
            raise ExecutionFault(f"writes {name_vector(number)}, whose load is in flight")

    def write_words(self, number: int, values: Array, mask: int) -> None:
        """Writes uint32 (size,) into the lanes in `mask` of a vector register."""
        if mask == self.full:
            self.vectors[number] = values
        else:
            np.copyto(self.vectors[number], values, where=lanes_of(mask, self.size))
        self.written[number] |= mask

    # Accesses in flight.

    def start_load(self, first: int, count: int, mask: int) -> None:
        """Marks registers whose values a load will bring: until then they count as unwritten."""
        for number in range(first, first + count):
            self.flying[number] = self.flying.get(number, 0) + 1
            self.written[number] &= ~mask

    def finish_load(self, first: int, words: Array, mask: int) -> None:
        """Writes what a load brought, uint32 (active lanes, registers), into the lanes in `mask`."""
        active = active_of(mask)
        for column in range(words.shape[1]):
            number = first + column
            self.vectors[number][active] = words[:, column]
            self._land(number, mask)

    def finish_half(self, number: int, half: int, values: Array, mask: int) -> None:
        """Writes what a load of 16 bits brought, one value per active lane, into one half of a register. The other half
        stays, written or not: two loads fill a register together."""
        self.halves[half][number][active_of(mask)] = values
        self._land(number, mask)

    def _land(self, number: int, mask: int) -> None:
        """Marks lanes as written when the last load of the register has ended."""
        self.flying[number] -= 1
        landed = self.landed.pop(number, 0) | mask
        if self.flying[number]:
            self.landed[number] = landed
        else:
            self.written[number] |= landed

    def wait_vm(self, left: int) -> None:
        """Completes accesses to global memory, which end in order, until at most `left` are in flight."""
        self._complete("vm", left)

    def wait_lgkm(self, left: int) -> None:
        """Completes LDS and scalar accesses until at most `left` can be in flight.

        LDS accesses end in order, scalar loads in any: unless all are waited for, the scalar ones may be those that
        have ended, so that as many fewer LDS accesses are known to be complete.
        """
        scalar = sum(access.counter == "scalar" for access in self.queue)
        lds = sum(access.counter == "lds" for access in self.queue)
        if left == 0:
            self._complete("scalar", 0)
            self._complete("lds", 0)
        else:
            self._complete("lds", min(lds, left))
            if scalar and lds + scalar > left:
                raise ExecutionFault(
                    f"waits for lgkmcnt({left}) with {scalar} scalar loads in flight, which end in any order"
                )

    def wait_stores(self, left: int) -> None:
        """Completes stores to global memory until at most `left` are in flight, where they are counted alone."""
        self._complete("store", left)

    def wait_lds(self, left: int) -> None:
        """Completes LDS accesses until at most `left` are in flight, where they are counted alone (gfx12)."""
        self._complete("lds", left)

    def wait_scalar(self, left: int) -> None:
        """Completes scalar loads, where they are counted alone (gfx12). Raises ExecutionFault for a wait for some of
        them, because they end in any order."""
        scalar = sum(access.counter == "scalar" for access in self.queue)
        if left and scalar > left:
            raise ExecutionFault(f"waits until {left} of {scalar} scalar loads are in flight, which end in any order")
        self._complete("scalar", left)

    def issue(self, counter: CounterName, complete: Callable[[], None], *, store: bool = False) -> None:
        """Queues an access of the instruction that runs."""
        self.queue.append(Access(counter, complete, self.index - 1, store=store))

    def perform_stores(self) -> None:
        """Performs the stores to global memory that are in flight; they stay counted."""
        for access in self.queue:
            if access.store:
                self._finish(access)
                access.complete = lambda: None

    def issue_flat(
        self,
        parts: Mapping[CounterName, Callable[[], None]],
        finish: Callable[[], None] | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        """Queues an access that may reach LDS or global memory: its part in each is done when that counter says so, and
        `finish`, which brings the result, when both do. On gfx9 other accesses may end before it; where it is
        `ordered`, as from gfx10 on, both counters count it in order (LLVM, `hasFlatLgkmVMemCountInOrder`)."""
        left = [len(parts)]

        def complete(counter: CounterName) -> None:
            parts[counter]()
            left[0] -= 1
            if finish and not left[0]:
                finish()

        for counter in parts:
            self.queue.append(Access(counter, partial(complete, counter), self.index - 1, flat=not ordered))

    def drain(self) -> None:
        """Completes everything that is in flight, as the end of the program does."""
        while self.queue:
            self._finish(self.queue.popleft())

    def _finish(self, access: Access) -> None:
        (perform if self.recorder is None else self.recorder.complete)(access)

    def _complete(self, counter: str, left: int) -> None:
        pending = sum(access.counter == counter for access in self.queue)
        if pending <= left:
            return
        if left and any(access.flat and access.counter == counter for access in self.queue):
            raise ExecutionFault(
                f"waits until {left} of {pending} accesses are in flight, of which a flat one may end first"
            )
        kept: deque[Access] = deque()
        for access in self.queue:
            if access.counter == counter and pending > left:
                self._finish(access)
                pending -= 1
            elif access.counter == "store" and counter == "vm" and pending > left:
                # A load sees what its wave stored before, waited for or not.
                self._finish(access)
            else:
                kept.append(access)
        self.queue = kept


def perform(access: Access) -> None:
    """Performs an access. What it raises names its instruction, not the wait."""
    try:
        access.complete()
    except IsaError as error:
        if error.issued_at is None:
            error.issued_at = access.index
        raise

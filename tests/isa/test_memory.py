from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import Array, GlobalMemory


def addresses(base: int, *offsets: int) -> Array:
    """Addresses as a lane holds them."""
    return np.array([base + offset for offset in offsets], np.uint64)


def test_values_of_every_width_come_back() -> None:
    """What is stored is loaded, in 1, 2, 4 and 16 bytes, from two buffers at once."""
    memory = GlobalMemory()
    first, second = memory.add("K", 64, bytes(64)), memory.add("V", 64, bytes(64))
    for size in (1, 2, 4, 16):
        places = np.concatenate([addresses(first.base, 16), addresses(second.base, 32)])
        values = np.arange(2 * max(1, size // 4), dtype=np.uint32).reshape(2, -1) + 5
        memory.store(places, size, values)
        assert (memory.load(places, size) == values).all()


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (-4, "4 bytes before the start of K, which has 60 bytes"),
        (60, "4 bytes beyond the end of K"),
        (58, "2 bytes beyond the end of K"),
        (2, "an offset that 4 does not divide"),
        (1 << 40, "near no buffer; there are: K"),
    ],
)
def test_addresses_outside_of_a_buffer(offset: int, message: str) -> None:
    """An access that leaves a buffer is a fault that names it and the distance."""
    memory = GlobalMemory()
    buffer = memory.add("K", 60, bytes(60))
    with pytest.raises(ExecutionFault, match=message):
        memory.load(addresses(buffer.base, 0, offset) if offset < 60 else addresses(buffer.base, offset), 4)


def test_unwritten_bytes_cannot_be_read() -> None:
    """Memory without content holds NaN, and reading it is a fault until it was written."""
    memory = GlobalMemory()
    buffer = memory.add("out", 16)
    assert np.isnan(np.frombuffer(buffer.read_bytes(), np.float32)).all()
    memory.store(addresses(buffer.base, 0), 4, np.array([[1]], np.uint32))
    assert memory.load(addresses(buffer.base, 0), 4)[0, 0] == 1
    with pytest.raises(ExecutionFault, match="byte 4 of out, which nothing wrote"):
        memory.load(addresses(buffer.base, 0), 8)


def test_unaligned_accesses_where_they_are_allowed() -> None:
    """A word or a half at any byte, as the hardware of HSA has it; bounds and unwritten bytes are seen as before."""
    memory = GlobalMemory(aligned=False)
    buffer = memory.add("out", 16)
    memory.store(addresses(buffer.base, 1, 7), 4, np.array([[0x44332211], [0x88776655]], np.uint32))
    assert memory.load(addresses(buffer.base, 7, 1), 4)[:, 0].tolist() == [0x88776655, 0x44332211]
    memory.store(addresses(buffer.base, 3), 2, np.array([[0xBBAA]], np.uint32))
    assert memory.load(addresses(buffer.base, 1), 4)[0, 0] == 0xBBAA2211
    with pytest.raises(ExecutionFault, match="byte 5 of out, which nothing wrote"):
        memory.load(addresses(buffer.base, 3), 4)
    with pytest.raises(ExecutionFault, match="1 bytes beyond the end"):
        memory.load(addresses(buffer.base, 13), 4)

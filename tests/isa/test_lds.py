from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.lds import Lds


def at(*offsets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Addresses."""
    return np.array(offsets, np.int64)


def words(*values: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """A word for each address."""
    return np.array(values, np.uint32)[:, None]


def test_values_of_every_width_come_back() -> None:
    """1, 2, 4, 8 and 16 bytes: what was stored is loaded, the neighbours stay unwritten."""
    lds = Lds(64)
    for size in (1, 2, 4, 8, 16):
        values = np.arange(2 * max(1, size // 4), dtype=np.uint32).reshape(2, -1) + 7
        lds.store(at(0, 32), size, values, 0)
        assert (lds.load(at(0, 32), size, 0) == values).all()
    with pytest.raises(ExecutionFault, match="byte 16 of the LDS, which nothing wrote"):
        lds.load(at(16), 4, 0)


@pytest.mark.parametrize("size", [2, 4])
def test_races_between_barriers(size: int) -> None:
    """Two waves that touch a byte between two barriers race, unless both only read."""
    lds = Lds(64)
    lds.store(at(8), size, words(5), 0)
    with pytest.raises(ExecutionFault, match="wave 1 reads byte 8 of the LDS, which wave 0 wrote"):
        lds.load(at(8), size, 1)
    with pytest.raises(ExecutionFault, match="wave 1 writes byte 8"):
        lds.store(at(8), size, words(6), 1)
    lds.pass_barrier()
    assert lds.load(at(8), size, 1)[0, 0] == 5
    assert lds.load(at(8), size, 2)[0, 0] == 5
    with pytest.raises(ExecutionFault, match="several waves read"):
        lds.store(at(8), size, words(6), 1)
    lds.pass_barrier()
    lds.store(at(8), size, words(6), 1)


def test_the_same_value_of_two_waves_is_no_race() -> None:
    """Two waves may write the same value; who reads it before the barrier races."""
    lds = Lds(64)
    lds.store(at(8), 4, words(5), 0)
    lds.store(at(8), 4, words(5), 1)
    with pytest.raises(ExecutionFault, match="wave 2 reads byte 8 of the LDS, which several waves wrote"):
        lds.load(at(8), 4, 2)
    lds.pass_barrier()
    assert lds.load(at(8), 4, 2)[0, 0] == 5


def test_half_written_words() -> None:
    """A word of which the same wave wrote one half is no race, and its other half was not written."""
    lds = Lds(16)
    lds.store(at(0), 2, words(1), 0)
    with pytest.raises(ExecutionFault, match="byte 2 of the LDS, which nothing wrote"):
        lds.load(at(0), 4, 0)
    lds.store(at(2), 2, words(1), 0)
    assert lds.load(at(0), 4, 0)[0, 0] == 0x10001


def test_bounds_and_alignment() -> None:
    """An address beyond the workgroup's bytes and one that is no multiple of a word are faults."""
    lds = Lds(20)
    lds.store(at(16), 4, words(1), 0)
    with pytest.raises(ExecutionFault, match="has 20 bytes"):
        lds.store(at(20), 4, words(1), 0)
    with pytest.raises(ExecutionFault, match="4 does not divide"):
        lds.store(at(2), 4, words(1), 0)


def test_unaligned_accesses_where_they_are_allowed() -> None:
    """A word at any byte, as the hardware of HSA has it; bounds, unwritten bytes and races are seen as before."""
    lds = Lds(20, aligned=False)
    lds.store(at(3, 9), 4, words(0x44332211, 0x88776655), 0)
    assert lds.load(at(9, 3), 4, 0)[:, 0].tolist() == [0x88776655, 0x44332211]
    assert lds.load(at(5), 2, 0)[0, 0] == 0x4433
    lds.store(at(5), 2, words(0xBBAA), 0)
    assert lds.load(at(3), 4, 0)[0, 0] == 0xBBAA2211
    with pytest.raises(ExecutionFault, match="byte 7 of the LDS, which nothing wrote"):
        lds.load(at(5), 4, 0)
    with pytest.raises(ExecutionFault, match="wave 1 reads byte 3"):
        lds.load(at(3), 4, 1)
    with pytest.raises(ExecutionFault, match="has 20 bytes"):
        lds.load(at(17), 4, 0)


@pytest.mark.parametrize("size", [2, 4])
def test_a_write_after_reads_of_several_waves_races(size: int) -> None:
    """Also for a wave that has read the byte itself, and for a word of which another wave has read a part."""
    lds = Lds(64)
    lds.store(at(8, 16), size, words(5, 6), 0)
    lds.pass_barrier()
    for wave in (0, 1):
        lds.load(at(8), size, wave)
    with pytest.raises(ExecutionFault, match="wave 1 writes byte 8 of the LDS, which several waves read"):
        lds.store(at(8), size, words(9), 1)
    lds.store(at(16), 4, words(6), 0)
    lds.pass_barrier()
    lds.load(at(16), 2, 0)
    lds.load(at(16), 4, 1)
    lds.store(at(18), 2, words(7), 1)
    with pytest.raises(ExecutionFault, match="wave 1 writes byte 16 of the LDS, which several waves read"):
        lds.store(at(16), 2, words(8), 1)

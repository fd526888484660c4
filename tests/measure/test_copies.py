from __future__ import annotations

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.copies import count_copies, make_copies
from pytest_attnperf.workloads.input_memory import count_occupied_bytes


def prepared(*tensors: torch.Tensor) -> Prepared:
    """A call that adds its inputs up."""
    return Prepared(
        call=lambda *own: sum(tensor.sum() for tensor in own),
        tensors=tensors,
        convert=lambda new: new,
        outputs=lambda raw: {"out": raw},
    )


@pytest.mark.parametrize(
    ("held", "wanted"), [(100, 10), (99, 11), (1000, 2), (500, 2), (499, 3), (1 << 40, 2), (1, 1000), (0, None)]
)
def test_copies_outgrow_the_cache(held: int, wanted: int | None) -> None:
    """Together they hold what a round must; always two, because a cache keeps the end of even the largest inputs."""
    assert count_copies(held, 1000) == wanted


def test_copies_hold_the_values_elsewhere() -> None:
    """One fewer than wanted, because the case's own inputs take part; each calls on memory of its own."""
    own = prepared(torch.ones(100))
    copies = make_copies(own, ColdSize(1200, "a note"), "the case")
    assert (len(copies.others), copies.note) == (2, "a note")
    assert len({other.tensors[0].data_ptr() for other in (own, *copies.others)}) == 3
    own.tensors[0].fill_(2.0)
    assert [float(call()) for call in copies.calls] == [100.0, 100.0]
    copies.load_from(own)
    assert [float(call()) for call in copies.calls] == [200.0, 200.0]


def test_loading_from_one_of_the_copies_fills_the_others() -> None:
    """And leaves the case's own inputs alone."""
    own = prepared(torch.zeros(100))
    copies = make_copies(own, ColdSize(1600), "the case")
    copies.others[1].tensors[0].fill_(3.0)
    copies.load_from(copies.others[1])
    assert [float(call()) for call in copies.calls] == [300.0] * 3
    assert float(own.run()) == 0


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((torch.ones(1),), "its inputs hold 4 bytes, so 2621440 copies make the 10 MiB that exceed"),
        ((), "its inputs hold 0 bytes, so no number of copies make the 10 MiB that exceed"),
    ],
)
def test_inputs_too_small_for_a_cold_block_are_refused(tensors: tuple[torch.Tensor, ...], message: str) -> None:
    """The case is named with what it holds, how many copies that would be, and what to do."""
    with pytest.raises(CaseFailedError, match=r"^the case is too small to be timed cold: ") as caught:
        make_copies(prepared(*tensors), ColdSize(10 << 20), "the case")
    assert message in str(caught.value)
    assert str(caught.value).endswith("a block holds at most 2000 calls; use a larger workload, or a hot one")


def test_bytes_are_those_of_memory() -> None:
    """Views of one storage count their parts, and an expanded tensor what it occupies."""
    packed = torch.ones(3, 100)
    assert count_occupied_bytes(packed.unbind()) == 1200
    assert count_occupied_bytes([torch.ones(4, 1).expand(4, 1000)]) == 16

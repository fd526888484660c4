from __future__ import annotations

import pytest

from pytest_attnperf.environment.cards import Card
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.features.gpus.gpu_choice import describe_gpus_used, select_pinned
from pytest_attnperf.records.gpus import GpuRecord

FIRST = Card("GPU-12345678-a", "0", "GPU-12345678-a", "0000:17:00.0")
SECOND = Card("GPU-12345678-b", "1", "GPU-12345678-b", "0000:b4:00.0")
THIRD = Card("GPU-9abcdef0-c", "2", "GPU-9abcdef0-c", "0001:b4:00.0")
CARDS = (FIRST, SECOND, THIRD)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", CARDS),
        ("1", (SECOND,)),
        ("2, 0", (THIRD, FIRST)),
        ("gpu-9abc", (THIRD,)),
        ("9abcdef0", (THIRD,)),
        ("GPU-12345678-b,1", (SECOND,)),
        ("0000:B4:00.0", (SECOND,)),
        ("00000001:b4:00.0", (THIRD,)),
        ("17:00.0", (FIRST,)),
    ],
)
def test_a_pin_names_cards(text: str, chosen: tuple[Card, ...]) -> None:
    """By index, UUID, its beginning, or PCI address; in the order typed, each once."""
    assert select_pinned(CARDS, text) == chosen


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", "'3' is no visible GPU"),
        ("0,GPU-9ab", "'GPU-9ab' is no visible GPU"),
        ("GPU-1234", "'GPU-1234' fits several GPUs"),
    ],
)
def test_a_pin_that_names_none_or_several(text: str, why: str) -> None:
    """The error lists what there is, under every name."""
    with pytest.raises(UsageError) as caught:
        select_pinned(CARDS, text)
    assert str(caught.value) == (
        f"--attnperf-pin-gpu={text}: {why}; there are: 0 (GPU-12345678-a, 0000:17:00.0); "
        "1 (GPU-12345678-b, 0000:b4:00.0); 2 (GPU-9abcdef0-c, 0001:b4:00.0)"
    )


def test_a_line_says_which_cards_measured() -> None:
    """Several are named, with their address and how many cases; of one there is nothing to say."""
    gpus = [GpuRecord("GPU-12345678-a", pci_bus="0000:17:00.0", cases=23), GpuRecord("0000:c1:00.0", cases=1)]
    assert describe_gpus_used(gpus) == (
        "measured on 2 GPUs: GPU-12345678 (0000:17:00.0, 23 cases), 0000:c1:00.0 (1 case)",
    )
    assert describe_gpus_used(gpus[:1]) == ()

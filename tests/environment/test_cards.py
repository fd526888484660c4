from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_attnperf.environment.cards import (
    Card,
    cards_of,
    described,
    pci_address,
    require_one_product,
    visible_cards,
)
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.gpus import GpuRecord

FIRST, SECOND, THIRD = (f"GPU-{number}{'0' * 7}-aaaa-bbbb-cccc-dddddddddddd" for number in (1, 2, 3))
H200 = "NVIDIA H200"
FOLDER = "proc/driver/nvidia/gpus"


def missing(command: Sequence[str]) -> str:
    """No vendor's tool is installed."""
    raise ProbeError(f"{command[0]} not found")


def driver(
    root: Path, cards: Mapping[str, tuple[str, int]], *, product: str = H200, nodes: Sequence[int] = ()
) -> System:
    """NVIDIA's driver showing cards, (UUID, minor) by PCI address, and device nodes, of these cards unless said."""
    (root / "dev").mkdir(parents=True, exist_ok=True)
    for address, (uuid, minor) in cards.items():
        folder = root / FOLDER / address
        folder.mkdir(parents=True)
        text = f"Model: \t\t {product}\nGPU UUID: \t {uuid}\nBus Location: \t {address}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    for minor in nodes or [minor for _, minor in cards.values()]:
        (root / f"dev/nvidia{minor}").touch()
    return System(root, missing)


def two(root: Path) -> System:
    """Two cards whose minors are in another order than their addresses."""
    return driver(root, {"0000:b4:00.0": (SECOND, 0), "0000:17:00.0": (FIRST, 1)})


def test_an_index_and_a_uuid_are_one_card(tmp_path: Path) -> None:
    """Indices count by PCI address; a card has one name and one token, whatever the environment calls it."""
    system = two(tmp_path)
    first, second = visible_cards({}, system)
    assert first == Card(FIRST, "0", FIRST, "0000:17:00.0", H200, FIRST)
    assert [second.token, second.index] == [SECOND, "1"]
    for setting in ("1", SECOND, SECOND[:12]):
        [card] = visible_cards({"CUDA_VISIBLE_DEVICES": setting}, system)
        assert (card.token, card.name, card.index) == (SECOND, SECOND, setting)


def test_a_container_shows_some_of_the_drivers_cards(tmp_path: Path) -> None:
    """A card without a device node is not there: what has one is counted from 0."""
    system = driver(tmp_path, {"0000:17:00.0": (FIRST, 0), "0000:b4:00.0": (SECOND, 1)}, nodes=[1])
    assert [(card.index, card.uuid) for card in visible_cards({}, system)] == [("0", SECOND)]


def test_nvidia_smi_is_asked_where_the_driver_is_silent(tmp_path: Path) -> None:
    """Its order is that of PCI addresses; a list that is not of all device nodes is not believed."""
    driver(tmp_path, {}, nodes=[0, 1])
    rows = [f"{SECOND}, 00000000:B4:00.0, {H200}", f"{FIRST}, 00000000:17:00.0, {H200}"]
    cards = visible_cards({}, System(tmp_path, lambda command: "\n".join(rows)))
    assert [(card.token, card.pci_bus) for card in cards] == [(FIRST, "0000:17:00.0"), (SECOND, "0000:b4:00.0")]
    for answer in (rows[0], "No devices were found", ""):
        cards = visible_cards({}, System(tmp_path, lambda command, answer=answer: answer))  # type: ignore[misc]
        assert cards == (Card("0", "0", name="0"), Card("1", "1", name="1"))


def test_a_slice_is_a_gpu_of_its_own(tmp_path: Path) -> None:
    """A MIG slice keeps its name, which no list of cards knows."""
    [card] = visible_cards({"CUDA_VISIBLE_DEVICES": "MIG-1234"}, two(tmp_path))
    assert (card.token, card.name, card.pci_bus) == ("MIG-1234", "MIG-1234", "")


def test_cards_counted_by_speed_cannot_be_told(tmp_path: Path) -> None:
    """CUDA counts several products by speed: one keeps its index; several are refused, with the way out."""
    system = driver(tmp_path, {"0000:17:00.0": (FIRST, 0)}, product="NVIDIA T4")
    driver(tmp_path, {"0000:b4:00.0": (SECOND, 1), "0000:c4:00.0": (THIRD, 2)})
    cards = visible_cards({}, system)
    assert [card.name for card in cards] == ["0", "1", "2"]
    require_one_product(cards[:1], {}, system)
    with pytest.raises(UsageError) as caught:
        require_one_product(cards[:2], {}, system)
    assert str(caught.value) == (
        f"a run over several GPUs needs cards of one product, and these are of several: {FIRST} (NVIDIA T4), "
        f"{SECOND} ({H200}), {THIRD} ({H200}). Set CUDA_DEVICE_ORDER=PCI_BUS_ID, because CUDA counts them by speed, "
        "and choose those of one product with CUDA_VISIBLE_DEVICES=UUID,UUID or --attnperf-pin-gpu"
    )
    told = visible_cards({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, system)
    assert [card.name for card in told] == [FIRST, SECOND, THIRD]
    require_one_product(told[1:], {}, system)
    with pytest.raises(UsageError, match="Choose those of one product"):
        require_one_product(told, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, system)


def test_amds_partitions_are_told_apart(tmp_path: Path) -> None:
    """They share a UUID and an address; the driver's id is in the name, and index and ROCR's choice lead to it."""
    for node, gpu_id in enumerate(("0", "51140", "2345")):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(gpu_id)
        (folder / "properties").write_text(f"location_id {0xC100 + node}\nunique_id 1234\n")
    system = System(tmp_path, missing)
    cards = cards_of(["0", "1"], {}, system)
    assert [card.name for card in cards] == [f"GPU-{1234:016x}-51140", f"GPU-{1234:016x}-2345"]
    assert {(card.uuid, card.pci_bus) for card in cards} == {(f"GPU-{1234:016x}", "0000:c1:00.0")}
    assert [card.token for card in cards] == ["0", "1"]
    assert cards_of(["0"], {"ROCR_VISIBLE_DEVICES": "1"}, system)[0].name == cards[1].name
    record = described("0000:c1:00.0", cards, 3, system)
    assert (record.uuid, record.token, record.cases) == (cards[0].uuid, "", 3)


def test_what_is_known_of_a_card_that_measured(tmp_path: Path) -> None:
    """Its settings come from the vendor's tool at the end of a run; a device nobody knows keeps its name."""
    system = two(tmp_path)
    cards = visible_cards({}, system)
    told = System(tmp_path, lambda command: "700.00, Disabled")
    assert described(SECOND, cards, 5, told) == GpuRecord(
        SECOND, SECOND, SECOND, "0000:b4:00.0", H200, "none", "none", "700", 5
    )
    assert described("fake-1", cards, 1, told) == GpuRecord("fake-1", cases=1)


@pytest.mark.parametrize(
    ("text", "address"),
    [("00000000:17:00.0", "0000:17:00.0"), ("0001:B4:00.0", "0001:b4:00.0"), ("17:00.0", ""), ("GPU-1", "")],
)
def test_addresses_are_written_alike(text: str, address: str) -> None:
    """nvidia-smi writes eight digits of the domain, sysfs four."""
    assert pci_address(text) == address

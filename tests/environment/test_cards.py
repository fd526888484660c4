from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_attnperf.environment import gpu_tokens
from pytest_attnperf.environment.cards import (
    Card,
    GpuBusyError,
    cards_of,
    lease_card,
    lease_directory,
    lease_free,
    lease_gpu,
    make_gpu_record,
    parse_pci_address,
    read_device,
    require_one_product,
    visible_cards,
)
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
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
        f"a run over several GPUs needs cards of one product, but these differ: {FIRST} (NVIDIA T4), "
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
    record = make_gpu_record("0000:c1:00.0", cards, 3, system)
    assert (record.uuid, record.token, record.cases) == (cards[0].uuid, "", 3)


def test_what_is_known_of_a_card_that_measured(tmp_path: Path) -> None:
    """Its settings come from the vendor's tool at the end of a run; a device nobody knows keeps its name."""
    system = two(tmp_path)
    cards = visible_cards({}, system)
    told = System(tmp_path, lambda command: "700.00, Disabled")
    assert make_gpu_record(SECOND, cards, 5, told) == GpuRecord(
        SECOND, SECOND, SECOND, "0000:b4:00.0", H200, "none", "none", "700", 5
    )
    assert make_gpu_record("fake-1", cards, 1, told) == GpuRecord("fake-1", cases=1)


@pytest.mark.parametrize(
    ("text", "address"),
    [("00000000:17:00.0", "0000:17:00.0"), ("0001:B4:00.0", "0001:b4:00.0"), ("17:00.0", ""), ("GPU-1", "")],
)
def test_addresses_are_written_alike(text: str, address: str) -> None:
    """nvidia-smi writes eight digits of the domain, sysfs four."""
    assert parse_pci_address(text) == address


ROOT = Path(__file__).parents[2]


def test_each_lease_gets_another_gpu(tmp_path: Path) -> None:
    """Leases are given in order and never twice, until one is released."""
    first = lease_gpu(("0", "1"), tmp_path, {})
    second = lease_gpu(("0", "1"), tmp_path, {})
    assert (first.token, second.token) == ("0", "1")
    first.release()
    assert lease_gpu(("0", "1"), tmp_path, {}).token == "0"


def test_none_free(tmp_path: Path) -> None:
    """When another run holds every GPU, the error says which, where the locks are, and what to do."""
    held = lease_gpu(("0",), tmp_path, {})
    with pytest.raises(GpuBusyError) as caught:
        lease_gpu(("0",), tmp_path, {})
    assert str(caught.value) == (
        f"no free GPU: 1 visible GPU (0), every one leased by another run (locks in {tmp_path}); "
        "wait for it to end, or make another GPU visible"
    )
    held.release()


def test_more_workers_than_gpus(tmp_path: Path) -> None:
    """Under pytest-xdist the error gives both numbers and the -n that fits."""
    held = [lease_gpu(("0", "1"), tmp_path, {}) for _ in range(2)]
    with pytest.raises(UsageError) as caught:
        lease_gpu(("0", "1"), tmp_path, {"PYTEST_XDIST_WORKER_COUNT": "4"})
    assert str(caught.value) == (
        "4 workers for 2 visible GPUs: two workers on one GPU would disturb each other's timings; use -n 2"
    )
    assert len(held) == 2


def test_hip_indices_are_leased_as_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index 0 of two runs with different ROCR_VISIBLE_DEVICES is two cards; of the same card it is one."""
    monkeypatch.setattr(gpu_tokens, "nvidia_minors", lambda root: ())
    leases = [lease_gpu(("0",), tmp_path, {"ROCR_VISIBLE_DEVICES": card}) for card in ("2", "3")]
    with pytest.raises(GpuBusyError):
        lease_gpu(("1",), tmp_path, {"ROCR_VISIBLE_DEVICES": "0,3"})
    assert len(leases) == 2


def test_a_lease_is_of_the_card(tmp_path: Path) -> None:
    """What one run calls 0 and another by its UUID is one card; all that are free can be had at once."""
    [held] = lease_free([Card("0", "0", name="GPU-a")], tmp_path)
    by_uuid, other = Card("GPU-a", "GPU-a", name="GPU-a"), Card("GPU-b", "1", name="GPU-b")
    with pytest.raises(GpuBusyError, match="1 visible GPU "):
        lease_card([by_uuid], tmp_path, {}, wait_s=0.01)
    free = lease_free([by_uuid, other], tmp_path)
    assert [lease.token for lease in free] == ["GPU-b"]
    for lease in (held, *free):
        lease.release()
    assert [lease.token for lease in lease_free([by_uuid, other], tmp_path)] == ["GPU-a", "GPU-b"]


def test_a_killed_process_gives_its_gpu_back(tmp_path: Path) -> None:
    """The lock is held against other processes and dies with its holder, even by SIGKILL."""
    script = (
        "import sys; from pathlib import Path; from pytest_attnperf.environment.cards import lease_gpu\n"
        "lease = lease_gpu(('0',), Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GpuBusyError):
            lease_gpu(("0",), tmp_path, {})
        holder.kill()
        holder.wait()
    assert lease_gpu(("0",), tmp_path, {}).token == "0"


def test_the_default_directory_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks lie in a private folder under the temporary directory, and a stranger's folder is refused."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    user = os.getuid()
    folder = lease_directory()
    assert folder == tmp_path / f"attnperf-leases-{user}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rename(tmp_path / f"attnperf-leases-{user + 1}")
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(UsageError, match=f"belongs to user id {user}, not to {user + 1}; ask that user to remove it"):
        lease_directory()


def test_a_device_is_named_without_initialising_it(tmp_path: Path) -> None:
    """By nvidia-smi, by AMD's driver, or as a CPU; None where nobody names the architecture."""
    nvidia = driver(tmp_path / "nvidia", {"0000:17:00.0": (FIRST, 0)})
    assert read_device({}, on_gpu=True, system=nvidia) is None
    answering = System(nvidia.root, lambda command: f"9.0, {H200}\n" if f"--id={FIRST}" in command else "")
    assert read_device({}, on_gpu=True, system=answering) == DeviceInfo("cuda", "sm_90", "h200", H200)
    unknown = System(nvidia.root, lambda command: "[N/A], [N/A]\n")
    assert read_device({}, on_gpu=True, system=unknown) is None
    node = tmp_path / "amd/sys/class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    assert read_device({}, on_gpu=True, system=System(tmp_path / "amd", missing)) is None
    (node / "properties").write_text("gfx_target_version 90402\n")
    assert read_device({}, on_gpu=True, system=System(tmp_path / "amd", missing)) == DeviceInfo("rocm", "gfx942", "")
    cpu = read_device({}, on_gpu=False, system=nvidia)
    assert cpu is not None
    assert (cpu.kind, cpu.interpreted) == ("cpu", True)

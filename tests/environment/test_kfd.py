from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.amd import NO_THROTTLE_STATUS
from pytest_attnperf.environment.device_state import start_watch
from pytest_attnperf.environment.kfd import KfdCard, find_card, list_architectures, list_compute_processes
from pytest_attnperf.environment.system import ProbeError, System

NODES = "sys/class/kfd/kfd/topology/nodes"
FIRST = KfdCard("51545", "GPU-00000000000004d2", "0000:c1:00.0")
SECOND = KfdCard("2222", "", "0001:05:02.0")


def kfd_system(root: Path) -> System:
    """A CPU node and two GPUs, the second of them the third partition of its card and without a unique id."""
    properties = {
        "0": ("0", "cpu_cores_count 64\nlocation_id 0\n"),
        "1": ("51545", f"location_id {0xC100}\ndomain 0\nunique_id 1234\nname \n"),
        "10": ("2222", f"location_id {0x0513}\ndomain 1\nunique_id 0\n"),
    }
    for node, (gpu_id, text) in properties.items():
        folder = root / NODES / node
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n")
        (folder / "properties").write_text(text)
    return System(root)


def process(root: Path, pid: int, name: str | None, vram: dict[str, str]) -> None:
    """A process that KFD lists, with the bytes that it holds by GPU."""
    folder = root / "sys/class/kfd/kfd/proc" / str(pid)
    folder.mkdir(parents=True)
    for gpu_id, held in vram.items():
        (folder / f"vram_{gpu_id}").write_text(f"{held}\n")
    if name is not None:
        (root / f"proc/{pid}").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text(f"{name}\n")


@pytest.mark.parametrize(
    ("token", "rocr", "expected"),
    [
        ("0", None, FIRST),
        ("1", None, SECOND),
        ("GPU-00000000000004d2", None, FIRST),
        ("0", "1", SECOND),
        ("1", "1, 0", FIRST),
        ("1", "1,GPU-00000000000004d2", FIRST),
    ],
)
def test_a_token_means_a_card(tmp_path: Path, token: str, rocr: str | None, expected: KfdCard) -> None:
    """HIP's index counts GPU nodes in numeric order within ROCR_VISIBLE_DEVICES; a UUID names one itself."""
    environ = {} if rocr is None else {"ROCR_VISIBLE_DEVICES": rocr}
    assert find_card(token, kfd_system(tmp_path), environ) == expected


@pytest.mark.parametrize(("token", "rocr"), [("2", None), ("1", "0"), ("1", "0,7,1"), ("0", "")])
def test_a_token_of_no_card(tmp_path: Path, token: str, rocr: str | None) -> None:
    """An index beyond what is visible is an error that lists what is; an entry that names none ends the list."""
    environ = {} if rocr is None else {"ROCR_VISIBLE_DEVICES": rocr}
    with pytest.raises(ProbeError, match=rf"/{NODES} shows no GPU '{token}'; it shows: (none|0 \(GPU-0+4d2\))"):
        find_card(token, kfd_system(tmp_path), environ)


def test_without_kfd_there_is_no_card(tmp_path: Path) -> None:
    """A machine without the driver shows none."""
    with pytest.raises(ProbeError, match="it shows: none"):
        find_card("0", System(tmp_path), {})


def test_processes_of_this_card_are_named(tmp_path: Path) -> None:
    """Processes that hold memory of the card, or of which it is not told, are named; those on other cards are not."""
    system = kfd_system(tmp_path)
    process(tmp_path, 900, "python3", {"51545": "1048576", "2222": "0"})
    process(tmp_path, 80, "other-card", {"51545": "0", "2222": "4096"})
    process(tmp_path, 1000, None, {"51545": "4096"})
    process(tmp_path, 1001, "old-kernel", {})
    process(tmp_path, 1002, "elsewhere", {"2222": "4096"})
    assert list_compute_processes("51545", system) == ["900 python3", "1000 (name not shown)", "1001 old-kernel"]
    assert list_compute_processes("1", System(tmp_path / "nothing")) == []


def topology(root: Path, nodes: dict[str, str]) -> System:
    """Nodes with these properties, by their number."""
    for node, text in nodes.items():
        folder = root / NODES / node
        folder.mkdir(parents=True)
        (folder / "properties").write_text(text)
    return System(root)


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90008, "gfx908"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (100300, "gfx1030"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_a_target_version_is_an_architecture(tmp_path: Path, version: int, arch: str) -> None:
    """Major, minor and stepping are two decimal digits each in the driver's number, and hexadecimal in the name."""
    assert list_architectures(topology(tmp_path, {"1": f"simd_count 304\ngfx_target_version {version}\n"})) == [arch]


def test_architectures_of_the_gpus_that_are_there(tmp_path: Path) -> None:
    """In the nodes' numeric order, each once; a CPU's node, which says 0, is none."""
    versions = {"10": 110000, "2": 90402, "11": 90402, "0": 0}
    nodes = {node: f"name \ngfx_target_version {version}\n" for node, version in versions.items()}
    assert list_architectures(topology(tmp_path, nodes)) == ["gfx942", "gfx1100"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name \n",
        "\n\n",
        "gfx_target_version\n",
        "gfx_target_version x\n",
        "gfx_target_version -90402\n",
        "\xff\x00",
    ],
)
def test_a_node_that_says_no_version_is_left_out(tmp_path: Path, text: str) -> None:
    """Properties without a value, with another kind of value, or with none at all keep no other GPU from being seen."""
    assert list_architectures(topology(tmp_path, {"1": text, "2": "gfx_target_version 90402\n"})) == ["gfx942"]


def test_a_node_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """A GPU that the container withholds, and whatever else lies in the folder, are no architecture and no error."""
    system = topology(tmp_path, {"1": "gfx_target_version 90402\n", "notes": "gfx_target_version 110000\n"})
    (tmp_path / NODES / "2" / "properties").mkdir(parents=True)
    (tmp_path / NODES / "3").mkdir()
    assert list_architectures(system) == ["gfx942"]


def test_without_kfd_there_is_no_architecture(tmp_path: Path) -> None:
    """A machine without the driver has none, which is no error."""
    assert list_architectures(System(tmp_path)) == []


def sensors(root: Path, files: dict[str, str]) -> None:
    """Files below the PCI folder of the first card."""
    for name, text in files.items():
        path = root / "sys/bus/pci/devices/0000:c1:00.0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_amd_before_and_after(tmp_path: Path) -> None:
    """Power, cap, temperature and clocks come from hwmon in our units, and the missing throttle status is said once."""
    system = kfd_system(tmp_path)
    hwmon = {
        "hwmon/hwmon5/power1_input": "142000000",
        "hwmon/hwmon5/power1_cap": "750000000",
        "hwmon/hwmon5/temp2_input": "47000",
        "hwmon/hwmon5/freq1_input": "2100000000",
        "hwmon/hwmon5/freq2_input": "900000000",
    }
    sensors(tmp_path, hwmon)
    process(tmp_path, 900, "python3", {"51545": "1048576"})
    started = start_watch("0", "rocm", system, {})
    sensors(tmp_path, {"hwmon/hwmon5/power1_average": "745000000"})
    state = started.end("0000:c1:00.0")
    assert state.before == {
        "device_id": "0000:c1:00.0",
        "power_w": "142",
        "power_limit_w": "750",
        "temperature_c": "47",
        "shader_clock_mhz": "2100",
        "memory_clock_mhz": "900",
    }
    assert state.after["power_w"] == "745"
    assert state.other_processes == ("900 python3",)
    assert state.notes == (NO_THROTTLE_STATUS,)
    assert state.throttled_s == {}


def test_amd_without_sysfs_is_one_note(tmp_path: Path) -> None:
    """A card that KFD shows and sysfs does not, and a machine that shows none, are a note each."""
    hidden = start_watch("0", "rocm", kfd_system(tmp_path), {}).end()
    assert hidden.notes == (
        "the state of the device and other processes on it are not known: "
        "/sys/bus/pci/devices/0000:c1:00.0 does not exist",
    )
    [note] = start_watch("0", "rocm", System(tmp_path / "nothing"), {}).end().notes
    assert f"/{NODES} shows no GPU '0'" in note

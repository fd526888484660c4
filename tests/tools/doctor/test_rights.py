from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status
from pytest_attnperf.tools.doctor.rights import can_read_and_write, probe
from tests.tools.doctor.gpu_machines import NODES, h200, mi300x, no_command, surroundings, write


def found(
    system: System, *refused: str, group: str = "render", vendor: str = "amd", **environ: str
) -> dict[str, DoctorFinding]:
    """Findings by name, where these files may not be opened."""
    findings = probe(
        surroundings(system, vendor, system.root, **environ),
        access=lambda path: path.name not in refused,
        group=lambda _path: group,
    )
    return {finding.name: finding for finding in findings}


def test_nodes_that_may_be_opened(tmp_path: Path) -> None:
    """A user with rights to /dev/kfd and to the render node of every visible GPU has nothing to do."""
    lines = found(mi300x(tmp_path, {}, {}))
    assert {name: line.status for name, line in lines.items()} == {"kfd": Status.OK, "render nodes": Status.OK}
    assert lines["render nodes"].value == "/dev/dri/renderD128, /dev/dri/renderD129 may be read and written"


@pytest.mark.parametrize(
    ("group", "fix"),
    [
        ("render", "sudo usermod -aG render,video $USER, then log in again"),
        ("gpu-users", "sudo usermod -aG gpu-users $USER, then log in again"),
        ("root", 'let udev give the node to the group render (KERNEL=="kfd"'),
    ],
)
def test_no_rights_to_kfd(tmp_path: Path, group: str, fix: str) -> None:
    """A user outside of the node's group learns the group, and the command that joins it."""
    line = found(mi300x(tmp_path), "kfd", group=group)["kfd"]
    assert line.status is Status.PROBLEM
    assert line.value == f"no right to read and write /dev/kfd, of group {group}"
    assert fix in line.fix


@pytest.mark.parametrize(("group", "option"), [("109", "--group-add 109 "), ("video", "--group-add video --sec")])
def test_no_rights_in_a_container(tmp_path: Path, group: str, option: str) -> None:
    """In a container the fix is an option of docker, with the group's number where the image has no name for it."""
    system = mi300x(tmp_path)
    write(tmp_path, {".dockerenv": ""})
    line = found(system, "renderD128", group=group)["render nodes"]
    assert line.status is Status.PROBLEM
    assert option in line.fix
    assert "docker run --device=/dev/kfd --device=/dev/dri --group-add video" in line.fix


def test_render_node_that_was_not_handed_in(tmp_path: Path) -> None:
    """A GPU that the driver shows without its render node is a problem; a CPU node of the topology has none."""
    system = mi300x(tmp_path, {}, {})
    (tmp_path / "dev/dri/renderD129").unlink()
    line = found(system)["render nodes"]
    assert (line.status, line.value) == (Status.PROBLEM, "/dev/dri/renderD129 missing, of 2")
    assert "--device=/dev/dri" in line.fix


def test_a_gpu_withheld_by_the_container(tmp_path: Path) -> None:
    """/dev/kfd with no GPU that the driver shows to this process is a problem that names the options."""
    system = mi300x(tmp_path)
    (tmp_path / NODES / "1/gpu_id").unlink()
    line = found(system)["render nodes"]
    assert line.status is Status.PROBLEM
    assert "shows no GPU that this process may use" in line.value


@pytest.mark.parametrize(
    ("files", "status", "fix"),
    [
        ({".dockerenv": ""}, Status.WARNING, "start the container with: docker run --device=/dev/kfd"),
        ({}, Status.WARNING, "sudo modprobe -r amdgpu && sudo modprobe amdgpu"),
    ],
)
def test_driver_without_kfd(tmp_path: Path, files: dict[str, str], status: Status, fix: str) -> None:
    """A machine whose driver runs but that has no /dev/kfd is told apart in and outside of a container."""
    line = found(mi300x(write(tmp_path, files), nodes=False), vendor="")["kfd"]
    assert line.status is status
    assert fix in line.fix


@pytest.mark.parametrize(("pci_class", "status"), [("0x120000", Status.WARNING), ("0x030000", Status.NOTE)])
def test_card_without_a_driver(tmp_path: Path, pci_class: str, status: Status) -> None:
    """An accelerator on the bus without a driver is a warning; a display controller may be a processor's graphics."""
    card = "sys/bus/pci/devices/0000:c1:00.0"
    write(tmp_path, {f"{card}/vendor": "0x1002", f"{card}/class": pci_class})
    line = found(System(tmp_path, no_command), vendor="")["kfd"]
    assert line.status is status
    assert "sudo modprobe amdgpu" in line.fix


def test_filtered_system_calls(tmp_path: Path) -> None:
    """A container with docker's filter on system calls is noted, one without it and a bare machine are not."""
    system = mi300x(tmp_path)
    write(tmp_path, {"proc/self/status": "Name:\tpython3\nSeccomp:\t2\nSeccomp_filters:\t1"})
    assert "container" not in found(system)
    write(tmp_path, {"run/.containerenv": ""})
    assert found(system)["container"].status is Status.NOTE
    write(tmp_path, {"proc/self/status": "Name:\tpython3\nSeccomp:\t0"})
    assert "container" not in found(system)


def test_nvidia_nodes(tmp_path: Path) -> None:
    """All of NVIDIA's nodes open is fine; without nvidia-uvm, or without rights, nothing runs."""
    system = h200(tmp_path, cards=2)
    assert found(system, vendor="nvidia")["nvidia nodes"].status is Status.OK
    refused = found(system, "nvidia1", vendor="nvidia", group="root")["nvidia nodes"]
    assert (refused.status, refused.value) == (
        Status.PROBLEM,
        "no right to read and write /dev/nvidia1, of group root",
    )
    (tmp_path / "dev/nvidia-uvm").unlink()
    missing = found(system, vendor="nvidia")["nvidia nodes"]
    assert (missing.status, missing.fix) == (Status.PROBLEM, "sudo nvidia-modprobe -u -c=0")


def test_nvidia_card_without_nodes(tmp_path: Path) -> None:
    """A card on the bus without nodes is a container started without --gpus, or a driver that is not loaded."""
    card = "sys/bus/pci/devices/0000:1b:00.0"
    write(tmp_path, {f"{card}/vendor": "0x10de", f"{card}/class": "0x030200"})
    system = System(tmp_path, no_command)
    assert "sudo modprobe nvidia" in found(system, vendor="")["nvidia nodes"].fix
    inside = found(system, vendor="", KUBERNETES_SERVICE_HOST="10.0.0.1")["nvidia nodes"]
    assert inside.status is Status.WARNING
    assert "docker run --gpus all" in inside.fix


def test_no_gpu_at_all(tmp_path: Path) -> None:
    """A machine without any GPU gets one note that says what is left to do on it."""
    lines = found(System(tmp_path, no_command), vendor="")
    assert [(line.status, line.fix) for line in lines.values()] == [(Status.NOTE, "")]
    assert lines["device nodes"].meaning.startswith("correctness checks and code objects only")


def test_permissions_and_groups_of_real_files(tmp_path: Path) -> None:
    """Without stand-ins, permissions are asked of the system and nothing is opened."""
    system = mi300x(tmp_path)
    assert can_read_and_write(tmp_path / "dev/kfd")
    assert not can_read_and_write(tmp_path / "dev/none")
    assert {line.status for line in probe(surroundings(system, "amd", tmp_path))} == {Status.OK}

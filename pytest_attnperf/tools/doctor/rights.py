"""Checks whether this user, in this container, may open the device nodes of the machine's GPUs.

Reads permissions and names only and opens no node. If a container's device rules refuse a node that permissions allow,
the self-test finds it.

AMD's nodes and container options follow AMD's installation guide ("Running ROCm Docker containers"), NVIDIA's follow
its container toolkit. Tried on folders made for tests and on NVIDIA, not on an AMD GPU.
"""

from __future__ import annotations

import grp
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_attnperf.environment.kfd import NODES
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

Access = Callable[[Path], bool]
"""A function that returns whether this process may read and write a file."""

GroupOf = Callable[[Path], str]
"""A function that returns a file's group: its name, or its number if it has no name here."""

AMD_VENDOR, NVIDIA_VENDOR = "0x1002", "0x10de"
DISPLAY, ACCELERATOR = "0x03", "0x12"
"""First digits of the PCI classes of graphics cards and of processing accelerators (such as MI300X)."""

GROUPS = ("render", "video")
AMD_DOCKER = "--device=/dev/kfd --device=/dev/dri"
AMD_DOCKER_ALL = f"docker run {AMD_DOCKER} --group-add video{{}} --security-opt seccomp=unconfined --ipc=host ..."
NVIDIA_DOCKER = "start the container with: docker run --gpus all ... (needs the NVIDIA Container Toolkit on the host)"
NVIDIA_CONTROL = ("nvidiactl", "nvidia-uvm")

_NO_NUMBERS = "torch sees no GPU: correctness checks and code objects only, no GPU times"
_FILTERED = re.compile(r"^Seccomp:\s*2$", re.MULTILINE)
_RENDER_MINOR = re.compile(r"^drm_render_minor (\d+)$", re.MULTILINE)
_NVIDIA_NODE = re.compile(r"nvidia\d+")


def can_read_and_write(path: Path) -> bool:
    """Returns whether permissions allow this process to read and write the file."""
    return os.access(path, os.R_OK | os.W_OK)


def read_group(path: Path) -> str:
    """Returns the file's group: its name, else its number. Raises OSError if the file cannot be read."""
    number = path.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def probe(
    surroundings: Surroundings, access: Access = can_read_and_write, group: GroupOf = read_group
) -> Sequence[DoctorFinding]:
    """Returns findings on whether device nodes may be opened: 'kfd', 'render nodes' and, if system calls are filtered,
    'container' for AMD; 'nvidia nodes' for NVIDIA; 'device nodes' without either."""
    found = [*_probe_amd(surroundings, access, group), *_probe_nvidia(surroundings, access, group)]
    if found:
        return found
    value = "no GPU: neither /dev/kfd nor /dev/nvidia*, and no GPU on the PCI bus"
    return [DoctorFinding("device nodes", Status.NOTE, value, "correctness checks and code objects only: no GPU times")]


def _probe_amd(surroundings: Surroundings, access: Access, group: GroupOf) -> list[DoctorFinding]:
    system = surroundings.system
    kfd = system.root / "dev/kfd"
    if not kfd.exists():
        return _probe_without_kfd(surroundings)
    found = [
        _judge_rights("kfd", [kfd], surroundings, access, group),
        _probe_render_nodes(surroundings, access, group),
    ]
    if _is_container(surroundings) and _FILTERED.search(_read_text("proc/self/status", system)):
        meaning = "a filter on system calls may refuse binding memory near a GPU; AMD's guide runs without it"
        fix = "start the container with: docker run --security-opt seccomp=unconfined ..."
        found.append(DoctorFinding("container", Status.NOTE, "system calls are filtered (seccomp)", meaning, fix))
    return found


def _probe_without_kfd(surroundings: Surroundings) -> list[DoctorFinding]:
    """Returns a finding 'kfd' if there is an AMD GPU or driver although /dev/kfd is missing; otherwise nothing."""
    system = surroundings.system
    classes = _list_pci_classes(AMD_VENDOR, system)
    driver = (system.root / "sys/class/kfd/kfd").exists()
    if not driver and not classes:
        return []
    # A display controller alone may be integrated graphics, which is not used for computing.
    compute = driver or any(not name.startswith(f"{DISPLAY}00") for name in classes)
    status = Status.WARNING if compute else Status.NOTE
    if _is_container(surroundings):
        fix = f"start the container with: {AMD_DOCKER_ALL.format(' --group-add render')}"
    elif driver:
        fix = "the driver has made no /dev/kfd; load it again with: sudo modprobe -r amdgpu && sudo modprobe amdgpu"
    else:
        fix = "load AMD's driver with: sudo modprobe amdgpu (install amdgpu-dkms if there is no such module)"
    return [DoctorFinding("kfd", status, "an AMD GPU is there, but no /dev/kfd", _NO_NUMBERS, fix)]


def _probe_render_nodes(surroundings: Surroundings, access: Access, group: GroupOf) -> DoctorFinding:
    system, name = surroundings.system, "render nodes"
    nodes = [system.root / f"dev/dri/renderD{minor}" for minor in _list_render_minors(system)]
    if not nodes:
        value = f"/{NODES} shows no GPU that this process may use"
        meaning = f"{_NO_NUMBERS}; a container may have been given another GPU than the visible one"
        return DoctorFinding(
            name, Status.PROBLEM, value, meaning, f"start the container with: docker run {AMD_DOCKER} ..."
        )
    missing = [node for node in nodes if not node.exists()]
    if missing:
        value = f"{_format_nodes(missing)} missing, of {len(nodes)}"
        fix = f"start the container with: docker run {AMD_DOCKER} ..."
        return DoctorFinding(name, Status.PROBLEM, value, _NO_NUMBERS, fix)
    return _judge_rights(name, nodes, surroundings, access, group)


def _list_render_minors(system: System) -> list[int]:
    """Returns N of each /dev/dri/renderDN whose GPU AMD's driver shows, sorted. A GPU that the container withholds
    answers EPERM and is left out."""
    minors = []
    for folder in sorted((system.root / NODES).glob("*")):
        try:
            gpu_id = system.read(f"{NODES}/{folder.name}/gpu_id")
            found = _RENDER_MINOR.search(system.read(f"{NODES}/{folder.name}/properties"))
        except ProbeError:
            continue
        if gpu_id != "0" and found:
            minors.append(int(found[1]))
    return sorted(minors)


def _probe_nvidia(surroundings: Surroundings, access: Access, group: GroupOf) -> list[DoctorFinding]:
    name, dev = "nvidia nodes", surroundings.system.root / "dev"
    cards = sorted(path for path in dev.glob("nvidia*") if _NVIDIA_NODE.fullmatch(path.name))
    if not cards:
        if not _list_pci_classes(NVIDIA_VENDOR, surroundings.system):
            return []
        fix = NVIDIA_DOCKER if _is_container(surroundings) else "load NVIDIA's driver with: sudo modprobe nvidia"
        value = "an NVIDIA GPU is there, but no /dev/nvidia0"
        return [DoctorFinding(name, Status.WARNING, value, _NO_NUMBERS, fix)]
    control = [dev / node for node in NVIDIA_CONTROL]
    missing = [node for node in control if not node.exists()]
    if missing:
        fix = NVIDIA_DOCKER if _is_container(surroundings) else "sudo nvidia-modprobe -u -c=0"
        return [DoctorFinding(name, Status.PROBLEM, f"{_format_nodes(missing)} missing", _NO_NUMBERS, fix)]
    return [_judge_rights(name, [*cards, *control], surroundings, access, group)]


def _judge_rights(
    name: str, nodes: Sequence[Path], surroundings: Surroundings, access: Access, group: GroupOf
) -> DoctorFinding:
    """Returns the finding `name`: OK if all nodes can be read and written; else a problem, with the first refused
    node's group and how to join it."""
    refused = [node for node in nodes if not access(node)]
    if not refused:
        return DoctorFinding(name, Status.OK, f"{_format_nodes(nodes)} may be read and written")
    try:
        owner = group(refused[0])
    except OSError as error:
        owner = f"(not known: {error.strerror})"
    value = f"no right to read and write {_format_nodes(refused)}, of group {owner}"
    return DoctorFinding(name, Status.PROBLEM, value, _NO_NUMBERS, _suggest_fix(name, owner, surroundings))


def _suggest_fix(name: str, owner: str, surroundings: Surroundings) -> str:
    if name == "nvidia nodes":
        return "sudo chmod 0666 /dev/nvidia* (as the driver makes them), or have an administrator allow your group"
    if _is_container(surroundings):
        also = f" --group-add {owner}" if owner not in ("video", "root") and not owner.startswith("(") else ""
        return f"start the container with: {AMD_DOCKER_ALL.format(also)}"
    if owner in GROUPS or owner.startswith("("):
        return "sudo usermod -aG render,video $USER, then log in again"
    if owner == "root" or owner.isdigit():
        return (
            "no user can join the node's group: let udev give the node to the group render "
            '(KERNEL=="kfd", GROUP="render", MODE="0660"), then: sudo usermod -aG render,video $USER'
        )
    return f"sudo usermod -aG {owner} $USER, then log in again"


def _format_nodes(nodes: Sequence[Path]) -> str:
    """Returns the paths of up to three device nodes; of more the first, the last and their number."""
    shown = [f"/dev/{'dri/' if node.parent.name == 'dri' else ''}{node.name}" for node in nodes]
    return ", ".join(shown) if len(shown) <= 3 else f"{shown[0]} to {shown[-1]} ({len(shown)})"


def _is_container(surroundings: Surroundings) -> bool:
    root = surroundings.system.root
    marked = (root / ".dockerenv").exists() or (root / "run/.containerenv").exists()
    return marked or "KUBERNETES_SERVICE_HOST" in surroundings.environ


def _list_pci_classes(vendor: str, system: System) -> list[str]:
    """Returns the PCI classes ('0x120000') of this vendor's graphics cards and accelerators."""
    found = []
    for folder in sorted((system.root / "sys/bus/pci/devices").glob("*")):
        where = f"sys/bus/pci/devices/{folder.name}"
        if _read_text(f"{where}/vendor", system) == vendor:
            name = _read_text(f"{where}/class", system)
            if name.startswith((DISPLAY, ACCELERATOR)):
                found.append(name)
    return found


def _read_text(path: str, system: System) -> str:
    try:
        return system.read(path)
    except ProbeError:
        return ""

"""Lists the GPUs that this machine shows, without importing torch and without initialising a device.

The controller uses this file: to initialise CUDA or HIP in the process that starts workers would cost seconds and hold
the device. Reading device nodes and torch's version file takes about a millisecond.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")
"""Folder that holds /dev, /sys and /proc; tests pass their own."""

NVIDIA_VARIABLES = ("CUDA_VISIBLE_DEVICES",)
AMD_VARIABLES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""HIP reads its own variable, and CUDA's only if that is not set."""

_NODE = re.compile(r"nvidia(\d+)")
_LOCAL_BUILD = re.compile(r"\+(cpu|cu\d|rocm)")
_BUILD_KINDS = {"cpu": "CPU", "cu": "CUDA", "rocm": "ROCm"}


def visible_gpus(environ: Mapping[str, str], root: Path = ROOT) -> tuple[str, ...]:
    """Returns a token for each GPU that a process with this environment may use, for CUDA_ / HIP_VISIBLE_DEVICES.

    A token is an index, or a UUID ('GPU-...', 'MIG-...') if the environment names GPUs by UUID. For AMD the index
    counts within what ROCR_VISIBLE_DEVICES leaves, as in HIP. An empty tuple means no GPU.
    """
    nvidia = nvidia_minors(root)
    if nvidia:
        return _select_indices(_first_set(environ, NVIDIA_VARIABLES), _list_indices(len(nvidia)))
    amd = _select_indices(environ.get("ROCR_VISIBLE_DEVICES"), _list_indices(_count_amd_nodes(root)))
    return _select_indices(_first_set(environ, AMD_VARIABLES), _list_indices(len(amd)))


def visible_gpus_here() -> tuple[str, ...]:
    """Returns a token (index or UUID) for each GPU that this process may use; () for none (see `visible_gpus`)."""
    return visible_gpus(os.environ)


def torch_build() -> str | None:
    """Returns the version of the installed torch from its metadata, e.g. '2.13.0+cpu'; None without torch."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_build_kind() -> str:
    """Returns 'CPU', 'CUDA' or 'ROCm' by the version's local part or the text of torch/version.py; '' if unknown.

    A plain '2.13.0' is a CUDA build from PyPI on x86-64, but a CPU build in many distributions: so it decides nothing.
    """
    local = _LOCAL_BUILD.search(torch_build() or "")
    if local:
        return _BUILD_KINDS[local[1].rstrip("0123456789")]
    try:
        located = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        return _kind_from_source(Path(str(located)).read_text(encoding="utf-8"))
    except (importlib.metadata.PackageNotFoundError, OSError, SyntaxError):
        return ""


def has_gpu(environ: Mapping[str, str], root: Path = ROOT) -> tuple[bool, str]:
    """Returns (whether torch should find a GPU here, a sentence that says what was found or why none is).

    If torch's build kind is unknown, the device nodes decide.
    """
    vendor = _find_vendor(root)
    if not vendor:
        return False, "no GPU: no /dev/nvidia0 and no GPU under /dev/kfd"
    build, kind = torch_build(), torch_build_kind()
    if build is None:
        return False, f"a {vendor} device node exists but torch is not installed"
    wanted = "CUDA" if vendor == "NVIDIA" else "ROCm"
    if kind and kind != wanted:
        return False, f"a {vendor} device node exists but torch {build} is a {kind} build"
    tokens = visible_gpus(environ, root)
    if not tokens:
        names = ("ROCR_VISIBLE_DEVICES", *AMD_VARIABLES) if vendor == "AMD" else NVIDIA_VARIABLES
        settings = ", ".join(f"{name}={environ[name]!r}" for name in names if name in environ)
        return False, f"a {vendor} device node exists but {settings} hides every GPU"
    return True, f"{len(tokens)} {vendor} GPU{'s' if len(tokens) > 1 else ''} visible, torch {build}"


def _find_vendor(root: Path) -> str:
    if nvidia_minors(root):
        return "NVIDIA"
    return "AMD" if _count_amd_nodes(root) else ""


def nvidia_minors(root: Path) -> tuple[int, ...]:
    """Returns N of each device node /dev/nvidiaN, ascending; in a container with only /dev/nvidia3 that is CUDA's 0."""
    found = (_NODE.fullmatch(node.name) for node in (root / "dev").glob("nvidia*"))
    return tuple(sorted(int(node[1]) for node in found if node))


def _count_amd_nodes(root: Path) -> int:
    """Counts the AMD GPUs that this process may open, by the nodes of AMD's driver in sysfs; 0 without /dev/kfd."""
    if not (root / "dev/kfd").exists():
        return 0
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    return sum(_read_gpu_id(node) != "0" for node in nodes)


def _read_gpu_id(node: Path) -> str:
    """Reads a node's GPU id: '0' for a CPU, and for a GPU that the container's device cgroup denies (EPERM)."""
    try:
        return node.read_text().strip()
    except OSError:
        return "0"


def _list_indices(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if name in environ), None)


def _select_indices(setting: str | None, all_indices: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the entries that a VISIBLE_DEVICES setting leaves visible; all indices if it is not set.

    CUDA and HIP stop at the first entry that names no device ('-1', '', an index too high) and see nothing if one is
    named twice (torch/cuda/__init__.py, _parse_visible_devices).
    """
    if setting is None:
        return all_indices
    chosen: list[str] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry not in all_indices and not entry.startswith(("GPU-", "MIG-")):
            break
        if entry in chosen:
            return ()
        chosen.append(entry)
    return tuple(chosen)


def _kind_from_source(text: str) -> str:
    """Returns 'ROCm', 'CUDA' or 'CPU' by the source of torch/version.py, which is not run; '' if it does not say.
    Raises SyntaxError if the text is not Python."""
    values: dict[str, object] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            values[node.target.id] = getattr(node.value, "value", None)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = getattr(node.value, "value", None)
    if not {"cuda", "hip"} & values.keys():
        return ""
    if values.get("hip"):
        return "ROCm"
    return "CUDA" if values.get("cuda") else "CPU"

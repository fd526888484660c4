from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_attnperf.environment import gpu_tokens
from pytest_attnperf.environment.gpu_tokens import has_gpu, torch_build_kind, visible_gpus

UUID = "GPU-cb3296dd-c4f9-7776-d3c3-451768cecfc4"


def nvidia_machine(root: Path, numbers: tuple[int, ...] = (0, 1, 2)) -> Path:
    """A root folder with NVIDIA device nodes, among nodes that are no cards."""
    (root / "dev").mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in numbers)):
        (root / "dev" / name).touch()
    return root


def amd_machine(root: Path, gpu_ids: tuple[str, ...] = ("0", "0", "51140", "2345")) -> Path:
    """A root folder with a KFD topology; gpu_id 0 is a CPU."""
    (root / "dev").mkdir(parents=True)
    (root / "dev/kfd").touch()
    for number, gpu_id in enumerate(gpu_ids):
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu_id}\n")
    return root


def pretend_torch(monkeypatch: pytest.MonkeyPatch, build: str | None, kind: str = "") -> None:
    """Let the installed torch be of this version and kind."""
    monkeypatch.setattr(gpu_tokens, "torch_build", lambda: build)
    monkeypatch.setattr(gpu_tokens, "torch_build_kind", lambda: kind)


@pytest.mark.parametrize(
    ("setting", "tokens"),
    [
        (None, ("0", "1", "2")),
        ("", ()),
        ("-1", ()),
        ("2,0", ("2", "0")),
        (" 1 , 2 ", ("1", "2")),
        ("0,-1,1", ("0",)),
        ("1,7,0", ("1",)),
        ("1,1", ()),
        (UUID, (UUID,)),
        ("MIG-8a1b,MIG-9c2d", ("MIG-8a1b", "MIG-9c2d")),
        ("none", ()),
    ],
)
def test_cuda_visible_devices(tmp_path: Path, setting: str | None, tokens: tuple[str, ...]) -> None:
    """CUDA_VISIBLE_DEVICES selects, orders, names by UUID, ends at the first bad entry, and refuses duplicates."""
    environ = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert visible_gpus(environ, nvidia_machine(tmp_path)) == tokens


def test_a_single_high_node_is_index_0(tmp_path: Path) -> None:
    """A container that shows only /dev/nvidia3 has one GPU, which CUDA calls 0."""
    assert visible_gpus({}, nvidia_machine(tmp_path, (3,))) == ("0",)


@pytest.mark.parametrize(
    ("environ", "tokens"),
    [
        ({}, ("0", "1")),
        ({"ROCR_VISIBLE_DEVICES": "1"}, ("0",)),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "GPU-deadbeef"}, ("0",)),
        ({"HIP_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, ("0",)),
        ({"HIP_VISIBLE_DEVICES": ""}, ()),
    ],
)
def test_amd_variables(tmp_path: Path, environ: Mapping[str, str], tokens: tuple[str, ...]) -> None:
    """HIP's indices count within what ROCR leaves, and HIP's variable comes before CUDA's."""
    assert visible_gpus(environ, amd_machine(tmp_path)) == tokens


def test_amd_gpu_withheld_by_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose gpu_id may not be read is no GPU of this process."""
    root, read_text = amd_machine(tmp_path), Path.read_text

    def withhold(path: Path) -> str:
        if path.parent.name == "3":
            raise PermissionError(1, "Operation not permitted")
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", withhold)
    assert visible_gpus({}, root) == ("0",)


def test_topology_without_kfd_is_no_gpu(tmp_path: Path) -> None:
    """The topology of the host is visible in containers that were not given /dev/kfd."""
    root = amd_machine(tmp_path)
    (root / "dev/kfd").unlink()
    assert visible_gpus({}, root) == ()


def test_no_nodes(tmp_path: Path) -> None:
    """Without device nodes there is no GPU, whatever torch was built for."""
    assert has_gpu({}, tmp_path) == (False, "no GPU: no /dev/nvidia0 and no GPU under /dev/kfd")


@pytest.mark.parametrize(
    ("build", "kind", "reason"),
    [
        ("2.13.0+cpu", "CPU", "a NVIDIA device node exists but torch 2.13.0+cpu is a CPU build"),
        ("2.9.0+rocm6.4", "ROCm", "a NVIDIA device node exists but torch 2.9.0+rocm6.4 is a ROCm build"),
        (None, "", "a NVIDIA device node exists but torch is not installed"),
    ],
)
def test_nodes_without_a_fitting_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str | None, kind: str, reason: str
) -> None:
    """A GPU that this torch cannot drive is no GPU, and the reason names both."""
    pretend_torch(monkeypatch, build, kind)
    assert has_gpu({}, nvidia_machine(tmp_path)) == (False, reason)


def test_hidden_gpus_name_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the environment hides every GPU, the reason shows the setting."""
    pretend_torch(monkeypatch, "2.13.0+cu130", "CUDA")
    found, reason = has_gpu({"CUDA_VISIBLE_DEVICES": "-1"}, nvidia_machine(tmp_path))
    assert not found
    assert reason == "a NVIDIA device node exists but CUDA_VISIBLE_DEVICES='-1' hides every GPU"


@pytest.mark.parametrize(("build", "kind"), [("2.13.0", ""), ("2.13.0+cu130", "CUDA")])
def test_an_unknown_build_trusts_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str, kind: str
) -> None:
    """A build that cannot be told is believed to fit the device nodes, as one that does fit."""
    pretend_torch(monkeypatch, build, kind)
    assert has_gpu({}, nvidia_machine(tmp_path)) == (True, f"3 NVIDIA GPUs visible, torch {build}")


@pytest.mark.parametrize(
    ("version", "source", "kind"),
    [
        ("2.13.0+cpu", None, "CPU"),
        ("2.13.0+cu130", None, "CUDA"),
        ("2.9.0+rocm6.4", None, "ROCm"),
        ("2.13.0", "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", "CUDA"),
        ("2.13.0", "cuda = None\nhip = None\n", "CPU"),
        ("2.9.0a0+git12ab", "cuda = None\nhip = '7.0.51831'\n", "ROCm"),
        ("2.13.0", "__version__ = '2.13.0'\n", ""),
        ("2.13.0", "not python", ""),
        ("2.13.0", None, ""),
    ],
)
def test_torch_build_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, source: str | None, kind: str
) -> None:
    """The kind comes from the version's local part, else from torch/version.py as text, else it is not known."""

    class Installed(importlib.metadata.PathDistribution):
        def locate_file(self, path: object) -> Path:
            return tmp_path / str(path)

    monkeypatch.setattr(gpu_tokens, "torch_build", lambda: version)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(tmp_path))
    if source is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/version.py").write_text(source)
    assert torch_build_kind() == kind


def test_the_controller_never_imports_torch() -> None:
    """Looking for GPUs leaves torch unimported."""
    script = (
        "import os, sys\n"
        "from pytest_attnperf.environment.gpu_tokens import has_gpu, torch_build_kind, visible_gpus_here\n"
        "has_gpu(os.environ), torch_build_kind(), visible_gpus_here()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2]).returncode == 0

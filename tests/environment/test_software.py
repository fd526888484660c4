from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from pytest_attnperf.environment.software import aiter_version, amd_driver, fp_fusion, named_fields, nvidia_driver
from pytest_attnperf.environment.system import ProbeError, System


def package_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `aiter` be found in this folder."""
    spec = importlib.machinery.ModuleSpec("aiter", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_cpu_names_no_driver() -> None:
    """On a CPU only packages and the kernel are named, and absent packages are 'none'."""
    fields = named_fields("cpu", System(), environ={})
    assert fields.keys() == {"python", "torch", "triton", "aiter", "kernel"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        *({"TRITON_DEFAULT_FP_FUSION": on} for on in ("1", "true", "ON", "y")),
        {"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_FORCE_DISABLE_FP_FUSION": "0"},
    ],
)
def test_fp_fusion_goes_unsaid_where_it_is_on(environ: dict[str, str]) -> None:
    """Baselines were made with it on, and hold no word of it: they must stay comparable."""
    assert fp_fusion(environ) == {}
    assert "triton_fp_fusion" not in named_fields("cpu", System(), environ)


@pytest.mark.parametrize(
    "environ",
    [
        *({"TRITON_DEFAULT_FP_FUSION": off} for off in ("0", "false", "", "t")),
        {"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_FORCE_DISABLE_FP_FUSION": "1"},
    ],
)
def test_fp_fusion_is_named_where_it_is_off(environ: dict[str, str]) -> None:
    """Whatever Triton does not read as true turns it off; other code is then compiled from the same source."""
    assert named_fields("cpu", System(), environ)["triton_fp_fusion"] == "off"


def test_triton_under_another_distribution_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's torch brings Triton as pytorch-triton-rocm."""
    versions = {"torch": "2.9.0+rocm6.4", "pytorch-triton-rocm": "3.5.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    fields = named_fields("cpu", System())
    assert (fields["torch"], fields["triton"]) == ("2.9.0+rocm6.4", "3.5.0")


def test_rocm_aiter_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's aiter has ops/mha.py and jit/; without package metadata its version is unknown."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/mha.py").touch()
    (tmp_path / "jit").mkdir()
    package_at(tmp_path, monkeypatch)
    assert aiter_version() == "unknown (no package metadata)"
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"amd-aiter": "0.1.9"}[name])
    assert aiter_version() == "0.1.9"


def test_the_unrelated_aiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The asyncio package of the same name is not taken for ROCm's."""
    (tmp_path / "azip.py").touch()
    package_at(tmp_path, monkeypatch)
    assert aiter_version() == "none (the package named aiter here is not ROCm's)"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build", "580.159.04"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023", "535.54.03"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82  Tue", "470.82"),
    ],
)
def test_nvidia_driver(tmp_path: Path, text: str, version: str) -> None:
    """The version is read from the first line of either kernel module."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(f"{text}\nGCC version:  gcc version 12.2.0\n")
    assert nvidia_driver(System(tmp_path)) == version


def test_unreadable_drivers(tmp_path: Path) -> None:
    """A driver file of another form and an absent module are reasons, not versions."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("nothing\n")
    with pytest.raises(ProbeError, match="/proc/driver/nvidia/version holds 'nothing'"):
        nvidia_driver(System(tmp_path))
    with pytest.raises(ProbeError, match="/sys/module/amdgpu does not exist"):
        amd_driver(System(tmp_path))

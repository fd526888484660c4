from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from pathlib import Path

import pytest

from kernels import register
from kernels.hip import emulator, emulator_objects, missing
from kernels.hip.missing import missing_hip
from pytest_attnperf.backends import Registry
from pytest_attnperf.errors import ToolMissingError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

CPU = DeviceInfo("cpu", "cpu-x86_64", "epyc")
ROPE = "rope-b1-s4-h2-d64-f16"


@pytest.mark.parametrize(
    ("kind", "arch", "expected"),
    [
        ("cuda", "sm_90", []),
        ("rocm", "gfx1100", []),
        ("cuda", "sm_75", ["HIP kernels use instructions of sm_80 and newer; this device is sm_75"]),
    ],
)
def test_devices_without_hip(kind: str, arch: str, expected: list[str]) -> None:
    """Every AMD GPU and NVIDIA's since sm_80 can run them; for older ones the reason is given."""
    assert missing_hip(DeviceInfo(kind, arch, "product")) == expected


def test_without_tools_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the emulator's reasons count, on a GPU a missing torch."""
    monkeypatch.setattr(emulator, "missing_emulator", lambda: ["no clang"])
    assert missing_hip(CPU) == ["no clang"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert missing_hip(DeviceInfo("cuda", "sm_90", "h200")) == [
        "torch is not installed; its runtime compiler compiles the HIP kernels; install torch"
    ]


def test_without_clang_no_backend_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every HIP backend is unsupported, and says what to install; none raises."""

    def absent(arch: str) -> None:
        raise ToolMissingError("no clang here. Please install one")

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(emulator_objects, "_has_half_floats", lambda: True)
    monkeypatch.setattr(emulator_objects, "find_toolchain", absent)
    registry = Registry()
    register(registry)
    small = {
        "prefill": "prefill-b1-s40-h2-d64-f16",
        "decode": "decode-b2-kv40-h2-d64-f16",
        "rope": ROPE,
        "qk_scores": "qk_scores-b1-s40-h2-d64-f16",
        "causal_mask": "causal_mask-b1-s40-h2-f32",
        "row_softmax": "row_softmax-b1-s40-h2-f16",
        "weighted_values": "weighted_values-b1-s40-h2-d64-f16",
    }
    found = {
        backend.name: backend.unsupported_reasons(parse_workload(small[family]), CPU)
        for backend in registry
        for family in backend.families
        if backend.name.startswith("hip.")
    }
    assert set(map(tuple, found.values())) == {
        ("the HIP emulator compiles with clang: no clang here. Please install one",)
    }
    assert {"hip.naive", "hip.best", "hip.staged", "hip.decode", "hip.rope"} <= set(found)


@pytest.mark.parametrize(
    ("kind", "version", "way", "program", "variable"),
    [
        ("cuda", "2.7.1+cu128", "", "nvcc", "CUDA_HOME"),
        ("rocm", "2.8.0", "", "hipcc", "ROCM_HOME"),
        ("cuda", "2.13.0", "extension", "nvcc", "CUDA_PATH"),
    ],
)
def test_an_extension_needs_a_toolkit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, version: str, way: str, program: str, variable: str
) -> None:
    """An older torch, and one that is told to build extensions, are unsupported until nvcc or hipcc is there."""
    device = DeviceInfo(kind, "sm_90" if kind == "cuda" else "gfx942", "product")
    monkeypatch.setattr(missing, "TOOLKITS", {kind: (*missing.TOOLKITS[kind][:2], str(tmp_path / "none"))})
    for name in missing.TOOLKITS[kind][1]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(missing.COMPILER, way)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    (reason,) = missing_hip(device)
    assert f"there is no {program} on PATH" in reason
    assert "install it, or use torch 2." in reason
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).touch()
    monkeypatch.setenv(variable, str(tmp_path))
    assert missing_hip(device) == []


@pytest.mark.parametrize("version", ["2.9.0a0+git1234", "3.0", "unknown", None])
def test_a_new_torch_needs_nothing_else(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """A torch with a runtime compiler needs no toolkit; one without a version is taken for one."""

    def told(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", told)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(missing.COMPILER, raising=False)
    assert missing_hip(DeviceInfo("rocm", "gfx942", "mi300x")) == []

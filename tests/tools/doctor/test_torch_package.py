from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor import torch_package
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status

MI300X = ["AMD Instinct MI300X", "gfx942", 304, 192 * 2**30]


def build(monkeypatch: pytest.MonkeyPatch, here: Any, version: str | None, kind: str) -> DoctorFinding:
    """The line of an installed build."""
    monkeypatch.setattr(torch_package.gpu_tokens, "torch_build", lambda: version)
    monkeypatch.setattr(torch_package.gpu_tokens, "torch_build_kind", lambda: kind)
    (finding,) = torch_package.build_probe(here)
    return finding


@pytest.mark.parametrize(
    ("vendor", "version", "kind", "status", "value", "fix"),
    [
        ("", "2.13.0+cpu", "CPU", Status.OK, "2.13.0+cpu, CPU only", ""),
        ("", "2.13.0", "CUDA", Status.NOTE, "2.13.0, CUDA build", "device lines"),
        ("amd", "2.13.0+rocm7.0", "ROCm", Status.OK, "2.13.0+rocm7.0, ROCm build", ""),
        ("amd", "2.13.0+cu128", "CUDA", Status.PROBLEM, "2.13.0+cu128, CUDA build", "whl/rocm"),
        ("amd", "2.13.0+cpu", "CPU", Status.PROBLEM, "2.13.0+cpu, CPU only", "whl/rocm"),
        ("nvidia", "2.13.0+rocm7.0", "ROCm", Status.PROBLEM, "2.13.0+rocm7.0, ROCm build", "pip install torch"),
        ("nvidia", "2.13.0", "", Status.OK, "2.13.0", ""),
        ("amd", None, "", Status.PROBLEM, "not installed", "whl/rocm"),
    ],
)
def test_build_is_held_against_the_gpu(
    make_here: Any,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    version: str | None,
    kind: str,
    status: Status,
    value: str,
    fix: str,
) -> None:
    """A build for another vendor's GPU, or for none, is a problem with the command that installs the right one."""
    finding = build(monkeypatch, make_here(vendor), version, kind)
    assert (finding.status, finding.value) == (status, value)
    assert fix in finding.fix


def device(monkeypatch: pytest.MonkeyPatch, here: Any, answer: object) -> DoctorFinding:
    """The line of what a process with torch answers, or fails with."""

    def ask(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torch_package, "answer_of", ask)
    (finding,) = torch_package.device_probe(here)
    return finding


def test_devices_are_named(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first device is shown with its architecture, compute units and memory; others are details."""
    answer = {"devices": [MI300X, MI300X], "took_s": 2.0, "toolkit": "ROCm 7.0", "threads": 8}
    finding = device(monkeypatch, make_here("amd"), answer)
    assert finding.value == "2 devices, the first: AMD Instinct MI300X (gfx942), 304 compute units, 192.0 GiB"
    assert finding.details == ("imports in 2.0 s", "ROCm 7.0", "AMD Instinct MI300X (gfx942)")


def test_torch_without_a_device_or_import(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeing no device is a problem where a GPU is, and not where there is none; a failed import always is one."""
    nothing = {"devices": [], "took_s": 2.0, "threads": 2}
    assert device(monkeypatch, make_here(), nothing).status is Status.OK
    assert device(monkeypatch, make_here("nvidia"), nothing).status is Status.PROBLEM
    here = make_here()
    finding = device(monkeypatch, here, ProbeError("ImportError: libamdhip64.so"))
    assert (finding.status, "libamdhip64.so" in finding.value) == (Status.PROBLEM, True)
    assert finding.fix.startswith("pip uninstall torch")
    (here.root / "torch.py").touch()
    assert device(monkeypatch, here, ProbeError("no 'cuda'")).fix.startswith("rename torch.py")


def test_no_torch_is_said_once(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed, no process is started to import it."""
    monkeypatch.setattr(torch_package.gpu_tokens, "torch_build", lambda: None)
    monkeypatch.delattr(torch_package, "answer_of")
    assert torch_package.device_probe(make_here()) == ()

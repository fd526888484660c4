from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.tools.doctor import triton_package
from pytest_attnperf.tools.doctor.probes import Status


@pytest.mark.parametrize(
    ("vendor", "versions", "backends", "wanted", "status", "said"),
    [
        ("", {"triton": "3.9.0"}, ("amd", "nvidia"), None, Status.OK, "triton 3.9.0, compiles for amd, nvidia"),
        ("nvidia", {"triton": "3.4.0"}, ("nvidia",), ("triton", "3.4.0"), Status.OK, "triton 3.4.0"),
        (
            "nvidia",
            {"triton": "3.9.0"},
            ("nvidia",),
            ("triton", "3.4.0"),
            Status.WARNING,
            "torch requires triton 3.4.0",
        ),
        ("amd", {"triton": "3.4.0"}, ("nvidia",), None, Status.PROBLEM, "no backend for AMD"),
        ("amd", {"triton": "3.4.0", "pytorch-triton-rocm": "3.4.0"}, ("amd",), None, Status.WARNING, "one folder"),
        ("", {"triton": "3.1.0"}, ("amd",), None, Status.WARNING, "3.3 or newer"),
        ("", {}, (), None, Status.NOTE, "not installed"),
        ("amd", {}, (), None, Status.WARNING, "not installed"),
    ],
)
def test_triton_is_held_against_torch_and_the_gpu(
    make_here: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    vendor: str,
    versions: dict[str, str],
    backends: tuple[str, ...],
    wanted: tuple[str, str] | None,
    status: Status,
    said: str,
) -> None:
    """Another version than torch's, two that overwrite each other, an old one and a missing backend are each told."""
    for name in backends:
        (tmp_path / "backends" / name).mkdir(parents=True)
        (tmp_path / "backends" / name / "compiler.py").touch()
    monkeypatch.setattr(triton_package, "version_of", lambda name: versions.get(name, ""))
    monkeypatch.setattr(triton_package, "_find_package_folder", lambda: tmp_path if backends else None)
    monkeypatch.setattr(triton_package, "required_by_torch", lambda: wanted)
    (finding,) = triton_package.probe(make_here(vendor))
    assert finding.status is status
    assert said in f"{finding.value} {finding.meaning}"


@pytest.mark.parametrize(
    ("requirements", "wanted"),
    [
        (["filelock", 'triton==3.4.0; platform_system == "Linux"'], ("triton", "3.4.0")),
        (["pytorch-triton-rocm (==3.4.0+gitabc) ; extra"], ("pytorch-triton-rocm", "3.4.0+gitabc")),
        (["filelock", "triton-client==2"], None),
        (None, None),
    ],
)
def test_what_torch_pins_is_read_from_its_metadata(
    monkeypatch: pytest.MonkeyPatch, requirements: list[str] | None, wanted: tuple[str, str] | None
) -> None:
    """The distribution and version that torch requires are found under any of Triton's names."""
    monkeypatch.setattr(triton_package.importlib.metadata, "requires", lambda name: requirements)
    assert triton_package.required_by_torch() == wanted

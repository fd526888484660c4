from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.tools.doctor import aiter_package
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status


@pytest.fixture
def aiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(files, version) -> a package `aiter` of these files on the path; importing it would fail the test."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def install(*files: str, version: str = "") -> None:
        for name in ("__init__.py", *files):
            path = tmp_path / "site/aiter" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("raise AssertionError('imported')")
        monkeypatch.setattr(aiter_package, "version_of", lambda name: version)
        monkeypatch.setattr(aiter_package, "aiter_version", lambda: version or "unknown (no package metadata)")

    return install


def line(here: Any) -> DoctorFinding:
    """The one finding."""
    (finding,) = aiter_package.probe(here)
    return finding


def test_absent_aiter_matters_on_amd_only(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without aiter nothing is lost on other devices; on AMD its cases are UNSUPPORTED, and the fix is never PyPI."""
    monkeypatch.setattr(aiter_package, "package_folder", lambda: None)
    assert line(make_here()).status is Status.OK
    finding = line(make_here("amd"))
    assert finding.status is Status.NOTE
    assert finding.fix.startswith("git clone --recursive https://github.com/ROCm/aiter")


@pytest.mark.parametrize(
    ("files", "version", "status", "value"),
    [
        (("ops/mha.py", "jit/core.py"), "0.1.9", Status.OK, "0.1.9, ROCm's"),
        (("ops/mha.py", "jit/core.py"), aiter_package.STALE, Status.WARNING, "stale pre-release"),
        (("azip.py",), "0.13", Status.PROBLEM, "the asyncio package of PyPI 0.13, not ROCm's"),
        (("other.py",), "", Status.PROBLEM, "a package of that name, not ROCm's"),
        (("aiter/ops/mha.py", "aiter/jit/core.py"), "", Status.PROBLEM, "root of a checkout"),
    ],
)
def test_each_package_of_that_name_is_told_by_its_files(
    aiter: Any, make_here: Any, files: tuple[str, ...], version: str, status: Status, value: str
) -> None:
    """ROCm's, the stale one, the asyncio package and a checkout's root are told apart, and none is imported."""
    aiter(*files, version=version)
    finding = line(make_here("amd"))
    assert finding.status is status
    assert value in finding.value
    assert status is Status.OK or finding.fix
    assert status is not Status.PROBLEM or line(make_here()).status is Status.WARNING

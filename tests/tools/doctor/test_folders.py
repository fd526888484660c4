from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.tools.doctor import folders
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status

GIB = 2**30
Disk = Callable[..., None]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Say how much room every file system has, how it is mounted, and whether it may be written."""

    def say(free_bytes: float = 100 * GIB, flags: int = 0, may_write: bool = True) -> None:
        room = SimpleNamespace(f_bavail=int(free_bytes), f_frsize=1, f_blocks=int(free_bytes), f_flag=flags)
        monkeypatch.setattr(folders.os, "statvfs", lambda path: room)
        monkeypatch.setattr(folders.os, "access", lambda path, mode: may_write)

    say()
    return say


def lines(here: Any) -> dict[str, DoctorFinding]:
    """By name."""
    return {finding.name: finding for finding in folders.probe(here)}


def test_places_are_those_that_the_environment_names(make_here: Any, tmp_path: Path, disk: Disk) -> None:
    """Caches lie where their variables say, else where their owners put them; aiter's only where aiter is."""
    plain = {
        place.name: place.folder
        for place in folders.list_write_folders(make_here(environ={"HOME": "/h", "TMPDIR": "/t"}))
    }
    assert plain["Triton cache"] == Path("/h/.triton/cache")
    assert plain["Inductor cache"].parent == Path("/t")
    assert "aiter's modules" not in plain
    named = {"TRITON_CACHE_DIR": "/c/t", "TORCHINDUCTOR_CACHE_DIR": "/c/i"}
    moved = {place.name: place.folder for place in folders.list_write_folders(make_here(environ=named))}
    assert (moved["Triton cache"], moved["Inductor cache"]) == (Path("/c/t"), Path("/c/i"))


def test_aiters_modules_are_looked_at(make_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's aiter builds into its own folder unless a variable moves it."""
    (tmp_path / "aiter/ops").mkdir(parents=True)
    (tmp_path / "aiter/ops/mha.py").touch()
    (tmp_path / "aiter/jit").mkdir()
    monkeypatch.setattr(folders, "package_folder", lambda: tmp_path / "aiter")
    found = {place.name: place.folder for place in folders.list_write_folders(make_here())}
    assert found["aiter's modules"] == tmp_path / "aiter/jit"


@pytest.mark.parametrize(
    ("free_gib", "flags", "may_write", "name", "status", "said"),
    [
        (100, 0, True, "Triton cache", Status.OK, "100.0 GiB free"),
        (1, 0, True, ".attnperf", Status.WARNING, "1.0 GiB free"),
        (0.1, 0, True, ".attnperf", Status.PROBLEM, "for lack of space"),
        (100, os.ST_RDONLY, True, "temporary files", Status.PROBLEM, "cannot be written"),
        (100, 0, False, ".attnperf", Status.PROBLEM, "cannot be written"),
        (100, 8, True, "Triton cache", Status.PROBLEM, "noexec"),
        (100, 8, True, ".attnperf", Status.OK, "100.0 GiB free"),
    ],
)
def test_room_and_rights_are_judged(
    make_here: Any, disk: Disk, free_gib: float, flags: int, may_write: bool, name: str, status: Status, said: str
) -> None:
    """Little room warns, none is a problem, and so are a folder that cannot be written and libraries under noexec."""
    disk(free_gib * GIB, flags, may_write)
    finding = lines(make_here())[name]
    assert finding.status is status
    assert said in f"{finding.value} {finding.meaning}"
    assert status is Status.OK or finding.fix


def test_file_in_place_of_a_folder_is_a_problem(make_here: Any, disk: Disk) -> None:
    """A file named .attnperf is found before a run ends at it."""
    here = make_here()
    (here.root / ".attnperf").write_text("")
    finding = lines(here)[".attnperf"]
    assert (finding.status, finding.value) == (Status.PROBLEM, "no folder")


def test_cache_on_another_machine_is_a_note(make_here: Any, disk: Disk, tmp_path: Path) -> None:
    """A cache on a network's file system is told by the mount nearest above it."""
    here = make_here(environ={"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    (here.system.root / "proc/self").mkdir(parents=True)
    (here.system.root / "proc/self/mounts").write_text(f"a / ext4 rw 0 0\nb {tmp_path} nfs4 rw 0 0\nbroken\n")
    finding = lines(here)["Triton cache"]
    assert (finding.status, finding.value) == (Status.NOTE, "100.0 GiB free (nfs4)")


def test_small_shared_memory_is_a_note(make_here: Any, disk: Disk) -> None:
    """64 MiB, which containers have unless told otherwise, are named with the option that gives more."""
    here = make_here()
    assert "/dev/shm" not in lines(here)
    (here.system.root / "dev/shm").mkdir(parents=True)
    disk(64 * 2**20)
    finding = lines(here)["/dev/shm"]
    assert (finding.status, finding.value) == (Status.NOTE, "64 MiB")
    assert "--ipc=host" in finding.fix

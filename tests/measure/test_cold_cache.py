from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_attnperf.environment.system import System
from pytest_attnperf.measure.cold_cache import cold_size
from pytest_attnperf.records import DeviceInfo

MIB = 2**20


@pytest.mark.parametrize(
    ("device", "mebibytes"),
    [
        (DeviceInfo("rocm", "gfx942", "mi300x", compute_units=304), 512),
        (DeviceInfo("rocm", "gfx90a", "mi210", compute_units=104), 16),
        (DeviceInfo("cuda", "sm_90", "h200", compute_units=132), 120),
    ],
)
def test_twice_the_larger_cache_of_a_listed_device(device: DeviceInfo, mebibytes: int) -> None:
    """MI300's memory-side cache counts, not the L2 of one die; a device without one has its L2."""
    size = cold_size(device)
    assert (size.round_bytes, size.note) == (mebibytes * MIB, "")


def test_an_unlisted_nvidia_device_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's property is right there; where it says nothing, a size is assumed and said."""
    properties = SimpleNamespace(L2_cache_size=40 * MIB)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    device = DeviceInfo("cuda", "sm_80", "a-new-one", compute_units=7)
    assert cold_size(device).round_bytes == 80 * MIB
    properties.L2_cache_size = 0
    assert cold_size(device).round_bytes == 512 * MIB


def test_a_size_that_is_assumed_is_said() -> None:
    """Any other device is taken to have the largest cache that is listed, and the note says so."""
    size = cold_size(DeviceInfo("rocm", "gfx942", "mi300x", compute_units=38))
    assert size.round_bytes == 512 * MIB
    assert size.note == "the size of the last-level cache of gfx942 mi300x is not known; 256 MiB are assumed"


def _cpu(root: Path, cpu: int, *caches: tuple[int, str, str]) -> None:
    """One core with caches of (level, shared_cpu_list, size)."""
    for index, (level, shared, size) in enumerate(caches):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("shared_cpu_list", shared), ("size", size)):
            (folder / name).write_text(f"{text}\n")


CPU = DeviceInfo("cpu", "cpu-x86_64", "test")


def test_a_cpus_caches_of_the_highest_level_count_together(tmp_path: Path) -> None:
    """Two core complexes of 32 MiB each, whose cores see the same one, have 64 MiB; smaller levels do not count."""
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cpu(tmp_path, cpu, (1, str(cpu), "32K"), (2, str(cpu), "1024K"), (3, shared, "32M"))
    assert cold_size(CPU, System(tmp_path)).round_bytes == 2 * 64 * MIB


def test_a_cpu_that_says_nothing_or_nonsense_is_assumed_large(tmp_path: Path) -> None:
    """A container without sysfs, or a size in other words, is not taken for a small cache."""
    assert cold_size(CPU, System(tmp_path)).note.startswith(
        "the size of the last-level cache of cpu-x86_64 test is not"
    )
    _cpu(tmp_path, 0, (3, "0", "a lot"))
    (tmp_path / "sys/devices/system/cpu/cpu1/cache/index0").mkdir(parents=True)
    assert cold_size(CPU, System(tmp_path)).round_bytes == 512 * MIB

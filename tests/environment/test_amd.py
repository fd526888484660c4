from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from pytest_attnperf.environment.amd import NO_THROTTLE_STATUS, read_state, read_throttling
from pytest_attnperf.environment.system import ProbeError, System, ThrottleReading

ADDRESS = "0000:c1:00.0"
FOLDER = f"sys/bus/pci/devices/{ADDRESS}"


def sysfs(root: Path, files: dict[str, str]) -> System:
    """Files below a card's PCI folder."""
    for name, text in files.items():
        path = root / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return System(root)


def test_clocks_from_the_starred_level(tmp_path: Path) -> None:
    """Where hwmon has no clock, the level marked with a star is it; what is nowhere is named."""
    files = {
        "pp_dpm_sclk": "0: 132Mhz\n1: 2100Mhz *",
        "pp_dpm_mclk": "S: 19Mhz *\n0: 900Mhz",
        "hwmon/hwmon5/power1_average": "asleep",
    }
    reading = read_state(ADDRESS, sysfs(tmp_path, files))
    assert reading.values == {"device_id": ADDRESS, "shader_clock_mhz": "2100", "memory_clock_mhz": "19"}
    assert reading.notes == (f"/{FOLDER} gives no power_w, power_limit_w, temperature_c", NO_THROTTLE_STATUS)


@pytest.mark.parametrize("levels", ["0: 132Mhz\n1: 2100Mhz", "garbage *", ""])
def test_levels_without_a_star_are_no_clock(tmp_path: Path, levels: str) -> None:
    """A list of levels in which none is marked says nothing of the clock."""
    reading = read_state(ADDRESS, sysfs(tmp_path, {"pp_dpm_sclk": levels}))
    assert "shader_clock_mhz" not in reading.values
    assert "shader_clock_mhz" in reading.notes[0]


def test_average_power_comes_before_the_instant(tmp_path: Path) -> None:
    """Where a card has both, the average is read; the edge temperature comes before the junction's."""
    names = {"power1_input": "9000000", "power1_average": "7000000", "temp1_input": "40000", "temp2_input": "60000"}
    reading = read_state(ADDRESS, sysfs(tmp_path, {f"hwmon/hwmon0/{name}": text for name, text in names.items()}))
    assert (reading.values["power_w"], reading.values["temperature_c"]) == ("7", "40")


def test_a_card_that_sysfs_does_not_show(tmp_path: Path) -> None:
    """A card without a PCI folder is an error that names the folder."""
    with pytest.raises(ProbeError, match=f"/{FOLDER} does not exist"):
        read_state(ADDRESS, System(tmp_path))


def metrics(revision: tuple[int, int], *numbers: int, size: int = 200) -> bytes:
    """A gpu_metrics table of that revision with numbers of 32 bits from byte 104 on, as struct gpu_metrics_v1_6 has."""
    table = bytearray(struct.pack("<HBB", size, *revision).ljust(size, b"\xff"))
    struct.pack_into(f"<{len(numbers)}I", table, 104, *numbers)
    return bytes(table)


def test_throttling_is_counted_by_the_firmware(tmp_path: Path) -> None:
    """Behind the counter of accumulations stand those of each reason; an offset that is off by one field is seen."""
    system = sysfs(tmp_path, {"vendor": "0x1002"})
    (tmp_path / FOLDER / "gpu_metrics").write_bytes(metrics((1, 6), 9000, 1, 2500, 3, 4, 5))
    assert read_throttling(ADDRESS, system) == ThrottleReading(
        {
            "PROCHOT": 1.0,
            "power cap": 2500.0,
            "socket temperature": 3.0,
            "VR temperature": 4.0,
            "HBM temperature": 5.0,
        },
        9000.0,
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (metrics((1, 3), 1, 2, 3, 4, 5, 6), "revision 1.3 has no counters of throttling that are known here (1.6)"),
        (metrics((1, 7), 1, 2, 3, 4, 5, 6), "revision 1.7 has no counters"),
        (metrics((1, 6), 1, 2, 3, 4, 5, 6)[:120], "revision 1.6 has no counters"),
        (b"", "revision none has no counters"),
        (None, "No such file"),
    ],
)
def test_other_tables_of_metrics_count_nothing(tmp_path: Path, table: bytes | None, said: str) -> None:
    """Another revision has other fields at that place, and a short or missing table has none: no number is guessed."""
    system = sysfs(tmp_path, {"vendor": "0x1002"})
    if table is not None:
        (tmp_path / FOLDER / "gpu_metrics").write_bytes(table)
    with pytest.raises(ProbeError, match=re.escape(said)):
        read_throttling(ADDRESS, system)

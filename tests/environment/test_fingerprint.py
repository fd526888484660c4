from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.environment.fingerprint import take_fingerprint
from pytest_attnperf.environment.system import ProbeError, System, run_command
from pytest_attnperf.records import DeviceInfo

pytest.importorskip("torch")

H200 = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", 132, 150109880320, "GPU-cb3296dd")
MI300X = DeviceInfo("rocm", "gfx942", "mi300x", "AMD Instinct MI300X", 304, 206141652992, "0000:c1:00.0")
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)\nGCC ...\n"


def answering(text: str) -> Callable[[Sequence[str]], str]:
    """A command runner that answers this to anything."""
    return lambda command: text


def failing(command: Sequence[str]) -> str:
    """A command runner on a machine without the command."""
    raise ProbeError(f"{command[0]} not found")


def amd_system(root: Path) -> System:
    """A sysfs with one MI300X in CPX / NPS4 mode, capped at 750 W."""
    card = root / "sys/bus/pci/devices/0000:c1:00.0"
    (card / "hwmon/hwmon5").mkdir(parents=True)
    (card / "hwmon/hwmon5/power1_cap").write_text("750000000\n")
    (card / "current_compute_partition").write_text("CPX\n")
    (card / "current_memory_partition").write_text("NPS4\n")
    (root / "sys/module/amdgpu").mkdir(parents=True)
    (root / "sys/module/amdgpu/version").write_text("6.12.12\n")
    return System(root, failing)


def test_nvidia(tmp_path: Path) -> None:
    """On an H200 the power cap and MIG mode come from one query for this card's UUID, the driver from /proc."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(DRIVER)
    asked: list[Sequence[str]] = []

    def nvidia_smi(command: Sequence[str]) -> str:
        asked.append(command)
        return "700.00, Disabled\n"

    fingerprint = take_fingerprint(H200, System(tmp_path, nvidia_smi))
    assert fingerprint.must_match == {
        "arch": "sm_90",
        "product": "h200",
        "compute_units": "132",
        "power_cap_w": "700",
        "compute_partition": "none",
        "memory_partition": "none",
    }
    assert fingerprint.named["driver"] == "580.159.04"
    assert fingerprint.named.keys() >= {"python", "torch", "triton", "aiter", "kernel", "cuda"}
    assert len(asked) == 1
    assert "--id=GPU-cb3296dd" in asked[0]


@pytest.mark.parametrize(
    ("answer", "power_cap_w", "compute_partition"),
    [
        ("350.00, Enabled", "350", "mig"),
        ("300.00, [N/A]", "300", "none"),
        ("[N/A], [N/A]", "unknown (nvidia-smi gives no power limit)", "none"),
        ("many, Disabled", "unknown (nvidia-smi gives the power limit 'many')", "none"),
        ("No devices", "unknown (nvidia-smi answered 'No devices')", "unknown (nvidia-smi answered 'No devices')"),
    ],
)
def test_nvidia_smi_answers(tmp_path: Path, answer: str, power_cap_w: str, compute_partition: str) -> None:
    """Every answer of nvidia-smi becomes a value or a stated unknown."""
    must_match = take_fingerprint(H200, System(tmp_path, answering(answer))).must_match
    assert must_match["power_cap_w"] == power_cap_w
    assert must_match["compute_partition"] == compute_partition


def test_nvidia_without_tools(tmp_path: Path) -> None:
    """A missing nvidia-smi, UUID or driver file costs its own facts only, and says why."""
    fingerprint = take_fingerprint(H200, System(tmp_path, failing))
    assert fingerprint.must_match["power_cap_w"] == "unknown (nvidia-smi not found)"
    assert fingerprint.must_match["product"] == "h200"
    assert fingerprint.named["driver"] == "unknown (/proc/driver/nvidia/version: No such file or directory)"
    nameless = take_fingerprint(replace(H200, device_id=""), System(tmp_path, answering("700.00, Disabled")))
    assert nameless.must_match["power_cap_w"] == "unknown (torch gives no UUID to ask nvidia-smi about)"


def test_amd(tmp_path: Path) -> None:
    """On an MI300X partitions, power cap and driver come from sysfs, and no command runs."""
    fingerprint = take_fingerprint(MI300X, amd_system(tmp_path))
    assert fingerprint.must_match["compute_partition"] == "CPX"
    assert fingerprint.must_match["memory_partition"] == "NPS4"
    assert fingerprint.must_match["power_cap_w"] == "750"
    assert fingerprint.named["driver"] == "6.12.12"
    assert "rocm" in fingerprint.named


def test_amd_card_without_partitions(tmp_path: Path) -> None:
    """A card without partition files is not partitioned; the module inside the kernel has no version."""
    system = amd_system(tmp_path)
    for path in ("bus/pci/devices/0000:c1:00.0/current_compute_partition", "module/amdgpu/version"):
        (tmp_path / "sys" / path).unlink()
    fingerprint = take_fingerprint(MI300X, system)
    assert fingerprint.must_match["compute_partition"] == "none"
    assert fingerprint.must_match["memory_partition"] == "NPS4"
    assert fingerprint.named["driver"] == "in-kernel"


@pytest.mark.parametrize(
    ("cap", "stated"),
    [("fast", "unknown (power1_cap holds 'fast')"), (None, "unknown (/sys/bus/pci/devices/0000:c1:00.0 has no hwmon")],
)
def test_amd_power_cap_unreadable(tmp_path: Path, cap: str | None, stated: str) -> None:
    """A power cap that is absent or no number is a stated unknown beside known partitions."""
    system = amd_system(tmp_path)
    file = tmp_path / "sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon5/power1_cap"
    file.unlink() if cap is None else file.write_text(cap)
    must_match = take_fingerprint(MI300X, system).must_match
    assert must_match["power_cap_w"].startswith(stated)
    assert must_match["compute_partition"] == "CPX"


def test_amd_without_sysfs(tmp_path: Path) -> None:
    """A card that sysfs does not show is unknown, not unpartitioned."""
    must_match = take_fingerprint(MI300X, System(tmp_path, failing)).must_match
    assert must_match["compute_partition"] == "unknown (/sys/bus/pci/devices/0000:c1:00.0 does not exist)"


def test_cpu_threads_must_match() -> None:
    """Two thread counts on one CPU are two fingerprints, and the difference is named."""
    device = identify_device("cpu")
    ours, theirs = take_fingerprint(device), take_fingerprint(replace(device, compute_units=64))
    assert f"cpu_threads: {device.compute_units} here, 64 stored" in ours.list_mismatches(theirs)
    assert ours.list_mismatches(take_fingerprint(device)) == []


def test_fast_enough_for_every_worker_start() -> None:
    """A fingerprint of this machine takes less than 300 ms."""
    device = identify_device("cpu")
    started = time.perf_counter()
    take_fingerprint(device)
    assert time.perf_counter() - started < 0.3


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["no-such-tool"], "no-such-tool not found"),
        (["false"], "false exited with 1"),
        (["sleep", "60"], "sleep did not answer in 0.05 s"),
    ],
)
def test_commands_fail_with_a_reason(command: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing, failing or stuck tool is a ProbeError that says which."""
    monkeypatch.setattr("pytest_attnperf.environment.system.COMMAND_LIMIT_S", 0.05)
    with pytest.raises(ProbeError) as caught:
        run_command(command)
    assert str(caught.value) == why


@pytest.mark.gpu
def test_the_fingerprint_of_this_machine_is_known() -> None:
    """On a real GPU nothing that must match is unknown."""
    must_match = take_fingerprint(identify_device("cuda")).must_match
    assert [key for key, value in must_match.items() if value.startswith("unknown")] == []

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.here import has_gpu, surroundings_here, vendor_of

NODE = "sys/class/kfd/kfd/topology/nodes/1"


def machine(root: Path, *files: str) -> System:
    """A machine with these files; an AMD node says gfx942."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("gfx_target_version 90402\n" if name.endswith("properties") else "7\n")
    return System(root)


@pytest.mark.parametrize(
    ("files", "vendor", "seen"),
    [
        ((), "", False),
        (("dev/nvidia0", "dev/nvidiactl"), "nvidia", True),
        (("dev/nvidiactl",), "", False),
        (("dev/kfd", f"{NODE}/gpu_id", f"{NODE}/properties"), "amd", True),
        ((f"{NODE}/gpu_id", f"{NODE}/properties"), "amd", False),
        (("proc/driver/nvidia/gpus/0000:01:00.0/information",), "nvidia", False),
    ],
)
def test_vendor_is_the_drivers_and_a_gpu_is_a_node(
    tmp_path: Path, files: tuple[str, ...], vendor: str, seen: bool
) -> None:
    """A container without device nodes still shows whose driver the machine has, and has no GPU."""
    system = machine(tmp_path, *files)
    assert vendor_of(system) == vendor
    assert has_gpu(system, {}) is seen


def test_hidden_gpu_is_none(tmp_path: Path) -> None:
    """A variable that hides the GPU hides it from the doctor, too."""
    assert not has_gpu(machine(tmp_path, "dev/nvidia0"), {"CUDA_VISIBLE_DEVICES": ""})


def test_project_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor looks at the folder that it is started in, and at this process's environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNPERF_DOCTOR_TEST", "1")
    here = surroundings_here()
    assert here.root == tmp_path.resolve()
    assert here.environ["ATTNPERF_DOCTOR_TEST"] == "1"

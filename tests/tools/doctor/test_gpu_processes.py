from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_attnperf.environment.cards import lease_gpu
from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.gpu_processes import probe
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status
from tests.tools.doctor.gpu_machines import Smi, h200, mi300x, no_command, surroundings, write


def found(system: System, vendor: str, locks: Path | None = None, **environ: str) -> dict[str, DoctorFinding]:
    """Findings by name; leases lie in a folder of the test."""
    folder = locks or system.root / "locks"
    return {line.name: line for line in probe(surroundings(system, vendor, system.root, **environ), folder)}


def test_a_foreign_process_on_nvidia(tmp_path: Path) -> None:
    """Another program on one of two GPUs is a problem that names it, and the fix is the GPU that is free."""
    system = h200(tmp_path, Smi({"1": "4242, /usr/bin/python3, 512 MiB\n"}), cards=2)
    line = found(system, "nvidia")["GPU processes"]
    assert (line.status, line.value) == (Status.PROBLEM, "4242 python3 (512 MiB) on GPU 1")
    assert line.fix == "measure on a GPU that is free: export CUDA_VISIBLE_DEVICES=0"
    assert found(system, "nvidia", CUDA_VISIBLE_DEVICES="0")["GPU processes"].status is Status.OK


def test_several_processes_on_the_only_gpu(tmp_path: Path) -> None:
    """Where no GPU is free the fix is to wait; the line shows three processes, the details all."""
    lines = "".join(f"{4000 + index}, train.py, 1 GiB\n" for index in range(5))
    line = found(h200(tmp_path, Smi({"0": lines})), "nvidia")["GPU processes"]
    assert line.value.endswith("; 2 more")
    assert len(line.details) == 5
    assert line.fix == "wait until it has ended; if it is yours and left over: kill 4000"


def test_a_foreign_process_on_amd(tmp_path: Path) -> None:
    """KFD lists who holds memory of the card; another card's user is none of ours."""
    system = mi300x(tmp_path, {}, {})
    processes = "sys/class/kfd/kfd/proc"
    write(tmp_path, {f"{processes}/77/vram_50000": "4096", "proc/77/comm": "vllm", f"{processes}/78/vram_50001": "0"})
    line = found(system, "amd")["GPU processes"]
    assert (line.status, line.value) == (Status.PROBLEM, "77 vllm on GPU 0")
    assert "HIP_VISIBLE_DEVICES=1" in line.fix


def test_our_own_children_are_not_foreign(tmp_path: Path) -> None:
    """A process that we started, or that one of ours started, is left out; a name with brackets misleads nobody."""
    tree = {101: (100, "python3"), 100: (os.getpid(), "a) (b"), 201: (1, "other")}
    write(tmp_path, {f"proc/{pid}/stat": f"{pid} ({name}) S {parent} 1 1" for pid, (parent, name) in tree.items()})
    smi = Smi({"0": "".join(f"{pid}, python3, 1 MiB\n" for pid in (os.getpid(), 100, 101, 201))})
    assert found(h200(tmp_path, smi), "nvidia")["GPU processes"].value == "201 python3 (1 MiB) on GPU 0"


def test_a_lease_held_by_another_run(tmp_path: Path) -> None:
    """A GPU under lease is a problem where it is the only one and a note where another is free; the holder is named."""
    system, locks = h200(tmp_path, cards=2), tmp_path / "locks"
    lease = lease_gpu(["0"], locks, {})
    inode = Path(lease.lock.lock_file).stat().st_ino
    write(tmp_path, {"proc/locks": f"1: FLOCK  ADVISORY  WRITE 555 fd:01:{inode} 0 EOF", "proc/555/comm": "pytest"})
    line = found(system, "nvidia", locks)["GPU lease"]
    assert (line.status, line.value) == (Status.NOTE, "GPU 0 of 0, 1 held by pid 555 pytest")
    only = found(system, "nvidia", locks, CUDA_VISIBLE_DEVICES="0")["GPU lease"]
    assert (only.status, only.value) == (Status.PROBLEM, "GPU 0 of 0 held by pid 555 pytest")
    lease.release()
    assert found(system, "nvidia", locks)["GPU lease"].status is Status.OK


def test_asking_gives_the_lease_back(tmp_path: Path) -> None:
    """After the probe another run can take the GPU."""
    system = h200(tmp_path)
    assert found(system, "nvidia", tmp_path / "locks")["GPU lease"].status is Status.OK
    lease_gpu(["0"], tmp_path / "locks", {}).release()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A folder of leases that is a file is UNKNOWN with what to do."""
    (tmp_path / "file").write_text("")
    line = found(h200(tmp_path), "nvidia", tmp_path / "file/locks")["GPU lease"]
    assert line.status is Status.UNKNOWN
    assert "TMPDIR" in line.fix


@pytest.mark.parametrize(
    ("vendor", "answer", "why"),
    [("nvidia", None, "nvidia-smi not found"), ("nvidia", "rubbish", "answered 'rubbish'"), ("amd", None, "no GPU")],
)
def test_processes_that_cannot_be_asked_for(tmp_path: Path, vendor: str, answer: str | None, why: str) -> None:
    """Where nobody can say who computes, the line is UNKNOWN and the lease is still looked at."""
    write(tmp_path, {"dev/nvidia0": ""} if vendor == "nvidia" else {})
    system = System(tmp_path, no_command if answer is None else lambda _command: f"{answer}\n")
    if vendor == "amd":
        system = mi300x(tmp_path)
        environ = {"HIP_VISIBLE_DEVICES": "GPU-00000000000000ff"}
    else:
        environ = {}
    lines = found(system, vendor, **environ)
    assert lines["GPU processes"].status is Status.UNKNOWN
    assert why in lines["GPU processes"].value
    assert lines["GPU lease"].status is Status.OK

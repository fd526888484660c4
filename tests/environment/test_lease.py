from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_attnperf.environment import gpus
from pytest_attnperf.environment.cards import Card
from pytest_attnperf.environment.lease import GpuBusyError, lease_card, lease_directory, lease_free, lease_gpu
from pytest_attnperf.errors import UsageError

ROOT = Path(__file__).parents[2]


def test_each_lease_gets_another_gpu(tmp_path: Path) -> None:
    """Leases are given in order and never twice, until one is released."""
    first = lease_gpu(("0", "1"), tmp_path, {})
    second = lease_gpu(("0", "1"), tmp_path, {})
    assert (first.token, second.token) == ("0", "1")
    first.release()
    assert lease_gpu(("0", "1"), tmp_path, {}).token == "0"


def test_none_free(tmp_path: Path) -> None:
    """When another run holds every GPU, the error says which, where the locks are, and what to do."""
    held = lease_gpu(("0",), tmp_path, {})
    with pytest.raises(GpuBusyError) as caught:
        lease_gpu(("0",), tmp_path, {})
    assert str(caught.value) == (
        f"no free GPU: 1 visible GPU (0), every one leased by another run (locks in {tmp_path}); "
        "wait for it to end, or make another GPU visible"
    )
    held.release()


def test_more_workers_than_gpus(tmp_path: Path) -> None:
    """Under pytest-xdist the error gives both numbers and the -n that fits."""
    held = [lease_gpu(("0", "1"), tmp_path, {}) for _ in range(2)]
    with pytest.raises(UsageError) as caught:
        lease_gpu(("0", "1"), tmp_path, {"PYTEST_XDIST_WORKER_COUNT": "4"})
    assert str(caught.value) == (
        "4 workers for 2 visible GPUs: two workers on one GPU would disturb each other's timings; use -n 2"
    )
    assert len(held) == 2


def test_hip_indices_are_leased_as_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index 0 of two runs with different ROCR_VISIBLE_DEVICES is two cards; of the same card it is one."""
    monkeypatch.setattr(gpus, "nvidia_minors", lambda root: ())
    leases = [lease_gpu(("0",), tmp_path, {"ROCR_VISIBLE_DEVICES": card}) for card in ("2", "3")]
    with pytest.raises(GpuBusyError):
        lease_gpu(("1",), tmp_path, {"ROCR_VISIBLE_DEVICES": "0,3"})
    assert len(leases) == 2


def test_a_lease_is_of_the_card(tmp_path: Path) -> None:
    """What one run calls 0 and another by its UUID is one card; all that are free can be had at once."""
    [held] = lease_free([Card("0", "0", name="GPU-a")], tmp_path)
    by_uuid, other = Card("GPU-a", "GPU-a", name="GPU-a"), Card("GPU-b", "1", name="GPU-b")
    with pytest.raises(GpuBusyError, match="1 visible GPU "):
        lease_card([by_uuid], tmp_path, {}, wait_s=0.01)
    free = lease_free([by_uuid, other], tmp_path)
    assert [lease.token for lease in free] == ["GPU-b"]
    for lease in (held, *free):
        lease.release()
    assert [lease.token for lease in lease_free([by_uuid, other], tmp_path)] == ["GPU-a", "GPU-b"]


def test_a_killed_process_gives_its_gpu_back(tmp_path: Path) -> None:
    """The lock is held against other processes and dies with its holder, even by SIGKILL."""
    script = (
        "import sys; from pathlib import Path; from pytest_attnperf.environment.lease import lease_gpu\n"
        "lease = lease_gpu(('0',), Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GpuBusyError):
            lease_gpu(("0",), tmp_path, {})
        holder.kill()
        holder.wait()
    assert lease_gpu(("0",), tmp_path, {}).token == "0"


def test_the_default_directory_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks lie in a private folder under the temporary directory, and a stranger's folder is refused."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    user = os.getuid()
    folder = lease_directory()
    assert folder == tmp_path / f"attnperf-leases-{user}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rename(tmp_path / f"attnperf-leases-{user + 1}")
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(UsageError, match=f"belongs to user id {user}, not to {user + 1}; have it removed"):
        lease_directory()

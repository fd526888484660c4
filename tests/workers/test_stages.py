from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.testing.fake.backends import FakeBackend
from pytest_attnperf.testing.fake.device import FakeDevice
from pytest_attnperf.workers.protocol import Channel
from pytest_attnperf.workers.server import Server
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
KEY = CaseKey("prefill", "fake.a", WORKLOAD.id)
SCRIPT = '{"backends": {"fake.a": {"time_us": 100.0, "stages": {"project": 60.0, "split": 0.0}}}}'


class Asked:
    """A server in a thread that serves one item, and the controller's end of its channel."""

    def __init__(self, folder: Path) -> None:
        path = folder / "fake_device.json"
        path.write_text(SCRIPT)
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.server = Server(Channel(theirs), FakeDevice(path, "cpu", "w"), [KEY], Role.INTERPRET, folder)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while self.server.next_item() is not None:
            self.server.serve_case(FakeBackend("fake.a"), WORKLOAD)
            self.server.report_item_finished("passed", "")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer."""
        self.channel.send({"id": op, "op": op, **fields})
        return self.channel.receive(5)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """A case that is open."""
    made = Asked(tmp_path)
    key = {"suite": KEY.suite, "backend": KEY.backend, "workload": KEY.workload, "label": ""}
    made.ask("open", key=key, next_key=None, seeds={"check": 1, "final": 2})
    yield made
    made.ask("close")
    made.ask("exit")
    made.thread.join(5)
    assert not made.thread.is_alive()


def test_stages_come_behind_a_check(asked: Asked) -> None:
    """Refused like a block before it, answered with a breakdown behind it, and no more after `finish`."""
    assert asked.ask("stages", block_us=600.0)["error"]["kind"] == "not_proven"
    asked.ask("check")
    found = msgspec.convert(asked.ask("stages", block_us=600.0)["ok"], Breakdown)
    assert [(stage.name, stage.median_us, stage.launch_count) for stage in found.stages] == [
        ("project", 60.0, 1),
        ("split", 0.0, 0),
    ]
    assert (found.call_us, found.timer) == (100.0, "host")
    asked.ask("finish")
    assert asked.ask("stages", block_us=600.0)["error"]["kind"] == "protocol"


def test_a_profile_comes_behind_a_check(asked: Asked) -> None:
    """Refused before it, answered with every kernel's durations behind it, and no more after `finish`."""
    assert asked.ask("profile")["error"]["kind"] == "not_proven"
    asked.ask("check")
    found = msgspec.convert(asked.ask("profile")["ok"], CaseProfile)
    (kernel,) = found.kernels
    assert (kernel.shape.name, kernel.shape.workgroups, kernel.durations_ns) == ("fake_kernel", 8, (100_000,) * 5)
    assert (found.calls, found.total_ns, found.profiler_ns) == (5, 500_000, 500_000)
    assert asked.ask("turns", block_us=600.0)["error"]["kind"] == "not_proven"
    asked.ask("finish")
    assert asked.ask("profile")["error"]["kind"] == "protocol"

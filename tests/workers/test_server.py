from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.testing.fake.backends import FakeBackend
from pytest_attnperf.testing.fake.device import FakeDevice
from pytest_attnperf.workers.protocol import Channel, WorkerState
from pytest_attnperf.workers.server import TRITON_BUILD, Server, describe_missing_compiler, host_identity
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
KEY = CaseKey("prefill", "fake.a", WORKLOAD.id)
LOADED = {"name": "forward", "threads": 128, "data": "eJw="}


class Bench:
    """A server in a thread that runs one imaginary item per `open`, and the controller's end of its channel."""

    def __init__(self, folder: Path, script: dict[str, Any], bodies: int = 1) -> None:
        path = folder / "fake_device.json"
        path.write_text(json.dumps({"backends": {"fake.a": script}}))
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.server = Server(Channel(theirs), FakeDevice(path, "cpu", "w"), [KEY], Role.INTERPRET, folder)
        self.bodies = bodies
        self.refused: list[str] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.ready = self.channel.receive(5)

    def _serve(self) -> None:
        self.server.announce()
        while self.server.next_item() is not None:
            for _ in range(self.bodies):
                try:
                    self.server.serve_case(FakeBackend("fake.a"), WORKLOAD)
                except UsageError as error:
                    self.refused.append(str(error))
            self.server.report_item_finished("passed", "")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer."""
        self.channel.send({"id": op, "op": op, **fields})
        answer = self.channel.receive(5)
        assert answer["id"] == op
        return answer

    def open(self, **fields: Any) -> dict[str, Any]:
        """Open the only case."""
        key = {"suite": KEY.suite, "backend": KEY.backend, "workload": KEY.workload, "label": ""}
        return self.ask("open", key=key, next_key=None, seeds={"check": 1, "final": 2}, **fields)

    def block(self) -> dict[str, Any]:
        """Ask for five blocks."""
        return self.ask("block", max_blocks=5, block_us=1000.0, budget_us=1e5)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A healthy case that takes 100 us."""
    made = Bench(tmp_path, {"time_us": 100.0, "block_sd": 0.0, "loaded": [LOADED]})
    yield made
    made.ask("exit")
    made.thread.join(5)
    assert not made.thread.is_alive()


def test_a_whole_conversation(bench: Bench) -> None:
    """ready, open, check, block, finish, close: each answered, and the worker idle again behind it."""
    assert bench.ready["event"] == "ready"
    assert bench.ready["cases"][0]["backend"] == "fake.a"
    opened = bench.open()["ok"]
    assert (opened["state"], opened["loaded"]) == ("open", [LOADED])
    assert opened["figures"]["definition"]["seq_q"] == 64
    assert bench.ask("check")["ok"]["problems"] == []
    assert bench.block()["ok"]["block_us"] == [100.0] * 5
    assert bench.ask("finish")["ok"]["peak_memory_bytes"] == 1 << 20
    assert bench.ask("close")["ok"]["outcome"] == "passed"
    assert bench.ask("ping")["ok"]["state"] == "IDLE"


def test_no_time_before_a_passing_check(bench: Bench) -> None:
    """`block` is refused as not_proven until the same case has passed its check."""
    bench.open()
    answer = bench.block()
    assert answer["error"]["kind"] == "not_proven"
    bench.ask("close")


@pytest.mark.parametrize("operation", ["check", "block", "finish", "close", "nonsense"])
def test_what_a_state_does_not_allow_changes_nothing(bench: Bench, operation: str) -> None:
    """A forbidden operation is a protocol error that lists what is allowed, and the worker goes on."""
    answer = bench.ask(operation)
    assert answer["error"]["kind"] == "protocol"
    assert "allowed: canary, exit, list, open, ping" in answer["error"]["message"]
    assert bench.server.state is WorkerState.IDLE


def test_a_case_that_raises_does_not_end_the_worker(tmp_path: Path) -> None:
    """An exception inside the case comes back with its type, text and traceback; the next case is served."""
    bench = Bench(tmp_path, {"fault": "prepare"})
    error = bench.open()["error"]
    assert error["kind"] == "case"
    assert "RuntimeError: scripted compile error" in error["message"]
    assert "fake/device.py" in error["traceback"]
    assert error["poisoned"] is False
    assert bench.ask("close")["ok"]["state"] == "finished"
    assert bench.ask("ping")["ok"]["state"] == "IDLE"


def test_a_device_that_no_longer_answers_is_said(tmp_path: Path) -> None:
    """After a fault that kills the context the answer says poisoned, so that the controller replaces the worker."""
    bench = Bench(tmp_path, {"fault": "poison"})
    bench.open()
    assert bench.ask("check")["error"]["poisoned"] is True


def test_a_second_rendezvous_in_one_test_is_refused(tmp_path: Path) -> None:
    """Two run() calls in one body would be two cases under one key."""
    bench = Bench(tmp_path, {"time_us": 1.0}, bodies=2)
    bench.open()
    bench.ask("close")
    bench.ask("ping")
    assert len(bench.refused) == 1
    assert "twice in one test" in bench.refused[0]


def test_an_unsupported_workload_is_not_built(tmp_path: Path) -> None:
    """Reasons come back with `open`, and the scripted compile error of `prepare` is never reached."""
    bench = Bench(tmp_path, {"supported": ["head_dim 16 is below 32"], "fault": "prepare"})
    assert bench.open()["ok"]["unsupported"] == ["head_dim 16 is below 32"]


def test_what_prepare_finds_unsupported_is_unsupported(tmp_path: Path) -> None:
    """A library that only shows when it is loaded that it cannot do this gives a reason, not an error."""
    bench = Bench(tmp_path, {"time_us": 1.0, "fault": "unsupported"})
    assert bench.open()["ok"]["unsupported"] == ["scripted: hipcc missing"]


def test_what_a_check_finds_unsupported_is_said(tmp_path: Path) -> None:
    """A kernel that only its first call shows to need a GPU gives a reason that is no error's text."""
    bench = Bench(tmp_path, {"time_us": 1.0, "fault": "unsupported", "fault_at": "check"})
    assert not bench.open()["ok"]["unsupported"]
    error = bench.ask("check")["error"]
    assert (error["unsupported"], error["message"]) == (True, "scripted: hipcc missing")


def test_the_canary_is_measured_between_cases(bench: Bench) -> None:
    """`canary` answers with the samples of every fixed kernel while no case is open, and is refused inside one."""
    answer = bench.ask("canary")["ok"]
    assert {name: samples["block_us"] for name, samples in answer.items()} == {"gemm": [100.0] * 5, "copy": [100.0] * 5}
    bench.open()
    assert bench.ask("canary")["error"]["kind"] == "protocol"
    bench.ask("close")


def test_turns_are_answered_behind_the_check(bench: Bench) -> None:
    """`turns` says how a side answers and `turn` measures one block; before the check both are refused."""
    bench.open()
    assert bench.ask("turns", block_us=1000.0, timer="auto")["error"]["kind"] == "not_proven"
    bench.ask("check")
    plan = bench.ask("turns", block_us=1000.0, timer="auto")["ok"]
    assert (plan["timer"], plan["places"], plan["call_us"], plan["calls_per_block"]) == ("host", 2, 100.0, 10)
    assert bench.ask("turn", place=1)["ok"] == {"us": 100.0, "clock_mhz": None}
    bench.ask("close")


def test_the_backend_is_pinned_where_the_case_is_opened(bench: Bench) -> None:
    """A configuration sent with `open` is what the case runs with; the next case chooses again."""
    for pin in ({"split": "4"}, {}):
        bench.open(pin=pin)
        bench.ask("check")
        config = bench.ask("finish")["ok"]["config"]
        bench.ask("close")
        assert config == ({"split": "4", "pinned": "as stored"} if pin else {})


def test_a_case_cannot_choose_the_compilers_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRITON_ variables that a case sets, changes or removes are as before for the next; others are its own affair.

    Inductor sets TRITON_PTXAS_PATH for good: on an H200 Triton kernels behind a compiled one got other machine code.
    """
    monkeypatch.setenv("TRITON_CACHE_DIR", "ours")
    monkeypatch.setenv("TRITON_KEPT", "kept")
    bench = Bench(tmp_path, {"time_us": 10.0})
    bench.open()
    bench.ask("check")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "theirs")
    monkeypatch.setenv("TRITON_CACHE_DIR", "theirs")
    monkeypatch.delenv("TRITON_KEPT")
    monkeypatch.setenv("OTHER_VARIABLE", "stays")
    bench.ask("finish")
    bench.ask("close")
    assert bench.ask("list")["ok"]["cases"]
    seen = {name: value for name, value in os.environ.items() if name.startswith(("TRITON_", "OTHER_VARIABLE"))}
    assert "TRITON_PTXAS_PATH" not in seen
    assert (seen["TRITON_CACHE_DIR"], seen["TRITON_KEPT"], seen["OTHER_VARIABLE"]) == ("ours", "kept", "stays")


def test_a_machine_is_known_by_its_boot(tmp_path: Path) -> None:
    """The same for all that reads one boot id, without giving it away; nothing where there is none."""
    (tmp_path / "boot_id").write_text("6f3b1c2e-0000-4000-8000-000000000000\n")
    assert len(host_identity(tmp_path / "boot_id")) == 16
    assert host_identity(tmp_path / "boot_id") == host_identity(tmp_path / "boot_id")
    assert "6f3b1c2e" not in host_identity(tmp_path / "boot_id")
    assert host_identity(tmp_path / "none") == ""


class InvalidCxxCompiler(RuntimeError):
    """As Inductor's is called."""


def raised_by_triton() -> Exception:
    """A RuntimeError of the module that compiles with a C compiler."""
    module = ModuleType(TRITON_BUILD)
    exec("def build():\n    raise RuntimeError('Failed')", module.__dict__)
    with pytest.raises(RuntimeError) as caught:
        module.build()
    return caught.value


def test_what_inductor_raises() -> None:
    """Whether it led to the error, or is held by it."""
    for error in (InvalidCxxCompiler(), RuntimeError("outer")):
        error.__cause__ = InvalidCxxCompiler()
        assert describe_missing_compiler(error, {}).startswith(
            "no C++ compiler was found, and torch.compile needs one on a CPU"
        )
    held = RuntimeError("outer")
    held.inner_exception = InvalidCxxCompiler()  # type: ignore[attr-defined]
    held.__context__ = held  # a circle ends
    assert "install gcc or clang" in describe_missing_compiler(held, {})


def test_what_triton_raises(tmp_path: Path) -> None:
    """Only where there is none: a compiler that fails says why itself."""
    error = raised_by_triton()
    assert describe_missing_compiler(error, {"PATH": str(tmp_path)}).startswith(
        "no C compiler was found, and Triton builds its"
    )
    (tmp_path / "gcc").write_text("")
    (tmp_path / "gcc").chmod(0o755)
    assert describe_missing_compiler(error, {"PATH": str(tmp_path)}) == ""


def test_other_errors_are_left_alone() -> None:
    """On a machine without a compiler, too."""
    assert describe_missing_compiler(RuntimeError("no kernel"), {}) == ""

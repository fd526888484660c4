"""The pool of compile workers over scripted ones; real processes are in test_compile_pool.py."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.workers import compile_pool
from pytest_attnperf.workers.compile_pool import CompiledBuild, CompilePool
from pytest_attnperf.workers.launch import LaunchPlan


def key(config: str) -> CaseKey:
    """An item of every scripted worker."""
    return CaseKey("code_objects", "hip.saxpy", config, "gfx942")


class FakeWorker:
    """Stands in for a worker process: `script` says what each name's requests are answered with, or raise."""

    script: ClassVar[dict[str, Any]] = {}
    started: ClassVar[list[str]] = []

    def __init__(self, _plan: LaunchPlan, name: str, gpu: str | None) -> None:
        assert gpu == ""
        self.name = name
        self.is_alive = True
        self.poisoned = False
        self.pid = -1
        self.asked: list[str] = []
        self.started.append(name)
        if isinstance(self.answer, OSError):
            raise self.answer

    @property
    def answer(self) -> Any:
        """What the script says of this worker, or of all."""
        return self.script.get(self.name, self.script.get(""))

    def wait_until_ready(self, _limit_seconds: float) -> Any:
        """Ready with three items, unless the script has an error."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(cases=tuple(map(key, "abc")), known_cases=frozenset(map(key, "abc")))

    def decode_answer(self, _operation: str, answer: Any, kind: Any) -> Any:
        """The answer as a record; what it raises is the pool's to catch."""
        return msgspec.convert(answer, kind)

    def request(self, operation: str, _limit_seconds: float, **_fields: Any) -> dict[str, Any]:
        """The scripted answer to `open`, and `passed` to `close`."""
        self.asked.append(operation)
        assert self.asked in (["open"], ["open", "close"])
        if operation == "close":
            self.asked.clear()
            return {"outcome": "passed", "text": ""}
        answer: dict[str, Any] = self.answer
        return answer

    def kill(self) -> None:
        """It does not run any more."""
        self.is_alive = False


@pytest.fixture
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Scripts workers by name, '' for all; `killpg` reaches none."""
    monkeypatch.setattr(FakeWorker, "script", {"": {"state": "open", "built": None, "unsupported": ["no compiler"]}})
    monkeypatch.setattr(FakeWorker, "started", [])
    monkeypatch.setattr(compile_pool, "Worker", FakeWorker)
    monkeypatch.setattr(os, "killpg", lambda _pid, _signal: None)
    return FakeWorker.script


def pool_of(size: int) -> CompilePool:
    """A pool of fake workers."""
    return CompilePool(LaunchPlan((), Path(), Path(), Role.COMPILE), size)


def test_reasons_are_what_came_of_a_build(fake_workers: dict[str, Any]) -> None:
    """A worker that cannot build for want of a compiler says why, and its item ends as any other."""
    pool = pool_of(1)
    assert pool.compile_case(key("a")) == CompiledBuild(unsupported=("no compiler",))
    pool.shutdown()


@pytest.mark.parametrize("answer", [{"built": 7}, {"built": {"kernel": "k"}}, {"unsupported": 1}, {"sources": []}])
def test_an_answer_that_is_none_is_an_error(fake_workers: dict[str, Any], answer: dict[str, Any]) -> None:
    """Whoever waits hears of it, the item is closed, and the same worker serves the next."""
    good = fake_workers[""]
    fake_workers[""] = answer
    pool = pool_of(1)
    with pytest.raises(WorkerError, match="compile worker compile0-1: ValidationError: "):
        pool.compile_case(key("a"))
    fake_workers[""] = good
    assert pool.compile_case(key("b")).unsupported == ("no compiler",)
    assert FakeWorker.started == ["compile0-1"]
    pool.shutdown()


def test_one_process_that_cannot_start_takes_no_other_items(fake_workers: dict[str, Any]) -> None:
    """Its first item is an error; the rest is compiled by the processes that are there."""
    fake_workers["compile0-1"] = WorkerError("worker compile0-1 could not start: killed by SIGKILL")
    pool = pool_of(2)
    pool.begin(map(key, "ab"))
    found = []
    for config in "abc":
        with contextlib.suppress(WorkerError):
            found.append(pool.compile_case(key(config)).unsupported)
    assert len(found) >= 2
    assert set(found) == {("no compiler",)}
    assert sorted(FakeWorker.started) == ["compile0-1", "compile1-1"]
    pool.shutdown()


def test_processes_that_cannot_start_are_tried_once_each(fake_workers: dict[str, Any]) -> None:
    """Every item is an error then, and nothing waits for ever."""
    fake_workers[""] = WorkerError("worker could not start")
    pool = pool_of(2)
    pool.begin(map(key, "abc"))
    for config in "abc":
        with pytest.raises(WorkerError, match="worker could not start"):
            pool.compile_case(key(config))
    assert sorted(FakeWorker.started) == ["compile0-1", "compile1-1"]
    pool.shutdown()


def test_a_process_that_the_system_refuses_is_an_error(fake_workers: dict[str, Any]) -> None:
    """Without memory or an interpreter to start there is an error for every item, and no wait without end."""
    fake_workers[""] = OSError(12, "Cannot allocate memory")
    pool = pool_of(1)
    for config in "ab":
        with pytest.raises(WorkerError, match=r"compile worker compile0-\d: OSError: .*Cannot allocate memory"):
            pool.compile_case(key(config))
    pool.shutdown()


def test_no_more_processes_than_builds(fake_workers: dict[str, Any]) -> None:
    """A pool of eight starts as many as it has items, and none before the first."""
    pool = pool_of(8)
    assert FakeWorker.started == []
    pool.begin(map(key, "ab"))
    assert sorted(FakeWorker.started) == ["compile0-1", "compile1-1"]
    pool.shutdown()


def test_a_pool_that_never_began_is_shut_down() -> None:
    """Nothing was started, so that nothing is ended, and nothing is compiled any more."""
    pool = pool_of(2)
    pool.shutdown()
    with pytest.raises(WorkerError, match=r"hip\.saxpy/a/gfx942 was not compiled: the compile workers have been ended"):
        pool.compile_case(key("a"))

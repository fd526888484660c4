"""Answers of another process or host, damaged: a worker behind a command, and GitHub."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from benchmarks.fuzz import samples
from benchmarks.fuzz.reading import Read
from pytest_attnperf.errors import AttnperfError

SHA = "a" * 40


def answers_of_a_worker(file: Path, folder: Path) -> None:
    """One answer of a worker, to every request that it may be an answer to."""
    from pytest_attnperf.records import CaseKey, Role
    from pytest_attnperf.workers import controller
    from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest, RemoteCase
    from pytest_attnperf.workers.protocol import Channel

    line = file.read_bytes().replace(b"\n", b" ")[: 1 << 16] + b"\n"
    key = CaseKey("prefill", "fake.a", "w")
    for operation in ("ready", "open", "check", "blocks", "finish", "close"):
        ours, theirs = socket.socketpair()
        with mock.patch.object(controller, "_start_process", lambda *_, ours=ours: (Channel(ours), _Process())):
            plan = SimpleNamespace(scratch=folder, role=Role.INTERPRET)
            worker = controller.Worker(plan, "w")  # type: ignore[arg-type]
        answers = line if operation == "ready" else samples.worker_lines()[0] + b"\n" + line
        with contextlib.suppress(AttnperfError, OSError):
            theirs.sendall(answers)
            theirs.shutdown(socket.SHUT_WR)
            worker.wait_until_ready(1.0)
            case = RemoteCase(worker, OpenRequest(key, None, 1, 2), 1.0)
            vars(case).update(_deadline=case.clock() + 1.0)
            if operation != "ready":
                case.measure_blocks(BlockPlan()) if operation == "blocks" else getattr(case, operation)()
        theirs.close()
        worker.kill()


class _Process:
    """A worker that has ended."""

    pid = 2**22 + os.getpid()
    returncode = 0

    def poll(self) -> int:
        return 0

    def wait(self, _timeout: float = 0.0) -> int:
        return 0


def _asked(ask: Callable[..., object], status: int = 200) -> Read:
    """A question to a GitHub that gives the damaged file for every answer."""

    def asked(file: Path, _folder: Path) -> None:
        from pytest_attnperf.tools.ci.github import GitHub, _Answer

        answer = _Answer(status, Message(), file.read_bytes())
        github = GitHub("token", sleep=lambda _seconds: None)
        with mock.patch.object(GitHub, "_send_once", return_value=answer):
            ask(github)

    return asked


def _comment(github: object) -> object:
    from pytest_attnperf.tools.ci.comments import Stamp, put_comment

    return put_comment(github, "o/r", 3, "x", marker="<!-- m -->", author="a", stamp=Stamp(SHA, 3, 1, True))  # type: ignore[arg-type]


def _of(module: str, name: str, *given: object) -> Callable[..., object]:
    def ask(github: object) -> object:
        return getattr(importlib.import_module(f"pytest_attnperf.tools.ci.{module}"), name)(github, *given)

    return ask


def _artifact(github: object) -> None:
    from pytest_attnperf.tools.ci import fetch_results

    for name, found in fetch_results._list_newest_artifacts(github, "o/r", 3).items():  # type: ignore[arg-type]
        fetch_results._download_results(github, "o/r", found, name, 1 << 20)  # type: ignore[arg-type]


GITHUB_READS: list[Read] = [
    _asked(_of("pulls", "fetch_pull", "o/r", 3)),
    _asked(_of("pulls", "find_open_pull", "o/r", SHA)),
    _asked(_of("pulls", "fetch_branch_tip", "o/r", "main")),
    _asked(_of("pulls", "find_merge", "o/r", SHA, SHA)),
    _asked(_of("pulls", "fetch_pull", "o/r", 3), 422),
    _asked(_of("comments", "fetch_login")),
    _asked(_of("pulls", "_find_shown_stamp", "o/r", SHA, "attnperf")),
    _asked(_comment),
    _asked(_artifact),
]

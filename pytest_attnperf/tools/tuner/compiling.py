"""Compiles many candidates without a GPU, in other processes: a crash or hang fails one candidate, not the run."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import Role
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compile_process import READY, START, Answer, decode_answer, encode_request
from pytest_attnperf.workers.compile_pool import NO_GPU
from pytest_attnperf.workers.launch import LaunchPlan

COMMAND = (sys.executable, "-c", START)
TAIL_LINES = 3
"""Last lines of a dead process's standard error that a reason quotes."""

START_LIMIT_S = 60.0


@dataclass(frozen=True)
class CompiledCandidate:
    """What compiling shows of one candidate without running it.

    codes         its kernels, in the order of its builds; empty if one does not compile or nothing was declared
    failure       why it does not compile, for a report; '' if it does or was not tried
    unsupported   why this machine cannot compile it, which is no fault of the candidate
    unread        why its objects cannot be analysed, which is no fault of the candidate either
    seconds       that compiling and reading took
    """

    codes: tuple[KernelCode, ...] = ()
    failure: str = ""
    unsupported: tuple[str, ...] = ()
    unread: str = ""
    seconds: float = 0.0


def compile_all(
    builds: Mapping[str, Sequence[KernelBuild]],
    root: Path,
    cache: Path,
    *,
    jobs: int,
    limit_s: float,
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[int, int], None] = lambda done, all_of_them: None,
    command: Sequence[str] = COMMAND,
) -> dict[str, CompiledCandidate]:
    """Compiles every candidate's kernels in `jobs` processes. Returns candidate -> what is read from its code objects.

    root      the project's folder, from which the processes import backends
    cache     folder of compiled objects; what was read from them lies in 'code' beside it
    limit_s   seconds for one candidate: a process that takes longer is killed and replaced
    stop      called before each candidate; once it returns True, the other candidates are not in the result
    told      called with the number of finished candidates and of all
    A candidate without builds has a result without code objects.
    """
    work = _Work(builds, cache, limit_s, stop, told, command)
    with tempfile.TemporaryDirectory(prefix="attnperf-tune-") as scratch:
        plan = LaunchPlan(files=(), rootdir=root, scratch=Path(scratch), role=Role.COMPILE)
        plan.link_harness()
        slots = [_CompileThread(plan, number, work) for number in range(max(1, min(jobs, len(builds))))]
        threads = [threading.Thread(target=slot.compile_until_done, daemon=True) for slot in slots]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # in short waits, so that an interrupt gets through
        finally:
            work.ended = True
            for slot in slots:
                slot.end()
    if work.broken is not None:
        raise work.broken
    return {name: work.found[name] for name in builds if name in work.found}


def compile_notes(compiled: Mapping[str, CompiledCandidate], declared: int) -> list[str]:
    """Returns up to three notes: how many candidates this machine cannot compile, how many have objects that cannot be
    read, and how many of `declared` were not compiled in time. Empty if there are none."""
    notes = []
    unsupported = next((found.unsupported for found in compiled.values() if found.unsupported), ())
    if unsupported:
        count = sum(bool(found.unsupported) for found in compiled.values())
        notes.append(f"{count} candidates were not checked by code object: {'; '.join(unsupported)}")
    unread = [found.unread for found in compiled.values() if found.unread]
    if unread:
        notes.append(f"the objects of {len(unread)} candidates cannot be analysed: {unread[0]}")
    if len(compiled) < declared:
        notes.append(f"compiling used its share of the budget: {declared - len(compiled)} candidates were not compiled")
    return notes


class _Work:
    """The queue of candidates, the results and the stop flags that all compiling threads share."""

    def __init__(
        self,
        builds: Mapping[str, Sequence[KernelBuild]],
        cache: Path,
        limit_s: float,
        stop: Callable[[], bool],
        told: Callable[[int, int], None],
        command: Sequence[str],
    ) -> None:
        self.cache, self.limit_s, self.stop, self.told, self.command = cache, limit_s, stop, told, command
        self.analyse = Analyser(cache.with_name("code"))
        self.found: dict[str, CompiledCandidate] = {}
        self.ended = False
        self.broken: BaseException | None = None
        self.count = len(builds)
        self.asked: queue.SimpleQueue[tuple[str, Sequence[KernelBuild]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        for name, declared in builds.items():
            self.asked.put((name, declared))

    def add(self, name: str, compiled: CompiledCandidate) -> None:
        """Stores the result of candidate `name`, and reports the number of finished candidates and of all."""
        with self._lock:
            self.found[name] = compiled
            self.told(len(self.found), self.count)


class _CompileThread:
    """A thread that runs one compile process after another and waits for them."""

    def __init__(self, plan: LaunchPlan, number: int, work: _Work) -> None:
        self._plan, self._number, self._work = plan, number, work
        self._process: subprocess.Popen[str] | None = None
        self._log = plan.scratch / f"compile{number}.log"
        self._overran = False
        self._cannot_start = ""

    def compile_until_done(self) -> None:
        """Compiles queued candidates until none is left or the work is stopped. An error that ends this thread stops
        the others and is stored in the shared work, so that the caller can raise it."""
        try:
            self._compile_queue()
        except BaseException as error:  # the waiting thread must not take a dead thread for success
            self._work.broken = self._work.broken or error
            self._work.ended = True

    def _compile_queue(self) -> None:
        while not (self._work.ended or self._work.stop()):
            try:
                name, declared = self._work.asked.get_nowait()
            except queue.Empty:
                return
            started = time.monotonic()
            compiled = self._compile_candidate(declared)
            if not self._work.ended:
                seconds = time.monotonic() - started
                self._work.add(name, CompiledCandidate(**{**vars(compiled), "seconds": seconds}))

    def _compile_candidate(self, declared: Sequence[KernelBuild]) -> CompiledCandidate:
        if not declared:
            return CompiledCandidate()
        if not self._cannot_start:
            self._start_process()
        if self._cannot_start:  # another one would not start either
            return CompiledCandidate(unsupported=(self._cannot_start,))
        answer = self._ask_process(declared)
        if answer.failure or answer.unsupported:
            return CompiledCandidate(failure=answer.failure, unsupported=answer.unsupported)
        try:
            codes = tuple(self._work.analyse(one, build) for one, build in zip(answer.built, declared, strict=True))
        except CodeObjectError as error:
            return CompiledCandidate(unread=str(error))
        return CompiledCandidate(codes)

    def _ask_process(self, declared: Sequence[KernelBuild]) -> Answer:
        """Returns the compile process's answer for these builds. If the process dies, exceeds the time limit (it is
        then killed) or answers something invalid, the answer has that as its failure."""
        try:
            line = self._send_request(encode_request(declared, self._work.cache), self._work.limit_s)
            if line:
                return decode_answer(line)
        except (OSError, ValueError) as error:
            return Answer(failure=self._describe_end(str(error)))
        if self._overran:
            self.end()
            return Answer(failure=f"compiling takes longer than {self._work.limit_s:g} s")
        return Answer(failure=f"the compiler's process died ({self._describe_end('')})")

    def _start_process(self) -> None:
        """Starts a compile process unless one is running; sets `_cannot_start` to the reason if that fails."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._work.command,
                cwd=self._plan.rootdir,
                env=self._plan.make_environment(os.environ, f"compile{self._number}", NO_GPU),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        if self._send_request("", START_LIMIT_S) != READY:
            self._cannot_start = f"compile processes do not start ({self._describe_end('')})"

    def _send_request(self, request: str, limit_s: float) -> str:
        """Writes a request line ('' for none) and returns the next line read; '' if the process ended or was killed at
        the limit."""
        process, self._overran = self._process, False
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(limit_s, self._kill_overrun)
        limit.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            limit.cancel()
        return line if line.endswith("\n") else ""

    def _describe_end(self, said: str) -> str:
        """Ends the compile process. Returns as text its signal or exit status, `said` (an error), and its last log
        lines."""
        process, code = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(2.0)
        self.end()
        cause = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        return ": ".join(part for part in (cause, said, self._read_log_tail()) if part)

    def _read_log_tail(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-TAIL_LINES:] if line.strip())

    def _kill_overrun(self) -> None:
        self._overran = True
        self._kill()

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills the compile process and its children, and closes its pipes; does nothing if there is none."""
        process = self._process
        if process is None:
            return
        self._kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

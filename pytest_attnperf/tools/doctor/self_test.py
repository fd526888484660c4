"""Tests the device in processes of their own: which timer a case gets, and how much processes differ."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest_attnperf
from pytest_attnperf.environment.cards import lease_gpu
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.limits import format_signed
from pytest_attnperf.records import Samples
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.tools.doctor import gpu_processes, partitions, power, process_noise, self_test_process
from pytest_attnperf.tools.doctor.child import answer_of
from pytest_attnperf.tools.doctor.gpu_list import list_tokens, unknown_finding
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings
from pytest_attnperf.workers.launch import VISIBLE_DEVICES

TIMER_SECONDS = 40.0
"""Time limit. Importing torch from a cold disk, starting the driver and compiling clock stamps take most of it."""

NOISE_SECONDS = 50.0
"""Time limit of all processes together. None is started that would end later, and none runs longer."""

PROCESSES_MAX = 20

AGREE = 0.05
"""Most relative difference of graph and event times of one GEMM: events include the launch of each call."""

Ask = Callable[[str, float], Mapping[str, object]]
"""Function (kind, seconds) -> the answer of one self-test process. Raises ProbeError."""

NO_LEASE = "set TMPDIR to a folder that can be written"
TOO_LATE = "run attnperf doctor again: programs start faster from a disk that has just been read"
_RUN = "run it by hand for the whole error: python -m pytest_attnperf.tools.doctor.self_test_process {} cuda"


def graph_probe(surroundings: Surroundings, ask: Ask | None = None) -> Sequence[DoctorFinding]:
    """Returns findings from a test of one GPU in another process: 'timer', 'graph against events' (whether both timers
    agree) and 'clock stamps' (whether kernels can read the clock); 'timer' alone if the test fails. The value of
    'timer' begins with the timer that cases get: 'graph', 'event', 'profiler' or 'none'."""
    try:
        with _hold_lease(surroundings) as token:
            found = (ask or _make_ask(surroundings, token))(self_test_process.TIMER, TIMER_SECONDS)
    except UsageError as error:
        return [unknown_finding("timer", error, "wait for the other run to end, then run attnperf doctor again")]
    except OSError as error:
        return [unknown_finding("timer", f"the lease of a GPU: {error.strerror}", NO_LEASE)]
    except ProbeError as error:
        return [_no_timer(str(error))]
    if self_test_process.ERROR in found:
        return [_no_timer(str(found[self_test_process.ERROR]))]
    try:
        return _timer_findings(found)
    except (KeyError, TypeError, ValueError) as error:
        return [unknown_finding("timer", f"the self-test's answer is invalid ({type(error).__name__}: {error})")]


def noise_probe(
    surroundings: Surroundings, ask: Ask | None = None, seconds: float = NOISE_SECONDS
) -> Sequence[DoctorFinding]:
    """Returns 'noise of softmax', 'noise of attention', 'noise of gemm', from new processes that run until `seconds`
    are used; one UNKNOWN finding 'noise' if fewer than two of them answered."""
    began_s = surroundings.clock()
    name = "noise"
    try:
        with _hold_lease(surroundings) as token:
            causes = _list_causes(surroundings)
            ask = ask or _make_ask(surroundings, token)
            deadline_s = min(began_s + seconds, surroundings.ends_s)
            answers, failure = _ask_processes(ask, surroundings.clock, deadline_s)
    except UsageError as error:
        return [unknown_finding(name, error, "wait for the other run to end, then run attnperf doctor again")]
    except OSError as error:
        return [unknown_finding(name, f"the lease of a GPU: {error.strerror}", NO_LEASE)]
    if len(answers) < process_noise.LEAST_PROCESSES:
        left_s = max(0.0, deadline_s - began_s)
        why = (
            failure
            or f"{len(answers)} of {process_noise.LEAST_PROCESSES} processes ended in the {left_s:.0f} s that were left"
        )
        return [unknown_finding(name, why, _RUN.format(self_test_process.NOISE) if failure else TOO_LATE)]
    try:
        cases = [process_noise.compute_case_noise(case, [answer[case] for answer in answers]) for case in answers[0]]
    except (KeyError, ValueError) as error:
        return [unknown_finding(name, error, _RUN.format(self_test_process.NOISE))]
    return process_noise.list_findings(cases, causes, failure)


def _ask_processes(ask: Ask, clock: Callable[[], float], deadline_s: float) -> tuple[list[dict[str, Samples]], str]:
    """Runs up to PROCESSES_MAX self-test processes, one after another. Returns (each one's samples by case, error).

    error: why a process failed, which ends this; '' if none did. After the first, a process starts only if it would end
    by `deadline_s` although it took as long as the longest so far."""
    answers: list[dict[str, Samples]] = []
    longest_s = 0.0
    while len(answers) < PROCESSES_MAX:
        started_s = clock()
        left_s = deadline_s - started_s
        if left_s <= longest_s:
            return answers, ""
        try:
            answers.append(_parse_answer(ask(self_test_process.NOISE, left_s)))
        except (ProbeError, ValueError) as error:
            return answers, str(error)
        longest_s = max(longest_s, clock() - started_s)
    return answers, ""


def _parse_answer(found: Mapping[str, object]) -> dict[str, Samples]:
    """Returns the samples by case of one process's answer. Raises ProbeError with the error that it reports, ValueError
    if it holds no valid samples."""
    if self_test_process.ERROR in found:
        raise ProbeError(str(found[self_test_process.ERROR]))
    if not found:
        raise ValueError("the self-test measured nothing")
    cases = {}
    for case, record in found.items():
        if not isinstance(record, dict):
            raise ValueError(f"the self-test answered {str(record)[:40]!r} instead of samples")
        cases[case] = process_noise.parse_samples(record)
    return cases


def _list_causes(surroundings: Surroundings) -> list[str]:
    """Returns warnings and problems of the probes of GPU processes, power and partitions as 'name: value'; without 'GPU
    lease', because this process holds a lease itself."""
    found = [
        finding
        for probe in (gpu_processes.probe, power.probe, partitions.probe)
        for finding in probe(surroundings)
        if finding.status in (Status.WARNING, Status.PROBLEM) and finding.name != gpu_processes.LEASE
    ]
    return [f"{finding.name}: {finding.value}" for finding in found]


@contextlib.contextmanager
def _hold_lease(surroundings: Surroundings) -> Iterator[str]:
    """Takes the lease of a visible GPU, so that other runs keep off it, and releases it at the end. Yields the text
    that selects this GPU in HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES. Raises UsageError if no GPU is free."""
    lease = lease_gpu(list_tokens(surroundings), environ=surroundings.environ)
    try:
        yield lease.token
    finally:
        lease.release()


def _make_ask(surroundings: Surroundings, token: str) -> Ask:
    """Returns a function (kind, seconds) that runs a self-test in a new process that sees only the GPU `token`, and
    returns its answer."""
    environ = dict(surroundings.environ)
    environ.pop("TRITON_INTERPRET", None)
    package = str(Path(pytest_attnperf.__file__).resolve().parents[1])
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (package, environ.get("PYTHONPATH", ""))))
    environ.update(dict.fromkeys(VISIBLE_DEVICES, token))

    def ask_once(kind: str, limit_s: float) -> Mapping[str, object]:
        command = [surroundings.python, "-m", self_test_process.__name__, kind, "cuda"]
        return answer_of(command, limit_s=limit_s, environ=environ, folder=surroundings.root)

    return ask_once


def _no_timer(why: str) -> DoctorFinding:
    meaning = "no case can be timed or proven right on this GPU"
    fix = f"fix what the torch lines report first; then {_RUN.format(self_test_process.TIMER)}"
    return DoctorFinding("timer", Status.PROBLEM, f"none: {why}", meaning, fix)


def _timer_findings(found: Mapping[str, object]) -> list[DoctorFinding]:
    """Returns 'timer', 'graph against events' (if both gave a time) and 'clock stamps' from the self-test's answer.
    Raises KeyError, TypeError and ValueError if the answer is invalid."""
    timer, why, empty_us = str(found["timer"]), str(found["why"]), _parse_number(found["empty_us"])
    empty = f"a nearly empty kernel takes {format_time(empty_us)}"
    details = (f"{found['device']}, torch {found['torch']}",)
    if not found["right"]:
        meaning = f"replays give wrong results on changed inputs: every case timed by {timer!r} will be INCORRECT"
        fix = "use --attnperf-timer=event, which replays nothing; report the driver, the runtime and torch"
        first = DoctorFinding("timer", Status.PROBLEM, f"{timer}: wrong results; {empty}", meaning, fix, details)
    elif timer == "graph":
        first = DoctorFinding("timer", Status.OK, f"graph: {empty}, replays right on changed inputs", details=details)
    else:
        first = _judge_substitute(timer, why, empty, details)
    return [first, *_judge_agreement(found), _judge_stamps(found)]


def _judge_substitute(timer: str, why: str, empty: str, details: tuple[str, ...]) -> DoctorFinding:
    value = f"{timer}: {why or 'no reason given'}; {empty}"
    if timer == "event":
        meaning = (
            "hot cases are timed by events, short ones with their launches, cold ones not at all; baselines of the "
            "graph timer are INCOMPARABLE"
        )
        return DoctorFinding(
            "timer", Status.WARNING, value, meaning, "another torch or driver may capture graphs", details
        )
    meaning = "neither graphs nor events work: hot cases end as ERROR unless a timer is named, cold ones always"
    return DoctorFinding(
        "timer", Status.PROBLEM, value, meaning, f"pytest --attnperf --attnperf-timer={timer} suites/", details
    )


def _judge_agreement(found: Mapping[str, object]) -> list[DoctorFinding]:
    if found["graph_us"] is None or found["event_us"] is None:
        return []
    name = "graph against events"
    graph_us, event_us = _parse_number(found["graph_us"]), _parse_number(found["event_us"])
    ratio = event_us / graph_us
    value = f"one GEMM takes {format_time(graph_us)} in a graph, {format_time(event_us)} by events"
    value += f" ({format_signed(ratio - 1)})"
    if abs(ratio - 1) <= AGREE:
        return [DoctorFinding(name, Status.OK, value)]
    meaning = "two timers disagree on one kernel: another process uses the GPU, its clock changes, or one is wrong"
    return [DoctorFinding(name, Status.WARNING, value, meaning, "see 'GPU processes' and 'clocks', then run it again")]


def _judge_stamps(found: Mapping[str, object]) -> DoctorFinding:
    name = "clock stamps"
    if found["stamps"]:
        return DoctorFinding(name, Status.OK, "kernels read the compute clock")
    meaning = "times are not affected, but cycles cannot show whether a slower time comes from a lower clock"
    return DoctorFinding(name, Status.NOTE, f"none: {found['stamps_why']}", meaning)


def _parse_number(value: object) -> float:
    """Returns a finite positive number. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{str(value)[:40]!r} is no time")
    return float(value)

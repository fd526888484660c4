"""Workers behind any command that speaks the worker protocol on its standard input and output.

    docker run -i --gpus all IMAGE attnperf worker --rootdir /src

`CommandPlan` is the near end, used by `controller.py`; `cli/commands/worker.py` is the far end. `StartLine` is the
first message, before the protocol begins. Standard library only: the far end may not have our dependencies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.records import Role
from pytest_attnperf.workers.launch import VISIBLE_DEVICES, LaunchPlan
from pytest_attnperf.workers.protocol import Channel, ChannelClosedError, ChannelTimeoutError

START_LINE_LIMIT_SECONDS = 10.0
"""Seconds to send the start line, if it does not fit into the command's pipe (64 KiB on Linux)."""

COUNTED_WITHIN = ("ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables that change what a GPU's index means; they are passed on, so that the far end uses the same card."""

RUN, EXEC, COMPOSE = "run", "exec", "compose"
RUNTIMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), (RUN,)),
    **dict.fromkeys(("apptainer", "singularity"), (RUN, EXEC)),
}
"""Container runtime -> its verbs that take an image; docker's `exec` takes a container instead."""
MODULE = "pytest_attnperf.cli"
"""Module for `python -m`, used if the script `attnperf` is not installed."""
TITLE_LIMIT = 120
"""Most characters of a command in a message; a longer container command is abbreviated."""

_EXPECTED = '{"start": {"files": ["suites/test_a.py"], "options": [], "name": "base0-1", "role": "device"}}'


@dataclass(frozen=True)
class StartLine:
    """The first line a worker behind a command reads.

    files        test files, relative to the far tree's rootdir
    options      options for the worker's pytest
    name         name of the worker, for its logs and private folders
    environment  variables to set before its pytest starts
    """

    files: tuple[str, ...]
    options: tuple[str, ...]
    name: str
    role: Role
    environment: Mapping[str, str] = field(default_factory=dict)

    def to_message(self) -> dict[str, Any]:
        """Returns the start line as a JSON object, {'start': {field: value}}, which `parse` reads."""
        return {"start": {**asdict(self), "role": self.role.value}}

    @classmethod
    def parse(cls, line: bytes) -> StartLine:
        """Parses the start line. Raises UsageError with the invalid field, its value and what is allowed."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        start = message.get("start") if isinstance(message, dict) else None
        if not isinstance(start, dict):
            raise UsageError(f"the first line on standard input must be like {_EXPECTED}; it is {line[:120]!r}")
        name = start.get("name")
        if not isinstance(name, str) or not name or PurePath(name).name != name:
            raise _field_error("name", name, "a word that can name a folder")
        files = _read_texts(start, "files")
        if not files or any(PurePath(file).is_absolute() for file in files):
            raise _field_error("files", list(files), "at least one path, relative to the rootdir")
        return cls(files, _read_texts(start, "options"), name, _read_role(start), _read_environment(start))


@dataclass(frozen=True)
class CommandPlan:
    """How workers are started by a command, as `LaunchPlan` is for workers of this machine.

    argv             the command; it runs in the current folder, with the user's environment
    files            test files, relative to the rootdir of the tree behind the command
    scratch          folder of this run, for logs
    options          options for the far pytest: `LaunchPlan.passed_options` and `--import-mode`
    visible_devices  variables that are set to a worker's GPU, for the command and again by the far end, because a
                     container does not inherit them; empty if the command chooses the GPU itself
    """

    argv: Sequence[str]
    files: Sequence[str]
    role: Role
    scratch: Path
    options: Sequence[str] = ()
    visible_devices: Sequence[str] = VISIBLE_DEVICES

    @classmethod
    def from_launch_plan(cls, plan: LaunchPlan, argv: Sequence[str]) -> CommandPlan:
        """Makes a plan that starts workers by the command `argv`, with the test files, options and role of `plan`.
        Raises UsageError for a test file outside the rootdir."""
        files = []
        for file in plan.files:
            path = Path(plan.rootdir, file)
            if not path.is_relative_to(plan.rootdir):
                raise UsageError(
                    f"{file} lies outside {plan.rootdir}: `{shlex.join(argv)}` finds test files by their path "
                    "relative to the rootdir; move the file there, or select files of the rootdir only"
                )
            files.append(path.relative_to(plan.rootdir).as_posix())
        options = (f"--import-mode={plan.import_mode}", *plan.passed_options)
        return cls(tuple(argv), tuple(files), plan.role, plan.scratch, options)

    @property
    def title(self) -> str:
        """The command, quoted for a shell; for a long container command only its start, the image and what follows."""
        text, image = shlex.join(self.argv), container_image(self.argv)
        if not image or len(text) <= TITLE_LIMIT:
            return text
        started = len(self.argv) - 1 - list(reversed(self.argv)).index(image)
        return f"{shlex.join(self.argv[:2])} ... {shlex.join(self.argv[started:])}"

    def start(self, name: str, gpu: str | None, log: Path) -> tuple[Channel, subprocess.Popen[bytes]]:
        """Starts the command with standard error in the file `log`, sends it the start line; returns its channel and
        process. `gpu` goes into `visible_devices`; None leaves them.

        Raises WorkerError if the command does not exist. If it dies at once or does not read, waiting for the worker's
        first message fails.
        """
        devices = dict.fromkeys(self.visible_devices, gpu) if gpu is not None else {}
        channel, process = self._spawn_process({**os.environ, **devices}, log)
        counted = {key: os.environ[key] for key in COUNTED_WITHIN if devices and key in os.environ}
        line = StartLine(tuple(self.files), tuple(self.options), name, self.role, {**counted, **devices})
        with contextlib.suppress(ChannelClosedError, ChannelTimeoutError):
            channel.send(line.to_message(), START_LINE_LIMIT_SECONDS)
        return channel, process

    def _spawn_process(self, environment: Mapping[str, str], log: Path) -> tuple[Channel, subprocess.Popen[bytes]]:
        log.parent.mkdir(parents=True, exist_ok=True)
        # Our own pipes: a Popen object closes its pipes when it is garbage collected, and the channel closes them, too.
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        channel = Channel.from_fds(our_input, our_output)
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    list(self.argv),
                    env=environment,
                    stdin=their_input,
                    stdout=their_output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            channel.close()
            raise WorkerError(f"`{self.title}` could not be started: {error}") from error
        finally:
            os.close(their_input)
            os.close(their_output)
        return channel, process


def container_image(argv: Sequence[str]) -> str:
    """Returns the image in which a container command starts `attnperf worker`; '' if it cannot be recognised.

    The image is the word before the inner command: `attnperf worker`, `python3 -m pytest_attnperf.cli worker`, or the
    latter without its first word, if that is the container's entry point.
    """
    verbs = RUNTIMES.get(PurePath(argv[0]).name, ()) if argv else ()
    if "worker" not in argv or next((word for word in argv if word in {RUN, EXEC, COMPOSE}), "") not in verbs:
        return ""
    before = list(argv[1 : len(argv) - 1 - list(reversed(argv)).index("worker")])
    if before[-2:] == ["-m", MODULE]:
        del before[-2:]
        if before and PurePath(before[-1]).name.startswith("python"):
            before.pop()
    elif before and PurePath(before[-1]).name == "attnperf":
        before.pop()
    else:
        return ""
    return before[-1] if before and not before[-1].startswith("-") else ""


def _field_error(name: str, seen: object, expected: str) -> UsageError:
    return UsageError(f"the start line's {name!r} is {seen!r:.200}; it must be {expected}")


def _read_texts(start: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = start.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _field_error(name, value, "a list of strings")
    return tuple(value)


def _read_role(start: Mapping[str, Any]) -> Role:
    try:
        return Role(start.get("role"))
    except ValueError:
        raise _field_error("role", start.get("role"), f"one of {', '.join(role.value for role in Role)}") from None


def _read_environment(start: Mapping[str, Any]) -> dict[str, str]:
    value = start.get("environment", {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _field_error("environment", value, "an object of strings")
    return value

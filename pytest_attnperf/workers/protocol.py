"""The worker protocol: messages, states, and a channel that waits with a limit. See docs/worker-protocol.md.

Standard library only: both sides import this file, and the other side may be another interpreter.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import os
import select
import socket
import time
from typing import Any

PROTOCOL_VERSION = 4
_CHUNK = 1 << 16
MESSAGE_BYTES_MOST = 1 << 29
"""Most bytes of a message: a worker behind a command must not fill the controller's memory. The largest messages hold
code objects of 8 MiB each."""
_CHUNK_OUT = select.PIPE_BUF
"""Bytes that a pipe that polls as writable accepts without blocking. So a time limit works without O_NONBLOCK, which
would change the descriptor for every process that shares it."""


class WorkerState(str, enum.Enum):
    """State of a worker between requests."""

    IDLE = "IDLE"
    OPEN = "OPEN"
    FINISHED = "FINISHED"
    ENDED = "ENDED"


ALLOWED: dict[WorkerState, frozenset[str]] = {
    WorkerState.IDLE: frozenset({"list", "open", "canary", "exit", "ping"}),
    WorkerState.OPEN: frozenset(
        {"check", "block", "rotate", "stages", "profile", "turns", "turn", "finish", "close", "ping"}
    ),
    WorkerState.FINISHED: frozenset({"close", "ping"}),
    WorkerState.ENDED: frozenset(),
}
"""Operations that a worker answers in each state; any other is a protocol error and changes nothing."""


class ChannelClosedError(Exception):
    """The other side closed the channel or its process ended."""


class ChannelTimeoutError(Exception):
    """No complete message arrived or was sent within the limit."""


class MalformedMessageError(Exception):
    """A line arrived that is not a JSON object, or is longer than MESSAGE_BYTES_MOST."""


def to_plain(value: Any) -> Any:
    """Converts dataclasses, enums and tuples to JSON types. Non-finite floats stay: Python's json reads them back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def protocol_error(state: WorkerState, op: object) -> dict[str, Any]:
    """Returns the error {'kind': 'protocol', 'message': text} for an operation that `state` does not allow."""
    allowed = ", ".join(sorted(ALLOWED[state])) or "nothing"
    return {
        "kind": "protocol",
        "message": f"operation {op!r} is not allowed in state {state.value}; allowed: {allowed}",
    }


class Channel:
    """JSON lines over a connected stream socket, or over two pipes: the standard input and output of a command."""

    def __init__(self, connection: socket.socket) -> None:
        fd = connection.detach()
        self._adopt_descriptors(fd, fd)

    def _adopt_descriptors(self, read_fd: int, write_fd: int) -> None:
        """Takes both descriptors over, to be closed by `close`. A grandchild process must not inherit them: it would
        hide the end of file."""
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)
        # File objects close themselves and know when they are closed; the number of a closed descriptor would soon
        # belong to another file.
        self._reader = io.FileIO(read_fd, "r")
        self._writer = io.FileIO(write_fd, "w") if write_fd != read_fd else self._reader
        self._buffer = bytearray()

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        """Makes the channel of an inherited socket descriptor, which is closed with the channel."""
        return cls.from_fds(fd, fd)

    @classmethod
    def from_fds(cls, read_fd: int, write_fd: int) -> Channel:
        """Makes a channel that reads from one descriptor and writes to the other; the same number twice is a socket.
        `close` closes them. Raises OSError for an invalid descriptor."""
        channel = cls.__new__(cls)
        channel._adopt_descriptors(read_fd, write_fd)
        return channel

    def send(self, message: dict[str, Any], limit_seconds: float | None = None) -> None:
        """Sends one complete message.

        limit_seconds   None waits without limit (the worker's side: a controller may be busy for minutes)

        Raises ChannelClosedError if the other side is gone, ChannelTimeoutError if it does not read in time. The
        message is then incomplete and the channel cannot be used any more.
        """
        deadline = _compute_deadline(limit_seconds)
        rest = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while rest:
            _wait_for_io(self._writer, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._writer.fileno(), rest[:_CHUNK_OUT]) :]
            except OSError as error:
                raise ChannelClosedError(str(error)) from error

    def receive(self, limit_seconds: float | None = None, process_fd: int | None = None) -> dict[str, Any]:
        """Waits for the next message and returns it.

        limit_seconds   None waits without limit (the worker's side, which dies with its controller)
        process_fd      a pidfd of the other side: the end of that process is the end of the channel, even if a forked
                        grandchild still holds the channel open

        Raises ChannelTimeoutError at the limit, ChannelClosedError if the other side ended, and MalformedMessageError
        for what is no message.
        """
        deadline = _compute_deadline(limit_seconds)
        end = self._buffer.find(b"\n")
        while end < 0:
            _wait_for_io(self._reader, select.POLLIN, deadline, process_fd)
            chunk = self._read_chunk()
            if not chunk:
                raise ChannelClosedError("the channel was closed")
            searched = len(self._buffer)
            if searched > MESSAGE_BYTES_MOST:
                raise MalformedMessageError(
                    f"a message between worker and controller is longer than {MESSAGE_BYTES_MOST} bytes; it begins "
                    f"with {self._buffer[:120]!r}; let nothing else write to this channel"
                )
            self._buffer += chunk
            end = self._buffer.find(b"\n", searched)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _parse_message(line)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._reader.fileno(), _CHUNK)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def close(self) -> None:
        """Closes this process's descriptors of the channel; may be called more than once."""
        self._reader.close()
        self._writer.close()


def open_pidfd(pid: int) -> int | None:
    """Opens a descriptor that becomes readable when the process ends; None without the process or before Linux 5.3."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _compute_deadline(limit_seconds: float | None) -> float | None:
    return None if limit_seconds is None else time.monotonic() + limit_seconds


def _wait_for_io(end: io.FileIO, event: int, deadline: float | None, process_fd: int | None = None) -> None:
    """Waits until `end` is ready for `event` (POLLIN or POLLOUT). Raises ChannelTimeoutError at the deadline,
    ChannelClosedError if `end` is closed or the process of the pidfd `process_fd` has ended."""
    if end.closed:
        raise ChannelClosedError("this process has already closed its end of the channel between worker and controller")
    fd = end.fileno()
    poller = select.poll()
    poller.register(fd, event)
    if process_fd is not None:
        poller.register(process_fd, select.POLLIN)
    remaining_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    ready = {number for number, _ in poller.poll(remaining_ms)}
    if fd in ready:
        return
    if process_fd is not None and process_fd in ready:
        raise ChannelClosedError("the process ended")
    raise ChannelTimeoutError("no answer within the limit" if event == select.POLLIN else "nobody reads the channel")


def _parse_message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedMessageError(f"not JSON: {line[:120]!r}") from error
    if not isinstance(message, dict):
        raise MalformedMessageError(f"not a JSON object: {line[:120]!r}")
    cleaned: dict[str, Any] = _escape_surrogates(message) if b"\\ud" in line.lower() else message
    return cleaned


def _escape_surrogates(value: Any) -> Any:
    """Returns the JSON value with lone surrogates in its strings replaced by backslash escapes: JSON can carry them,
    but terminals and files cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, list) else value

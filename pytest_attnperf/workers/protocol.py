"""The worker protocol: messages, states, and a channel that waits with a limit. See docs/worker-protocol.md.

Standard library only: both sides import this file, and the other side may be another interpreter.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import select
import socket
import time
from typing import Any

PROTOCOL_VERSION = 2
_CHUNK = 1 << 16


class State(str, enum.Enum):
    """Where a worker is between requests."""

    IDLE = "IDLE"
    OPEN = "OPEN"
    FINISHED = "FINISHED"
    ENDED = "ENDED"


ALLOWED: dict[State, frozenset[str]] = {
    State.IDLE: frozenset({"list", "open", "exit", "ping"}),
    State.OPEN: frozenset({"check", "block", "rotate", "finish", "close", "ping"}),
    State.FINISHED: frozenset({"close", "ping"}),
    State.ENDED: frozenset(),
}
"""Operations a worker answers in each state; any other is a protocol error and changes nothing."""


class ChannelClosedError(Exception):
    """The other side closed the channel or its process ended."""


class ChannelTimeoutError(Exception):
    """No whole message arrived within the limit."""


class MalformedMessageError(Exception):
    """A line that is not a JSON object arrived."""


def plain(value: Any) -> Any:
    """Dataclasses, enums and tuples to what JSON holds. Non-finite floats stay: Python's json reads them back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def protocol_error(state: State, op: object) -> dict[str, Any]:
    """The error reply for an operation that this state does not allow."""
    allowed = ", ".join(sorted(ALLOWED[state])) or "nothing"
    return {
        "kind": "protocol",
        "message": f"operation {op!r} is not allowed in state {state.value}; allowed: {allowed}",
    }


class Channel:
    """JSON lines over a connected stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        os.set_inheritable(connection.fileno(), False)

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        """The channel of a file descriptor inherited from the process that started us."""
        return cls(socket.socket(fileno=fd))

    def send(self, message: dict[str, Any]) -> None:
        """Send one message whole. Raises ChannelClosedError when nobody can read it any more."""
        try:
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, limit_seconds: float | None = None, process_fd: int | None = None) -> dict[str, Any]:
        """The next message.

        limit_seconds   None waits for ever (the worker's side, which dies with its controller)
        process_fd      a pidfd of the other side: its end counts as the end of the channel even where a forked
                        grandchild still holds the socket open

        Raises ChannelTimeoutError, ChannelClosedError, MalformedMessageError.
        """
        deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
        while b"\n" not in self._buffer:
            self._wait(deadline, process_fd)
            chunk = self._read()
            if not chunk:
                raise ChannelClosedError("the channel was closed")
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return _parse(line)

    def _read(self) -> bytes:
        try:
            return self._socket.recv(_CHUNK)
        except (ConnectionResetError, OSError) as error:
            raise ChannelClosedError(str(error)) from error

    def _wait(self, deadline: float | None, process_fd: int | None) -> None:
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN | select.POLLHUP)
        if process_fd is not None:
            poller.register(process_fd, select.POLLIN)
        remaining_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = {fd for fd, _ in poller.poll(remaining_ms)}
        if self._socket.fileno() in ready:
            return
        if process_fd is not None and process_fd in ready:
            raise ChannelClosedError("the process ended")
        raise ChannelTimeoutError("no answer within the limit")

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise MalformedMessageError(f"not JSON: {line[:120]!r}") from error
    if not isinstance(message, dict):
        raise MalformedMessageError(f"not a JSON object: {line[:120]!r}")
    return message

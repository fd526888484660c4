import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pytest_attnperf.records import CaseKey, ErrorFigures, Verdict
from pytest_attnperf.workers.protocol import (
    ALLOWED,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedMessageError,
    WorkerState,
    protocol_error,
    to_plain,
)


@pytest.fixture
def ends() -> tuple[Channel, socket.socket]:
    """A channel and the raw socket at its other end."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


def test_a_message_arrives_whole_although_it_comes_in_pieces(ends: tuple[Channel, socket.socket]) -> None:
    """A message split over many packets is put together, and two in one packet are told apart."""
    channel, raw = ends
    raw.sendall(b'{"id": 1, "op":')
    raw.sendall(b' "ping"}\n{"id": 2}\n')
    assert channel.receive(1.0) == {"id": 1, "op": "ping"}
    assert channel.receive(1.0) == {"id": 2}


def test_halves_of_characters_become_text(ends: tuple[Channel, socket.socket]) -> None:
    """JSON can carry them and no file or terminal can; pairs of them are characters, and stay."""
    channel, raw = ends
    raw.sendall(b'{"a\\ud800": ["\\uDFFF", "\\ud83d\\ude00", 1]}\n')
    assert channel.receive(1.0) == {"a\\ud800": ["\\udfff", "\U0001f600", 1]}


def test_silence_is_a_timeout(ends: tuple[Channel, socket.socket]) -> None:
    """No answer within the limit raises, at about the limit."""
    channel, _raw = ends
    started = time.monotonic()
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.05)
    assert 0.04 < time.monotonic() - started < 2


def test_half_a_message_is_a_timeout_too(ends: tuple[Channel, socket.socket]) -> None:
    """A line that never ends does not count as an answer."""
    channel, raw = ends
    raw.sendall(b'{"id": 1')
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.05)


def test_end_of_file_closes(ends: tuple[Channel, socket.socket]) -> None:
    """The other side's end is seen at once, for receiving and for sending."""
    channel, raw = ends
    raw.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(5.0)
    with pytest.raises(ChannelClosedError):
        channel.send({"id": 1})


@pytest.fixture
def piped() -> Iterator[tuple[Channel, Channel]]:
    """Two channels joined by two pipes."""
    near_in, far_out = os.pipe()
    far_in, near_out = os.pipe()
    near, far = Channel.from_fds(near_in, near_out), Channel.from_fds(far_in, far_out)
    yield near, far
    near.close()
    far.close()


def test_two_pipes_carry_messages_both_ways(piped: tuple[Channel, Channel]) -> None:
    """A request goes one way and its answer the other, as over a socket."""
    near, far = piped
    near.send({"id": 1})
    assert far.receive(1.0) == {"id": 1}
    far.send({"id": 1, "ok": {}})
    assert near.receive(1.0) == {"id": 1, "ok": {}}


def test_a_message_larger_than_a_pipe_arrives_whole(piped: tuple[Channel, Channel]) -> None:
    """A sender without a limit waits for its reader: a worker with many cases announces itself early."""
    near, far = piped
    message = {"cases": ["x" * 100] * 5000}
    sender = threading.Thread(target=far.send, args=(message,))
    sender.start()
    time.sleep(0.05)
    assert near.receive(10.0) == message
    sender.join(5)
    assert not sender.is_alive()


@pytest.mark.parametrize("over", ["pipes", "socket"])
def test_nobody_reads(over: str, piped: tuple[Channel, Channel], ends: tuple[Channel, socket.socket]) -> None:
    """Sending to a side that stopped reading ends at its limit instead of blocking for ever."""
    near = piped[0] if over == "pipes" else ends[0]
    started = time.monotonic()
    with pytest.raises(ChannelTimeoutError, match="nobody reads"):
        near.send({"much": "x" * 4_000_000}, limit_seconds=0.1)
    assert 0.09 < time.monotonic() - started < 5


def test_the_end_of_a_pipe_closes(piped: tuple[Channel, Channel]) -> None:
    """What was sent before the end is still read; then receiving and sending both see it."""
    near, far = piped
    far.send({"id": 1})
    far.close()
    assert near.receive(1.0) == {"id": 1}
    with pytest.raises(ChannelClosedError):
        near.receive(5.0)
    with pytest.raises(ChannelClosedError):
        near.send({"id": 2})


def test_a_closed_channel_touches_no_descriptor(piped: tuple[Channel, Channel]) -> None:
    """After close the numbers may be those of other files: using or closing it again does not reach them."""
    near, _far = piped
    number = near._reader.fileno()
    near.close()
    os.dup2(2, number)
    near.close()
    for use in (lambda: near.send({}), lambda: near.receive(1.0)):
        with pytest.raises(ChannelClosedError, match="closed its end"):
            use()
    os.close(number)


def test_a_dead_process_is_seen_although_a_grandchild_holds_the_socket() -> None:
    """The pidfd ends the wait when the worker dies but something it forked keeps the channel open."""
    ours, theirs = socket.socketpair()
    script = "import os, time\nif os.fork() == 0:\n    time.sleep(20)\n"
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", script], pass_fds=(theirs.fileno(),), start_new_session=True)
    pidfd = os.pidfd_open(process.pid)
    try:
        started = time.monotonic()
        with pytest.raises(ChannelClosedError, match="process ended"):
            Channel(ours).receive(15.0, pidfd)
        assert time.monotonic() - started < 10
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        os.close(pidfd)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1, 2]\n", b"\xff\xfe\n"])
def test_what_is_not_a_message_is_named(ends: tuple[Channel, socket.socket], line: bytes) -> None:
    """A stray print on the channel is an error that quotes it, not a crash."""
    channel, raw = ends
    raw.sendall(line)
    with pytest.raises(MalformedMessageError, match="not"):
        channel.receive(1.0)


def test_a_channel_is_not_inherited() -> None:
    """A forked and executed grandchild does not get the socket."""
    ours, _theirs = socket.socketpair()
    fd = ours.fileno()
    os.set_inheritable(fd, True)
    channel = Channel(ours)
    assert not os.get_inheritable(fd)
    channel.close()


def test_records_become_plain_and_keep_nan(ends: tuple[Channel, socket.socket]) -> None:
    """Dataclasses, enums and tuples travel as JSON; NaN survives, because a wrong result often is one."""
    channel, raw = ends
    figures = ErrorFigures("check", "out", float("nan"), 1.0, 0.5, 1.0, worst_index=(1, 2))
    Channel(raw).send(to_plain({"key": CaseKey("s", "b", "w"), "verdict": Verdict.SLOWER, "figures": (figures,)}))
    message = channel.receive(1.0)
    assert message["key"] == {"suite": "s", "backend": "b", "workload": "w", "label": ""}
    assert message["verdict"] == "SLOWER"
    assert message["figures"][0]["max_error"] != message["figures"][0]["max_error"]
    assert message["figures"][0]["worst_index"] == [1, 2]


def test_the_state_table_is_the_documented_one() -> None:
    """No time can be asked for outside an open case, and nothing at all after the end."""
    assert "block" not in ALLOWED[WorkerState.IDLE]
    assert "block" not in ALLOWED[WorkerState.FINISHED]
    assert "open" not in ALLOWED[WorkerState.OPEN]
    assert ALLOWED[WorkerState.ENDED] == frozenset()
    error = protocol_error(WorkerState.IDLE, "block")
    assert error["kind"] == "protocol"
    assert error["message"] == "operation 'block' is not allowed in state IDLE; allowed: canary, exit, list, open, ping"

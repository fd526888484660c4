import os
import re
import socket

import pytest

from pytest_attnperf.plugin.worker_session import channel_of
from pytest_attnperf.workers.protocol import Channel


def test_a_socket_is_named_by_one_number() -> None:
    """A worker of this machine has one descriptor for both ways."""
    ours, theirs = socket.socketpair()
    near, far = Channel(ours), channel_of(str(theirs.detach()))
    near.send({"id": 1})
    assert far.receive(1.0) == {"id": 1}
    far.send({"id": 2})
    assert near.receive(1.0) == {"id": 2}
    near.close()
    far.close()


def test_two_pipes_are_named_by_two_numbers() -> None:
    """A worker behind a command reads from the first and writes to the second."""
    near_in, far_out = os.pipe()
    far_in, near_out = os.pipe()
    near, far = Channel.from_fds(near_in, near_out), channel_of(f"{far_in},{far_out}")
    near.send({"id": 1})
    assert far.receive(1.0) == {"id": 1}
    far.send({"id": 2})
    assert near.receive(1.0) == {"id": 2}
    near.close()
    far.close()


@pytest.mark.parametrize("text", ["", "seven", "1,2,3", "99999", "99998,99999", "-1"])
def test_what_is_no_channel_is_shown(text: str) -> None:
    """A value that names no open descriptors is a usage error that says what it must name."""
    expected = re.escape(f"--attnperf-worker-fd={text!r} must name an open socket, or an open descriptor to read")
    with pytest.raises(pytest.UsageError, match=expected):
        channel_of(text)

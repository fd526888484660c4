"""A function of another process: what goes over the socket, and what a forged answer does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_attnperf.measure.kernel_process import KernelServer
from pytest_attnperf.measure.remote_function import (
    ENDED,
    INVALID,
    LATE,
    LINE_BYTES_MOST,
    RAISED,
    RemoteFunction,
    RemoteKernelError,
    RemoteProtocolError,
    Wire,
)

torch = pytest.importorskip("torch")

KERNEL = """
import torch
calls = []
def kernel(x, y):
    calls.append(x.data_ptr())
    return {"sum": x + y, "empty": x.reshape(-1)[:0], "flag": x > y, "nothing": None, "calls": len(set(calls))}
def echo(x):
    return x
def fail(x):
    raise ValueError("no")
def stop(x):
    raise SystemExit(3)
"""


@pytest.fixture
def wires() -> Iterator[tuple[Wire, Wire]]:
    """Two ends of a connection, with a limit of 20 s."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Wire(ours, time.monotonic() + 20), Wire(theirs, time.monotonic() + 20)


def serve(wire: Wire) -> None:
    """Serves until the other side goes."""
    with pytest.raises(RemoteProtocolError):
        KernelServer(wire).serve()


@pytest.fixture
def remote(wires: tuple[Wire, Wire], tmp_path: Path) -> Iterator[Callable[[str], RemoteFunction]]:
    """Loads a function of KERNEL into a server in a thread."""
    thread = threading.Thread(target=serve, args=[wires[1]])
    thread.start()

    def load(name: str) -> RemoteFunction:
        (tmp_path / "kernel.py").write_text(KERNEL)
        function = RemoteFunction(wires[0], 1 << 20)
        function.load(str(tmp_path / "kernel.py"), name)
        return function

    yield load
    wires[0].connection.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_values_arrive_as_they_are(remote: Callable[[str], RemoteFunction], dtype: torch.dtype) -> None:
    """Strided, expanded and single elements; outputs by name, None left out, numbers as tensors."""
    function = remote("kernel")
    x = torch.arange(24).reshape(4, 6).to(dtype)
    for left, right in ((x.T, x.T), (x[:, 1:3], x[:1, :1].expand(4, 2)), (x[1, 2], x[2, 1]), (x[1:, ::2], x[1:, ::2])):
        outputs = function(left, right)
        assert list(outputs) == ["sum", "empty", "flag", "calls"]
        assert torch.equal(outputs["sum"], left + right)
        assert torch.equal(outputs["flag"], left > right)
        assert outputs["empty"].numel() == 0


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.complex64, torch.bool, torch.float64])
def test_every_kind_of_number_can_be_sent(remote: Callable[[str], RemoteFunction], dtype: torch.dtype) -> None:
    """Bit by bit, NaN included."""
    x = torch.tensor([0.0, -1.5, float("nan"), float("inf")]).to(dtype)
    out = remote("echo")(x)["out"]
    assert out.dtype == dtype
    assert torch.equal(out.view(torch.uint8), x.view(torch.uint8))


def test_inputs_of_one_size_get_the_same_memory(remote: Callable[[str], RemoteFunction]) -> None:
    """A kernel that keeps results by address returns old ones; times and bytes are noted."""
    function = remote("kernel")
    for number in range(4):
        assert int(function(torch.full((8,), number), torch.ones(8, dtype=torch.int64))["calls"]) == 1
    assert len(function.answer_us) == 4
    assert min(function.answer_us) > 0
    assert (function.sent_bytes, function.returned_bytes) == (2 * 64, 64 + 8 + 8)


@pytest.mark.parametrize(("name", "text"), [("fail", "ValueError: no"), ("stop", "SystemExit: 3")])
def test_an_error_of_the_kernel_is_an_answer(remote: Callable[[str], RemoteFunction], name: str, text: str) -> None:
    """Its traceback begins in the kernel's file; the process serves on."""
    function = remote(name)
    for _ in range(2):
        with pytest.raises(RemoteKernelError, match=text):
            function(torch.ones(1))
    assert function.failure is not None
    assert (function.failure.kind, function.failure.text) == (RAISED, text)
    assert function.failure.trace.splitlines()[1].startswith('  File "kernel.py", line ')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kernl", r"kernel.py has no function 'kernl' \(did you mean 'kernel'\?\); it has kernel, echo, fail, stop"),
        ("calls", "kernel.py has a list, not a function, as 'calls'; it has kernel, echo, fail, stop"),
    ],
)
def test_a_missing_function_is_named(remote: Callable[[str], RemoteFunction], name: str, text: str) -> None:
    """With those that there are."""
    with pytest.raises(RemoteKernelError, match=text):
        remote(name)


def test_a_call_that_does_not_fit_is_named(remote: Callable[[str], RemoteFunction]) -> None:
    """Before it is made."""
    text = "kernel.py: it is called with 1 inputs, but takes .x, y.: missing a required argument: 'y'"
    with pytest.raises(RemoteKernelError, match=text):
        remote("kernel")(torch.ones(1))


FORGED = {
    "no JSON": b"RIGHT\n",
    "no object": b"[1]\n",
    "deep": b"[" * 100_000 + b"\n",
    "a verdict": b'{"verdict": "RIGHT"}\n',
    "no list": b'{"outputs": 3}\n',
    "no name": b'{"outputs": [{"shape": [1], "dtype": "float32"}]}\n',
    "a bad dtype": b'{"outputs": [{"name": "out", "shape": [1], "dtype": "Tensor"}]}\n',
    "a negative size": b'{"outputs": [{"name": "out", "shape": [-1], "dtype": "float32"}]}\n',
    "a true size": b'{"outputs": [{"name": "out", "shape": [true], "dtype": "float32"}]}\n',
    "a huge output": b'{"outputs": [{"name": "out", "shape": [1048576], "dtype": "float32"}]}\n',
    "an overflow": b'{"outputs": [{"name": "o", "shape": [99999999999999, 99999999999999], "dtype": "int8"}]}\n',
    "many outputs": json.dumps({"outputs": [{"name": "o", "shape": [0], "dtype": "int8"}] * 1001}).encode() + b"\n",
    "a long line": b" " * (LINE_BYTES_MOST + 2) + b"\n",
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_answer_is_an_error(wires: tuple[Wire, Wire], forged: str) -> None:
    """Never a result, and never memory of the size that it names."""
    function = RemoteFunction(wires[0], 1 << 20)
    thread = threading.Thread(target=wires[1].connection.sendall, args=[FORGED[forged]])
    thread.start()
    with pytest.raises(RemoteKernelError):
        function(torch.ones(1))
    assert function.failure is not None
    assert function.failure.kind == INVALID
    wires[0].connection.close()
    thread.join(20)


def test_a_process_that_ends_is_an_error(wires: tuple[Wire, Wire]) -> None:
    """It says how it has ended; half an answer is none."""
    function = RemoteFunction(wires[0], 1 << 20, lambda: "it ended with exit status 0")
    wires[1].connection.sendall(b'{"outputs": [{"name": "out", "shape": [9], "dtype": "float32"}]}\nabc')
    wires[1].connection.shutdown(socket.SHUT_WR)
    with pytest.raises(RemoteKernelError, match="failed in a call: it ended with exit status 0"):
        function(torch.ones(1))
    assert function.failure is not None
    assert function.failure.kind == ENDED


@pytest.mark.parametrize("size", [1, 1 << 22])
def test_a_silent_process_is_late(wires: tuple[Wire, Wire], size: int) -> None:
    """Whether it does not answer, or does not even read."""
    wires[0].deadline = time.monotonic() + 0.2
    function = RemoteFunction(wires[0], 1 << 20)
    with pytest.raises(RemoteKernelError):
        function(torch.ones(size))
    assert function.failure is not None
    assert function.failure.kind == LATE


def test_hostile_text_is_made_printable(wires: tuple[Wire, Wire]) -> None:
    """A lone surrogate in an error or a name can be written to a file afterwards; a long text is cut."""
    function = RemoteFunction(wires[0], 1 << 20)
    wires[1].connection.sendall(json.dumps({"error": "\ud800" + "x" * 30_000}).encode() + b"\n")
    with pytest.raises(RemoteKernelError) as raised:
        function(torch.ones(1))
    assert str(raised.value).encode().startswith(b"\\ud800xx")
    assert len(str(raised.value)) < 20_100

"""A function that runs in another process: its arguments and results go over a socket as plain bytes.

The judge calls it like any function. Nothing that the other process sends is executed or unpickled, and no size that it
names is believed beyond a limit. A message is a line of JSON, followed by the bytes of the tensors that it lists.

    -> {"call": [{"dtype", "shape", "stride", "span"}, ...], "device": "cpu"} and bytes, or {"load": path, "name": name}
    <- {"outputs": [{"name", "dtype", "shape"}, ...]} and bytes, or {"loaded": true}, or
       {"error": text, "trace": text, "unsupported": false}
"""

from __future__ import annotations

import ctypes
import json
import math
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness.metrics import COMPARABLE
from pytest_attnperf.errors import CaseFailedError, UnsupportedError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

LINE_BYTES_MOST = 1 << 20
OUTPUTS_MOST = 1000
COMPLEX = ("complex64", "complex128", "complex32")
DTYPES = frozenset((*COMPARABLE, *COMPLEX))
"""Names of torch's dtypes that can be sent."""


class RemoteProtocolError(Exception):
    """The other side closed the socket, did not answer in time, or sent something that is no message; `ended` tells
    whether it closed it, `late` whether time ran out."""

    def __init__(self, message: str, *, ended: bool = False, late: bool = False) -> None:
        super().__init__(message)
        self.ended = ended
        self.late = late


@dataclass(frozen=True)
class RemoteFailure:
    """Why a remote function gave no result: `kind` is RAISED, UNSUPPORTED, LATE, ENDED or INVALID; `trace` is the end
    of its traceback, '' without one."""

    kind: str
    text: str
    trace: str = ""


RAISED, UNSUPPORTED, LATE, ENDED, INVALID = "raised", "unsupported", "late", "ended", "invalid"


class RemoteKernelError(CaseFailedError):
    """The remote function raised, could not be loaded, did not answer in time, or its process ended."""


@dataclass
class Wire:
    """One end of the connection. `deadline` is a time of the monotonic clock in seconds; None for no limit."""

    connection: socket.socket
    deadline: float | None = None

    def send(self, message: dict[str, Any], tensors: Sequence[torch.Tensor] = ()) -> None:
        """Sends a message, then the bytes of contiguous tensors on the CPU. Raises RemoteProtocolError if the other
        side has gone or reads too slowly."""
        try:
            self._limit_wait()
            self.connection.sendall(json.dumps(message).encode() + b"\n")
            for tensor in tensors:
                self._limit_wait()
                if tensor.numel():
                    self.connection.sendall(view_bytes(tensor))
        except TimeoutError:
            raise RemoteProtocolError("it does not read what it is sent", late=True) from None
        except OSError as error:
            raise RemoteProtocolError(str(error), ended=True) from error

    def receive(self) -> dict[str, Any]:
        """Waits for a message and returns it. Raises RemoteProtocolError."""
        line = b""
        while not line.endswith(b"\n"):
            if len(line) > LINE_BYTES_MOST:
                raise RemoteProtocolError(f"a message is longer than {LINE_BYTES_MOST} bytes")
            seen = self._read(lambda: self.connection.recv(1 << 16, socket.MSG_PEEK))
            until = seen.find(b"\n") + 1 or len(seen)  # what follows belongs to tensors
            line += self._read(lambda until=until: self.connection.recv(until))  # type: ignore[misc]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"a message is not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise RemoteProtocolError(f"a message is no JSON object: {line[:80]!r}")
        return message

    def fill(self, tensor: torch.Tensor) -> None:
        """Reads the bytes of a contiguous tensor on the CPU into its memory. Raises RemoteProtocolError."""
        rest = view_bytes(tensor) if tensor.numel() else memoryview(b"")
        while rest:
            target = rest
            count = self._read(lambda target=target: self.connection.recv_into(target))  # type: ignore[misc]
            rest = rest[count:]

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            self._limit_wait()
            got = read()
        except TimeoutError:
            raise RemoteProtocolError("it did not answer in time", late=True) from None
        except OSError as error:
            raise RemoteProtocolError(str(error), ended=True) from error
        if not got:
            raise RemoteProtocolError("it closed the connection", ended=True)
        return got

    def _limit_wait(self) -> None:
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)


def view_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the memory of a contiguous, non-empty tensor on the CPU as bytes; the tensor must outlive the view."""
    count = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * count).from_address(tensor.data_ptr())).cast("B")


def read_dtype(name: object) -> torch.dtype:
    """Returns torch's dtype of this name. Raises RemoteProtocolError for anything but a name of DTYPES."""
    import torch

    if not isinstance(name, str) or name not in DTYPES or not hasattr(torch, name):
        raise RemoteProtocolError(f"{str(name)[:80]!r} is no dtype that can be sent")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


@dataclass
class RemoteFunction:
    """`function(*tensors)` of another process, as a callable that returns its outputs by name.

    ended           describes how the process has ended, for errors
    bytes_most      most bytes of the outputs of a call
    answer_us       microseconds between the last byte of the inputs sent and the last byte of the outputs received, of
                    each call: what the call took, seen from outside, and the way back
    sent_bytes      bytes of the inputs of the last call; returned_bytes of its outputs
    failure         why the last call, or loading, gave no result
    """

    wire: Wire
    bytes_most: int
    ended: Callable[[], str] = lambda: "its process ended"
    answer_us: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    returned_bytes: int = 0
    failure: RemoteFailure | None = None

    def load(self, path: str, name: str) -> None:
        """Lets the other process import the file and find the function. Raises as a call."""
        self._ask({"load": path, "name": name}, (), "while it loaded the kernel")

    def __call__(self, *tensors: torch.Tensor) -> Outputs:
        """Calls the function on copies with the same strides; returns its outputs on the device of the first input.
        Raises RemoteKernelError if it raises, ends or does not answer in time, and UnsupportedError if it needs what
        this machine lacks."""
        device = str(tensors[0].device) if tensors else "cpu"
        flat = [lay_flat(tensor) for tensor in tensors]
        described = [
            {"dtype": str(tensor.dtype)[6:], "shape": tensor.shape, "stride": tensor.stride(), "span": one.numel()}
            for tensor, one in zip(tensors, flat, strict=True)
        ]
        self.sent_bytes = sum(one.numel() * one.element_size() for one in flat)
        answer = self._ask({"call": described, "device": device}, flat, "in a call")
        asked = time.perf_counter()
        try:
            outputs = self._read_outputs(answer.get("outputs"))
        except RemoteProtocolError as error:
            raise self._explain(error, "in a call") from error
        self.answer_us[-1] += (time.perf_counter() - asked) * 1e6
        return {name: tensor.to(device) for name, tensor in outputs.items()}

    def _ask(self, asked: dict[str, Any], flat: Tensors | list[torch.Tensor], doing: str) -> dict[str, Any]:
        try:
            self.wire.send(asked, flat)
            sent = time.perf_counter()
            answer = self.wire.receive()
        except RemoteProtocolError as error:
            raise self._explain(error, doing) from error
        if "error" in answer:
            raise self._fail(
                UNSUPPORTED if answer.get("unsupported") is True else RAISED,
                make_printable(answer["error"]),
                make_printable(answer.get("trace", "")),
            )
        if "call" in asked:
            self.answer_us.append((time.perf_counter() - sent) * 1e6)
        return answer

    def _explain(self, error: RemoteProtocolError, doing: str) -> Exception:
        said = self.ended() if error.ended else str(error)
        kind = ENDED if error.ended else LATE if error.late else INVALID
        return self._fail(kind, f"the kernel's process failed {doing}: {said}")

    def _fail(self, kind: str, text: str, trace: str = "") -> Exception:
        """Notes the failure, and returns the error to raise."""
        self.failure = RemoteFailure(kind, text, trace)
        return UnsupportedError(text) if kind == UNSUPPORTED else RemoteKernelError(text, traceback=trace)

    def _read_outputs(self, described: object) -> Outputs:
        import torch

        if not isinstance(described, list) or len(described) > OUTPUTS_MOST:
            raise RemoteProtocolError(f"outputs are not a list of at most {OUTPUTS_MOST}")
        outputs: Outputs = {}
        self.returned_bytes = 0
        for one in described:
            name, shape, dtype = _check_output(one)
            self.returned_bytes += math.prod(shape) * dtype.itemsize
            if self.returned_bytes > self.bytes_most:
                raise RemoteProtocolError(f"the outputs have more than {self.bytes_most} bytes")
            outputs[name] = torch.empty(shape, dtype=dtype)
            self.wire.fill(outputs[name])
        return outputs


def _check_output(one: object) -> tuple[str, tuple[int, ...], torch.dtype]:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not isinstance(one.get("shape"), list):
        raise RemoteProtocolError(f"an output has no name or no shape: {str(one)[:80]}")
    shape = tuple(one["shape"])
    if len(shape) > 32 or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise RemoteProtocolError(f"an output has the shape {str(shape)[:80]}")
    return make_printable(one["name"]), shape, read_dtype(one.get("dtype"))


def lay_flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory that a tensor spans, from its first to its last element, as one row on the CPU."""
    import torch

    if not tensor.numel():
        return torch.empty(0, dtype=tensor.dtype)
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((span,), (1,), tensor.storage_offset()).cpu().contiguous()


def make_printable(text: object) -> str:
    """Returns text of the other process without lone surrogates, which no file can hold, and no longer than a page."""
    return str(text)[:20_000].encode("utf-8", "backslashreplace").decode()

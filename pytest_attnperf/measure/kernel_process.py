"""Serves calls of one kernel: `python -m pytest_attnperf.measure.kernel_process FD`, in a process with nothing else.

It holds no reference, no seed and no judge: what it imports for a kernel can only be called. See `remote_function` for
the messages. Everything is imported before the kernel, so that no time of loading is in a call.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import AttnperfError, UnsupportedError
from pytest_attnperf.measure import interpreting
from pytest_attnperf.measure.function_file import FunctionMissingError, find_function, load_file
from pytest_attnperf.measure.not_interpreted import translate_errors
from pytest_attnperf.measure.remote_function import RemoteProtocolError, Wire, read_dtype
from pytest_attnperf.records.call_fit import find_misfit, format_kind
from pytest_attnperf.workloads.returned import name_outputs

if TYPE_CHECKING:
    import torch

SHOWN_FRAMES = 12


class KernelServer:
    """Answers the messages of one connection until it ends. Inputs of one place and size get the same memory in every
    call: a kernel that keeps results by address returns old ones."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._function: Callable[..., Any] | None = None
        self._file = self._path = ""
        self._memory: dict[tuple[int, str, int], torch.Tensor] = {}
        self._on_device: dict[tuple[int, str, int], torch.Tensor] = {}

    def serve(self) -> None:
        """Answers until the other side closes the connection."""
        while True:
            message = self._wire.receive()
            try:
                answer, tensors = self._answer(message)
            except RemoteProtocolError:
                raise
            except BaseException as error:  # SystemExit of a kernel is an answer, too
                told = {"error": describe_error(error), "trace": self._describe_trace(error)}
                answer, tensors = {**told, "unsupported": isinstance(error, UnsupportedError)}, []
            self._wire.send(answer, tensors)

    def _answer(self, asked: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        if "load" in asked:
            path, name = asked["load"], asked["name"]
            self._file, self._path = os.path.basename(path), path
            self._function = find_function(load_file(path), name, self._file)
            return {"loaded": True}, []
        assert self._function is not None, "load comes first"
        inputs = self._receive_inputs(asked["call"], asked["device"])
        if misfit := find_misfit(self._function, *inputs):
            raise FunctionMissingError(f"{self._file}: it is called with {len(inputs)} inputs, but {misfit}")
        with translate_errors(interpreting.is_interpreting()):
            returned = self._function(*inputs)
        return describe_outputs(returned, asked["device"])

    def _describe_trace(self, error: BaseException) -> str:
        """Returns the lines of an error's traceback from the kernel's file on; '' if it is not in it."""
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != self._path:
            frame = frame.tb_next
        if frame is None:
            return ""
        try:
            lines = traceback.format_exception(type(error), error, frame, limit=-SHOWN_FRAMES, chain=False)
        except Exception:  # a class of the kernel's file
            return ""
        return "".join(lines).replace(self._path, self._file)[-8000:]

    def _receive_inputs(self, described: list[dict[str, Any]], device: str) -> list[torch.Tensor]:
        import torch

        inputs = []
        for number, one in enumerate(described):
            key = number, one["dtype"], one["span"]
            flat = self._memory.get(key)
            if flat is None:
                flat = self._memory[key] = torch.empty(one["span"], dtype=read_dtype(one["dtype"]))
            self._wire.fill(flat)
            if device != "cpu":
                there = self._on_device.get(key)
                if there is None:
                    there = self._on_device[key] = torch.empty_like(flat, device=device)
                flat = there.copy_(flat)
            inputs.append(flat.as_strided(one["shape"], one["stride"]))
        if device != "cpu":
            torch.cuda.synchronize()
        return inputs


def describe_outputs(returned: object, device: str) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Returns (the message on what a kernel returned, its tensors on the CPU). Raises TypeError for what is no tensor,
    number or structure of them."""
    import torch

    named = name_outputs(returned, device)
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"the kernel returned {format_kind(value)} as {name!r}; it must return tensors or numbers")
    tensors = [tensor.resolve_conj().resolve_neg().contiguous().cpu() for tensor in named.values()]
    described = [
        {"name": name, "dtype": str(tensor.dtype)[6:], "shape": tuple(tensor.shape)}
        for name, tensor in zip(named, tensors, strict=True)
    ]
    return {"outputs": described}, tensors


def describe_error(error: BaseException) -> str:
    """Returns the kind and the text of an error in one line; of our own errors only the text."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # a class of the kernel's file
        text = "its text cannot be read"
    return text if isinstance(error, AttnperfError) else f"{type(error).__name__}: {text}"[:2000]


def main() -> None:
    """Serves the connection whose descriptor is the only argument."""
    import torch  # noqa: F401

    interpreting.start_interpreting()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        wire = Wire(connection)
        wire.send({"ready": True})
        try:
            KernelServer(wire).serve()
        except RemoteProtocolError:
            sys.exit(0)


if __name__ == "__main__":
    main()

"""Writes each launch to disk, so that the last one is known after the process died.

If a case broke its process or its device, a worker runs it a second time with this recorder. It writes a line before
and after every launch of Triton, of Inductor, of torch's operators, and of launchers that use `launch`. That run waits
for each launch (`WAITING`), so the launch that began and did not end well is the one that broke. Other runs record
nothing and have no cost.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_attnperf.measure.autotuners import INDUCTOR
from pytest_attnperf.measure.patching import Patch, Patches
from pytest_attnperf.measure.ran_code import COMPILED, TRITON

VARIABLE = "ATTNPERF_FLIGHT_RECORDER"
"""Environment variable with the file that a worker writes to; without it, a worker records nothing."""

WAITING = {"CUDA_LAUNCH_BLOCKING": "1", "HIP_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "3"}
"""Environment variables that make a launch return only after its kernel ended, on NVIDIA and AMD."""

INTERPRETED = ("triton.runtime.interpreter", "InterpretedFunction")

BEGUN, ENDED, RAISED = "> ", "< ", "! "
"""Start of each line: `> kernel`, `< kernel`, and `! kernel<TAB>first line of the error`."""

TEXT_LIMIT = 500


Around = Callable[[str], AbstractContextManager[None]]
"""Makes the context of one launch from the kernel's name."""


class _Recorder:
    """What this process does around launches: `fd` is the open file, None while nothing is recorded; `around` makes the
    context of each launch, None while nobody watches."""

    fd: int | None = None
    around: Around | None = None


class _RecordedLaunch:
    """Writes a line before and a line after one launch."""

    def __init__(self, name: str) -> None:
        self._name = _one_line(name)

    def __enter__(self) -> None:
        _write_line(f"{BEGUN}{self._name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _write_line(f"{ENDED}{self._name}" if error is None else f"{RAISED}{self._name}\t{_one_line(str(error))}")


_UNWATCHED: AbstractContextManager[None] = nullcontext()


def launch(name: str) -> AbstractContextManager[None]:
    """Returns a context for one launch of the kernel `name` by a launcher that is not Triton's.
    It writes a line before and after the launch while this process records, or does what `watch_launches` was given;
    else it does nothing."""
    return _UNWATCHED if _Recorder.around is None else _Recorder.around(name)


@contextlib.contextmanager
def watch_launches(around: Around) -> Iterator[None]:
    """Enters `around(name)` around every launch inside the context, on this thread where torch's operators launch.

    A context around this one stays in effect outside the inner one. Launches of torch's operators are watched only if
    torch is already imported.
    """
    outer = _Recorder.around
    patches = [
        Patch(*TRITON, "run", _before_triton),
        Patch(*INTERPRETED, "run", _before_triton),
        Patch(*COMPILED, "__getitem__", _before_compiled),
        Patch(*INDUCTOR, "run", _before_inductor),
    ]
    with ExitStack() as stack:
        if outer is None:
            stack.enter_context(Patches(patches))
            stack.enter_context(watch_operators())
        _Recorder.around = around if outer is None else functools.partial(_nest, outer, around)
        try:
            yield
        finally:
            _Recorder.around = outer


@contextlib.contextmanager
def _nest(outer: Around, inner: Around, name: str) -> Iterator[None]:
    with outer(name), inner(name):
        yield


def stop_recording() -> None:
    """Closes the file of the recording, if there is one: launches after a failure say nothing about it."""
    if _Recorder.fd is not None:
        os.close(_Recorder.fd)
        _Recorder.fd = None


@contextlib.contextmanager
def record_launches(path: Path) -> Iterator[None]:
    """Appends a line to the file before and after every launch, until the context ends or `stop_recording` is called.
    Launches of torch's operators are recorded only if torch is already imported."""
    stop_recording()
    _Recorder.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        with watch_launches(_RecordedLaunch):
            yield
    finally:
        stop_recording()


def find_blamed_kernel(text: str, is_fault: Callable[[str], bool]) -> str:
    """Returns the kernel that broke the device, by the `text` of a recording; '' if the recording does not show it.

    It is the first launch that raised a fault, else the last that did not finish (the innermost of nested ones).

    is_fault   tells whether an error text means a broken device: an autotuner also tries what cannot run
    """
    open_ones: list[str] = []
    for line in text.splitlines():
        mark, rest = line[: len(BEGUN)], line[len(BEGUN) :]
        name, _, error = rest.partition("\t")
        if mark == BEGUN:
            open_ones.append(name)
        elif mark == RAISED and is_fault(error):
            return name
        elif mark in (ENDED, RAISED) and name in open_ones:
            del open_ones[len(open_ones) - 1 - open_ones[::-1].index(name) :]
    return open_ones[-1] if open_ones else ""


def find_last_launch(text: str) -> str:
    """Returns the kernel that was launched last, by the text of a recording; '' if none was."""
    return next((line[len(BEGUN) :] for line in reversed(text.splitlines()) if line.startswith(BEGUN)), "")


def _write_line(line: str) -> None:
    """Writes a line in one system call, so that it reaches the file even if the process dies immediately afterwards.
    It does nothing while nothing is recorded, and ignores a failed write."""
    if _Recorder.fd is not None:
        with contextlib.suppress(OSError):
            os.write(_Recorder.fd, f"{line}\n".encode(errors="replace"))


def _one_line(text: str) -> str:
    return " ".join(text[:TEXT_LIMIT].split())


def _before_triton(previous: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(previous)
    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup"):
            return previous(function, *args, **kwargs)
        with launch(_name_of(function)):
            return previous(function, *args, **kwargs)

    return run


def _before_compiled(previous: Callable[..., Any]) -> Callable[..., Any]:
    def getitem(compiled: Any, grid: Any) -> Any:
        runner = previous(compiled, grid)
        name = str(getattr(getattr(compiled, "metadata", None), "name", "a compiled Triton kernel"))

        def launch_recorded(*args: Any, **kwargs: Any) -> Any:
            with launch(name):
                return runner(*args, **kwargs)

        return launch_recorded

    return getitem


def _before_inductor(previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        meta = getattr(autotuner, "inductor_meta", None) or {}
        with launch(str(meta.get("kernel_name") or _name_of(autotuner))):
            return previous(autotuner, *args, **kwargs)

    return run


def _name_of(function: Any) -> str:
    inner = getattr(function, "fn", function)
    return str(getattr(inner, "__name__", None) or getattr(function, "__name__", None) or type(function).__name__)


def watch_operators() -> AbstractContextManager[Any]:
    """Returns a context in which each torch operator of this thread is a `launch`; an empty one without torch."""
    if "torch" not in sys.modules:
        return nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Returns whether torch's compiler is loaded; else torch would load it here, which takes seconds."""
            return "torch._dynamo" in sys.modules

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """Returns True, so that a compiled case runs compiled here, too."""
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with launch(str(func)):
                return func(*args, **(kwargs or {}))

    return Recorded()  # type: ignore[no-untyped-call]

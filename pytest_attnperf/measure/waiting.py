"""How long a thread was ready to run while every core ran something else: time that no kernel under test took.

Linux counts it for each thread (`/proc/thread-self/schedstat`, second number, nanoseconds). On two cores beside two
busy programs a call of 10 ms takes 10 to 90 ms by the clock; without what it waited it is the same to about 15 %.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

_read, _thread_ns, _process_ns = os.pread, time.thread_time_ns, time.process_time_ns
"""Held from before any user's code is imported, as the clocks are."""

_BYTES = 64


class Waited:
    """Called, the nanoseconds that the calling thread has waited so far, less what other threads of this process
    computed: a thread that waits for work of its own process waits for the kernel under test. 0 where nobody counts."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._thread = 0

    def __call__(self) -> int:
        """Nanoseconds; only differences mean something."""
        if self._thread != threading.get_ident():
            self._open()
        if self._file is None:
            return 0
        try:
            waited_ns = int(_read(self._file, _BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError):  # of a thread that has ended, whose number this one has now
            self.close()
            return 0
        return waited_ns - (_process_ns() - _thread_ns())

    def _open(self) -> None:
        self.close()
        self._thread = threading.get_ident()
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def __del__(self) -> None:
        self.close()

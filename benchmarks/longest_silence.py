"""The longest times in which a command prints nothing on a terminal, and what stood there meanwhile.

    .venv/bin/python benchmarks/longest_silence.py [--fresh-caches] [--interrupt-after S] [--shown N] -- COMMAND...

The command runs under a pseudo terminal of 24 lines and 100 columns. With --fresh-caches Triton, Inductor and torch's
extensions find nothing that was compiled before. With --interrupt-after somebody presses Ctrl-C then, and how long the
answer took is printed. Exit status 1 where a silence was longer than 5 s, or an answer to Ctrl-C than 1 s.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LINES, COLUMNS = 24, 100
SILENCE_S, ANSWER_S = 5.0, 1.0
SHOWN_CHARACTERS = 160
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME")
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[78]|[\r\x07\x08]")


@dataclass(frozen=True)
class Output:
    """What was printed, and when: seconds since the command began."""

    at_s: float
    text: bytes


@dataclass(frozen=True)
class Silence:
    """Seconds without output, since when, and the last that was printed before."""

    seconds: float
    since_s: float
    shown: str


def silences(outputs: Sequence[Output], ended_s: float) -> list[Silence]:
    """All of them, the longest first; before the first output and behind the last one, too."""
    found, since, before = [], 0.0, b""
    for output in (*outputs, Output(ended_s, b"")):
        found.append(Silence(output.at_s - since, since, shown(before)))
        since, before = output.at_s, (before + output.text)[-4 * SHOWN_CHARACTERS :]
    return sorted(found, key=lambda silence: -silence.seconds)


def shown(text: bytes) -> str:
    """The end of an output as a reader sees it: no codes, on one line."""
    plain = _ESCAPE.sub(b" ", text).decode(errors="replace")
    return " ".join(plain.split())[-SHOWN_CHARACTERS:]


def answer(outputs: Sequence[Output], asked_s: float) -> Output | None:
    """The first output behind a Ctrl-C that says that it came."""
    behind = (output for output in outputs if output.at_s > asked_s)
    return next((output for output in behind if b"interrupt" in output.text.lower()), None)


def watched(command: Sequence[str], environment: Mapping[str, str], interrupt_after: float | None) -> Iterator[Output]:
    """Run the command on a terminal; what it prints, as it comes."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where this program runs in the background
        os.execvpe(command[0], list(command), dict(environment))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began = time.monotonic()
    try:
        while True:
            now = time.monotonic() - began
            if interrupt_after is not None and now >= interrupt_after:
                os.write(terminal, b"\x03")
                interrupt_after = None
            if not select.select([terminal], [], [], 0.05)[0]:
                continue
            try:
                text = os.read(terminal, 1 << 16)
            except OSError:  # nobody holds the other end any more
                text = b""
            if not text:
                return
            yield Output(time.monotonic() - began, text)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def environment(*, fresh_caches: bool, folder: str) -> dict[str, str]:
    """That of this process, of a terminal, and with caches in `folder` where they are to be fresh."""
    fresh = {name: os.path.join(folder, name.lower()) for name in CACHES} if fresh_caches else {}
    return {**os.environ, "TERM": "xterm-256color", **fresh}


def main() -> int:
    """Run the command and print the table."""
    parser = argparse.ArgumentParser(description="How long a command prints nothing on a terminal.")
    parser.add_argument("--fresh-caches", action="store_true", help="nothing has been compiled before")
    parser.add_argument("--interrupt-after", type=float, metavar="S", help="press Ctrl-C after so many seconds")
    parser.add_argument("--shown", type=int, default=5, metavar="N", help="longest silences (default %(default)s)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="behind --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        given = environment(fresh_caches=args.fresh_caches, folder=folder)
        outputs = list(watched(args.command, given, args.interrupt_after))
        ended = time.monotonic() - began
    found = silences(outputs, ended)
    print(f"{ended:.1f} s in all, {len(outputs)} outputs; the longest silences:")
    for silence in found[: args.shown]:
        print(f"{silence.seconds:6.1f} s from {silence.since_s:6.1f} s on, behind: {silence.shown or '(nothing yet)'}")
    late = found[0].seconds > SILENCE_S
    if args.interrupt_after is not None:
        said = answer(outputs, args.interrupt_after)
        seconds = float("inf") if said is None else said.at_s - args.interrupt_after
        text = shown(said.text) if said else ""
        print(f"Ctrl-C at {args.interrupt_after:.1f} s was answered after {seconds:.2f} s: {text}")
        late = late or seconds > ANSWER_S
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a reader must not do while it reads: fail otherwise than in words, take long, write or run anything elsewhere.

Python tells an audit hook of every file it opens for writing, every process, socket, evaluated code and unpickled name.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_attnperf.errors import AttnperfError

LIMIT_S = 1.0
"""Of processor time for one file."""
WALL_LIMIT_S = 20.0
"""For what sleeps or waits; generous, for others may hold the processors."""

RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.startfile",
        "socket.connect", "socket.bind", "pickle.find_class", "marshal.loads", "sqlite3.load_extension",
        "sqlite3.enable_load_extension", "webbrowser.open", "urllib.Request", "ctypes.dlopen")  # fmt: skip
WRITES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod",
          "os.chown", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile", "shutil.copytree",
          "sqlite3.connect", "tempfile.mkstemp", "tempfile.mkdtemp")  # fmt: skip
EVALUATES = ("compile", "exec")
LETTERS_MOST = 20_000
"""Of an error's text: nobody reads more."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OWN_TEXT = ("/typing.py", "/dataclasses.py", "/collections/__init__.py", "/msgspec/_utils.py", "/jinja2/environment.py",
            "/sqlalchemy/util/langhelpers.py")  # fmt: skip
"""Files of libraries that evaluate what stands in a module or a template of ours."""


class TooLongError(BaseException):
    """Raised inside whatever takes too long; no reader catches it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one file. kind: accepted, refused, or a finding; text: what was found."""

    kind: str
    text: str = ""
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        """Whether this must not happen."""
        return self.kind not in ("accepted", "refused")


class Guard:
    """Watches this process from `install` on; one file at a time. `folder` is the one place that may be written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.seen: list[str] = []
        self._watching = False

    def install(self) -> None:
        """Once in a process: an audit hook cannot be removed."""
        sys.addaudithook(self._heard)
        signal.signal(signal.SIGPROF, _too_long)
        signal.signal(signal.SIGALRM, _too_long)

    def limit_memory(self, extra_bytes: int) -> None:
        """Beyond what is mapped now; whatever takes more gets a MemoryError, which is a finding."""
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, resource.RLIM_INFINITY))

    def watch(self, read: Callable[[], object]) -> Outcome:
        """Run one reader. It may succeed, or raise AttnperfError or OSError."""
        self.seen.clear()
        started = time.process_time()
        self._watching = True
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
        try:
            read()
            kind, text = "accepted", ""
        except (AttnperfError, OSError) as error:
            kind, text = _refusal(error)
        except TooLongError:
            kind, text = "hang", f"more than {LIMIT_S:g} s, in {_innermost()}"
        except BaseException as error:
            kind, text = type(error).__name__, f"{str(error)[:200]!r} in {_innermost()}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._watching = False
        seconds = time.process_time() - started
        return Outcome("forbidden", "; ".join(self.seen[:3]), seconds) if self.seen else Outcome(kind, text, seconds)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING and not self._is_ours(path):
                self.seen.append(f"opened {str(path)[:200]!r} for writing")
        elif event in WRITES:
            strange = [path for path in arguments if isinstance(path, (str, bytes)) and not self._is_ours(path)]
            if strange:
                self.seen.append(f"{event} {str(strange[0])[:200]!r}")
        elif event == "subprocess.Popen" and list(arguments[1])[:2] == ["git", "merge-file"]:
            return  # what git does with a file of lines; its three files are temporary
        elif event == "subprocess.Popen" and list(arguments[1]) == ["git", "config", "user.name"]:
            return  # explain asks whether git knows who accepts; no word of it comes from the file
        elif (event in RUNS or (event in EVALUATES and _is_evaluated(event, arguments))) and not _is_importing():
            self.seen.append(f"{event} {str(arguments)[:200]}")

    def _is_ours(self, path: object) -> bool:
        if isinstance(path, int):
            return True  # a descriptor, opened before
        text = os.path.realpath(os.fsdecode(path) if isinstance(path, bytes) else str(path))
        return text in (os.devnull, ":memory:") or f"{text}/".startswith(f"{self.folder}/")


def console(run: Callable[[], int]) -> None:
    """Run a command with streams of its own. Raises AssertionError for letters that a terminal would obey."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=how) for how in ("strict", "backslashreplace")]
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        status = run()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 2
    finally:
        sys.stdout, sys.stderr = before
    for stream in streams:
        stream.flush()
        text = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
        found = sorted({hex(ord(letter)) for letter in text if _is_obeyed(letter)})
        assert not found, f"printed {', '.join(found)}"
        assert "Traceback (most recent call last)" not in text, "printed a traceback"
    assert status in (0, 1, 2), f"exit status {status}"
    if status == 2:
        raise AttnperfError("exit status 2")


def _is_obeyed(letter: str) -> bool:
    """Whether a terminal acts on it: control characters, and those that turn the direction of a line."""
    return letter not in "\n\t" and (letter < " " or "\x7f" <= letter <= "\x9f" or letter in "\u202d\u202e\u2066\u2067")


def _refusal(error: AttnperfError | OSError) -> tuple[str, str]:
    """A clean error is short enough to be read."""
    text = str(error)
    return ("refused", "") if len(text) < LETTERS_MOST else ("long message", f"{len(text)} letters: {text[:100]!r}")


def _is_evaluated(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "compile":
        return arguments[0] is not None or not str(arguments[1]).endswith(".py")
    code = arguments[0]
    return not str(getattr(code, "co_filename", "")).endswith(".py")


def _is_importing() -> bool:
    """Whether a module is being loaded, or a library evaluates what stands in a module: annotations, its templates."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == "<frozen importlib._bootstrap>" or file.endswith(OWN_TEXT):
            return True
        frame = frame.f_back
    return False


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError


def _innermost() -> str:
    """Where the exception that is being handled came from: our innermost function, and the innermost of all."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if "pytest_attnperf" in frame.filename or "/kernels/" in frame.filename]
    named = [*ours[-1:], *frames[-1:]]
    return " <- ".join(dict.fromkeys(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in named))

"""Exceptions whose text says what is wrong, the value seen, what exists, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_attnperf.records.notes import NoteKind

LISTED_NAMES = 20
"""Most names that a message lists. Of more it lists the nearest to the given one, and the groups of all."""

NEAREST_NAMES, NEAREST_CUTOFF = 5, 0.6


class AttnperfError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(AttnperfError):
    """The command line, an ini value or a marker is invalid: one line. pytest exits with 4, or fails the test."""


class UnknownNameError(UsageError):
    """An unregistered backend, workload or family was named; the message lists the nearest names first."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name[:300]!r}; {known_names(name, known)}")


def known_names(name: str, known: Iterable[str]) -> str:
    """Returns 'known: a, b', names similar to `name` first; if there are many, the nearest names, the count and the
    first parts ('triton' of 'triton.flash')."""
    import difflib

    names = sorted(set(known))
    alike = {one: difflib.SequenceMatcher(None, name[:300], one).ratio() for one in names}
    near = sorted((one for one in names if alike[one] >= NEAREST_CUTOFF), key=lambda one: -alike[one])
    if len(names) <= LISTED_NAMES:
        others = [one for one in names if one not in near]
        return f"known: {', '.join([*near, *others]) or 'none are registered'}"
    groups = sorted({one.partition(".")[0] for one in names})
    near = list(dict.fromkeys([*difflib.get_close_matches(name[:300], groups, 1), *near]))
    more = f", and {len(groups) - LISTED_NAMES} more" if len(groups) > LISTED_NAMES else ""
    nearest = f"nearest: {', '.join(near[:NEAREST_NAMES])}; " if near else ""
    return f"{nearest}known: {len(names)}, beginning with {', '.join(groups[:LISTED_NAMES])}{more}"


def propose_name(name: str, known: Iterable[str]) -> str:
    """Returns " (did you mean 'reference'?)" with the name that is spelled most like `name`; '' if none is similar."""
    import difflib

    near = difflib.get_close_matches(name[:300], [str(one) for one in known], 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


class WorkloadError(UsageError):
    """A workload's text or shape is malformed; the message names the field and what is allowed."""


class WorkerError(AttnperfError):
    """A worker died, did not answer within its limit, or gave an answer that the protocol does not have.

    kind       which of these, where code depends on it
    starting   whether it was not ready yet
    side       name of the side that it worked for, where it is in the message
    """

    def __init__(
        self,
        message: str,
        log_tail: str = "",
        *,
        kind: NoteKind | None = None,
        starting: bool = False,
        side: str = "",
    ) -> None:
        super().__init__(f"{message}\n--- end of the worker's log ---\n{log_tail}" if log_tail else message)
        self.summary = message
        self.log_tail = log_tail
        self.kind = kind
        self.starting = starting
        self.side = side

    def with_side(self, name: str) -> WorkerError:
        """Returns this error with `name`, of the side (base, candidate) or card, in front of its text."""
        text = f"{name}: {self.summary}"
        return WorkerError(text, self.log_tail, kind=self.kind, starting=self.starting, side=name)


class CaseFailedError(AttnperfError):
    """A case raised inside its worker; the worker itself may still be healthy."""

    def __init__(self, message: str, *, traceback: str = "", out_of_memory: bool = False) -> None:
        super().__init__(f"{message}\n{traceback}".rstrip())
        self.summary = message
        self.out_of_memory = out_of_memory


class UnsupportedError(AttnperfError):
    """Raised in `prepare`, where only loading or building the library shows that it does not support the case here.

    The case is then UNSUPPORTED with this text as its reason, as if `unsupported_reasons` had returned it. It fails
    where a baseline shows that it was supported.
    """


class BaselineError(AttnperfError):
    """A baseline file cannot be read or must not be overwritten; names file and field."""


class ProfileError(AttnperfError):
    """A profiler's output cannot be used at all; names the file, what it contains, and what is expected."""


class CodeObjectError(AttnperfError):
    """A code object cannot be read, or a kernel not compiled; names the file, what was found, and what to do."""


class ToolMissingError(CodeObjectError):
    """A compiler or a disassembler is absent or too old; names what to install."""


def quote_nodeid(nodeid: str) -> str:
    """Returns a test's id quoted as one word for a shell, so that no part of it is executed when it is pasted."""
    return shlex.quote(nodeid) if any(letter in nodeid for letter in '"$`\\!') else f'"{nodeid}"'

"""What a memory checker of a vendor's (a sanitizer) said of one case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SanitizerFinding:
    """One fault that a sanitizer saw, in the tool's own words where it has any.

    kind      e.g. 'Invalid __global__ write of size 4 bytes'
    kernel    that was running, '' if the tool does not name it
    place     'file:line' of its source, '' if that is not known
    thread    e.g. 'thread (18,0,0) in block (0,0,0)', '' if that is not known
    memory    which address, and what lies near it; '' if that is not known
    count     how often the same kernel did this at the same place
    """

    kind: str
    kernel: str = ""
    place: str = ""
    thread: str = ""
    memory: str = ""
    count: int = 1

    @property
    def sentence(self) -> str:
        """Returns all that is known of it in one line."""
        parts = (
            f"{self.kind} in kernel {self.kernel}" if self.kernel else self.kind,
            f"at {self.place}" if self.place else "",
            f"by {self.thread}" if self.thread else "",
            self.memory,
            f"{self.count} times" if self.count > 1 else "",
        )
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class SanitizerReport:
    """One case under one tool.

    tool      one of `workers.sanitizers.TOOLS`
    findings  faults, each once
    warnings  what the tool calls no error, in its words
    failures  why the tool's word cannot be relied on: it broke, saw nothing, or wrote no summary
    log       file that it wrote, below the run's folder of logs
    """

    tool: str
    findings: tuple[SanitizerFinding, ...] = ()
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    log: str = ""

"""What closing a case returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_attnperf.records import CheckReport, Launch


@dataclass(frozen=True)
class FinalReport:
    """What closing a case returns: the check of the last replay, memory, and what ran (`launches`, of one call).

    spent      nothing may be timed in this process any more, because a profiler has been used in it
    code       objects of the kernels in `launches` by id (32 hex digits of the SHA-256): base64 of zlib's bytes
    matrix     the backend promises matrix instructions in some kernel of a call
    source_id  of all folders that `sources` come from, by content (`workers.source_tree`); '' where not known
    costs      that the test gates: each with its value in this process
    cost_limits    cost -> growth in percent that the test allows
    """

    check: CheckReport = field(default_factory=CheckReport)
    peak_memory_bytes: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    foreign_sources: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    spent: bool = False
    code: dict[str, str] = field(default_factory=dict)
    matrix: bool = False
    source_id: str = ""
    costs: dict[str, float] = field(default_factory=dict)
    cost_limits: dict[str, float] = field(default_factory=dict)

"""Results of one run: a `CaseResult` per case, a `RunResult` per run. Standard library only.

`.attnperf/results.json` is a `RunResult`; reports use nothing else.

Format history: 1 = first published form; added to it with defaults, so that files without them are read:
`CaseResult.code`, `.breakdown`, `.profile`, `.stored_us`, `.stored_commit`, `.stored_at`, `.detection_limit`,
`.unchanged`, `.quarantined`, `.together`, `.fault`, `.resumed`, `.card_error`, `.new`, `.skipped`, `.source_id` and
`.pinned`, `RunResult.run_id`, `.provenance`, `.tier`, `.left_to_nightly`, `.gpus` and `.published`. 2 = parts that
cases share are stored once, and defaults are left out (`reports.files.compact_form`); the records are those of 1. 3 =
a note, a reason or a finding may be an object with its kind (`records.notes`); `reports.files.noted` recognises older
files' notes by their texts. 4 = the verdicts MOVED, DRIFT and STALE. 5 = the verdict GREW; added with defaults:
`CaseResult.cost_limits`, `.costly`, `ProcessSummary.costs`, `RunResult.shard_manifest` and `.shards`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    Fingerprint,
    Launch,
    ProcessSummary,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.records.gpus import DeviceState, GpuRecord, Together
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.published import PublishedTimes
from pytest_attnperf.records.sanitizers import SanitizerReport
from pytest_attnperf.records.shards import ShardManifest, ShardRecord
from pytest_attnperf.records.stages import Breakdown

RESULTS_SCHEMA = 5

GATED = frozenset(
    {Verdict.SAME, Verdict.FASTER, Verdict.SLOWER, Verdict.GREW, Verdict.WORSE, Verdict.MOVED, Verdict.DRIFT}
)
"""Verdicts that decide whether the code is slower. Cases that were not timed because nothing changed count as well."""

FOREIGN = "code from another tree ran"
"""Text in the summary of a case whose time is not that of this tree's kernels."""

EXPIRED = "quarantine expired"
"""Begins the summary of a case whose quarantine is over."""


@dataclass(frozen=True)
class Fault:
    """Why a case broke its process or its device.

    kind     'illegal address', 'device assert', 'hang', 'killed', 'out of memory', 'crash' or 'error'
    kernel   the kernel, or torch's operator, that ran when it happened; '' where that is not known
    how      as text, how `kernel` was determined, or why it was not
    """

    kind: str
    kernel: str = ""
    how: str = ""


@dataclass(frozen=True)
class CaseResult:
    """The result of one case, and all data behind its verdict. Times in microseconds per call, ratios as new / stored.

    `first` and `second` are the processes of the two looks; `median_us` is the deciding look's centre. `pairs` are
    those of an interleaved look, which then decided, `against` the base side that it was compared with; `canary` the
    processes of each canary that were measured with the deciding look. `fails` says whether the test failed. `interval`
    is the 95 % interval of `ratio` over processes; `threshold` the ratio beyond which it would be SLOWER,
    `standard_error` the relative standard deviation of `ratio`, with `degrees_of_freedom`. `launches` is what one call
    of the first look ran, empty where unknown. `code` holds those of its kernels whose machine code is known, if the
    case was timed: each once for every size of its launch, without its source lines. `breakdown` has the times of the
    call's stages in one process, where the test requests it; `profile` what torch's profiler recorded in a process of
    its own, where the run requests it. `stored_us` are the medians of the processes behind the baseline entry, recorded
    at `stored_at` (a date) from `stored_commit`; empty without an entry to compare with. `detection_limit` is the
    smallest true slowdown, as a fraction, that the deciding look detects 99 % of the time; None where nothing was
    compared, or noise is too large for any. `unchanged` says that the case is RIGHT and was not timed, because it ran
    the machine code and configuration of its baseline entry; such a case counts as judged. `quarantined` is the issue
    and the date that keep its verdict from failing the test, else ''. `together` has its times on all cards at once,
    where the run measures that; `fault` what broke its process or device. `resumed` says that this run took the result
    over from an interrupted one. `card_error` is the part of `standard_error` that comes from differences between
    cards; the squares of its parts add. `new` says of a case without a baseline that the base side `against` does not
    have it either: there is nothing to compare it with. `skipped` is why its test was skipped before its case was
    opened, by a mark, a fixture or itself, else ''. `source_id` is a hash of the content of all folders that `sources`
    come from (`workers.source_tree`), '' where that is not known. `pinned` are processes of a suspect that ran with the
    stored choice of its autotuners. `cost_limits` has the costs that its test gates (`records.costs`), each with the
    growth in percent that it allows; `costly` are fresh processes that a suspected growth was measured in. `sanitized`
    has what each tool of `--attnperf-sanitize` said of the case, if it ran under one.
    """

    key: CaseKey
    nodeid: str
    verdict: Verdict
    summary: str
    fails: bool = False
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    median_us: float | None = None
    baseline_us: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    threshold: float | None = None
    standard_error: float | None = None
    degrees_of_freedom: int | None = None
    first: tuple[ProcessSummary, ...] = ()
    second: tuple[ProcessSummary, ...] = ()
    pairs: tuple[PairSummary, ...] = ()
    against: str = ""
    canary: dict[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)
    checks: tuple[CheckReport, ...] = ()
    figures: WorkloadFigures | None = None
    floor_us: float | None = None
    floor_bound: str = ""
    peak_memory_bytes: int | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    fingerprint: Fingerprint | None = None
    config: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    code: tuple[KernelCode, ...] = ()
    breakdown: Breakdown | None = None
    reproduce: str = ""
    log: str = ""
    seconds: float = 0.0
    profile: CaseProfile | None = None
    stored_us: tuple[float, ...] = ()
    stored_commit: str = ""
    stored_at: str = ""
    detection_limit: float | None = None
    unchanged: bool = False
    quarantined: str = ""
    together: Together | None = None
    fault: Fault | None = None
    resumed: bool = False
    card_error: float = 0.0
    new: bool = False
    skipped: str = ""
    source_id: str = ""
    pinned: tuple[ProcessSummary, ...] = ()
    cost_limits: dict[str, float] = field(default_factory=dict)
    costly: tuple[ProcessSummary, ...] = ()
    sanitized: tuple[SanitizerReport, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """One run. `cases` are in canonical order; `findings` are about the suite and never change a case's verdict.

    `code` holds the compiled kernels, which are items of their own; `gated` and `selected` count both. `run_id` is
    random for every run, so that one that is given twice counts once. `provenance` says where the run came from:
    'branch', 'ci' (the system's name), 'ci_url', 'pull_request'; only what is known. `tier` is 'pr' or
    'nightly'; `left_to_nightly` are the cases that a run of tier 'pr' did not select. `gpus`
    are the cards that measured, each once. `published` are printed times of other people's reports for the same
    workloads, which nothing is compared with. `shard_manifest` has the cases of all shards of the run that this one is
    a part of, `shards` a record of each part that is in it: one in a session's own file, several in a joined one.
    """

    schema: int
    version: str
    mode: str
    started: str
    command: str
    commit: str
    device: DeviceInfo | None
    fingerprint: Fingerprint | None
    cases: tuple[CaseResult, ...]
    findings: tuple[str, ...] = ()
    gated: int = 0
    selected: int = 0
    complete: bool = True
    seconds: float = 0.0
    baseline_paths: tuple[str, ...] = ()
    device_state: DeviceState | None = None
    against: str = ""
    notes: tuple[str, ...] = ()
    code: tuple[CodeResult, ...] = ()
    run_id: str = ""
    provenance: dict[str, str] = field(default_factory=dict)
    tier: str = ""
    left_to_nightly: tuple[CaseKey, ...] = ()
    gpus: tuple[GpuRecord, ...] = ()
    published: tuple[PublishedTimes, ...] = ()
    shard_manifest: ShardManifest | None = None
    shards: tuple[ShardRecord, ...] = ()

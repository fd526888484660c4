"""Backends for the fake device that have only a name: one that can be pinned, and one that can be tuned.

Also faults that break this process or its device, for the fake device's script, without torch.

Also the interference between processes of one project that measure at the same time. A measuring process holds a lock
on a file of its own below the project's `.attnperf/`; other processes try these locks to count it. A lock ends with its
process, so a killed process no longer counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_attnperf.backends import Backend, Prepared, Tensors
from pytest_attnperf.errors import CaseFailedError, UnsupportedError, UsageError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.records import CheckReport, DeviceInfo, ErrorFigures, Launch
from pytest_attnperf.records.trials import DECLARED, TrialEnding, TrialResult
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry, Tiles
from pytest_attnperf.tuning_records import Candidate, TunedFile, TuningSpace, Value
from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class FakeBackend(Backend[Workload]):
    """A backend that has only a name. `pin` is the stored configuration that it was given."""

    cpu_flops_max: float = float("inf")
    families: tuple[str, ...] = field(default=("prefill",), kw_only=True)
    pin: tuple[tuple[str, str], ...] = ()

    def replay_config(self, config: Mapping[str, str]) -> FakeBackend:
        """Returns this backend with `config` as its `pin`, sorted by key. Raises UsageError if it holds 'refuse', with
        that text as the reason."""
        if "refuse" in config:
            raise UsageError(f"{self.name} cannot replay the stored configuration: {config['refuse']}")
        return replace(self, pin=tuple(sorted(config.items())))

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Raises AssertionError: the fake device runs a script and never prepares a backend."""
        raise AssertionError("a fake backend is never prepared")


@dataclass(frozen=True)
class FakeTunableBackend(FakeBackend):
    """One that can be tuned. `space`: {'values': {'BLOCK_M': [32, 64]}, 'default': {'BLOCK_M': 32}, 'serves': [ids of
    workloads that the changed rule serves; all unless said], 'refuse': why there is none, 'entries': {id of a workload:
    fields of its `TableEntry`, 'apart' as {name: [entry's, workload's]}}}."""

    space: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the values and the default of the scripted `space`. Raises UsageError with the text of its 'refuse',
        if any."""
        if "refuse" in self.space:
            raise UsageError(str(self.space["refuse"]))
        values = {name: tuple(tried) for name, tried in self.space["values"].items()}
        return TuningSpace("fake_kernel", values, Candidate(self.space["default"]), serves="the only rule")

    def find_entries(self, workload: Workload, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns the scripted entry of the workload; nothing if it has none. Raises UsageError as `tuning_space`, and
        UnsupportedError without any 'entries'."""
        if "refuse" in self.space:
            raise UsageError(str(self.space["refuse"]))
        if "entries" not in self.space:
            raise UnsupportedError("no entries are scripted")
        held = dict(self.space["entries"].get(workload.id, {}))
        if not held:
            return ()
        coverage, tiles = Coverage(held.pop("coverage")), held.pop("tiles", None)
        apart = {name: tuple(pair) for name, pair in held.pop("apart", {}).items()}
        named: dict[str, Any] = {"kernel": "fake_kernel", "file": "fake.json", "key": "the only rule"} | held
        return (TableEntry(**named, coverage=coverage, apart=apart, tiles=Tiles(*tiles) if tiles else None),)

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether the script's 'serves' lists this workload; True if it has no such list."""
        return workload.id in self.space.get("serves", [workload.id])

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Returns the candidate's parameters with their values as text, e.g. {'BLOCK_M': '64'}."""
        return {name: str(value) for name, value in candidate.values.items()}

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns (), because a fake candidate compiles no kernel."""
        return ()

    def tuned_files(
        self,
        winner: Candidate,
        space: TuningSpace,
        workloads: Sequence[Workload],
        arch: str,
        *,
        source: str,
        when: Mapping[str, Value] | None = None,
    ) -> Sequence[TunedFile]:
        """Returns one file, configs/<kernel>/<arch>.json, with the winner's values, `source` and `when` as JSON;
        nothing is written."""
        text = json.dumps({"config": dict(winner.values), "source": source, "when": dict(when or {})})
        return (TunedFile(f"configs/{space.kernel}/{arch}.json", text, "the only rule changed"),)


KERNEL = "fake_kernel"
"""The kernel that the fake device launches when it breaks; a second run names it."""

LONG_SECONDS = 3600

OPERATIONS = ("open", "check", "block", "turn", "finish")
"""Values of a script's `fault_at`, the operation in which a fault occurs; 'check' by default."""

FAULTS = frozenset(
    {"crash", "segfault", "kill", "exit", "hang", "stuck", "raise", "poison", "assert", "oom", "unsupported"}
)
"""Faults that may occur in any operation."""

IN_BUILDING = frozenset({"oom", "unsupported"})
"""Faults that occur while building, unless the script has `fault_at`."""

POISONING = frozenset({"poison", "assert"})
"""Faults after which the device no longer answers."""

ILLEGAL_ADDRESS = "CUDA error: an illegal memory access was encountered (scripted)"
ASSERTED = "fake_kernel.cu:7: void fake_kernel(float*): block: [0,0,0], thread: [3,0,0] Assertion `x < n` failed."

FOLDER = Path(".attnperf") / "measuring"


def break_process(fault: str) -> None:
    """Breaks this process by `fault`: exits, hangs, or raises, mostly inside a launch of `KERNEL`. Does nothing for a
    name that is not in `FAULTS`."""
    if fault == "oom":
        raise CaseFailedError("out of memory: tried to allocate 8.00 GiB", out_of_memory=True)
    if fault == "unsupported":
        raise UnsupportedError("scripted: hipcc missing")
    if fault in FAULTS:
        with flight_recorder.launch(KERNEL):
            _raise_fault(fault)


def _raise_fault(fault: str) -> None:
    if fault == "crash":
        print("scripted abort in kernel fake_kernel", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if fault == "segfault":
        ctypes.string_at(0)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        os._exit(3)
    if fault == "hang":
        time.sleep(LONG_SECONDS)
    if fault == "stuck":
        hang_in_c()
    if fault == "assert":
        print(ASSERTED, file=sys.stderr, flush=True)
        raise RuntimeError("CUDA error: device-side assert triggered (scripted)")
    raise RuntimeError(ILLEGAL_ADDRESS)


def hang_in_c() -> None:
    """Sleeps for an hour in C with the interpreter's lock held and signals ignored, like a driver call that does not
    return."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(LONG_SECONDS)


def take_block_time(script: Mapping[str, Any], folder: Path = FOLDER) -> float:
    """Sleeps for the script's `block_s` seconds and returns the factor by which a timed block is slower. The factor is
    1 + `interference` where another process measured with this folder meanwhile, else 1. A script with neither takes no
    time and touches no file."""
    seconds, cost = float(script.get("block_s", 0.0)), float(script.get("interference", 0.0))
    if not cost:
        time.sleep(seconds)
        return 1.0
    with _mark_measuring(folder) as own:
        before = _has_others(folder, own)
        time.sleep(seconds)
        return 1.0 + cost * (before or _has_others(folder, own))


@contextlib.contextmanager
def _mark_measuring(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{os.getpid()}.lock"
    with own.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield own


def _has_others(folder: Path, own: Path) -> bool:
    return any(_is_held(path) for path in folder.glob("*.lock") if path != own)


def _is_held(path: Path) -> bool:
    with path.open() as other:
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def make_launch(scripted: str | dict[str, Any]) -> Launch:
    """Returns a launch of a scripted kernel, a name or a dict of fields; by default 8 blocks of 128 threads."""
    fields = {"name": scripted} if isinstance(scripted, str) else scripted
    return Launch(
        **{**fields, "grid": tuple(fields.get("grid", (8, 1, 1))), "block": tuple(fields.get("block", (128, 1, 1)))}
    )


def make_report(check: str, fault: str, ratio: float) -> CheckReport:
    """Returns the report of a check with an error of `ratio` budgets, and a problem for each fault that has one."""
    figures = ErrorFigures(
        check, "out", ratio * 1e-3, 1e-3, ratio * 1e-4, 1e-4, (0, 1, 2, 3), 0.25 + ratio * 1e-3, 0.25, elements=64,
        nan_count=64 if fault in ("nan", "nothing") else 0,
    )  # fmt: skip
    texts = {
        "wrong": f"{check}: out: max error is {ratio:.1f}x the budget at (0, 1, 2, 3): got 0.5, expected 0.25",
        "nan": f"{check}: out: 64 of 64 elements are NaN where the reference is finite",
        "nothing": f"{check}: out: 64 of 64 elements are NaN where the reference is finite: nothing was written",
        "fallback": f"{check}: fake.a declares the kernel 'flash', but it did not run; what ran is math",
    }
    return CheckReport((figures,), (texts[fault],) if fault in texts else (), seconds=0.001)


def report_trials(script: Mapping[str, Any], names: Sequence[str]) -> CheckReport:
    """Returns the scripted results of these trials; a trial that the script does not name is RIGHT."""
    scripted = dict(script.get("trials", {}))
    found = [
        TrialResult(name, **{**fields, "ending": TrialEnding(fields.get("ending", TrialEnding.RIGHT))})
        for name in names
        if name != DECLARED
        for fields in scripted.get(name, [{}])
    ]
    problems = tuple(result.why for result in found if result.ending is TrialEnding.WRONG)
    return CheckReport(problems=problems, trials=tuple(found))

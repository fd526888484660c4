"""A fake device: scripted times, a bias per process, wrong results and faults. No torch.

Use it in a conftest.py: `pytest_plugins = ["pytest_attnperf.testing.fake.device"]`, and write `fake_device.json` into
the rootdir::

    {"device": {"product": "fake1"}, "process_sd": 0.004,
     "backends": {"fake.a": {"time_us": 100.0}, "fake.b": {"time_us": 50.0, "fault": "nan"}}}

Every worker process draws one bias per case from its own name and the script's `seed`: blocks of one process agree,
processes differ, and a test always gets the same numbers. The file is read again at every case.

Backend keys: time_us, block_sd, supported (a list of reasons when not), fault, error_ratio (error in units of the
budget), flops, bytes_min, times_on_cpu, kernels (that run: names, or objects with fields of a `Launch`, as isa_hash),
tolerance (its multiplier), remembers (how many times slower when inputs change), turn_noise_us (of that), bit_equal
(false when results differ from call to call), bits (of a result: a word; 'process': others in each process), spent
(true when a profiler was used), timer, settings (of torch), config (the choices; a pinned backend reports the
configuration that it was sent, and 'pinned', and refuses one with 'refuse'),
places (of inputs in an interleaved look), costs (by name; those that a test gates are 0 without it), stages (their
times in us by name; default: none), build_ms, first_call_ms, block_s and interference (real seconds of a turn, and its
slowdown while another process takes one), pinned (a list of {'pin': {'BLOCK_M': '64'}, 'time_us': 80.0, ...}: keys that
apply to this pin, 'only' for the workloads listed), space (what a tuner may try, see `FakeTunableBackend`), profile
(nanoseconds of each kernel of a profiled call by name; default: all of time_us in one kernel). `device.canary` has the
canaries' times in us, `device.gpus` the number of cards ('fake-0', 'fake-1', ...), `device.card_bias` the factor by
which a card is slower than scripted, by its number. Faults: wrong, nan, nothing, late (right first, wrong on the last
replay), replay (right when called, wrong when replayed), fallback (another kernel than declared), stage (one cannot be
timed), crossing (one goes through the host), prepare, finish (raises there), slow_finish (does not end there), chatter,
unprofiled (the profiler sees nothing), profile_crash, profile_hang; and those of `fake.backends`, in the operation
`fault_at`, open, check (default), block, turn or finish: crash, segfault, kill, exit, hang, stuck (in C, signals
ignored), raise, oom and unsupported (default: in open), poison and assert (no usable device is left).
`device.canary_fault` is one of these for the process `device.canary_worker`. With `device.forks` workers may be forked,
in a run with `--attnperf-device=gpu`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.pinned_backend import AS_STORED, PINNED_KEY, PinnedBackend
from pytest_attnperf.records import (
    CheckReport,
    DeviceInfo,
    Fingerprint,
    Launch,
    NotProvenRightError,
    Rotation,
    Samples,
    Tolerance,
)
from pytest_attnperf.records.code import KernelObject
from pytest_attnperf.records.costs import NO_COSTS, GatedCosts
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.testing.fake import backends as fake_faults
from pytest_attnperf.testing.fake.backends import FakeBackend, FakeTunableBackend, take_block_time
from pytest_attnperf.workers.device_protocol import CheckSeeds
from pytest_attnperf.workers.launch import VISIBLE_DEVICES, WORKER_NAME
from pytest_attnperf.workloads.base import Workload

SCRIPT = "fake_device.json"


class FakeTimedWrongError(CaseFailedError):
    """The error that the real subject raises when a graph's replay gives another result."""

    def __init__(self, message: str, report: CheckReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass
class FakeSubject:
    """One scripted case; satisfies `measure.subject_protocol.Subject`."""

    script: dict[str, Any]
    bias: float
    seeds: CheckSeeds
    interpreted: bool = False
    pin: Mapping[str, str] = field(default_factory=dict)
    checked: bool = False
    taken: int = 0
    profiled: list[bool] = field(default_factory=list)
    """Not empty once this process has profiled: it may then time nothing more."""

    @property
    def fault(self) -> str:
        """The name of the scripted fault; '' if the script has none for this case."""
        return str(self.script.get("fault", ""))

    def unsupported_reasons(self) -> list[str]:
        """Returns the script's list 'supported', the reasons why the case cannot run; [] by default."""
        return list(self.script.get("supported", []))

    def prepare(self) -> None:
        """Stands for building the backend: does nothing, or raises or breaks the process by the scripted fault."""
        if self.fault == "prepare":
            raise RuntimeError("scripted compile error in kernel fake_kernel.cu:7")
        self._break_on("open")

    def _break_on(self, operation: str) -> None:
        """Breaks this process by the scripted fault if it is due in `operation`: the script's 'fault_at', or by default
        'open' for faults of building and 'check' for others."""
        if operation == self.script.get("fault_at", "open" if self.fault in fake_faults.IN_BUILDING else "check"):
            fake_faults.break_process(self.fault)

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """Returns the script's 'loaded' as kernels; () by default."""
        return tuple(KernelObject(**kernel) for kernel in self.script.get("loaded", ()))

    def not_timed_reason(self) -> str:
        """Returns the script's 'not_timed', why this case is checked but not timed; '' by default."""
        return str(self.script.get("not_timed", ""))

    def check(self, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        """Returns a report with the scripted error, which decides whether the case may be timed, or breaks by the
        scripted fault. With `repeats`, it says whether results are bit-equal."""
        self._break_on("check")
        wrong = {"wrong": self.script.get("error_ratio", 40.0), "nan": 0.0, "nothing": 0.0}.get(self.fault)
        report = fake_faults.make_report("check", self.fault, 0.4 if wrong is None else float(wrong))
        self.checked = report.right
        if "tolerance" in self.script:
            report = replace(report, tolerance=Tolerance(self.script["tolerance"], "scripted"))
        report = replace(report, coarseness=dict(self.script.get("coarseness", {})))
        report = replace(report, truth={name: tuple(two) for name, two in self.script.get("truth", {}).items()})
        if not repeats:
            return report
        bits = str(self.script.get("bits", "same"))
        bits = str(os.getpid()) if bits == "process" else bits
        return replace(report, repeats=repeats, bit_equal=bool(self.script.get("bit_equal", True)), bits=bits)

    def measure_blocks(self, max_blocks: int, block_us: float, budget_us: float, timer: str = "auto") -> Samples:
        """Returns at most 9 block times in microseconds per call: the scripted time with this process's bias and a
        small spread. Raises NotProvenRightError if no check has passed."""
        self._require_proven("blocks")
        self._break_on("block")
        if self.fault == "replay":
            raise FakeTimedWrongError("eager right, replay wrong", fake_faults.make_report("replay", "wrong", 40.0))
        if self.fault == "untimeable" or timer not in ("auto", self.timer):
            raise CaseFailedError(f"the timer {timer!r} was asked for, and this case can only use {self.timer!r}")
        centre = float(self.script["time_us"]) * self.bias
        spread = random.Random(f"{self.seeds[0]}-{centre}")
        sd = float(self.script.get("block_sd", 0.001))
        times = tuple(centre * (1 + spread.gauss(0, sd)) for _ in range(min(max_blocks, 9)))
        calls, settings = max(1, int(block_us / centre)), str(self.script.get("settings", ""))
        return Samples(times, calls, self.timer, settings=settings)

    def _require_proven(self, what: str) -> None:
        """Raises NotProvenRightError if no check has passed in this process, or a profiler was used; `what` names what
        was to be measured."""
        if self.profiled:
            raise NotProvenRightError(f"{what} may not be measured: a profiler has been used in this process")
        if not self.checked:
            raise NotProvenRightError(
                f"{what} may not be measured: no check has passed in this process; call check() first"
            )

    @property
    def timer(self) -> str:
        """Name of the timer that the case uses: the script's 'timer', 'host' by default."""
        return str(self.script.get("timer", "host"))

    def prepare_turns(self, block_us: float, timer: str = "auto") -> TurnPlan:
        """Returns the plan for timing the case in turns with another side: timer, call time, calls per block, and
        places of inputs (2 by default). Raises NotProvenRightError if no check has passed."""
        self._require_proven("turns")
        if self.fault == "replay":
            raise FakeTimedWrongError("eager right, replay wrong", fake_faults.make_report("replay", "wrong", 40.0))
        call_us = float(self.script["time_us"]) * self.bias
        places, settings = int(self.script.get("places", 2)), str(self.script.get("settings", ""))
        return TurnPlan(self.timer, "hot", places, call_us, max(1, int(block_us / call_us)), settings=settings)

    def measure_turn(self, place: int) -> Turn:
        """Returns a block's time in us per call: the scripted one with this process's bias, a spread, interference."""
        self.taken += 1
        self._break_on("turn")
        spread = random.Random(f"{self.seeds[0]}-{place}-{self.taken}-{self.bias}")
        centre = float(self.script["time_us"]) * self.bias * take_block_time(self.script)
        return Turn(centre * (1 + spread.gauss(0, float(self.script.get("block_sd", 0.001)))))

    def measure_rotation(self, block_us: float) -> Rotation:
        """Returns the scripted time with unchanged inputs, and `remembers` times that with changing ones."""
        same_us = float(self.script["time_us"]) * self.bias
        rotating_us = same_us * float(self.script.get("remembers", 1.0))
        return Rotation(same_us, rotating_us, float(self.script.get("turn_noise_us", 0.0)))

    def measure_stages(self, block_us: float) -> Breakdown:
        """Returns the scripted stages with this process's bias; each that takes time has one kernel and one allocation.
        Raises CaseFailedError for the fault 'stage', and that a timed call is wrong for the fault 'crossing'."""
        self._require_proven("stages")
        if self.fault == "stage":
            raise CaseFailedError("stage 'rope': graph capture failed (scripted)")
        if self.fault == "crossing":
            problem = "stage 'rope': the call copied 64 bytes between host and device (1 x Memcpy DtoH)"
            raise FakeTimedWrongError("crossing", CheckReport(problems=(problem,)))
        stages = tuple(
            StageTime(name, us * self.bias, (Launch(f"{name}_kernel"),) if us else (), int(us > 0), 1024 if us else 0)
            for name, us in self.script.get("stages", {}).items()
        )
        return Breakdown(
            stages=stages,
            call_us=float(self.script["time_us"]) * self.bias,
            timer=self.timer,
            build_ms=float(self.script.get("build_ms", 5.0)),
            first_call_ms=float(self.script.get("first_call_ms", 2.0)),
            launches=tuple(launch for stage in stages for launch in stage.launches or ()),
            allocations=sum(stage.allocations or 0 for stage in stages),
            allocated_bytes=sum(stage.allocated_bytes or 0 for stage in stages),
        )

    def profile(self) -> CaseProfile:
        """Returns five calls of the kernels that the script's 'profile' names, all in blocks of 128 threads. This
        process may then time nothing more."""
        if not self.checked:
            raise NotProvenRightError("no profile may be made: no check has passed in this process; call check() first")
        self.profiled.append(True)
        if self.fault == "profile_crash":
            print("scripted abort under the profiler", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
        if self.fault == "profile_hang":
            time.sleep(3600)
        if self.fault == "unprofiled":
            raise CaseFailedError("torch's profiler saw no kernel, copy or memory set in 5 calls (scripted)")
        one_ns = {"fake_kernel": round(float(self.script["time_us"]) * 1e3)}
        kernels = tuple(
            LiveKernel(KernelShape(name, workgroup=(128, 1, 1), grid_items=(1024, 1, 1), vgprs=32), (int(ns),) * 5)
            for name, ns in self.script.get("profile", one_ns).items()
        )
        return CaseProfile(
            calls=5,
            kernels=kernels,
            profiler_ns=sum(sum(kernel.durations_ns) for kernel in kernels),
            device="fake device",
            build_ms=float(self.script.get("build_ms", 5.0)),
            first_call_ms=float(self.script.get("first_call_ms", 2.0)),
            host_ns={"fakeLaunchKernel": 5000 * len(kernels)},
            allocations=len(kernels),
            allocated_bytes=1024 * len(kernels),
        )

    def finish(self, costs: GatedCosts = NO_COSTS, trials: Sequence[str] = ()) -> FinalReport:
        """Returns the report on the last replay, with the script's launches, configuration, costs and 'trials' (name ->
        list of fields of a `TrialResult`); wrong for the fault 'late'. Raises or breaks by other faults that are due
        in 'finish'."""
        if self.fault == "finish":
            raise CaseFailedError("the profiler of the last run gave nothing (scripted)")
        if self.fault == "slow_finish":
            time.sleep(fake_faults.LONG_SECONDS)
        self._break_on("finish")
        late = self.fault == "late"
        report = fake_faults.make_report("final", "wrong" if late else "", 40.0 if late else 0.4)
        if report.right:
            report = report.merge_with(fake_faults.report_trials(self.script, trials))
        return FinalReport(
            check=report,
            launches=tuple(map(fake_faults.make_launch, self.script.get("kernels", []))),
            spent=bool(self.script.get("spent", False)),
            peak_memory_bytes=self.script.get("peak_memory_bytes", 1 << 20),
            config=self._scripted_config(),
            costs={**dict.fromkeys(costs.limits, 0.0), **self.script.get("costs", {})} if costs.limits else {},
        )

    def _scripted_config(self) -> dict[str, str]:
        """Returns the script's 'config' as texts; a pinned backend adds its configuration and 'pinned'."""
        chosen = {str(key): str(value) for key, value in self.script.get("config", {}).items()}
        return {**chosen, **self.pin, PINNED_KEY: AS_STORED} if self.pin else chosen


@dataclass
class FakeDevice:
    """A Device whose script is read again for every case."""

    path: Path
    kind: str
    worker: str
    poisoned: bool = False
    profiled: list[bool] = field(default_factory=list)

    @property
    def forks(self) -> bool:
        """Whether workers may be forked: the script's `device.forks`, False by default."""
        return bool(self._read_script().get("device", {}).get("forks"))

    def info(self) -> DeviceInfo:
        """Returns the identity of the device: kind 'cpu', arch, product and compute units from the script, and an id
        with the card."""
        device = self._read_script().get("device", {})
        return DeviceInfo(
            kind="cpu",
            arch=device.get("arch", "fake"),
            product=device.get("product", "fake1"),
            name="fake device",
            compute_units=device.get("compute_units", 0),
            device_id=f"fake-{self.card}",
        )

    @property
    def card(self) -> str:
        """Number of this process's card, as text; '0' if the script has no `device.gpus`."""
        return os.environ.get(VISIBLE_DEVICES[0], "0") if self._read_script().get("device", {}).get("gpus") else "0"

    def fingerprint(self) -> Fingerprint:
        """Returns arch and product as what must match, and torch as what is reported; the script's `device.must_match`
        and `device.named` add to them."""
        info, device = self.info(), self._read_script().get("device", {})
        must = {"arch": info.arch, "product": info.product}
        return Fingerprint({**must, **device.get("must_match", {})}, {"torch": "none", **device.get("named", {})})

    def subject(self, backend: Backend, workload: Workload, seeds: CheckSeeds) -> FakeSubject:
        """Returns the scripted case of a backend and workload, with the bias of this process. Prints 200 kB for the
        fault 'chatter'; sets `poisoned` for faults that break the device."""
        script = self._read_script()
        entry = {"time_us": 100.0, **script["backends"].get(backend.name, {})}
        of_card = float(script.get("device", {}).get("card_bias", {}).get(self.card, 1.0))
        by_workload = entry.get("workloads", {}).get(workload.id, {})
        entry.update(by_workload)
        sd = float(script.get("process_sd", 0.0))
        draw = random.Random(f"{self.worker}-{backend.name}-{workload.id}-{script.get('seed', 0)}")
        if entry.get("fault") == "chatter":
            print("x" * 200_000, flush=True)
        self.poisoned = entry.get("fault") in fake_faults.POISONING
        own = backend.backend if isinstance(backend, PinnedBackend) else backend
        pin = dict(own.pin) if isinstance(own, FakeBackend) else {}
        for other in entry.get("pinned", []):
            if other["pin"].items() <= pin.items() and workload.id in other.get("only", [workload.id]):
                entry.update(other)
        return FakeSubject(entry, of_card * (1 + draw.gauss(0, sd)), seeds, pin=pin, profiled=self.profiled)

    def canary(self) -> dict[str, Samples]:
        """Returns the scripted times of the reference kernels in `device.canary` ('gemm', 'copy'), by name, with this
        process's bias. Raises NotProvenRightError after profiling; breaks if this is `device.canary_worker`."""
        if self.profiled:
            raise NotProvenRightError("the canary may not be measured: a profiler has been used in this process")
        script = self._read_script()
        if script.get("device", {}).get("canary_worker") == self.worker:
            fake_faults.break_process(str(script["device"].get("canary_fault")))
        sd = float(script.get("process_sd", 0.0)) / 4
        found = {}
        for name, centre_us in script.get("device", {}).get("canary", {"gemm": 100.0, "copy": 100.0}).items():
            bias = 1 + random.Random(f"{self.worker}-{name}-{script.get('seed', 0)}").gauss(0, sd)
            found[name] = Samples((float(centre_us) * bias,) * 5, calls_per_block=6, timer="host")
        return found

    def healthy(self) -> bool:
        """Returns False once a case had a fault that breaks the device ('poison', 'assert')."""
        return not self.poisoned

    def _read_script(self) -> dict[str, Any]:
        script: dict[str, Any] = json.loads(self.path.read_text())
        return script


def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Registers a fake backend for each name in fake_device.json of the current folder, tunable if it has a 'space';
    does nothing without that file."""
    path = Path(SCRIPT)
    if path.is_file():
        for name, entry in json.loads(path.read_text())["backends"].items():
            registry.add(FakeTunableBackend(name, space=entry["space"]) if "space" in entry else FakeBackend(name))


def pytest_attnperf_gpus(config: pytest.Config) -> tuple[str, ...] | None:
    """Returns '0', '1' ... for the number of cards in the script's `device.gpus`; None if there are none."""
    path = config.rootpath / SCRIPT
    count = int(json.loads(path.read_text()).get("device", {}).get("gpus", 0)) if path.is_file() else 0
    return tuple(str(index) for index in range(count)) or None


def pytest_attnperf_device(config: pytest.Config, kind: str) -> FakeDevice:
    """Returns a fake device for the script in the rootdir, in place of the real device of this kind."""
    return FakeDevice(config.rootpath / SCRIPT, kind, os.environ.get(WORKER_NAME, "in-process"))

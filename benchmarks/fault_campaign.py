"""Breaks cases at random places, and looks whether everything beside them stands.

    python benchmarks/fault_campaign.py --fake 160 [--seed 1]   # through the fake device, on any machine
    python benchmarks/fault_campaign.py --gpu 40 [--seed 1]     # real ones, on the GPU that torch sees
    python benchmarks/fault_campaign.py --gpu-dry 8             # the latter's project on a CPU, faults in words only
    python benchmarks/fault_campaign.py --gpu 40 --seconds 400  # starts no further run of pytest after 400 s

Each run of pytest has several broken cases among healthy ones. Behind each it is looked whether the run ended by itself
with status 1, every broken case is an ERROR of the right kind (and names its kernel, where that can be found), every
other case has the verdict that it has in a run without faults, baselines are what they were, results.json is whole, and
no process is left. Each run says so in a line when it ends, so that a campaign that is cut off has told of what was
done. Exit status 1 where anything is not so. No kernel runs for more than 20 s.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fault_verdicts import Injected, Key, Project, Tally, told, verify

FAULTS_PER_RUN = 8
FAKE_KINDS = {
    "crash": "crash",
    "segfault": "crash",
    "exit": "crash",
    "kill": "killed",
    "hang": "hang",
    "stuck": "hang",
    "slow_finish": "hang",
    "poison": "illegal address",
    "assert": "device assert",
    "oom": "out of memory",
}
"""Faults of the fake device, and what an ERROR must call them."""

GPU_KINDS = {
    "illegal": ("illegal address", ("illegal_store_kernel",)),
    "illegal late": ("illegal address", ("",)),
    "index": ("device assert", ("aten.index", "index", "vectorized_gather")),
    "triton_assert": ("device assert", ("asserting_kernel",)),
    "triton_assert late": ("device assert", ("", "asserting_kernel")),
    "torch_assert": ("device assert", ("_assert_async", "aten._assert_async", "asserting_kernel")),
    "spin": ("hang", ("spinning_kernel",)),
    "memory": ("out of memory", ("",)),
    "kill": ("killed", ("",)),
    "abort": ("crash", ("",)),
}
"""Faults of `faulty_backends.py`: what an ERROR must call them, and what its kernel's name may begin with. `late` ones
stand in the timed graph only, where a second run that times nothing does not meet them."""

GPU_ORDER = (
    *("illegal", "triton_assert", "spin", "kill", "memory"),
    *("index", "torch_assert", "abort", "illegal late", "triton_assert late"),
)
GPU_BACKENDS_PER_RUN = 3
"""A run of three takes two to three minutes on a GPU: each fault costs the start of a process, about 8 s with torch."""
GPU_CASE_LIMIT_SECONDS = 12.0
"""Less than the kernel that hangs spins for, and enough for a healthy case in a fresh process."""


class Fake:
    """The campaign through the fake device."""

    WORKLOADS = tuple(f"prefill-b1-s{size}-h1-d16-f16" for size in (64, 128, 192, 256))
    BACKENDS = ("fake.a", "fake.b", "fake.c", "fake.d", "fake.slow", "fake.new")
    MODES = ("gate", "gate", "record", "against")

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.project = Project(folder / "project", "prefill", self.WORKLOADS, 2.0, "--attnperf-seed=7")
        (self.project.path / "conftest.py").write_text('pytest_plugins = ["pytest_attnperf.testing.fake.device"]\n')
        self._write({}, known=self.BACKENDS[:-1], slow=1.0)
        status, _ = self.project.run("--update-baselines")
        assert status == 0, self.project.output()
        self.base = folder / "base"
        shutil.copytree(self.project.path, self.base, ignore=shutil.ignore_patterns(".attnperf"))
        self.stored = self.project.entries()
        self.references: dict[str, dict[Key, str]] = {}

    def _write(
        self,
        broken: Mapping[Key, Mapping[str, Any]],
        device: Mapping[str, Any] | None = None,
        known: Sequence[str] = BACKENDS,
        slow: float = 1.3,
    ) -> None:
        backends: dict[str, dict[str, Any]] = {name: {"time_us": 100.0, "workloads": {}} for name in known}
        backends["fake.slow"]["time_us"] = 100.0 * slow
        for (backend, workload), script in broken.items():
            backends[backend]["workloads"][workload] = dict(script)
        script = {"backends": backends, "process_sd": 0.001, "device": dict(device or {})}
        (self.project.path / "fake_device.json").write_text(json.dumps(script))

    def flags(self, mode: str) -> tuple[str, ...]:
        """How the mode is typed."""
        against = ("--attnperf", f"--attnperf-against={self.base}", "--attnperf-pairs=3")
        return {"gate": ("--attnperf",), "record": ("--update-baselines",), "against": against}[mode]

    def reference(self, mode: str) -> dict[Key, str]:
        """The verdicts of a run without faults."""
        if mode not in self.references:
            self._write({})
            self.project.run(*self.flags(mode))
            self.references[mode] = {key: case["verdict"] for key, case in self.project.cases().items()}
            self._restore()
        return self.references[mode]

    def _restore(self) -> None:
        shutil.rmtree(self.project.path / "baselines")
        shutil.copytree(self.base / "baselines", self.project.path / "baselines")

    def round(self, count: int, mode: str, tally: Tally) -> None:
        """One run with so many faults."""
        reference = self.reference(mode)
        broken: dict[Key, Injected] = {}
        scripts: dict[Key, dict[str, Any]] = {}
        keys = list(reference)
        for key in self.rng.sample(keys, count):
            fault = self.rng.choice(sorted(FAKE_KINDS))
            at = self.rng.choice(["open", "check", "block", "finish", *(["turn"] * 2 if mode == "against" else [])])
            scripts[key] = {"fault": fault, "fault_at": at, **({"time_us": 150.0} if at == "turn" else {})}
            if fault == "slow_finish":
                at = "finish"
            elif at == "turn" and key[0] == "fake.new":
                scripts[key]["fault_at"] = at = "block"  # it has no other side to take turns with
            broken[key] = Injected(fault, FAKE_KINDS[fault], self._kernels(fault, at))
        isolate = self.rng.choice(["worker", "backend", *(["case"] if mode == "gate" else [])])
        device: dict[str, Any] = {}
        if keys[0] not in broken and mode != "against":
            fault = self.rng.choice(["kill", "crash"])
            device = {"canary_worker": "worker0-1" if mode == "gate" else "worker100-1", "canary_fault": fault}
            broken[keys[0]] = Injected(f"{fault} (canary)", FAKE_KINDS[fault], ("",))
        self._write(scripts, device)
        ran = self.project.run(*self.flags(mode), f"--attnperf-isolate={isolate}")
        verify(self.project, broken, reference, self.stored, ran, tally, recording=mode == "record")
        self._restore()

    @staticmethod
    def _kernels(fault: str, at: str) -> tuple[str, ...]:
        """A second run opens and checks; an assertion names its kernel itself; no memory is no kernel's fault."""
        if fault == "assert":
            return ("fake_kernel",)
        return ("fake_kernel",) if at in ("open", "check") and fault not in ("oom", "slow_finish") else ("",)

    def campaign(self, count: int, modes: Sequence[str], tally: Tally, end: float) -> None:
        """Runs until so many faults have been injected, or the clock has passed `end`."""
        number = 0
        while (left := count - tally.faults) > 0 and time.monotonic() < end:
            mode = modes[number % len(modes)]
            with told(tally, mode, count):
                self.round(min(FAULTS_PER_RUN, left), mode, tally)
            number += 1


class Gpu:
    """The campaign on a real device: `dry` does the same on a CPU, with faults in words."""

    WORKLOADS = tuple(f"softmax-r{rows}-c1024-f32" for rows in (512, 768, 1024, 1280))
    HEALTHY = ("good.a", "good.b")

    def __init__(self, folder: Path, first: int, *, dry: bool) -> None:
        self.first, self.dry = first, dry
        options = ("--attnperf-threshold=100", *(("--attnperf-device=cpu",) if dry else ()))
        self.project = Project(folder / "project", "softmax", self.WORKLOADS, GPU_CASE_LIMIT_SECONDS, *options)
        source = Path(__file__).with_name("faulty_backends.py").read_text()
        (self.project.path / "conftest.py").write_text(source)

    def _write(self, faults: Mapping[str, str]) -> None:
        backends = {**dict.fromkeys(self.HEALTHY, ""), **faults}
        (self.project.path / "faults.json").write_text(json.dumps({"dry": self.dry, "backends": backends}))

    def campaign(self, count: int, tally: Tally, end: float) -> None:
        """Store baselines of what is healthy, judge it alone, and then beside broken backends, until `end`.

        A CPU that others share may find a time suspicious in one run and not in the next: nothing is stored there.
        """
        self._write({})
        for flag in ("--attnperf",) if self.dry else ("--update-baselines", "--attnperf"):
            status, seconds = self.project.run(flag)
            sys.stderr.write(f"{flag} without faults: status {status}, {seconds:.0f} s\n")
            sys.stderr.flush()
            assert status in (0, 1), self.project.output()
        healthy = {key: case["verdict"] for key, case in self.project.cases().items()}
        sys.stderr.write(f"healthy cases: {dict(Counter(healthy.values()))}\n")
        assert "ERROR" not in healthy.values(), self.project.output()
        stored = self.project.entries()
        number = -(-count // len(self.WORKLOADS))
        kinds = [GPU_ORDER[(self.first + index) % len(GPU_ORDER)] for index in range(number)]
        for begin in range(0, number, GPU_BACKENDS_PER_RUN):
            if time.monotonic() > end:
                break
            chosen = kinds[begin : begin + GPU_BACKENDS_PER_RUN]
            faults = {f"bad.{kind.replace(' ', '_')}{begin + place}": kind for place, kind in enumerate(chosen)}
            self._write(faults)
            broken = {
                (name, workload): Injected(kind, *self._expected(kind))
                for name, kind in faults.items()
                for workload in self.WORKLOADS
            }
            reference = {**healthy, **dict.fromkeys(broken, "ERROR")}
            with told(tally, ", ".join(chosen), number * len(self.WORKLOADS)):
                verify(self.project, broken, reference, stored, self.project.run("--attnperf"), tally)

    def _expected(self, kind: str) -> tuple[str, tuple[str, ...]]:
        """In words every fault strikes in the call that is checked, and an index is an illegal address, as on AMD."""
        if not self.dry:
            return GPU_KINDS[kind]
        found, kernels = GPU_KINDS[kind.removesuffix(" late")]
        return ("illegal address" if kind == "index" else found), kernels


def main() -> None:
    """Run the campaign that was asked for; exits with 1 where anything was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", type=int, default=0, metavar="N", help="faults through the fake device")
    parser.add_argument("--gpu", type=int, default=0, metavar="N", help="real faults")
    parser.add_argument("--gpu-dry", type=int, default=0, metavar="N", help="the project of --gpu on a CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--mode", action="append", choices=sorted(set(Fake.MODES)), help="of --fake; every one unless given"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further run of pytest after so many")
    given = parser.parse_args()
    end, tally = time.monotonic() + given.seconds, Tally()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever cuts this off still gets the table
    try:
        with tempfile.TemporaryDirectory(prefix="attnperf-faults-", ignore_cleanup_errors=True) as folder:
            if given.fake:
                fake = Fake(Path(folder) / "fake", random.Random(given.seed))
                fake.campaign(given.fake, given.mode or Fake.MODES, tally, end)
            if given.gpu:
                Gpu(Path(folder) / "gpu", 5 * (given.seed - 1), dry=False).campaign(given.gpu, tally, end)
            if given.gpu_dry:
                Gpu(Path(folder) / "dry", 5 * (given.seed - 1), dry=True).campaign(given.gpu_dry, tally, end)
    finally:
        sys.stdout.write(f"{tally.text()}\n")
        sys.stdout.flush()
    asked = given.fake + given.gpu + given.gpu_dry
    if tally.faults < asked:
        sys.stdout.write(f"stopped after {given.seconds:g} s: {tally.faults} of {asked} faults were injected\n")
    sys.exit(1 if tally.wrong or tally.endless or tally.harmed or not tally.faults else 0)


if __name__ == "__main__":
    main()

"""The processes of `attnperf judge`: their folders, limits and environment, and what watches them from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest_attnperf
from pytest_attnperf.environment.gpu_tokens import has_gpu, visible_gpus
from pytest_attnperf.records import Role
from pytest_attnperf.tools.judging import confinement, worker_cases
from pytest_attnperf.tools.judging.confinement import Confinement, LimitState
from pytest_attnperf.tools.judging.process_tree import UsageWatch, end_descendants, list_descendants
from pytest_attnperf.tools.judging.worker_cases import CaseSpec, RemoteReport
from pytest_attnperf.workers.controller import select_log_lines
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

LOG_BYTES_MOST = 1 << 16
TIME, DISK, ALL_MEMORY, OUTLIVING, ENVIRONMENT, REFERENCE, DEVICE_MEMORY = (
    *("time", "disk", "memory of all processes", "outliving", "environment", "reference", "device memory"),
)
"""Names of limits that are set from outside."""

KEPT_VARIABLES = (
    *("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CC", "CXX", "USER", "LOGNAME"),
    *("LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "ROCM_", "HSA_", "AMD_", "GPU_", "GPUS_", "TORCH", "PYTORCH_"),
    *("TRITON_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "PYTHON", "ATTNPERF_", "PYTEST_PLUGINS", "PYTEST_DISABLE_"),
)
"""Beginnings of environment variables that a kernel's process sees; others may hold secrets."""


@dataclass(frozen=True)
class JudgeRequest:
    """What is judged, and how.

    seconds        wall time of each process that runs the kernel
    memory_bytes   of all its processes together; `disk_bytes` of all files that they write
    timed          whether a right kernel is timed
    seed           repeats the inputs of an earlier judgement; the kernel could then know them
    more           further files and folders that the kernel may read
    """

    kernel: Path
    reference: Path
    function: str = "kernel"
    reference_name: str = "reference"
    inputs_name: str = "make_inputs"
    seconds: float = 60.0
    memory_bytes: int = 8 << 30
    disk_bytes: int = 1 << 30
    timed: bool = True
    seed: int | None = None
    host_sync: bool = False
    bytes_min: float | None = None
    more: tuple[str, ...] = ()
    require_limits: bool = False


@dataclass(frozen=True)
class ConfinedPlan(LaunchPlan):
    """How a worker under limits is started. `limits` and `report` are files of `confinement`; `home` is its folder."""

    limits: str = ""
    report: str = ""
    home: str = ""

    def make_command(self, fd: int | str, name: str) -> list[str]:
        """Returns the worker's argv, behind the program that sets the limits."""
        return confinement.make_command(self.limits, self.report, super().make_command(fd, name))

    def make_environment(self, base: Mapping[str, str], name: str, gpu: str | None) -> dict[str, str]:
        """Returns the environment of the worker: no variables but KEPT_VARIABLES, and caches in its own folder."""
        return confine_environment(super().make_environment(base, name, gpu), self.home)


def confine_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Returns the environment without what a kernel need not know, with all caches below the folder `home`."""
    kept = {key: value for key, value in environment.items() if key.startswith(KEPT_VARIABLES)}
    own = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    return {**kept, **dict.fromkeys(own, home), "PYTHONDONTWRITEBYTECODE": "1"}


class KernelWorkers:
    """The workers of one judging, below `folder`: `judging` of the judging worker; `alone` and `inner` of the kernel's
    two processes, which only they can write; `kernel`, which both can read."""

    def __init__(self, request: JudgeRequest, folder: Path) -> None:
        self.request = request
        self._folder = folder
        for name in ("judging", "kernel", "alone", "inner/suite", "inner/home", "inner/pool"):
            (folder / name).mkdir(parents=True)
        self.kernel = folder / "kernel" / request.kernel.name
        shutil.copyfile(request.kernel, self.kernel)
        self.on_gpu = has_gpu(os.environ)[0]
        self._gpus = visible_gpus(os.environ)[:1] if self.on_gpu else ()
        self._reference = os.path.realpath(request.reference)
        package = str(Path(pytest_attnperf.__file__).resolve().parent)
        shared = (package, str(folder / "kernel"), *request.more)
        self._readable, self._listable = confinement.choose_readable([self._reference], shared)
        self._others = set(list_descendants(os.getpid()))
        self.watch = UsageWatch(
            self._list_kernel_processes, request.memory_bytes, request.disk_bytes, (folder / "alone", folder / "inner")
        )
        self.inner_pool = WorkerPool(self._plan_inner(), self._gpus, prefix="inner")
        self.judging_pool = WorkerPool(self._plan_judging(), self._gpus, prefix="judging")

    def start(self) -> None:
        """Starts the workers, and with the judging worker the kernel's own process; waits for none of them."""
        self.judging_pool.start([0])
        self.inner_pool.start([0])

    def end_alone(self) -> None:
        """Ends the kernel's own process, and whatever it has left behind."""
        end_descendants(os.getpid(), {*self._others, *self._trusted(), *self._find_workers(self.inner_pool)})

    def shutdown(self) -> None:
        """Ends all processes. The kernel's are not asked: they might do anything."""
        end_descendants(os.getpid(), self._others)
        for pool in (self.judging_pool, self.inner_pool):
            pool.shutdown()

    def read_report(self) -> RemoteReport:
        """Reads what the judging worker has seen of the kernel's process."""
        return worker_cases.read_remote_report(self._folder / "judging" / "remote.json")

    def read_log(self, *, inner: bool) -> str:
        """Returns the end of what the kernel's own process has printed, or with `inner` its other process."""
        paths = [self._folder / "judging" / "kernel.log"]
        if inner:
            paths = sorted((self._folder / "inner" / "pool").glob("*.log"))[-1:]
        lines: list[str] = []
        for path in paths:
            with contextlib.suppress(OSError), path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - LOG_BYTES_MOST))
                lines = log.read(LOG_BYTES_MOST).decode(errors="replace").splitlines()
        return "\n".join(select_log_lines(lines))

    def list_limits(self) -> list[LimitState]:
        """Returns every limit of the kernel's processes: enforced if it is in both of them."""
        reports = [confinement.read_report(str(self._folder / name)) for name in ("alone.json", "inner.json")]
        found: dict[str, LimitState] = {}
        for state in (state for report in reports for state in report):
            before = found.get(state.name, state)
            found[state.name] = before if not before.enforced else state
        if not all(reports):
            found = {
                name: replace(state, enforced=False, why="a process did not start") for name, state in found.items()
            }
        files = found.get(confinement.FILES, LimitState(confinement.FILES, False, "no process has started"))
        watched = f"looked at {1 / UsageWatch.interval_seconds:.0f} times a second: more may be used between two looks"
        why = "" if files.enforced else files.why
        states = [
            *found.values(),
            LimitState(TIME, True),
            LimitState(DISK, True, watched),
            LimitState(ALL_MEMORY, True, watched),
            LimitState(OUTLIVING, sys.platform == "linux"),
            LimitState(ENVIRONMENT, True),
            LimitState(REFERENCE, files.enforced, why),
        ]
        if self.on_gpu:
            states.append(LimitState(DEVICE_MEMORY, False, "the driver has no limit for one process"))
        return states

    def _plan_judging(self) -> LaunchPlan:
        folder = self._folder / "judging"
        spec = self._make_spec()
        worker_cases.write_spec(folder / "spec.json", spec)
        text = worker_cases.JUDGING_TEXT.format(spec=str(folder / "spec.json"))
        return self._make_plan(folder, folder / "pool", worker_cases.JUDGING_FILE, text)

    def _plan_inner(self) -> ConfinedPlan:
        folder = self._folder / "inner"
        suite = folder / "suite"
        text = worker_cases.INNER_TEXT.format(spec=str(suite / "spec.json"))
        base = self._make_plan(suite, folder / "pool", worker_cases.INNER_FILE, text)
        plan = ConfinedPlan(
            **{name: getattr(base, name) for name in LaunchPlan.__dataclass_fields__},
            limits=str(self._folder / "inner-limits.json"), report=str(self._folder / "inner.json"),
            home=str(folder / "home"),
        )  # fmt: skip
        self.inner_limits = self._confine((str(suite), str(plan.harness)), str(folder / "home"))
        beside = os.path.dirname(self._reference)
        wider = replace(self.inner_limits, readable=(*self.inner_limits.readable, beside), parent=os.getpid())
        confinement.write_spec(plan.limits, wider)
        worker_cases.write_spec(suite / "spec.json", replace(self._make_spec(), seed=None))
        return plan

    def _make_plan(self, root: Path, scratch: Path, file: str, text: str) -> LaunchPlan:
        """Writes a worker's only test file, and returns how the worker is started."""
        (root / file).write_text(text, encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        kind = "gpu" if self.on_gpu else "cpu"
        return LaunchPlan(
            files=(str(root / file),),
            rootdir=root,
            scratch=scratch,
            role=Role.DEVICE if self.on_gpu else Role.INTERPRET,
            config_file=root / "pytest.ini",
            passed_options=(f"--attnperf-device={kind}", "-p", "no:cacheprovider"),
            extra_environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ""},
        )

    def _make_spec(self) -> CaseSpec:
        """Returns the spec of the workers, and writes the limits of the kernel's own process."""
        request, alone = self.request, self._folder / "alone"
        harness = self._folder / "inner" / "pool" / "harness"
        limits = self._confine((str(harness),), str(alone))
        confinement.write_spec(str(self._folder / "alone-limits.json"), limits)
        command = [sys.executable, "-m", "pytest_attnperf.measure.kernel_process"]
        plan = LaunchPlan((), alone, self._folder / "inner" / "pool", Role.DEVICE if self.on_gpu else Role.INTERPRET)
        environment = plan.make_environment(os.environ, "alone", self._gpus[0] if self._gpus else None)
        return CaseSpec(
            kernel=str(self.kernel),
            function=request.function,
            reference=str(request.reference.absolute()),
            reference_name=request.reference_name,
            inputs_name=request.inputs_name,
            seconds=request.seconds,
            bytes_most=request.memory_bytes,
            report=str(self._folder / "judging" / "remote.json"),
            command=tuple(
                confinement.make_command(
                    str(self._folder / "alone-limits.json"), str(self._folder / "alone.json"), command
                )
            ),
            environment=confine_environment(environment, str(alone)),
            log=str(self._folder / "judging" / "kernel.log"),
            folder=str(alone),
            inner=getattr(self, "inner_limits", Confinement()),
            seed=request.seed,
            host_sync=request.host_sync,
            bytes_min=request.bytes_min,
        )

    def _confine(self, readable: tuple[str, ...], home: str) -> Confinement:
        return Confinement(
            readable=(*self._readable, *readable),
            listable=tuple(self._listable),
            writable=(home,),
            devices=tuple(confinement.list_devices()),
            data_bytes=0 if self.on_gpu else self.request.memory_bytes,
            on_gpu=self.on_gpu,
            file_bytes=self.request.disk_bytes,
        )

    def _list_kernel_processes(self) -> list[int]:
        """Returns every process that this judging has started and does not trust."""
        spared = {*self._others, *self._trusted(), os.getpid()}
        return [pid for pid in list_descendants(os.getpid()) if pid not in spared]

    def _trusted(self) -> list[int]:
        return self._find_workers(self.judging_pool)

    @staticmethod
    def _find_workers(pool: WorkerPool) -> list[int]:
        ready = pool.last_ready()
        return [ready.pid] if ready else []

"""Proves a compiled kernel right by executing its machine code, without a GPU, on the problems that its build declares.

The very object that was compiled is launched, by the backend's own launcher pinned to the build's configuration, and
the judge compares the result with its reference.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import replay_choice
from pytest_attnperf.codeobject.built import Built
from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.budget import PLANTED, TIMED
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import AttnperfError, CodeObjectError, UnsupportedError
from pytest_attnperf.kernel_builds import KernelBuild, Proof
from pytest_attnperf.measure.executing import Executor, executing
from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.records import SECONDS_DIGITS, CheckReport
from pytest_attnperf.records.code import NOT_EXECUTED, RIGHT, UNPROVEN, WRONG, CodeExecution

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload

CHECK_SEED = 1
DIFFERENCES_MOST = 4

_ORDER = (WRONG, UNPROVEN, NOT_EXECUTED, RIGHT)
"""Outcomes of proofs, the one that decides first."""


@dataclass
class BuildProver:
    """Executes the proofs of one build.

    find_backend   returns the backend of a name; raises UnknownNameError
    cache          folder of compiled objects
    """

    build: KernelBuild
    built: Built
    find_backend: Callable[[str], Backend]
    cache: Path
    _launches: int = field(default=0, init=False)
    _others: str = field(default="", init=False)
    _lane_instructions: int = field(default=0, init=False)

    def prove(self) -> CodeExecution:
        """Executes every proof and returns what they showed together: one that is wrong makes the build wrong, and one
        of them must have launched this build's object."""
        from pytest_attnperf.isa.program import ARCHS

        if self.build.arch not in ARCHS:
            return CodeExecution(NOT_EXECUTED, f"the interpreter executes {', '.join(ARCHS)}, not {self.build.arch}")
        started = time.perf_counter()
        found: list[tuple[str, str, str]] = []
        for proof in self.build.proofs:
            outcome, text = self._run_proof(proof)
            found.append((outcome, text, proof.workload.id))
            if outcome == WRONG:
                break
        if not found:
            found.append((NOT_EXECUTED, "no proof declared", ""))
        elif not self._launches and all(one == RIGHT for one, _, _ in found):
            found.append((UNPROVEN, self._others, ""))
        outcome, text, problem = min(found, key=lambda one: _ORDER.index(one[0]))
        return CodeExecution(
            outcome,
            f"{problem}: {text}" if problem and text else text,
            tuple(workload for one, _, workload in found if one == RIGHT),
            self._launches,
            self._lane_instructions,
            round(time.perf_counter() - started, SECONDS_DIGITS),
        )

    def _run_proof(self, proof: Proof) -> tuple[str, str]:
        """Returns (outcome, why) of one proof."""
        from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError

        device = interpreted_gpu(self.build.arch)
        executor = Executor(self.build.arch, self.cache, (self.build, self.built))
        try:
            backend = replay_choice(self.find_backend(proof.backend), proof.config)
            reasons = backend.unsupported_reasons(proof.workload, device)
            if reasons:
                return NOT_EXECUTED, f"{proof.backend} does not take it: {'; '.join(reasons)}"
            with executing(executor), _one_thread():
                prepared = prepare_executed(backend, proof.workload, device)
                report = judge_calls(prepared, backend, proof.workload, device)
        except UnknownInstructionError as error:
            return NOT_EXECUTED, str(error)
        except (CodeObjectError, UnsupportedError) as error:
            return NOT_EXECUTED, str(error).splitlines()[0]
        except ExecutionFault as error:
            return WRONG, str(error)
        except AttnperfError as error:
            return UNPROVEN, f"{type(error).__name__}: {error}"
        finally:
            self._count_launches(executor)
        if not report.right:
            return WRONG, report.problems[0]
        return RIGHT, ""

    def _count_launches(self, executor: Executor) -> None:
        own = [one for one in executor.launches if one.given]
        if not own and not self._others:
            self._others = self._describe_others(executor)
        self._launches += len(own)
        self._lane_instructions += sum(one.execution.lane_instructions for one in own)

    def _describe_others(self, executor: Executor) -> str:
        """Returns that this build's object was never launched, what was, and in which values it differs."""
        differing = {one.kernel: one.differs for one in executor.launches if one.differs}
        if differing:
            ((kernel, differs), *_) = differing.items()
            shown = "; ".join(differs[:DIFFERENCES_MOST])
            return f"the object of {self.build.id} was not launched: {kernel} was with {shown}"
        names = ", ".join(dict.fromkeys(one.kernel for one in executor.launches)) or "nothing"
        return f"the object of {self.build.id} was not launched, but {names}"


def prepare_executed(backend: Backend, workload: Workload, device: DeviceInfo) -> Prepared:
    """Returns the backend prepared on the workload's timed inputs, in a process that executes machine code."""
    inputs = workload.make_inputs(timed_seed(workload), device.torch_device, planted=False)
    with _fill_allocated():
        return backend.prepare(workload, inputs)


def judge_calls(
    prepared: Prepared, backend: Backend, workload: Workload, device: DeviceInfo, *, planted: bool = True
) -> CheckReport:
    """Returns the judge's report on a call on the timed inputs and, if `planted`, on another on planted ones. Memory
    that the backend allocates is filled with NaN. Raises what the backend and the executor raise."""
    seeds = Seeds(timed_seed(workload), CHECK_SEED, CHECK_SEED)
    judge = Prover(backend, workload, device, seeds).make_judge(prepared)

    def call() -> Any:
        with _fill_allocated():
            raw = prepared.run()
        judge.watch(raw)
        return raw

    report = judge.check_call(TIMED, call, seed=seeds.timed, planted=False, poisoned=False)
    if not report.right or not planted:
        return report
    return report.merge_with(judge.check_call(PLANTED, call, seed=seeds.check, planted=True))


@contextlib.contextmanager
def _fill_allocated() -> Iterator[None]:
    """Fills what the backend allocates inside the context by torch.empty and its like with NaN or the largest integer,
    so that a result that was not written shows."""
    import torch
    from torch.overrides import TorchFunctionMode

    allocating = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)

    class Filling(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in allocating:
                poison.fill(result)
            return result

    with Filling():
        yield


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Makes torch use one thread inside the context: the problems are small, and workers run on every core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

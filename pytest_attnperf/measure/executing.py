"""Makes a process run kernels as machine code of an AMD architecture: compiled for it, interpreted on CPU tensors.

The kernels' own launchers run unchanged. Triton's `kernel[grid](...)` and the HIP loader of `kernels.hip` launch
through the `Executor` of the process; nothing is timed. Importing this loads neither torch nor numpy nor Triton.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import Built, object_bytes
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.kernel_builds import KernelBuild, KernelSource
from pytest_attnperf.measure import executed_triton, interpreter_driver, interpreting, tensor_launch
from pytest_attnperf.measure.autotuners import TRITON
from pytest_attnperf.measure.patching import Patch, Patches

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.isa.launch import Execution

NOT_TIMED = "executed by the interpreter of machine code; counted, not timed"


@dataclass(frozen=True)
class ExecutedLaunch:
    """One launch.

    kernel      its symbol
    given       whether its object is the one that the executor was given
    differs     for the function of the given object, but another object: in what the launch differs from it
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds_dynamic_bytes: int
    given: bool
    differs: tuple[str, ...]
    execution: Execution = field(repr=False)


@dataclass
class Executor:
    """Launches kernels by interpreting their machine code.

    arch     the architecture, e.g. 'gfx942'
    cache    folder of compiled objects
    record   whether launches count what each instruction does
    sample   instructions of each wave of a first workgroup, to which launches are limited; 0 for all
    given    a build and its object, which is launched wherever its function is launched in the way it was built for
    """

    arch: str
    cache: Path
    given: tuple[KernelBuild, Built] | None = None
    record: bool = False
    sample: int = 0
    launches: list[ExecutedLaunch] = field(default_factory=list)

    def compile(self, source: KernelSource, name: str) -> Built:
        """Returns the object of a source for the executed architecture, compiled or from the cache. Raises
        ToolMissingError or CodeObjectError if it cannot be compiled."""
        build = KernelBuild(name, "launched", self.arch, source)
        reasons = unsupported_reasons(build)
        if reasons:
            raise UnsupportedError(f"{name} is not compiled for {self.arch}: {'; '.join(reasons)}")
        return build_object(build, self.cache)

    def launch_source(
        self,
        source: KernelSource,
        name: str,
        grid: Sequence[int],
        arguments: Sequence[torch.Tensor | int | float],
        differs: tuple[str, ...] = (),
    ) -> None:
        """Launches a kernel of this source on CPU tensors and numbers.

        Raises what `isa.launch.execute` and `compile` raise.
        """
        given = self.given is not None and self.given[0].source == source
        built = self.given[1] if self.given is not None and given else self.compile(source, name)
        self._launch(built, grid, arguments, given=given, differs=() if given else differs)

    def _launch(
        self,
        built: Built,
        grid: Sequence[int],
        arguments: Sequence[torch.Tensor | int | float],
        *,
        given: bool,
        differs: tuple[str, ...],
    ) -> None:
        from pytest_attnperf.isa.launch import execute

        sizes = tensor_launch.complete_size("grid", grid)
        if math.prod(sizes) == 0:  # a driver does nothing, too
            return
        code = object_bytes(built)
        passed, memories = tensor_launch.pass_arguments(arguments)
        block = (built.threads, 1, 1)
        execution = execute(
            code,
            built.kernel,
            sizes,
            block,
            passed,
            dynamic_lds_bytes=built.lds_dynamic_bytes,
            record=self.record,
            sample=self.sample,
        )
        tensor_launch.copy_back(execution, memories)
        self.launches.append(
            ExecutedLaunch(built.kernel, sizes, block, built.lds_dynamic_bytes, given, differs, execution)
        )


class _ExecutingState:
    """The executor of this process and its patches; None while kernels run as they usually do."""

    executor: Executor | None = None
    patches: Patches | None = None


def executing_arch() -> str:
    """Returns the architecture whose machine code this process interprets; '' if it interprets none."""
    return "" if _ExecutingState.executor is None else _ExecutingState.executor.arch


def current_executor() -> Executor:
    """Returns the executor of this process. Raises UsageError without one."""
    if _ExecutingState.executor is None:
        raise UsageError("this process executes no machine code; call start_executing() first")
    return _ExecutingState.executor


def start_executing(executor: Executor) -> None:
    """Makes launches of Triton kernels, and of HIP kernels on CPU tensors, go to `executor` until `stop_executing`.

    Raises UsageError for an architecture that is not in `isa.program.ARCHS`, in a process in which Triton interprets,
    without numpy, and for a second call.
    """
    if interpreting.is_interpreting():
        raise UsageError(
            f"TRITON_INTERPRET=1 makes Triton interpret kernels instead of compiling them for {executor.arch}; unset it"
        )
    if importlib.util.find_spec("numpy") is None:
        raise UsageError("the interpreter of machine code computes with numpy, which is not installed; install numpy")
    from pytest_attnperf.isa.program import ARCHS

    if executor.arch not in ARCHS:
        raise UsageError(f"{executor.arch} cannot be executed; {', '.join(ARCHS)} can")
    if _ExecutingState.executor is not None:
        raise UsageError(f"this process executes {executing_arch()} already; call stop_executing() first")
    _ExecutingState.executor = executor
    _ExecutingState.patches = Patches(_make_patches(executor))
    _ExecutingState.patches.__enter__()


def stop_executing() -> None:
    """Undoes `start_executing`, except Triton's active driver."""
    if _ExecutingState.patches is not None:
        _ExecutingState.patches.__exit__(None, None, None)
    _ExecutingState.executor = _ExecutingState.patches = None


@contextlib.contextmanager
def executing(executor: Executor) -> Iterator[Executor]:
    """Executes with `executor` inside the context. Raises UsageError as `start_executing` does."""
    start_executing(executor)
    try:
        yield executor
    finally:
        stop_executing()


def _make_patches(executor: Executor) -> list[Patch]:
    return [
        Patch("triton.runtime.driver", "", "driver", interpreter_driver.activate_interpreter),
        Patch(*TRITON, "prune_configs", interpreting.first_config_only),
        Patch(*TRITON, "_bench", lambda previous: interpreting.not_benchmarked),
        Patch("triton.runtime.jit", "JITFunction", "run", lambda previous: executed_triton.make_run(executor)),
        Patch("torch.cuda", "device", "__init__", interpreting.without_device),
    ]

"""What the fixtures give to a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest

from pytest_attnperf.records import Samples, Tolerance

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.workloads.base import Workload

SERVER = pytest.StashKey["Rendezvous"]()
"""Where a session that measures keeps what serves its cases."""


class Rendezvous(Protocol):
    """Serves one case from inside a test's body."""

    def serve_case(self, backend: Backend, workload: Workload) -> None:
        """Return when the case has been closed."""


class TimerFunction(Protocol):
    """The `gpu_timer` fixture: `gpu_timer(fn, *args, blocks=30, block_us=1000.0) -> Samples`."""

    def __call__(self, fn: Callable[..., Any], *args: Any, blocks: int = 30, block_us: float = 1000.0) -> Samples:
        """Blocks of back-to-back calls; the device is that of the tensor arguments."""


class CaseHandle:
    """The `attnperf` fixture. One call of `run` or `gate` per test."""

    def __init__(self, config: pytest.Config, name: str) -> None:
        self._config = config
        self._name = name

    @property
    def _server(self) -> Rendezvous:
        """What serves this process's cases; looked up late, because the item's body may be bound after its set-up."""
        server = self._config.stash.get(SERVER, None)
        if server is None:
            raise pytest.UsageError(
                "attnperf.run() was called outside a worker: request the `attnperf` fixture by name in the test's own "
                "arguments, so that the plugin knows the test is a case"
            )
        return server

    def run(self, backend: Backend, workload: Workload) -> None:
        """Prove `backend` right on `workload`, and under `--attnperf` measure and gate it."""
        self._server.serve_case(backend, workload)

    def gate(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        reference: Callable[..., Any],
        inputs: Callable[..., Any],
        flops: float | None = None,
        bytes_min: float | None = None,
        tolerance: Tolerance | None = None,
        cache_state: str = "hot",
        backward: bool = False,
        times: str = "both",
        in_place: Sequence[str] = (),
        host_sync: bool = False,
        kernels: Sequence[str] = (),
        operators: Sequence[str] = (),
        never: Sequence[str] = (),
    ) -> None:
        """Prove and gate any callable.

        fn(*tensors)          the kernel; returns a tensor or a number, or a tuple, dict or dataclass of them
        reference(*tensors)   the same in plain torch; run in wider types for the truth, and as it is for the budget
        inputs(seed)          one tensor or a tuple of tensors, the same for the same seed, on the device. Checks plant
                              large elements at edges; inputs(seed, planted) does so itself where planted is True
        flops, bytes_min      useful work of one call, for rates and the plausibility floor
        cache_state           'hot', or 'cold': no call finds its inputs in the last-level cache
        tolerance             an error budget other than 2x the plain computation's, with its source
        backward              prove the gradients of all floating-point inputs, too
        times                 with backward: 'both' passes are timed together, or 'forward' or 'backward' alone
        in_place              names of inputs (parameters of the reference; 'grad_out' for the incoming gradient) that a
                              call may overwrite: each call gets copies, made outside the time. A call that returns None
                              is judged by what they hold
        host_sync             the call may wait for the device (.item()), and is timed by the host's clock
        kernels, operators    regular expressions, each to be found in the name of a kernel on the GPU, or of a torch
                              operator, that runs: a function that falls back to something else fails
        never                 none of these may be found in the name of a kernel or an operator that runs
        """
        _check_callables(fn=fn, reference=reference, inputs=inputs)
        from pytest_attnperf.backends import Declares
        from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

        workload = AdHoc(
            name=self._name,
            make_inputs_fn=inputs,
            reference_fn=reference,
            flops=flops,
            bytes_min=bytes_min,
            cache_state=cache_state,
            times=times if backward else "",
            overwrites=_as_tuple(in_place),
            host_sync=host_sync,
        )
        says = Declares(
            kernels=_parse_patterns("kernels", kernels),
            operators=_parse_patterns("operators", operators),
            never=_parse_patterns("never", never),
        )
        backend = CallableBackend(name=name, fn=fn, tolerance=tolerance or Tolerance(), declares=says)
        self._server.serve_case(backend, workload)


def _as_tuple(given: Sequence[str]) -> tuple[str, ...]:
    """One text, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def _parse_patterns(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    """The regular expressions of one argument. Fails the test where one is none."""
    patterns = _as_tuple(given)
    if wrong := [repr(pattern) for pattern in patterns if not _is_pattern(pattern)]:
        pytest.fail(
            f"attnperf.gate(): {argument}= takes regular expressions, and {', '.join(wrong)} is none; re.escape() "
            "makes one of a name",
            pytrace=False,
        )
    return patterns


def _is_pattern(pattern: object) -> bool:
    try:
        re.compile(pattern)  # type: ignore[call-overload]
    except (re.error, TypeError):
        return False
    return True


def _check_callables(**given: object) -> None:
    """Fail the test in one message where a function of `attnperf.gate()` is none: each is called more than once."""
    wrong = [f"{name} is a {type(value).__name__}" for name, value in given.items() if not callable(value)]
    if wrong:
        pytest.fail(
            f"attnperf.gate(): {', '.join(wrong)}, and must be a function: fn(*tensors), reference(*tensors) and "
            "inputs(seed), which makes the tensors, are each called several times",
            pytrace=False,
        )


class CodeObjectHandle:
    """The `code_object` fixture. One call of `gate` per test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def gate(self, build: KernelBuild) -> None:
        """Compile `build` without a GPU, and hold its code object against the stored one."""
        server: Any = self._config.stash.get(SERVER, None)
        if not hasattr(server, "serve_build"):
            raise pytest.UsageError(
                "code_object.gate() was called outside a compile worker: request the `code_object` and `kernel_build` "
                "fixtures by name in the test's own arguments, so that the plugin knows what the test compiles"
            )
        server.serve_build(build)


def case_handle(request: pytest.FixtureRequest) -> CaseHandle:
    """The handle of this item."""
    return CaseHandle(request.config, request.node.name)


def fail_missing_parameter(request: pytest.FixtureRequest, name: str) -> NoReturn:
    """Fail a test that asks for `backend` or `workload` without the marker that provides them."""
    pytest.fail(
        f"the fixture {name!r} is provided by @pytest.mark.attnperf(family=..., workloads=[...]), which "
        f"{request.node.nodeid} does not carry (or it asks for only one of `backend` and `workload`)",
        pytrace=False,
    )


def fail_missing_build(request: pytest.FixtureRequest) -> NoReturn:
    """Fail a test that asks for `kernel_build` where nothing provides one."""
    pytest.fail(
        "the fixture 'kernel_build' is provided for tests that ask for `code_object`, too, from the kernels that "
        f"pytest_attnperf_register_kernels adds; {request.node.nodeid} has none",
        pytrace=False,
    )


def timer_function() -> TimerFunction:
    """The measuring function; torch is imported when it is called."""
    from pytest_attnperf.measure.gpu_timer import gpu_timer

    return gpu_timer

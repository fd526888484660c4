"""The objects that fixtures return to a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest

from pytest_attnperf.errors import propose_name
from pytest_attnperf.plugin.argument_checks import refuse_misuse
from pytest_attnperf.records import Tolerance
from pytest_attnperf.records.costs import NO_COSTS, GatedCosts, parse_costs

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Declares
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.measure.gpu_timer import TimerResult
    from pytest_attnperf.workloads.base import Workload

SERVER = pytest.StashKey["Rendezvous"]()
"""Stash key of the object that serves the cases of a session that measures."""


class Rendezvous(Protocol):
    """Serves cases from inside a test's body."""

    def serve_case(self, backend: Backend, workload: Workload, costs: GatedCosts = ...) -> None:
        """Proves, measures and judges one case, as its controller requests; returns when the case is closed."""


class TimerFunction(Protocol):
    """The `gpu_timer` fixture: `gpu_timer(fn, *args, blocks=30, block_us=1000.0, device=None) -> TimerResult`."""

    def __call__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        blocks: int = 30,
        block_us: float = 1000.0,
        device: str | None = None,
    ) -> TimerResult:
        """Times `fn(*args)` on the device of its tensors: `blocks` blocks of back-to-back calls, each of about
        `block_us` microseconds. `device` is 'cuda' or 'cpu' where no argument holds a tensor."""


class CaseHandle:
    """The `attnperf` fixture. One call of `run` or `gate` per test."""

    def __init__(self, config: pytest.Config, name: str, costs: GatedCosts = NO_COSTS) -> None:
        self._config = config
        self._name = name
        self._costs = costs

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError for a method that there is not, with the nearest one."""
        raise AttributeError(f"attnperf has no {name!r}{propose_name(name, ('run', 'gate'))}; call run() or gate()")

    @property
    def _server(self) -> Rendezvous:
        """The object that serves cases in this process, looked up at the call: it may be set after the fixture's
        set-up. Raises a usage error if there is none."""
        server = self._config.stash.get(SERVER, None)
        if server is None:
            raise pytest.UsageError(
                "attnperf.run() was called outside a worker: name the fixture `attnperf` in the arguments of the test "
                "itself, so that the plugin knows that the test is a case"
            )
        return server

    @refuse_misuse
    def run(self, backend: Backend, workload: Workload) -> None:
        """Proves `backend` right on `workload`; with `--attnperf` also measures and gates it."""
        self._server.serve_case(backend, workload, self._costs)

    @refuse_misuse
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
        contiguous: bool = False,
        invariant: bool = False,
        kernels: Sequence[str] = (),
        operators: Sequence[str] = (),
        never: Sequence[str] = (),
        non_finite: Sequence[str] = (),
        costs: Mapping[str, Any] | None = None,
    ) -> None:
        """Proves any callable right; with `--attnperf` also measures and gates it.

        name                  the backend's name in reports and in the case key; the test names the workload
        fn(*tensors)          the kernel; returns a tensor or a number, or a tuple, dict or dataclass of them
        reference(*tensors)   the same in plain torch; run in wider types for the expected result, as is for the budget
        inputs(seed)          returns a tensor or a tuple of tensors on the device, the same for the same seed. Checks
                              plant large elements at edges; inputs(seed, planted) plants them itself if planted is True
        flops, bytes_min      useful FLOPs and bytes of one call, for rates and the plausibility floor
        tolerance             an error budget other than 2x the error of the plain computation, with its source
        cache_state           'hot', or 'cold': no call finds its inputs in the last-level cache
        contiguous            callers pass contiguous inputs only: no trial uses another layout
        backward              also prove the gradients of all floating-point inputs
        times                 with backward: time 'both' passes together, or only 'forward' or 'backward'
        in_place              names of inputs ('grad_out' for the incoming gradient) that a call may overwrite: it gets
                              copies, made outside the timed part. If it returns None, they are its result
        host_sync             the call may wait for the device (.item()), and is timed by the host's clock
        invariant             each row (index of the first dimension that the reference computes row by row) has the
                              same bits alone, in another order and among more rows: other bits fail
        kernels, operators    regular expressions; each must match a GPU kernel, or a torch operator, that runs
        never                 regular expressions that must not match any kernel or operator that runs
        non_finite            outputs in which the reference may hold NaN or Inf: a result must, at the same places
        costs                 what else may not grow beyond the stored one, by how many percent: {"peak_bytes": 0,
                              "host_us": 20}; known are host_us, first_call_ms, peak_bytes and allocations. A cost of
                              your own is (function of what fn returned, percent). Beyond that the case is GREW
        """
        _check_callables(fn=fn, reference=reference, inputs=inputs)
        gated = self._costs.merge_with(parse_costs(costs, "attnperf.gate()"))
        from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

        workload = AdHoc(
            name=self._name, make_inputs_fn=inputs, reference_fn=reference, flops=flops, bytes_min=bytes_min,
            cache_state=cache_state, times=times if backward else "", overwrites=_as_tuple(in_place),
            host_sync=host_sync, contiguous=contiguous, non_finite_outputs=frozenset(_as_tuple(non_finite)),
        )  # fmt: skip
        says = _declare(kernels=kernels, operators=operators, never=never)
        backend = CallableBackend(name, fn, says, tolerance=tolerance or Tolerance(), invariant=invariant)
        self._server.serve_case(backend, workload, gated)


def _as_tuple(given: Sequence[str]) -> tuple[str, ...]:
    """Returns the texts as a tuple; one string becomes a tuple of one."""
    return (given,) if isinstance(given, str) else tuple(given)


def _declare(**given: Sequence[str]) -> Declares:
    """Returns what must run, and what must not, of regular expressions. Fails the test if one is invalid."""
    from pytest_attnperf.backends import Declares

    return Declares(**{argument: _parse_patterns(argument, patterns) for argument, patterns in given.items()})  # type: ignore[arg-type]


def _parse_patterns(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    """Returns the regular expressions of one argument. Fails the test if one is invalid."""
    patterns = _as_tuple(given)
    if wrong := [repr(pattern) for pattern in patterns if not _is_pattern(pattern)]:
        pytest.fail(
            f"attnperf.gate(): {argument}= takes regular expressions, and {', '.join(wrong)} is not one; re.escape() "
            "makes one from a name",
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
    """Fails the test if one of these arguments of `attnperf.gate()`, given by name, is not callable."""
    wrong = [f"{name} is a {type(value).__name__}" for name, value in given.items() if not callable(value)]
    if wrong:
        pytest.fail(
            f"attnperf.gate(): {', '.join(wrong)}, but must be a function: fn(*tensors), reference(*tensors) and "
            "inputs(seed), which makes the tensors, are each called several times",
            pytrace=False,
        )


class CodeObjectHandle:
    """The `code_object` fixture. One call of `gate` per test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def gate(self, build: KernelBuild, *, execute: bool = False) -> None:
        """Compiles `build` without a GPU; the session compares its code object with the stored one. With `execute`, as
        with --attnperf-execute, its machine code is also executed on the build's proofs. Raises a usage error outside
        a compile worker."""
        server: Any = self._config.stash.get(SERVER, None)
        if not hasattr(server, "serve_build"):
            raise pytest.UsageError(
                "code_object.gate() was called outside a compile worker: name the fixtures `code_object` and "
                "`kernel_build` in the arguments of the test itself, so that the plugin knows what it compiles"
            )
        server.serve_build(build, execute=execute)


def case_handle(request: pytest.FixtureRequest) -> CaseHandle:
    """Returns the object of the `attnperf` fixture for the requesting test."""
    marker = request.node.get_closest_marker("attnperf")
    costs = parse_costs(marker.kwargs.get("costs") if marker else None, request.node.nodeid)
    return CaseHandle(request.config, request.node.name, costs)


def fail_missing_parameter(request: pytest.FixtureRequest, name: str) -> NoReturn:
    """Fails a test that uses the fixture `name` ('backend' or 'workload') without the marker that provides it."""
    pytest.fail(
        f"the fixture {name!r} is provided by @pytest.mark.attnperf(family=..., workloads=[...]), which "
        f"{request.node.nodeid} does not have (or it uses only one of `backend` and `workload`)",
        pytrace=False,
    )


def fail_missing_build(request: pytest.FixtureRequest) -> NoReturn:
    """Fails a test that uses the fixture `kernel_build` if nothing provides it."""
    pytest.fail(
        "the fixture 'kernel_build' is provided for tests that also use `code_object`, from the kernels that "
        f"pytest_attnperf_register_kernels adds; {request.node.nodeid} has none",
        pytrace=False,
    )


def timer_function() -> TimerFunction:
    """Returns the function of the `gpu_timer` fixture."""
    from pytest_attnperf.measure.gpu_timer import gpu_timer

    return refuse_misuse(gpu_timer, "gpu_timer")

"""Whether one call of a backend is right: fresh inputs, poisoned outputs, measured budgets, inputs unchanged.

The judge never knows how the call is made. An eager call and the replay of a captured graph are checked by the same
function, so that what is timed is what was proven. Where a call is meant to write to its inputs, what it has left
there is judged, and a second call on it must leave the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness import late_work, poison
from pytest_attnperf.correctness.budget import PLANTED, UNPLANTED, problems
from pytest_attnperf.correctness.metrics import MismatchError, compare
from pytest_attnperf.correctness.own_inputs import OwnInputs
from pytest_attnperf.correctness.references import Expected, References
from pytest_attnperf.records import CheckReport, ErrorFigures, Tolerance
from pytest_attnperf.workloads.returned import detached

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload


AGAIN_SHARE, AGAIN_SECONDS = 0.25, (0.005, 0.03)
"""For how long a right call is repeated: a share of what its check took, within limits."""

AGAIN_LEAST = 40
"""Repeated calls, unless they take ten times as long: a fault of 1 call in 20 is found in 7 of 8 processes."""


class Judge:
    """Judges the calls of one prepared backend on one workload.

    references   shared by all judges of a process
    tolerance    the backend's
    device       what torch takes: 'cuda' or 'cpu'
    """

    def __init__(
        self, prepared: Prepared, workload: Workload, *, references: References, tolerance: Tolerance, device: str
    ) -> None:
        self._prepared = prepared
        self._own = OwnInputs(prepared, workload)
        self._workload = workload
        self._references = references
        self._tolerance = tolerance
        self._device = device
        self._returned: list[torch.Tensor] = []
        self._read_once = False
        self._repeated = False
        self._parts: dict[str, float] = {}
        self._checked: tuple[Tensors, Expected] | None = None

    def watch(self, raw: Any) -> None:
        """Remember what some call returned, e.g. a graph's static outputs: it is filled with NaN before a check.

        Inputs and the judge's own references are left alone, should a call return them.
        """
        kept = (tensor for tensor in poison.tensors_in(raw) if not self._own.hold(tensor))
        self._returned += [tensor for tensor in kept if not self._references.hold(tensor)]

    def check_call(
        self, check: str, run: Callable[[], Any], *, seed: int, planted: bool, poisoned: bool = True
    ) -> CheckReport:
        """Load the inputs of `seed` in place, poison, call `run`, and compare what it returned. Where calls write to
        inputs, the first check without a problem calls it twice more, on what the call before has left.

        check      what is being checked, in words that start every problem: 'timed inputs', 'last replay'
        run        returns what `prepared.call` returns, computed from `prepared.tensors`
        poisoned   False leaves the results of earlier inputs where they are instead of filling them with NaN: a kernel
                   that works only when it sees that it is being judged then returns old results

        Inputs are destroyed before the result is read, so that nothing can be computed late; those of `seed` are loaded
        again at the end. Whatever `run` or the backend's own conversions raise is passed on, and so is
        BadReferenceError; everything found wrong with the result is a problem of the report.
        """
        started, self._parts = time.perf_counter(), {}
        with self._timed("inputs"):
            inputs = self._workload.make_inputs(seed, self._device, planted=planted)
        if check == PLANTED and (reason := getattr(self._workload, "unplanted", "")):
            check = f"{UNPLANTED}{reason})"
        with self._timed("reference"):
            expected = self._references.get(self._workload, self._own.apart(inputs), seed=seed, planted=planted)
        with self._timed("poison"):
            loaded, unfit = self._own.load(inputs)
        self._checked = (loaded if self._own.writable else ()), expected
        found = [f"{check}: {text}" for text in unfit]
        figures: list[ErrorFigures] = []
        if not found:
            found, figures = self._judged(check, run, loaded, expected, poisoned)
        if self._own.writable and not self._repeated and not found and not problems(figures):
            self._repeated = True  # once: whether a kernel adds to what it finds does not depend on the inputs
            found, again = self._judged(f"{check}, called twice", _twice(run), loaded, expected, poisoned)
            figures += again if problems(again) else []
        return CheckReport(
            figures=tuple(figures),
            problems=tuple(found) + problems(figures),
            tolerance=self._tolerance,
            seconds=time.perf_counter() - started,
            parts=self._parts,
        )

    def check_again(self, check: str, run: Callable[[], Any], took_seconds: float) -> CheckReport:
        """Repeat a call that was right on the inputs of the last check, which are loaded: a race is wrong now and then.

        The first result, and every one that has not the bits of a right one before it, is held against the reference.

        took_seconds   what the check took
        """
        assert self._checked is not None, "check_call() comes first"
        started, (loaded, expected) = time.perf_counter(), self._checked
        seconds = min(max(AGAIN_SHARE * took_seconds, AGAIN_SECONDS[0]), AGAIN_SECONDS[1])
        right: list[torch.Tensor] | None = None
        said: list[tuple[str, ...]] = []
        calls = 0
        while (spent := time.perf_counter() - started) < seconds or (calls < AGAIN_LEAST and spent < 10 * seconds):
            if loaded:
                self._own.restore(loaded)
            for tensor in () if calls % 2 else self._returned:
                poison.fill(tensor)
            with poison.sparing(self._own.written_in_place):
                raw = run()
            calls, written = calls + 1, self._own.taken()
            again = [*poison.tensors_in(raw), *written.values()]
            if right is None or len(again) != len(right) or not all(map(poison.bit_equal, right, again)):
                name = f"{check}, call {calls} on the same inputs"
                found, outputs = self._outputs(name, raw, expected, self._own.outputs(expected.sealed, written))
                figures, mismatches = self._compare(name, outputs, expected)
                problem = (*found, *mismatches, *problems(figures))
                said += [problem] if problem else []
                right = right if right is not None or problem else [tensor.clone() for tensor in again]
        if loaded:
            self._own.restore(loaded)
        self._checked = None
        counted = (f"{check}: {len(said)} of {calls} calls on the same inputs are wrong",) if said else ()
        spent = time.perf_counter() - started
        return CheckReport(problems=(*counted, *(said[0] if said else ())), seconds=spent, parts={"again": spent})

    def bit_equal(self, run: Callable[[], Any], repeats: int) -> bool:
        """Whether `repeats` calls on the loaded inputs give the same bits in every tensor they return or write to."""
        first = self._results(run)
        for _ in range(repeats - 1):
            again = self._results(run)
            if len(again) != len(first) or not all(map(poison.bit_equal, first, again)):
                return False
        return True

    def _results(self, run: Callable[[], Any]) -> list[torch.Tensor]:
        """Copies of everything that a call returns or writes to."""
        returned = [tensor.clone() for tensor in poison.tensors_in(run())]
        return returned + list(self._own.taken().values())

    def _judged(
        self, check: str, run: Callable[[], Any], loaded: Tensors, expected: Expected, poisoned: bool
    ) -> tuple[list[str], list[ErrorFigures]]:
        """Poison, call `run`, and compare what it returned and wrote; afterwards inputs are as they were loaded."""
        with self._timed("poison"):
            if poisoned:
                self._poison(expected)
        with self._timed("call"), poison.sparing(self._own.written_in_place):
            raw = run()
        with self._timed("inputs unchanged"):
            written = self._own.taken()
            changed = [f"{check}: {text}" for text in self._own.changed(loaded)]
            aliased = self._aliases_inputs(check, raw)
            if not aliased:  # a result that lies there is read first, or it could not be compared
                self._own.destroy()
            self._own.put(written)
        with self._timed("compare"):
            found, outputs = self._outputs(check, raw, expected, self._own.outputs(expected.sealed, written))
            figures, mismatches = self._compare(check, outputs, expected)
            if not self._read_once and not found and not mismatches:
                self._read_once = True
                mismatches += [f"{check}: {text}" for text in late_work.problems(raw, self._prepared.outputs)]
        with self._timed("poison"):
            self._own.restore(loaded)
        self._returned = []
        self.watch(raw)
        return aliased + found + mismatches + changed, figures

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        """Add the seconds spent inside to `part`; on a GPU with all work that was queued there."""
        started = time.perf_counter()
        try:
            yield
            if self._device != "cpu":
                import torch

                torch.cuda.synchronize()
        finally:
            self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - started

    def _poison(self, expected: Expected) -> None:
        for tensor in self._returned:
            poison.fill(tensor)
        poison.fill_free_blocks((tensor, expected.yardsticks[name].dtype) for name, tensor in expected.sealed.items())

    def _aliases_inputs(self, check: str, raw: Any) -> list[str]:
        if any(self._own.hold(tensor, writable=False) for tensor in poison.tensors_in(raw)):
            return [f"{check}: the result lies in the memory of an input; a result must be memory of its own"]
        return []

    def _outputs(self, check: str, raw: Any, expected: Expected, written: Outputs) -> tuple[list[str], Outputs]:
        """(problems, the outputs that can be compared).

        written   copies of what the call wrote in place, by name of the output
        """
        import torch

        found: list[str] = []
        if written.keys() != expected.sealed.keys() and not _holds_results(raw):
            advice = (
                "return the tensors that it has written, or name the inputs that it writes to in in_place=(...)"
                if raw is None
                else "its work may be done when it is read, which is not timed; return the tensors that the kernel has "
                "written"
            )
            found.append(f"{check}: the call returned {_kind(raw)}, in which no plain torch.Tensor is: {advice}")
        converted = self._prepared.outputs(raw)
        usable: Outputs = {}
        for name in expected.sealed:
            output = detached(converted.get(name))
            if type(output) is torch.Tensor:
                usable[name] = output
            elif output is not None:
                found.append(
                    f"{check}: output {name!r} is {_kind(output)}, not a plain torch.Tensor: it may compute when it "
                    "is read"
                )
            elif name not in written:
                gave = ", ".join(sorted(converted)) or "nothing"
                found.append(f"{check}: output {name!r} is missing; the backend gave {gave}")
        found += [
            f"{check}: {text}" for name, output in usable.items() for text in self._elsewhere(name, output, written)
        ]
        usable.update(written)
        return found, {name: usable[name] for name in expected.sealed if name in usable}

    def _elsewhere(self, name: str, output: torch.Tensor, written: Outputs) -> list[str]:
        """What is wrong with the memory that an output lies in."""
        if self._references.hold(output):
            return [f"output {name!r} is the judge's own memory, not a result"]
        if name in written:
            same = poison.bit_equal(output, written[name])
            return (
                []
                if same
                else [
                    f"output {name!r} is not what the call wrote in place, shape {tuple(written[name].shape)}: it is a "
                    "copy, or shows other memory; give a view of the part of the input that is written"
                ]
            )
        if written and self._own.hold(output):
            return [f"output {name!r} lies in the memory of an input; only {', '.join(map(repr, written))} may"]
        return []

    def _compare(self, check: str, outputs: Outputs, expected: Expected) -> tuple[list[ErrorFigures], list[str]]:
        figures: list[ErrorFigures] = []
        found: list[str] = []
        with expected.opened() as reference:
            for name, output in outputs.items():
                yardstick = expected.yardsticks[name]
                try:
                    figures.append(compare(check, name, output, reference[name], yardstick, self._tolerance))
                except MismatchError as error:
                    found.append(f"{check}: {error}")
        return figures, found


def _twice(run: Callable[[], Any]) -> Callable[[], Any]:
    """A call, and another on what it has left in place; what the first returned is filled with NaN between them.

    Timed calls find what the one before has left, so that a backend must work there, too, and not give an old result.
    """

    def twice() -> Any:
        for tensor in poison.tensors_in(run()):
            poison.fill(tensor)
        return run()

    return twice


def _holds_results(raw: Any) -> bool:
    """Whether a call returned anything that is there already: a plain tensor, or a number."""
    return isinstance(raw, (int, float)) or any(True for _ in poison.tensors_in(raw))


def _kind(value: object) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")

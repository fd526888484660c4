"""Checks whether one call of a backend is right: fresh inputs, poisoned outputs, measured budgets, inputs unchanged.

The judge does not know how the call is made. One function checks an eager call and the replay of a captured graph, so
that what is timed is what was proven. Where a call is meant to write to its inputs, their content after the call is
judged, and a second call on it must leave the same content.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness import late_work, poison
from pytest_attnperf.correctness.budget import APART, PLANTED, TIMED, UNPLANTED, list_problems, shorten_figures
from pytest_attnperf.correctness.digest import Digest, compute_input_digests, hash_bits
from pytest_attnperf.correctness.early_work import Decoys
from pytest_attnperf.correctness.own_inputs import OwnInputs
from pytest_attnperf.correctness.references import BadReferenceError, Expected, References, count_reveals
from pytest_attnperf.correctness.repeated_calls import (
    CALL_SECONDS_MOST,
    USUAL,
    CallRepeats,
    RepeatedCalls,
    compare_hot_calls,
)
from pytest_attnperf.correctness.result import Results
from pytest_attnperf.records import SECONDS_DIGITS, CheckReport, ErrorFigures, Tolerance
from pytest_attnperf.workloads.defined import ADHOC
from pytest_attnperf.workloads.garbage import Placed, place_garbage

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.workloads.base import Workload


READ_REFERENCE = "the call read the judge's reference: a result must be computed from the inputs"

Checking = Generator[None, Any, CheckReport]
"""A check that stops wherever a call is due, and continues with the value sent to it: what the call returned."""


@dataclass(frozen=True)
class _Blamed:
    """Whether only garbage makes a result wrong; its problems, or the right figures on the inputs `loaded`."""

    problems: tuple[str, ...] = ()
    by_garbage: bool = False
    figures: list[ErrorFigures] = field(default_factory=list)
    loaded: Tensors = ()


class Judge:
    """Judges the calls of one prepared backend on one workload.

    references   shared by all judges of a process
    tolerance    the backend's tolerance
    device       torch's name: 'cuda' or 'cpu'
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
        self._decoys = Decoys(prepared, workload.family, self._wait)
        self._reader = Results(prepared, self._own, references, tolerance)
        self._returned: list[torch.Tensor] = []
        self._zeroed = ""
        self._read_once = False
        self._repeated = False
        self._parts: dict[str, float] = {}
        self._checked: tuple[Tensors, Expected] | None = None

    def watch(self, raw: Any) -> None:
        """Remembers the tensors in what a call returned, e.g. a graph's static outputs, to fill them with NaN before a
        check. Inputs and the judge's own references are skipped, should a call return them."""
        self._returned += self._results_in(raw)

    def check_call(
        self, check: str, run: Callable[[], Any], *, seed: int, planted: bool, poisoned: bool = True
    ) -> CheckReport:
        """Loads the inputs of `seed`, fills outputs with NaN, calls `run`, and compares what it returned with the
        reference.

        Where calls write to inputs, the first check without a problem makes two more calls in a row.

        check      name of the check, which starts every problem: 'timed inputs', 'last replay'
        run        returns what `prepared.call` returns, computed from `prepared.tensors`
        planted    whether the inputs have values that reveal hidden errors, which random ones do not
        poisoned   False keeps the results of earlier inputs instead of filling them with NaN: a kernel that works only
                   when it detects the check then returns old results

        Inputs are destroyed before the result is read, so that nothing can be computed late; those of `seed` are loaded
        again at the end. Errors of `run` or of the backend's conversions, and BadReferenceError, are passed on. All
        that is wrong with the result is a problem of the report.
        """
        with contextlib.closing(self.begin_check(check, seed=seed, planted=planted, poisoned=poisoned)) as checking:
            report = advance(checking)
            while report is None:
                report = advance(checking, run())
        return report

    def begin_check(self, check: str, *, seed: int, planted: bool, poisoned: bool = True) -> Checking:
        """Runs `check_call` as a generator, for a caller that makes the calls itself: it yields whenever a call on the
        loaded inputs is due, is sent what the call returned, and returns the report (StopIteration.value)."""
        started, self._parts = time.perf_counter(), {}
        with self._time_part("inputs"):
            made = self._workload.make_inputs(seed, self._device, planted=planted)
            placed = place_garbage(self._workload, made, seed) if planted else Placed(made)
            inputs = placed.inputs
        if check == PLANTED and (reason := getattr(self._workload, "unplanted", "")):
            check = f"{UNPLANTED}{reason})"
        with self._time_part("reference"):
            expected = self._compute_expected(made, placed, seed, planted=planted)
        del made
        with self._time_part("poison"):
            loaded, unfit = self._own.load(inputs)
            unfit += self._decoys.convert(inputs)
        self._checked = (loaded if self._own.writable else ()), expected
        found = [f"{check}: {text}" for text in unfit]
        figures: list[ErrorFigures] = []
        blamed = _Blamed()
        if not found:
            found, figures = yield from self._judge_call(check, loaded, expected, poisoned)
            if placed.elements and (found or list_problems(figures)):
                blamed = yield from self._blame_garbage(check, seed, expected, poisoned, placed)
                loaded = blamed.loaded or loaded
                found, figures = ([], blamed.figures) if blamed.figures else (found, figures)
                self._checked = (loaded if self._own.writable else ()), expected
                self._own.restore(loaded)
        if self._own.writable and not self._repeated and not found and not list_problems(figures):
            self._repeated = True  # once: whether a kernel adds to what it finds does not depend on the inputs
            found, again = yield from self._judge_call(f"{check}, called twice", loaded, expected, poisoned, twice=True)
            figures += again if list_problems(again) else []
        return CheckReport(
            figures=tuple(map(shorten_figures, figures)),
            problems=(*blamed.problems, *found, *list_problems(figures)),
            tolerance=self._tolerance,
            seconds=round(time.perf_counter() - started, SECONDS_DIGITS),
            parts={part: round(seconds, SECONDS_DIGITS) for part, seconds in self._parts.items()},
            notes=self._list_notes(),
            coarseness=expected.measure_coarseness() if check == TIMED else {},
            truth=self._compute_digests(inputs, expected) if check == TIMED else {},
            garbage=placed.elements,
            reads_garbage=blamed.by_garbage,
        )

    def _compute_expected(self, made: Tensors, placed: Placed, seed: int, *, planted: bool) -> Expected:
        """Returns what is expected of inputs with garbage in them; raises BadReferenceError if a family's reference
        reads that. That a function's reference does not was tested when the garbage was placed; its results for the
        inputs as `made` may be kept already."""
        inputs = made if self._workload.family == ADHOC else placed.inputs
        try:
            return self._references.compute_expected(
                self._workload, self._own.copy_for_reference(inputs), seed=seed, planted=planted
            )
        except BadReferenceError as error:
            if not placed.elements or inputs is made:
                raise
            raise BadReferenceError(
                f"{error}; unread() of the workload says that elements of {placed.names} are never read, so they hold "
                "NaN or Inf here: leave out of it what reference() or plain() reads"
            ) from error

    def _blame_garbage(
        self, check: str, seed: int, expected: Expected, poisoned: bool, placed: Placed
    ) -> Generator[None, Any, _Blamed]:
        """After a wrong result, yields for a call without garbage; for a function also with large numbers in its place,
        and with garbage again. A function that is right with numbers gets these in every check from then on."""
        made = self._workload.make_inputs(seed, self._device, planted=True)
        clean, unfit = self._own.load(made)
        if unfit:
            return _Blamed()
        found, figures = yield from self._judge_call(check, clean, expected, poisoned)
        if found or list_problems(figures):
            return _Blamed()
        if (search := getattr(self._workload, "search", None)) is None:
            return _Blamed((f"{check}: {placed.describe_read(used=False)}",), by_garbage=True)
        search.finite = True
        numbers, _ = self._own.load(place_garbage(self._workload, made, seed).inputs)
        found, figures = yield from self._judge_call(check, numbers, expected, poisoned)
        if found or list_problems(figures):
            search.finite = False
            return _Blamed((f"{check}: {placed.describe_read(used=True)}",), by_garbage=True)
        loaded, _ = self._own.load(placed.inputs)
        again, unlike = yield from self._judge_call(check, loaded, expected, poisoned)
        search.finite = bool(again or list_problems(unlike))
        if not search.finite:  # wrong now and then, whatever is there
            return _Blamed()
        self._zeroed = placed.describe_zeroed()
        return _Blamed(by_garbage=True, figures=figures, loaded=numbers)

    def _compute_digests(self, inputs: Tensors, expected: Expected) -> dict[str, Digest]:
        """Returns the digests of a gated function's inputs and reference outputs, by name, so that a later process
        recognises the same values. Returns {} for op families, whose inputs and references this package makes
        itself."""
        if self._workload.family != ADHOC:
            return {}
        names: tuple[str, ...] = getattr(self._workload, "input_names", ())
        return {**expected.compute_digests(), **compute_input_digests(names, inputs)}

    def _list_notes(self) -> tuple[str, ...]:
        """Returns notes, in words, that fail no check: unnamed or strided outputs, and a slow `convert`."""
        unnamed = ", ".join(map(repr, self._reader.unnamed))
        # A family's backend has a layout of its own, and brings it into the canonical one.
        strided = self._reader.strided if self._workload.family == "adhoc" else {}
        found = (
            f"not judged, because the reference does not name it: {unnamed}" if unnamed else "",
            *(
                f"output {name!r} is returned with strides {strides}: a caller that needs it contiguous makes a copy, "
                "which is not timed"
                for name, strides in strided.items()
            ),
            self._decoys.describe_slow_conversion(self._parts.get("call", 0.0)),
            self._zeroed,
        )
        return tuple(filter(None, found))

    def check_again(
        self,
        check: str,
        run: Callable[[], Any],
        first: CheckReport,
        *,
        single: Callable[[], Any] | None = None,
        repeats: CallRepeats = USUAL,
    ) -> CheckReport:
        """Repeats calls on the inputs of the last check, to detect races; returns `first` with their problems added.

        first    the report of that check
        single   one call, where `run` replays a whole block of calls, of which only the last result can be read
        repeats  how many calls to make; calls without a pause are compared after USUAL ones only

        The first result is compared with the reference, and so is every later one whose bits differ from a right one.
        After a wrong result, the calls only show whether every call is wrong; after any other problem, none is made.
        """
        assert self._checked is not None, "check_call() comes first"
        started, (loaded, expected) = time.perf_counter(), self._checked
        if not first.right and (loaded or not list_problems(first.figures)):
            return first
        reading = late_work.ReadingTime(functools.partial(self._reader.select_outputs, expected=expected), self._wait)

        def make_call(call: Callable[[], Any], number: int) -> tuple[Any, dict[int, torch.Tensor]]:
            if loaded:
                self._own.restore(loaded)
            for tensor in () if number % 2 else self._returned:
                poison.fill(tensor)
            with poison.spare_memory(self._own.written_in_place):
                raw = call()
            reading.time_reading(raw)
            return raw, self._own.copy_written()

        def judge_call(number: int, raw: Any, written: dict[int, torch.Tensor]) -> tuple[str, ...]:
            name = f"{check}, call {number} on the same inputs"
            found, figures = self._reader.judge(name, raw, expected, written)
            return (*found, *list_problems(figures))

        again = RepeatedCalls(make_call, judge_call, on_gpu=self._device != "cpu" and not loaded, repeats=repeats)
        again.repeat(run, single)
        spent, said = time.perf_counter() - started, again.problems
        if not first.right and len(said) == again.calls:
            return first
        wrong, of = len(said) + (not first.right), again.calls + (not first.right)
        counted = [f"{check}: {wrong} of {of} calls on the same inputs are wrong"] if wrong else []
        found = counted + list(said[0] if said else ()) or [f"{check}: {text}" for text in reading.list_problems(run)]
        if not found and single is None and repeats is USUAL and spent < again.calls * CALL_SECONDS_MOST:
            hot = compare_hot_calls(self._prepared.tensors, self._own.writable, lambda: self._copy_results(run))
            found += [f"{check}: {text}" for text in hot]
        if loaded:
            self._own.restore(loaded)
        self._checked = None
        spent = time.perf_counter() - started
        return first.merge_with(CheckReport(problems=tuple(found), seconds=spent, parts={"again": spent}))

    def check_apart(self, run: Callable[[], Any], *, seed: int) -> CheckReport:
        """Judges another way to compute the results, called by `run`, on inputs of `seed` that reveal hidden errors;
        returns its report. Call it right after a check on other inputs, so that a kept result is wrong. Later checks
        also fill its outputs with NaN."""
        watched = self._returned
        report = self.check_call(APART, run, seed=seed, planted=True)
        self._returned = [*watched, *self._returned]
        return report

    def compare_repeats(self, run: Callable[[], Any], repeats: int) -> CheckReport:
        """Returns a report with `bits`, a hash of all that a call of `run` on the loaded inputs returns or writes, and
        `bit_equal`: whether `repeats` calls give the same bits. It has no figures."""
        first = self._copy_results(run)
        equal = True
        for _ in range(repeats - 1):
            again = self._copy_results(run)
            equal = equal and len(again) == len(first) and all(map(poison.is_bit_equal, first, again))
        return CheckReport(repeats=repeats, bit_equal=equal, bits=hash_bits(first))

    def _copy_results(self, run: Callable[[], Any]) -> list[torch.Tensor]:
        """Calls `run`; returns copies of the tensors that it returned, then of the input parts that it writes."""
        returned = [tensor.clone() for tensor in poison.tensors_in(run())]
        return returned + list(self._own.copy_written().values())

    def _judge_call(
        self, check: str, loaded: Tensors, expected: Expected, poisoned: bool, *, twice: bool = False
    ) -> Generator[None, Any, tuple[list[str], list[ErrorFigures]]]:
        """Poisons outputs, yields for a call, and judges what it returned and wrote; returns (problems in words, error
        figures).

        The inputs are as in `loaded` afterwards.
        poisoned   whether known outputs are filled with NaN before the call
        twice      judge a second call on the inputs as the first call left them: timed calls run on what the previous
                   one wrote, so a backend must work there too, and must not return an old result
        """
        with self._time_part("poison"):
            if poisoned:
                self._poison_outputs(expected)
        reveals = count_reveals()
        with self._time_part("call"), poison.spare_memory(self._own.written_in_place):
            raw = yield
            if twice:
                for tensor in poison.tensors_in(raw):
                    poison.fill(tensor)
                raw = yield
            told = count_reveals() != reveals
        with self._time_part("inputs unchanged"):
            returned = self._copy_returned(raw)
            written = self._own.copy_written()
            changed = [f"{check}: {text}" for text in self._own.restore_and_list_changes(loaded)]
            aliased = self._list_alias_problems(check, raw)
            if not aliased:  # a result that lies there is read first, or it could not be compared
                self._own.destroy()
            self._own.put_back(written)
        with self._time_part("compare"):
            found, figures = self._reader.judge(check, raw, expected, written)
            if not self._read_once and not found:
                self._read_once = True
                read = functools.partial(self._reader.select_outputs, expected=expected)
                late = late_work.list_problems(raw, read, self._own.written_in_place)
                found += [f"{check}: {text}" for text in late]
            found += [f"{check}: {text}" for text in late_work.list_late_writes(returned)]
        with self._time_part("poison"):
            self._own.restore(loaded)
        self._returned = []
        self.watch(raw)
        return [f"{check}: {READ_REFERENCE}"] * told + aliased + found + changed, figures

    @contextlib.contextmanager
    def _time_part(self, part: str) -> Iterator[None]:
        """Adds the seconds spent in the block to part `part` of the report; waits for a GPU's queued work first."""
        started = time.perf_counter()
        try:
            yield
            self._wait()
        finally:
            self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - started

    def _copy_returned(self, raw: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns (tensor, copy made now) for each tensor on the judge's device that a call returned, except in the
        memory of an input or of a stored reference."""
        return [(own, own.clone()) for own in self._results_in(raw) if own.device.type == self._device]

    def _results_in(self, raw: Any) -> list[torch.Tensor]:
        """Returns the tensors that a call returned, except in the memory of an input or of a stored reference."""
        kept = (tensor for tensor in poison.tensors_in(raw) if not self._own.has_memory_of(tensor))
        return [tensor for tensor in kept if not self._references.has_memory_of(tensor)]

    def _wait(self) -> None:
        """Waits until the GPU has done all queued work; does nothing on a CPU."""
        if self._device != "cpu":
            import torch

            torch.cuda.synchronize()

    def _poison_outputs(self, expected: Expected) -> None:
        for tensor in self._returned:
            poison.fill(tensor)
        poison.fill_free_blocks((tensor, expected.yardsticks[name].dtype) for name, tensor in expected.sealed.items())

    def _list_alias_problems(self, check: str, raw: Any) -> list[str]:
        if any(self._own.has_memory_of(tensor, writable=False) for tensor in poison.tensors_in(raw)):
            return [f"{check}: the result lies in the memory of an input; a result must be memory of its own"]
        return []


def advance(checking: Checking, raw: Any = None) -> CheckReport | None:
    """Sends `raw`, the result of the last call (None to start), to a check. Returns None if another call is due, or the
    report if the check is done."""
    try:
        checking.send(raw)
    except StopIteration as done:
        report: CheckReport = done.value
        return report
    return None

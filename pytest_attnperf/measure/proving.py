"""Proves calls and replays of one case right, on inputs that are loaded into the memory that they read.

Also finds code that the reference shares with the function under test, because a fault there would be in both.

Also finds inputs of a gated function that hardly affect its result: a kernel that ignores one passes every comparison.
A branch scaled by 1e-5, for example, is below the rounding step of the value it is added to. As these inputs show no
error, this is only a note.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.budget import PLANTED, TIMED, list_problems
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.metrics import MismatchError, compare_output
from pytest_attnperf.correctness.outside_tensors import OutsideTensors
from pytest_attnperf.correctness.own_inputs import written_in_place
from pytest_attnperf.correctness.references import Expected, References
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.measure.out_of_memory import free_cached_memory
from pytest_attnperf.records import SECONDS_DIGITS, CheckReport, DeviceInfo
from pytest_attnperf.records.gpus import REFERENCES_SHARE
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.garbage import place_garbage
from pytest_attnperf.workloads.input_notes import notes_on_unseen
from pytest_attnperf.workloads.precision import autocast_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_attnperf.backends import Backend, Outputs, Prepared, Tensors
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.records import Tolerance
    from pytest_attnperf.workloads.base import Workload

NAMED_MOST = 3

NOT_OURS = ("torch", "triton", "numpy", "pytest_attnperf", "_pytest", "pluggy")
"""Packages whose code every function uses."""


class RecordedReferences(References):
    """References that the flight recorder names, if a case that hangs runs a second time."""

    def compute_expected(self, workload: Workload, inputs: Tensors, *, seed: int, planted: bool) -> Expected:
        """Returns the reference's results as `References` does, and records this as a launch in the flight recorder."""
        with flight_recorder.launch(f"the reference of {workload.id}"):
            return super().compute_expected(workload, inputs, seed=seed, planted=planted)


_references = RecordedReferences()
"""Shared by the cases of a process: all backends of a workload are compared with one reference."""


def free_idle_memory(memory_bytes: int) -> None:
    """Frees cached memory, and references beyond a share of the GPU's memory (0: unknown), for its other processes."""
    if memory_bytes:
        _references.limit_memory(memory_bytes / REFERENCES_SHARE)
    free_cached_memory()


def forget_references() -> None:
    """Frees the expected results that the cases of this process share."""
    _references.clear()


def with_autocast_named(report: CheckReport) -> CheckReport:
    """Returns the report; that of a wrong result gets a problem more if autocast is on.
    The reference is computed without autocast, which may be why the result differs."""
    if report.right or not (devices := autocast_devices()):
        return report
    text = (
        f"autocast is on for {' and '.join(devices)} around the call, but the reference is computed without it; if "
        "this is intended, enable it inside the gated function and inside its reference"
    )
    return replace(report, problems=(*report.problems, text))


class TimedWrongError(CaseFailedError):
    """Checked calls were right, but what is timed computes something else: a replay, or a call inside a block.

    `report` shows what.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(report.problems))
        self.report = report


class Prover:
    """Makes judges for one case, wherever its inputs are in memory, and loads its inputs.

    cost   seconds of passing proofs between check and finish, which the final report adds
    """

    def __init__(self, backend: Backend, workload: Workload, device: DeviceInfo, seeds: Seeds) -> None:
        self.backend = backend
        self.workload = workload
        self.device = device
        self.seeds = seeds
        self.cost = CheckReport()
        self._outside: OutsideTensors | None = None
        self._first: weakref.ref[Prepared] | None = None

    @property
    def case(self) -> str:
        """The case's name, for messages."""
        return f"{self.backend.name} on {self.workload.id}"

    def make_judge(self, prepared: Prepared) -> Judge:
        """Makes a judge of calls that read the inputs of `prepared`.

        The first use must pass the case's own preparation, not a copy: `prove_replay` never fills its inputs with NaN.
        """
        self._first = self._first or weakref.ref(prepared)
        return Judge(
            prepared,
            self.workload,
            references=_references,
            tolerance=self.backend.tolerance,
            device=self.device.torch_device,
        )

    def load_timed_inputs(self, prepared: Prepared) -> None:
        """Loads the inputs on which every process times the workload into the memory of `prepared`."""
        import torch

        inputs = self.workload.make_inputs(self.seeds.timed, self.device.torch_device, planted=False)
        with torch.no_grad():
            prepared.load(inputs)

    def load_check_inputs(self, prepared: Prepared) -> None:
        """Loads the inputs on which replays are proven into the memory of `prepared`.
        They are planted: some of their elements change the result visibly if a kernel loses them. Unused elements hold
        NaN and Inf."""
        import torch

        inputs = self.workload.make_inputs(self.seeds.check, self.device.torch_device, planted=True)
        with torch.no_grad():
            prepared.load(place_garbage(self.workload, inputs, self.seeds.check).inputs)

    def watch_outside(self, inputs: Tensors) -> None:
        """Records the tensors that a gated function's reference reads beside its inputs; call it before the function.
        Built-in workloads have no such tensors."""
        reference = getattr(self.workload, "learned", None)
        self._outside = None if reference is None else OutsideTensors(reference, inputs)

    def with_outside(self, report: CheckReport, prepared: Prepared) -> CheckReport:
        """Returns the report with a problem for each tensor of `watch_outside` that calls have changed since."""
        if self._outside is None or not self._outside.watched_names:
            return report
        started = time.perf_counter()
        found = self._outside.list_problems(prepared.tensors)
        spent = round(time.perf_counter() - started, SECONDS_DIGITS)
        return report.merge_with(CheckReport(problems=found, seconds=spent, parts={"outside tensors": spent}))

    def check_beside(self, workload: Workload) -> CheckReport:
        """Judges the backend's results for `workload`, another one than the case times but that it is to cover, too."""
        prover = Prover(self.backend, workload, self.device, self.seeds)
        inputs = workload.make_inputs(self.seeds.timed, self.device.torch_device, planted=False)
        prepared = self.backend.prepare(workload, inputs)
        judge = prover.make_judge(prepared)
        judge.watch(prepared.run())
        timed = judge.check_call(TIMED, prepared.run, seed=self.seeds.timed, planted=False)
        planted = judge.check_call(PLANTED, prepared.run, seed=self.seeds.check, planted=True, poisoned=False)
        report = timed.merge_with(planted)
        return report.merge_with(prover.check_apart(prepared, judge)) if report.right else report

    def check_apart(self, prepared: Prepared, judge: Judge) -> CheckReport:
        """Judges outputs that are computed without gradients, and each input's gradient computed alone.

        Loads the timed inputs before and afterwards. Returns an empty report if the case has no gradients.
        """
        apart = prepared.apart
        if apart is None:
            return CheckReport()
        self.load_timed_inputs(prepared)
        prepared.run()  # a result that it keeps may be of other inputs
        report = judge.check_apart(lambda: apart(*prepared.tensors), seed=self.seeds.check)
        self.load_timed_inputs(prepared)
        return replace(report, notes=(*report.notes, *apart.notes))

    def with_warning(self, report: CheckReport, prepared: Prepared) -> CheckReport:
        """Returns the report with a note if a gated function's reference runs code of the function under test.
        The timed inputs must be loaded."""
        reference = getattr(self.workload, "learned", None)
        if reference is None:
            return report
        if reference.fn is getattr(self.backend, "fn", None):
            text = "the reference is the function under test itself: no fault in it is detectable"
        else:
            text = describe_shared_code(
                list_shared_functions(prepared.run, lambda: reference.compute_plain(prepared.tensors))
            )
        return replace(report, notes=(*report.notes, text)) if text else report

    def with_input_notes(self, report: CheckReport) -> CheckReport:
        """Returns the report with notes on faults that no check shows, e.g. in inputs that hardly affect the result."""
        notes: tuple[str, ...] = getattr(self.workload, "input_notes", ())
        redraws = Redraws(
            self.workload,
            self.seeds,
            references=_references,
            tolerance=self.backend.tolerance,
            device=self.device.torch_device,
        )
        return replace(report, notes=(*report.notes, *notes, *notes_on_unseen(redraws.list_unseen_inputs())))

    def prove_replay(self, judge: Judge, run: Callable[[], Any], *, poisoned: bool) -> None:
        """Checks a replay on inputs other than the captured ones, which shows values fixed at capture and skipped work.

        poisoned   see `Judge.check_call`; `run` must use the same value

        Raises TimedWrongError if the result is wrong; else adds the check's seconds to `cost`.
        """
        # A block over several copies also ends on the case's own inputs. If a call returns these and they were filled
        # with NaN, the last result in a buffer that all calls share would be NaN.
        own = self._first() if self._first is not None else None
        with poison.spare_memory(written_in_place(own, self.workload) if own is not None else ()):
            report = judge.check_call("replay", run, seed=self.seeds.check, planted=True, poisoned=poisoned)
        if not report.right:
            problems = tuple(f"eager right, replay wrong: {problem}" for problem in report.problems)
            raise TimedWrongError(replace(report, problems=problems))
        self.note_cost(report)

    def note_cost(self, report: CheckReport) -> None:
        """Adds the seconds of `report`, a passing proof between the first check and the last, to `cost`."""
        self.cost = self.cost.merge_with(CheckReport(seconds=report.seconds, parts=report.parts))


def list_shared_functions(fn: Callable[[], Any], reference: Callable[[], Any]) -> list[str]:
    """Lists functions that both `fn()` and `reference()` enter, as 'name (file:line)', in the order that `fn` has.

    Only Python functions outside torch, Triton and the standard library count. A kernel counts as shared if the
    function that launches it is.
    """
    ours, theirs = _list_entered_code(fn), _list_entered_code(reference)
    return [
        f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        for code in ours
        if code in theirs
    ]


def describe_shared_code(names: list[str]) -> str:
    """Returns a warning that the reference runs these functions of the kernel, too; '' without names."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return (
        f"the reference runs code that the kernel runs, too: {', '.join(names[:NAMED_MOST])}{more}; a fault there "
        "is not detectable"
    )


def _list_entered_code(call: Callable[[], Any]) -> dict[CodeType, None]:
    """Makes a call and returns the code of the user's Python functions that it enters, as keys in that order."""
    entered: dict[CodeType, None] = {}

    def note_call(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            entered.setdefault(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note_call)
    try:
        call()
    finally:
        sys.setprofile(None)
        _restore_profiler(before)
    return {code: None for code in entered if _is_users_code(code.co_filename)}


def _restore_profiler(profiler: Any) -> None:
    """Restores a profiler function; one written in C, as cProfile's, is no function and must enable itself."""
    start = getattr(profiler, "enable", None)
    if start is None:
        sys.setprofile(profiler)
    else:
        start()


@functools.cache
def _is_users_code(filename: str) -> bool:
    """Tells whether a file's code is the user's or a kernel library's; '<string>' and similar are not."""
    path = os.path.realpath(filename)
    return os.path.isabs(filename) and not path.startswith(_list_common_folders())


@functools.cache
def _list_common_folders() -> tuple[str, ...]:
    """Lists the folders of the standard library and of NOT_OURS; `site-packages` within the former is left out."""
    folders = []
    for name in NOT_OURS:
        spec = find_spec(name)
        folders += [os.path.realpath(os.path.dirname(spec.origin)) + os.sep] if spec and spec.origin else []
    library = os.path.realpath(sysconfig.get_paths()["stdlib"])
    own = [
        os.path.join(library, entry) for entry in os.listdir(library) if entry not in ("site-packages", "dist-packages")
    ]
    return tuple(folders + own)


QUICK_SECONDS = 0.05
"""A reference that takes longer than this for one result is not examined."""

REDRAWN = 0x2D5EED
"""Gives redrawn inputs another seed than a check's."""


class Redraws:
    """Redraws one input after the other, and compares the reference's new result with the old one.

    references   hold the expected results of the checks
    tolerance    the backend's
    device       torch's name of it
    """

    def __init__(
        self, workload: Workload, seeds: Seeds, *, references: References, tolerance: Tolerance, device: str
    ) -> None:
        self._workload = workload
        self._seeds = seeds
        self._references = references
        self._tolerance = tolerance
        self._device = device

    def list_unseen_inputs(self) -> tuple[str, ...]:
        """Returns names of inputs that the reference reads, but whose other values leave its result within budget.
        Returns () for a built-in workload, and if the reference is slow."""
        workload = self._workload
        if not isinstance(workload, AdHoc) or not workload.learned.count:
            return ()
        numbers: tuple[int, ...] = tuple(self._list_redrawable(workload))
        for seed, planted in ((self._seeds.check, True), (self._seeds.timed, False)):
            if numbers:
                numbers = self._list_without_effect(workload, numbers, seed, planted=planted)
        return tuple(workload.learned.names[number] for number in numbers)

    def _list_redrawable(self, workload: AdHoc) -> Iterator[int]:
        """Yields the numbers of floating-point inputs that depend on the seed, and that calls only read."""
        known = workload.learned
        for number in range(known.count):
            varies = known.names[number] not in workload.planting.constant_names
            if known.dtypes[number].is_floating_point and varies and number not in known.overwritten_numbers:
                yield number

    def _list_without_effect(
        self, workload: AdHoc, numbers: tuple[int, ...], seed: int, *, planted: bool
    ) -> tuple[int, ...]:
        """Returns those of `numbers` whose inputs hardly matter: other values change the reference's result, but within
        budget. Returns () if the reference takes longer than 0.05 s."""
        inputs = workload.make_inputs(seed, self._device, planted=planted)
        others = workload.make_inputs(seed ^ REDRAWN, self._device, planted=False)
        started = time.perf_counter()
        workload.learned.compute_plain(inputs)
        if time.perf_counter() - started > QUICK_SECONDS:
            return ()
        expected = self._references.compute_expected(workload, inputs, seed=seed, planted=planted)
        return tuple(
            number
            for number in numbers
            if self._is_within_budget(workload, _replace_input(inputs, number, others), expected)
        )

    def _is_within_budget(self, workload: AdHoc, moved: Tensors, expected: Expected) -> bool:
        got, tolerance = workload.learned.compute_plain(moved), self._tolerance
        with expected.reveal() as reference:
            try:
                figures = [
                    compare_output("", name, got[name], truth, expected.yardsticks[name], tolerance)
                    for name, truth in reference.items()
                ]
            except (KeyError, MismatchError):
                return False
            return not list_problems(figures) and not _is_same(workload.learned.compute_truth(moved), reference)


def _replace_input(inputs: Tensors, number: int, others: Tensors) -> Tensors:
    return (*inputs[:number], others[number], *inputs[number + 1 :])


def _is_same(outputs: Outputs, reference: Outputs) -> bool:
    """Tells whether two results are equal in every element; NaN counts as 0."""
    import torch

    return all(torch.equal(outputs[name].nan_to_num(), truth.nan_to_num()) for name, truth in reference.items())

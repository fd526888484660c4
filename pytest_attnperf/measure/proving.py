"""Proving calls and replays of one case right, on inputs put into the very memory that they read.

Whether a reference reaches code that the function under judgement reaches: its faults would then be shared.

Inputs of a gated function that its result hardly shows: a kernel that leaves one out is right by every comparison.

A branch that is scaled by 1e-5 is below the rounding step of what it is added to. Nothing is wrong with such a kernel
as far as these inputs tell, so that it is said in a note.
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
from pytest_attnperf.records import SECONDS_DIGITS, CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.input_notes import notes_on_unseen
from pytest_attnperf.workloads.precision import autocast_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_attnperf.backends import Backend, Outputs, Prepared, Tensors
    from pytest_attnperf.correctness.references import Expected, References
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.records import Tolerance
    from pytest_attnperf.workloads.base import Workload

NAMED_MOST = 3

NOT_OURS = ("torch", "triton", "numpy", "pytest_attnperf", "_pytest", "pluggy")
"""Packages whose code everybody uses."""


class RecordedReferences(References):
    """References whose computation a second run of a case that hangs can name."""

    def compute_expected(self, workload: Workload, inputs: Tensors, *, seed: int, planted: bool) -> Expected:
        """As `References.compute_expected`."""
        with flight_recorder.launch(f"the reference of {workload.id}"):
            return super().compute_expected(workload, inputs, seed=seed, planted=planted)


_references = RecordedReferences()
"""Shared by the cases of a process: all backends of a workload are held against one reference."""


def forget_references() -> None:
    """Free what the references of this process hold."""
    _references.clear()


def with_autocast_named(report: CheckReport) -> CheckReport:
    """A wrong result's report, with what is to be done where autocast is on: the reference is computed without it."""
    if report.right or not (devices := autocast_devices()):
        return report
    text = (
        f"autocast is on for {' and '.join(devices)} around the call, and the reference is computed without it: where "
        "that is meant, enter it in the function that is gated and in its reference"
    )
    return replace(report, problems=(*report.problems, text))


class TimedWrongError(CaseFailedError):
    """Checked calls were right, and what is timed computes something else: a replay, or a call inside a block.

    `report` shows what.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(report.problems))
        self.report = report


class Prover:
    """Judges of one case, wherever in memory its inputs lie, and the inputs that it is timed on.

    cost   seconds of passing proofs between check and finish, which the final report says
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
        """The case, for messages."""
        return f"{self.backend.name} on {self.workload.id}"

    def make_judge(self, prepared: Prepared) -> Judge:
        """A judge of calls that read the inputs of `prepared`; the case's own come first."""
        self._first = self._first or weakref.ref(prepared)
        return Judge(
            prepared,
            self.workload,
            references=_references,
            tolerance=self.backend.tolerance,
            device=self.device.torch_device,
        )

    def load_timed_inputs(self, prepared: Prepared) -> None:
        """Put the workload's own inputs, on which every process times it, into the memory of `prepared`."""
        import torch

        inputs = self.workload.make_inputs(self.seeds.timed, self.device.torch_device, planted=False)
        with torch.no_grad():
            prepared.load(inputs)

    def load_check_inputs(self, prepared: Prepared) -> None:
        """Put the planted inputs that replays are proven on into the memory of `prepared`."""
        import torch

        inputs = self.workload.make_inputs(self.seeds.check, self.device.torch_device, planted=True)
        with torch.no_grad():
            prepared.load(inputs)

    def watch_outside(self, inputs: Tensors) -> None:
        """Remember what a user's reference reads beside its inputs; the function has not been called yet."""
        reference = getattr(self.workload, "learned", None)
        self._outside = None if reference is None else OutsideTensors(reference, inputs)

    def with_outside(self, report: CheckReport, prepared: Prepared) -> CheckReport:
        """The report, with what calls have changed of that as problems."""
        if self._outside is None or not self._outside.watched_names:
            return report
        started = time.perf_counter()
        found = self._outside.list_problems(prepared.tensors)
        spent = round(time.perf_counter() - started, SECONDS_DIGITS)
        return report.merge_with(CheckReport(problems=found, seconds=spent, parts={"outside tensors": spent}))

    def check_beside(self, workload: Workload) -> CheckReport:
        """Judge calls of the same backend on another workload that the case stands for, too."""
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
        """Judge the results of a right function with gradients where nobody asks for them, and where for one only.

        The timed inputs are loaded before and afterwards.
        """
        apart = prepared.apart
        if apart is None:
            return CheckReport()
        self.load_timed_inputs(prepared)
        prepared.run()  # what it may keep is of other inputs
        report = judge.check_apart(lambda: apart(*prepared.tensors), seed=self.seeds.check)
        self.load_timed_inputs(prepared)
        return replace(report, notes=(*report.notes, *apart.notes))

    def with_warning(self, report: CheckReport, prepared: Prepared) -> CheckReport:
        """The report, with a note where a user's reference runs the code of the kernel. The timed inputs are loaded."""
        reference = getattr(self.workload, "learned", None)
        if reference is None:
            return report
        if reference.fn is getattr(self.backend, "fn", None):
            text = "the reference is the very function that is judged: no fault of it can be seen"
        else:
            text = describe_shared_code(
                list_shared_functions(prepared.run, lambda: reference.compute_plain(prepared.tensors))
            )
        return replace(report, notes=(*report.notes, text)) if text else report

    def with_input_notes(self, report: CheckReport) -> CheckReport:
        """The report, with what no check of these inputs can see, where the workload says so."""
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
        """Replay on inputs other than those captured: a value baked in at capture then shows, as does work not done.

        poisoned   see `Judge.check_call`; `run` must be told the same

        Raises TimedWrongError.
        """
        # A block over several copies also ends on the case's own inputs: poisoned where they are returned, a result of
        # NaN would be the last in a buffer that all calls share.
        own = self._first() if self._first is not None else None
        with poison.spare_memory(written_in_place(own, self.workload) if own is not None else ()):
            report = judge.check_call("replay", run, seed=self.seeds.check, planted=True, poisoned=poisoned)
        if not report.right:
            problems = tuple(f"eager right, replay wrong: {problem}" for problem in report.problems)
            raise TimedWrongError(replace(report, problems=problems))
        self.note_cost(report)

    def note_cost(self, report: CheckReport) -> None:
        """Keep what a passing proof between check and finish took."""
        self.cost = self.cost.merge_with(CheckReport(seconds=report.seconds, parts=report.parts))


def list_shared_functions(fn: Callable[[], Any], reference: Callable[[], Any]) -> list[str]:
    """Functions that calls of both enter, as 'name (file:line)', the first entered first.

    Of Python's functions only those defined outside torch, Triton and the standard library count; what a kernel
    launches is shared where the function that launches it is.
    """
    ours, theirs = _list_entered_code(fn), _list_entered_code(reference)
    return [
        f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        for code in ours
        if code in theirs
    ]


def describe_shared_code(names: list[str]) -> str:
    """What is said of shared code; '' where there is none."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return (
        f"the reference runs code that the kernel runs, too: {', '.join(names[:NAMED_MOST])}{more}; a fault there "
        "would not be seen"
    )


def _list_entered_code(call: Callable[[], Any]) -> dict[CodeType, None]:
    """Code of the functions that a call enters, in order."""
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
    """A function as it was; a profiler of C code (cProfile's) is no function, and starts itself again."""
    start = getattr(profiler, "enable", None)
    if start is None:
        sys.setprofile(profiler)
    else:
        start()


@functools.cache
def _is_users_code(filename: str) -> bool:
    """Whether code of a file is the user's, or a library's that holds kernels; '<string>' and the like are not."""
    path = os.path.realpath(filename)
    return os.path.isabs(filename) and not path.startswith(_list_common_folders())


@functools.cache
def _list_common_folders() -> tuple[str, ...]:
    """Folders of the standard library and of packages that everybody uses; `site-packages` lies within the former."""
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
"""Nothing is asked of a reference that takes longer than this for one result."""

REDRAWN = 0x2D5EED
"""Makes the seed of redrawn inputs another than that of a check."""


class Redraws:
    """Redraws one input after the other, and compares what the reference then gives with what it gave.

    references   hold what checks were held against
    tolerance    the backend's
    device       what torch takes
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
        """Names of the inputs that the reference reads, and that could be others without making a result wrong, neither
        for planted nor for timed inputs; none where it is slow."""
        workload = self._workload
        if not isinstance(workload, AdHoc) or not workload.learned.count:
            return ()
        numbers: tuple[int, ...] = tuple(self._list_redrawable(workload))
        for seed, planted in ((self._seeds.check, True), (self._seeds.timed, False)):
            if numbers:
                numbers = self._list_without_effect(workload, numbers, seed, planted=planted)
        return tuple(workload.learned.names[number] for number in numbers)

    def _list_redrawable(self, workload: AdHoc) -> Iterator[int]:
        """Numbers of floating-point inputs that differ from seed to seed, and that calls only read."""
        known = workload.learned
        for number in range(known.count):
            varies = known.names[number] not in workload.planting.constant_names
            if known.dtypes[number].is_floating_point and varies and number not in known.overwritten_numbers:
                yield number

    def _list_without_effect(
        self, workload: AdHoc, numbers: tuple[int, ...], seed: int, *, planted: bool
    ) -> tuple[int, ...]:
        """Those of the numbers that change the result by less than its budget, though they change it."""
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
    """Whether nothing at all has changed: such an input is not read, which is said elsewhere."""
    import torch

    return all(torch.equal(outputs[name].nan_to_num(), truth.nan_to_num()) for name, truth in reference.items())

"""Takes the profile of a judged case, in a process that only profiles, and determines what bounds the case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_attnperf.baselines.ceilings_store import ceilings_for
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import AttnperfError, BaselineError
from pytest_attnperf.records import DeviceInfo, Launch, NotProvenRightError, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, DeviceCeilings
from pytest_attnperf.results import CaseResult
from pytest_attnperf.roofline.bound import classify_bound
from pytest_attnperf.roofline.floors import MARGIN, UNRELIABLE
from pytest_attnperf.workers.look import take_profile

if TYPE_CHECKING:
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.environment.device_specs import DeviceSpec
    from pytest_attnperf.session.looking import RunBench
    from pytest_attnperf.session.settings import Case

PROFILE_PLACE = 990
"""Place of the process that profiles all cases one after the other, and times none."""

NOT_RIGHT = frozenset({Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED})
"""Verdicts of cases that are not profiled: where a wrong result spends its time is of no interest."""


def with_profile(bench: RunBench, case: Case, result: CaseResult) -> CaseResult:
    """Profiles the case and adds its kernel times and what limits it, or a note why not. Never changes the verdict.

    A wrong case stays unchanged. One without a time is not profiled; its own first note is the reason.
    """
    if result.verdict in NOT_RIGHT:
        return result
    if result.median_us is None and result.notes:
        return _mark_not_profiled(result, result.notes[0])
    try:
        profile = take_profile(bench.pool, PROFILE_PLACE, bench.make_request(case, None))
    except (AttnperfError, NotProvenRightError) as error:
        return _mark_not_profiled(result, _in_one_line(error))
    known = bench.pool.last_ready()
    assert known is not None, "a process has just answered"
    return replace(result, profile=replace(profile, bound=bound_of(result, profile, known.device, bench.store)))


def _mark_not_profiled(result: CaseResult, why: str) -> CaseResult:
    return replace(result, notes=(*result.notes, Note(NoteKind.NOT_PROFILED, f"not profiled: {why}")))


def bound_of(result: CaseResult, profile: CaseProfile, device: DeviceInfo, store: BaselineStore) -> BoundVerdict:
    """Returns what limits the case's speed (compute, memory, ...), or UNDECIDED with the reason. Uses the time measured
    without the profiler, which slows down what it observes."""
    if result.median_us is None or result.figures is None:
        return BoundVerdict(
            BoundClass.UNDECIDED,
            "no time was taken: this run only checks, and a profiler's durations are no measurement",
            "pytest --attnperf --attnperf-profile, which times the case first",
        )
    spec = spec_for(device)
    try:
        ceilings = _find_ceilings(store, device, spec)
    except BaselineError as error:
        return BoundVerdict(BoundClass.UNDECIDED, f"the stored ceilings cannot be used: {error}", "a sound file")
    return classify_bound(
        result.figures,
        result.median_us,
        spec=spec,
        ceilings=ceilings,
        launches=result.launches or launches_of(profile),
        code=result.code,
    )


def launches_of(profile: CaseProfile) -> tuple[Launch, ...] | None:
    """Returns the GPU kernels that one call launched, from its profile; None if it has only CPU operators."""
    kernels = [kernel for kernel in profile.kernels if kernel.shape.kind != "operator"]
    return tuple(kernel.shape.as_launch(len(kernel.durations_ns) / profile.calls) for kernel in kernels) or None


def _find_ceilings(store: BaselineStore, device: DeviceInfo, spec: DeviceSpec | None) -> DeviceCeilings | None:
    """Returns the ceilings from the first root that has some for this device; None if none has.

    Raises BaselineError for an invalid file, and for a figure that `attnperf doctor --calibrate` would have refused.
    """
    found = next((found for root in store.roots if (found := ceilings_for(root, device)) is not None), None)
    if found is None or spec is None or spec.confidence == UNRELIABLE:
        return found
    rates = {name: (rate, spec.peak_flops(name)) for name, rate in found.flops_per_s.items()}
    rates["copy"] = (found.copy_bytes_per_s or 0.0, spec.peak_bytes_per_s)
    rates["read"] = (found.read_bytes_per_s or 0.0, spec.peak_bytes_per_s)
    for name, (rate, peak) in rates.items():
        if peak is not None and rate > peak * (1 + MARGIN):
            raise BaselineError(
                f"`{name}` is {rate:.4g} per second, above the peak {peak:.4g} of {spec.name}; "
                "measure again: attnperf doctor --calibrate"
            )
    return found


def _in_one_line(error: Exception) -> str:
    """Returns an error's first line; what follows is a log or a traceback."""
    lines = str(getattr(error, "summary", error)).splitlines()
    return lines[0] if lines else type(error).__name__

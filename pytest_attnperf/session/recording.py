"""Records one case: measures it in several fresh processes, all of which must be right and run this tree's code."""

from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    join_measurement,
    median_us_of,
    reject_mixed_paths,
    reject_other_tree,
    result_from_look,
    with_figures,
    with_replaced_entry,
)
from pytest_attnperf.session.looking import RECORD_PLACES, RECORDING, RunBench, group_canaries
from pytest_attnperf.session.second_looks import confirm_rotation
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.workers.doing import DOING, Unit
from pytest_attnperf.workers.look import Ending, Look
from pytest_attnperf.workers.shared_gpus import SharedGpuPool, in_turns


def record_case(bench: RunBench, case: Case) -> CaseResult:
    """Measures a case in `processes` fresh processes. RECORDED only if each was right, and all ran this tree's code on
    one path (else INCOMPARABLE) in a plausible time (else SUSPICIOUS).

    The result holds them by process number, in whatever order they measured. Raises WorkerError if a worker fails, and
    CaseFailedError if the case raises there.
    """
    settings = bench.settings
    places = range(RECORD_PLACES, RECORD_PLACES + settings.processes)
    bench.renew_processes(case)
    bench.pool.start(places)
    following = case.next_key if settings.mode in RECORDING else None
    if not isinstance(bench.pool, SharedGpuPool):
        bench.collect_canaries(places)  # every process is up before the first one measures
    taken: dict[int, tuple[Look, dict[str, ProcessSummary]]] = {}
    with in_turns(bench.pool, places) as order:
        for place in DOING.track_steps(Unit.RECORDING, order, len(places)):
            canary = bench.pool.measure_canary(place)  # before its first case; known from then on
            # One process checks whether a kernel remembers its results, and a second one where it seems to.
            first = place == RECORD_PLACES
            look = bench.look(place, case, settings.plan, following, rotate=first, trials=first)
            if look.ending is not Ending.MEASURED:
                return bench.make_unmeasured_result(case, look)
            taken[place] = look, canary
    looks = [taken[place][0] for place in places]
    measurement = join_measurement(looks)
    base = with_figures(result_from_look(case, Verdict.RECORDED, "", looks[0]), bench.device_at(RECORD_PLACES))
    base = replace(
        base,
        first=measurement.processes,
        median_us=median_us_of(measurement.processes),
        checks=measurement.proof,
        peak_memory_bytes=measurement.peak_memory_bytes,
        canary=group_canaries([taken[place][1] for place in places]),
        source_id=base.source_id if len({look.final.source_id for look in looks}) == 1 else "",
    )
    foreign = reject_other_tree(base, looks) or reject_mixed_paths(base, looks)
    if foreign is not None:
        return replace(foreign, fails=settings.mode is RunMode.UPDATE)
    rotated = confirm_rotation(bench, case, looks[0], RECORD_PLACES + 1, base)
    if rotated.ending is not Ending.MEASURED:
        return bench.make_unmeasured_result(case, rotated)
    base = plausibility.judge_by_rotation(bench.apply_floor(base), rotated.rotation)
    if base.verdict is Verdict.SUSPICIOUS:
        return base
    found = bench.find_stored(case)
    differences = bench.list_differences(looks[0], found) if found is not None else []
    return with_replaced_entry(base, case, found, differences, accepted=bool(settings.accepted))


def record_locally(bench: RunBench, case: Case) -> CaseResult:
    """Records the case and, if RECORDED, stores it under .attnperf/local; returns the result. Raises WorkerError,
    CaseFailedError, and BaselineError if it cannot be stored."""
    recorded = record_case(bench, case)
    if recorded.verdict is not Verdict.RECORDED:
        return recorded
    device, entry = bench.device_at(), {case.key.entry: new_entry(recorded, bench.commit)}
    try:
        merge_entries(bench.store, bench.local_root, device.arch, device.product, case.key.suite, entry)
    except OSError as error:
        raise BaselineError(f"nothing was recorded: {error}; make room, or give write permission") from error
    return recorded

"""Recording one case: measured in several fresh processes, all of which must be right and run this tree's code."""

from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    from_another_tree,
    from_look,
    joined_measurement,
    median_us_of,
    of_mixed_paths,
    recorded_over,
    with_figures,
)
from pytest_attnperf.session.looking import RECORD_PLACES, RECORDING, Bench, by_name
from pytest_attnperf.session.second_looks import confirmed
from pytest_attnperf.session.settings import Case, Mode
from pytest_attnperf.workers.doing import DOING, Unit
from pytest_attnperf.workers.look import Ending, Look
from pytest_attnperf.workers.shared_gpus import SharedGpuPool, in_turns


def record(bench: Bench, case: Case) -> CaseResult:
    """Measure in `processes` fresh processes; RECORDED only if every one was right and ran this tree's code.

    They are stored in the order of their places, in whatever order they measured.

    Raises as `take_look`.
    """
    settings = bench.settings
    places = range(RECORD_PLACES, RECORD_PLACES + settings.processes)
    bench.renew(case)
    bench.pool.start(places)
    following = case.next_key if settings.mode in RECORDING else None
    if not isinstance(bench.pool, SharedGpuPool):
        bench.canary(places)  # every process is up before the first one measures
    taken: dict[int, tuple[Look, dict[str, ProcessSummary]]] = {}
    with in_turns(bench.pool, places) as order:
        for place in DOING.steps(Unit.RECORDING, order, len(places)):
            canary = bench.pool.canary(place)  # before its first case; known from then on
            # One process asks whether a kernel remembers its results, and another one where it seems to.
            look = bench.look(place, case, settings.plan, following, rotate=place == RECORD_PLACES)
            if look.ending is not Ending.MEASURED:
                return bench.not_measured(case, look)
            taken[place] = look, canary
    looks = [taken[place][0] for place in places]
    measurement = joined_measurement(looks)
    base = with_figures(from_look(case, Verdict.RECORDED, "", looks[0]), bench.device(RECORD_PLACES))
    base = replace(
        base,
        first=measurement.processes,
        median_us=median_us_of(measurement.processes),
        checks=measurement.proof,
        peak_memory_bytes=measurement.peak_memory_bytes,
        canary=by_name([taken[place][1] for place in places]),
        source_id=base.source_id if len({look.final.source_id for look in looks}) == 1 else "",
    )
    foreign = from_another_tree(base, looks) or of_mixed_paths(base, looks)
    if foreign is not None:
        return replace(foreign, fails=settings.mode is Mode.UPDATE)
    rotated = confirmed(bench, case, looks[0], RECORD_PLACES + 1, base)
    if rotated.ending is not Ending.MEASURED:
        return bench.not_measured(case, rotated)
    base = plausibility.by_rotation(bench.plausible(base), rotated.rotation)
    if base.verdict is Verdict.SUSPICIOUS:
        return base
    return recorded_over(base, case, bench.find(case), accepted=bool(settings.accepted))


def record_here(bench: Bench, case: Case) -> CaseResult:
    """The case, stored under .attnperf/local where it is RECORDED. Raises as `record`, and BaselineError."""
    recorded = record(bench, case)
    if recorded.verdict is not Verdict.RECORDED:
        return recorded
    device, entry = bench.device(), {case.key.entry: new_entry(recorded, bench.commit)}
    try:
        merge_entries(bench.store, bench.local_root, device.arch, device.product, case.key.suite, entry)
    except OSError as error:
        raise BaselineError(f"nothing was recorded: {error}; make room, or give write permission") from error
    return recorded

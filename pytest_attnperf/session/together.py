"""Measures a case on all cards: alone in turns, then on all at once. Shows scaling and interference, gates nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.records import Samples, Verdict
from pytest_attnperf.records.gpus import Together, TogetherGpu, short_name
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    join_measurement,
    median_us_of,
    reject_other_tree,
    result_from_look,
    unmeasured_result,
    with_figures,
)
from pytest_attnperf.session.looking import RunBench
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.workers.at_once import AtOnceLook, AtOncePlan, CardTimes, take_at_once
from pytest_attnperf.workers.look import Ending, Look

DRIFT = 0.03
"""Largest allowed difference of a card's two medians alone: beyond it the card changed while it was measured."""

LOOKS = 2.0
"""Budget of each round, in looks: a power limit acts within a tenth of a second. All rounds take equally long: in a
longer simultaneous round, a larger part would follow the card's first boost and look like interference."""

DRIFTED = "drifted while it was measured:"
"""Begins a note on cards whose times alone, before and after, differ by more than DRIFT."""

SAME_CARD = "several workers are on one card:"
"""Begins a note on workers that share a card: interference then does not come from another card."""


def measure_together(bench: RunBench, case: Case) -> CaseResult:
    """Measures a case on every GPU, each alone and all at once; returns RIGHT with the times in `together`, or the
    result on a GPU where it is wrong or cannot run.

    Raises WorkerError if a process died; CaseFailedError if the case raised, there are fewer than two GPUs, or they had
    to use different timers.
    """
    tokens: Sequence[str] = getattr(bench.pool, "gpus", ())
    if len(tokens) < 2:
        raise CaseFailedError(
            f"--attnperf-together needs at least two GPUs, and this run has {len(tokens)}; make more of them visible"
        )
    settings = bench.settings
    plan = AtOncePlan(
        seconds=LOOKS * settings.plan.budget_us / 1e6,
        timer=settings.plan.timer,
    )
    names = [short_name(token) if token.startswith(("GPU-", "MIG-")) else f"GPU {token}" for token in tokens]
    taken = take_at_once(bench.pool, names, bench.make_request(case, None), plan)
    if not taken.times or any(look.ending is not Ending.RIGHT for look in taken.looks):
        return _not_on_all(case, names, taken)
    timers = sorted({times.plan.timer for times in taken.times})
    if len(timers) > 1:
        raise CaseFailedError(f"cards were timed by different timers, {', '.join(timers)}; name one: --attnperf-timer")
    return _make_result(case, names, taken)


def _not_on_all(case: Case, names: Sequence[str], taken: AtOnceLook) -> CaseResult:
    """Returns the worst result over the cards (wrong, failed, unsupported, skipped, not to be timed), with its card."""
    order = (Ending.INCORRECT, Ending.BODY_FAILED, Ending.UNSUPPORTED, Ending.SKIPPED, Ending.RIGHT)
    worst = min(range(len(taken.looks)), key=lambda index: order.index(taken.looks[index].ending))
    look, name = taken.looks[worst], names[worst]
    reasons = tuple(f"{name}: {reason}" for reason in look.reasons)
    return unmeasured_result(case, replace(look, reasons=reasons))


def _make_result(case: Case, names: Sequence[str], taken: AtOnceLook) -> CaseResult:
    """Returns RIGHT with the times of every card; SUSPICIOUS if below the shortest time possible on the device,
    INCOMPARABLE if code of another tree ran."""
    looks = [_single_card_look(look, times) for look, times in zip(taken.looks, taken.times, strict=True)]
    gpus = tuple(_make_gpu(times) for times in taken.times)
    found = Together(gpus, taken.times[0].plan.timer, taken.overlap_s)
    measurement, device = join_measurement(looks), taken.times[0].ready.device
    base = with_figures(result_from_look(case, Verdict.RIGHT, format_together(found), looks[0]), device)
    base = replace(
        base,
        together=found,
        first=measurement.processes,
        median_us=median_us_of(measurement.processes),
        checks=measurement.proof,
        peak_memory_bytes=measurement.peak_memory_bytes,
        notes=(*base.notes, *_list_weaknesses(names, taken)),
    )
    foreign = reject_other_tree(base, looks)
    return plausibility.judge_by_floor(base, spec_for(device)) if foreign is None else foreign


def _single_card_look(look: Look, times: CardTimes) -> Look:
    """Returns the look as MEASURED, with the card's times alone: before and after all cards ran at once."""
    plan, ready = times.plan, times.ready
    samples = Samples(
        times.before_us + times.after_us, plan.calls_per_block, plan.timer, cache_state=plan.cache_state, note=plan.note
    )
    summary = summarise_process(samples, ready.device.device_id, f"pid {ready.pid}")
    return replace(look, ending=Ending.MEASURED, summary=summary, note=plan.note)


def _make_gpu(times: CardTimes) -> TogetherGpu:
    return TogetherGpu(
        times.ready.device.device_id,
        alone_us=statistics.fmean(map(statistics.median, (times.before_us, times.after_us))),
        together_us=statistics.median(times.together_us),
        blocks=len(times.together_us),
    )


def format_together(found: Together) -> str:
    """Returns e.g. 'on 2 GPUs at once: 1.99x of one, worst interference 0.6 %'."""
    worst = max(gpu.interference for gpu in found.gpus)
    return f"on {len(found.gpus)} GPUs at once: {found.scaling:.2f}x of one, worst interference {worst * 100:.1f} %"


def _list_weaknesses(names: Sequence[str], taken: AtOnceLook) -> list[str]:
    """Returns notes that a card drifted by more than DRIFT, or that several workers share a card; [] if neither."""
    drifts = [
        (name, statistics.median(times.after_us) / statistics.median(times.before_us) - 1)
        for name, times in zip(names, taken.times, strict=True)
    ]
    drifted = [f"{name} {drift * 100:+.1f} %" for name, drift in drifts if abs(drift) > DRIFT]
    ids = [times.ready.device.device_id for times in taken.times]
    twice = sorted({device_id for device_id in ids if device_id and ids.count(device_id) > 1})
    notes = [f"{DRIFTED} {', '.join(drifted)} (alone, after against before)"] if drifted else []
    return [*notes, *([f"{SAME_CARD} {', '.join(map(short_name, twice))}"] if twice else [])]

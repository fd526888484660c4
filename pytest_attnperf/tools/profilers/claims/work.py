"""Checks claims of a kernel's work in its time: passes, FLOPs, bytes, intensity, and its share of a roof."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    Known,
    datasheet_flops,
    format_count,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    Interval,
    exact_interval,
    format_percent,
    format_seconds,
    format_si,
)
from pytest_attnperf.tools.profilers.claims.records import Computing, Moving

ROUGH = 0.05
"""Most relative difference of a rate from useful work over time: reports may count the FLOPs of the softmax or not."""


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields the findings on a report's total time, passes, launch, FLOPs, bytes, intensity and roofs."""
    yield from _assess_total(known)
    yield from _assess_passes(known)
    yield from _assess_launch(known)
    yield from _assess_computing(known)
    yield from _assess_moving(known)
    yield from _assess_against_dram(known)
    yield from _assess_intensity(known)
    yield from _assess_roof(known)
    yield from _assess_own_roof(known)


def _assess_total(known: Known) -> Iterator[ProfileFinding]:
    said = known.claims.performance
    if not (said.calls and said.total and said.per_call):
        return
    product = said.per_call.time.interval.multiply_by(exact_interval(said.calls.count))
    text = f"{said.calls.count} x {said.per_call.time.text} = {format_seconds(product.middle)}"
    if product.can_equal(said.total.time.interval):
        yield make_agreement("total time", said.total.said, f"{said.total.said}: {text}")
    else:
        yield make_contradiction("total time", said.total.said, text)


def _assess_passes(known: Known) -> Iterator[ProfileFinding]:
    model, calls = known.claims.model, known.claims.performance.calls
    if model.passes is None:
        return
    said = model.passes.said
    if calls is None or not model.layers:
        yield make_open_finding("passes", said, f"{said}: calls of a kernel and layers per pass are not both given")
        return
    count, rest = divmod(calls.count, model.layers)
    if rest:
        text = f"{calls.count} calls do not divide by {format_count(model.layers, 'layer')}"
        yield make_open_finding("passes", said, f"{said}: {text}", text)
        return
    text = f"{calls.count} calls = {count} x {model.layers} layers: {count} forward pass{'' if count == 1 else 'es'}"
    if count == model.passes.count:
        yield make_agreement("passes", said, f"{said}: {text}")
    else:
        more = "; was a warm-up profiled too?" if count > model.passes.count else ""
        yield make_contradiction("passes", said, f"{text}{more}")


def _assess_launch(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding if the launch of an attention kernel is given: it holds if the number of workgroups is a
    multiple of heads x sequences, else it is undecided."""
    kernel, model = known.claims.kernel, known.claims.model
    groups = known.grid
    if groups is None or not model.heads or not model.sequences or kernel.family != "attention":
        return
    count, needed = math.prod(groups), model.heads * model.sequences
    said = f"{model.sequences} sequences x {model.heads} heads per call"
    text = f"the launch has {' x '.join(map(str, groups))} = {format_count(count, 'workgroup')}"
    if count % needed == 0:
        yield make_agreement(
            "launch", said, f"{said}: {text}, {format_count(count // needed, 'workgroup')} for each head of each"
        )
    else:
        yield make_open_finding("launch", said, f"{said}: {text}, no multiple of {needed}; persistent workgroups?")


def _assess_computing(known: Known) -> Iterator[ProfileFinding]:
    said = known.claims.performance.computing
    if said is None:
        return
    yield from _assess_share(said)
    if known.flops is None or known.call_s is None:
        text = f"{said.said}: the work of a call, or its time, is not given"
        yield make_open_finding("rate of computing", said.said, text)
        return
    nominal = exact_interval(known.flops).divide_by(known.call_s)
    implied = said.rate.interval.multiply_by(known.call_s)
    work = f"{format_si(known.flops, 'FLOP', 4)} per call in {format_seconds(known.call_s.middle)} are "
    work += f"{format_si(nominal.middle, 'FLOP/s')} nominal"
    if _is_near(nominal, said.rate.interval):
        yield make_agreement("rate of computing", said.said, f"{said.said}: {work}")
    else:
        text = (
            f"{work}; {said.rate.text} would be {format_si(implied.middle, 'FLOP')} per "
            f"call{_describe_missing_work(implied.middle, known)}"
        )
        yield make_contradiction("rate of computing", said.said, text)
    peak = datasheet_flops(known.spec, known.claims.model.dtype) if known.spec else None
    if peak and max(nominal.low, said.rate.interval.low) > peak[0][0]:
        text = (
            f"above the device's {format_si(peak[0][0], 'FLOP/s')} ({peak[1]}): work is left out, or the "
            f"time is not its own"
        )
        yield make_contradiction("peak exceeded", said.said, text)


def _describe_missing_work(implied: float, known: Known) -> str:
    """Returns a text that says which part of a call's FLOPs `implied` (FLOPs by the reported rate) is: about those of
    one sequence, of one head, or a share in percent."""
    flops, model = known.flops or 0.0, known.claims.model
    for count, word in ((model.sequences or 1, "sequence"), (model.heads or 1, "head")):
        part = flops / count
        if count > 1 and abs(implied / part - 1) < 0.2:
            return f", about one {word} ({format_si(part, 'FLOP', 4)}) of {count}: was the factor {count} left out?"
    return f", {format_percent(implied / flops)} of that"


def _assess_share(said: Computing | Moving) -> Iterator[ProfileFinding]:
    if said.percent is None or said.peak is None:
        return
    rule = "share of bandwidth" if isinstance(said, Moving) else "share of computing"
    share = said.rate.interval.divide_by(said.peak.interval)
    text = f"{said.rate.text} / {said.peak.text} = {format_percent(share.middle)}"
    if share.can_equal(said.percent.interval):
        yield make_agreement(rule, said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction(rule, said.said, text)


def _assess_moving(known: Known) -> Iterator[ProfileFinding]:
    said = known.claims.performance.moving
    if said is None:
        return
    yield from _assess_share(said)
    if known.least_bytes is None or known.call_s is None:
        yield make_open_finding("bandwidth", said.said, f"{said.said}: the bytes of a call, or its time, are not given")
        return
    implied = said.rate.interval.multiply_by(known.call_s)
    least = known.least_bytes
    text = (
        f"{format_si(implied.middle, 'B')} per call, where inputs and output alone are {format_si(least, 'B')} "
        f"({format_si(least / known.call_s.middle, 'B/s')} in {format_seconds(known.call_s.middle)})"
    )
    if implied.high >= least * (1 - ROUGH):
        yield make_agreement("bandwidth", said.said, f"{said.said}: {text}")
    elif said.counters and known.describe_cache_fit(least):
        yield make_open_finding(
            "bandwidth", said.said, f"{said.said}: {text}; {known.describe_cache_fit(least)}, and counters were read"
        )
    else:
        yield make_contradiction("bandwidth", said.said, text)


def _assess_against_dram(known: Known) -> Iterator[ProfileFinding]:
    if known.least_bytes is None or known.call_s is None or known.spec is None:
        return
    least, peak = known.least_bytes, known.spec.peak_bytes_per_s
    rate = exact_interval(least).divide_by(known.call_s)
    said = f"{format_si(least, 'B')} in {format_seconds(known.call_s.middle)}"
    text = (
        f"the least traffic of a call over its time is {format_si(rate.middle, 'B/s')}, the device has "
        f"{format_si(peak, 'B/s')}"
    )
    if rate.high <= peak:
        yield make_agreement("faster than memory", said, f"{said}: {text}")
        return
    fits = known.describe_cache_fit(least)
    if fits:
        should = f"{format_si(rate.middle, 'B/s')} > {format_si(peak, 'B/s')}: cache-resident, or the work is not done"
        more = f"{said}: {text}. Either they come from a cache ({fits}), or the work is not done: compare the outputs"
        yield make_open_finding("faster than memory", said, more, should)
    else:
        yield make_contradiction("faster than memory", said, f"{text}, and no cache holds them: the work is not done")


def _assess_intensity(known: Known) -> Iterator[ProfileFinding]:
    performance = known.claims.performance
    said = performance.intensity
    if said is None:
        return
    if performance.computing and performance.moving:
        rates = performance.computing.rate.interval.divide_by(performance.moving.rate.interval)
        top, bottom = performance.computing.rate.text, performance.moving.rate.text
        text = f"{top} / {bottom} = {rates.middle:.3g} FLOP/B"
        if rates.can_equal(said.intensity.interval):
            yield make_agreement("intensity of the rates", said.said, f"{said.said}: {text}")
        else:
            apart = max(rates.middle, said.intensity.interval.middle) / min(
                rates.middle, said.intensity.interval.middle
            )
            yield make_contradiction("intensity of the rates", said.said, f"{text}, {apart:.3g} times apart")
    if known.flops and known.least_bytes:
        true = known.flops / known.least_bytes
        text = (
            f"{format_si(known.flops, 'FLOP', 4)} / {format_si(known.least_bytes, 'B')} = {true:.3g} FLOP/B "
            f"with the least traffic"
        )
        if _is_near(exact_interval(true), said.intensity.interval):
            yield make_agreement("intensity of the work", said.said, f"{said.said}: {text}")
        else:
            yield make_contradiction("intensity of the work", said.said, text)


def _assess_roof(known: Known) -> Iterator[ProfileFinding]:
    said = known.claims.performance.memory_roof
    if said is None:
        return
    product = said.bandwidth.interval.multiply_by(said.intensity.interval)
    text = f"{said.bandwidth.text} x {said.intensity.text} = {product.middle / 1e9:,.0f} GFLOP/s"
    if product.can_equal(said.rate.interval):
        yield make_agreement("memory roof", said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction("memory roof", said.said, text)


def _assess_own_roof(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding on the kernel's rate as a share of the lower of the report's memory roof and compute peak. A
    report without this share is contradicted, because only this shows how far the kernel is from its limit."""
    performance = known.claims.performance
    if performance.memory_roof is None or performance.computing is None:
        return
    roof, computing = performance.memory_roof.rate, performance.computing
    lower = roof
    if computing.peak and computing.peak.interval.middle < roof.interval.middle:
        lower = computing.peak
    share = computing.rate.interval.divide_by(lower.interval)
    text = f"{computing.rate.text} / {lower.text} = {format_percent(share.middle)} of its own roof"
    said = performance.own_roof
    if said is None:
        why = "only kernels that read from caches, or do not do the work, are above it"
        if share.low <= 1:
            why = "shares of other peaks do not show how far it is from its limit"
        should = f"{text}, which the report does not give: {why}"
        yield make_contradiction("own roof", computing.said, should)
    elif not share.can_equal(said.percent.interval):
        yield make_contradiction("own roof", said.said, text)
    elif share.low > 1:
        more = f"{said.said}: {text}. Only kernels that read from caches, or do not do the work, are above a roof"
        yield make_open_finding("own roof", said.said, more, "cache-resident, or the work is not done")
    else:
        yield make_agreement("own roof", said.said, f"{said.said}: {text}")


def _is_near(one: Interval, other: Interval) -> bool:
    return Interval(one.low * (1 - ROUGH), one.high * (1 + ROUGH)).can_equal(other)

"""Claims of what a kernel does in its time: passes, FLOPs, bytes, intensity, and how far below which roof."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_attnperf.records.profiles import Finding
from pytest_attnperf.tools.profilers.claims.figures import Interval, exactly, percent, seconds, si
from pytest_attnperf.tools.profilers.claims.records import Computing, Moving
from pytest_attnperf.tools.profilers.claims.rules import Known, agrees, contradicts, datasheet_flops, plural, undecided

ROUGH = 0.05
"""How far a rate may be from useful work over time: FLOPs of the softmax are counted or not."""


def check(known: Known) -> Iterator[Finding]:
    """Every check of these claims."""
    yield from _total(known)
    yield from _passes(known)
    yield from _launch(known)
    yield from _computing(known)
    yield from _moving(known)
    yield from _faster_than_dram(known)
    yield from _intensity(known)
    yield from _roof(known)
    yield from _own_roof(known)


def _total(known: Known) -> Iterator[Finding]:
    said = known.claims.performance
    if not (said.calls and said.total and said.per_call):
        return
    product = said.per_call.time.interval.times(exactly(said.calls.count))
    text = f"{said.calls.count} x {said.per_call.time.text} = {seconds(product.middle)}"
    if product.meets(said.total.time.interval):
        yield agrees("total time", said.total.said, f"{said.total.said}: {text}")
    else:
        yield contradicts("total time", said.total.said, text)


def _passes(known: Known) -> Iterator[Finding]:
    model, calls = known.claims.model, known.claims.performance.calls
    if model.passes is None:
        return
    said = model.passes.said
    if calls is None or not model.layers:
        yield undecided("passes", said, f"{said}: calls of a kernel and layers per pass are not both given")
        return
    count, rest = divmod(calls.count, model.layers)
    if rest:
        text = f"{calls.count} calls do not divide by {plural(model.layers, 'layer')}"
        yield undecided("passes", said, f"{said}: {text}", text)
        return
    text = f"{calls.count} calls = {count} x {model.layers} layers: {count} forward pass{'' if count == 1 else 'es'}"
    if count == model.passes.count:
        yield agrees("passes", said, f"{said}: {text}")
    else:
        more = "; was a warm-up profiled too?" if count > model.passes.count else ""
        yield contradicts("passes", said, f"{text}{more}")


def _launch(known: Known) -> Iterator[Finding]:
    """Whether the launch is large enough to hold every head of every sequence."""
    kernel, model = known.claims.kernel, known.claims.model
    groups = known.grid
    if groups is None or not model.heads or not model.sequences or kernel.family != "attention":
        return
    count, needed = math.prod(groups), model.heads * model.sequences
    said = f"{model.sequences} sequences x {model.heads} heads per call"
    text = f"the launch has {' x '.join(map(str, groups))} = {plural(count, 'workgroup')}"
    if count % needed == 0:
        yield agrees("launch", said, f"{said}: {text}, {plural(count // needed, 'workgroup')} for each head of each")
    else:
        yield undecided("launch", said, f"{said}: {text}, which do not divide by {needed}; persistent workgroups?")


def _computing(known: Known) -> Iterator[Finding]:
    said = known.claims.performance.computing
    if said is None:
        return
    yield from _share(said)
    if known.flops is None or known.call_s is None:
        text = f"{said.said}: the work of a call, or its time, is not given"
        yield undecided("rate of computing", said.said, text)
        return
    nominal = exactly(known.flops).over(known.call_s)
    implied = said.rate.interval.times(known.call_s)
    work = f"{si(known.flops, 'FLOP', 4)} per call in {seconds(known.call_s.middle)} are "
    work += f"{si(nominal.middle, 'FLOP/s')} nominal"
    if _near(nominal, said.rate.interval):
        yield agrees("rate of computing", said.said, f"{said.said}: {work}")
    else:
        text = (
            f"{work}; {said.rate.text} would be {si(implied.middle, 'FLOP')} per call{_missing(implied.middle, known)}"
        )
        yield contradicts("rate of computing", said.said, text)
    peak = datasheet_flops(known.spec, known.claims.model.dtype) if known.spec else None
    if peak and max(nominal.low, said.rate.interval.low) > peak[0][0]:
        text = (
            f"above the device's {si(peak[0][0], 'FLOP/s')} ({peak[1]}): work is left out, or the time is not its own"
        )
        yield contradicts("peak exceeded", said.said, text)


def _missing(implied: float, known: Known) -> str:
    """Which part of the work a rate was made of, where it is about one sequence or one head."""
    flops, model = known.flops or 0.0, known.claims.model
    for count, word in ((model.sequences or 1, "sequence"), (model.heads or 1, "head")):
        part = flops / count
        if count > 1 and abs(implied / part - 1) < 0.2:
            return f", about one {word} ({si(part, 'FLOP', 4)}) of {count}: was the factor {count} left out?"
    return f", {percent(implied / flops)} of that"


def _share(said: Computing | Moving) -> Iterator[Finding]:
    if said.percent is None or said.peak is None:
        return
    rule = "share of bandwidth" if isinstance(said, Moving) else "share of computing"
    share = said.rate.interval.over(said.peak.interval)
    text = f"{said.rate.text} / {said.peak.text} = {percent(share.middle)}"
    if share.meets(said.percent.interval):
        yield agrees(rule, said.said, f"{said.said}: {text}")
    else:
        yield contradicts(rule, said.said, text)


def _moving(known: Known) -> Iterator[Finding]:
    said = known.claims.performance.moving
    if said is None:
        return
    yield from _share(said)
    if known.least_bytes is None or known.call_s is None:
        yield undecided("bandwidth", said.said, f"{said.said}: the bytes of a call, or its time, are not given")
        return
    implied = said.rate.interval.times(known.call_s)
    least = known.least_bytes
    text = (
        f"{si(implied.middle, 'B')} per call, where inputs and output alone are {si(least, 'B')} "
        f"({si(least / known.call_s.middle, 'B/s')} in {seconds(known.call_s.middle)})"
    )
    if implied.high >= least * (1 - ROUGH):
        yield agrees("bandwidth", said.said, f"{said.said}: {text}")
    elif said.counters and known.in_cache(least):
        yield undecided("bandwidth", said.said, f"{said.said}: {text}; {known.in_cache(least)}, and counters were read")
    else:
        yield contradicts("bandwidth", said.said, text)


def _faster_than_dram(known: Known) -> Iterator[Finding]:
    if known.least_bytes is None or known.call_s is None or known.spec is None:
        return
    least, peak = known.least_bytes, known.spec.peak_bytes_per_s
    rate = exactly(least).over(known.call_s)
    said = f"{si(least, 'B')} in {seconds(known.call_s.middle)}"
    text = f"the least traffic of a call over its time is {si(rate.middle, 'B/s')}, the device has {si(peak, 'B/s')}"
    if rate.high <= peak:
        yield agrees("faster than memory", said, f"{said}: {text}")
        return
    fits = known.in_cache(least)
    if fits:
        should = f"{si(rate.middle, 'B/s')} > {si(peak, 'B/s')}: cache-resident, or the work is not done"
        more = f"{said}: {text}. Either they come from a cache ({fits}), or the work is not done: compare the outputs"
        yield undecided("faster than memory", said, more, should)
    else:
        yield contradicts("faster than memory", said, f"{text}, and no cache holds them: the work is not done")


def _intensity(known: Known) -> Iterator[Finding]:
    performance = known.claims.performance
    said = performance.intensity
    if said is None:
        return
    if performance.computing and performance.moving:
        rates = performance.computing.rate.interval.over(performance.moving.rate.interval)
        top, bottom = performance.computing.rate.text, performance.moving.rate.text
        text = f"{top} / {bottom} = {rates.middle:.3g} FLOP/B"
        if rates.meets(said.intensity.interval):
            yield agrees("intensity of the rates", said.said, f"{said.said}: {text}")
        else:
            apart = max(rates.middle, said.intensity.interval.middle) / min(
                rates.middle, said.intensity.interval.middle
            )
            yield contradicts("intensity of the rates", said.said, f"{text}, {apart:.3g} times apart")
    if known.flops and known.least_bytes:
        true = known.flops / known.least_bytes
        text = f"{si(known.flops, 'FLOP', 4)} / {si(known.least_bytes, 'B')} = {true:.3g} FLOP/B with the least traffic"
        if _near(exactly(true), said.intensity.interval):
            yield agrees("intensity of the work", said.said, f"{said.said}: {text}")
        else:
            yield contradicts("intensity of the work", said.said, text)


def _roof(known: Known) -> Iterator[Finding]:
    said = known.claims.performance.memory_roof
    if said is None:
        return
    product = said.bandwidth.interval.times(said.intensity.interval)
    text = f"{said.bandwidth.text} x {said.intensity.text} = {product.middle / 1e9:,.0f} GFLOP/s"
    if product.meets(said.rate.interval):
        yield agrees("memory roof", said.said, f"{said.said}: {text}")
    else:
        yield contradicts("memory roof", said.said, text)


def _own_roof(known: Known) -> Iterator[Finding]:
    """The share of the roof that the report itself draws: the only one that says how far a kernel is from it."""
    performance = known.claims.performance
    if performance.memory_roof is None or performance.computing is None:
        return
    roof, computing = performance.memory_roof.rate, performance.computing
    lower = roof
    if computing.peak and computing.peak.interval.middle < roof.interval.middle:
        lower = computing.peak
    share = computing.rate.interval.over(lower.interval)
    text = f"{computing.rate.text} / {lower.text} = {percent(share.middle)} of its own roof"
    said = performance.own_roof
    if said is None:
        why = "only kernels that read from caches, or do not do the work, are above it"
        if share.low <= 1:
            why = "shares of peaks that do not bind it say nothing of how far it is"
        should = f"{text}, which is never said: {why}"
        yield contradicts("own roof", computing.said, should)
    elif not share.meets(said.percent.interval):
        yield contradicts("own roof", said.said, text)
    elif share.low > 1:
        more = f"{said.said}: {text}. Above a roof are only kernels that read from caches, or do not do the work"
        yield undecided("own roof", said.said, more, "cache-resident, or the work is not done")
    else:
        yield agrees("own roof", said.said, f"{said.said}: {text}")


def _near(one: Interval, other: Interval) -> bool:
    return Interval(one.low * (1 - ROUGH), one.high * (1 + ROUGH)).meets(other)

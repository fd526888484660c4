"""Checks claims by arithmetic: ratios, gains and their parts, tile sizes, speeds. Also finds claims without evidence.

A search visits nodes and evaluates most of them with the network. Nodes that a cache or the rules of the game answer
need no evaluation, so nodes/s = evaluations/s / (1 - their share). A benchmark of the network alone has no such nodes:
lc0's `backendbench` (src/tools/backendbench.cc) prints batch size x batches / seconds as nps, which are evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pytest_attnperf.records.profiles import ProfileFinding, ProfileSummary
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    ELEMENT_BYTES,
    Known,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    Interval,
    exact_interval,
    format_percent,
    format_seconds,
)
from pytest_attnperf.tools.profilers.claims.records import (
    Expectation,
    GainPartsClaim,
    Ratio,
    Recommendation,
    SpeedClaim,
    Speedup,
    TileSize,
)

NS_PER_S = 1e9
BESIDE = "were they measured without the profiler, at another batch size, or is the warm-up in the GPU time?"


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding for each of a report's speeds, ratios, gains, speedups, tile sizes, expectations and
    recommendations."""
    yield from _assess_speeds(known)
    for ratio in known.claims.ratios:
        yield from _assess_ratio(ratio)
    for parts in known.claims.gains:
        yield from _assess_gain_parts(parts)
    for speedup in known.claims.speedups:
        yield _assess_speedup(speedup)
    for size in known.claims.sizes:
        yield _assess_tile_size(size)
    for expectation in known.claims.expectations:
        yield _assess_expectation(expectation)
    for recommendation in known.claims.recommendations:
        yield _assess_recommendation(recommendation, known)


def _assess_ratio(said: Ratio) -> Iterator[ProfileFinding]:
    if not said.top.is_comparable(said.bottom):
        yield make_contradiction("ratio", said.said, f"{said.top.text} and {said.bottom.text} are of different units")
        return
    ratio = said.top.interval.divide_by(said.bottom.interval)
    # A bottom that was rounded to 0 may be as small as 0, so the ratio has no upper limit.
    equals = "is at least" if math.isinf(ratio.high) else "="
    text = f"{said.top.text} / {said.bottom.text} {equals} {ratio.middle:.4g}"
    if ratio.can_equal(said.ratio.interval):
        yield make_agreement("ratio", said.said, f"{said.said}: {text}{_format_rounding(ratio, said)}")
    else:
        yield make_contradiction("ratio", said.said, text)
    factor = said.ratio.interval.middle
    if said.word and 0 < factor < 1:
        turned = format_percent(said.bottom.interval.middle / said.top.interval.middle - 1, 2)
        text = f"{turned} {said.word}: 'x times {said.word}' with a factor below 1 says the opposite"
        yield make_contradiction("wording of the ratio", said.said, text)


def _format_rounding(ratio: Interval, said: Ratio) -> str:
    """Returns a remark with the ratio's range if the quotient of the printed figures is not the claimed one to its last
    digit, so that only their rounding explains it; '' otherwise."""
    middle = said.top.interval.middle / said.bottom.interval.middle if said.bottom.interval.middle else math.inf
    inside = said.ratio.interval.low <= middle <= said.ratio.interval.high
    return "" if inside else f" ({ratio.low:.4g} to {ratio.high:.4g} by their decimals)"


def _assess_gain_parts(said: GainPartsClaim) -> Iterator[ProfileFinding]:
    lows = [part.interval.low for part in said.parts]
    highs = [part.interval.high for part in said.parts]
    most = max(sum(highs), math.prod(1 + high for high in highs) - 1)
    least = min(sum(lows), math.prod(1 + low for low in lows) - 1)
    words = " and ".join(part.text for part in said.parts)
    text = f"{words} reach {format_percent(sum(highs))} at most ({format_percent(most)} multiplied)"
    if Interval(least, most).can_equal(said.whole.interval):
        yield make_agreement("parts of the gain", said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction("parts of the gain", said.said, text)
    if said.share is not None:
        limit = _compute_gain_limit(said.share.interval.high)
        text = (
            f"{said.share.text} of the time cannot give more than {format_percent(limit)} overall, taking none at all"
        )
        if said.whole.interval.low > limit:
            yield make_contradiction("gain beyond the share", said.said, text)
        else:
            yield make_agreement("gain beyond the share", said.said, f"{said.said}: {text}")


def _compute_gain_limit(share: float) -> float:
    return 1 / (1 - share) - 1 if share < 1 else math.inf


def _gain_from_time(share: float, alone: float) -> float:
    """Returns the gain of the whole, as a fraction, if a part with this share saves `alone` of its time."""
    return 1 / (1 - share * alone) - 1 if share * alone < 1 else math.inf


def _gain_from_speed(share: float, alone: float) -> float:
    """Returns the gain of the whole, as a fraction, if a part with this share of time gets faster by `alone`."""
    if alone <= -1:
        return -1.0
    rest = 1 - share + share / (1 + alone)
    return 1 / rest - 1 if rest > 0 else math.inf


def _compute_overall_gain(share: Interval, alone: Interval, law: Callable[[float, float], float]) -> Interval:
    return Interval(law(share.low, alone.low), law(share.high, alone.high))


def _assess_speedup(said: Speedup) -> ProfileFinding:
    share = said.share.interval
    if share.high >= 1:
        return make_open_finding("gain overall", said.said, f"{said.said}: {said.share.text} is the whole of the time")
    if said.alone is None:
        gains = [(Interval(_compute_gain_limit(share.low), _compute_gain_limit(share.high)), said.overall.interval)]
        text = f"1 / (1 - {said.share.text}) - 1 = {format_percent(_compute_gain_limit(share.middle))}"
    else:
        # The ends of a range are exact; a single figure is rounded.
        ranged = said.alone.interval.low != said.alone.ends[0].low
        alone = [exact_interval(end.middle) if ranged else end for end in said.alone.ends]
        pairs = list(zip(alone, said.overall.ends, strict=True))
        gains = [
            (
                _compute_overall_gain(share, one, _gain_from_speed).merge_with(
                    _compute_overall_gain(share, one, _gain_from_time)
                ),
                end,
            )
            for one, end in pairs
        ]
        ends = " to ".join(
            dict.fromkeys(format_percent(_gain_from_speed(share.middle, one.middle), 2) for one in alone)
        )
        text = f"{said.alone.text} on {said.share.text} of the time are {ends} overall"
    if all(gain.can_equal(end) for gain, end in gains):
        return make_agreement("gain overall", said.said, f"{said.said}: {text}")
    return make_contradiction("gain overall", said.said, text)


def _assess_tile_size(said: TileSize) -> ProfileFinding:
    elements = sum(math.prod(tile) for tile in said.tiles)
    size = elements * ELEMENT_BYTES[said.dtype]
    words = " + ".join(" x ".join(map(str, tile)) for tile in said.tiles)
    text = f"{words} elements of {said.dtype} are {size:,} bytes"
    if said.size.interval.can_equal(exact_interval(size)):
        return make_agreement("size of tiles", said.said, f"{said.said}: {text}")
    counted = (
        f"; {elements:,} is the number of elements" if said.size.interval.can_equal(exact_interval(elements)) else ""
    )
    return make_contradiction("size of tiles", said.said, text + counted)


def _assess_expectation(said: Expectation) -> ProfileFinding:
    rule = f"evidence of {said.what}"
    if said.counters:
        text = f"{said.said}: based on {', '.join(said.counters)}, whose values are not given"
        return make_open_finding(rule, said.said, text)
    text = f"{said.said}: no hardware counter was read, so nothing shows it"
    return make_open_finding(rule, said.said, text, "no counter supports it")


def _assess_recommendation(said: Recommendation, known: Known) -> ProfileFinding:
    rule = "gain promised"
    row = next((row for row in known.claims.table.rows if row.name == said.on), None) if known.claims.table else None
    share = row.percent.interval if row and row.percent else None
    if said.on and share is None:
        return make_open_finding(rule, said.said, f"{said.said}: the table has no share of {said.on!r}")
    text, limit = "", math.inf
    if share is not None and row is not None and row.percent is not None:
        limit = _compute_gain_limit(share.high)
        text = (
            f"{said.on} is {row.percent.text} of the time: "
            f"{format_percent(_compute_gain_limit(share.middle))} overall at most"
        )
    if share is not None and said.alone is not None:
        ends = [format_percent(_gain_from_speed(share.middle, end.middle)) for end in said.alone.ends]
        text += f"; {said.alone.text} on it are {' to '.join(dict.fromkeys(ends))} overall"
    if said.overall is not None and said.overall.interval.low > limit:
        return make_contradiction(rule, said.said, text)
    if said.evidence:
        return make_agreement(
            rule, said.said, f"{said.said}: {text or 'no share is given'}; evidence as given: {said.evidence}"
        )
    what = f"{text}; " if text else ""
    return make_open_finding(
        rule, said.said, f"{said.said}: {what}nothing was measured that supports it", "no measurement"
    )


def _assess_speeds(known: Known) -> Iterator[ProfileFinding]:
    """Yields findings on each speed: nodes from evaluations, and evaluations within the report's GPU time."""
    table, passes = known.claims.table, _count_passes(known)
    for said in known.claims.speeds:
        if said.nodes is None and said.evaluations is None:
            yield make_open_finding(
                "speed", said.said, f"{said.said}: neither nodes nor evaluations per second are given"
            )
            continue
        yield from _assess_nodes(said)
        if passes and table is not None and table.total is not None:
            yield from _assess_within(said, known, passes, table.total.time.interval)


def assess_with_profile(known: Known, summary: ProfileSummary) -> Iterator[ProfileFinding]:
    """Yields for each claimed speed whether the profile's GPU time per forward pass allows it; none without passes."""
    if summary.passes is None or not summary.passes.count or not summary.total_ns:
        return
    seconds = exact_interval((summary.in_passes or summary).total_ns / NS_PER_S)
    for said in known.claims.speeds:
        yield from _assess_within(said, known, summary.passes.count, seconds, "profile: ")


def _count_passes(known: Known) -> int | None:
    """Returns the number of forward passes: calls of the kernel over layers, else as the report says; None if neither
    is given."""
    model, calls = known.claims.model, known.claims.performance.calls
    if calls is not None and model.layers and calls.count % model.layers == 0:
        return calls.count // model.layers
    return model.passes.count if model.passes else None


def derive_nodes(said: SpeedClaim) -> Interval | None:
    """Returns the nodes/s that follow from claimed evaluations/s and the share without one; None without these, or if
    every node may be without."""
    if said.evaluations is None:
        return None
    cached = said.cached.interval if said.cached else exact_interval(0.0)
    if cached.high >= 1:
        return None
    return said.evaluations.interval.divide_by(Interval(1 - cached.high, 1 - cached.low))


def _assess_nodes(said: SpeedClaim) -> Iterator[ProfileFinding]:
    if said.evaluations is None:
        return
    derived = derive_nodes(said)
    if derived is None:
        yield make_open_finding("nodes per second", said.said, f"{said.said}: all nodes may be without an evaluation")
        return
    if said.cached:
        how = f"{said.evaluations.text} / (1 - {said.cached.text}) = {derived.middle:,.0f} nps"
    else:
        how = f"{said.evaluations.text} = {derived.middle:,.0f} nps where every node is evaluated"
    if said.nodes is None or derived.can_equal(said.nodes.interval):
        yield make_agreement("nodes per second", said.said, f"{said.said}: {how}")
    elif said.cached:
        yield make_contradiction("nodes per second", said.said, how)
    else:
        yield make_open_finding(
            "nodes per second", said.said, f"{said.said}: {how}; {_explain(said, said.nodes.interval)}"
        )


def _explain(said: SpeedClaim, nodes: Interval) -> str:
    evaluations = said.evaluations.interval.middle if said.evaluations else math.nan
    if nodes.middle <= evaluations:
        return "fewer nodes than evaluations: were some evaluated ahead, or in vain?"
    return f"{format_percent(1 - evaluations / nodes.middle)} of the nodes must be without an evaluation"


def _assess_within(
    said: SpeedClaim, known: Known, passes: int, seconds: Interval, where: str = ""
) -> Iterator[ProfileFinding]:
    """Yields whether evaluations/s (else nodes/s) fit into `seconds` of GPU time of so many passes. More is open and no
    contradiction, because a trace and a benchmark are different runs."""
    sequences = known.claims.model.sequences
    claimed = said.evaluations or said.nodes
    if not sequences or claimed is None:
        return
    rule = f"{where}evaluations within GPU time"
    most = exact_interval(float(passes * sequences)).divide_by(seconds)
    text = (
        f"{said.said}: {passes} passes of {sequences} in {format_seconds(seconds.middle, 4)} of GPU time are "
        f"{most.middle:,.0f} evaluations/s at most"
    )
    if said.evaluations is None:
        text += ", and as many nps where every node is evaluated"
    if claimed.interval.low <= most.high:
        yield make_agreement(rule, said.said, text)
    else:
        yield make_open_finding(rule, said.said, f"{text}; {BESIDE}", f"{most.middle:,.0f}/s at most")

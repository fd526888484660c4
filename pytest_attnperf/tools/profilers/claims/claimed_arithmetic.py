"""Checks claims by arithmetic: ratios, gains and their parts, tile sizes. Also finds claims without a measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    ELEMENT_BYTES,
    Known,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import Interval, exact_interval, format_percent
from pytest_attnperf.tools.profilers.claims.records import (
    Expectation,
    GainPartsClaim,
    Ratio,
    Recommendation,
    Speedup,
    TileSize,
)


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding for each of a report's ratios, gains, speedups, tile sizes, expectations and recommendations."""
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

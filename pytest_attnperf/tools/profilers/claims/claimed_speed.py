"""Checks claims of nodes and evaluations per second against each other and against the GPU time of a forward pass.

A search visits nodes and evaluates most of them with the network. Nodes that a cache or the rules of the game answer
need no evaluation, so nodes/s = evaluations/s / (1 - their share). A benchmark of the network alone has no such nodes:
lc0's `backendbench` (src/tools/backendbench.cc) prints batch size x batches / seconds as nps, which are evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_attnperf.records.profiles import ProfileFinding, ProfileSummary
from pytest_attnperf.tools.profilers.claims.claim_rules import (
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
from pytest_attnperf.tools.profilers.claims.records import SpeedClaim

NS_PER_S = 1e9
BESIDE = "were they measured without the profiler, at another batch size, or is the warm-up in the GPU time?"


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields findings for each claimed speed: nodes from evaluations, and evaluations within the report's GPU time."""
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
    seconds = exact_interval(summary.total_ns / NS_PER_S)
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

"""Checks claims of what limits a kernel against its work and time on its device, by the rules of `roofline.bound`."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict
from pytest_attnperf.roofline.bound import classify_bound, stalls_of
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    Known,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.records import BoundClaim

MICROSECONDS = 1e6
DTYPES = {"f8": "f8e4m3"}
"""Dtype of a claim -> name in workloads, if they differ."""

CLASSES = {
    "memory": BoundClass.MEMORY,
    "compute": BoundClass.COMPUTE,
    "launch": BoundClass.LATENCY,
    "occupancy": BoundClass.OCCUPANCY,
    "cache": BoundClass.CACHE,
}
"""Bound of a claim -> class. 'instruction latency' has none: only what shows stalls decides it."""

REACHED = (BoundClass.COMPUTE, BoundClass.MEMORY)
"""Classes of a call that reaches most of a roof, which one that waits for its own instructions does not."""


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding for each claim of a report about what limits its kernel."""
    found = _classify_work(known) if known.claims.verdicts else None
    for said in known.claims.verdicts:
        if said.bound == "instruction latency" and (found is None or found.bound not in REACHED):
            yield _leave_latency_open(said, found, known.claims.device.arch if known.claims.device else "")
        elif found is not None and known.doubted_work:
            text = f"by work and time {found.bound.value}, but {known.doubted_work}"
            yield make_open_finding(_rule_of(said), said.said, f"{said.said}: {text}", known.doubted_work)
        else:
            yield _assess_bound(said, found)


def _classify_work(known: Known) -> BoundVerdict | None:
    """Returns what limits a call by its work and time; None if one of them or the device is not known. Inputs count as
    hot (in cache), because calls follow each other."""
    if known.flops is None or known.call_s is None or known.spec is None:
        return None
    dtype = known.claims.model.dtype
    launch = Launch(known.claims.kernel.name, grid=known.grid or (), block=known.claims.kernel.workgroup or ())
    figures = WorkloadFigures(known.flops, known.least_bytes, DTYPES.get(dtype, dtype), "hot")
    return classify_bound(figures, known.call_s.middle * MICROSECONDS, spec=known.spec, launches=[launch])


def _leave_latency_open(said: BoundClaim, found: BoundVerdict | None, arch: str) -> ProfileFinding:
    """Returns an open finding on a claim of instruction latency, with what work and time show and what would decide.

    Neither a class below a roof nor a kernel trace confirms or refutes it: a call whose bytes come from a cache may
    wait for its own instructions, and may not."""
    text = f"{said.said}: neither work and time nor a kernel trace show how long instructions wait"
    if found is not None:
        text += f"; by work and time {found.bound.value}: {found.reason}"
    if said.counters:
        text += f"; based on {', '.join(said.counters)}, whose values are not given"
    return make_open_finding(
        _rule_of(said), said.said, f"{text}; to decide: {stalls_of(arch)}", "no stall was measured"
    )


def _rule_of(said: BoundClaim) -> str:
    return f"not bound by {said.bound}" if said.denied else f"bound by {said.bound}"


def _assess_bound(said: BoundClaim, found: BoundVerdict | None) -> ProfileFinding:
    rule = _rule_of(said)
    if found is None:
        return make_open_finding(
            rule, said.said, f"{said.said}: the work of a call, its time or the device is not given"
        )
    if found.bound is BoundClass.UNDECIDED:
        read = f"; based on {', '.join(said.counters)}, whose values are not given" if said.counters else ""
        text = f"{said.said}: {found.bound.value}: {found.reason}{read}; to decide: {found.decide}"
        return make_open_finding(rule, said.said, text)
    text = f"by work and time {found.bound.value}"
    if said.denied and CLASSES.get(said.bound) is not found.bound:
        return make_agreement(rule, said.said, f"{said.said}: {text}")
    text += f": {found.reason}" + (f"; to confirm: {found.decide}" if found.decide else "")
    if not said.denied and CLASSES.get(said.bound) is found.bound:
        return make_agreement(rule, said.said, f"{said.said}: {text}")
    return make_contradiction(rule, said.said, text)

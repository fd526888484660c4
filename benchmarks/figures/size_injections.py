"""Chooses the injected slowdowns on this GPU and measures how large they really are; `collect.py` runs it once.

    python benchmarks/figures/size_injections.py --out injections.json

The true size is the ratio of slowed and plain blocks replayed in turns (A B B A) in one process, each the mean over two
places in memory. It is measured apart from everything that the gate decides by.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "suite"))

from figures_cases import COPY, INJECTED, LABELS, case_name, groups
from figures_injection import Injection, part, with_extra_calls

from pytest_attnperf.workers.conversation import BlockPlan
from pytest_attnperf.workers.interleave import InterleavePlan

_IN_PAIRS, _IN_PROCESSES = InterleavePlan().block_us, BlockPlan().block_us
BLOCK_US = {"slow05": _IN_PAIRS, "slow1": _IN_PAIRS, "slow3": _IN_PROCESSES, "slow5": _IN_PROCESSES}
"""Length of the blocks each label is used with: half and one per cent in pairs, three and five against a store."""

LEAST_EXTRA_US = 6.0
"""A launch takes at least a few microseconds: a smaller addition cannot be made before every call."""

WHOLE_CALLS_WITHIN = 0.25
"""Whole extra calls are taken where they hit the nominal size within this share of it."""

ROWS = tuple(64 * count for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64))
PLACES = 2
PROBE_STEPS = 512


def plan_calls(call_us: float, calls_per_block: int, share: float) -> tuple[int, float]:
    """(every, microseconds each extra call should take) for a slowdown of `share`; 0 microseconds is a whole call."""
    wanted = share * calls_per_block
    whole = round(wanted)
    if whole and abs(whole - wanted) <= WHOLE_CALLS_WITHIN * wanted:
        return max(1, round(calls_per_block / whole)), 0.0
    if share * call_us >= LEAST_EXTRA_US:
        return 1, share * call_us
    extra_calls = math.ceil(wanted)
    return max(1, round(calls_per_block / extra_calls)), wanted * call_us / extra_calls


def closest(costs_us: Mapping[int, float], wanted_us: float) -> int:
    """The rows whose extra call takes most nearly what is wanted."""
    return min(costs_us, key=lambda rows: abs(costs_us[rows] - wanted_us))


def steps_for(share: float, at_none: float, at_probe: float) -> int:
    """Extra steps inside our kernel, from the ratios to the plain kernel at 0 and at PROBE_STEPS steps; at least 1."""
    per_step = (at_probe - at_none) / PROBE_STEPS
    if per_step <= 0:
        raise ValueError(
            f"{PROBE_STEPS} extra steps changed the ratio from {at_none:.5f} to {at_probe:.5f}: no slowdown can be made"
        )
    return max(1, round((1 + share - at_none) / per_step))


def median_us(timer: Any) -> float:
    """Microseconds per call over a few blocks."""
    return float(statistics.median(timer.measure(5)))


def timer_of(call: Callable[[], Any], block_us: float) -> Any:
    """A prepared graph timer."""
    from pytest_attnperf.measure.timers.graph import GraphTimer

    timer = GraphTimer()
    timer.prepare(call, block_us)
    return timer


def ratio(plain: Callable[[], Any], slowed: Callable[[], Any], block_us: float, quads: int) -> float:
    """Slowed over plain: median over quads of summed times, orders alternating."""
    base, new = timer_of(plain, block_us), timer_of(slowed, block_us)
    found = []
    for index in range(quads):
        outer, inner = (base, new) if index % 2 == 0 else (new, base)
        us = [timer.measure(1)[0] for timer in (outer, inner, inner, outer)]
        sums = (us[0] + us[3], us[1] + us[2])
        found.append(sums[1] / sums[0] if outer is base else sums[0] / sums[1])
    base.close()
    new.close()
    return float(statistics.median(found))


def measured(prepared: Any, call: Callable[..., Any], injection: Injection, block_us: float, quads: int) -> Injection:
    """The injection with its true size: mean and standard deviation over PLACES places in memory."""
    from pytest_attnperf.measure.copies import copy_prepared

    sizes = []
    for place in range(PLACES):
        here = prepared if place == 0 else copy_prepared(prepared)
        sizes.append(ratio(here.run, functools.partial(call, *here.tensors), block_us, quads) - 1)
    return replace(injection, true=round(statistics.mean(sizes), 6), true_sd=round(statistics.stdev(sizes), 6))


def sized_library(prepared: Any, label: str, quads: int) -> Injection:
    """Extra calls for a library's kernel."""
    share, block_us = LABELS[label], BLOCK_US[label]
    timer = timer_of(prepared.run, block_us)
    call_us, calls = median_us(timer), int(timer.calls_per_block)
    timer.close()
    every, extra_us = plan_calls(call_us, calls, share)
    rows = 0
    if extra_us:
        longest = max(tensor.shape[2] for tensor in prepared.tensors)
        rows = closest({rows: _slice_us(prepared, rows) for rows in ROWS if rows <= longest}, extra_us)
    injection = Injection("calls", share, every=every, rows=rows, calls_per_block=calls)
    return measured(prepared, with_extra_calls(prepared.call, every, rows), injection, block_us, quads)


def _slice_us(prepared: Any, rows: int) -> float:
    """Microseconds of one call on a slice, back to back."""
    tensors = tuple(part(tensor, rows) for tensor in prepared.tensors)
    timer = timer_of(lambda: prepared.call(*tensors), 300.0)
    try:
        return median_us(timer)
    finally:
        timer.close()


def sized_inside(workload: Any, prepared: Any, label: str, quads: int) -> Injection:
    """Extra steps for our own kernel."""
    from slowed_flash import slowed_call

    share, block_us = LABELS[label], BLOCK_US[label]

    def at(steps: int) -> float:
        call = slowed_call(workload, prepared, steps)
        return ratio(prepared.run, lambda: call(*prepared.tensors), block_us, quads)

    steps = steps_for(share, at(0), at(PROBE_STEPS))
    call = slowed_call(workload, prepared, steps)
    return measured(prepared, call, Injection("inside", share, extra=steps), block_us, quads)


def unmeasured(device: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Nominal injections for a machine where sizes are not measured: whole extra calls, and more bytes."""
    cases = [case_name(*case) for group in groups(device) for case in group.cases]
    calls = {label: asdict(Injection("calls", share, every=round(1 / share))) for label, share in _slow()}
    copies = {label: asdict(Injection("copy", share, share=share)) for label, share in _slow()}
    return {**dict.fromkeys(cases, calls), COPY: copies}


def _slow() -> list[tuple[str, float]]:
    return [(label, share) for label, share in LABELS.items() if share]


def all_sized(quads: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Every case of the GPU's suite, every label. A case that cannot be slowed is left out, and said."""
    import torch

    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.environment.device import identify_device
    from pytest_attnperf.measure.warm_up import warm_device
    from pytest_attnperf.workloads.prefill import Prefill

    registry, device, found = Registry(), identify_device("cuda"), {}
    kernels.register(registry)
    warm_device("cuda")
    for name, identity in INJECTED:
        backend, workload, case = registry.get(name), Prefill.parse(identity), case_name(name, identity)
        if reasons := backend.unsupported_reasons(workload, device):
            print(f"{case}: not slowed: {'; '.join(reasons)}", flush=True)
            continue
        prepared = backend.prepare(workload, workload.make_inputs(1, "cuda", planted=False))
        ours = name == "triton.flash"
        found[case] = {
            label: _said(case, label, sized_inside(workload, prepared, label, quads) if ours
                         else sized_library(prepared, label, quads))
            for label, _ in _slow()
        }  # fmt: skip
        del prepared
        gc.collect()
        torch.cuda.empty_cache()
    return found


def _said(case: str, label: str, injection: Injection) -> dict[str, Any]:
    assert injection.true is not None
    print(f"{case} {label}: {100 * injection.true:+.2f} % true, {injection.describe()}", flush=True)
    return asdict(injection)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--quads", type=int, default=12)
    options = parser.parse_args()
    injections = unmeasured("cpu") if options.device == "cpu" else all_sized(options.quads)
    options.out.write_text(json.dumps(injections, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

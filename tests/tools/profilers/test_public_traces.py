"""Further real traces, of H100, B200, A100, MI210 and MI300X: what is read of them, and which of them have passes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_attnperf.records.profiles import PhaseKind, ProfileSummary
from pytest_attnperf.tools.profilers.profile_summary import summarise_profile
from pytest_attnperf.tools.profilers.reading import read_profile

SAMPLES = Path(__file__).parents[2] / "data" / "profiles" / "public"


class Sample(NamedTuple):
    """What a trace holds: dispatches, passes (None: not to be decided from it), attention per pass with given layers.

    why   a part of the reason
    """

    dispatches: int
    passes: int | None
    why: str
    layers: int | None = None


TRACES = {
    "a100_alexnet": Sample(98, 2, "2 times the same 39 dispatches in one order, with 18 before them"),
    "b200_eager": Sample(929, None, "18 stretches with one call of attention each"),
    "h100_qwen1.5_0.5b": Sample(1707, None, "33 stretches with one call of attention each"),
    "h100_vit": Sample(156, None, "12 stretches with one call of attention each", 12),
    "mi210_gpu_only": Sample(562, None, "17 times the same 5 dispatches in one order"),
    "mi300_bert_small": Sample(61, None, "4 stretches with one call of attention each", 4),
    "mi300_owlv2": Sample(4340, 5, "5 times the same 849 dispatches in one order"),
    "mi300_qwen1.5_0.5b": Sample(1517, None, "33 stretches with one call of attention each"),
    "mi300_resnet_training": Sample(3653, 4, "4 times the same 743 dispatches in one order, with 73 before them"),
    "mi300_timesformer": Sample(449, None, "12 stretches with one call of attention each"),
    "mi300x_sglang_decode": Sample(558, None, "35 stretches with one call of attention each", 36),
    "mi300x_sglang_prefill": Sample(534, None, "35 stretches with one call of attention each", 36),
    "vllm_decode": Sample(434, None, "11 stretches with one call of attention each"),
}


def _summarise(name: str, layers: int | None = None) -> ProfileSummary:
    return summarise_profile(read_profile(SAMPLES / f"{name}.json.gz"), layers=layers)


def test_every_stored_trace_is_tested() -> None:
    """At least twelve, and none lies there without its figures here."""
    assert {path.name.removesuffix(".json.gz") for path in SAMPLES.glob("*.json.gz")} == set(TRACES)
    assert len(TRACES) >= 12


@pytest.mark.parametrize("name", TRACES)
def test_totals_and_passes_of_a_public_trace(name: str) -> None:
    """Calls and time are those of an independent sum. Passes are found where whole ones repeat; where one pass or a
    part of it was recorded, its layers are not taken for passes."""
    sample, found = TRACES[name], _summarise(name)
    events = json.loads(gzip.decompress((SAMPLES / f"{name}.json.gz").read_bytes()))["traceEvents"]
    assert found.calls == len(events) == sample.dispatches
    assert found.total_ns == pytest.approx(1000 * sum(event["dur"] for event in events), abs=2 * len(events))
    assert found.passes is not None
    assert (found.passes.count, sample.why in found.passes.how) == (sample.passes, True)
    assert sum(phase.calls for phase in found.phases) in (0, found.calls)


@pytest.mark.parametrize(("name", "layers"), [(name, one.layers) for name, one in TRACES.items() if one.layers])
def test_given_layers_make_a_recorded_step_one_pass(name: str, layers: int) -> None:
    """One step of a model of so many layers is one pass where this number is given."""
    passes = _summarise(name, layers).passes
    assert passes is not None
    assert (passes.count, passes.layers) == (1, layers)


@pytest.mark.parametrize("name", ["mi300_owlv2", "mi300_resnet_training"])
def test_each_pass_of_a_public_trace_has_its_idle_time(name: str) -> None:
    """The phase of the passes has one share for each, which lies between nothing and everything."""
    found = _summarise(name)
    (passes,) = (phase for phase in found.phases if phase.kind is PhaseKind.PASSES)
    assert len(passes.idle_shares) == TRACES[name].passes
    assert all(0 <= share < 1 for share in passes.idle_shares)

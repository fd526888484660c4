from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.isa.cycle_model import CycleEstimate
from pytest_attnperf.tools.tuner import executed_cycles
from pytest_attnperf.tools.tuner.executed_cycles import EXECUTED_MOST, SampleRun, order_by_execution
from pytest_attnperf.tuning_records import Candidate, StaticFigures, Value
from pytest_attnperf.workloads.prefill import Prefill

STATIC = StaticFigures(128, 0, 0, 32768, peak_share=0.6)
SMALL, LARGE = (Prefill(batch=1, seq_q=64, heads=heads, kv_heads=1, head_dim=64) for heads in (1, 8))


def estimate(share: float, conflicts: int = 0) -> CycleEstimate:
    """An execution at this share of the peak."""
    return CycleEstimate(1, 1, 1000, {"lds": 1200}, conflicts, share, {})


class FakeJob:
    """What the ordering asks of a job."""

    def __init__(self, arch: str = "gfx942") -> None:
        self.arch, self.backend, self.cache = arch, None, Path()
        self.workloads = [SMALL, LARGE]
        self.said: list[str] = []
        self.say = self.said.append


Ordered = Callable[..., tuple[list[str], dict[str, StaticFigures], list[str]]]


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Ordered:
    """Orders candidates 'c0', 'c1' ..., of which executing the n-th gives `found[n]`."""

    def run(found: list[CycleEstimate | Exception], **options: Any) -> Any:
        candidates = [Candidate({"N": number}, f"c{number}") for number in range(len(found))]
        static = {one.id: options.pop("figures", STATIC) for one in candidates}
        seen: list[Any] = []

        def execute(sample: SampleRun, pin: Mapping[str, Value]) -> CycleEstimate:
            seen.append(sample.workload)
            result = found[int(pin["N"])]
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(executed_cycles.SampleRun, "estimate", execute)
        notes: list[str] = []
        job: Any = FakeJob(**options)
        ordered = order_by_execution(job, candidates, static, notes, lambda one: one.values)  # type: ignore[arg-type,return-value]
        assert all(one == LARGE for one in seen)
        return [one.label for one in ordered], static, notes

    return run


def test_conflicts_move_a_candidate_down(order: Ordered) -> None:
    """Of equals by their objects, what loses most of its LDS cycles to bank conflicts is last; its figures say it."""
    labels, static, notes = order([estimate(0.15, 900), estimate(0.4), estimate(0.5)])
    assert labels == ["c2", "c1", "c0"]
    worst = next(one for one in static.values() if one.executed_share == 0.15)
    assert worst.conflict_share == 0.75
    assert "the first 3 are ordered by executed cycles" in notes[0]
    assert "never compared with an AMD GPU" in notes[0]


def test_a_product_in_several_waves_counts_once(order: Ordered) -> None:
    """A kernel that computes every product twice has half of the share."""
    _, static, _ = order([estimate(0.5)], figures=replace(STATIC, repeated=2.0))
    assert [one.executed_share for one in static.values()] == [0.25]


def test_only_the_first_are_executed(order: Ordered) -> None:
    """The rest stay behind them, in their order."""
    many = [estimate(0.1)] * EXECUTED_MOST + [estimate(0.9), estimate(0.8)]
    labels, static, _ = order(many)
    assert labels == [f"c{number}" for number in range(EXECUTED_MOST + 2)]
    assert sum(one.executed_share is not None for one in static.values()) == EXECUTED_MOST


@pytest.mark.parametrize(
    ("options", "found", "told"),
    [
        ({"arch": "gfx1100"}, [estimate(0.1), estimate(0.2)], ""),
        ({"arch": "sm_90"}, [estimate(0.1), estimate(0.2)], ""),
        ({"figures": replace(STATIC, peak_share=None)}, [estimate(0.1), estimate(0.2)], ""),
        ({}, [estimate(0.1), UsageError("v_new_b32 is not implemented")], "c1:N=1 was not executed.*v_new_b32"),
    ],
)
def test_the_order_of_objects_stays(order: Ordered, options: dict, found: list, told: str) -> None:
    """Where cycles are not modelled, or a candidate cannot be executed, which is told."""
    labels, static, notes = order(found, **options)
    assert labels == ["c0", "c1"]
    assert all(one.executed_share is None for one in static.values())
    assert len(notes) == bool(told)
    assert re.search(told, "".join(notes))


@pytest.mark.soak
def test_rows_in_one_bank_are_seen_on_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """triton.flash for gfx942 with loads ahead: tiles that are turned around after they were loaded meet in one bank of
    LDS, those that are loaded as the products read them do not, and are estimated at twice the share of the peak."""
    from kernels.configs import ConfigChoice
    from kernels.triton.prefill.backend import BACKENDS
    from kernels.triton.prefill.space import SPACE, problem_of

    monkeypatch.delitem(os.environ, "TRITON_INTERPRET", raising=False)
    workload = Prefill(batch=1, seq_q=256, heads=8, kv_heads=8, head_dim=128, dtype="bf16", causal=True)
    backend: Any = next(one for one in BACKENDS if one.name == "triton.flash")
    chosen = SPACE.choose("gfx942", problem_of(workload)).rule
    found = {}
    for as_read in (0, 1):
        rule = replace(chosen, config={**chosen.config, "AS_READ": as_read})
        pin = backend.config_entries({SPACE.kernel: ConfigChoice("gfx942", rule)})
        found[as_read] = SampleRun(backend, workload, "gfx942", tmp_path).estimate(pin)
    assert found[0].conflict_cycles > 10 * found[1].conflict_cycles
    assert found[1].peak_share > 2 * found[0].peak_share

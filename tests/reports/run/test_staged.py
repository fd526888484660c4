from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.run.staged import stage_ids, staged_tables
from pytest_attnperf.results import CaseResult
from pytest_attnperf.workloads.attention_stages import AttentionStage
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

Make = Callable[..., CaseResult]

FAMILIES: dict[str, type[AttentionStage]] = {
    "qk_scores": QkScores,
    "causal_mask": CausalMask,
    "row_softmax": RowSoftmax,
    "weighted_values": WeightedValues,
}
PREFILL = "prefill-b1-s512-h8-d64-f16-causal"


@pytest.fixture
def measured(case: Make) -> Callable[..., list[CaseResult]]:
    """Cases by (backend, workload or family of this prefill) -> microseconds, None for one without a time."""

    def make(times: dict[tuple[str, str], float | None], prefill: str = PREFILL) -> list[CaseResult]:
        ids = {**stage_ids(prefill), "prefill": prefill}
        return [
            case(
                backend,
                workload=ids[family],
                median_us=us,
                verdict=Verdict.SAME if us else Verdict.UNSUPPORTED,
            )
            for (backend, family), us in times.items()
        ]

    return make


STAGES = {("hip.staged", family): us for family, us in zip(stage_ids(PREFILL), (40.0, 10.0, 20.0, 30.0), strict=True)}


@pytest.mark.parametrize(
    ("prefill", "ids"),
    [
        (
            "prefill-b2-s64-kv128-h8-hk2-d32-bf16-causal",
            [
                "qk_scores-b2-s64-kv128-h8-hk2-d32-bf16",
                "causal_mask-b2-s64-kv128-h8-f32",
                "row_softmax-b2-s64-kv128-h8-bf16-causal",
                "weighted_values-b2-s64-kv128-h8-hk2-d32-bf16-causal",
            ],
        ),
        ("prefill-b1-s64-h8-d32-f16", ["qk_scores-b1-s64-h8-d32-f16", "row_softmax-b1-s64-h8-f16"]),
        ("prefill-b1-s64-h8-d32-f16-causal-lse", []),
        ("prefill-b1-s64-h8-d32-f16-causal-w16", []),
    ],
)
def test_a_prefill_names_its_stages(prefill: str, ids: list[str]) -> None:
    """A mask only where it is causal; none where attention is more than its four stages. The ids are those of the
    families."""
    found = list(stage_ids(prefill).values())
    assert found[: len(ids)] == ids
    assert len(found) == (0 if not ids else 4 if "causal" in prefill else 3)
    assert [FAMILIES[name.partition("-")[0]].parse(name).id for name in found] == found


def test_the_sum_the_whole_and_the_fused(measured: Callable[..., list[CaseResult]]) -> None:
    """The stages' sum, the staged call and each fused kernel, each over the staged call; the fastest reads largest."""
    whole = {("hip.best", "prefill"): 19.0, ("hip.staged", "prefill"): 95.0}
    (table,) = staged_tables(measured({**STAGES, **whole}))
    assert [column.header for column in table.columns][:2] == ["us", "over hip.staged"]
    assert [row[:3] for row in table.rows] == [
        ("hip.staged, sum of 4", "100.0", "0.95x"),
        ("hip.staged", "95.00", "1.00x"),
        ("hip.best", "19.00", "5.00x"),
    ]
    assert table.rows[0][3:] == ("40.00", "10.00", "20.00", "30.00")
    assert table.notes == ()


def test_without_the_whole_the_sum_is_held_to(measured: Callable[..., list[CaseResult]]) -> None:
    """A library whose staged call was not timed is named, and its stages' sum is what others are over."""
    (table,) = staged_tables(measured({**STAGES, ("hip.best", "prefill"): 20.0}))
    assert [row[:3] for row in table.rows] == [
        ("hip.staged, sum of 4", "100.0", "1.00x"),
        ("hip.best", "20.00", "5.00x"),
    ]
    assert table.notes == (f"hip.staged has no time of: {PREFILL}",)


def test_what_is_missing_is_said(measured: Callable[..., list[CaseResult]]) -> None:
    """A stage without a time leaves no sum; it is named, and so are backends that were not timed, and none fused."""
    times = {**STAGES, ("hip.staged", "row_softmax"): None, ("triton.flash", "prefill"): None}
    (table,) = staged_tables(measured(times))
    assert table.rows == (("hip.staged, sum of 4", "-", "40.00", "10.00", "-", "30.00"),)
    assert table.notes == (
        f"hip.staged has no time of: row_softmax-b1-s512-h8-f16-causal, {PREFILL}",
        "not timed on this workload: triton.flash (UNSUPPORTED)",
        "no fused kernel was timed on this workload",
    )


def test_only_prefills_with_stages_are_shown(measured: Callable[..., list[CaseResult]]) -> None:
    """A prefill alone makes no table, nor do stages of other sizes, nor a workload that was not asked for."""
    other = "prefill-b1-s1024-h8-d64-f16-causal"
    cases = [*measured(STAGES), *measured({("hip.best", "prefill"): 20.0}, other)]
    assert staged_tables(cases) == []
    cases += measured({("hip.best", "prefill"): 20.0})
    assert len(staged_tables(cases)) == len(staged_tables(cases, [PREFILL])) == 1
    assert staged_tables(cases, [other]) == []

"""The staged pipeline: right as a whole and kernel by kernel, what it refuses, what it is compiled as."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels.hip.compiler import load
from kernels.hip.staged import BACKENDS, kernel_of, kernels_of
from kernels.hip.staged_builds import KERNELS
from kernels.staged_backend import STAGES, StagedWorkload, StageProblem
from pytest_attnperf.backends import Pipeline
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.attention_stages import AttentionStage
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues
from tests.kernels.judging import find_wrong_calls

(STAGED,) = BACKENDS
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ALONE = Prefill.parse("prefill-b2-s37-kv70-h4-hk2-d40-f16-causal-lse")

RUNS = (
    ("gfx942", "prefill-b2-s63-h4-hk2-d40-bf16-causal-lse"),
    ("gfx942", "prefill-b1-s70-kv31-h3-hk1-d64-dv96-f16-causal-lse"),
    ("gfx1100", "prefill-b1-s37-kv101-h2-d128-bf16"),
    ("sm_90", "prefill-b1-s19-kv37-h2-hk1-d72-dv17-f16-causal"),
)
"""Both waves, both kinds of lengths, rows that see no key, no mask, and values of another head dimension."""

STAGES_ALONE: tuple[tuple[str, AttentionStage], ...] = (
    ("gfx942", QkScores.parse("qk_scores-b2-s37-kv70-h4-hk2-d40-bf16")),
    ("gfx942", QkScores.parse("qk_scores-b1-s65-h2-d64-f16")),
    ("gfx942", QkScores.parse("qk_scores-b1-s37-kv70-h4-hk2-d111-f16")),
    ("gfx1100", QkScores.parse("qk_scores-b1-s19-h2-d44-bf16")),
    ("gfx942", CausalMask.parse("causal_mask-b2-s3-kv300-h2-f32")),
    ("gfx942", CausalMask.parse("causal_mask-b1-s70-kv31-h2-f32")),
    ("gfx942", RowSoftmax.parse("row_softmax-b2-s9-kv300-h2-f16-causal")),
    ("gfx1100", RowSoftmax.parse("row_softmax-b1-s40-kv31-h2-bf16-causal")),
    ("gfx1100", RowSoftmax.parse("row_softmax-b1-s3-kv257-h1-bf16")),
    ("gfx942", WeightedValues.parse("weighted_values-b2-s37-kv70-h4-hk2-d40-bf16-causal")),
    ("gfx942", WeightedValues.parse("weighted_values-b1-s65-kv33-h2-d96-f16")),
    ("gfx942", WeightedValues.parse("weighted_values-b2-s37-kv70-h4-hk2-d127-bf16-causal")),
    ("gfx1100", WeightedValues.parse("weighted_values-b1-s19-h2-d59-f16")),
)
"""Each family ragged in every tile, with grouped heads, more keys than queries and fewer, both element types; compiled
as in RUNS where that is possible."""


@pytest.mark.parametrize(("arch", "text"), RUNS)
def test_right_on_small_problems(
    arch: str, text: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """The pipeline is within budget, free of races and within its tensors."""
    emulate(arch)
    assert judged(STAGED, text) == ()


@pytest.mark.gpu
def test_right_on_small_problems_on_a_gpu(problems: tuple[str, ...], judged: Callable[..., tuple[str, ...]]) -> None:
    """The compiled kernels are within budget on every problem of the other backends' tests that they take."""
    taken = [text for text in problems if not STAGED.unsupported_reasons(Prefill.parse(text), H200)]
    assert len(taken) > 20
    for text in [*taken, *(text for _, text in RUNS)]:
        assert judged(STAGED, text, "cuda") == (), text


@pytest.mark.parametrize(("arch", "workload"), STAGES_ALONE, ids=lambda value: getattr(value, "id", value))
def test_each_kernel_is_right_alone(arch: str, workload: StagedWorkload, emulate: Callable[[str], None]) -> None:
    """A kernel on the family of its stage is within budget, and writes to what it was given only where it may."""
    emulate(arch)
    assert STAGED.unsupported_reasons(workload, H200) == []
    assert find_wrong_calls(STAGED, workload, "cpu") == ()


@pytest.mark.gpu
@pytest.mark.parametrize("workload", [workload for _, workload in STAGES_ALONE], ids=lambda workload: workload.id)
def test_each_kernel_is_right_alone_on_a_gpu(workload: StagedWorkload) -> None:
    """The same, compiled."""
    assert find_wrong_calls(STAGED, workload, "cuda") == ()


def test_softmax_of_large_scores_and_of_rows_of_nothing(emulate: Callable[[str], None]) -> None:
    """row_softmax gives the log-sum-exp of scores of several hundred; a row of -infinity gives 0 and -infinity."""
    emulate("gfx942")
    import torch

    scores = 200 * torch.randn(1, 2, 3, 300, generator=torch.Generator().manual_seed(1))
    scores[0, 1, 2] = float("-inf")
    scores[0, 0, 1, 7:] = float("-inf")
    problem = StageProblem(1, 3, 300, 2, kv_heads=0, head_dim=0, dtype="f16", causal=False, lse=True)
    weights, lse = STAGED.stage_kernel("row_softmax", problem, torch.device("cpu")).run(scores)
    expected = torch.softmax(scores, -1).nan_to_num(0).half()
    assert weights.float().allclose(expected.float(), rtol=1e-3, atol=1e-6)
    assert lse.allclose(torch.logsumexp(scores, -1), rtol=1e-6)
    assert float(lse[0, 1, 2]) == float("-inf")
    assert not weights[0, 1, 2].any()


def test_the_mask_writes_hidden_scores_alone(emulate: Callable[[str], None]) -> None:
    """causal_mask leaves every score that a row sees as it is, bit by bit, NaN as well: it reads none."""
    emulate("gfx942")
    import torch

    scores = torch.full((1, 1, 2, 4), float("nan"))
    problem = StageProblem(1, 2, 4, 1, kv_heads=0, head_dim=0, dtype="f32", causal=True, lse=False)
    load(kernel_of("causal_mask", problem), torch.device("cpu"))((2, 1, 1), scores, 2, 4, 1)
    assert scores[0, 0].isnan().tolist() == [[True, True, True, False], [True] * 4]
    assert float(scores[0, 0, 0, 3]) == float("-inf")


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Prefill.parse("prefill-b1-s64-h2-d64-f32"), "hip.staged takes bf16, f16, not f32"),
        (RowSoftmax.parse("row_softmax-b1-s64-h2-f32"), "hip.staged takes bf16, f16, not f32"),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_what_it_cannot_do_is_a_reason(workload: StagedWorkload, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit of the kernels is told once, with the value that is beyond it, and nothing else."""
    monkeypatch.setattr("kernels.hip.staged.missing_hip", lambda device: [])
    (said,) = STAGED.unsupported_reasons(workload, H200)
    assert reason in said
    assert STAGED.unsupported_reasons(ALONE, H200) == []


def test_a_missing_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the adapter lacks is passed on, once for all stages."""
    monkeypatch.setattr("kernels.hip.staged.missing_hip", lambda device: ["no compiler"])
    assert STAGED.unsupported_reasons(ALONE, H200) == ["no compiler"]
    assert STAGED.unsupported_reasons(STAGES_ALONE[2][1], H200) == ["no compiler"]


@pytest.mark.parametrize("causal", [False, True])
def test_what_runs_is_declared_and_recorded(causal: bool, emulate: Callable[[str], None]) -> None:
    """Under a causal mask the four kernels, without one three; alone the one."""
    emulate("gfx942")
    workload = Prefill(1, 5, 2, 40, dtype="bf16", causal=causal, lse=True)
    prepared = STAGED.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    names = tuple(kernels_of(workload))
    assert names == tuple(stage for stage in STAGES if causal or stage != "causal_mask")
    assert isinstance(prepared.call, Pipeline)
    assert tuple(stage.name for stage in prepared.call.stages) == prepared.declares.kernels == names
    assert prepared.declares.never == ("scaled_dot_product",)
    assert prepared.config == {"files": " ".join(f"{name}.hip" for name in names)}
    alone = CausalMask.parse("causal_mask-b1-s5-h2-f32")
    assert STAGED.prepare(alone, alone.make_inputs(1, "cpu", planted=False)).config == {"files": "causal_mask.hip"}


def test_builds_differ_in_what_matters() -> None:
    """A build for each set of macros that matters to a kernel."""
    counts = {kernel.name: [build.config for build in kernel.builds("gfx942")] for kernel in KERNELS}
    assert counts == {
        "hip.qk_scores": ["d64-f16", "d128-bf16", "d256-f16"],
        "hip.causal_mask": ["any"],
        "hip.row_softmax": ["f16-plain", "bf16-lse"],
        "hip.weighted_values": ["d64-f16", "d128-bf16", "d256-f16"],
    }

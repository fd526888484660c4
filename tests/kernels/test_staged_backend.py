"""What staged backends share: stages as families and as a pipeline, their problems, layouts, limits and records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from kernels.staged_backend import STAGES, StagedBackend, StageKernel, StageProblem, problem_of, stages_of
from pytest_attnperf.backends import Declares, Pipeline, Tensors
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
PREFILL = Prefill.parse("prefill-b2-s5-kv7-h4-hk2-d16-dv8-f16-causal-lse")
MASK = CausalMask.parse("causal_mask-b1-s4-h2-f32")
VALUES = WeightedValues.parse("weighted_values-b2-s5-kv7-h4-hk2-d8-f16-causal")


@dataclass(frozen=True)
class Noting(StagedBackend):
    """Notes what its stages are given, and gives zeros of the right shapes, tokens first or heads first."""

    first: bool = False
    seen: list[tuple[str, tuple[torch.Size, ...]]] = field(default_factory=list)

    @property
    def dtypes(self) -> frozenset[str]:
        """f16 alone."""
        return frozenset({"f16"})

    @property
    def heads_first(self) -> bool:
        """As it was made."""
        return self.first

    def missing_reasons(self, device: DeviceInfo) -> list[str]:
        """A word for all stages."""
        return ["everybody"]

    def stage_reasons(self, problem: StageProblem, stage: str, device: DeviceInfo) -> list[str]:
        """A word that both products share, and one of its own for the first."""
        return ["a product"] * (problem.head_dim > 0) + ["the scores"] * (stage == "qk_scores")

    def stage_kernel(self, stage: str, problem: StageProblem, device: torch.device) -> StageKernel:
        """Zeros; the mask writes ones over its argument."""

        def run(*given: torch.Tensor) -> Tensors:
            self.seen.append((stage, tuple(tensor.shape for tensor in given)))
            if stage == "causal_mask":
                return (given[0].fill_(1.0),)
            if stage == "weighted_values":
                sizes = [problem.heads, problem.seq_q] if self.first else [problem.seq_q, problem.heads]
                return (torch.zeros(problem.batch, *sizes, problem.head_dim),)
            matrix = torch.zeros(problem.batch, problem.heads, problem.seq_q, problem.seq_kv)
            return (matrix, matrix[..., 0]) if problem.lse else (matrix,)

        declares = Declares(kernels=(stage,), never=("fused",), matrix=stage == "weighted_values")
        return StageKernel(run, {"tile": "64", "stage": stage}, declares)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("prefill-b1-s5-h2-d8-f16-causal", ("qk_scores", "causal_mask", "row_softmax", "weighted_values")),
        ("prefill-b1-s5-h2-d8-f16", ("qk_scores", "row_softmax", "weighted_values")),
        ("prefill-b1-s1-kv9-h2-d8-f16-causal", ("qk_scores", "row_softmax", "weighted_values")),
    ],
)
def test_the_mask_is_a_stage_where_it_hides_a_key(text: str, stages: tuple[str, ...]) -> None:
    """A prefill has all stages, without the mask where it is not causal, or has a single query, which sees all keys."""
    assert stages_of(Prefill.parse(text)) == stages
    assert stages_of(MASK) == ("causal_mask",)


def test_a_stage_is_told_what_concerns_it() -> None:
    """Of a prefill, Dv is the values' head dimension, the log-sum-exp the softmax's, scores are never masked."""
    told = {stage: problem_of(PREFILL, stage) for stage in STAGES}
    assert {stage: (p.head_dim, p.kv_heads, p.causal, p.lse) for stage, p in told.items()} == {
        "qk_scores": (16, 2, False, False),
        "causal_mask": (0, 0, True, False),
        "row_softmax": (0, 0, True, True),
        "weighted_values": (8, 2, True, False),
    }
    assert problem_of(VALUES, "weighted_values") == told["weighted_values"]
    softmax = RowSoftmax.parse("row_softmax-b2-s5-kv7-h4-f16-causal")
    assert problem_of(softmax, "row_softmax") == replace(told["row_softmax"], lse=False)
    assert [told[stage].rows_without_keys for stage in STAGES] == [0] * 4
    assert replace(told["row_softmax"], seq_kv=2).rows_without_keys == 3


@pytest.mark.parametrize("first", [False, True])
def test_a_prefill_is_a_pipeline_of_its_stages(first: bool) -> None:
    """Stages run in order on what those before them gave, in the kernels' layout; matrices are let go, and out is
    canonical again."""
    backend = Noting("some.staged", first=first)
    inputs = PREFILL.make_inputs(1, "cpu", planted=False)
    prepared = backend.prepare(PREFILL, inputs)
    assert isinstance(prepared.call, Pipeline)
    assert [(stage.name, stage.frees) for stage in prepared.call.stages] == [
        ("qk_scores", ()),
        ("causal_mask", ()),
        ("row_softmax", ("scores",)),
        ("weighted_values", ("weights",)),
    ]
    outputs = prepared.outputs(prepared.run())
    assert {name: tuple(tensor.shape) for name, tensor in outputs.items()} == {"out": (2, 5, 4, 8), "lse": (2, 4, 5)}
    lengths = [(4, 5, 16), (2, 7, 16), (2, 7, 8)] if first else [(5, 4, 16), (7, 2, 16), (7, 2, 8)]
    q, k, v = (torch.Size((2, *shape)) for shape in lengths)
    matrix = torch.Size((2, 4, 5, 7))
    assert backend.seen == [
        ("qk_scores", (q, k)),
        ("causal_mask", (matrix,)),
        ("row_softmax", (matrix,)),
        ("weighted_values", (matrix, v)),
    ]


@pytest.mark.parametrize("first", [False, True])
def test_arguments_are_views_of_canonical_tensors(first: bool) -> None:
    """What another kernel has computed is taken as it lies; kernels that want tokens first get a strided one copied."""
    prepared = Noting("some.staged", first=first).prepare(VALUES, VALUES.make_inputs(1, "cpu", planted=False))
    assert prepared.arguments is not None
    weights, v = VALUES.make_inputs(2, "cpu", planted=False)
    taken = prepared.arguments((weights, v))
    assert taken[0] is weights
    assert taken[1].data_ptr() == v.data_ptr()
    assert taken[1].shape == (v.transpose(1, 2) if first else v).shape
    strided = v.repeat_interleave(2, dim=1)[:, ::2]
    again = prepared.arguments((weights, strided))[1]
    assert again.is_contiguous() != first
    assert torch.equal(again.transpose(1, 2) if first else again, v)


@pytest.mark.parametrize("first", [False, True])
def test_inputs_are_loaded_as_they_are_made(first: bool) -> None:
    """Own tensors are contiguous copies, q, k and v in the kernels' layout and matrices in theirs, and take others."""
    prepared = Noting("some.staged", first=first).prepare(VALUES, VALUES.make_inputs(1, "cpu", planted=False))
    others = VALUES.make_inputs(2, "cpu", planted=False)
    prepared.load(others)
    weights, v = prepared.tensors
    assert torch.equal(weights, others[0])
    assert torch.equal(v, others[1].transpose(1, 2) if first else others[1])
    assert v.is_contiguous()


def test_the_mask_has_its_scores_back_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call before timing writes over its input, which is loaded again."""
    monkeypatch.setattr(Noting, "first_call", lambda self, call, tensors: call(*tensors))
    inputs = MASK.make_inputs(1, "cpu", planted=False)
    prepared = Noting("some.staged").prepare(MASK, inputs)
    assert torch.equal(prepared.tensors[0], inputs[0])
    assert prepared.run()[0] is prepared.tensors[0]


def test_what_the_stages_record_and_declare_is_joined() -> None:
    """Values that differ are listed in the order of the stages, equal ones once; a stage alone has its own only."""
    prepared = Noting("some.staged").prepare(PREFILL, PREFILL.make_inputs(1, "cpu", planted=False))
    assert prepared.config == {"tile": "64", "stage": "qk_scores causal_mask row_softmax weighted_values"}
    assert prepared.declares == Declares(kernels=tuple(STAGES), never=("fused",), matrix=True)
    alone = Noting("some.staged").prepare(MASK, MASK.make_inputs(1, "cpu", planted=False))
    assert alone.config == {"tile": "64", "stage": "causal_mask"}
    assert alone.declares == Declares(kernels=("causal_mask",), never=("fused",))


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("prefill-b1-s64-h2-d64-f16-causal-lse", []),
        ("prefill-b1-s64-h2-d64-bf16", ["some.staged takes f16, not bf16"]),
        ("prefill-b1-s64-h2-d64-w9-f16-causal", ["takes no sliding window"]),
        ("prefill-b1-s64-h2-d64-f16-alibi", ["takes no ALiBi slopes"]),
        ("prefill-b1-s64-h2-d64-f16-bias", ["takes no bias matrix"]),
        ("prefill-b4-s8192-h32-d64-f16", ["keeps all scores and weights, 48.0 GiB here, and takes up to 16 GiB"]),
    ],
)
def test_what_it_cannot_do_is_a_reason(text: str, reasons: list[str]) -> None:
    """Beyond what stages need, each said once, a prefill has plain masks and a bounded size."""
    all_need, two, one, *further = Noting("some.staged").unsupported_reasons(Prefill.parse(text), CPU)
    assert (all_need, two, one) == ("everybody", "a product", "the scores")
    assert len(further) == len(reasons)
    assert all(map(str.__contains__, further, reasons))


def test_a_stage_alone_is_refused_for_its_own_reasons() -> None:
    """A family asks for its stage's needs and its dtype; scores, which the mask alone takes, are always fp32."""
    backend = Noting("some.staged")
    assert backend.families == ("prefill", *STAGES)
    assert backend.unsupported_reasons(MASK, CPU) == ["everybody"]
    scores = QkScores.parse("qk_scores-b1-s4-h2-d8-f32")
    said = ["everybody", "a product", "the scores", "some.staged takes f16, not f32"]
    assert backend.unsupported_reasons(scores, CPU) == said

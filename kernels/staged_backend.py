"""Base class of the staged attention in native, triton and hip: whole attention, and each of its stages.

On `prefill` the call is a `Pipeline` of qk_scores, causal_mask (where a key is hidden), row_softmax and
weighted_values; on the family of a stage it is only that stage. A subclass implements `stage_kernel`, which binds one
stage to one problem, for both uses. Torch is imported in `prepare` only.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernels.limits import AttentionLimits, join_names, refusal_reasons
from pytest_attnperf.backends import Backend, Declares, Pipeline, Prepared, Stage
from pytest_attnperf.workloads.attention_stages import SCORE_BYTES
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors, Values
    from pytest_attnperf.records import DeviceInfo

StagedWorkload = Prefill | QkScores | CausalMask | RowSoftmax | WeightedValues

STAGES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "qk_scores": (("q", "k"), ("scores",)),
    "causal_mask": (("scores",), ("scores",)),
    "row_softmax": (("scores",), ("weights",)),
    "weighted_values": (("weights", "v"), ("out",)),
}
"""Stage, which is also its family's name -> names of its inputs and outputs, in call order."""

TOKENS = frozenset({"q", "k", "v", "out"})
"""Tensors that are canonically (B, S, H, D). Scores and weights are always (B, H, Sq, Skv)."""

MATRICES_BYTES_MAX = 16 << 30
"""Most bytes of scores and weights together, which one call on `prefill` allocates."""


@dataclass(frozen=True)
class StageProblem:
    """Sizes, dtype and mask of one stage of unfused attention.

    kv_heads, head_dim    of the keys or values that the stage multiplies by; 0 for a stage without a product
    dtype                 'f16', 'bf16', 'f32' or 'tf32': of q, k, v, weights and out; scores are fp32
    causal                whether keys are hidden, bottom-right; never in qk_scores, which computes all scores
    lse                   whether row_softmax also returns the log-sum-exp (B, H, Sq), fp32, after the weights
    """

    batch: int
    seq_q: int
    seq_kv: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    causal: bool
    lse: bool

    @property
    def rows_without_keys(self) -> int:
        """Number of query rows that the causal mask leaves without a key; they are the first ones."""
        return max(0, self.seq_q - self.seq_kv) if self.causal else 0


@dataclass(frozen=True)
class StageKernel:
    """One stage of unfused attention as a function for one problem.

    run         takes the inputs in STAGES on the device, returns the outputs as a tuple; causal_mask returns its
                argument. It allocates the results. With `lse`, row_softmax returns the log-sum-exp too
    config      chosen settings; they are merged with other stages' settings, so names or values must name the stage
    declares    which kernels run
    """

    run: Callable[..., Tensors]
    config: Mapping[str, str] = field(default_factory=dict)
    declares: Declares = field(default_factory=Declares)


@dataclass(frozen=True)
class StagedBackend(Backend[StagedWorkload]):
    """Attention as kernels that keep whole matrices in memory; subclasses define `dtypes` and `stage_kernel`."""

    families = ("prefill", *STAGES)

    @property
    @abc.abstractmethod
    def dtypes(self) -> frozenset[str]:
        """Workload dtypes that every stage of the backend accepts."""

    @property
    def heads_first(self) -> bool:
        """Whether the kernels take q, k, v and return out as (B, H, S, D): contiguous, but in a layer views of (B, S,
        H, D). If not, they take and return canonical, contiguous (B, S, H, D)."""
        return False

    def missing_reasons(self, device: DeviceInfo) -> list[str]:
        """Returns why no stage can run on this device, such as a missing compiler. By default empty. Imports
        nothing."""
        return []

    def stage_reasons(self, problem: StageProblem, stage: str, device: DeviceInfo) -> list[str]:
        """Returns why `stage` cannot run on this device, apart from its dtype. By default empty. Imports nothing."""
        return []

    @abc.abstractmethod
    def stage_kernel(self, stage: str, problem: StageProblem, device: torch.device) -> StageKernel:
        """Returns a stage as a function for one problem, compiled and configured; `first_call` warms it up."""

    def first_call(self, call: Callable[..., Any], tensors: Tensors) -> None:
        """Runs `call` once if the tensors are on a GPU, so that nothing is compiled or loaded while timing. Else does
        nothing."""
        if tensors[0].is_cuda:
            call(*tensors)

    def unsupported_reasons(self, workload: StagedWorkload, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run on this device: what is missing, what a stage refuses, the dtype, and on
        `prefill` unsupported masks and matrices above MATRICES_BYTES_MAX. Empty if it can."""
        found = self.missing_reasons(device)
        for stage in stages_of(workload):
            found += [
                each for each in self.stage_reasons(problem_of(workload, stage), stage, device) if each not in found
            ]
        if isinstance(workload, Prefill):
            if (size := matrices_bytes(workload)) > MATRICES_BYTES_MAX:
                found.append(
                    f"{self.name} keeps all scores and weights, {size / 2**30:.1f} GiB here, and takes up to "
                    f"{MATRICES_BYTES_MAX / 2**30:g} GiB"
                )
            found += refusal_reasons(
                workload, AttentionLimits(self.name, self.dtypes, window=False, alibi=False, bias=False)
            )
        elif not isinstance(workload, CausalMask) and workload.dtype not in self.dtypes:
            found.append(f"{self.name} takes {join_names(self.dtypes)}, not {workload.dtype}")
        return found

    def prepare(self, workload: StagedWorkload, inputs: Tensors) -> Prepared:
        """Binds all stages in order, copies the inputs to the kernels' layout, and calls once on a GPU."""
        device = inputs[0].device
        kernels = {
            stage: self.stage_kernel(stage, problem_of(workload, stage), device) for stage in stages_of(workload)
        }
        call: Callable[..., Any]
        if isinstance(workload, Prefill):
            call = pipeline = _make_pipeline(kernels, with_lse=workload.lse)
            taken, given = pipeline.inputs, pipeline.outputs
        else:
            ((stage, kernel),) = kernels.items()
            call, (taken, given) = kernel.run, STAGES[stage]
        convert = _make_copier(taken, self.heads_first)
        prepared = Prepared(
            call=call,
            tensors=convert(inputs),
            convert=convert,
            outputs=_make_namer(given, self.heads_first),
            config=_merge_configs(kernel.config for kernel in kernels.values()),
            declares=_merge_declares([kernel.declares for kernel in kernels.values()]),
            arguments=_make_viewer(taken, self.heads_first),
        )
        self.first_call(call, prepared.tensors)
        prepared.load(inputs)  # restores the input that the mask has overwritten
        return prepared


def stages_of(workload: StagedWorkload) -> tuple[str, ...]:
    """Returns the names of the stages that run, in order: for a prefill all four, or three if its causal mask hides
    nothing; for the family of a stage only that stage."""
    if not isinstance(workload, Prefill):
        return (workload.family,)
    masked = workload.causal and workload.seq_q > 1  # the last row sees all keys
    return tuple(stage for stage in STAGES if stage != "causal_mask" or masked)


def problem_of(workload: StagedWorkload, stage: str) -> StageProblem:
    """Returns the sizes, dtype and mask of one stage, from a workload of this stage or a prefill."""
    head_dim = 0
    if stage in ("qk_scores", "weighted_values"):
        head_dim = workload.head_dim  # type: ignore[union-attr]
        if isinstance(workload, Prefill) and stage == "weighted_values":
            head_dim = workload.head_dim_v
    return StageProblem(
        batch=workload.batch,
        seq_q=workload.seq_q,
        seq_kv=workload.seq_kv,
        heads=workload.heads,
        kv_heads=getattr(workload, "kv_heads", 0) if head_dim else 0,
        head_dim=head_dim,
        dtype=workload.dtype,
        causal=stage == "causal_mask" or (stage != "qk_scores" and getattr(workload, "causal", False)),
        lse=isinstance(workload, Prefill) and workload.lse and stage == "row_softmax",
    )


def matrices_bytes(workload: Prefill) -> int:
    """Returns the bytes of the fp32 score matrix and of the weights in the workload's dtype together, for all heads."""
    pairs = workload.batch * workload.heads * workload.seq_q * workload.seq_kv
    return pairs * (SCORE_BYTES + DTYPE_BYTES[workload.dtype])


def _make_pipeline(kernels: Mapping[str, StageKernel], *, with_lse: bool) -> Pipeline:
    """Returns the stages in order as one call on (q, k, v), which returns (out,), or (out, lse) if `with_lse`."""
    stages = tuple(_make_stage(name, kernel, with_lse=with_lse) for name, kernel in kernels.items())
    return Pipeline(("q", "k", "v"), stages, ("out", "lse") if with_lse else ("out",))


def _make_stage(name: str, kernel: StageKernel, *, with_lse: bool) -> Stage:
    taken, given = STAGES[name]
    if with_lse and name == "row_softmax":
        given = (*given, "lse")

    def run_stage(values: Values) -> Values:
        return dict(zip(given, kernel.run(*(values[each] for each in taken)), strict=True))

    # A matrix is freed as soon as the next one exists.
    frees = {"row_softmax": ("scores",), "weighted_values": ("weights",)}
    return Stage(name, run_stage, frees.get(name, ()))


def _make_copier(names: tuple[str, ...], heads_first: bool) -> Callable[[Tensors], Tensors]:
    """Returns a function that copies canonical tensors, named `names` in order, to contiguous ones in the kernels'
    layout: (B, H, S, D) if `heads_first`, else (B, S, H, D)."""
    import torch

    def copy_inputs(inputs: Tensors) -> Tensors:
        ordered = _reorder_dims(names, inputs, heads_first)
        return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in ordered)

    return copy_inputs


def _make_viewer(names: tuple[str, ...], heads_first: bool) -> Callable[[Tensors], Tensors]:
    """Returns a function from canonical tensors, named `names` in order, to what the kernels take: views in (B, H, S,
    D) if `heads_first`; else (B, S, H, D), where tensors that are not contiguous are copied."""

    def view_inputs(inputs: Tensors) -> Tensors:
        ordered = _reorder_dims(names, inputs, heads_first)
        return ordered if heads_first else tuple(tensor.contiguous() for tensor in ordered)

    return view_inputs


def _reorder_dims(names: tuple[str, ...], tensors: Tensors, heads_first: bool) -> Tensors:
    """Returns q, k, v and out as views with heads and tokens swapped if `heads_first`, and all other tensors unchanged.
    `names` names the tensors in order."""
    named = zip(names, tensors, strict=True)
    return tuple(tensor.transpose(1, 2) if heads_first and name in TOKENS else tensor for name, tensor in named)


def _make_namer(names: tuple[str, ...], heads_first: bool) -> Callable[[Tensors], Outputs]:
    def name_outputs(result: Tensors) -> Outputs:
        return dict(zip(names, _reorder_dims(names, result, heads_first), strict=True))

    return name_outputs


def _merge_configs(configs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Returns the settings of all stages, name -> value. Different values of one name are joined by spaces in stage
    order."""
    found: dict[str, list[str]] = {}
    for config in configs:
        for name, value in config.items():
            values = found.setdefault(name, [])
            values += [value] if value not in values else []
    return {name: " ".join(values) for name, values in found.items()}


def _merge_declares(parts: list[Declares]) -> Declares:
    """Merges what all stages declare to run, each name once, with matrix instructions if any stage uses them."""

    def merge_names(of: Callable[[Declares], tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in parts for name in of(part)))

    return Declares(
        kernels=merge_names(lambda part: part.kernels),
        operators=merge_names(lambda part: part.operators),
        never=merge_names(lambda part: part.never),
        matrix=any(part.matrix for part in parts),
    )

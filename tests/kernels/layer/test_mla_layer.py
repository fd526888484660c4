"""Layers of latent attention over torch's operators: right through the judge, wrong twins, what is told of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from kernels.layer.mla_layer import MlaLayer
from kernels.layer.mla_layers import mla_layer_over, mla_layers_over
from kernels.native.mla import BACKENDS as NATIVE
from pytest_attnperf.backends import Backend, Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.mla_block import MlaBlock
from pytest_attnperf.workloads.rope import rotate

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
LAYERS = {layer.name: layer for layer in mla_layers_over(NATIVE)}
NAIVE, ABSORB = LAYERS["layer.native.mla_naive"], LAYERS["layer.native.mla_absorb"]
SIZES = "e=256,h=4,q=128,d=32,r=16,c=64"
PROMPT = f"s=41,{SIZES},f16"
CHUNK = f"b=2,s=21,p=11,room=40,{SIZES},f16"
STEP = f"b=2,s=1,p=30,room=40,{SIZES},dv=24,bf16,fp8w"
MASKED = f"s=27,p=13,room=43,{SIZES},f16,mask"
EXPANDED = f"b=2,s=12,p=13,room=30,{SIZES},dv=24,f16,mask,fp8w,expanded"
BOTH = {NAIVE.name, ABSORB.name}
CASES = {
    PROMPT: BOTH,
    CHUNK: BOTH,
    "b=2,s=19,p=4,e=256,h=3,d=32,r=16,c=64,f32": BOTH,
    STEP: BOTH,
    MASKED: BOTH,
    EXPANDED: {NAIVE.name},
}
"""A prompt, chunks of one, with and without latents of queries, a decode step, and what native forms alone take."""

Run = Callable[[Values], Values]
Change = Callable[[MlaBlock, Run], Run]


@functools.cache
def references_of(block: MlaBlock) -> References:
    """What is expected of a block, kept for all tests of it, in whatever order they run."""
    return References()


def judged(layer: Backend[MlaBlock], block: MlaBlock, seed: int = 2, device: str = "cpu") -> tuple[str, ...]:
    """What the judge finds wrong with a layer on inputs of another seed than it was prepared for, planted for even
    ones."""
    prepared = layer.prepare(block, block.make_inputs(1, device, planted=False))
    judge = Judge(prepared, block, references=references_of(block), tolerance=layer.tolerance, device=device)
    return judge.check_call("one call", prepared.run, seed=seed, planted=seed % 2 == 0).problems


@pytest.mark.parametrize("line", CASES)
def test_right_over_both_forms(line: str) -> None:
    """Every layer that takes a block passes the judge on planted inputs."""
    pytest.importorskip("torch")
    block = MlaBlock.parse_line(line)
    taking = {name: layer for name, layer in LAYERS.items() if not layer.unsupported_reasons(block, CPU)}
    assert taking.keys() == CASES[line]
    assert {name: judged(layer, block) for name, layer in taking.items()} == dict.fromkeys(taking, ())


@pytest.mark.parametrize(
    "seeds", [range(3, 4), pytest.param(range(4, 44), marks=pytest.mark.soak)], ids=["one", "forty"]
)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_no_seed_is_a_false_alarm(dtype: str, seeds: range) -> None:
    """Naive and absorbed forms are within the budget of the definition, planted or not."""
    block = replace(MlaBlock.parse_line(CHUNK), dtype=dtype)
    assert [found for seed in seeds for layer in (NAIVE, ABSORB) for found in judged(layer, block, seed)] == []


@dataclass(frozen=True)
class Twin(Backend[MlaBlock]):
    """A layer, some of whose stages are others.

    changes    name of a stage -> what makes its `run` of the block and the layer's own
    """

    layer: MlaLayer = NAIVE
    changes: Mapping[str, Change] = field(default_factory=dict)

    families = ("mla_block",)

    def prepare(self, workload: MlaBlock, inputs: Tensors) -> Prepared:
        """The layer's, with those stages replaced."""
        prepared = self.layer.prepare(workload, inputs)
        assert isinstance(prepared.call, Pipeline)
        assert self.changes.keys() <= {stage.name for stage in prepared.call.stages}
        stages = (
            replace(stage, run=self.changes.get(stage.name, _unchanged)(workload, stage.run))
            for stage in prepared.call.stages
        )
        prepared.call = replace(prepared.call, stages=tuple(stages))
        return prepared


def _unchanged(block: MlaBlock, run: Run) -> Run:
    return run


def rotated_by_halves(block: MlaBlock, run: Run) -> Run:
    """Pairs (i, i + R / 2)."""

    def rotate_halves(values: Values) -> Values:
        cos, sin = (values[name][block.past : block.length] for name in ("cos", "sin"))
        return {name: rotate(values[name].float(), cos, sin, False).to(values[name].dtype) for name in ("q_pe", "k_pe")}

    return rotate_halves


def rotated_from_position_0(block: MlaBlock, run: Run) -> Run:
    """The tables' first rows, as if nothing were in the cache."""

    def rotate_early(values: Values) -> Values:
        return run({**values, **{name: values[name].roll(block.past, 0) for name in ("cos", "sin")}})

    return rotate_early


def first_part_rotated(block: MlaBlock, run: Run) -> Run:
    """Queries cut as [rope, nope]."""

    def split_first(values: Values) -> Values:
        heads = values["q"].view(block.batch, block.seq, block.heads, -1)
        return run(values) | {"q_pe": heads[..., : block.rope_dim], "q_nope": heads[..., block.rope_dim :]}

    return split_first


def one_position_late(block: MlaBlock, run: Run) -> Run:
    """The new rows behind where they belong."""

    def append_late(values: Values) -> Values:
        rows = slice(block.past + 1, block.length + 1)
        values["kv_cache"][:, rows], values["pe_cache"][:, rows] = values["kv"], values["k_pe"][:, :, 0]
        return {}

    return append_late


def not_normalised(name: str, block: MlaBlock, run: Run) -> Run:
    """The latent as it was projected."""
    return lambda values: {"q_a": values["q_a"]} if name == "q_a" else {"kv": values["kv_a"][..., : block.latent_dim]}


def normalised_when_read(block: MlaBlock, run: Run) -> Run:
    """A norm of the new rows between the cache and attention."""

    def attend_normalised(values: Values) -> Values:
        from torch.nn.functional import rms_norm

        cache, rows = values["kv_cache"].clone(), slice(block.past, block.length)
        cache[:, rows] = rms_norm(cache[:, rows], (block.latent_dim,), values["kv_norm"], 1e-6)
        return run({**values, "kv_cache": cache})

    return attend_normalised


def scales_of_another_block(name: str, block: MlaBlock, run: Run) -> Run:
    """A weight's scales moved on by one row of blocks, or of columns where there is one row."""

    def dequantise(values: Values) -> Values:
        scale = values[f"{name}_scale"]
        return run({**values, f"{name}_scale": scale.roll(1, 0 if scale.shape[0] > 1 else 1)})

    return dequantise


def no_mask(block: MlaBlock, run: Run) -> Run:
    """Nothing added."""
    return lambda values: run({**values, "mask": values["mask"].new_zeros(values["mask"].shape)})


def causal_too(block: MlaBlock, run: Run) -> Run:
    """Keys later than the token hidden as well."""

    def attend_causally(values: Values) -> Values:
        later = values["mask"].new_ones(values["mask"].shape).triu(block.past + 1).bool()
        return run({**values, "mask": values["mask"].masked_fill(later, float("-inf"))})

    return attend_causally


def values_from_nope_rows(block: MlaBlock, run: Run) -> Run:
    """W_UV taken from the top of wkv_b."""

    def attend_wrong(values: Values) -> Values:
        import torch

        by_head = values["wkv_b"].view(block.heads, -1, block.latent_dim)
        top = by_head[:, : block.nope_dim]
        return run({**values, "wkv_b": torch.cat([top, top[:, : block.value_dim]], dim=1).flatten(0, 1)})

    return attend_wrong


def own_tokens_unseen(block: MlaBlock, run: Run) -> Run:
    """Attention over what the cache held before."""

    def attend_early(values: Values) -> Values:
        caches = {name: values[name].roll(1, 1) for name in ("kv_cache", "pe_cache")}
        return run({**values, **caches})

    return attend_early


FP8 = "s=41,e=288,h=4,q=160,d=32,r=16,c=144,bf16,fp8w"
TWINS: Mapping[str, tuple[str, Mapping[str, Change]]] = {
    "rope of halves": (PROMPT, {"rope": rotated_by_halves}),
    "rope on the wrong part": (PROMPT, {"split": first_part_rotated}),
    "no q_norm": (PROMPT, {"q_norm": functools.partial(not_normalised, "q_a")}),
    "values from W_UK": (PROMPT, {"attention": values_from_nope_rows}),
    "rope from position 0": (CHUNK, {"rope": rotated_from_position_0}),
    "cache a position late": (CHUNK, {"cache_append": one_position_late}),
    "no kv_norm": (CHUNK, {"kv_norm": functools.partial(not_normalised, "kv")}),
    "kv_norm behind the cache": (
        CHUNK,
        {"kv_norm": functools.partial(not_normalised, "kv"), "attention": normalised_when_read},
    ),
    "a key late": (CHUNK, {"attention": own_tokens_unseen}),
    **{
        f"scale of another block of {name}": (FP8, {"weight_dequant": functools.partial(scales_of_another_block, name)})
        for name in ("wq_a", "wq_b", "wkv_a", "wkv_b", "wo")
    },
    "mask ignored": (MASKED, {"attention": no_mask}),
    "mask and causal": (MASKED, {"attention": causal_too}),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_wrong_layer_is_found(twin: str) -> None:
    """With stages that are wrong the layer is INCORRECT over both forms, and with its own stages it is not."""
    pytest.importorskip("torch")
    line, changes = TWINS[twin]
    block = MlaBlock.parse_line(line)
    for layer in (NAIVE, ABSORB):
        assert judged(Twin("wrong", layer=layer, changes=changes), block) != ()
        assert judged(Twin("honest", layer=layer), block) == ()


def bound(layer: MlaLayer, line: str) -> tuple[Prepared, Pipeline]:
    """A layer bound to the inputs of a block, and its call."""
    block = MlaBlock.parse_line(line)
    prepared = layer.prepare(block, block.make_inputs(1, "cpu", planted=False))
    assert isinstance(prepared.call, Pipeline)
    return prepared, prepared.call


LATENTS = ["q_a_projection", "q_norm", "q_b_projection", "kv_a_projection", "kv_norm", "split", "rope"]
LAST = ["cache_append", "attention", "flatten", "output_projection"]


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        (PROMPT, [*LATENTS, *LAST]),
        (STEP, ["weight_dequant", *LATENTS, *LAST]),
        ("s=3,e=64,h=2,d=16,r=8,c=32,f32", ["q_projection", *LATENTS[3:], *LAST]),
        (EXPANDED, ["weight_dequant", *LATENTS, "kv_b_projection", *LAST]),
    ],
)
def test_the_stages_compute_what_the_call_computes(line: str, stages: list[str]) -> None:
    """Run one by one on the values before them, twice each, the stages give the call's results; behind the last only
    the inputs, weights and the result are held."""
    torch = pytest.importorskip("torch")
    block = MlaBlock.parse_line(line)
    prepared, call = bound(NAIVE, line)
    expected = {key: value.clone() for key, value in prepared.outputs(prepared.run()).items()}
    prepared.load(block.make_inputs(1, "cpu", planted=False))
    values = call.name_arguments(prepared.tensors)
    assert [stage.name for stage in call.stages] == stages
    freed: list[Stage] = []
    for stage in call.stages:
        stage.run(dict(values))
        values |= stage.run(dict(values))
        freed += [stage] if stage.frees else []
    staged = prepared.outputs(tuple(values[key] for key in call.outputs))
    assert all(torch.equal(staged[key], expected[key]) for key in expected)
    gone = {name for stage in freed for name in stage.frees}
    assert values.keys() - gone == {*block.tensor_names, "out"}


@dataclass(frozen=True)
class InStages(Backend[Mla]):
    """The absorbed form as two stages, whose values have the names that a layer uses itself."""

    families = ("mla",)

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """The native one's, called in the first stage."""
        whole = NATIVE[1].prepare(workload, inputs)
        names = ("q_nope", "q_pe", "flat", "kv", "wkv_b")
        stages = (
            Stage("attend", lambda values: {"x": whole.call(*(values[name] for name in names))[0]}, frees=names[:2]),
            Stage("double", lambda values: {"x": values["x"] * 2 / 2}),
        )
        return replace(whole, call=Pipeline(names, stages, ("x",)), outputs=lambda result: {"out": result[0]})


def test_stages_of_the_attention_stand_in_its_place() -> None:
    """They are named after it, their values do not meet the layer's, and none of them is left behind."""
    pytest.importorskip("torch")
    layer = mla_layer_over(InStages("in.stages"))
    prepared, call = bound(layer, PROMPT)
    stages = [*LATENTS, "cache_append", "attention.attend", "attention.double", *LAST[2:]]
    assert [stage.name for stage in call.stages] == stages
    assert judged(layer, MlaBlock.parse_line(PROMPT)) == ()
    values = call.name_arguments(prepared.tensors)
    for stage in call.stages:
        values.update(stage.run(values))
        for name in stage.frees:
            del values[name]
    assert values.keys() == {*call.inputs, "out"}


def test_what_only_native_forms_take_is_refused_by_others() -> None:
    """A mask and caches of heads are each refused by name, with the layers that take them."""
    other = replace(ABSORB, attention=Unmasked("other.mla"))
    block = MlaBlock.parse_line(MASKED)
    assert other.unsupported_reasons(block, CPU) == [
        "other.mla has a causal mask or none, and this layer's mask is an input; layers over native.mla_naive and "
        "native.mla_absorb take one"
    ]
    assert other.unsupported_reasons(replace(block, mask=False), CPU) == []
    (reason,) = ABSORB.unsupported_reasons(MlaBlock.parse_line(EXPANDED), CPU)
    assert reason.startswith("native.mla_absorb attends over cached latents, and these caches hold keys and values of")


@dataclass(frozen=True)
class Unmasked(Backend[MlaBlock]):
    """Another project's latent attention."""

    families = ("mla",)

    def prepare(self, workload: MlaBlock, inputs: Tensors) -> Prepared:
        """Not bound here."""
        raise NotImplementedError


def test_latents_that_lie_apart_are_refused_where_they_must_not() -> None:
    """A cache with more room than keys is contiguous for one sequence only; torch's operators read it anyway."""
    strict = replace(ABSORB, any_strides=False)
    block = MlaBlock.parse_line(CHUNK)
    (reason,) = strict.unsupported_reasons(block, CPU)
    assert "the first 32 rows of 2 sequences in a cache with room for 40 are not; use b=1, room=32" in reason
    for fits in (replace(block, batch=1), replace(block, room=32)):
        assert strict.unsupported_reasons(fits, CPU) == []
    assert ABSORB.unsupported_reasons(block, CPU) == []


def test_a_long_cache_is_projected_up_by_no_call() -> None:
    """The layer over the naive form has the operator's limit, but not over caches of keys and values of heads."""
    block = MlaBlock.parse_line("b=32,s=1,p=4095,e=7168,h=16,q=1536,d=128,r=64,c=512,bf16")
    (reason,) = NAIVE.unsupported_reasons(block, CPU)
    assert "above 1,073,741,824" in reason
    assert NAIVE.unsupported_reasons(replace(block, expanded=True), CPU) == []


def test_configuration_and_declarations_are_those_of_the_parts() -> None:
    """Settings bear the name of what they belong to; what must and must not run is the attention's and the rope's."""
    pytest.importorskip("torch")
    for layer, form, operators in ((NAIVE, "naive", ("aten::scaled_dot_product_attention",)), (ABSORB, "absorb", ())):
        prepared, _ = bound(layer, PROMPT)
        config = prepared.config
        assert (config["attention.form"], config["rope"], config["rope.compute_dtype"]) == (
            form,
            "native.eager_rope",
            "f32",
        )
        assert (config["copied_for_rope"], config["copied_for_attention"]) == ("none", "none")
        assert prepared.declares.operators == (*operators, "aten::mul")
    prepared, _ = bound(NAIVE, EXPANDED)
    assert prepared.config["attention.cached"] == "keys and values of heads"


@pytest.mark.gpu
@pytest.mark.parametrize("line", CASES)
def test_right_on_a_gpu(line: str) -> None:
    """A GPU, which multiplies in its own order, is within budget too."""
    block = MlaBlock.parse_line(line)
    assert {name: judged(LAYERS[name], block, device="cuda") for name in CASES[line]} == dict.fromkeys(CASES[line], ())

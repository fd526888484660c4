"""Layers over torch's attention: right through the judge, what each stage does, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest

from kernels.layer.layer import Layer
from kernels.layer.layers import PlainLayer, layer_over, layers_over
from kernels.layouts import own_copies
from kernels.native.decode import BACKENDS as DECODE
from kernels.native.prefill import BACKENDS as PREFILL
from kernels.native.prefill_compiled import views_compiled_for
from kernels.native.staged import BACKENDS as STAGED
from pytest_attnperf.backends import Backend, Declares, Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.correctness import what_ran
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.call_costs import measure_peak_memory
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rope import Rope

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
LAYERS = {layer.name: layer for layer in layers_over((*PREFILL, *STAGED, *DECODE))}
PREFILL_LAYERS = {f"layer.native.{name}" for name in ("eager", "eager_fp32", "sdpa_flash", "sdpa_math", "staged")}
DECODE_LAYERS = {"layer.native.eager_decode", "layer.native.sdpa_decode"}
PROMPT = "block-b2-s9-h4-hk2-d16-f16-bias"
STAGES = ["qkv_projection", "split", "rope", "cache_append", "attention", "flatten", "output_projection"]
CASES = {
    PROMPT: PREFILL_LAYERS,
    "block-b2-s9-p5-room20-e32-h4-hk2-d16-f32": PREFILL_LAYERS,
    "block-b1-s1-h4-d16-bf16": PREFILL_LAYERS,
    "block-b1-s9-h4-hk2-d16-f16-bias-out_bias": PREFILL_LAYERS,
    "block-b2-s1-p7-room20-h4-hk2-d16-bf16-bias": DECODE_LAYERS,
    "block-b1-s8-p1-h4-hk1-d16-f32": DECODE_LAYERS,
}
"""Whole prompts, a later part of one, one token of an empty cache, and decode steps with and without more room."""


def bound(layer: Layer, text: str) -> tuple[Prepared, Pipeline]:
    """A layer bound to the inputs of a block, and its call."""
    block = Block.parse(text)
    prepared = layer.prepare(block, block.make_inputs(1, "cpu", planted=False))
    assert isinstance(prepared.call, Pipeline)
    return prepared, prepared.call


def left_behind(prepared: Prepared, call: Pipeline) -> set[str]:
    """Names of values that are held when all stages have run, without the inputs."""
    values = call.name_arguments(prepared.tensors)
    for stage in call.stages:
        values.update(stage.run(values))
        for freed in stage.frees:
            del values[freed]
    return values.keys() - set(call.inputs)


def operators_of(name: str, text: str) -> dict[str, list[str]]:
    """Operators that each stage of a layer dispatches, without views and allocations, as often as it does."""
    prepared, call = bound(LAYERS[name], text)
    values, found = call.name_arguments(prepared.tensors), {}
    for stage in call.stages:
        seen = trace.record_operators(partial(stage.run, dict(values)))
        values |= stage.run(dict(values))
        found[stage.name] = [launch.name for launch in seen.launches for _ in range(int(launch.calls))]
    return found


@pytest.mark.parametrize("text", CASES)
def test_right_over_every_attention_backend(text: str, judged: Callable[..., tuple[str, ...]]) -> None:
    """Every layer that takes a block passes the judge on planted inputs; the plain one takes all."""
    pytest.importorskip("torch")
    block = Block.parse(text)
    taking = {name: layer for name, layer in LAYERS.items() if not layer.unsupported_reasons(block, CPU)}
    assert taking.keys() == {"layer.plain", *CASES[text]}
    assert {name: judged(layer, block) for name, layer in taking.items()} == dict.fromkeys(taking, ())


@pytest.mark.parametrize("text", CASES)
def test_the_stages_compute_what_the_call_computes(text: str) -> None:
    """Run one by one on the values before them, twice each, the stages give the call's results."""
    torch = pytest.importorskip("torch")
    block = Block.parse(text)
    for name in ("layer.plain", min(CASES[text])):
        prepared, call = bound(LAYERS[name], text)
        expected = {key: value.clone() for key, value in prepared.outputs(prepared.run()).items()}
        prepared.load(block.make_inputs(1, "cpu", planted=False))
        values = call.name_arguments(prepared.tensors)
        assert [stage.name for stage in call.stages] == STAGES
        for stage in call.stages:
            stage.run(dict(values))
            values |= stage.run(dict(values))
        staged = prepared.outputs(tuple(values[key] for key in call.outputs))
        assert all(torch.equal(staged[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", sorted(PREFILL_LAYERS))
def test_values_are_let_go_when_no_stage_needs_them(name: str) -> None:
    """Behind the last stage only the inputs and the result are held."""
    pytest.importorskip("torch")
    assert left_behind(*bound(LAYERS[name], PROMPT)) == {"out"}


def test_no_stage_copies_where_a_view_does() -> None:
    """Cutting into heads makes views, the cache is written by two copies, and flash attention reads it as it lies and
    leaves what the projection reads; attention that keeps heads apart is copied once to be flat."""
    pytest.importorskip("torch")
    flash, eager = (operators_of(f"layer.native.{name}", PROMPT) for name in ("sdpa_flash", "eager"))
    for found in (flash, eager):
        assert found["split"] == []
        assert found["cache_append"] == ["aten::copy_"] * 2
    assert not {"aten::clone", "aten::copy_"} & set(flash["attention"])
    assert flash["flatten"] == []
    assert eager["flatten"] == ["aten::clone", "aten::copy_"]


def test_what_attention_must_convert_is_part_of_its_stage() -> None:
    """Casts of a backend that computes in fp32 are made in the call and recorded; what is read as it lies is not."""
    pytest.importorskip("torch")
    names = ("layer.native.eager_fp32", "layer.native.eager")
    casting, reading = (operators_of(name, PROMPT)["attention"].count("aten::_to_copy") for name in names)
    assert casting == reading + 4  # q, k and v to fp32, and the result back
    copied = [bound(LAYERS[name], PROMPT)[0].config["copied_for_attention"] for name in names]
    assert copied == ["q, k, v", "none"]


def test_configuration_and_declarations_are_those_of_the_parts() -> None:
    """Settings bear the name of what they belong to; what must and must not run is the attention's and the rope's."""
    pytest.importorskip("torch")
    prepared, _ = bound(LAYERS["layer.native.sdpa_math"], PROMPT)
    config, declares = prepared.config, prepared.declares
    assert (config["attention.sdpa_backend"], config["rope.compute_dtype"]) == ("MATH", "f32")
    assert (config["rope"], config["copied_for_rope"]) == ("native.eager_rope", "none")
    assert declares.operators == ("aten::_scaled_dot_product_attention_math", "aten::mul")
    assert any("flash_attention" in name for name in declares.never)


@dataclass(frozen=True)
class PythonRope(Backend[Rope]):
    """A rope that falls back to Python, silently, and declares torch's operators."""

    families = ("rope",)

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Complex numbers, one by one, copied back."""
        import torch

        def turn(x: torch.Tensor, turns: list[list[complex]]) -> torch.Tensor:
            half = x.shape[-1] // 2
            return torch.tensor(
                [
                    [[[part(turns[i][j % half], head, j, half) for j in range(2 * half)] for head in row]
                     for i, row in enumerate(one)]
                    for one in x.tolist()
                ],
                dtype=x.dtype,
            )  # fmt: skip

        def part(turned: complex, head: list[float], j: int, half: int) -> float:
            product = complex(head[j % half], head[j % half + half]) * turned
            return product.real if j < half else product.imag

        def call(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Tensors:
            columns = zip(cos.tolist(), sin.tolist(), strict=True)
            turns = [[complex(*pair) for pair in zip(*row, strict=True)] for row in columns]
            return turn(q, turns), turn(k, turns)

        return Prepared(
            call, own_copies(inputs), own_copies, lambda raw: dict(zip("qk", raw, strict=True)),
            declares=Declares(operators=("aten::mul$",)),
        )  # fmt: skip


def test_a_stage_that_leaves_torch_is_refused(judged: Callable[..., tuple[str, ...]]) -> None:
    """On a CPU, too, a right result does not help a layer whose rope falls back: what it declares did not run."""
    pytest.importorskip("torch")
    block = Block.parse("block-b1-s5-h2-d16-f32")
    honest = LAYERS["layer.native.sdpa_flash"]  # its attention multiplies by no operator of its own
    falling = replace(honest, name="layer.falling", rope=PythonRope("python.rope"))
    assert judged(falling, block) == ()
    for layer, refused in ((honest, False), (falling, True)):
        prepared = layer.prepare(block, block.make_inputs(1, "cpu", planted=False))
        problems = what_ran.list_problems(trace.record_operators(prepared.run), prepared.declares, layer.name)
        assert bool(problems) == refused
        assert all("layer.falling declares" in problem and "aten::mul" in problem for problem in problems)


def test_a_compiled_attention_is_compiled_once_for_strides_of_a_layer() -> None:
    """Views of strides that are not known are compiled for, not taken from a cache of graphs; known ones are not."""
    torch = pytest.importorskip("torch")
    import torch._functorch.config as settings

    seen, known = [], set[object]()

    def call(*views: object) -> None:
        seen.append((settings.enable_autograd_cache, len(views)))

    whole, in_cache = torch.zeros(2, 5, 3, 4), torch.zeros(2, 9, 3, 4)[:, :5]
    for keys, compiled in ((whole, 1), (whole, 1), (in_cache, 2), (in_cache, 2)):
        views = views_compiled_for(call, known, (whole, keys, keys))
        assert all(torch.equal(view, keys.transpose(1, 2)) for view in views)
        assert seen == [(False, 3)] * compiled


@dataclass(frozen=True)
class TwoStages(Backend[Prefill]):
    """Attention without a mask as two stages, whose values have the names that a layer uses itself."""

    families = ("prefill",)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """None."""
        return []

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Keys and values heads first."""

        def weigh(values: Values) -> Values:
            scores = values["q"].transpose(1, 2) @ values["k"].permute(0, 2, 3, 1)
            return {"flat": (scores / workload.head_dim**0.5).softmax(-1)}

        def gather(values: Values) -> Values:
            return {"x": (values["flat"] @ values["v"].transpose(1, 2)).transpose(1, 2)}

        stages = (Stage("weigh", weigh, frees=("q", "k")), Stage("gather", gather, frees=("flat",)))
        return Prepared(
            call=Pipeline(("q", "k", "v"), stages, ("x",)),
            tensors=own_copies(inputs),
            convert=own_copies,
            outputs=lambda result: {"out": result[0]},
            declares=Declares(never=("scaled_dot_product",)),
            arguments=lambda new: new,
        )


def test_stages_of_the_attention_stand_in_its_place(judged: Callable[..., tuple[str, ...]]) -> None:
    """They are named after it, their values do not meet the layer's, and none of them is left behind."""
    pytest.importorskip("torch")
    layer = layer_over(TwoStages("two.stages"))
    text = "block-b2-s1-h2-d16-f16"  # one token sees all keys
    prepared, call = bound(layer, text)
    names = [stage.name for stage in call.stages]
    assert names == [*STAGES[:4], "attention.weigh", "attention.gather", *STAGES[5:]]
    assert judged(layer, Block.parse(text)) == ()
    assert left_behind(prepared, call) == {"out"}


STACK = "block-b2-s17-h4-hk2-d16-l3-f16-out_bias"


def change_stages(change: Callable[[tuple[Stage, ...]], tuple[Stage, ...]]) -> Layer:
    """The plain layer with other stages."""

    class Changed(PlainLayer):
        def prepare(self, workload: Block, inputs: Tensors) -> Prepared:
            prepared = super().prepare(workload, inputs)
            assert isinstance(prepared.call, Pipeline)
            prepared.call = replace(prepared.call, stages=change(prepared.call.stages))
            return prepared

    return Changed("layer.changed", any_strides=True)


def test_a_stack_runs_every_stage_of_every_layer(judged: Callable[..., tuple[str, ...]]) -> None:
    """Stages bear the number of their layer, sums lie between layers, and the judge finds the result right."""
    pytest.importorskip("torch")
    _, call = bound(LAYERS["layer.plain"], STACK)
    wanted = [f"layer{n}.{name}" for n in (1, 2, 3) for name in (*STAGES, *["residual"] * (n < 3))]
    assert [stage.name for stage in call.stages] == wanted
    names = sorted({"layer.plain", *PREFILL_LAYERS})
    assert {name: judged(LAYERS[name], Block.parse(STACK)) for name in names} == dict.fromkeys(names, ())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda stages: stages[8:], id="one layer less"),
        pytest.param(
            lambda stages: tuple(
                replace(stage, run=lambda values: {"x": values["out"]}) if "residual" in stage.name else stage
                for stage in stages
            ),
            id="no residual",
        ),
        pytest.param(
            lambda stages: tuple(
                replace(stage, run=lambda values, run=stage.run: run({k: v for k, v in values.items() if k != "b_out"}))
                if stage.name.endswith("output_projection")
                else stage
                for stage in stages
            ),
            id="bias of the output forgotten",
        ),
    ],
)
def test_a_stack_that_leaves_something_out_is_wrong(
    change: Callable[[tuple[Stage, ...]], tuple[Stage, ...]], judged: Callable[..., tuple[str, ...]]
) -> None:
    """A layer less, a sum or a bias that is missing: INCORRECT."""
    pytest.importorskip("torch")
    assert judged(change_stages(change), Block.parse(STACK)) != ()


def test_layers_of_a_stack_share_their_memory() -> None:
    """A stack of four holds at its peak what one layer holds, and x + out; one that keeps every value holds more."""
    pytest.importorskip("torch")
    text = "block-b1-s64-h4-d32{}-f32"
    keeping = change_stages(lambda stages: tuple(replace(stage, frees=()) for stage in stages))

    def peak(layer: Layer, layers: str) -> int:
        found = measure_peak_memory(bound(layer, text.format(layers))[0].run, "cpu").allocated_bytes
        assert found is not None
        return found

    x_bytes = 64 * 128 * 4
    one, four = (peak(LAYERS["layer.plain"], layers) for layers in ("", "-l4"))
    assert one < four <= one + x_bytes
    assert peak(keeping, "-l4") > one + x_bytes

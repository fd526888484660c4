"""The steps of the HIP ladder: right on every architecture that is imitated, and on a GPU; what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kernels.hip import prefill
from kernels.hip.faces import arch_of, face_of
from kernels.hip.prefill import BACKENDS, HipStep
from kernels.hip.steps import problem_of
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
FACES = ("gfx942", "gfx1100", "gfx1201", "gfx1030", "sm_90", "gfx950")
STEPS = {backend.name: backend for backend in BACKENDS}
MATRIX = [name for name, backend in STEPS.items() if backend.step.matrix]
SCALAR = [name for name in STEPS if name not in MATRIX]
SMALL = Prefill.parse("prefill-b1-s37-kv70-h2-d64-f16-causal")


def taken(problems: Sequence[str]) -> list[str]:
    """The problems that the ladder takes."""
    step = STEPS["hip.flash"]
    return [text for text in problems if not step.unsupported_reasons(Prefill.parse(text), H200)]


@pytest.fixture(autouse=True)
def compiled_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons are asked as on a machine that has a compiler for the device."""
    monkeypatch.setattr(prefill, "missing_hip", lambda device: [])


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        (name, arch)
        for name in MATRIX
        for arch in STEPS[name].step.archs or FACES
        if arch != "gfx1030" or name == "hip.matrix"
    ],
)
def test_matrix_steps_are_right_on_every_face(
    name: str,
    arch: str,
    problems: tuple[str, ...],
    emulate: Callable[[str], None],
    judged: Callable[..., tuple[str, ...]],
) -> None:
    """Each layout of matrix instructions, and none, gives attention within the budget, on a problem of its own."""
    emulate(arch)
    fitting = [text for text in taken(problems) if Prefill.parse(text).head_dim <= 128]
    assert judged(STEPS[name], fitting[(5 * FACES.index(arch) + 2 * MATRIX.index(name)) % len(fitting)]) == ()


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", SCALAR)
def test_scalar_steps_are_right_in_waves_of_64_and_32(
    name: str,
    arch: str,
    problems: tuple[str, ...],
    emulate: Callable[[str], None],
    judged: Callable[..., tuple[str, ...]],
) -> None:
    """A step that uses no matrix instruction is right whatever the wave."""
    emulate(arch)
    places = len(SCALAR) * 2
    own = taken(problems)[SCALAR.index(name) * 2 + ["gfx942", "gfx1100"].index(arch) :: places]
    assert own
    for text in own[:1]:
        assert judged(STEPS[name], text) == ()


@pytest.mark.parametrize("name", ["hip.matrix", "hip.best", "hip.wgmma"])
def test_matrix_steps_take_the_largest_heads(
    name: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """At D = 256, where tiles are smaller, results stay right."""
    emulate("sm_90")
    assert judged(STEPS[name], "prefill-b1-s33-kv65-h2-hk1-d256-bf16-causal") == ()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_is_no_number_stays_none(arch: str, emulate: Callable[[str], None]) -> None:
    """A key of NaN makes the rows that see it NaN, and no other row; rounding of probabilities does not look at it."""
    import torch

    emulate(arch)
    workload = Prefill.parse("prefill-b1-s40-h1-d32-bf16-causal")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    inputs[1].view(torch.int16)[0, 20] = 0x7FFF
    prepared = STEPS["hip.best"].prepare(workload, inputs)
    out = prepared.outputs(prepared.run())["out"]
    assert out[0, 20:].isnan().all()
    assert out[0, :20].isfinite().all()


def test_queries_of_long_sequences_come_from_lds_on_cdna4(
    emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """The configuration of gfx950 for large D = 256, which small problems do not choose, is right."""
    emulate("gfx950")
    large = Prefill.parse("prefill-b4-s4096-h32-hk8-d256-bf16-causal")
    (space,) = STEPS["hip.best"].spaces
    chosen = STEPS["hip.best"].with_choice(space.kernel, space.choose("gfx950", problem_of(large)))
    assert judged(chosen, "prefill-b1-s21-kv70-h1-d256-bf16-causal-lse") == ()


@pytest.mark.parametrize("name", STEPS)
def test_rows_without_keys_and_grouped_heads(
    name: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """Rows that see no key give 0 and -inf, with two query heads for each key head."""
    emulate(next(iter(STEPS[name].step.archs), "gfx942"))
    assert judged(STEPS[name], "prefill-b1-s40-kv21-h4-hk2-d32-bf16-causal-lse") == ()


@pytest.mark.parametrize(
    ("warpgroups", "block_n", "text"),
    [
        (1, 64, "prefill-b1-s70-kv150-h2-hk1-d72-f16-causal-lse"),
        (2, 128, "prefill-b1-s150-kv290-h1-d128-bf16-causal-lse"),
        (2, 128, "prefill-b1-s130-kv260-h1-d64-f16"),
        (3, 64, "prefill-b1-s200-kv170-h1-d136-bf16-causal"),
    ],
)
@pytest.mark.parametrize("held", [0, 1])
def test_warpgroups_share_tiles_of_any_shape(
    warpgroups: int,
    block_n: int,
    text: str,
    held: int,
    emulate: Callable[[str], None],
    judged: Callable[..., tuple[str, ...]],
) -> None:
    """One to three warpgroups, both widths of an instruction, panels that heads do not fill, several tiles of keys."""
    emulate("sm_90")
    choice = {"WARPGROUPS": str(warpgroups), "BLOCK_N": str(block_n), "Q_IN_REGISTERS": str(held)}
    step = STEPS["hip.wgmma"].replay_config({**choice, "config_arch": "none", "config_source": "small"})
    assert judged(step, text) == ()


@pytest.mark.parametrize(
    ("device", "arch"),
    [
        (DeviceInfo(kind="rocm", arch="gfx942", product="amd"), "gfx942"),
        (DeviceInfo(kind="cuda", arch="sm_100", product="b200"), "sm_100"),
        (DeviceInfo(kind="cpu", arch="x86_64", product="cpu"), "gfx942"),
    ],
)
def test_wgmma_is_refused_where_it_is_not(device: DeviceInfo, arch: str, emulate: Callable[[str], None]) -> None:
    """Other architectures lack the instruction: AMD's, newer ones of NVIDIA, and one that is imitated."""
    emulate("gfx942")
    assert STEPS["hip.wgmma"].unsupported_reasons(SMALL, device) == [
        f"hip.wgmma uses instructions that only sm_90 has, not {arch}; use hip.best"
    ]
    emulate("sm_90")
    assert bool(STEPS["hip.wgmma"].unsupported_reasons(SMALL, device)) == (device.kind != "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", STEPS)
def test_steps_are_right_on_a_gpu(name: str, problems: tuple[str, ...], judged: Callable[..., tuple[str, ...]]) -> None:
    """Every problem of the tests of other backends that the ladder takes, compiled for the GPU that is here."""
    for text in [*taken(problems), "prefill-b1-s40-kv21-h4-hk2-d32-bf16-causal-lse"]:
        assert judged(STEPS[name], text, "cuda") == (), text


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (replace(SMALL, head_dim=33, head_dim_v=33), "head dimensions to 256 on sm_90 that are multiples of 8"),
        (replace(SMALL, head_dim=44, head_dim_v=44), "not 44"),
        (replace(SMALL, head_dim=264, head_dim_v=264), "not 264"),
        (replace(SMALL, dtype="f32"), "takes bf16, f16, not f32"),
        (replace(SMALL, window=5), "takes no sliding window"),
        (replace(SMALL, alibi=True), "takes no ALiBi slopes"),
        (replace(SMALL, bias=True), "takes no bias matrix"),
        (replace(SMALL, head_dim_v=32), "takes one head dimension"),
    ],
)
def test_what_a_step_cannot_do_is_a_reason(workload: Prefill, why: str) -> None:
    """Each limit is told before anything is compiled, with the value that is beyond it."""
    for step in BACKENDS:
        assert any(why in reason for reason in step.unsupported_reasons(workload, H200))
    assert BACKENDS[0].unsupported_reasons(SMALL, H200) == []


def test_score_matrices_are_limited() -> None:
    """The steps that keep all scores refuse 17 GB of them, saying how much it would be; the others take the problem."""
    large = Prefill.parse("prefill-b4-s16384-h32-d64-f16")
    refusing = {step.name for step in BACKENDS if step.unsupported_reasons(large, H200)}
    assert refusing == {"hip.naive", "hip.lds_tiles"}
    assert "128.0 GiB here, and takes up to 16 GiB" in STEPS["hip.naive"].unsupported_reasons(large, H200)[0]


@pytest.mark.parametrize(
    ("name", "arch", "most"),
    [
        ("hip.prefetch", "gfx942", 256),
        ("hip.prefetch", "gfx1201", 128),
        ("hip.prefetch", "gfx1100", 96),
        ("hip.best", "gfx1201", 256),
        ("hip.best", "gfx1151", 128),
        ("hip.matrix", "gfx1100", 256),
    ],
)
def test_registers_limit_head_dimensions_on_rdna(name: str, arch: str, most: int) -> None:
    """A step that would spill on an architecture says up to which head dimension it does not."""
    device = DeviceInfo(kind="rocm", arch=arch, product="amd")
    fits, beyond = (replace(SMALL, head_dim=size, head_dim_v=size) for size in (most, most + 8))
    assert STEPS[name].unsupported_reasons(fits, device) == []
    (reason,) = STEPS[name].unsupported_reasons(beyond, device)
    assert f"takes head dimensions to {most} on {arch}" in reason


def test_what_is_recorded_can_be_replayed(emulate: Callable[[str], None]) -> None:
    """The configuration stands in the result with its file and source, and `pinned` compiles it again."""
    emulate("sm_90")
    step = STEPS["hip.best"]
    prepared = step.prepare(SMALL, SMALL.make_inputs(1, "cpu", planted=False))
    assert prepared.config["file"] == "07_best.hip"
    assert prepared.config["config_arch"] == "sm_90"
    assert prepared.declares.kernels == ("attention_best",)
    pinned = step.replay_config({**prepared.config, "WAVES": "2", "BLOCK_N": "16"})
    assert isinstance(pinned, HipStep)
    replayed = pinned.prepare(SMALL, SMALL.make_inputs(1, "cpu", planted=False)).config
    assert (replayed["WAVES"], replayed["BLOCK_N"]) == ("2", "16")
    assert replayed["config_source"].startswith("pinned: ")


def test_matrix_instructions_are_promised_where_they_are() -> None:
    """What the launch depends on of an architecture: its wave, and whether it has matrix instructions."""
    wanted = {
        "gfx90a": (64, True), "gfx950": (64, True), "gfx906": (64, False), "gfx1030": (32, False),
        "gfx1151": (32, True), "gfx1201": (32, True), "sm_90": (32, True),
    }  # fmt: skip
    assert {arch: (face_of(arch).wave, face_of(arch).matrix) for arch in wanted} == wanted


def test_the_imitated_architecture_is_gfx942_unless_set(emulate: Callable[[str], None]) -> None:
    """ATTNPERF_HIP_EMULATE names another one."""
    import torch

    cpu = torch.device("cpu")
    emulate("gfx1201")
    assert arch_of(cpu) == "gfx1201"
    emulate("")
    assert arch_of(cpu) == "gfx942"

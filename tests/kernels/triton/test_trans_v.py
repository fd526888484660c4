from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

from kernels import tuning
from kernels.triton.trans_v.backend import BACKENDS, SPACE, list_configs, problem_of
from kernels.triton.trans_v.builds import KERNELS
from pytest_attnperf.kernel_builds import ALL_ARCHS, TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

pytestmark = pytest.mark.usefixtures("one_thread")

BACKEND, PUBLISHED, AUTOTUNED = BACKENDS
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)

CASES = (
    "prefill-b1-s65-h4-hk2-d64-f16-causal-lse",
    "prefill-b2-s33-kv70-h2-d128-bf16",
    "prefill-b1-s31-kv66-h3-hk1-d64-bf16-causal",
    "prefill-b1-s64-h2-d128-f16-causal",
    "prefill-b1-s70-kv31-h2-hk1-d64-f16-lse",
    "prefill-b1-s65-h4-hk2-d72-bf16-causal-lse",
    "prefill-b1-s33-kv70-h2-d17-f16",
)
"""Both head dimensions, both types, both masks, with and without statistics: each with each at least once; then head
dimensions that no tile has."""


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gives, interpreted when it is asked for."""
    return interpret("kernels.triton.trans_v.backend", [f"{BACKEND.name}/{case}" for case in CASES])


@pytest.mark.parametrize("case", CASES)
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernel is within budget, leaves its inputs alone, and replays its configuration."""
    found = interpreted[f"{BACKEND.name}/{case}"]
    assert judge(case, found["outputs"]) == ()
    assert found["unchanged"]
    assert found["replays"]


def test_right_in_the_published_tile(interpret: Any, judge: Any) -> None:
    """The alternative is chosen by its backend's name, is within budget, and says what it is and from where."""
    case = f"{PUBLISHED.name}/{CASES[0]}"
    found = interpret("kernels.triton.trans_v.backend", [case])[case]
    assert judge(CASES[0], found["outputs"]) == ()
    assert {name: found["config"][name] for name in ("BLOCK_M", "BLOCK_N", "PRELOAD_V")} == {
        "BLOCK_M": "128", "BLOCK_N": "64", "PRELOAD_V": "False"
    }  # fmt: skip
    assert "06-fused-attention-fwd-transV.py" in found["config"]["config_source"]


def test_autotuned_is_right_and_tells_its_choice(interpret: Any, judge: Any) -> None:
    """Triton's autotuner runs one of the configurations: within budget, with the choice recorded, and replayed when it
    is pinned to another than its first."""
    found = interpret("tests.kernels.triton.autotuned_trans_v", [CASES[0]])[CASES[0]]
    first, last = "BLOCK_M: 32, BLOCK_N: 32, PRELOAD_V: False, num_warps: 1, num_stages: 1", found["last"]
    assert judge(CASES[0], found["outputs"]) == judge(CASES[0], found["pinned_outputs"]) == ()
    assert found["config"] == {"autotuned_among": "2"}
    assert found["chosen"] == {"autotuned.trans_v_kernel": first}
    assert last != first
    assert found["pinned"] == {"autotuned.trans_v_kernel": last}
    assert found["said_of_pinning"] == "as stored"


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [PUBLISHED, AUTOTUNED], ids=lambda backend: backend.name)
def test_options_are_right_on_a_gpu(backend: Any, judge: Any) -> None:
    """The compiled kernel is within budget in the configuration that the option chooses, where it has one."""
    from pytest_attnperf.environment.device import identify_device

    workload = parse_workload(CASES[0])
    if reasons := backend.unsupported_reasons(workload, identify_device("cuda")):
        pytest.skip("; ".join(reasons))
    prepared = backend.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(CASES[0], prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernel is within budget on the same problems."""
    workload = parse_workload(case)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(case, prepared.outputs(prepared.run()), device="cuda") == ()


def test_v_is_transposed_before_the_call() -> None:
    """The timed tensor is contiguous (B, Hk, D, Skv), and `load` refills it from the canonical layout."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    workload = parse_workload("prefill-b2-s5-kv7-h4-hk2-d64-f16")
    first, second = (workload.make_inputs(seed, "cpu", planted=False) for seed in (1, 2))
    prepared = BACKEND.prepare(workload, first)
    assert prepared.tensors[2].shape == (2, 2, 64, 7)
    assert prepared.tensors[2].is_contiguous()
    prepared.load(second)
    assert torch.equal(prepared.tensors[2].permute(0, 3, 1, 2), second[2])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s8-h2-d136-f16", "head_dim 136 is above 128, the largest this kernel has tiles for"),
        ("s8-h2-d64-f32", "triton.flash_trans_v takes bf16, f16, not f32"),
        ("s8-h2-d64-w4-f16-causal", "triton.flash_trans_v takes no sliding window"),
        ("s8-kv5-h2-d64-f16-causal", "triton.flash_trans_v is not known to give 0 for rows that see no key"),
    ],
)
def test_says_what_it_does_not_compute(text: str, reason: str) -> None:
    """Each limit is one reason that names what the workload has."""
    (found,) = BACKEND.unsupported_reasons(parse_workload(f"prefill-b1-{text}"), INTERPRETING)
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": (1, 5, 2, 64)}, "v is shape (1, 5, 2, 64), must be (1, 2, 64, 5)"),
        ({"q": (1, 5, 4, 136)}, "q is head_dim 136, must be a head_dim to 128"),
        ({"k": (1, 5, 3, 64)}, "k is 3 heads, must be a number of heads that divides q's 4"),
        ({"q": (1, 6, 4, 64)}, "k is 5 keys, must be at least the 6 causal rows of q"),
    ],
)
def test_the_launcher_names_a_bad_argument(change: dict[str, tuple[int, ...]], message: str) -> None:
    """Shapes that do not fit are refused with what was given and what is wanted, before anything is launched."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.trans_v.kernel import trans_v
    from pytest_attnperf.errors import UsageError

    shapes = {"q": (1, 5, 4, 64), "k": (1, 5, 2, 64), "v": (1, 2, 64, 5)} | change
    q, k, v = (torch.zeros(shape, dtype=torch.float16) for shape in shapes.values())
    with pytest.raises(UsageError, match=re.escape(f"trans_v: {message}")):
        trans_v(q, k, v, causal=True, with_lse=False, config={})


def test_the_judge_rejects_values_of_the_next_key(interpreted: Any, judge: Any) -> None:
    """An output whose last row is another row's, as from values that are off by one key, is seen."""
    case = CASES[0]
    outputs = dict(interpreted[f"{BACKEND.name}/{case}"]["outputs"])
    outputs["out"] = outputs["out"].clone()
    outputs["out"][:, -1] = outputs["out"][:, -2]
    assert judge(case, outputs)


PUBLIC_AUTOTUNER = (
    {"BLOCK_M": 256, "BLOCK_N": 64, "PRELOAD_V": False, "num_warps": 8, "waves_per_eu": 2},
    {"BLOCK_M": 128, "BLOCK_N": 128, "PRELOAD_V": False, "num_warps": 4, "waves_per_eu": 2},
    {"BLOCK_M": 256, "BLOCK_N": 128, "PRELOAD_V": False, "num_warps": 8, "waves_per_eu": 2},
    {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": True, "num_warps": 4, "waves_per_eu": 3},
    {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "num_warps": 4, "waves_per_eu": 3},
)
"""What ROCm/triton's 06-fused-attention-transV.py autotunes among, all with num_stages 1 (commit 1af893d8a277)."""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "sm_90"])
@pytest.mark.parametrize("case", ["prefill-b4-s4096-h16-d64-f16", "prefill-b4-s2048-h48-d128-bf16-causal-lse"])
def test_the_autotuner_chooses_among_the_tuner_s_candidates(case: str, arch: str) -> None:
    """Every candidate of `attnperf tune` and no other, today's configuration first, few enough to time them all."""
    from pytest_attnperf.tools.tuner.tuner_settings import list_candidates

    workload = parse_workload(case)
    configs = list_configs(workload, arch)
    candidates, _ = list_candidates(BACKEND.tuning_space([workload], arch))
    assert [{name: value for name, value in each.values.items() if value or name not in SPACE.further}
            for each in candidates] == configs  # fmt: skip
    assert configs[0] == SPACE.choose(arch, problem_of(workload)).config
    assert 2 <= len(configs) <= 80
    if arch != "sm_90":
        assert all(any(wanted.items() <= each.items() for each in configs) for wanted in PUBLIC_AUTOTUNER)


def test_the_published_tile_of_d64_is_shipped() -> None:
    """gfx90a runs what ROCm/triton hard-coded for MI250 at D=64 without a causal mask, and says so."""
    rule = SPACE.choose("gfx90a", {"head_dim": 64, "causal": False}).rule
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": True, "num_warps": 4, "num_stages": 1}
    assert dict(rule.config) == tile | {"waves_per_eu": 3, "kpack": 1}
    assert "06-fused-attention-fwd-transV.py" in rule.source


@pytest.mark.parametrize(
    ("head_dim", "causal", "tile"),
    [
        (64, False, {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": True, "num_warps": 4, "waves_per_eu": 3}),
        (64, True, {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "num_warps": 4, "waves_per_eu": 3}),
        (128, False, {"BLOCK_M": 256, "BLOCK_N": 128, "PRELOAD_V": False, "num_warps": 8, "waves_per_eu": 2}),
        (128, True, {"BLOCK_M": 256, "BLOCK_N": 128, "PRELOAD_V": False, "num_warps": 8, "waves_per_eu": 2}),
    ],
)
def test_the_published_tiles_are_an_alternative(head_dim: int, causal: bool, tile: dict[str, Any]) -> None:
    """As published, unchanged: chosen by name on gfx90a, a candidate of its tuner, and two tiles fit 64 KiB of LDS."""
    problem = {"head_dim": head_dim, "causal": causal}
    rule = SPACE.choose_alternative("perf_kernels", "gfx90a", problem).rule
    assert dict(rule.config) == {**tile, "num_stages": 1, "kpack": 1}
    assert "06-fused-attention-fwd-transV.py, commit 3e1aa68902cb" in rule.source
    assert "never run here" in rule.source
    assert 2 * rule.config["BLOCK_N"] * head_dim * 2 <= 64 * 1024
    workload = parse_workload(f"prefill-b4-s2048-h48-d{head_dim}-f16{'-causal' if causal else ''}")
    space = BACKEND.tuning_space([workload], "gfx90a")
    held = all(value in space.values[name] for name, value in rule.config.items())
    assert held or dict(rule.config) in [dict(each.values) for each in space.extra]


def test_an_alternative_is_not_offered_elsewhere() -> None:
    """Other architectures have no published tile: the backend is refused with the reason, the default is not."""
    workload = parse_workload(CASES[0])
    device = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
    reason = "trans_v has no configuration 'perf_kernels' for gfx942 and this problem"
    assert PUBLISHED.unsupported_reasons(workload, device) == [reason]
    assert BACKEND.unsupported_reasons(workload, device) == AUTOTUNED.unsupported_reasons(workload, device) == []
    assert PUBLISHED.unsupported_reasons(workload, dataclasses.replace(device, arch="gfx90a")) == []


def test_a_candidate_is_compiled_as_it_is_launched() -> None:
    """Each argument has a type or a value; lengths that 16 divides are said, and whole tiles follow BLOCK_N."""
    pytest.importorskip("triton")
    from kernels.triton.trans_v.kernel import trans_v_kernel

    declared = tuning.declared_by_kernel()[SPACE.kernel]
    workload = parse_workload("prefill-b1-s96-kv160-h4-hk2-d64-f16-causal")
    rule = SPACE.choose("gfx942", problem_of(workload)).rule
    (build,) = declared.builds(workload, "gfx942", rule)
    assert isinstance(build.source, TritonSource)
    assert build.source.signature.keys() | build.source.constants.keys() == set(trans_v_kernel.arg_names)
    assert {"seq_q", "seq_kv"} <= set(build.source.divisible_by_16)
    assert (build.source.constants["EVEN_N"], build.source.constants["lse_ptr"]) == (False, None)


def test_builds_give_every_argument_once() -> None:
    """Every argument of the function has a type or a value, ids are unique, and there are at most eight a GPU."""
    pytest.importorskip("triton")
    from kernels.triton.trans_v.kernel import trans_v_kernel

    arguments = set(inspect.signature(getattr(trans_v_kernel, "fn", trans_v_kernel)).parameters)
    for arch in (*ALL_ARCHS, "sm_90", "gfx908"):
        builds = KERNELS[0].builds(arch)
        assert len({build.config for build in builds}) == len(builds) == 6
        for build in builds:
            assert isinstance(build.source, TritonSource)
            given = build.source.signature.keys() | build.source.constants.keys()
            assert given | {"XCDS", "AS_READ"} == arguments, "these two have defaults"
    assert dataclasses.is_dataclass(KERNELS[0])

"""Latent attention on a persistent grid, in the configuration of AMD's perf-kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernels import tuning
from kernels.configs import ConfigChoice
from kernels.triton.mla.backend import BACKENDS
from kernels.triton.mla.builds import PERSISTENT_KERNEL, PREFILL_KERNEL, is_persistent
from kernels.triton.mla.space import PREFILL, prefill_problem
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workloads.mla import Mla

pytestmark = pytest.mark.usefixtures("one_thread")

DEFAULT, PUBLISHED = BACKENDS
CASES = (
    "mla-b1-s70-h3-d16-r16-c32-f16-causal-lse",
    "mla-b2-s33-kv70-h3-d24-dv16-r8-c48-bf16",
    "mla-b1-s12-kv64-h2-d32-r8-c32-f16-causal",
)
"""Nine and twelve blocks of rows for six programs, both masks, ragged; and fewer blocks than programs."""

DOCUMENT = Mla.parse("mla-b2-s128-h16-d64-r32-c256-f16")
"""The shape that the document ran."""


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gives, interpreted when it is asked for."""
    return interpret("kernels.triton.mla.backend", [f"{PUBLISHED.name}/{case}" for case in CASES])


@pytest.mark.parametrize("case", CASES)
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """Programs that do several blocks, one, or none beyond their own are within budget, and the grid is recorded."""
    found = interpreted[f"{PUBLISHED.name}/{case}"]
    assert judge(case, found["outputs"]) == ()
    assert found["unchanged"]
    assert found["replays"]
    assert found["config"]["mla.GRID_CU_MULTIP"] == "2"
    assert "MLA.py" in found["config"]["mla.config_source"]


@pytest.mark.parametrize("mistake", ["the last item is dropped", "the last rows are dropped"])
def test_a_loop_that_stops_too_early_is_incorrect(mistake: str, interpret: Any, judge: Any) -> None:
    """Rows that no program computes are seen: a block that is no program's, or rows of a block that is not whole."""
    case = f"{mistake}/{CASES[0]}"
    problems = judge(CASES[0], interpret("tests.kernels.triton.mutated", [case])[case])
    assert any("out" in problem for problem in problems)
    assert any("lse" in problem for problem in problems)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str, judge: Any) -> None:
    """Compiled on a persistent grid, it is within budget on the same problems."""
    workload = Mla.parse(case)
    inputs = workload.make_inputs(1, "cuda", planted=True)
    rule = PREFILL.choose_alternative("perf_kernels", "interpreter", prefill_problem(workload)).rule
    prepared = DEFAULT.with_choice("mla", ConfigChoice("interpreter", rule)).prepare(workload, inputs)
    assert judge(case, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_the_document_s_configuration_is_shipped(arch: str) -> None:
    """Its figures under its name with their source, one latent tile within the LDS, and not what runs by default."""
    rule = PREFILL.choose_alternative("perf_kernels", arch, prefill_problem(DOCUMENT)).rule
    document = {"BLOCK_M": 32, "BLOCK_N": 32, "waves_per_eu": 1, "GRID_CU_MULTIP": 2, "num_stages": 1, "num_warps": 4}
    assert dict(rule.config) == {**document, "BLOCK_D": 32, "RELOAD": False}
    assert "ROCm/triton python/perf-kernels/README.md, MLA.py" in rule.source
    assert "PRE_LOAD_V" in rule.source
    assert "never run here" in rule.source
    assert rule.config["BLOCK_N"] * (256 + 32) * 2 <= 64 * 1024
    assert not is_persistent(PREFILL.choose(arch, prefill_problem(DOCUMENT)).rule)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "sm_90"])
def test_the_tuner_may_choose_a_persistent_grid(arch: str) -> None:
    """Both grids are in the space, on AMD the document's configuration too, and a candidate runs what it says."""
    space = DEFAULT.tuning_space([DOCUMENT], arch)
    assert space.values["GRID_CU_MULTIP"] == (0, 1, 2)
    assert space.default.values["GRID_CU_MULTIP"] == 0
    if arch != "sm_90":
        rule = PREFILL.choose_alternative("perf_kernels", arch, prefill_problem(DOCUMENT)).rule
        assert all(value in space.values[name] for name, value in rule.config.items())
        assert all(each.holds({**space.default.values, **rule.config}) for each in space.constraints)
    winner = Candidate({**space.default.values, "GRID_CU_MULTIP": 2})
    pinned = DEFAULT.replay_config(DEFAULT.tuning_pin(winner, space))
    assert pinned.choose(PREFILL, arch, prefill_problem(DOCUMENT)).config["GRID_CU_MULTIP"] == 2
    (file,) = DEFAULT.tuned_files(winner, space, [DOCUMENT], arch, source="a test")
    assert '"GRID_CU_MULTIP": 2' in file.text


@pytest.mark.parametrize("multiple", [0, 2])
def test_a_candidate_is_compiled_as_the_kernel_of_its_grid(multiple: int) -> None:
    """Each argument has a type or a value in the kernel that is launched, absent tensors None; sizes of 16 are said."""
    pytest.importorskip("triton")
    from kernels.triton.mla.kernel import mla_kernel
    from kernels.triton.mla.persistent import mla_persistent_kernel

    space = DEFAULT.tuning_space([DOCUMENT], "gfx942")
    candidate = Candidate({**space.default.values, "GRID_CU_MULTIP": multiple})
    (build,) = DEFAULT.tuning_builds(candidate, space, DOCUMENT, "gfx942")
    source = build.source
    assert isinstance(source, TritonSource)
    function = mla_persistent_kernel if multiple else mla_kernel
    assert (source.function, build.kernel) == (
        ("mla_persistent_kernel", PERSISTENT_KERNEL.name) if multiple else ("mla_kernel", PREFILL_KERNEL.name)
    )
    assert source.signature.keys() | source.constants.keys() == set(function.arg_names)
    assert source.constants["lse_ptr"] is source.constants["scratch_ptr"] is None
    assert {"seq_q", "seq_kv", "heads"} <= set(source.divisible_by_16)


def test_decoding_is_not_tuned_as_prefill() -> None:
    """Few queries run other kernels: they are refused with the reason, and no rule of this kernel serves them."""
    decode = replace(DOCUMENT, seq_q=1, seq_kv=128)
    with pytest.raises(UsageError, match="has 1 queries per sequence, which mla_decode computes and not mla"):
        DEFAULT.tuning_space([decode], "gfx942")
    space = DEFAULT.tuning_space([DOCUMENT], "gfx942")
    assert DEFAULT.tuning_serves(DOCUMENT, space, "gfx942")
    assert not DEFAULT.tuning_serves(decode, space, "gfx942")
    assert tuning.declared_by_kernel()["mla"].space is PREFILL


def test_two_builds_of_it_are_gated() -> None:
    """f16 and bf16 in the document's configuration on CDNA; none where no rule or alternative has such a grid."""
    for arch in ("gfx90a", "gfx942", "gfx950"):
        assert [each.config for each in PERSISTENT_KERNEL.builds(arch)] == [
            "d64-r32-c256-f16-causal", "d64-r32-c256-bf16-causal"
        ]  # fmt: skip
    assert list(PERSISTENT_KERNEL.builds("sm_90")) == []


def test_what_it_is_not_offered_for() -> None:
    """Larger latents, 32 bits, decoding and other architectures have no such configuration, and the backend says so."""
    mi300 = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
    assert PUBLISHED.unsupported_reasons(DOCUMENT, mi300) == []
    for workload, device in (
        (replace(DOCUMENT, latent_dim=512), mi300),
        (replace(DOCUMENT, dtype="f32"), mi300),
        (replace(DOCUMENT, seq_q=1), mi300),
        (DOCUMENT, DeviceInfo(kind="cuda", arch="sm_90", product="h200")),
    ):
        (reason,) = PUBLISHED.unsupported_reasons(workload, device)
        kernel = "mla_decode" if workload.is_decode else "mla"
        assert reason == f"{kernel} has no configuration 'perf_kernels' for {device.arch} and this problem"
        assert DEFAULT.unsupported_reasons(workload, device) == []


def test_a_device_without_multiprocessors_is_refused() -> None:
    """A grid of no programs would compute nothing: the launcher says what it was given."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.mla.launch import mla_prefill

    tensors = Mla.parse(CASES[0]).make_inputs(0, "cpu", planted=False)
    with pytest.raises(UsageError, match="multiprocessors is 0; it must be at least 1"):
        mla_prefill(*tensors, causal=True, with_lse=False, config={"GRID_CU_MULTIP": 2}, multiprocessors=0)

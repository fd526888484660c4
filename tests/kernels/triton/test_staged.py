"""The staged pipeline in Triton: right as a whole and kernel by kernel, what it leaves alone, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.configs import KernelConfigError
from kernels.staged_backend import StageProblem
from kernels.triton.staged.backend import BACKENDS, SPACE_OF, _name_config_errors, chosen_by
from kernels.triton.staged.checks import KEYS_MAX
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ALL_STAGES = list(SPACE_OF)
UNMASKED = [stage for stage in ALL_STAGES if stage != "causal_mask"]
CASES = (
    "qk_scores-b1-s33-kv70-h2-hk1-d40-bf16",
    "qk_scores-b2-s1-kv65-h2-d16-f32",
    "qk_scores-b2-s5-kv33-h4-hk2-d72-f16",
    "causal_mask-b2-s33-kv70-h1-f32",
    "causal_mask-b1-s40-kv33-h2-f32",
    "causal_mask-b1-s3-kv600-h1-f32",
    "row_softmax-b1-s33-kv70-h1-f16-causal",
    "row_softmax-b2-s40-kv33-h1-bf16-causal",
    "row_softmax-b1-s9-kv250-h1-f32",
    "row_softmax-b1-s5-kv1100-h1-bf16-causal",
    "weighted_values-b1-s33-kv70-h2-hk1-d40-bf16-causal",
    "weighted_values-b2-s40-kv33-h2-d64-f32-causal",
    "weighted_values-b2-s5-kv64-h4-hk2-d16-f16",
    "prefill-b1-s33-kv70-h2-hk1-d40-bf16-causal-lse",
    "prefill-b1-s40-kv31-h2-d40-dv24-f32-causal-lse",
    "prefill-b2-s33-h1-d16-f16",
    "prefill-b1-s9-kv40-h1-d32-tf32-causal",
    "prefill-b1-s1-kv33-h2-d16-f16-causal-lse",
)
"""Ragged rows, keys and dimensions, one tile and several, grouped heads, rows that see no key, every dtype."""
EXPERIMENTS = ("mask_of_nan", "unseen_is_unread", "views_of_a_projection")


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What the judge finds of every case, interpreted when it is asked for; see `judge_staged`."""
    return interpret("tests.kernels.triton.judge_staged", (*CASES, *EXPERIMENTS))


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem(text: str, interpreted: Any) -> None:
    """Each kernel alone and all of them together pass the judge on several seeds, and a stored configuration replays.

    A prefill consists of its stages, under the names of the families; the mask is left out where it hides nothing.
    """
    found = interpreted[text]
    family = text.split("-")[0]
    masked = "causal" in text and "-s1-" not in text
    stages = (ALL_STAGES if masked else UNMASKED) if family == "prefill" else [family]
    assert found["problems"] == []
    assert ("lse" in found["outputs"]) == ("lse" in text)
    assert found["stages"] == (stages if family == "prefill" else [])
    assert found["pinned"] == sorted(SPACE_OF[stage].kernel for stage in stages)
    assert {found["config"][f"{kernel}.config_arch"] for kernel in found["pinned"]} == {"interpreter"}


def test_a_mask_reads_nothing_and_leaves_what_is_seen(interpreted: Any) -> None:
    """Over NaN, hidden scores become -inf, also in rows that see no key, and all others stay NaN."""
    assert interpreted["mask_of_nan"]


def test_causal_kernels_leave_unread_what_no_row_sees(interpreted: Any) -> None:
    """NaN in scores, 16 keys past the last one seen, and in values that a block of rows does not see changes no bit."""
    assert interpreted["unseen_is_unread"]


def test_parts_of_a_projection_are_read_where_they_lie(interpreted: Any) -> None:
    """q, k and v as views of one result, and of its first tokens only, give the same bits as copies."""
    assert interpreted["views_of_a_projection"]


def test_what_another_kernel_computed_is_not_copied() -> None:
    """Within a layer the call takes the canonical tensors themselves, strided ones too."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    workload = QkScores.parse("qk_scores-b1-s4-kv8-h2-d16-f16")
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    given = tuple(torch.zeros(1, 4, 3, 16)[:, :, :2] for _ in range(2))
    assert prepared.arguments is not None
    assert all(one is other for one, other in zip(given, prepared.arguments(given), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("text", [*CASES, "prefill-b2-s300-kv1000-h8-hk2-d128-bf16-causal-lse"])
def test_right_on_every_small_problem_on_a_gpu(text: str) -> None:
    """The compiled kernels pass the judge on the same problems."""
    from tests.kernels.triton.judge_staged import judged

    assert judged(text, "cuda")["problems"] == []


def test_products_promise_matrix_instructions() -> None:
    """Both products of 16-bit floats do, none of 32 bits, and neither mask nor softmax; each names its own kernel."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    for dtype in ("bf16", "tf32"):
        problem = StageProblem(1, 32, 32, 2, 2, 64, dtype, True, False)
        for stage in ALL_STAGES:
            declares = BACKEND.stage_kernel(stage, problem, torch.device("cpu")).declares
            assert declares.matrix == (dtype == "bf16" and stage in ("qk_scores", "weighted_values"))
            assert declares.kernels == (f"staged_{stage}_kernel",)


def test_a_rule_is_chosen_by_the_stage_s_own_sizes() -> None:
    """Each stage gives what its rules may ask for, and nothing else."""
    problem = StageProblem(2, 30, 50, 4, 2, 64, "f16", True, False)
    assert chosen_by("qk_scores", problem) == {"head_dim": 64, "element_bits": 16, "pairs": 2 * 4 * 30 * 50}
    assert chosen_by("causal_mask", problem) == {"columns": 50}
    assert chosen_by("row_softmax", problem) == {"columns": 50, "element_bits": 16}
    assert chosen_by("weighted_values", problem) == {"head_dim": 64, "element_bits": 16, "rows": 2 * 4 * 30}


def test_what_it_refuses() -> None:
    """No interpreter, too large a head dimension, too many keys, and 8 bits are each a reason with their figures."""
    pytest.importorskip("triton")
    (reason,) = BACKEND.unsupported_reasons(QkScores.parse("qk_scores-b1-s4-h2-d16-f16"), CPU)
    assert "TRITON_INTERPRET=1" in reason

    def refused(workload: Any) -> list[str]:
        return BACKEND.unsupported_reasons(workload, H200)

    wide = QkScores.parse("qk_scores-b1-s4-h2-d512-f16")
    assert refused(wide) == ["triton.staged takes head dimensions up to 256, qk_scores has one of 512"]
    assert refused(QkScores.parse("qk_scores-b1-s4-h2-d256-f32")) == []
    long = QkScores.parse(f"qk_scores-b1-s1-kv{KEYS_MAX + 1}-h1-d16-f16")
    assert refused(long) == ["triton.staged takes up to 8,388,608 keys, not 8,388,609"]
    (reason,) = refused(Prefill.parse("prefill-b1-s64-h2-d64-f8e4m3"))
    assert reason == "triton.staged takes bf16, f16, f32, tf32, not f8e4m3"


class OnGpu:
    """Stands for a tensor of a GPU."""

    is_cuda = True


def test_too_large_a_configuration_names_its_file() -> None:
    """A launch that needs more than the device has says which of the four kernels' files to change."""
    pytest.importorskip("triton")
    from triton.runtime.errors import OutOfResources

    def launch(*tensors: Any) -> Any:
        raise OutOfResources(300000, 232448, "shared memory")

    space = SPACE_OF["weighted_values"]
    choice = space.choose("sm_90", {"head_dim": 64, "element_bits": 32, "rows": 1})
    fake: Any = OnGpu()
    with pytest.raises(
        KernelConfigError, match=r"staged_weighted_values.sm_90\.json: .* needs 300000 of shared memory"
    ):
        _name_config_errors(launch, space, choice)(fake)

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kernels.triton.rope.backend import BACKENDS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.rope import Rope, rotate

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CASES = (
    "rope-b1-s1-h1-d2-f32",
    "rope-b2-s33-h4-hk2-d64-f16",
    "rope-b1-s63-h5-hk1-d128-bf16",
    "rope-b2-s7-h3-d80-bf16",
    "rope-b3-s5-h9-hk3-d256-bf16",
    "rope-b1-s9-h2-d6-f16",
    "rope-b2-s33-h4-hk2-d64-bf16-interleaved",
    "rope-b1-s63-h5-hk1-d128-f32-interleaved",
    "rope-b2-s7-h3-d80-f16-interleaved",
    "rope-b3-s5-h9-hk3-d256-f16-interleaved",
    "rope-b1-s9-h4-hk2-d6-f32-interleaved",
)


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """Outputs of every case, computed by the interpreter when they are asked for."""
    return interpret("kernels.triton.rope.backend", [f"triton.rope/{text}" for text in CASES])


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem(text: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernel is within budget on ragged tokens, heads and head dimensions, and replays."""
    result = interpreted[f"triton.rope/{text}"]
    assert judge(text, result["outputs"]) == ()
    assert result["unchanged"]
    assert result["replays"]
    assert result["config"]["config_arch"] == "interpreter"


@pytest.mark.gpu
@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem_on_a_gpu(text: str, judge: Any) -> None:
    """The compiled kernel is within budget on the same problems."""
    workload = Rope.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


def test_the_cases_cross_every_two_properties() -> None:
    """Any two of dtype, kind of pairs, grouped heads and a padded head dimension meet in a case."""
    rows = []
    for workload in map(Rope.parse, CASES):
        half = workload.head_dim // 2
        rows.append((workload.dtype, workload.interleaved, workload.heads > workload.kv_heads, half & (half - 1) > 0))
    for first, second in itertools.combinations(range(4), 2):
        values = [sorted({row[column] for row in rows}) for column in (first, second)]
        assert {(row[first], row[second]) for row in rows} == set(itertools.product(*values))


@pytest.mark.parametrize("text", [text for text in CASES if "-s1-" not in text])
def test_liars_are_found(text: str, judge: Any) -> None:
    """A position off by one, the other convention of pairs and the inverse rotation are each rejected."""
    import torch

    workload = Rope.parse(text)
    q, k, cos, sin = workload.make_inputs(1, "cpu", planted=True)
    late = [torch.roll(table, 1, dims=0) for table in (cos, sin)]
    lies = [(*late, workload.interleaved), (cos, -sin, workload.interleaved), (cos, sin, not workload.interleaved)]
    for lie in lies:
        outputs = {"q": rotate(q, *lie).to(q.dtype), "k": rotate(k, *lie).to(k.dtype)}
        problems = judge(text, outputs)
        assert any("'q'" in problem for problem in problems)
        assert any("'k'" in problem for problem in problems)


def test_what_the_kernel_declares_and_refuses() -> None:
    """Its own kernel must be among what ran on a GPU; without a GPU the reason names the interpreter's variable."""
    pytest.importorskip("triton")
    workload = Rope.parse(CASES[0])
    declares = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True)).declares
    assert (declares.kernels, declares.matrix) == (("rope_kernel",), False)
    (reason,) = BACKEND.unsupported_reasons(workload, CPU)
    assert "TRITON_INTERPRET=1" in reason


def test_the_launcher_names_what_is_wrong() -> None:
    """Bad arguments are refused by name, value and what is allowed, before anything is launched."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.rope.kernel import rope

    q, k, table = torch.zeros(1, 3, 4, 8), torch.zeros(1, 3, 2, 8), torch.zeros(3, 4)

    def launch(q: Any, k: Any, cos: Any, sin: Any) -> None:
        rope(q, k, cos, sin, interleaved=False, config={"BLOCK_S": 1, "BLOCK_H": 1})

    with pytest.raises(UsageError, match=r"rope: q must have 4 dimensions .* got shape \(3, 4, 8\)"):
        launch(q[0], k, table, table)
    with pytest.raises(UsageError, match="rope: q must have an even head dimension, got 7"):
        launch(q[..., :7].contiguous(), k, table, table)
    with pytest.raises(UsageError, match=r"rope: k must have shape \(1, 3, 2, 8\), got \(1, 2, 2, 8\)"):
        launch(q, k[:, :2].contiguous(), table, table)
    with pytest.raises(UsageError, match=r"rope: cos must have shape \(3, 4\), got \(4, 3\)"):
        launch(q, k, table.T.contiguous(), table)
    with pytest.raises(UsageError, match=r"rope: sin must have dtype torch.float32, got torch.float16"):
        launch(q, k, table, table.half())

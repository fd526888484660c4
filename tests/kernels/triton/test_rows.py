from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from kernels.triton.rows.backend import BACKENDS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

SOFTMAX, RMSNORM, LAYERNORM = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CASES = (
    "softmax-r7-c2-f16",
    "softmax-r130-c17-f32",
    "softmax-r9-c1000-bf16",
    "softmax-r3-c1024-f16",
    "softmax-r5-c4097-f16",
    "softmax-r3-c4097-f32",
    "softmax-r3-c2050-bf16",
    "softmax-r1-c2048-bf16",
    "rmsnorm-r200-c1-bf16",
    "rmsnorm-r7-c1-f32-residual",
    "rmsnorm-r130-c17-f16-residual",
    "rmsnorm-r5-c17-bf16",
    "rmsnorm-r9-c1000-f32",
    "rmsnorm-r3-c1000-bf16-residual",
    "rmsnorm-r5-c4097-f16",
    "rmsnorm-r3-c4097-bf16-residual",
    "rmsnorm-r4-c4097-f32-residual",
    "rmsnorm-r3-c2050-f32",
    "layernorm-r7-c2-bf16",
    "layernorm-r200-c2-f16-residual",
    "layernorm-r130-c17-f32-residual",
    "layernorm-r5-c17-f16",
    "layernorm-r9-c1000-bf16-residual",
    "layernorm-r3-c1000-f32",
    "layernorm-r5-c4097-bf16",
    "layernorm-r3-c4097-f16-residual",
    "layernorm-r4-c4097-f32-residual",
    "layernorm-r3-c2050-f32",
)
BY_FAMILY: dict[str, Any] = {"softmax": SOFTMAX, "rmsnorm": RMSNORM, "layernorm": LAYERNORM}


def case(text: str) -> str:
    """'backend/id', as the interpreting process takes it."""
    return f"{BY_FAMILY[text.partition('-')[0]].name}/{text}"


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """Outputs of every case, computed by the interpreter when they are asked for."""
    return interpret("kernels.triton.rows.backend", [case(text) for text in CASES])


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem(text: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernel is within budget on short, ragged and long rows, leaves its inputs alone, and replays."""
    result = interpreted[case(text)]
    assert judge(text, result["outputs"]) == ()
    assert result["unchanged"]
    assert result["replays"]
    assert result["config"]["config_arch"] == "interpreter"


@pytest.mark.gpu
@pytest.mark.parametrize("text", [*CASES, "softmax-r3-c100003-bf16", "rmsnorm-r3-c100003-f16-residual"])
def test_right_on_every_small_problem_on_a_gpu(text: str, judge: Any) -> None:
    """The compiled kernel is within budget on the same problems, and on rows longer than any tile."""
    workload = parse_workload(text)
    prepared = BY_FAMILY[workload.family].prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


WAYS = [
    {"BLOCK_R": block_r, "BLOCK_C": block_c, "PROGRAMS": programs, "STAGES": stages}
    for block_r, block_c in (("1", "8192"), ("2", "1024"))
    for programs in ("0", "1", "2")
    for stages in ("1", "2", "3")
]
"""Tiles that hold a row of 5,000 columns and that do not, under every loop over rows, with loads ahead and without."""


@pytest.mark.gpu
@pytest.mark.parametrize("residual", ["", "-residual"])
@pytest.mark.parametrize("family", BY_FAMILY)
def test_every_way_over_the_rows_is_right_on_a_gpu(family: str, residual: str, judge: Any) -> None:
    """The same rows are right in one walk and in two, one program per block or fewer, whatever is loaded ahead."""
    if family == "softmax" and residual:
        pytest.skip("softmax has no residual")
    text = f"{family}-r1333-c5000-bf16{residual}"
    workload = parse_workload(text)
    backend = BY_FAMILY[family]
    inputs = workload.make_inputs(1, "cuda", planted=True)
    stored = backend.prepare(workload, inputs).config
    for way in WAYS:
        prepared = backend.replay_config({**stored, **way}).prepare(workload, inputs)
        assert judge(text, prepared.outputs(prepared.run()), device="cuda") == (), way


def test_the_interpreted_cases_take_every_way_over_the_rows() -> None:
    """Each family has a case in one walk and in two, with one program per block of rows and with fewer."""
    for family, backend in BY_FAMILY.items():
        seen = set()
        for text in CASES:
            workload: Any = parse_workload(text)
            if workload.family == family:
                problem = {"columns": workload.columns, "element_bits": 8 * workload.element_bytes}
                config = backend.space.choose("interpreter", problem).config
                seen.add((workload.columns <= config["BLOCK_C"], config["PROGRAMS"] > 0))
        assert seen == set(itertools.product((False, True), repeat=2))


@pytest.mark.gpu
def test_masked_elements_of_long_rows_have_no_weight() -> None:
    """Elements of -inf give 0, also where the first tile of a row holds nothing else; a row of them gives NaN."""
    import torch

    from kernels.triton.rows.softmax import softmax

    x = torch.randn(300, 5000, device="cuda")
    x[:, :2000] = float("-inf")
    x[7] = float("-inf")
    for programs in (0, 1):
        config = {"BLOCK_R": 1, "BLOCK_C": 1024, "PROGRAMS": programs, "STAGES": 2, "num_warps": 4, "num_stages": 1}
        torch.testing.assert_close(softmax(x, config=config), torch.softmax(x, 1), equal_nan=True)


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The last rows of tensors of more than 2^31 elements equal the same rows of a small problem."""
    import torch

    from kernels.triton.rows.softmax import softmax

    config = {"BLOCK_R": 1, "BLOCK_C": 32768, "PROGRAMS": 0, "STAGES": 1, "num_warps": 16, "num_stages": 1}
    x = torch.zeros(2**16 + 1, 2**15, dtype=torch.float16, device="cuda")
    x[-1] = torch.randn(2**15, device="cuda")
    assert x.numel() > 2**31
    assert torch.equal(softmax(x, config=config)[-1:], softmax(x[-1:].clone(), config=config))


def test_the_cases_cross_every_two_properties() -> None:
    """Any two of dtype, length of rows and residual meet in a case of every family that has them."""
    for family in ("rmsnorm", "layernorm"):
        rows = []
        for text in CASES:
            workload: Any = parse_workload(text)
            if workload.family == family:
                rows.append((workload.dtype, workload.residual, workload.columns > 1024))
        for first, second in itertools.combinations(range(3), 2):
            values = [sorted({row[column] for row in rows}) for column in (first, second)]
            assert {(row[first], row[second]) for row in rows} == set(itertools.product(*values))


@pytest.mark.parametrize("text", [text for text in CASES if parse_workload(text).columns >= 17])  # type: ignore[attr-defined]
def test_a_lost_last_column_is_found(text: str, judge: Any) -> None:
    """A kernel that reduces over all columns but the last is rejected, for every dtype and length."""
    import torch

    workload: Any = parse_workload(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    shorter = dataclasses.replace(workload, columns=workload.columns - 1)
    outputs = shorter.plain(tuple(tensor[..., :-1].contiguous() for tensor in inputs))
    right = workload.plain(inputs)
    outputs = {name: torch.cat((output, right[name][:, -1:]), dim=1) for name, output in outputs.items()}
    assert any("'out'" in problem for problem in judge(text, outputs))


def test_a_variance_from_sums_of_squares_is_found(judge: Any) -> None:
    """The mean of squares less the square of the mean, in fp32, is rejected on shifted rows."""
    text = "layernorm-r12-c1000-f32"
    x, weight, bias = parse_workload(text).make_inputs(1, "cpu", planted=True)
    mean, square = x.mean(dim=1, keepdim=True), (x * x).mean(dim=1, keepdim=True)
    out = (x - mean) * (square - mean * mean + 1e-5).rsqrt() * weight + bias
    assert judge(text, {"out": out})


def test_a_forgotten_eps_is_found(judge: Any) -> None:
    """A norm without eps is rejected, because some rows are as small as it."""
    text = "rmsnorm-r12-c1000-bf16"
    x, weight = parse_workload(text).make_inputs(1, "cpu", planted=True)
    wide = x.double()
    out = wide * (wide * wide).mean(dim=1, keepdim=True).rsqrt() * weight.double()
    assert judge(text, {"out": out.to(x.dtype)})


def test_a_softmax_without_its_maximum_is_found(judge: Any) -> None:
    """exp(x) over its sum, in fp32, is rejected on rows that are shifted by 100."""
    text = "softmax-r12-c1000-f16"
    (x,) = parse_workload(text).make_inputs(1, "cpu", planted=True)
    powers = x.float().exp()
    assert judge(text, {"out": (powers / powers.sum(dim=1, keepdim=True)).to(x.dtype)})


def test_what_the_kernels_declare() -> None:
    """Each kernel must be among what ran on a GPU, and torch's operator must not."""
    pytest.importorskip("triton")
    for text, kernel, never in (
        ("softmax-r2-c8-f16", "softmax_kernel", "aten::_?softmax"),
        ("rmsnorm-r2-c8-f16", "rmsnorm_kernel", "aten::(_fused_)?rms_norm"),
        ("layernorm-r2-c8-f16", "layernorm_kernel", "aten::(native_)?layer_norm"),
    ):
        workload = parse_workload(text)
        declares = BY_FAMILY[workload.family].prepare(workload, workload.make_inputs(1, "cpu", planted=True)).declares
        assert (declares.kernels, declares.never, declares.matrix) == ((kernel,), (never,), False)


def test_says_how_to_run_without_a_gpu() -> None:
    """Without a GPU and without the interpreter, the reason names the variable to set."""
    for text in ("softmax-r2-c8-f16", "rmsnorm-r2-c8-f16", "layernorm-r2-c8-f16"):
        workload = parse_workload(text)
        (reason,) = BY_FAMILY[workload.family].unsupported_reasons(workload, CPU)
        assert "TRITON_INTERPRET=1" in reason


def test_a_launcher_names_what_is_wrong() -> None:
    """Bad arguments are refused by name, value and what is allowed, before anything is launched."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.rows.layernorm import layernorm
    from kernels.triton.rows.rmsnorm import rmsnorm
    from kernels.triton.rows.softmax import softmax

    x, weight = torch.zeros(4, 8), torch.zeros(8)
    for bad, message in (
        (x[0], r"softmax: x must have 2 dimensions .* got shape \(8,\)"),
        (x[:0], r"at least one element, got shape \(0, 8\)"),
        (x.T, r"softmax: x must be contiguous, got strides \(1, 8\)"),
        (x.int(), "softmax: x must be one of float32, float16, bfloat16, got int32"),
    ):
        with pytest.raises(UsageError, match=message):
            softmax(bad, config={})
    with pytest.raises(UsageError, match=r"rmsnorm: weight must have shape \(8,\), got \(4,\)"):
        rmsnorm(x, torch.zeros(4), eps=1e-6, config={})
    with pytest.raises(UsageError, match=r"rmsnorm: residual must have dtype torch.float32, got torch.float16"):
        rmsnorm(x, weight, x.half(), eps=1e-6, config={})
    with pytest.raises(UsageError, match=r"layernorm: residual must be contiguous, got strides \(1, 4\)"):
        layernorm(x, weight, weight, torch.zeros(8, 4).T, eps=1e-5, config={})
    with pytest.raises(UsageError, match=r"layernorm: bias must have shape \(8,\), got \(7,\)"):
        layernorm(x, weight, torch.zeros(7), eps=1e-5, config={})

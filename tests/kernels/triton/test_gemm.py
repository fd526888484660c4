from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from kernels.triton.gemm.backend import BACKENDS
from kernels.triton.gemm.space import MULTIPLY_REDUCE_SIZE_M_MAX
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.gemm import Gemm

pytestmark = pytest.mark.usefixtures("one_thread")

INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
SEED = 1

# Tiles are 32 x 32 x 32 and stream-K has 5 programs. Pairwise: dtype, layout, which of m, n and k are ragged, schedule.
CASES = (
    "triton.gemm/gemm-m64-n96-k64-f16",
    "triton.gemm/gemm-m33-n65-k97-bf16-nt",
    "triton.gemm/gemm-m31-n64-k31-f32",
    "triton.gemm/gemm-m65-n31-k96-i8-nt",
    "triton.gemm/gemm-m32-n33-k65-f8e4m3-nt",
    "triton.gemm/gemm-m47-n64-k64-f8e5m2",
    "triton.gemm/gemm-m64-n47-k33-f8e4m3fnuz",
    "triton.gemm/gemm-m33-n32-k100-f8e5m2fnuz-nt",
    "triton.gemm/gemm-m1-n1-k1-f16-nt",
    "triton.gemm_stream_k/gemm-m97-n65-k168-f16-nt",  # 12 tiles: 7 cut, 5 whole
    "triton.gemm_stream_k/gemm-m64-n64-k96-bf16",  # 4 tiles, fewer than programs
    "triton.gemm_stream_k/gemm-m160-n32-k65-f32-nt",  # 5 tiles: none cut
    "triton.gemm_stream_k/gemm-m33-n96-k300-i8",  # 6 tiles of 10 K tiles, all cut
    "triton.gemm_stream_k/gemm-m31-n31-k500-f8e4m3",  # one tile, shared by all programs
    "triton.gemm_stream_k/gemm-m128-n97-k64-f8e5m2-nt",  # 16 tiles: 6 cut, 10 whole in two waves
    "triton.gemm_stream_k/gemm-m32-n33-k40-f8e4m3fnuz-nt",  # fewer K tiles than programs
    "triton.gemm_stream_k/gemm-m64-n64-k77-f8e5m2fnuz",
    "triton.gemm_data_parallel/gemm-m33-n64-k97-f16",
    "triton.gemm_data_parallel/gemm-m64-n33-k64-i8-nt",
    "triton.gemm_multiply_reduce/gemm-m5-n65-k97-f16",
    "triton.gemm_multiply_reduce/gemm-m8-n64-k64-bf16-nt",
    "triton.gemm_multiply_reduce/gemm-m1-n33-k130-f32-nt",
    "triton.gemm_multiply_reduce/gemm-m3-n64-k33-i8",
    "triton.gemm_multiply_reduce/gemm-m2-n31-k64-f8e4m3-nt",
    "triton.gemm_multiply_reduce/gemm-m4-n32-k65-f8e5m2",
    "triton.gemm_multiply_reduce/gemm-m7-n32-k65-f8e4m3fnuz",
    "triton.gemm_multiply_reduce/gemm-m6-n47-k32-f8e5m2fnuz-nt",
)

Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gave, computed by the interpreter in one process."""
    return interpret("kernels.triton.gemm.backend", CASES)


@pytest.mark.parametrize("case", CASES)
def test_right_under_the_interpreter(case: str, interpreted: Any, judge: Judge) -> None:
    """Every schedule is within budget, exact in integers, in all dtypes and layouts and on ragged sizes; it leaves its
    inputs as they were, and its configuration can be replayed."""
    found = interpreted[case]
    assert judge(case.partition("/")[2], found["outputs"]) == ()
    assert found["unchanged"]
    assert found["replays"]
    assert "small tiles" in found["config"]["config_source"]


def test_the_schedule_is_recorded(interpreted: Any) -> None:
    """Stream-K says how many tiles it cut, every schedule how tiles are read and where its configuration is from."""
    stream_k = {
        "gemm-m97-n65-k168-f16-nt": "7 of 12 tiles cut, 5 programs",
        "gemm-m160-n32-k65-f32-nt": "0 of 5 tiles cut, 5 programs",
        "gemm-m128-n97-k64-f8e5m2-nt": "6 of 16 tiles cut, 5 programs",
    }
    for text, schedule in stream_k.items():
        assert interpreted[f"triton.gemm_stream_k/{text}"]["config"]["schedule"] == schedule
    reads = {
        "triton.gemm_stream_k/gemm-m97-n65-k168-f16-nt": "descriptors",
        "triton.gemm/gemm-m47-n64-k64-f8e5m2": "descriptors",
        "triton.gemm/gemm-m33-n65-k97-bf16-nt": "pointers",
        "triton.gemm/gemm-m31-n64-k31-f32": "pointers",
    }
    for case, how in reads.items():
        assert interpreted[case]["config"]["reads"] == how
        assert "small tiles" in interpreted[case]["config"]["config_source"]


def test_the_twin_has_the_tiles_of_stream_k(interpreted: Any) -> None:
    """Stream-K and its data-parallel twin are configured by the same file, so that only the schedule differs."""
    by_name = {backend.name: backend for backend in BACKENDS}
    assert by_name["triton.gemm_data_parallel"].spaces == by_name["triton.gemm_stream_k"].spaces
    config = interpreted["triton.gemm_data_parallel/gemm-m33-n64-k97-f16"]["config"]
    assert config["PROGRAMS"] == "5"


def dropped_last_products(a: Any, b: Any) -> Any:
    """The tail of K, where it is shorter than a tile of 32, is lost."""
    whole = a.shape[1] // 32 * 32
    return a[:, :whole] @ b[:whole]


def doubled_product(a: Any, b: Any) -> Any:
    """The first position of the second half of K is summed by both halves."""
    middle = a.shape[1] // 2
    return a @ b + a[:, middle : middle + 1] @ b[middle : middle + 1]


def lost_fragment(a: Any, b: Any) -> Any:
    """One tile of the result lacks the K that another program summed."""
    out = a @ b
    out[:32, :32] -= a[:32, 32:64] @ b[32:64, :32]
    return out


def shifted_columns(a: Any, b: Any) -> Any:
    """The last column is read from the one before it."""
    out = a @ b
    out[:, -1] = out[:, -2]
    return out


@pytest.mark.parametrize("text", ["gemm-m64-n65-k97-f16", "gemm-m64-n65-k8209-bf16", "gemm-m64-n65-k97-i8"])
@pytest.mark.parametrize("liar", [dropped_last_products, doubled_product, lost_fragment, shifted_columns])
def test_a_typical_mistake_is_rejected(text: str, liar: Callable[[Any, Any], Any], judge: Judge) -> None:
    """A lost tail, a product taken twice, a lost fragment and a column off by one are found, also among 8209 products
    summed into bf16; the honest product is not."""
    workload = parse_workload(text)
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    dtype = workload.plain(inputs)["out"].dtype
    a, b = (tensor.double() for tensor in inputs)
    assert judge(text, {"out": (a @ b).to(dtype)}) == ()
    assert judge(text, {"out": liar(a, b).to(dtype)}) != ()


def test_a_forgotten_scale_is_rejected(judge: Judge) -> None:
    """An fp8 product without one of its scales is found."""
    workload = Gemm.parse("gemm-m33-n65-k97-f8e4m3-nt")
    a, b, a_scale, b_scale = workload.make_inputs(SEED, "cpu", planted=True)
    product = a.double() @ b.double().t() * a_scale.double()
    assert judge(workload.id, {"out": (product * b_scale.double()).bfloat16()}) == ()
    assert judge(workload.id, {"out": product.bfloat16()}) != ()


def test_says_what_it_does_not_compute() -> None:
    """Too many rows without matrix instructions, and fp8 formats that the device does not multiply, are refused."""
    by_name = {backend.name: backend for backend in BACKENDS}
    tall = Gemm(MULTIPLY_REDUCE_SIZE_M_MAX + 1, 8, 8)
    assert by_name["triton.gemm_multiply_reduce"].unsupported_reasons(tall, INTERPRETING) == [
        "m 9 is above 8, the most rows that it takes: past it, matrix instructions are at least half full"
    ]
    h200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
    for backend in BACKENDS:
        assert backend.unsupported_reasons(Gemm(8, 8, 8, "f8e4m3fnuz"), h200) == [
            "sm_90 multiplies f8e4m3, f8e5m2 in hardware, not f8e4m3fnuz"
        ]
        assert backend.unsupported_reasons(Gemm(8, 8, 8, "f8e4m3"), h200) == []
        assert backend.unsupported_reasons(Gemm(8, 8, 8, "f8e4m3fnuz"), INTERPRETING) == []


def test_what_the_kernels_declare() -> None:
    """Each schedule's own kernels must be among what ran, torch's products must not; matrix instructions are promised
    but for f32 and multiply-reduce."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    expected = {
        "triton.gemm": ("gemm_kernel",),
        "triton.gemm_stream_k": ("gemm_stream_k_kernel", "gemm_fix_up_kernel"),
        "triton.gemm_data_parallel": ("gemm_kernel",),
        "triton.gemm_multiply_reduce": ("gemm_multiply_reduce_kernel",),
    }
    for backend in BACKENDS:
        for dtype in ("f16", "i8", "f32"):
            workload = Gemm(8, 8, 8, dtype)
            declares = backend.prepare(workload, workload.make_inputs(SEED, "cpu", planted=False)).declares
            assert declares.kernels == expected[backend.name]
            assert declares.never == ("aten::mm", "aten::_int_mm", "aten::_scaled_mm")
            assert declares.matrix == (dtype != "f32" and backend.name != "triton.gemm_multiply_reduce")


def operands(**changes: Any) -> dict[str, Any]:
    """Arguments that every launcher takes, but for the changes."""
    import torch

    config = {
        "BLOCK_M": 32,
        "BLOCK_N": 32,
        "BLOCK_K": 32,
        "GROUP_M": 2,
        "DESCRIPTORS": False,
        "PROGRAMS": 5,
        "FIX_M": 16,
    }
    a, b = torch.zeros(4, 8, dtype=torch.float16), torch.zeros(8, 6, dtype=torch.float16)
    given = {"a": a, "b": b, "scales": None, "transposed": False}
    return {**given, "config": config, **changes}


def bad_operands() -> dict[str, dict[str, Any]]:
    """What is said -> the change that it is said of."""
    import torch

    half = torch.zeros(4, 8, dtype=torch.float16)
    fp8, scale = half.to(torch.float8_e4m3fn), torch.ones(1)
    return {
        r"a must be a contiguous matrix with elements, got shape \(4,\)": {"a": half[:, 0]},
        r"b must be a contiguous matrix with elements, got shape \(8, 4\) and strides \(1, 8\)": {"b": half.t()},
        "a must be one of torch.float32, .*, got torch.float64": {"a": half.double()},
        "b must be torch.float16 on cpu as a is, got torch.float32": {"b": torch.zeros(8, 6)},
        r"b must be \(K, N\) with a's K = 8, got shape \(4, 8\)": {"b": half},
        r"b must be \(N, K\) with a's K = 8, got shape \(8, 6\)": {"transposed": True},
        "scales must be None for torch.float16, got tuple": {"scales": (scale, scale)},
        "scales must be given for torch.float8_e4m3fn, got NoneType": {"a": fp8, "b": fp8, "transposed": True},
        r"scales must be two fp32 tensors \(1,\) on cpu, got torch.float64 \(1,\)": {
            "a": fp8,
            "b": fp8,
            "transposed": True,
            "scales": (scale.double(), scale),
        },
    }


def test_bad_operands_are_named() -> None:
    """Every launcher refuses an operand that does not fit, with its name, what it is and what is allowed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    launchers = {"gemm": "kernel", "gemm_stream_k": "stream_k", "gemm_multiply_reduce": "multiply_reduce"}
    for name, module in launchers.items():
        launcher = getattr(importlib.import_module(f"kernels.triton.gemm.{module}"), name)
        more = {"workspace": torch.empty(10, 32, 32)} if name == "gemm_stream_k" else {}
        for message, changes in bad_operands().items():
            with pytest.raises(UsageError, match=message):
                launcher(**operands(**changes), **more)


def test_bad_schedules_are_named() -> None:
    """Stream-K refuses a workspace, a strip and a number of programs that do not fit; multiply-reduce too many rows."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.gemm.multiply_reduce import gemm_multiply_reduce
    from kernels.triton.gemm.stream_k import gemm_stream_k

    config, right = operands()["config"], torch.empty(10, 32, 32)
    for message, changes in (
        (r"workspace must be torch.float32 \(10, 32, 32\) on cpu, .*, got torch.float32 \(9, 32, 32\)", {}),
        ("FIX_M must be a positive divisor of BLOCK_M, which is 32, got 12", {"FIX_M": 12}),
        ("PROGRAMS must be positive, or on a GPU 0 for one per multiprocessor, got 0", {"PROGRAMS": 0}),
    ):
        with pytest.raises(UsageError, match=message):
            gemm_stream_k(**operands(config=config | changes), workspace=right if changes else right[:9])
    with pytest.raises(UsageError, match="a must have at most 8 rows, got 9"):
        gemm_multiply_reduce(**operands(a=torch.zeros(9, 8, dtype=torch.float16)))


def on_gpu() -> DeviceInfo:
    """This machine's GPU."""
    import torch

    from kernels.triton.triton_backend import arch_of

    arch = arch_of(torch.device("cuda"))
    return DeviceInfo(kind="rocm" if torch.version.hip else "cuda", arch=arch, product=arch)


LARGER = (
    "triton.gemm/gemm-m1000-n1111-k777-f16",
    "triton.gemm/gemm-m513-n4112-k1040-bf16-nt",
    "triton.gemm/gemm-m2049-n1040-k200-f8e4m3-nt",
    "triton.gemm/gemm-m520-n4104-k264-f8e5m2",
    "triton.gemm/gemm-m2049-n1040-k200-i8",
    "triton.gemm_stream_k/gemm-m1792-n2432-k1024-f16",
    "triton.gemm_stream_k/gemm-m896-n4864-k1000-bf16-nt",
    "triton.gemm_stream_k/gemm-m300-n500-k4096-i8-nt",
    "triton.gemm_stream_k/gemm-m1792-n2432-k1024-f8e4m3-nt",
    "triton.gemm_stream_k/gemm-m100-n200-k3000-f32",
    "triton.gemm_data_parallel/gemm-m1792-n2432-k1024-f16",
    "triton.gemm_multiply_reduce/gemm-m7-n1111-k777-f16",
)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, *LARGER])
def test_right_on_a_gpu(case: str, judge: Judge) -> None:
    """The compiled kernels are within budget on the same problems and on larger ones, and repeat bit for bit."""
    import torch

    name, _, text = case.partition("/")
    (backend,) = [one for one in BACKENDS if one.name == name]
    workload = Gemm.parse(text)
    if reasons := backend.unsupported_reasons(workload, on_gpu()):
        pytest.skip("; ".join(reasons))
    prepared = backend.prepare(workload, workload.make_inputs(SEED, "cuda", planted=True))
    outputs, again = (prepared.outputs(prepared.run()) for _ in range(2))
    assert judge(text, outputs, device="cuda") == ()
    assert torch.equal(outputs["out"], again["out"])


@pytest.mark.gpu
@pytest.mark.parametrize("descriptors", [False, True])
def test_positions_past_32_bits_are_right_on_a_gpu(descriptors: bool) -> None:
    """The last rows of an a and an out of more than 2^31 elements are those of a product of these rows alone."""
    import torch

    from kernels.triton.gemm.kernel import gemm

    config: dict[str, Any] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    config |= {"DESCRIPTORS": descriptors, "num_warps": 8, "num_stages": 2}
    rows = 2**31 // 1024 + 128
    a = torch.zeros(rows, 1024, dtype=torch.float16, device="cuda")
    a[-128:] = torch.randn(128, 1024, device="cuda")
    b = torch.randn(1024, 1024, device="cuda").half()
    out = gemm(a, b, transposed=False, config=config)
    assert a.numel() > 2**31
    assert torch.equal(out[-128:], gemm(a[-128:].clone(), b, transposed=False, config=config))
    assert not bool(out[:128].any())

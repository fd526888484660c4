from __future__ import annotations

import pytest
import torch

from pytest_attnperf.workloads.precision import full_fp32_matmul, multiply_as_tensor_core, reference_dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_cpu_reference_is_fp64(dtype: torch.dtype) -> None:
    """On a CPU every reference is fp64."""
    assert reference_dtype((torch.ones(1, dtype=dtype),)) == torch.float64


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float64)],
)
def test_a_gpu_reference_has_at_least_13_bits_more(dtype: torch.dtype, expected: torch.dtype) -> None:
    """On a GPU fp32 serves the 16-bit types, and fp32 itself needs fp64."""
    assert reference_dtype((torch.ones(1, dtype=dtype, device="cuda"),)) == expected


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
@pytest.mark.parametrize("setting", ["tf32", "ieee"])
def test_the_process_setting_is_restored(setting: str) -> None:
    """TF32 is off inside, and whatever the process had set is back afterwards, also after an error."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = setting
    try:
        with pytest.raises(ZeroDivisionError), full_fp32_matmul():
            assert matmul.fp32_precision == "ieee"
            raise ZeroDivisionError
        assert matmul.fp32_precision == setting
    finally:
        matmul.fp32_precision = before


def test_a_tensor_core_cuts_its_sums() -> None:
    """What is less than a step of fp32 is lost after eight products, also where rounding would keep it; within eight
    nothing is."""
    step = 2.0**-23
    b = torch.ones(9, 1, dtype=torch.float16)
    a = torch.tensor(
        [[1.0, *[0.0] * 7, 0.75 * step], [-1.0, *[0.0] * 7, -0.75 * step], [1.0, 0.5 * step, 0.5 * step, *[0.0] * 6]]
    )
    assert multiply_as_tensor_core(a, b).flatten().tolist() == [1.0, -1.0, 1.0 + step]

"""Head dimensions that are no power of two: every backend of every family of attention is right, or refuses them for a
reason that is true."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from suites.head_size_workloads import EVEN, ODD, SIZES
from tests.kernels.head_sizes import FAMILIES, cases_of, found, found_on_gpu, head_dim_of, pairs, registered

PAIRS = [*pairs()]
OURS = [pair for pair in PAIRS if not pair[1].startswith(("ck", "aiter"))]
DEVICES = (
    DeviceInfo(kind="cuda", arch="sm_90", product="h200"),
    DeviceInfo(kind="rocm", arch="gfx942", product="mi300x"),
    DeviceInfo(kind="rocm", arch="gfx950", product="mi355x"),
)

IN_PIECES = {
    *(("prefill", f"hip.{step}") for step in ("naive", "lds_tiles", "flash", "vectorised", "matrix", "prefetch")),
    *(("prefill", name) for name in ("hip.best", "hip.wgmma", "native.sdpa_efficient", "native.sdpa_cudnn")),
    ("varlen", "native.sdpa_varlen"),
    ("decode", "hip.decode"),
    ("backward", "native.sdpa_backward"),
    ("backward", "native.cudnn_backward"),
    ("varlen_backward", "native.sdpa_varlen_backward"),
}
"""(family, backend) of those that read rows 16 bytes at a time and do not pad them: they take multiples of 8."""

NOT_ON_CPU = ("native.flex", "native.compiled", "triton.flash_trans_v_autotuned", "triton.mla_perf_kernels")
"""Compiled for long, or configured for GPUs alone."""


def names_size(reason: str, size: int) -> bool:
    """Whether a reason is against this head dimension."""
    return re.search(rf"head.?dim.*\b{size}\b", reason) is not None


@pytest.mark.parametrize(("family", "backend"), OURS)
def test_sizes_are_refused_only_where_rows_are_read_in_pieces(family: str, backend: str) -> None:
    """No backend of ours refuses a multiple of 8; only those that read rows 16 bytes at a time refuse others."""
    for device in DEVICES:
        for workload in FAMILIES[family]:
            size = head_dim_of(workload)
            reasons = registered().get(backend).unsupported_reasons(workload, device)
            against = [reason for reason in reasons if names_size(reason, size)]
            assert bool(against) == ((family, backend) in IN_PIECES and size in ODD), (device.arch, against)


@pytest.mark.parametrize(("family", "backend"), [pair for pair in PAIRS if pair not in OURS])
def test_libraries_take_multiples_of_8_or_name_the_size(family: str, backend: str) -> None:
    """An adapter to aiter refuses a size in words that name it, and odd ones wherever it refuses a multiple of 8."""
    for workload in FAMILIES[family]:
        size = head_dim_of(workload)
        reasons = registered().get(backend).unsupported_reasons(workload, DEVICES[1])
        for reason in reasons:
            if "head_dim" in reason or "head dimension" in reason:
                assert names_size(reason, size) or re.search(rf"\b{size}\b", reason), reason


def test_every_family_has_every_size() -> None:
    """Sizes are even where elements are rotated in pairs, else all."""
    for family, workloads in FAMILIES.items():
        assert {head_dim_of(workload) for workload in workloads} == set(EVEN if family == "rope" else SIZES)


ON_CPU = [pair for pair in OURS if not pair[1].startswith("gluon") and pair[1] not in NOT_ON_CPU]


@pytest.fixture(scope="module")
def on_cpu(interpret: Any) -> Any:
    """What is found of a case on the CPU: interpreted, or emulated."""
    return interpret("tests.kernels.head_sizes", [case for pair in ON_CPU for case in cases_of(*pair)])


@pytest.mark.parametrize(("number", "family", "backend"), [(n, *pair) for n, pair in enumerate(ON_CPU)])
def test_right_at_a_size_on_a_cpu(number: int, family: str, backend: str, on_cpu: Any) -> None:
    """Each backend at one of the sizes that it takes on a CPU, another one each, is within budget."""
    taken = [
        case
        for case in cases_of(family, backend)
        if head_dim_of(parse_workload(case.partition("/")[2])) in EVEN or (family, backend) not in IN_PIECES
    ]
    case = taken[number % len(taken)]
    seen = on_cpu[case]
    if seen["refused"]:
        pytest.skip("; ".join(seen["refused"]))
    assert seen["wrong"] == (), case


def test_an_exception_is_a_problem() -> None:
    """What a backend raises is among what is wrong, so that no case is lost."""
    pytest.importorskip("torch")
    (problem,) = found("native.eager/decode-b2-kv70-h4-hk2-d72-bf16")["wrong"]
    assert "Traceback" in problem


@pytest.fixture(scope="module")
def on_gpu() -> Any:
    """What is found of every case on the GPU."""
    return found_on_gpu([case for pair in OURS for case in cases_of(*pair)])


@pytest.mark.gpu
@pytest.mark.parametrize(("family", "backend"), OURS)
def test_right_at_every_size_on_a_gpu(family: str, backend: str, on_gpu: Any) -> None:
    """Every size that a backend does not refuse is within budget, compiled."""
    seen = {case: on_gpu[case] for case in cases_of(family, backend)}
    wrong = {case: each["wrong"] for case, each in seen.items() if each["wrong"]}
    assert not wrong
    if all(each["refused"] for each in seen.values()):
        pytest.skip("; ".join(next(iter(seen.values()))["refused"]))

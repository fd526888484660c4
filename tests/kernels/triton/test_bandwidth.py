from __future__ import annotations

from typing import Any

import pytest

from kernels.triton.bandwidth.backend import BACKENDS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.bandwidth import KINDS, Bandwidth

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CASES = (
    *(f"bandwidth-{kind}-kib1-f32" for kind in KINDS),
    *(f"bandwidth-{kind}-kib33-f16" for kind in KINDS),
    "bandwidth-copy-kib96-bf16",
    "bandwidth-read-kib160-f32",
    "bandwidth-write-kib129-bf16",
    "bandwidth-triad-kib65-f32",
    "bandwidth-triad-kib64-bf16",
)
"""One program, several, and a last one that is not full; every kind in every width."""


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """Outputs of every case, computed by the interpreter when they are asked for."""
    return interpret("kernels.triton.bandwidth.backend", [f"triton.bandwidth/{text}" for text in CASES])


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem(text: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernels are exact, or of triad within budget, and replay."""
    result = interpreted[f"triton.bandwidth/{text}"]
    assert judge(text, result["outputs"]) == ()
    assert result["unchanged"]
    assert result["replays"]
    assert result["config"]["config_arch"] == "interpreter"


@pytest.mark.gpu
@pytest.mark.parametrize("text", [*CASES, *(f"bandwidth-{kind}-mib48-f16" for kind in KINDS)])
def test_right_on_every_small_problem_on_a_gpu(text: str, judge: Any) -> None:
    """The compiled kernels are exact, or of triad within budget, also on many programs."""
    workload = Bandwidth.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The end of an array of more than 2^31 elements is copied, and read, as it is."""
    import torch

    from kernels.triton.bandwidth.kernel import copy, read_sums

    config = {"BLOCK": 8192, "STREAM": False, "num_warps": 8, "num_stages": 1}
    b = torch.zeros(2**31 + 2**14, dtype=torch.float16, device="cuda")
    b[-(2**14) :] = torch.randn(2**14, device="cuda")
    assert torch.equal(copy(b, config=config)[-(2**14) :], b[-(2**14) :])
    assert torch.equal(read_sums(b, config=config)[-32:], read_sums(b[-(2**14) :].clone(), config=config))


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_or_changed_element_is_found(kind: str, judge: Any) -> None:
    """One element that is off by its lowest bits, at either end, is rejected; in bytes of a copy even a single bit."""
    text = f"bandwidth-{kind}-kib33-f16"
    workload = Bandwidth.parse(text)
    for place in (0, -1):
        (name, output), *_ = workload.plain(workload.make_inputs(1, "cpu", planted=True)).items()
        assert judge(text, {name: output}) == ()
        output[place] += 1
        assert judge(text, {name: output})


def test_a_read_that_skips_an_element_is_found(judge: Any) -> None:
    """The sums of an array of which one element is read as zero are rejected."""
    text = "bandwidth-read-kib33-f32"
    workload = Bandwidth.parse(text)
    (b,) = workload.make_inputs(1, "cpu", planted=True)
    b[-1] = 0.0
    assert judge(text, workload.plain((b,)))


def test_what_the_kernels_declare_and_refuse() -> None:
    """The kernel of the kind must be among what ran, no copy engine may, and the reason names the variable to set."""
    pytest.importorskip("triton")
    for kind in KINDS:
        workload = Bandwidth(kind, kib=4)
        declares = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True)).declares
        assert declares.kernels == (f"bandwidth_{kind}_kernel",)
        assert declares.never == ("Memcpy DtoD", "Memset")
        (reason,) = BACKEND.unsupported_reasons(workload, CPU)
        assert "TRITON_INTERPRET=1" in reason


def test_the_launchers_name_what_is_wrong() -> None:
    """Bad arguments are refused by name, value and what is allowed, before anything is launched."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.bandwidth.kernel import copy, read_sums, triad, write_pattern

    b, config = torch.zeros(256), {"BLOCK": 1024}
    with pytest.raises(UsageError, match=r"copy: b must have 1 dimensions .* got shape \(2, 128\)"):
        copy(b.view(2, 128), config=config)
    with pytest.raises(UsageError, match=r"copy: b must be contiguous, got strides \(2,\)"):
        copy(b[::2], config=config)
    with pytest.raises(UsageError, match="read_sums: b must be a multiple of 1024 bytes long, got 1020 bytes"):
        read_sums(b[:255], config=config)
    for length in (8, 100, 2048):
        with pytest.raises(UsageError, match=f"write_pattern: p must have a power of two of elements, .* {length}"):
            write_pattern(torch.zeros(length), 4096, config=config)
    with pytest.raises(UsageError, match="write_pattern: count must be at least 1, got 0"):
        write_pattern(b, 0, config=config)
    with pytest.raises(UsageError, match=r"triad: c must have shape \(256,\), got \(128,\)"):
        triad(b, b[:128], 3.0, config=config)

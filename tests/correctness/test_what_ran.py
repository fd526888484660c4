"""The judge of what ran, on traces written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.backends import Declares
from pytest_attnperf.correctness.what_ran import Trace, differences, per_call, problems, short_name
from pytest_attnperf.records import Launch

FLASH = Launch("void flash_fwd_kernel<256>", grid=(8, 4, 8), block=(128, 1, 1), shared_bytes=98304)
MATH = Launch("sm80_xmma_gemm_f16", grid=(4, 4, 1), block=(256, 1, 1))
ON_GPU = Trace(launches=(FLASH,), operators=frozenset({"aten::_flash_attention_forward"}), on_gpu=True)


def test_what_is_declared_and_runs_is_right() -> None:
    """A call that runs its declared kernel and operator on one stream has no problem."""
    assert problems(ON_GPU, Declares(), "lib.flash") == []
    declares = Declares(kernels=("flash_fwd",), operators=("_flash_attention",), never=("softmax",))
    assert problems(ON_GPU, declares, "lib.flash") == []


def test_a_declared_kernel_that_did_not_run_is_a_silent_fallback() -> None:
    """The message names the backend, what it declares, and what ran instead."""
    trace = replace(ON_GPU, launches=(MATH, Launch("softmax_warp_forward")))
    (found,) = problems(trace, Declares(kernels=("flash",)), "lib.flash")
    assert found == (
        "lib.flash declares the kernel 'flash', but it did not run; what ran is sm80_xmma_gemm_f16, "
        "softmax_warp_forward: a silent fallback to another implementation"
    )


def test_a_declared_operator_that_did_not_run_is_a_silent_fallback() -> None:
    """Operators tell one torch backend from another on a CPU and on any GPU."""
    trace = Trace((Launch("aten::bmm", "operator"),), frozenset({"aten::bmm", "aten::_scaled_dot_product_math"}))
    (found,) = problems(trace, Declares(operators=("flash_attention",)), "lib.flash")
    assert "lib.flash declares the operator 'flash_attention', but it did not run; what ran is aten::bmm" in found


def test_nothing_that_ran_is_said_so() -> None:
    """An empty kernel is not described as a fallback to ''."""
    (found,) = problems(replace(ON_GPU, launches=()), Declares(kernels=("flash",)), "lib.flash")
    assert "what ran is nothing that was seen" in found


def test_kernels_are_not_asked_for_where_they_were_not_looked_at() -> None:
    """A CPU has no kernels, and a graph has no operators: neither is held against the other's declaration."""
    on_cpu = Trace((), frozenset({"aten::bmm"}))
    assert problems(on_cpu, Declares(kernels=("flash",)), "lib.flash") == []
    graph = Trace((FLASH,), on_gpu=True)
    assert problems(graph, Declares(operators=("flash",)), "lib.flash") == []


@pytest.mark.parametrize("never", ["xmma_gemm", "aten::bmm"])
def test_what_must_never_run_is_named(never: str) -> None:
    """A backend named after one implementation must not use another, be it a kernel or an operator."""
    trace = Trace((FLASH, MATH), frozenset({"aten::bmm"}), on_gpu=True)
    (found,) = problems(trace, Declares(never=(never,)), "lib.flash")
    assert found.startswith(f"lib.flash declares that nothing named {never!r} runs, but ")
    assert never in found.partition("but ")[2]


@pytest.mark.parametrize(
    "name", ["Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pinned -> Device)", "CopyDeviceToHost"]
)
def test_crossing_to_the_host_is_a_problem(name: str) -> None:
    """CUPTI's and ROCm's names of copies that leave the device are both known, and bytes are counted."""
    trace = replace(ON_GPU, launches=(FLASH, Launch(name, "copy", grid=(4096,), calls=2.0)))
    (found,) = problems(trace, Declares(), "lib.flash")
    assert found.startswith(f"the call copied 8192 bytes between host and device (2 x {name}): work ran on the CPU")


def test_copies_on_the_device_are_work_like_any_other() -> None:
    """A backend may copy and clear its own memory."""
    copies = (Launch("Memcpy DtoD", "copy", grid=(64,)), Launch("Memset (Device)", "set", grid=(4,)))
    assert problems(replace(ON_GPU, launches=copies), Declares(), "lib.flash") == []


def test_another_stream_is_a_problem() -> None:
    """A timer sees its own stream; what runs on another may not be in the time."""
    (found,) = problems(replace(ON_GPU, other_streams=(FLASH,)), Declares(), "lib.flash")
    assert found.startswith("the call ran 1 x void flash_fwd_kernel<256> on another stream than the one")
    (found,) = problems(Trace((FLASH,), branches=True, on_gpu=True), Declares(), "lib.flash")
    assert found.startswith("the call uses another stream beside the one it was made on")


def test_equal_launches_are_counted_per_call() -> None:
    """Six launches in a block of two calls are three a call; another grid is another launch."""
    counted = per_call([FLASH, FLASH, MATH, FLASH, FLASH, replace(MATH, grid=(1, 1, 1))], calls=2)
    assert {(one.name, one.grid, one.calls) for one in counted} == {
        (FLASH.name, (8, 4, 8), 2.0),
        (MATH.name, (4, 4, 1), 0.5),
        (MATH.name, (1, 1, 1), 0.5),
    }
    assert per_call(reversed(counted)) == tuple(replace(one, calls=1.0) for one in counted)


def test_equal_launches_have_no_difference() -> None:
    """The order in which things ran is not compared, and a code that is unknown on one side says nothing."""
    assert differences((FLASH, MATH), (MATH, FLASH)) == []
    assert differences((replace(FLASH, isa_hash="a1"),), (FLASH,)) == []


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ((MATH,), "no longer runs void flash_fwd_kernel<256>"),
        ((FLASH, MATH), "runs sm80_xmma_gemm_f16, which it did not"),
        ((replace(FLASH, calls=2.0),), "runs void flash_fwd_kernel<256> 2 times a call, 1 before"),
        (
            (replace(FLASH, grid=(8, 4, 16)),),
            "launches void flash_fwd_kernel<256> with grid (8, 4, 16), block (128, 1, 1), 98304 bytes of shared "
            "memory, before with grid (8, 4, 8), block (128, 1, 1), 98304 bytes of shared memory",
        ),
        ((replace(FLASH, isa_hash="b2"),), "void flash_fwd_kernel<256> was compiled to other machine code"),
    ],
)
def test_each_change_of_what_runs_is_named(now: tuple[Launch, ...], text: str) -> None:
    """Kernels gone and added, calls, shapes and machine code."""
    assert differences(now, (replace(FLASH, isa_hash="a1"),))[0] == text


def test_what_runs_now_and_then_fits_unevenly_into_blocks() -> None:
    """Every fourth call runs twice: blocks of 51 and of 48 calls hold slightly different counts of the same work."""
    now, before = (replace(FLASH, calls=calls) for calls in (1.2549, 1.25))
    assert differences((now,), (before,)) == []
    assert differences((replace(FLASH, calls=1.3),), (before,)) != []


def test_copies_of_another_size_are_named_by_their_bytes() -> None:
    """A larger copy at an equal count is a change."""
    copy = Launch("Memcpy DtoD", "copy", grid=(64,))
    assert differences((replace(copy, grid=(128,)),), (copy,)) == [
        "launches Memcpy DtoD with 128 bytes, before with 64 bytes"
    ]


def test_long_names_are_cut_in_the_middle() -> None:
    """Template arguments run to thousands of characters; both ends of a name tell the most."""
    name = "a" * 200 + "b" * 200
    assert short_name(name) == f"{'a' * 50}...{'b' * 50}"
    assert short_name("kernel") == "kernel"


def test_a_long_list_is_cut() -> None:
    """A fallback of a hundred small kernels is not a page of names."""
    many = tuple(Launch(f"kernel_{number}") for number in range(20))
    (found,) = problems(replace(ON_GPU, launches=many), Declares(kernels=("flash",)), "lib.flash")
    assert "kernel_7 and 12 more" in found

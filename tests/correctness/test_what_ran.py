"""The judge of what ran, on traces written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.backends import Declares
from pytest_attnperf.correctness.what_ran import (
    Trace,
    compute_launch_identity,
    is_launch_unchanged,
    list_differences,
    list_problems,
    per_call,
    shorten_name,
)
from pytest_attnperf.records import Launch

FLASH = Launch("void flash_fwd_kernel<256>", grid=(8, 4, 8), block=(128, 1, 1), shared_bytes=98304)
MATH = Launch("sm80_xmma_gemm_f16", grid=(4, 4, 1), block=(256, 1, 1))
ON_GPU = Trace(launches=(FLASH,), operators=frozenset({"aten::_flash_attention_forward"}), on_gpu=True)


def test_what_is_declared_and_runs_is_right() -> None:
    """A call that runs its declared kernel and operator on one stream has no problem."""
    assert list_problems(ON_GPU, Declares(), "lib.flash") == []
    declares = Declares(kernels=("flash_fwd",), operators=("_flash_attention",), never=("softmax",))
    assert list_problems(ON_GPU, declares, "lib.flash") == []


def test_a_declared_kernel_that_did_not_run_is_a_silent_fallback() -> None:
    """The message names the backend, what it declares, and what ran instead."""
    trace = replace(ON_GPU, launches=(MATH, Launch("softmax_warp_forward")))
    (found,) = list_problems(trace, Declares(kernels=("flash",)), "lib.flash")
    assert found == (
        "lib.flash declares the kernel 'flash', but it did not run; what ran is sm80_xmma_gemm_f16, "
        "softmax_warp_forward: a silent fallback to another implementation, or correct `declares`"
    )


def test_a_declared_operator_that_did_not_run_is_a_silent_fallback() -> None:
    """Operators tell one torch backend from another on a CPU and on any GPU."""
    trace = Trace((Launch("aten::bmm", "operator"),), frozenset({"aten::bmm", "aten::_scaled_dot_product_math"}))
    (found,) = list_problems(trace, Declares(operators=("flash_attention",)), "lib.flash")
    assert "lib.flash declares the operator 'flash_attention', but it did not run; what ran is aten::bmm" in found


def test_nothing_that_ran_is_said_so() -> None:
    """An empty kernel is not described as a fallback to ''."""
    (found,) = list_problems(replace(ON_GPU, launches=()), Declares(kernels=("flash",)), "lib.flash")
    assert "what ran is nothing that was seen" in found


def test_kernels_are_not_asked_for_where_they_were_not_looked_at() -> None:
    """A CPU has no kernels, and a graph has no operators: neither is held against the other's declaration."""
    on_cpu = Trace((), frozenset({"aten::bmm"}))
    assert list_problems(on_cpu, Declares(kernels=("flash",)), "lib.flash") == []
    graph = Trace((FLASH,), on_gpu=True)
    assert list_problems(graph, Declares(operators=("flash",)), "lib.flash") == []


@pytest.mark.parametrize("never", ["xmma_gemm", "aten::bmm"])
def test_what_must_never_run_is_named(never: str) -> None:
    """A backend named after one implementation must not use another, be it a kernel or an operator."""
    trace = Trace((FLASH, MATH), frozenset({"aten::bmm"}), on_gpu=True)
    (found,) = list_problems(trace, Declares(never=(never,)), "lib.flash")
    assert found.startswith(f"lib.flash declares that nothing named {never!r} runs, but ")
    assert never in found.partition("but ")[2]


@pytest.mark.parametrize(
    "name", ["Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pinned -> Device)", "CopyDeviceToHost"]
)
def test_crossing_to_the_host_is_a_problem(name: str) -> None:
    """CUPTI's and ROCm's names of copies that leave the device are both known, and bytes are counted."""
    trace = replace(ON_GPU, launches=(FLASH, Launch(name, "copy", grid=(4096,), calls=2.0)))
    (found,) = list_problems(trace, Declares(), "lib.flash")
    assert found.startswith(f"the call copied 8192 bytes between host and device (2 x {name}): work ran on the CPU")


def test_copies_on_the_device_are_work_like_any_other() -> None:
    """A backend may copy and clear its own memory."""
    copies = (Launch("Memcpy DtoD", "copy", grid=(64,)), Launch("Memset (Device)", "set", grid=(4,)))
    assert list_problems(replace(ON_GPU, launches=copies), Declares(), "lib.flash") == []


def test_another_stream_is_a_problem() -> None:
    """A timer sees its own stream; what runs on another may not be in the time."""
    (found,) = list_problems(replace(ON_GPU, other_streams=(FLASH,)), Declares(), "lib.flash")
    assert found.startswith("the call ran 1 x void flash_fwd_kernel<256> on another stream than the one")
    (found,) = list_problems(Trace((FLASH,), branches=True, on_gpu=True), Declares(), "lib.flash")
    assert found.startswith("the call uses another stream besides the one it was made on")


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
    assert list_differences((FLASH, MATH), (MATH, FLASH)) == []
    assert list_differences((replace(FLASH, isa_hash="a1"),), (FLASH,)) == []


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
    assert list_differences(now, (replace(FLASH, isa_hash="a1"),))[0] == text


def test_what_runs_now_and_then_fits_unevenly_into_blocks() -> None:
    """Every fourth call runs twice: blocks of 51 and of 48 calls hold slightly different counts of the same work."""
    now, before = (replace(FLASH, calls=calls) for calls in (1.2549, 1.25))
    assert list_differences((now,), (before,)) == []
    assert list_differences((replace(FLASH, calls=1.3),), (before,)) != []


def test_copies_of_another_size_are_named_by_their_bytes() -> None:
    """A larger copy at an equal count is a change."""
    copy = Launch("Memcpy DtoD", "copy", grid=(64,))
    assert list_differences((replace(copy, grid=(128,)),), (copy,)) == [
        "launches Memcpy DtoD with 128 bytes, before with 64 bytes"
    ]


def test_long_names_are_cut_in_the_middle() -> None:
    """Template arguments run to thousands of characters; both ends of a name tell the most."""
    name = "a" * 200 + "b" * 200
    assert shorten_name(name) == f"{'a' * 50}...{'b' * 50}"
    assert shorten_name("kernel") == "kernel"


def test_a_long_list_is_cut() -> None:
    """A fallback of a hundred small kernels is not a page of names."""
    many = tuple(Launch(f"kernel_{number}") for number in range(20))
    (found,) = list_problems(replace(ON_GPU, launches=many), Declares(kernels=("flash",)), "lib.flash")
    assert "kernel_7 and 12 more" in found


A1 = replace(FLASH, isa_hash="a1")
COPY = Launch("Memcpy DtoD", "copy", grid=(64,))


def test_a_renamed_kernel_is_the_same_one() -> None:
    """Equal machine code launched in the same way is called renamed, and neither gone nor added."""
    assert list_differences((replace(A1, name="flash_v2"),), (A1,)) == [
        "void flash_fwd_kernel<256> is renamed to flash_v2, the same machine code"
    ]


def test_a_renamed_kernel_that_is_launched_otherwise_is_a_change() -> None:
    """What else changed of it is named under both names."""
    (found,) = list_differences((replace(A1, name="flash_v2", grid=(8, 4, 16)),), (A1,))
    assert found.startswith("launches flash_v2 (renamed, it was void flash_fwd_kernel<256>) with grid (8, 4, 16), ")
    assert found.endswith(": the same machine code, launched with another grid")


@pytest.mark.parametrize(
    ("now", "stored"),
    [
        ((replace(FLASH, name="v2"),), (A1,)),
        ((replace(A1, name="v2"),), (FLASH,)),
        ((replace(A1, name="v2", isa_hash="b2"),), (A1,)),
        ((replace(A1, name="v2"), replace(A1, name="v3")), (A1,)),
        ((replace(A1, name="v2"),), (A1, replace(A1, name="other"))),
        ((replace(COPY, name="Memcpy HtoD"),), (COPY,)),
    ],
)
def test_what_is_not_known_to_be_the_same_is_not_renamed(now: tuple[Launch, ...], stored: tuple[Launch, ...]) -> None:
    """Unknown or other machine code, and several names of one machine code, are kernels gone and added."""
    found = list_differences(now, stored)
    assert not [text for text in found if "renamed" in text]
    assert len([text for text in found if text.startswith("no longer runs")]) == len(stored)
    assert len([text for text in found if text.endswith("which it did not")]) == len(now)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"grid": (8, 4, 16)}, "grid"),
        ({"block": (256, 1, 1)}, "block"),
        ({"shared_bytes": 0}, "size of shared memory"),
        ({"grid": (4, 4, 8), "block": (256, 1, 1)}, "grid and block"),
    ],
)
def test_the_same_code_with_another_launch_is_a_change(changed: dict[str, Any], what: str) -> None:
    """It is said that the code is the same, and which part of its launch is not."""
    (found,) = list_differences((replace(A1, **changed),), (A1,))
    assert found.endswith(f": the same machine code, launched with another {what}")
    (unknown,) = list_differences((replace(FLASH, **changed),), (A1,))
    assert "machine code" not in unknown


def test_the_same_launches_in_other_combinations_are_a_change() -> None:
    """Every grid and every block is there on both sides, but not together."""
    small, large = replace(A1, block=(64, 1, 1)), replace(A1, grid=(1, 1, 1))
    (found,) = list_differences((replace(small, grid=(1, 1, 1)), A1), (small, large))
    assert found.endswith("the same machine code, launched with another combination of grids and blocks")


def test_the_same_code_called_more_often_is_a_change() -> None:
    """The number of calls is named first, with what is known of the code."""
    assert list_differences((replace(A1, calls=2.0),), (A1,)) == [
        "runs void flash_fwd_kernel<256> 2 times a call, 1 before: the same machine code"
    ]


def test_other_code_and_another_launch_are_both_named() -> None:
    """A retuned kernel differs in its launch and in its code."""
    launch, code = list_differences((replace(A1, isa_hash="b2", grid=(4, 4, 8)),), (A1,))
    assert launch.startswith("launches void flash_fwd_kernel<256> with grid (4, 4, 8), ")
    assert code == "void flash_fwd_kernel<256> was compiled to other machine code"


def test_a_name_of_which_one_code_is_unknown_says_nothing_of_code() -> None:
    """Two launches under one name, one of them unread: the unread one may be what the other side has."""
    known, unread = replace(A1, isa_hash="b2"), replace(A1, isa_hash="")
    assert list_differences((known, unread), (A1, replace(A1, isa_hash="b2"))) == []


def test_identity_is_what_was_launched_and_how() -> None:
    """Names of kernels, their order, and how equal launches are split do not matter; copies are told by their size."""
    one = compute_launch_identity((A1, COPY, replace(A1, name="again")))
    assert one == compute_launch_identity((COPY, replace(A1, calls=2.0)))
    assert one is not None
    assert [(work[0], work[1], calls) for work, calls in one] == [("copy", "Memcpy DtoD", 1.0), ("kernel", "a1", 2.0)]


@pytest.mark.parametrize(
    "launches",
    [(), (FLASH,), (A1, FLASH), (A1, Launch("host function", "host")), (Launch("aten::mm", "operator"),)],
)
def test_an_identity_that_is_not_known_is_none(launches: tuple[Launch, ...]) -> None:
    """Nothing, an unread kernel, and what is no work of a GPU have no identity, and are never unchanged."""
    assert compute_launch_identity(launches) is None
    assert not is_launch_unchanged(launches, launches)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"name": "renamed"}, True),
        ({"object_id": "local"}, True),
        ({"calls": 1.01}, True),
        ({"calls": 1.5}, False),
        ({"isa_hash": "b2"}, False),
        ({"isa_hash": ""}, False),
        ({"grid": (8, 4, 16)}, False),
        ({"block": (256, 1, 1)}, False),
        ({"shared_bytes": 0}, False),
    ],
)
def test_unchanged_is_the_same_code_launched_in_the_same_way(changed: dict[str, Any], same: bool) -> None:
    """Counts that fit unevenly into blocks are equal; everything else must be."""
    assert is_launch_unchanged((COPY, replace(A1, **changed)), (A1, COPY)) is same
    assert not is_launch_unchanged((A1,), (A1, COPY))
    assert not is_launch_unchanged((A1, replace(COPY, grid=(128,))), (A1, COPY))


def test_objects_are_counted_apart() -> None:
    """Two objects of one name and shape are two kinds of work until their code is read."""
    one, other = replace(FLASH, object_id="1"), replace(FLASH, object_id="2")
    assert {(each.object_id, each.calls) for each in per_call([one, other, one])} == {("1", 2.0), ("2", 1.0)}

"""Reading a result may rearrange it, never compute it."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness.late_work import ReadingTime, list_late_writes, list_problems

OUT = torch.randn(2, 8, 4, 16, generator=torch.Generator().manual_seed(1))

READERS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda raw: {"out": raw},
    "another layout": lambda raw: {"out": raw.transpose(1, 2)},
    "another dtype": lambda raw: {"out": raw.half().float()},
    "a slice": lambda raw: {"out": raw[:, :5]},
    "scaled": lambda raw: {"out": raw * 0.125},
    "in two outputs": lambda raw: {"out": raw[0], "lse": raw[1]},
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_rearranging_is_allowed(reader: Callable[[Any], Any]) -> None:
    """Layouts, casts, slices and scales move elements one by one."""
    assert list_problems(OUT.clone(), reader) == []


COMPUTING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "product": (lambda raw: {"out": raw @ raw.transpose(-1, -2)}, "matmul"),
    "softmax": (lambda raw: {"out": torch.softmax(raw, -1)}, "softmax"),
    "prefix sum": (lambda raw: {"out": raw.cumsum(1)}, "cumsum"),
    "sum with something else": (lambda raw: {"out": raw + torch.ones(2, 8, 4, 16)}, "add|ones"),
}


@pytest.mark.parametrize(("reader", "operator"), COMPUTING.values(), ids=COMPUTING)
def test_torchs_operators_are_named(reader: Callable[[Any], Any], operator: str) -> None:
    """Anything but moving, casting and scaling is work, also on what the call did not return."""
    (found,) = list_problems(OUT.clone(), reader)
    assert re.match(rf"work is done while the result is read: aten::({operator}) ran in `Prepared.outputs`", found)


def outside_torch(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reader that computes where torch's operators do not show it."""
    return lambda raw: {"out": torch.tensor(work(raw.tolist()))}


def test_work_that_torch_does_not_see_spreads_a_nan() -> None:
    """One destroyed element reaches a whole row, whoever computes it; moved, it stays one."""
    summed = outside_torch(lambda rows: [[[[sum(row)] * 16 for row in h] for h in b] for b in rows])
    (found,) = list_problems(OUT.clone(), summed)
    assert found.startswith("work is done while the result is read: one element of tensor 0 that the call returned")
    assert "reaches 16 elements of output 'out'" in found
    assert list_problems(OUT.clone(), outside_torch(lambda rows: rows[::-1])) == []


def test_the_tensor_that_is_computed_from_is_named() -> None:
    """Among several returned tensors, the first whose element spreads."""
    raw = (OUT.clone(), OUT.clone())
    (found,) = list_problems(raw, lambda raw: {"out": raw[0], "lse": raw[1][:1, :1, :1, :1].expand(2, 8, 4, 16)})
    assert "one element of tensor 1 that the call returned reaches 1024 elements of output 'lse'" in found


def test_what_was_returned_is_left_as_it_was() -> None:
    """A buffer that a backend keeps holds no NaN of ours afterwards."""
    raw = OUT.clone()
    assert list_problems(raw, lambda raw: {"out": raw}) == []
    assert torch.equal(raw, OUT)


def test_integers_and_empty_tensors_are_passed_over() -> None:
    """Neither can carry a NaN."""
    assert list_problems((torch.arange(4), torch.empty(0), OUT.clone()), lambda raw: {"out": raw[2]}) == []


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.bfloat16])
def test_every_floating_dtype_can_be_looked_at(dtype: torch.dtype) -> None:
    """8-bit results are read like others."""
    assert list_problems(OUT.to(dtype), lambda raw: {"out": raw.float()}) == []
    assert list_problems(OUT.to(dtype), lambda raw: {"out": raw.float().softmax(-1)}) != []


def test_tensors_of_inference_mode_can_be_looked_at() -> None:
    """A backend may make its result in inference mode, outside of which it cannot be written."""
    with torch.inference_mode():
        raw = OUT * 2
    assert list_problems(raw, lambda raw: {"out": raw}) == []


def test_operators_of_other_libraries_are_named() -> None:
    """A kernel that is registered under a name of its own is work, too."""
    library = torch.library.Library("attnperf_late", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x.clone(), "CPU")
    (found,) = list_problems(OUT.clone(), lambda raw: {"out": torch.ops.attnperf_late.doubled(raw)})
    assert "attnperf_late::doubled ran in `Prepared.outputs`" in found


def reading(outputs: Callable[[Any], Any]) -> list[str]:
    """What is said of the time that it takes to read a result."""
    timed = ReadingTime(outputs, lambda: None)
    timed.time_reading(OUT)
    return timed.list_problems(lambda: OUT)


def test_reading_that_takes_longer_than_copying_is_named() -> None:
    """Waiting for a thread, or computing in Python, shows in the time; one slow reading of several does not count."""
    assert reading(lambda raw: {"out": raw.float().transpose(1, 2).contiguous()}) == []
    slow = itertools.chain([0.01, 0.01, 0.0, 0.01], itertools.repeat(0.0))
    assert reading(lambda raw: time.sleep(next(slow))) == []
    (found,) = reading(lambda raw: time.sleep(0.002))
    assert "reading it takes 2" in found


def test_a_result_that_changes_after_its_call_is_named() -> None:
    """NaN is a value like any other."""
    first, second = OUT.clone().fill_(float("nan")), OUT.clone()
    returned = [(first, first.clone()), (second, second.clone())]
    assert list_late_writes(returned) == []
    second[0, 0, 0, 0] += 1
    (found,) = list_late_writes(returned)
    assert found.startswith("tensor 1 that the call returned was still being written after it had returned")


SHARED: dict[str, Callable[[], torch.Tensor]] = {
    "expanded": lambda: torch.randn(2, 8, 1, 1).expand(2, 8, 4, 16),
    "a single number": lambda: torch.randn(()).expand(2, 8, 4, 16),
    "windows that overlap": lambda: torch.randn(40).as_strided((8, 16), (1, 2)),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(2, 8, 4, 16)),
}


@pytest.mark.parametrize("made", SHARED.values(), ids=SHARED)
def test_an_element_may_stand_in_many_places(made: Callable[[], torch.Tensor]) -> None:
    """A result whose stride is 0 shows one element again and again; nobody worked."""
    assert list_problems(made(), lambda raw: {"out": raw}) == []
    assert (
        list_problems((made(), made()), lambda raw: {"out": raw[0], "lse": raw[1].t() if raw[1].dim() < 3 else raw[1]})
        == []
    )


def test_an_expanded_decoy_hides_no_work() -> None:
    """Beside an expanded tensor, work on another one still spreads further than that one's elements do."""
    summed = outside_torch(lambda rows: [[[[sum(row)] * 16 for row in h] for h in b] for b in rows])
    decoy = torch.zeros(4, 1).expand(4, 64)
    (found,) = list_problems((decoy, OUT.clone()), lambda raw: {"out": summed(raw[1])["out"], "lse": raw[0]})
    assert "one element of tensor 1" in found


HIDDEN = torch.rand(8, 16) + 1

FOUNDED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "padded": (OUT, lambda raw: {"out": torch.nn.functional.pad(raw, (0, 3), value=2.0)}),
    "quantised": (torch.randint(-127, 128, (64, 64), dtype=torch.int8), lambda raw: {"out": raw.float() * 0.02}),
    "quantised with a scale": (
        (torch.randint(-127, 128, (64, 64), dtype=torch.int8), 0.25),
        lambda raw: {"out": raw[0].float() * raw[1]},
    ),
    "found by an index": (torch.arange(16), lambda raw: {"out": HIDDEN[0, raw]}),
    "bits": (OUT.bfloat16().view(torch.int16), lambda raw: {"out": raw.view(torch.bfloat16).float()}),
    "a number": ((0.1, OUT), lambda raw: {"loss": torch.tensor(raw[0]), "out": raw[1]}),
    "nothing seen": (torch.full((4, 4), -float("inf")), lambda raw: {"lse": raw}),
    "one memory": ((OUT, OUT[0], OUT.view(torch.int32)), lambda raw: {"out": raw[0], "half": raw[1]}),
}


@pytest.mark.parametrize(("raw", "reader"), FOUNDED.values(), ids=FOUNDED)
def test_results_may_hold_padding_integers_and_numbers(raw: Any, reader: Callable[[Any], Any]) -> None:
    """What was returned explains them, and is afterwards what it was."""
    before = reader(raw)
    before = {name: output.clone() for name, output in before.items()}
    assert list_problems(raw, reader) == []
    assert all(torch.equal(output, before[name]) for name, output in reader(raw).items())


UNFOUNDED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "beside a decoy": (torch.zeros(8, 16), lambda raw: {"out": HIDDEN}),
    "beside integers": ((torch.zeros(8, 16), torch.arange(9)), lambda raw: {"out": HIDDEN}),
    "one of two": (OUT, lambda raw: {"out": raw, "lse": HIDDEN}),
    "a single number": ((OUT, 7), lambda raw: {"out": raw, "loss": HIDDEN[0, 0]}),
}


@pytest.mark.parametrize(("raw", "reader"), UNFOUNDED.values(), ids=UNFOUNDED)
def test_results_from_anything_else_are_told(raw: Any, reader: Callable[[Any], Any]) -> None:
    """A tensor that the call did not return may be computed while it is read."""
    (found,) = list_problems(raw, reader)
    assert "come from something else than the tensors that the call returned" in found


def test_a_decoy_buys_no_time() -> None:
    """The time that reading may take goes by what is read, not by what was returned."""
    decoy = (OUT, torch.empty(2**20))
    timed = ReadingTime(lambda raw: time.sleep(0.002) or {"out": raw[0]}, lambda: None)  # type: ignore[func-returns-value]
    assert timed.list_problems(lambda: decoy) != []


def test_an_input_that_is_written_in_place_may_be_read() -> None:
    """It holds a result, too, whatever the call returned."""
    cache = torch.randn(8, 16)
    before = cache.clone()
    assert list_problems(OUT, lambda raw: {"out": raw, "cache": cache[2:4]}, (cache,)) == []
    assert list_problems(OUT, lambda raw: {"out": raw, "cache": cache[2:4]}) != []
    assert torch.equal(cache, before)

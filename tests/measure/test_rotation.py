"""Kernels that remember their results are fast only while their inputs stay the same."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from pytest_attnperf.backends import Prepared, Tensors
from pytest_attnperf.measure.rotation import Turning, measure_rotation
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, NotProvenRightError
from pytest_attnperf.stats.summaries import is_slower_rotated
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

SIZE = 128

FLOATS = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]
TURNS = 600


def make_inputs(seed: int) -> Tensors:
    """x and w, different for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))


def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Some hundreds of microseconds."""
    for _ in range(4):
        x = torch.tanh(x @ w)
    return x


def remembering() -> Callable[..., torch.Tensor]:
    """The same, but for inputs whose first element was seen before."""
    known: dict[float, torch.Tensor] = {}

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        key = float(x[0, 0])
        if key not in known:
            known[key] = work(x, w)
        return known[key].clone()

    return call


def remembering_one_input(number: int) -> Callable[..., torch.Tensor]:
    """The same, but it looks at the version of one input only."""
    known: dict[int, torch.Tensor] = {}

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        key = (x, w)[number]._version
        if key not in known:
            known.clear()
            known[key] = work(x, w)
        return known[key].clone()

    return call


def append(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """One new row of each head, written into a large cache."""
    cache[:, 100:101] = new
    return cache[:, 100:101].clone()


def linear(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What nn.Linear calls."""
    return torch.nn.functional.linear(x, w, bias)


def tiny_calls() -> dict[str, tuple[Callable[..., torch.Tensor], Tensors]]:
    """Honest calls of a few microseconds, some beside an input of 32 MB."""
    rows = torch.randint(0, 1 << 16, (8,), generator=torch.Generator().manual_seed(1))
    return {
        "gather": (lambda table, rows: table[rows], (torch.randn(1 << 16, 128), rows)),
        "append": (append, (torch.randn(64, 8192, 16), torch.randn(64, 1, 16))),
        "append_to_zeros": (append, (torch.zeros(64, 8192, 16), torch.randn(64, 1, 16))),
        "linear": (linear, (torch.randn(64, 64), torch.randn(64, 64), torch.randn(64))),
        "add": (lambda x: x + 1, (torch.randn(16),)),
    }


TINY = list(tiny_calls())


def prepared(call: Callable[..., torch.Tensor], inputs: Tensors | None = None) -> Prepared:
    """Bound to inputs of their own."""
    return Prepared(call, inputs or make_inputs(99), lambda new: new, lambda raw: {"out": raw})


@contextlib.contextmanager
def busy(others: int) -> Iterator[None]:
    """So many other processes that never wait."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def accused(name: str, tries: int) -> int:
    """In how many tries a tiny call seems to remember its results, by itself: two processes would have to."""
    call, inputs = tiny_calls()[name]
    return sum(
        is_slower_rotated(measure_rotation(prepared(call, inputs), "cpu", block_us=2000.0, call_us=10.0))
        for _ in range(tries)
    )


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_call_beside_a_large_input_is_not_accused(name: str) -> None:
    """What it costs to change the inputs is bounded, and its noise is not the call's."""
    assert accused(name, 2) == 0


@pytest.mark.soak
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("name", TINY)
def test_a_tiny_call_is_not_accused_in_twenty_tries(name: str, others: int) -> None:
    """Nor on a machine with more to do than it has cores."""
    with busy(others):
        assert accused(name, 20) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_memory_of_any_input_shows(number: int) -> None:
    """All inputs change, whichever it looks at, and torch counts the change."""
    rotation = measure_rotation(prepared(remembering_one_input(number)), "cpu", block_us=2000.0, call_us=300.0)
    assert is_slower_rotated(rotation)


def test_nothing_changes_where_all_inputs_are_integers() -> None:
    """An index that changes may point anywhere; such a call is timed twice as it is."""
    call, inputs = torch.sort, (torch.randint(0, 100, (300,)),)
    own = Prepared(call, inputs, lambda new: new, lambda raw: {"out": raw[0]})
    assert not is_slower_rotated(measure_rotation(own, "cpu", block_us=500.0, call_us=10.0))


def test_an_honest_call_takes_as_long_on_inputs_that_change() -> None:
    """On an idle machine the two agree; the limit leaves room for a busy one."""
    rotation = measure_rotation(prepared(work), "cpu", block_us=2000.0, call_us=300.0)
    assert rotation.rotating_us < 3 * rotation.same_us


def test_a_call_that_remembers_shows() -> None:
    """However many results it holds, change costs it the work that it saved on inputs that stay the same."""
    rotation = measure_rotation(prepared(remembering()), "cpu", block_us=2000.0, call_us=300.0)
    assert is_slower_rotated(rotation)


def remembering_at_home(*, honest: bool) -> Callable[..., torch.Tensor]:
    """The same, but it remembers only what lies where its first input lay."""
    home: list[int] = []
    known: dict[tuple[int, ...], torch.Tensor] = {}

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        home.append(x.data_ptr())
        if honest or home[0] != home[-1]:
            return work(x, w)
        key = tuple(int(tensor.view(torch.int32).sum()) for tensor in (x, w))
        if key not in known:
            known.clear()
            known[key] = work(x, w)
        return known[key].clone()

    return call


@pytest.mark.parametrize("honest", [False, True], ids=["liar", "twin"])
def test_a_memory_for_the_timed_inputs_only_shows(honest: bool) -> None:
    """The inputs change where they were timed, not in copies; the same call without a memory is not accused."""
    own = prepared(remembering_at_home(honest=honest))
    own.run()
    assert is_slower_rotated(measure_rotation(own, "cpu", block_us=2000.0, call_us=300.0)) == (not honest)


@pytest.mark.parametrize(("dtype", "lanes"), [(torch.float32, 2), (torch.bfloat16, 4)], ids=str)
def test_no_elements_of_words_can_be_relied_on(dtype: torch.dtype, lanes: int) -> None:
    """Whichever elements of each 64-bit word a memory looks at, they change for some draws, behind the first row."""
    tensor = torch.randn(64, 64).to(dtype)
    changed = set()
    for _ in range(40):
        turn, before = Turning([tensor], 0.0, whole_us=0.0), tensor.clone()
        turn()
        turn()
        apart = (tensor != before)[1:].view(-1, lanes).any(0)
        changed |= {lane for lane in range(lanes) if apart[lane]}
    assert changed == set(range(lanes))


def test_the_timed_inputs_are_left_as_they_were() -> None:
    """Also expanded ones: the case may be timed further."""
    own = prepared(work)
    measure_rotation(own, "cpu", block_us=200.0, call_us=100.0)
    assert all(torch.equal(now, then) for now, then in zip(own.tensors, make_inputs(99), strict=True))
    wide = prepared(lambda x, w: x + w, (torch.randn(1, 64).expand(64, 64), torch.randn(64, 64)))
    before = [tensor.clone() for tensor in wide.tensors]
    measure_rotation(wide, "cpu", block_us=200.0, call_us=10.0)
    assert all(torch.equal(now, then) for now, then in zip(wide.tensors, before, strict=True))


def test_a_subject_rotates_only_what_was_proven() -> None:
    """No time without a passing check; afterwards there are two."""
    workload = AdHoc("tanh", make_inputs, work)
    subject = TorchSubject(
        CallableBackend("test.work", work), workload, DeviceInfo("cpu", "cpu-x86_64", "test"), Seeds(0, 1, 2)
    )
    subject.prepare()
    with pytest.raises(NotProvenRightError):
        subject.measure_rotation(500.0)
    assert subject.check().right
    subject.measure_blocks(3, 500.0, 1e6)
    rotation = subject.measure_rotation(500.0)
    assert rotation.same_us > 0
    assert subject.finish().check.right


@pytest.mark.gpu
def test_a_graph_holds_the_rotation() -> None:
    """A captured graph changes its inputs in every replay, and an honest call takes as long."""
    inputs = tuple(tensor.cuda() for tensor in make_inputs(99))
    on_gpu = Prepared(work, inputs, lambda new: new, lambda raw: {"out": raw})
    rotation = measure_rotation(on_gpu, "cuda", block_us=100.0, call_us=50.0)
    assert rotation.rotating_us < 2 * rotation.same_us


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.int8, torch.float64])
def test_every_dtype_can_be_rotated(dtype: torch.dtype) -> None:
    """Bits are changed, so that no dtype needs arithmetic; integers stay, and there is a time all the same."""
    inputs = tuple(tensor.to(dtype) for tensor in make_inputs(1))
    own = Prepared(lambda x, w: x.float() @ w.float(), inputs, lambda new: new, lambda raw: {"out": raw})
    assert measure_rotation(own, "cpu", block_us=200.0, call_us=100.0).same_us > 0


def drawn(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """From N(0, 1)."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def exclusive_or(words: torch.Tensor) -> int:
    """Of all 64-bit words."""
    found = 0
    for word in words.view(torch.int64).flatten().tolist():
        found ^= word
    return found


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_sum_and_no_exclusive_or_comes_again(dtype: torch.dtype) -> None:
    """Neither of the elements' bits nor of 64-bit words; sums of single bytes have too few values, and come again now
    and then."""
    tensor = drawn(dtype, 64, 96)
    turn, sums, words, ors = Turning([tensor], 0.0, whole_us=0.0), set(), set(), set()
    for _ in range(TURNS):
        turn()
        sums.add(int(integers(tensor).sum()))
        words.add(int(tensor.view(torch.int64).sum()))
        ors.add(exclusive_or(tensor))
    assert (len(words), len(ors)) == (TURNS, TURNS)
    assert len(sums) == TURNS if tensor.element_size() > 1 else len(sums) > 0.7 * TURNS


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_stay_normal_and_of_their_size(dtype: torch.dtype) -> None:
    """A value keeps its sign and its exponent; denormals would be slow, NaN would be another problem."""
    tensor = drawn(dtype, 33, 32)
    before = tensor.double()
    turn = Turning([tensor], 100.0)
    for _ in range(50):
        turn()
        after = tensor.double()
        normal = before.abs() >= float(torch.finfo(dtype).tiny)
        assert torch.equal(after[~normal], before[~normal])
        assert bool(((after / before)[normal] > 0.4).all())
        assert bool(((after / before)[normal] < 2.1).all())


@pytest.mark.parametrize("value", [0.0, float("inf"), -float("inf"), float("nan"), 1e-40])
def test_what_is_no_normal_number_stays(value: float) -> None:
    """A mask stays a mask, and an empty cache stays empty."""
    mask = torch.full((40, 40), value)
    kept = mask.clone()
    turn = Turning([mask], 100.0)
    turn()
    turn()
    assert torch.equal(mask.view(torch.int32), kept.view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.bool])
def test_integers_stay(dtype: torch.dtype) -> None:
    """A page table that changed would point outside the cache."""
    table, x = torch.arange(100).to(dtype), torch.randn(100)
    kept, version = table.clone(), x._version
    turn = Turning([table, x], 100.0)
    turn()
    assert torch.equal(table, kept)
    assert x._version > version


def test_every_input_changes_and_torch_counts_it() -> None:
    """Of three inputs none stays, and the version of each moves on, as a host-side cache would see it."""
    tensors = [drawn(torch.bfloat16, 8, 64), drawn(torch.float32, 5), drawn(torch.float16, 1, 300).t()]
    turn = Turning(tensors, 1.0)
    for _ in range(3):
        before, versions = [tensor.clone() for tensor in tensors], [tensor._version for tensor in tensors]
        turn()
        assert not any(torch.equal(one, other) for one, other in zip(before, tensors, strict=True))
        assert all(tensor._version > version for tensor, version in zip(tensors, versions, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0), (7, 5)])
def test_any_number_of_elements_can_change(shape: tuple[int, ...]) -> None:
    """Also fewer than a word holds, and none."""
    for dtype in (torch.bfloat16, torch.float32, torch.float8_e5m2):
        tensor = torch.ones(shape).to(dtype)
        turn = Turning([tensor], 1.0)
        turn()
        assert not tensor.numel() or not torch.equal(tensor.float(), torch.ones(shape))


def test_a_large_input_costs_no_more_than_a_small_one() -> None:
    """Beside a call of some microseconds a table of 32 MB is changed in a bounded number of words."""
    table = torch.randn(1 << 23)
    before = table.clone()
    Turning([table], 3.0)()
    assert 500 < int((table != before).sum()) < 2000
    assert float(table[0]) != float(before[0])


def test_complex_inputs_change() -> None:
    """Their two parts are numbers like others."""
    tensor = torch.randn(50, dtype=torch.complex64)
    before = tensor.clone()
    Turning([tensor], 1.0)()
    assert not torch.equal(tensor, before)


LAID_OUT = {
    "expanded": lambda: torch.randn(1, 64).expand(2000, 64),
    "a column": lambda: torch.randn(2000, 64)[:, :1],
    "every second": lambda: torch.randn(3000, 6)[:, ::2],
    "windows that overlap": lambda: torch.randn(300).unfold(0, 16, 4),
    "transposed": lambda: torch.randn(30, 40).t(),
    "a part of a buffer": lambda: torch.randn(5000)[1001:2000],
}


@pytest.mark.parametrize("made", LAID_OUT.values(), ids=LAID_OUT)
def test_an_input_changes_however_it_lies(made: Callable[[], torch.Tensor]) -> None:
    """Also where elements share memory, or do not fill it."""
    tensor, seen = made(), set()
    turn = Turning([tensor], 1.0)
    for _ in range(20):
        turn()
        assert bool(tensor.isfinite().all())
        seen.add(int(tensor.contiguous().view(torch.int32).sum()))
    assert len(seen) == 20


def test_what_lies_between_the_elements_stays() -> None:
    """It may be another input, or a guard."""
    whole = torch.randn(200, 8)
    kept = whole.clone()
    Turning([whole[:, :3]], 1.0)()
    assert torch.equal(whole[:, 3:], kept[:, 3:])
    assert not torch.equal(whole[:, :3], kept[:, :3])

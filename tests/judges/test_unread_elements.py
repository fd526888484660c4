"""Kernels that read what nobody may read: NaN in padding, in unused slots and behind the last row shows each.

A function that only multiplies it by 0 is right with a note: nobody knows whether its callers have NaN there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import BadReferenceError, References
from pytest_attnperf.records import CheckReport, Tolerance
from pytest_attnperf.workloads.base import Unread
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.decode import Decode
from tests.judges.test_gated_memory import checked

PAGED = Decode.parse_line("b=3,kv=70,h=2,d=32,page=16,f32,ragged")
Tensors = tuple[torch.Tensor, ...]
SCALE = 32**-0.5


def pages_of(inputs: Tensors, *, spare: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values (B, slots, H, D) of all pages, and which of the slots hold no key (B, slots). With `spare` one
    page more, which belongs to nobody."""
    _, k, v, table, lens = inputs
    pages = table.long()
    if spare:
        (free,) = set(range(len(k))) - set(pages[torch.arange(pages.shape[1]) * 16 < lens[:, None]].tolist())
        pages = torch.cat([pages, torch.full((len(pages), 1), free)], dim=1)
    slots = torch.arange(16 * pages.shape[1])
    return k[pages].flatten(1, 2), v[pages].flatten(1, 2), slots >= lens[:, None]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Attention of q (B, 1, H, D) over k and v (B, S, H, D), with a weight of 0 where hidden (B, S)."""
    scores = torch.einsum("bqhd,bshd->bhqs", q, k) * SCALE
    weights = torch.softmax(scores.masked_fill(hidden[:, None, None], -math.inf), -1)
    return torch.einsum("bhqs,bshd->bqhd", weights, v)


def honest(*inputs: torch.Tensor) -> torch.Tensor:
    """Puts zeros in the place of what holds no key, as a masked load does."""
    k, v, hidden = pages_of(inputs)
    return attend(inputs[0], k, v.masked_fill(hidden[..., None, None], 0), hidden)


def times_zero(*inputs: torch.Tensor) -> torch.Tensor:
    """Multiplies the tail of the last page by 0."""
    return attend(inputs[0], *pages_of(inputs))


def unused_page(*inputs: torch.Tensor) -> torch.Tensor:
    """Masks the tails, and multiplies a page that no sequence owns by 0."""
    k, v, hidden = pages_of(inputs, spare=True)
    owned = torch.arange(k.shape[1]) < k.shape[1] - 16
    return attend(inputs[0], k, v.masked_fill((hidden & owned)[..., None, None], 0), hidden)


def hides_it(*inputs: torch.Tensor) -> torch.Tensor:
    """Multiplies by 0, and replaces the NaN of the result."""
    return times_zero(*inputs).nan_to_num()


def judged(call: Callable[..., torch.Tensor], workload: Any = PAGED, seed: int = 1) -> CheckReport:
    """What the judge says of a call on planted inputs."""
    own = tuple(tensor.clone() for tensor in workload.make_inputs(0, "cpu", planted=False))
    prepared = Prepared(call=call, tensors=own, convert=lambda new: new, outputs=lambda out: {"out": out})
    judge = Judge(prepared, workload, references=REFERENCES, tolerance=Tolerance(), device="cpu")
    return judge.check_call("planted inputs", prepared.run, seed=seed, planted=True)


LIARS = (times_zero, unused_page, hides_it)
REFERENCES = References()
"""Shared, because a budget of a small problem takes many draws."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("liar", LIARS)
def test_a_kernel_that_reads_an_unused_slot_is_incorrect(liar: Callable[..., torch.Tensor], seed: int) -> None:
    """The text names the inputs, the report the numbers of elements: it is right as soon as they are finite."""
    report = judged(liar, seed=seed)
    assert not report.right
    assert report.reads_garbage
    assert report.garbage.keys() == {"k", "v"}
    assert "wrong only while unused elements of inputs k and v hold NaN or Inf" in report.problems[0]


@pytest.mark.parametrize("seed", range(2))
def test_its_twin_passes(seed: int) -> None:
    """One that masks its loads reads the same pages; the report says that there was garbage."""
    report = judged(honest, seed=seed)
    assert report.right
    assert not report.reads_garbage
    assert report.garbage.keys() == {"k", "v"}


def test_another_mistake_is_not_blamed_on_garbage() -> None:
    """A result that is wrong without it, too, is only what it is."""
    report = judged(lambda *inputs: 1.1 * times_zero(*inputs))
    assert not report.right
    assert not report.reads_garbage
    assert "wrong only while" not in " ".join(report.problems)


class Careless(Block):
    """A layer whose unread() names rows that the reference reads."""

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """All rows."""
        return (Unread(3, "k_cache", torch.ones(1, dtype=torch.bool)),)


def test_a_family_whose_reference_reads_what_it_calls_unread_is_refused() -> None:
    """Nothing would be right there; the text says what to change."""
    workload = Careless.parse_line("b=1,s=1,p=5,h=2,d=16,f32")
    with pytest.raises(BadReferenceError, match="elements of k_cache are never read, so they hold NaN or Inf here"):
        judged(lambda *inputs: inputs[0], workload)


KEYS = (40, 12, 45)


def padded(seed: int) -> Tensors:
    """q (3, 704, 32), k and v (3, 48, 32), and how many keys each has."""
    return (*(torch.randn(3, rows, 32).half() for rows in (704, 48, 48)), torch.tensor(KEYS))


def one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
    """The reference of users: each sequence alone."""
    rows = [torch.softmax(q[b] @ k[b, :n].mT * SCALE, -1) @ v[b, :n] for b, n in enumerate(lens.tolist())]
    return torch.stack(rows)


def batched(*, loads_zero: bool) -> Callable[..., torch.Tensor]:
    """All sequences at once: padded keys get a weight of 0, padded values stay or become 0."""

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        hidden = torch.arange(k.shape[1])[None] >= lens[:, None]
        weights = torch.softmax((q @ k.mT * SCALE).masked_fill(hidden[:, None], -math.inf), -1)
        return weights @ (v.masked_fill(hidden[..., None], 0) if loads_zero else v)

    return kernel


def with_maximum(*, masked_first: bool) -> Callable[..., torch.Tensor]:
    """Masks its weights and loads; the maximum, which ignores NaN as a GPU's does, is of masked scores or of all."""

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        hidden = torch.arange(k.shape[1])[None] >= lens[:, None]
        scores = (q @ k.mT * SCALE).float()
        seen = scores.masked_fill(hidden[:, None], -math.inf) if masked_first else scores
        largest = seen.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(-1, keepdim=True)
        powers = (scores - largest).exp().masked_fill(hidden[:, None], 0)
        weights = powers / powers.sum(-1, keepdim=True)
        return (weights @ v.float().masked_fill(hidden[..., None], 0)).to(q.dtype)

    return kernel


STARTS = (0, 30, 64, 90)


def packed(seed: int) -> Tensors:
    """x (128, 4096) of three sequences, rows behind the last one's end, and their starts."""
    return torch.randn(128, 4096), torch.tensor(STARTS)


def mean_of_each(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """The reference of users: the mean of the rows of each sequence."""
    ends = starts.tolist()
    return torch.stack([x[first:stop].mean(0) for first, stop in itertools.pairwise(ends)])


def mean_by_product(*, rows: int) -> Callable[..., torch.Tensor]:
    """One product with a matrix of shares, over the first `rows` rows: 128 includes those behind the last end."""

    def kernel(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        row = torch.arange(rows)
        inside = (row >= starts[:-1, None]) & (row < starts[1:, None])
        return (inside / inside.sum(1, keepdim=True)) @ x[:rows]

    return kernel


def leaks(kernel: Callable[..., torch.Tensor], weight: float) -> Callable[..., torch.Tensor]:
    """A kernel whose result takes a little of the last row of its last input but one, which is padding."""
    return lambda *given: kernel(*given) + (weight * given[-2][..., -1:, :].float().square().mean()).to(given[0].dtype)


@pytest.mark.parametrize(
    ("inputs", "reference", "times_zero", "twin", "named", "weight"),
    [
        (padded, one_by_one, batched(loads_zero=False), batched(loads_zero=True), "k and v", 1e-4),
        (packed, mean_of_each, mean_by_product(rows=128), mean_by_product(rows=90), "x", 1e-10),
    ],
    ids=["padding", "behind_cu_seqlens"],
)
def test_a_function_may_multiply_by_zero_what_its_reference_does_not_read_but_not_use_it(
    inputs: Any, reference: Any, times_zero: Any, twin: Any, named: str, weight: float
) -> None:
    """Nobody says what is unread: the reference's gradient does. What is multiplied by 0 is a note, what reaches the
    result a problem; the twin, which does not load it, has neither."""
    report = checked(times_zero, inputs, reference)
    assert report.problems == ()
    assert report.reads_garbage
    assert [note for note in report.notes if f"multiplies elements of {named} by 0" in note]
    report = checked(leaks(twin, weight), inputs, reference)
    assert f"{named} hold other values" in report.problems[0]
    report = checked(twin, inputs, reference)
    assert report.problems == ()
    assert report.garbage
    assert not [note for note in report.notes if "by 0" in note]


def test_a_function_that_is_wrong_now_and_then_is_not_excused() -> None:
    """Its first call of the planted inputs is wrong, those without garbage are right: so is the next one with it."""
    honest, calls = batched(loads_zero=True), []

    def flaky(*given: torch.Tensor) -> torch.Tensor:
        held = bool(given[1].isnan().any())
        calls.append(held)
        return honest(*given) * (1.1 if held and calls.count(True) == 1 else 1.0)

    report = checked(flaky, padded, one_by_one)
    assert not report.right
    assert not report.reads_garbage
    assert not [note for note in report.notes if "by 0" in note]


def test_a_maximum_of_what_is_masked_later_is_incorrect() -> None:
    """A maximum ignores NaN, but not the score of a key with a single Inf; large finite keys are enough, too."""
    assert not checked(with_maximum(masked_first=False), padded, one_by_one).right
    assert checked(with_maximum(masked_first=True), padded, one_by_one).problems == ()


def test_a_function_may_read_what_its_reference_reads() -> None:
    """A reference that multiplies masked values by 0, as torch's attention does, lets its kernel do so, too."""
    masked = batched(loads_zero=False)
    report = checked(masked, padded, masked)
    assert report.problems == ()
    assert report.garbage.keys() == {"k"}
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def with_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, attn_mask=(torch.arange(k.shape[1])[None] < lens[:, None])[:, None])

    assert checked(with_mask, padded, with_mask).problems == ()


def test_inputs_may_hold_nan_themselves() -> None:
    """inputs(seed, planted) may put NaN where nothing is read: the liar is wrong there, its twin right."""

    def inputs(seed: int, planted: bool) -> Tensors:
        q, k, v, lens = padded(seed)
        if planted:
            for b, count in enumerate(KEYS):
                k[b, count:], v[b, count:] = math.nan, math.inf
        return q, k, v, lens

    wrong = checked(batched(loads_zero=False), inputs, one_by_one)
    assert "holds" in wrong.problems[0]
    assert "NaN" in wrong.problems[0]
    assert checked(batched(loads_zero=True), inputs, one_by_one).problems == ()

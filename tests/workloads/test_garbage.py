"""Where inputs hold NaN and Inf: everywhere that the definition reads nothing, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.base import Unread, unread
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.garbage import Placed, fill_unread, place_garbage

FAMILIES = (
    "decode-b3-kv100-h4-d32-f16-ragged",
    "decode-b3-kv70-h4-hk2-d32-page16-cap30-w40-bf16-sinks-ragged-lse",
    "decode-b2-kv33-h4-d16-page16-f32",
    "decode-b3-kv70-h4-d32-page16-bf16-kvf8e4m3-ragged",
    "decode-b3-kv70-h4-d32-bf16-kvf8e4m3fnuz-ragged",
    "mixed-q21_q1s45_2q5s30-h4-hk2-d32-page16-w20-bf16",
    "mixed-q1s45_q5s30-h4-hk2-d32-page16-f16-kvf8e4m3-sinks",
    "block-b2-s1-p30-room40-h4-hk2-d32-f16",
    "block-b1-s9-h4-d32-l2-f32",
    "mla_block-b2-s4-p20-room33-e64-h4-d32-r16-c64-bf16",
    "mla_block-b1-s2-p9-room16-e64-h2-d32-r16-c64-f16-expanded",
)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """As bytes."""
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("identity", FAMILIES)
def test_a_familys_results_do_not_depend_on_what_is_unread(identity: str) -> None:
    """The reference and the plain computation give the same bits with NaN and Inf there, and all else is unchanged."""
    workload = parse_workload(identity)
    inputs = workload.make_inputs(3, "cpu", planted=True)
    placed = place_garbage(workload, inputs, 3)
    assert placed.elements
    for compute in (workload.reference, workload.plain):
        ones, others = compute(inputs), compute(placed.inputs)
        assert all(torch.equal(bits(ones[name]), bits(others[name])) for name in ones)
    masks = {one.number: one.mask for one in unread(workload, inputs)}
    for number, (before, after) in enumerate(zip(inputs, placed.inputs, strict=True)):
        kept = ~masks[number].expand(before.shape) if number in masks else torch.ones(before.shape, dtype=torch.bool)
        assert torch.equal(bits(before.float()[kept]), bits(after.float()[kept]))


@pytest.mark.parametrize("identity", FAMILIES)
def test_every_unread_row_holds_garbage(identity: str) -> None:
    """NaN or Inf is in every row that the definition never reads, and the report's number is that of such elements."""
    workload = parse_workload(identity)
    placed = place_garbage(workload, workload.make_inputs(3, "cpu", planted=True), 3)
    for one in unread(workload, placed.inputs):
        held = placed.inputs[one.number].float()
        assert bool((~held.isfinite()).any(-1)[one.mask.expand(held.shape)[..., 0]].all())
        assert int((~held.isfinite()).sum()) == placed.elements[one.name]


def test_rows_hold_nan_inf_and_a_single_inf_in_turn() -> None:
    """A key of NaN alone passes a maximum that ignores NaN; one with a single Inf scores Inf with most queries."""
    mask = torch.zeros(16, 1, dtype=torch.bool)
    mask[4:] = True
    (held,) = fill_unread((torch.ones(16, 8),), [Unread(0, "k", mask)], 0).inputs
    assert held[:4].eq(1).all()
    assert held[4].isnan().all()
    assert held[5].eq(math.inf).all()
    assert held[6].eq(-math.inf).all()
    assert held[7].isinf().sum() == 1
    assert held[7].isfinite().sum() == 7
    (later,) = fill_unread((torch.ones(16, 8),), [Unread(0, "k", mask)], 1).inputs
    assert later[4].eq(math.inf).all()


def test_types_without_inf_hold_nan_and_integers_stay() -> None:
    """fp8 e4m3 and the fnuz types have no Inf, integers not even NaN."""
    mask = torch.ones(8, 1, dtype=torch.bool)
    for dtype, infinite in ((torch.float8_e4m3fn, False), (torch.float8_e5m2fnuz, False), (torch.float8_e5m2, True)):
        (held,) = fill_unread((torch.zeros(8, 4).to(dtype),), [Unread(0, "k", mask)], 0).inputs
        assert bool(held.float().isnan().any())
        assert bool(held.float().isinf().any()) is infinite
    loud = torch.full((8, 4), 127, dtype=torch.int8)
    assert fill_unread((loud,), [Unread(0, "k", mask)], 0) == Placed((loud,), {})


def test_the_inputs_themselves_and_their_layout_stay() -> None:
    """Garbage is in copies, which have the strides of the originals; vectors are filled, too."""
    wide = torch.zeros(6, 16)
    given = (wide[:, :8], torch.zeros(5))
    mask = torch.tensor([False, False, False, True, True])
    placed = fill_unread(given, [Unread(0, "x", torch.ones(1, 1, dtype=torch.bool)), Unread(1, "y", mask)], 2)
    assert wide.eq(0).all()
    assert placed.inputs[0].stride() == (16, 1)
    assert placed.inputs[1][:3].eq(0).all()
    assert not placed.inputs[1][3:].isfinite().any()
    assert placed.names == "x and y"


@dataclass(frozen=True)
class Says:
    """A workload that gives `found` as unread."""

    found: tuple[Unread, ...]
    id: str = "says-1"

    def unread(self, inputs: Any) -> tuple[Unread, ...]:
        """What it was made with."""
        return self.found


@pytest.mark.parametrize(
    ("number", "mask", "text"),
    [
        (2, torch.ones(1, dtype=torch.bool), "unread of says-1 names input 2; there are 1, from 0"),
        (0, torch.ones(3, dtype=torch.bool), r"torch.bool \(3,\) for 'k'; .* broadcasts to \(4, 8\)"),
        (0, torch.ones(2, 4, 8, dtype=torch.bool), "must be torch.bool, of a shape"),
        (0, torch.ones(4, 8), r"a mask of torch.float32 \(4, 8\) for 'k'"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(number: int, mask: torch.Tensor, text: str) -> None:
    """The text names the workload, the input, what was given and what fits."""
    with pytest.raises(WorkloadError, match=text):
        place_garbage(Says((Unread(number, "k", mask),)), (torch.zeros(4, 8),), 0)  # type: ignore[arg-type]


def test_a_workload_that_names_nothing_gets_none() -> None:
    """Without unread() the inputs stay the tensors that they are: the way to opt out."""
    workload = parse_workload("gemm-m8-n8-k8-f16")
    inputs = workload.make_inputs(0, "cpu", planted=True)
    assert place_garbage(workload, inputs, 0) == Placed(inputs)


LENGTHS = (40, 12, 45)


def padded(seed: int) -> tuple[torch.Tensor, ...]:
    """q (3, 8, 32), k and v (3, 48, 32), and how many keys each has."""
    return (*(torch.randn(3, rows, 32).half() for rows in (8, 48, 48)), torch.tensor(LENGTHS))


def sliced(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
    """Reads nothing behind the lengths."""
    rows = [torch.softmax(q[b] @ k[b, :n].mT / 6, -1) @ v[b, :n] for b, n in enumerate(lens.tolist())]
    return torch.stack(rows)


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
    """Multiplies values behind the lengths by 0."""
    hidden = torch.arange(48)[None, None] >= lens[:, None, None]
    return torch.softmax((q @ k.mT / 6).masked_fill(hidden, -math.inf), -1) @ v


def in_rows(x: torch.Tensor) -> torch.Tensor:
    """Zero for one number of two."""
    return torch.relu(x)


def counted(x: torch.Tensor) -> torch.Tensor:
    """Has no gradient."""
    return x.argsort(-1)


def found_by(inputs: Any, reference: Any, seed: int = 5) -> tuple[AdHoc, dict[str, int]]:
    """The workload, and where it holds garbage."""
    workload = AdHoc("x", inputs, reference)
    made = workload.make_inputs(seed, "cpu", planted=True)
    return workload, place_garbage(workload, made, seed).elements


def test_a_function_s_padding_is_found() -> None:
    """What the reference never reads holds garbage; where it multiplies by 0, it reads."""
    workload, elements = found_by(padded, sliced)
    assert elements.keys() == {"k", "v"}
    assert workload.input_notes == ()
    assert found_by(padded, masked)[1].keys() == {"k"}


def test_only_the_first_planted_inputs_are_searched() -> None:
    """The search takes calls of the reference, so other seeds of a process hold none, and the first one holds it
    again."""
    calls = []

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return sliced(q, k, v, lens)

    workload, first = found_by(padded, reference)
    for seed, held in ((6, {}), (5, first)):
        made = workload.make_inputs(seed, "cpu", planted=True)
        before = len(calls)
        assert place_garbage(workload, made, seed).elements.keys() == held.keys()
        assert len(calls) == before


def test_what_is_read_holds_none() -> None:
    """Not half of relu's input, not an input that the reference ignores, and no mask or angle."""
    assert found_by(lambda seed: torch.randn(64, 32), in_rows)[1] == {}
    assert found_by(lambda seed: (torch.randn(64, 32), torch.randn(64, 32)), lambda x, saved: x * 2)[1] == {}
    assert found_by(lambda seed: (torch.randn(64, 32), torch.rand(64)), lambda x, w: x[:, :16] * w[:, None])[1] == {
        "x": 1024
    }


@pytest.mark.parametrize(("reference", "reason"), [(counted, "has no gradient"), (None, "takes more than 0 s")])
def test_a_note_says_why_nothing_was_searched(reference: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference without a gradient, or a slow one, cannot be searched."""
    if reference is None:
        monkeypatch.setattr("pytest_attnperf.workloads.garbage.SLOW_SECONDS", 0)
    workload, elements = found_by(lambda seed: torch.randn(64, 32), reference or in_rows)
    assert elements == {}
    (note,) = workload.input_notes
    assert f"filled with NaN: the reference {reason}" in note


def test_inputs_that_plant_themselves_are_not_searched() -> None:
    """inputs(seed, planted) says itself what its inputs hold."""

    def inputs(seed: int, planted: bool) -> tuple[torch.Tensor, ...]:
        q, k, v, lens = padded(seed)
        return q * (1 + planted), k, v, lens

    assert found_by(inputs, sliced)[1] == {}

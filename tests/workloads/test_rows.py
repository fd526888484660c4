"""Softmax, RMSNorm and LayerNorm: ids, figures of work, planted rows and references."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import layernorm, rmsnorm, row_shape
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.row_shape import DTYPES, RowProblem, list_edges, planted_columns
from pytest_attnperf.workloads.softmax import Softmax

KINDS: tuple[type[RowProblem], ...] = (Softmax, RmsNorm, LayerNorm)


@st.composite
def problems(draw: st.DrawFn) -> RowProblem:
    """Any workload over rows that may exist."""
    kind = draw(st.sampled_from(KINDS))
    residual = {} if kind is Softmax else {"residual": draw(st.booleans())}
    sizes = {"rows": draw(st.integers(1, 1 << 20)), "columns": draw(st.integers(2, 1 << 20))}
    return kind(**sizes, dtype=draw(st.sampled_from(DTYPES)), **residual)


@given(workload=problems())
def test_an_id_parses_back(workload: RowProblem) -> None:
    """Every workload's id parses back to an equal workload, also by its family."""
    again = Families().parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    assert isinstance(workload, Workload)
    assert (workload.cache_state, workload.non_finite_outputs) == ("cold", frozenset())


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Softmax(4096, 8192), "softmax-r4096-c8192-f16"),
        (RmsNorm(8192, 4096, "bf16", residual=True), "rmsnorm-r8192-c4096-bf16-residual"),
        (LayerNorm(8192, 768, "f32"), "layernorm-r8192-c768-f32"),
    ],
)
def test_ids_are_readable_and_never_change(workload: RowProblem, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed; a line gives the same in any order."""
    assert workload.id == expected
    words = expected.split("-")
    line = ", ".join([*reversed(words[3:]), f"c={workload.columns}", f"r={workload.rows}"])
    assert type(workload).parse_line(line) == workload


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        (Softmax, "r=8", "softmax workload 'r=8' does not give c; required are r, c, allowed are r=, c=, dtype="),
        (Softmax, "r=8,c=4,residual", "unknown field 'residual'"),
        (Softmax, "r=8,c=1", "columns must be at least 2, got 1: the result of a single column is the same"),
        (LayerNorm, "r=8,c=1", "layernorm workload: columns must be at least 2, got 1"),
        (RmsNorm, "r=0,c=4", "rmsnorm workload: rows must be a positive integer, got 0"),
        (RmsNorm, "r=8,c=4,dtype=i8", "dtype 'i8' is not one of f32, f16, bf16"),
        (RmsNorm, "r=8,c=4,r=9", "gives rows (r) twice"),
    ],
)
def test_a_malformed_line_names_field_and_value(kind: type[RowProblem], line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        kind.parse_line(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm-c4-r8-f16", "not in its canonical form; write 'rmsnorm-r8-c4-f16'"),
        ("rmsnorm-r8-c4", "not in its canonical form; write 'rmsnorm-r8-c4-f16'"),
        ("rmsnorm-r8-f16", "does not give c"),
    ],
)
def test_an_id_has_one_form(text: str, message: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        RmsNorm.parse(text)


def test_work_counts_every_tensor_once() -> None:
    """Bytes are those of inputs and outputs, weights included, and operations those of the docstrings."""
    n, c = 6 * 10, 10
    assert (Softmax(6, c, "f16").flops, Softmax(6, c, "f16").bytes_min) == (5 * n, 2 * 2 * n)
    assert (RmsNorm(6, c, "f32").flops, RmsNorm(6, c, "f32").bytes_min) == (4 * n, 4 * (2 * n + c))
    assert RmsNorm(6, c, "bf16", residual=True).flops == 5 * n
    assert RmsNorm(6, c, "bf16", residual=True).bytes_min == 2 * (4 * n + c)
    assert (LayerNorm(6, c).flops, LayerNorm(6, c).bytes_min) == (7 * n, 2 * (2 * n + 2 * c))
    assert LayerNorm(6, c, residual=True).bytes_min == 2 * (4 * n + 2 * c)


@pytest.mark.parametrize("workload", [Softmax(2, 3), RmsNorm(2, 3, residual=True), LayerNorm(2, 3, "bf16")])
def test_the_definition_is_complete_and_plain(workload: RowProblem) -> None:
    """The stored definition rebuilds the workload, and holds the eps that the id leaves to convention."""
    definition = workload.definition()
    assert definition.pop("family") == workload.family
    assert definition.pop("eps", None) == {"softmax": None, "rmsnorm": 1e-6, "layernorm": 1e-5}[workload.family]
    assert type(workload)(**definition) == workload


@given(columns=st.integers(1, 5000))
def test_edges_are_columns_at_both_ends(columns: int) -> None:
    """Edges are distinct columns, hold the first and the last, and both sides of the last whole tile of every size."""
    found = list_edges(columns)
    assert found == sorted(set(found))
    assert {0, columns - 1} <= set(found) <= set(range(columns))
    for tile in (16, 256, 4096):
        last = (columns - 1) // tile * tile
        assert last == 0 or {last - 1, last} <= set(found)


def test_every_edge_is_planted_in_some_row() -> None:
    """Enough rows plant every edge, the first of an odd seed the last column; one row plants others for other seeds."""
    assert set(planted_columns(len(list_edges(1000)), 1000, 1)) == set(list_edges(1000))
    assert planted_columns(1, 1000, 1) == [999]
    assert len({planted_columns(1, 1000, seed)[0] for seed in range(20)}) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_the_same_for_the_same_seed_only(kind: type[RowProblem]) -> None:
    """Inputs are decided by the seed, contiguous, in the workload's dtype, and finite when planted."""
    import torch

    workload = kind(7, 33, "bf16")
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    assert once[0].shape == (7, 33)
    assert all(tensor.is_contiguous() and tensor.dtype == torch.bfloat16 for tensor in once)
    assert all(bool(tensor.isfinite().all()) for tensor in once)
    assert all(map(torch.equal, once, again))
    assert not any(map(torch.equal, once, other))


@pytest.mark.parametrize("columns", [64, 4097, 100_000])
def test_a_plant_holds_most_of_its_row(columns: int) -> None:
    """The planted element has 0.8 of a softmax's weight, and of the sum of squares of a norm."""
    (x,) = Softmax(8, columns, "f32").make_inputs(1, "cpu", planted=True)
    assert x.double().softmax(dim=1).amax(dim=1).allclose(x.double().new_tensor(0.8), atol=0.1)
    for residual in (False, True):
        x, *others = RmsNorm(8, columns, "f32", residual).make_inputs(1, "cpu", planted=True)
        squares = (x + others[0] if residual else x).double().square()
        share = (squares.amax(dim=1) / squares.sum(dim=1))[[0, 1, 4, 5]]  # the others are too small on purpose
        assert share.allclose(share.new_tensor(0.8), atol=0.15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_references_do_not_depend_on_chunks(
    kind: type[RowProblem], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are independent: computed a few at a time, they are the same, and agree with torch's own operators."""
    import torch
    from torch.nn import functional

    workload: Any = kind(9, 100, dtype)
    if kind is not Softmax:
        workload = dataclasses.replace(workload, residual=True)
    inputs = workload.make_inputs(3, "cpu", planted=True)
    whole = workload.reference(inputs)
    monkeypatch.setattr(row_shape, "CHUNK_ELEMENTS", 250)
    assert all(torch.equal(whole[name], part) for name, part in workload.reference(inputs).items())
    wide = [tensor.double() for tensor in inputs]
    if kind is Softmax:
        expected = {"out": torch.softmax(wide[0], dim=-1)}
    elif kind is RmsNorm:
        summed = wide[0] + wide[1]
        expected = {"out": functional.rms_norm(summed, (100,), wide[2], rmsnorm.EPS), "residual_out": summed}
    else:
        summed = wide[0] + wide[1]
        expected = {"out": functional.layer_norm(summed, (100,), *wide[2:], layernorm.EPS), "residual_out": summed}
    assert whole.keys() == expected.keys()
    assert all(torch.allclose(whole[name], expected[name], rtol=1e-9, atol=1e-9) for name in whole)
    assert {output.dtype for output in workload.plain(inputs).values()} == {inputs[0].dtype}

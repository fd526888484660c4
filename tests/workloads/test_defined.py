from __future__ import annotations

import torch

from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.defined import LEARNED, drop_unrecorded, format_tensors


def test_layouts_are_told_apart_and_contiguous_tensors_are_alike() -> None:
    """Shape, dtype and strides are said; a contiguous tensor is one however it was made, whatever its dimensions of one
    element say of their strides."""
    x = torch.zeros(4, 8, dtype=torch.bfloat16)
    assert format_tensors((x, x.T)) == "(4, 8) bfloat16, (8, 4) bfloat16 / (1, 8)"
    assert format_tensors((x[:, :1].clone(),)) == format_tensors(
        (x.T[:1].T.clone(memory_format=torch.contiguous_format),)
    )
    assert format_tensors((torch.empty_strided((1, 4), (7, 1)),)) == format_tensors((torch.empty(1, 4),))
    assert format_tensors((torch.empty_strided((1, 4), (7, 2)),)) == format_tensors(
        (torch.empty_strided((1, 4), (9, 2)),)
    )


def test_inputs_are_part_of_a_definition_once_they_were_made() -> None:
    """Nothing is claimed of inputs that nobody has seen, and what one side did not record is left out of the other."""
    workload = AdHoc("x", lambda seed: torch.randn(4, 8), torch.relu)
    before = workload.definition()
    assert not before.keys() & set(LEARNED)
    workload.make_inputs(0, "cpu", planted=False)
    after = workload.definition()
    assert (after["tensors"], after["plants"]) == ("(4, 8) float32", False)
    assert drop_unrecorded(before, after) == before
    assert drop_unrecorded(after, after) == after

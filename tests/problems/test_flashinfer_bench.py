from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems import flashinfer_bench
from tests.problems_folder import PRODUCT, make_solution, make_workload, write_set

RIGHT = "def run(a, b, alpha):\n    return alpha * (a @ b.T)\n"


def test_problems_are_listed_in_one_order(tmp_path: Path) -> None:
    """By names, whatever the files are called; patterns choose."""
    lines = (make_workload(7, uuid="w" * 40), make_workload(5, uuid="other"))
    write_set(tmp_path, *(make_solution(RIGHT, name=name) for name in ("z", "a", "b/\x1b[2Jc")), lines=lines)
    listed = [str(one) for one in flashinfer_bench.list_problems(tmp_path)]
    assert listed == [f"product-{w}-{name}" for w in ("M7-wwwwwwww", "M5-other") for name in ("a", "b___2Jc", "z")]
    assert [str(one) for one in flashinfer_bench.list_problems(tmp_path, solutions="z")] == [listed[2], listed[5]]
    assert [one.backend for one in flashinfer_bench.list_problems(tmp_path, solutions="no*", references=True)] == [
        "reference"
    ] * 2


def test_a_folder_without_problems_says_what_it_has(tmp_path: Path) -> None:
    """And how to get some."""
    write_set(tmp_path)
    with pytest.raises(UsageError, match=r"has no problem: 1 definitions, 1 workloads, 0 solutions .*references=True"):
        flashinfer_bench.list_problems(tmp_path)


@pytest.mark.parametrize(
    ("changed", "options", "said"),
    [
        ({"op_type": "sampling"}, {}, "sampling draws random numbers"),
        ({}, {"bytes_most": 100}, r"inputs and outputs have .* GiB, more than .* GiB; raise bytes_most"),
        ({"outputs": {"c": {"shape": ["M"], "dtype": "float4_e2m1"}}}, {}, "float4_e2m1 tensors can neither be drawn"),
    ],
)
def test_what_cannot_be_judged_is_unsupported(
    tmp_path: Path, changed: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    """Random results, too much memory (before any is taken), and types that torch cannot compare."""
    write_set(tmp_path, definition={**PRODUCT, **changed})
    (problem,) = flashinfer_bench.list_problems(tmp_path, references=True, **options)
    assert re.match(said, problem.unsupported_reason())


def test_two_problems_of_one_id_are_told(tmp_path: Path) -> None:
    """They would share a baseline."""
    lines = (make_workload(5, uuid="same-beginning-1"), make_workload(5, uuid="same-beginning-2"))
    write_set(tmp_path, lines=lines)
    first, second = flashinfer_bench.list_problems(tmp_path, references=True)
    assert (first.fault, second.id) == ("", f"{first.id}-again1")
    assert second.fault == f"two problems have the id {first.id}: rename a solution, or change a uuid"

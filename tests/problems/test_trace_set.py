from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems import trace_set
from pytest_attnperf.problems.trace_set import read_trace_set
from tests.problems_folder import PRODUCT, STORED, make_solution, make_workload, write_set

RIGHT = "def run(a, b, alpha):\n    return alpha * (a @ b.T)\n"


def test_published_files_are_read() -> None:
    """Definitions and workloads of FlashInfer-Bench, as they are."""
    found = read_trace_set(STORED)
    assert sorted(found.definitions) == ["gqa_paged_decode_h5_kv1_d128_ps1", "rmsnorm_h128"]
    assert [one.axes for one in found.workloads["rmsnorm_h128"]] == [{"batch_size": 24}, {"batch_size": 32}]
    assert found.faults == []


def test_the_folder_of_one_problem_is_read(tmp_path: Path) -> None:
    """As SOL-ExecBench lays it out: workloads that name no definition belong to the one beside them."""
    (tmp_path / "definition.json").write_text(json.dumps(PRODUCT))
    (tmp_path / "workload.jsonl").write_text(json.dumps(make_workload()["workload"]) + "\n")
    (tmp_path / "solution.json").write_text(json.dumps(make_solution(RIGHT)))
    found = read_trace_set(tmp_path)
    assert [len(found.workloads["product"]), len(found.solutions["product"]), found.faults] == [1, 1, []]


def test_bad_files_do_not_hide_good_ones(tmp_path: Path) -> None:
    """Each is named with its reason, the others are read."""
    lines = (make_workload(), make_workload(uuid="w1"), make_workload(-3, uuid="w2"), {"workload": {}})
    write_set(tmp_path, make_solution(RIGHT), make_solution(RIGHT), lines=lines)
    (tmp_path / "definitions" / "second.json").write_text(json.dumps(PRODUCT))
    (tmp_path / "definitions" / "cut.json").write_text(json.dumps(PRODUCT)[:100])
    orphan = {**make_solution(RIGHT, name="orphan"), "definition": "no\x1bsuch"}
    (tmp_path / "solutions" / "orphan.json").write_text(json.dumps(orphan))
    os.mkfifo(tmp_path / "solutions" / "pipe.json")
    found = read_trace_set(tmp_path)
    assert [len(found.workloads["product"]), len(found.solutions["product"])] == [1, 1]
    said = {fault.where: fault.why for fault in found.faults}
    assert said["definitions/second.json"] == "defines 'product', as definitions/product.json does; keep one of them"
    assert said["solutions/1.json"] == "is a solution 'mine' of 'product', as solutions/0.json is; rename one"
    assert said["workloads/product.jsonl:2"] == "the workload 'w1' of 'product' stands twice"
    assert "size -3" in said["workloads/product.jsonl:3"]
    assert said["solutions/orphan.json"] == r"solves 'no\x1bsuch', which no readable file defines"
    assert said["solutions/pipe.json"].endswith("is a pipe; give a regular file")
    assert {"definitions/cut.json", "workloads/product.jsonl:4"} <= said.keys()
    assert len(said) == 8


def test_a_folder_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that does not exist."""
    write_set(tmp_path)
    monkeypatch.setattr(trace_set, "FILES_MOST", 1)
    with pytest.raises(UsageError, match="holds more than 1 files; name a smaller folder"):
        read_trace_set(tmp_path)
    with pytest.raises(UsageError, match="nowhere is no folder"):
        read_trace_set(tmp_path / "nowhere")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A sparse file of gigabytes takes no room on the disk."""
    write_set(tmp_path)
    with (tmp_path / "definitions" / "large.json").open("wb") as stream:
        stream.truncate(1 << 33)
    (fault,) = read_trace_set(tmp_path).faults
    assert "has 8,589,934,592 bytes; at most 16,777,216 are read" in fault.why

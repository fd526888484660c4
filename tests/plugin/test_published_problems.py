"""What a user writes for published problems: three lines, a folder, and `pytest`."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.problems_folder import CHANGES, PRODUCT, STORED, make_solution, write_problem, write_set

pytestmark = pytest.mark.usefixtures("torch_cases", "one_thread")

SUITE = """
import pytest
from pytest_attnperf.problems import flashinfer_bench

@pytest.mark.parametrize("problem", flashinfer_bench.list_problems("problems", references=True), ids=str)
def test_solution(attnperf, problem):
    problem.gate(attnperf)
"""
CANDIDATES = """
import pytest
from pytest_attnperf.problems import kernelbench

PROBLEMS = kernelbench.list_problems("problems", "candidates", signed=True, constants={"rows": 64})

@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_candidate(attnperf, problem):
    problem.gate(attnperf)
"""
RIGHT = "def run(a, b, alpha):\n    return alpha * (a @ b.T)\n"
TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def product(a, b, c, alpha, N: tl.constexpr, K: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, K)
    n = tl.arange(0, N)
    terms = tl.load(a + row * K + k)[None, :] * tl.load(b + n[:, None] * K + k[None, :])
    tl.store(c + row * N + n, alpha * tl.sum(terms, 1))

def run(a, b, alpha, c):
    product[(len(a),)](a, b, c, alpha, N=len(b), K=a.shape[1])
"""
STALE = "SEEN = []\n\ndef run(a, b, alpha):\n    SEEN.append(alpha * (a @ b.T))\n    return SEEN[0]\n"
WRITTEN: dict[str, Any] = {"destination_passing_style": True}
SOLUTIONS = {
    "returns": make_solution(RIGHT),
    "writes": make_solution("def run(a, b, alpha, c):\n    c.copy_(a @ b.T).mul_(alpha)\n", **WRITTEN),
    "half": make_solution("def run(a, b, alpha, c):\n    c[:3] = alpha * (a @ b.T)[:3]\n", **WRITTEN),
    "no_alpha": make_solution("def run(a, b, alpha):\n    return a @ b.T\n"),
    "stale": make_solution(STALE),
    "raises": make_solution("def run(a, b, alpha):\n    raise RuntimeError('no such kernel')\n"),
    "two results": make_solution("def run(a, b, alpha):\n    return a, b\n"),
    "compiled": make_solution("__global__ void run();", language="cuda", binding="tvm-ffi"),
}
EXPECTED = {
    "reference": "",
    "returns": "",
    "writes": "",
    "half": "INCORRECT: published/gate/test_solution[product-M5-w1-half]",
    "no_alpha": "INCORRECT",
    "stale": "INCORRECT",
    "raises": "no such kernel",
    "two_results": "two_results returned 2 results; the definition has c",
    "compiled": "written in 'cuda', which must be compiled for a GPU and bound by 'tvm-ffi': load it in a test",
}


def run_suite(pytester: pytest.Pytester, suite: str) -> dict[str, str]:
    """What pytest says of each test, '' for one that passed."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_published=suite)
    pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", "--junitxml=junit.xml", timeout=300)
    found = {}
    for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase"):
        bad = [*case.iter("failure"), *case.iter("skipped"), *case.iter("error")]
        found[str(case.get("name")).partition("[")[2].removesuffix("]")] = str(bad[0].get("message")) if bad else ""
    return found


def test_solutions_are_judged(pytester: pytest.Pytester) -> None:
    """Right are the reference, a result that is returned and one that is written; each other says what is wrong, and a
    broken file fails as a test of its own."""
    folder = write_set(pytester.path / "problems", *({**one, "name": name} for name, one in SOLUTIONS.items()))
    (folder / "definitions" / "cut.json").write_text(json.dumps(PRODUCT)[:200])
    found = run_suite(pytester, SUITE)
    broken = found.pop("fault-definitions_cut.json")
    assert "definitions/cut.json: is no JSON (Input data was truncated)" in broken
    assert found.keys() == {f"product-M5-w1-{name}" for name in EXPECTED}
    for name, said in EXPECTED.items():
        text = found[f"product-M5-w1-{name}"]
        assert said in text if said else text == "", name


@pytest.mark.soak
def test_a_solution_in_triton_is_interpreted(
    pytester: pytest.Pytester, own_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel's source is read from the JSON file."""
    pytest.importorskip("triton")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    written = make_solution(TRITON, name="triton", language="triton", **WRITTEN)
    write_set(pytester.path / "problems", written)
    assert run_suite(pytester, SUITE.replace("references=True", "references=False")) == {"product-M5-w1-triton": ""}


def test_candidates_are_judged(pytester: pytest.Pytester) -> None:
    """A right one passes. Zeros and a relu left out fail; other parameters are unsupported."""
    write_problem(pytester.path)
    said = run_suite(pytester, CANDIDATES)
    found = dict(zip(CHANGES, (said[key] for key in sorted(said)), strict=True))
    assert found.pop("honest") == ""
    assert "ModelNew has parameters and buffers ['layer.weight', 'norm.weight'" in found.pop("other_parameters")
    assert all("INCORRECT" in text for text in found.values()), found


@pytest.mark.soak
def test_published_problems_are_judged(pytester: pytest.Pytester) -> None:
    """A norm and a paged attention of FlashInfer-Bench: their references are right; a lost key, which no random input
    shows, and a log-sum-exp in another base are not."""
    torch: Any = pytest.importorskip("torch")
    save_file: Any = pytest.importorskip("safetensors.torch").save_file
    folder = pytester.path / "problems"
    shutil.copytree(STORED, folder)
    for inner in ("solutions", "blob"):
        (folder / inner).mkdir()
    bounds = torch.tensor([0, 300, 301, 301], dtype=torch.int32)
    save_file({"kv_indptr": bounds, "kv_indices": torch.randperm(310)[:301].int()}, folder / "blob" / "t.safetensors")
    name = "gqa_paged_decode_h5_kv1_d128_ps1"
    stored = {"type": "safetensors", "path": "./blob/t.safetensors"}
    inputs: dict[str, Any] = {one: {**stored, "tensor_key": one} for one in ("kv_indptr", "kv_indices")}
    inputs["sm_scale"] = {"type": "scalar", "value": 0.0884}
    axes = {"batch_size": 3, "num_pages": 310, "len_indptr": 4, "num_kv_indices": 301}
    line = {"definition": name, "workload": {"uuid": "tables", "axes": axes, "inputs": inputs}}
    (folder / "workloads" / "gqa.jsonl").write_text(json.dumps(line))
    code = json.loads((STORED / "definitions" / f"{name}.json").read_text())["reference"]
    faults = {
        "lost_key": code.replace("idx = kv_indices[ps:pe]", "idx = kv_indices[ps : max(pe - 1, ps + 1)]"),
        "natural_log": code.replace(" / math.log(2.0)", ""),
    }
    for fault, changed in faults.items():
        assert changed != code
        written = {**make_solution(changed, name=fault), "definition": name}
        (folder / "solutions" / f"{fault}.json").write_text(json.dumps(written))
    found = run_suite(pytester, SUITE)
    assert "INCORRECT" in found.pop(f"{name}-tables-lost_key")
    assert "'lse' is off" in found.pop(f"{name}-tables-natural_log")
    assert list(found.values()) == [""] * 3, found

"""Judges published problems: every definition's own reference must be RIGHT, and every planted fault INCORRECT.

    python benchmarks/foreign_problems.py flashinfer-trace/definitions [--only 'gqa_*'] [--faults] [--folder DIR]

Makes one small workload for each definition, because the published ones need files of gigabytes or a GPU: lengths, page
tables and positions go to a safetensors file as theirs do. Then runs pytest as a user would. With --faults it also runs
each fault of problem_faults.py, and says which ones the published tolerance (an element is wrong if it is off by more
than 1e-2, absolute and relative) would let pass. The exit status is 1 unless all is as it must be.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tabulate import tabulate

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from problem_faults import list_faults  # noqa: E402

SUITE = """
import pytest
from pytest_attnperf.problems import flashinfer_bench

PROBLEMS = flashinfer_bench.list_problems({folder!r}, references=True, bytes_most={most})

@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_problem(attnperf, problem):
    written = [name for name in {written} if problem.definition and name in problem.definition.inputs]
    problem.gate(attnperf, in_place=written)
"""
WRITTEN = ("intermediate_states_buffer",)
"""Inputs that a published reference writes to, which its definition does not say."""

TOLERANCE = 1e-2
KEYS, QUERIES = (37, 1, 80), (5, 1, 19)
"""Keys and query tokens of the sequences; a last one has none of the former."""

SIZES = {"M": 17, "batch_size": 5, "num_tokens": 13, "seq_len": 3, "pool_size": 4, "max_seq_len": 64, "num_qo_heads": 8}
SIZES |= {"num_kv_heads": 2, "total_seq_len": 29, "num_seqs": 3, "len_cu_seqlens": 4, "state_cache_size": 6}
SIZES |= {"num_pages": 40, "max_num_pages": 33}


def make_workload(definition: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A small workload of a definition, whose integers lie in a file below `folder`."""
    axes, tensors = dict(SIZES), {}
    rng = torch.Generator().manual_seed(0)
    if definition["op_type"] == "rmsnorm":
        axes["batch_size"] = 40  # a very small row is planted from 32 rows on
    if "kv_indptr" in definition["inputs"]:
        size = definition["axes"].get("page_size", {}).get("value", 1)
        tensors = _draw_tables(size, prefill="qo_indptr" in definition["inputs"], rng=rng)
        pages = len(tensors["kv_indices"])
        axes |= {"num_kv_indices": pages, "num_pages": pages + 3, "len_indptr": len(tensors["kv_indptr"])}
        axes |= {"batch_size": axes["len_indptr"] - 1, "total_q": sum(QUERIES) + 2, "total_kv": sum(KEYS)}
        wanted = definition["inputs"].get("kv_last_page_len", {}).get("shape")
        if wanted == ["len_indptr"]:  # some definitions say so
            tensors["kv_last_page_len"] = torch.cat([tensors["kv_last_page_len"], torch.ones(1, dtype=torch.int32)])
    tensors |= {
        "positions": torch.randperm(64, generator=rng)[:13],
        "cu_seqlens": torch.tensor([0, 7, 8, 29]),
        "initial_state_indices": torch.tensor([2, 0, 3, 1, 0], dtype=torch.int32)[: axes["batch_size"]],
        "state_batch_indices": torch.tensor([2, 0, 5, 1, 3], dtype=torch.int32),
        "sparse_indices": _draw_sparse(definition, axes, rng),
        "topk_ids": torch.stack(
            [torch.randperm(16, generator=rng)[: _size(definition, "top_k")] for _ in range(3)]
        ).int(),
        "seq_lens": torch.full((5,), 64 * 33, dtype=torch.int32),
        "block_table": torch.stack([torch.randperm(40, generator=rng)[:33] for _ in range(5)]).int(),
    }  # fmt: skip
    if "initial_state_indices" in definition["inputs"]:
        axes |= {"batch_size": 4}
        tensors["initial_state_indices"] = tensors["initial_state_indices"][:4].contiguous()
    inputs: dict[str, Any] = {}
    for name, tensor in definition["inputs"].items():
        if name in tensors and tensor["dtype"].startswith("int"):
            inputs[name] = {"type": "safetensors", "path": f"blob/{definition['name']}.safetensors", "tensor_key": name}
        elif tensor["shape"] is None:
            inputs[name] = {"type": "scalar", "value": _choose_number(name)}
        else:
            inputs[name] = {"type": "random"}
    named = {name: tensors[name] for name, one in inputs.items() if one["type"] == "safetensors"}
    (folder / "blob").mkdir(exist_ok=True)
    if named:
        save_file(named, folder / "blob" / f"{definition['name']}.safetensors")
    own = {name: size for name, size in axes.items() if definition["axes"].get(name, {}).get("type") == "var"}
    workload = {"uuid": f"small-{definition['name']}", "axes": own, "inputs": inputs}
    return {"definition": definition["name"], "workload": workload, "solution": None, "evaluation": None}


def _draw_tables(size: int, *, prefill: bool, rng: torch.Generator) -> dict[str, torch.Tensor]:
    """Bounds, page tables and lengths of last pages, for pages of `size` keys; of the keys themselves without pages."""
    counts = [-(-keys // size) for keys in (*KEYS, 0)]
    bounds = torch.tensor([0, *counts]).cumsum(0).int()
    last = [(keys - 1) % size + 1 for keys in KEYS] + [1]
    return {
        "kv_indptr": bounds,
        "qo_indptr": torch.tensor([0, *QUERIES, 2]).cumsum(0).int(),
        "kv_indices": torch.randperm(sum(counts) + 3, generator=rng)[: sum(counts)].int(),
        "kv_last_page_len": torch.tensor(last, dtype=torch.int32),
    }


def _size(definition: dict[str, Any], axis: str) -> int:
    return int(definition["axes"].get(axis, {}).get("value", 1))


def _draw_sparse(definition: dict[str, Any], axes: dict[str, int], rng: torch.Generator) -> torch.Tensor:
    """For each token a few slots of the cache, then -1 for none."""
    found = torch.full((axes["num_tokens"], _size(definition, "topk")), -1, dtype=torch.int32)
    slots = axes["num_pages"] * _size(definition, "page_size")
    for row in found:
        some = torch.randperm(slots, generator=rng)[: min(29, len(row))].int()
        row[: len(some)] = some
    return found


def _choose_number(name: str) -> float | int:
    numbers = {"local_expert_offset": 0, "routed_scaling_factor": 2.5, "sm_scale": 0.0883, "scale": 0.0883}
    return numbers.get(name, 1.0)


def write_folder(definitions: Iterable[Path], folder: Path, *, faults: bool) -> list[tuple[str, str]]:
    """Writes definitions, workloads and, with `faults`, solutions; returns (definition, fault) of each."""
    planted = []
    for kind in ("definitions", "workloads", "solutions"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for path in definitions:
        definition = json.loads(path.read_text())
        name = definition["name"]
        (folder / "definitions" / f"{name}.json").write_text(json.dumps(definition))
        (folder / "workloads" / f"{name}.jsonl").write_text(json.dumps(make_workload(definition, folder)) + "\n")
        for fault in list_faults(definition) if faults else ():
            planted.append((name, fault.name))
            spec: dict[str, Any] = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"}
            spec |= {"destination_passing_style": False}
            sources = [{"path": "main.py", "content": fault.write(definition["reference"])}]
            solution = {"name": fault.name, "definition": name, "author": "faults", "spec": spec, "sources": sources}
            (folder / "solutions" / f"{name}-{fault.name}.json").write_text(json.dumps(solution))
    return planted


def run_suite(folder: Path, most: int) -> dict[str, str]:
    """Verdicts by test id: RIGHT, INCORRECT, ERROR, UNSUPPORTED ..."""
    (folder / "test_problems.py").write_text(SUITE.format(folder=str(folder), most=most, written=WRITTEN))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "test_problems.py", "--junitxml=junit.xml"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "CI": ""}
    with (folder / "pytest.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    verdicts = {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        name = str(case.get("name")).partition("[")[2].removesuffix("]")
        failure, skipped = case.find("failure"), case.find("skipped")
        text = str(failure.get("message")) if failure is not None else ""
        verdicts[name] = (
            "UNSUPPORTED"
            if skipped is not None
            else text.removeprefix("Failed: ").partition(":")[0]
            if text
            else "RIGHT"
        )
    return verdicts


def passes_tolerance(folder: Path, name: str, fault: str) -> bool:
    """Whether a fault's results on the workload are within the published tolerance."""
    from pytest_attnperf.problems import flashinfer_bench

    known = flashinfer_bench.list_problems(folder, definitions=name, solutions=fault)
    (problem,) = (one for one in known if one.backend == fault)
    case = flashinfer_bench._Case(problem)
    first, tensors = (case.inputs(seed) if case.attention is None else case.inputs(seed, False) for seed in (2, 3))
    case.call(*first)
    wanted = case.reference(*tensors)
    got = case.call(*tensors)
    return all(_is_close(got[one].float(), wanted[one].float()) for one in wanted)


def _is_close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    both = got == wanted  # equal infinities
    error = (got - wanted).abs()
    wrong = (error > TOLERANCE) & (error / (wanted.abs() + 1e-8) > TOLERANCE) & ~both
    return not bool(wrong.any())


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("definitions", type=Path, help="folder with the JSON files of definitions, at any depth")
    parser.add_argument("--only", default="*", help="pattern of their names")
    parser.add_argument("--faults", action="store_true", help="also judge planted faults")
    parser.add_argument("--mib", type=int, default=64, help="leave out problems with more MiB of inputs and outputs")
    parser.add_argument("--folder", type=Path, help="where to write problems and logs; default: a temporary folder")
    args = parser.parse_args()
    random.seed(0)
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="foreign_problems_"))).resolve()
    paths = [path for path in sorted(args.definitions.rglob("*.json")) if fnmatch.fnmatch(path.stem, args.only)]
    planted = write_folder(paths, folder, faults=args.faults)
    started = time.monotonic()
    verdicts = run_suite(folder, args.mib << 20)
    references = {name: verdict for name, verdict in verdicts.items() if name.endswith("-reference")}
    print(
        f"{len(references)} references: {dict(Counter(references.values()))}, {time.monotonic() - started:.0f} s in all"
    )
    bad = [name for name, verdict in references.items() if verdict not in ("RIGHT", "UNSUPPORTED")]
    rows = []
    for name, fault in planted:
        (verdict,) = (one for key, one in verdicts.items() if key.startswith(f"{name}-") and key.endswith(f"-{fault}"))
        if verdict != "UNSUPPORTED":
            rows.append((name, fault, verdict, "passes" if passes_tolerance(folder, name, fault) else "fails"))
    bad += [f"{name} {fault}: {verdict}" for name, fault, verdict, _ in rows if verdict != "INCORRECT"]
    if rows:
        print(tabulate(rows, ("definition", "fault", "verdict", "at 1e-2")))
        passed = sum(row[3] == "passes" for row in rows)
        print(f"{len(rows)} faults: {dict(Counter(row[2] for row in rows))}; {passed} pass the published tolerance")
    print("\n".join(["not as it must be:", *bad]) if bad else "all as it must be")
    print(f"log: {folder / 'pytest.log'}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

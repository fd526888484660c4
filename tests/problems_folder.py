"""Folders of published problems for tests: the stored definitions, and small ones that a test changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "data" / "flashinfer_trace"

PRODUCT = {
    "name": "product",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 8}, "K": {"type": "const", "value": 16}},
    "inputs": {
        "a": {"shape": ["M", "K"], "dtype": "float32"},
        "b": {"shape": ["N", "K"], "dtype": "float32"},
        "alpha": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"c": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(a, b, alpha):\n    return alpha * (a @ b.T)\n",
    "constraints": ["a.shape[0] == M"],
    "some_later_field": {"of": ["a", "minor", "version"]},
}
SCALED = {"alpha": {"type": "scalar", "value": 0.5}}


def make_solution(content: str, *, name: str = "mine", **changed: Any) -> dict[str, Any]:
    """A solution of `product` in one source, 'main.py'; `changed` are fields of its spec."""
    spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"}
    spec |= {"destination_passing_style": False, **changed}
    sources = [{"path": "main.py", "content": content}]
    return {"name": name, "definition": "product", "author": "me", "spec": spec, "sources": sources}


def make_workload(rows: int = 5, *, uuid: str = "w1", **changed: Any) -> dict[str, Any]:
    """A line of workloads of `product`; `changed` are fields of the workload."""
    workload = {"uuid": uuid, "axes": {"M": rows}, "inputs": SCALED, **changed}
    return {"definition": "product", "workload": workload, "solution": None, "evaluation": None}


def write_set(
    folder: Path,
    *solutions: dict[str, Any],
    definition: dict[str, Any] = PRODUCT,
    lines: tuple[dict[str, Any], ...] = (make_workload(),),
) -> Path:
    """Writes a folder in the layout of flashinfer-trace, and returns it."""
    for name in ("definitions", "workloads", "solutions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "definitions" / "product.json").write_text(json.dumps(definition))
    (folder / "workloads" / "product.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for solution in solutions:
        (folder / "solutions" / f"{len(list((folder / 'solutions').iterdir()))}.json").write_text(json.dumps(solution))
    return folder


PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, extra):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x, factor):
        return torch.relu(self.norm(self.layer(x))) * factor

rows, width = 4096, 16

def get_inputs():
    return [torch.rand(rows, width), 0.5]

def get_init_inputs():
    return [width, None]
"""
CANDIDATE = PROBLEM.partition("rows, width")[0].replace("class Model", "class ModelNew")
CHANGES = {
    "honest": ("", ""),
    "zeros": ("return torch.relu", "return 0 * torch.relu"),
    "no_relu": ("torch.relu(self.norm(self.layer(x)))", "self.norm(self.layer(x))"),
    "other_parameters": ("nn.Linear(width, width)", "nn.Linear(width, width, bias=False)"),
}


def write_problem(folder: Path) -> Path:
    """A problem and its candidates, named as KernelBench names them."""
    (folder / "problems" / "level1").mkdir(parents=True)
    (folder / "problems" / "level1" / "7_Layer.py").write_text(PROBLEM)
    (folder / "candidates").mkdir()
    for number, (old, new) in enumerate(CHANGES.values()):
        assert old in CANDIDATE
        path = folder / "candidates" / f"level_1_problem_7_sample_{number}_kernel.py"
        path.write_text(CANDIDATE.replace(old, new) if old else CANDIDATE)
    return folder

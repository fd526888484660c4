"""A stand-in for Hugging Face's `kernels`, and scripts as its users write them, in a folder of a test."""

from __future__ import annotations

from pathlib import Path

LIBRARY = """
import importlib.util


def get_local_kernel(path, backend=None):
    spec = importlib.util.spec_from_file_location("built_kernel", path / "built.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def get_kernel(repo_id, revision=None, version=None):
    return repo_id, revision
"""
BENCHMARK = """
class Benchmark:
    seed = None
    device = "cpu"

    def __init__(self):
        self.kernel = None
        self.out = None

    def setup(self):
        pass
"""
BUILT = """
import torch


def silu_and_mul(out, x):
    half = x.shape[-1] // 2
    out.copy_(torch.nn.functional.silu(x[..., :half]) * x[..., half:])


def silu_and_mul_last_row_lost(out, x):
    silu_and_mul(out[:-1], x[:-1])
"""
"""A kernel, and a wrong one that an allclose with atol=1e-2 finds only if memory does not hold the right row."""

HEAD = "import torch\nfrom kernels.benchmark import Benchmark\n\n\n"
ACTIVATION = """class Activation(Benchmark):
    seed = 42

    def setup(self):
        self.x = torch.randn(32, 64, device=self.device)
        self.out = torch.empty(32, 32, device=self.device)

    def benchmark_honest(self):
        self.kernel.silu_and_mul(self.out, self.x)

    def verify_honest(self):
        return torch.nn.functional.silu(self.x[..., :32]) * self.x[..., 32:]

    def benchmark_wrong(self):
        self.kernel.silu_and_mul_last_row_lost(self.out, self.x)

    def verify_wrong(self):
        return self.verify_honest()
"""


def write_library(folder: Path) -> Path:
    """The package `kernels` in a folder for sys.path, which is returned."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "__init__.py").write_text(LIBRARY)
    (folder / "kernels" / "benchmark.py").write_text(BENCHMARK)
    return folder


def write_repository(folder: Path, code: str = ACTIVATION) -> Path:
    """A kernel repository with a built kernel and one script, which is returned."""
    script = folder / "benchmarks" / "benchmark_activation.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(HEAD + code)
    (folder / "built.py").write_text(BUILT)
    return script

"""What the workers of `attnperf judge` are told, and the seeds that a kernel cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.tools.judging.confinement import Confinement
from pytest_attnperf.tools.judging.kernel_workers import confine_environment
from pytest_attnperf.tools.judging.worker_cases import (
    CaseSpec,
    RemoteReport,
    derive_seed,
    read_remote_report,
    read_spec,
    write_spec,
)
from pytest_attnperf.workloads.adhoc import with_own_seeds

torch = pytest.importorskip("torch")


def test_a_spec_is_read_back(tmp_path: Path) -> None:
    """Field by field."""
    spec = CaseSpec(
        "k.py", "kernel", "ref.py", "reference", "make_inputs", 3.0, 9, "r", ("a", "b"), {"A": "b"}, "log", "f",
        Confinement(readable=("x",), writable=("y",), data_bytes=4), seed=5,
    )  # fmt: skip
    write_spec(tmp_path / "spec.json", spec)
    assert read_spec(str(tmp_path / "spec.json")) == spec


def test_a_missing_report_is_empty(tmp_path: Path) -> None:
    """The judging worker has not come that far."""
    assert read_remote_report(tmp_path / "absent.json") == RemoteReport()


def test_seeds_follow_from_the_secret() -> None:
    """The same for the same two numbers, small enough for numpy, and of another secret others."""
    seeds = {derive_seed(secret, seed) for secret in range(100) for seed in range(100)}
    assert len(seeds) > 9_990
    assert max(seeds) < 2**32
    assert derive_seed(3, 4) == derive_seed(3, 4)


def test_inputs_are_made_with_the_chosen_seed() -> None:
    """Whether the function takes it, takes `planted`, or relies on torch's generator."""
    assert with_own_seeds(lambda seed: seed, lambda seed: seed + 10)(1) == 11
    own = with_own_seeds(lambda seed, planted: (seed, planted), lambda seed: seed + 10)
    assert own(1, True) == (11, True)
    drawn = with_own_seeds(lambda: torch.rand(3), lambda seed: 7)(1)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))


def test_a_kernel_sees_no_secrets() -> None:
    """Of the environment only what tools need; its caches are its own."""
    given = {"PATH": "/bin", "A_TOKEN": "x", "AWS_SECRET": "y", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/elsewhere"}
    found = confine_environment(given, "/own")
    assert "A_TOKEN" not in found
    assert "AWS_SECRET" not in found
    assert (found["PATH"], found["CUDA_VISIBLE_DEVICES"], found["HOME"]) == ("/bin", "0", "/own")

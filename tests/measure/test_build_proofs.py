from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.codeobject.built import Built, pack_bytes
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import CodeObjectError, UnsupportedError, UsageError
from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.kernel_builds import KernelBuild, ObjectFile, Proof
from pytest_attnperf.measure.build_proofs import BuildProver, judge_calls, prepare_executed
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.code import CodeExecution
from pytest_attnperf.workloads.softmax import Softmax

SMALL = Softmax(3, 8, "f32")
BUILT = Built(pack_bytes(b""), "", "k", 64, 0, "none")


@dataclass(frozen=True)
class Rows(Backend[Softmax]):
    """Softmax by torch, which launches nothing.

    left      rows that it does not write
    raised    by each call
    reasons   why it takes no problem
    """

    families = ("softmax",)
    left: int = 0
    raised: Exception | None = None
    reasons: tuple[str, ...] = ()

    def unsupported_reasons(self, workload: Softmax, device: DeviceInfo) -> list[str]:
        """As declared."""
        return list(self.reasons)

    def prepare(self, workload: Softmax, inputs: Any) -> Prepared:
        """Allocates the output in each call."""

        def call(x: torch.Tensor) -> torch.Tensor:
            if self.raised is not None:
                raise self.raised
            out = torch.empty_like(x)
            out[self.left :] = torch.softmax(x[self.left :], dim=-1)
            return out

        return Prepared(call, (inputs[0].clone(),), lambda new: new, lambda out: {"out": out})


@pytest.fixture(autouse=True)
def not_interpreting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would compile in this process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def prove(*backends: Rows, arch: str = "gfx942", folder: Path = Path()) -> CodeExecution:
    """What proofs by these backends show of one object."""
    by_name = {backend.name: backend for backend in backends}
    proofs = tuple(Proof(name, SMALL) for name in by_name)
    build = KernelBuild("mine", "one", arch, ObjectFile(folder / "none"), proofs=proofs)
    return BuildProver(build, BUILT, by_name.__getitem__, folder).prove()


@pytest.mark.parametrize(("left", "right"), [(0, True), (1, False)])
def test_a_row_that_is_not_written_is_wrong(left: int, right: bool) -> None:
    """Memory that a call allocates holds NaN first, whatever was in it before."""
    backend, device = Rows("torch.rows", left=left), interpreted_gpu("gfx942")
    prepared = prepare_executed(backend, SMALL, device)
    for planted in (False, True):
        report = judge_calls(prepared, backend, SMALL, device, planted=planted)
        assert report.right == right
        assert right or "NaN" in report.problems[0]


def test_what_is_not_executed_says_why() -> None:
    """No proof, an architecture that is not AMD's, a problem that the backend refuses, an unknown instruction, an
    object that cannot be read."""
    assert (prove().outcome, prove().text) == ("not executed", "no proof declared")
    assert "not sm_90" in prove(Rows("a"), arch="sm_90").text
    for backend, why in (
        (Rows("a", reasons=("too small",)), "softmax-r3-c8-f32: a does not take it: too small"),
        (Rows("a", raised=UnknownInstructionError("v_new is unknown")), "softmax-r3-c8-f32: v_new is unknown"),
        (Rows("a", raised=CodeObjectError("no descriptor")), "softmax-r3-c8-f32: no descriptor"),
        (Rows("a", raised=UnsupportedError("not here")), "softmax-r3-c8-f32: not here"),
    ):
        found = prove(backend)
        assert (found.outcome, found.text) == ("not executed", why)


def test_the_worst_proof_decides() -> None:
    """A fault is wrong, and a wrong result; another error leaves the object unproven, as does a call that does not
    launch it."""
    fault, other = Rows("fault", raised=ExecutionFault("races")), Rows("other", raised=UsageError("no such page"))
    assert prove(Rows("a"), fault).text == "softmax-r3-c8-f32: races"
    assert prove(Rows("a", left=2), other).outcome == "wrong"
    assert prove(other, fault).outcome == "wrong"
    assert prove(Rows("a"), other).text == "softmax-r3-c8-f32: UsageError: no such page"
    assert prove(Rows("a", reasons=("no",)), other).outcome == "unproven"
    right = prove(Rows("a"))
    assert right.outcome == "unproven"
    assert right.text == "the object of mine-one-gfx942 was not launched, but nothing"
    assert (right.workloads, right.launches) == (("softmax-r3-c8-f32",), 0)

"""The source of a Gluon kernel, as it is or with one mistake, executed on small problems and judged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.gluon.prefill import launch
from kernels.gluon.prefill.space import SPACE, problem_of
from pytest_attnperf.correctness.references import References
from pytest_attnperf.workloads.prefill import Prefill
from tests.kernels.gluon.changed_source import load_changed
from tests.kernels.judging import find_problems

Find = Callable[..., tuple[str, ...]]


@pytest.fixture
def find_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poisoned: None) -> Find:
    """`find_wrong(arch, workload id, right="", wrong="")`: what is wrong with the outputs of the kernel for `arch`,
    whose source has `wrong` in the place of `right`, or what the stand-in refuses to do."""
    pytest.importorskip("triton", minversion="3.6")
    from tests.kernels.gluon.stand_in import Executed, StandInError
    from tests.kernels.gluon.stand_in_hopper import ExecutedOnHopper

    def find(arch: str, text: str, right: str = "", wrong: str = "") -> tuple[str, ...]:
        module = load_changed(Path(launch.__file__).with_name(f"{arch}.py"), right, wrong, tmp_path)
        name = f"prefill_{arch}_kernel"
        executed = Executed if arch == "gfx950" else ExecutedOnHopper
        setattr(module, name, executed(getattr(module, name)))
        monkeypatch.setattr(launch, "choose_launcher", lambda _arch: getattr(module, f"launch_{arch}"))
        workload, inputs, expected = _draw(text)
        config = SPACE.choose(arch, problem_of(workload)).config
        settings = {"arch": arch, "causal": workload.causal, "with_lse": workload.lse, "config": config}
        try:
            out, lse = launch.prefill_forward(*inputs, **settings)
        except StandInError as refused:
            return (str(refused),)
        return find_problems(expected, {"out": out} if lse is None else {"out": out, "lse": lse})

    return find


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that is allocated holds NaN until it is written."""
    torch = pytest.importorskip("torch")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@functools.cache
def _draw(text: str) -> tuple[Prefill, Any, Any]:
    workload = Prefill.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    return workload, inputs, References().compute_expected(workload, inputs, seed=1, planted=True)

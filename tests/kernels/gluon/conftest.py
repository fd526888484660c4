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
from tests.kernels.gluon.changed import load_changed
from tests.kernels.judging import find_problems

torch = pytest.importorskip("torch")
Find = Callable[..., tuple[str, ...]]


def resize_rows(x: Any, columns: int, out: Any = None) -> Any:
    """What the kernel of this name does, in torch."""
    resized = torch.nn.functional.pad(x, (0, columns - x.shape[-1]))
    return resized if out is None else out.copy_(resized)


@pytest.fixture
def resized_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers copy rows into longer ones, and out of them, in torch: nothing here runs Triton."""
    pytest.importorskip("triton", minversion="3.6")
    from kernels.gluon.prefill import launch_sm_90, padding

    for module in (padding, launch_sm_90):
        monkeypatch.setattr(module, "resize_rows", resize_rows)


@pytest.fixture
def find_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poisoned: None, resized_by_torch: None) -> Find:
    """`find_wrong(arch, workload id, right="", wrong="")`: what is wrong with the outputs of the kernel for `arch`,
    whose source has `wrong` in the place of `right`, or what the stand-in refuses to do."""
    pytest.importorskip("triton", minversion="3.6")
    from tests.kernels.gluon.stand_in import Executed, StandInError
    from tests.kernels.gluon.stand_in_hopper import ExecutedOnHopper

    def bind_changed(arch: str, right: str, wrong: str) -> None:
        folder, name = Path(launch.__file__).parent, f"prefill_{arch}_kernel"
        if arch == "gfx950":
            module = load_changed(folder / "gfx950.py", right, wrong, tmp_path)
            setattr(module, name, Executed(getattr(module, name)))
            monkeypatch.setattr(launch, "choose_launcher", lambda _arch: module.launch_gfx950)
            return
        parts = [folder / f"{part}.py" for part in ("sm_90", "tile_loads", "weights")]
        path = next((part for part in parts if right in part.read_text(encoding="utf-8")), parts[0])
        module = load_changed(parts[0], *((right, wrong) if path == parts[0] else ("", "")), tmp_path)
        if path != parts[0]:
            changed = vars(load_changed(path, right, wrong, tmp_path))
            vars(module).update(
                {key: value for key, value in changed.items() if callable(value) and key in vars(module)}
            )
        from kernels.gluon.prefill import launch_sm_90

        monkeypatch.setattr(launch_sm_90, name, ExecutedOnHopper(getattr(module, name)))

    def find(arch: str, text: str, right: str = "", wrong: str = "") -> tuple[str, ...]:
        bind_changed(arch, right, wrong)
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

"""What was launched last, on disk when a process has died."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.measure.autotuners import INDUCTOR
from pytest_attnperf.measure.flight_recorder import (
    find_blamed_kernel,
    find_last_launch,
    launch,
    record_launches,
    stop_recording,
    watch_launches,
)
from pytest_attnperf.measure.ran_code import COMPILED, TRITON

FAULT = "an illegal memory access was encountered"


def is_fault(text: str) -> bool:
    """The one text that is."""
    return text == FAULT


@pytest.mark.parametrize(
    ("lines", "kernel"),
    [
        (["> a", "< a", "> b"], "b"),
        (["> a", "> b"], "b"),
        (["> a", "> b", "< b"], "a"),
        (["> a", "< a"], ""),
        (["> a", "! a\tout of resources", "> b", f"! b\t{FAULT}", "> c", f"! c\t{FAULT}"], "b"),
        (["> a", "> b", f"! b\t{FAULT}", f"! a\t{FAULT}"], "b"),
        (["> a", "! a\tout of resources", "> a"], "a"),
        ([], ""),
    ],
)
def test_who_is_to_blame(lines: list[str], kernel: str) -> None:
    """The first launch that raised a fault, else the innermost that did not end: not one that an autotuner gave up."""
    assert find_blamed_kernel("\n".join(lines), is_fault) == kernel


def test_a_file_that_was_cut_off_is_read() -> None:
    """A process may die in the middle of a line."""
    assert find_blamed_kernel("> a\n< a\n> b\n<", is_fault) == "b"
    assert find_last_launch("> a\n< a\n> b\n< b\n<") == "b"


def test_launches_are_watched_inside_what_watches_already(tmp_path: Path) -> None:
    """The recorder's line comes first and last; afterwards nobody watches."""
    path, seen = tmp_path / "launches", []

    @contextlib.contextmanager
    def note(name: str) -> Iterator[None]:
        seen.append((name, path.read_text()))
        yield

    with record_launches(path), watch_launches(note), launch("scale"):
        pass
    with launch("unseen"):
        pass
    assert seen == [("scale", "> scale\n")]
    assert path.read_text() == "> scale\n< scale\n"


def test_watching_operators_loads_no_compiler() -> None:
    """torch would load it for every such mode, which takes seconds in each worker."""
    code = (
        "import sys, torch; from contextlib import nullcontext; "
        "from pytest_attnperf.measure.flight_recorder import watch_launches\n"
        "with watch_launches(lambda name: nullcontext()): torch.ones(2).add(1)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_launch_stands_on_disk_before_it_happens(tmp_path: Path) -> None:
    """Before it, behind it, and with its error's first line; nothing before recording, behind `stop` or behind it."""
    path = tmp_path / "launches"
    with launch("unseen"):
        pass
    with record_launches(path):
        with launch("scale"):
            assert path.read_text() == "> scale\n"
        with contextlib.suppress(RuntimeError), launch("broken"):
            raise RuntimeError(f"{FAULT}\nmore")
        stop_recording()
        with launch("unseen"):
            pass
    with launch("unseen"):
        pass
    assert path.read_text() == f"> scale\n< scale\n> broken\n! broken\t{FAULT} more\n"


def placed(monkeypatch: pytest.MonkeyPatch, where: tuple[str, str], **methods: Any) -> Any:
    """A class with these methods, standing where a library's does."""
    module: Any = ModuleType(where[0])
    setattr(module, where[1], type(where[1], (), methods))
    monkeypatch.setitem(sys.modules, where[0], module)
    return getattr(module, where[1])


def test_the_launchers_of_triton_and_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named before it runs; compiling ahead launches nothing; afterwards nothing stands in front of them."""
    done: list[str] = []
    jit = placed(monkeypatch, TRITON, run=lambda self, *args, **kwargs: done.append("jit"))
    compiled = placed(monkeypatch, COMPILED, __getitem__=lambda self, grid: lambda *args: done.append("compiled"))
    tuner = placed(monkeypatch, INDUCTOR, run=lambda self, *args, **kwargs: done.append("inductor"))
    function, ready, tuned = jit(), compiled(), tuner()
    function.fn = SimpleNamespace(__name__="_attn_fwd")
    ready.metadata = SimpleNamespace(name="_ready")
    tuned.inductor_meta = {"kernel_name": "triton_poi_fused_0"}
    path = tmp_path / "launches"
    with record_launches(path):
        function.run(warmup=True)
        assert path.read_text() == ""
        function.run(1, warmup=False)
        ready[(1,)](2)
        tuned.run(3)
    function.run()
    assert done == ["jit", "jit", "compiled", "inductor", "jit"]
    begun = [line[2:] for line in path.read_text().splitlines() if line.startswith("> ")]
    assert begun == ["_attn_fwd", "_ready", "triton_poi_fused_0"]


def test_torch_s_operators(tmp_path: Path) -> None:
    """Also those behind a gradient; what they give is theirs."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "launches"
    with record_launches(path):
        x = torch.ones(2, requires_grad=True)
        (x * 3).sum().backward()
    begun = [line[2:] for line in path.read_text().splitlines() if line.startswith("> ")]
    assert {"aten.ones.default", "aten.mul.Tensor", "aten.sum.default"} <= set(begun)
    assert x.grad.tolist() == [3.0, 3.0]
    assert flight_recorder._Recorder.fd is None

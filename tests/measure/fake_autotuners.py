"""Autotuners without a GPU, as fixtures: `pytest_plugins = ["tests.measure.fake_autotuners"]`.

Triton's is the installed class around a function that only records its calls. Inductor's, whose launchers need a
device, and its padding pass are stand-ins with the interface that `measure/autotuners.py` uses; a test there compares
it with the installed torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def tuned(x: Any, size: int) -> None:
    """Stands for the function of a compiled kernel; tests never call it."""


class NotedFunction:
    """Replaces a JITFunction; `runs` has the options of every call."""

    def __init__(self) -> None:
        self.fn = tuned
        self.runs: list[dict[str, Any]] = []

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Appends the keyword arguments to `runs`; launches nothing."""
        self.runs.append(kwargs)


@pytest.fixture
def triton_tuner() -> Callable[..., Any]:
    """Returns a function that makes an autotuner of the installed Triton; it times the configuration with BLOCK =
    `faster` (16 by default) as the faster one. It has two configurations of BLOCK and num_warps, 16 and 4, or 32 and 8;
    `run(x, size)` tunes again for each size."""
    pytest.importorskip("triton")
    from triton.runtime.autotuner import Autotuner, Config

    def make(faster: int = 16) -> Any:
        function = NotedFunction()

        def do_bench(call: Callable[[], None], quantiles: Any) -> list[float]:
            call()
            return [1.0 if function.runs[-1]["BLOCK"] == faster else 2.0] * 3

        configs = [Config({"BLOCK": block}, num_warps=block // 4, num_stages=2) for block in (16, 32)]
        return Autotuner(function, ["x", "size"], configs, ["size"], None, None, do_bench=do_bench)

    return make


class FakeCachingAutotuner:
    """Stands for Inductor's: compiles all configurations, times them in its first run, and keeps one launcher."""

    def __init__(self, name: str, blocks: tuple[int, ...], *, constants: dict[str, Any] | None = None) -> None:
        self.inductor_meta: dict[str, Any] = {"kernel_name": name, **({"config_args": constants} if constants else {})}
        self.kernel_hash = f"hash_of_{name}"
        self.fn = SimpleNamespace(fn=None, __name__=name, src="")
        self.blocks = blocks
        self.launchers: list[Any] = []
        self.launched: list[Any] = []
        self._cached_launcher: Any = None

    def precompile(self) -> None:
        """Adds a launcher for every configuration (XBLOCK in `blocks`) to `launchers`."""
        for block in self.blocks:
            config = SimpleNamespace(kwargs={"XBLOCK": block}, num_warps=4, num_stages=1)
            self.launchers.append(self._precompile_config(config).make_launcher())

    def _reload_kernel(self) -> Any:
        return SimpleNamespace(fn=SimpleNamespace(fn=tuned, __name__=self.fn.__name__, src=""))

    def _precompile_config(self, config: Any) -> Any:
        launcher = SimpleNamespace(config=config)
        return SimpleNamespace(make_launcher=lambda: launcher)

    def bench(self, launcher: Any, *args: Any) -> float:
        """Returns the launcher's position in `launchers` as its time, so that the first configuration is the
        fastest."""
        return float(self.launchers.index(launcher))

    def run(self, *args: Any, stream: int = 0) -> None:
        """Keeps the fastest launcher only, if there are several, and appends its configuration to `launched`."""
        if not self.launchers:
            self.precompile()
        if len(self.launchers) > 1:
            self.launchers = [min(self.launchers, key=self.bench)]
        self.launched.append(self.launchers[0].config)


@pytest.fixture
def inductor_tuner(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Replaces torch's module of Inductor autotuners for the test, and returns its fake CachingAutotuner."""
    own = type("CachingAutotuner", (), dict(vars(FakeCachingAutotuner)))
    module: Any = ModuleType("torch._inductor.runtime.triton_heuristics")
    module.CachingAutotuner = own
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return own


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces Inductor's module pad_mm for the test and returns it: `_should_pad` returns False; `ask(left sizes,
    right sizes)` calls it."""
    module: Any = ModuleType("torch._inductor.fx_passes.pad_mm")
    module._should_pad = lambda match, left, right, operator, further=None: False

    def ask(left: tuple[int, ...], right: tuple[int, ...]) -> Any:
        tensors = [SimpleNamespace(shape=shape, dtype="torch.float16") for shape in (left, right)]
        return module._should_pad(None, *tensors, "aten.bmm")

    module.ask = ask
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module

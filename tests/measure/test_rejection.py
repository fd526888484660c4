from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.measure.rejection import CompileWatch


def test_torch_compile_is_counted() -> None:
    """A shape that torch.compile has not seen raises the count; one it has seen does not."""
    compiled = torch.compile(lambda tensor: tensor * 2 + 1, backend="eager", dynamic=False)
    with CompileWatch() as watch:
        before = watch.count
        compiled(torch.ones(3))
        first = watch.count
        compiled(torch.ones(3))
        again = watch.count
        compiled(torch.ones(4))
        assert (first - before, again - first, watch.count - again) == (1, 0, 1)


def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither torch._dynamo nor Triton is loaded the watch loads neither and counts nothing."""
    for name in ("torch._dynamo.utils", "triton.knobs", "triton.runtime.jit"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with CompileWatch() as watch:
        assert watch.count == 0
    assert "torch._dynamo.utils" not in sys.modules
    assert "triton.runtime.jit" not in sys.modules


def _fake_triton(monkeypatch: pytest.MonkeyPatch, hook: Any) -> Any:
    """Triton's knobs as of 3.4, holding `hook`; the real ones need a GPU to compile anything."""
    knobs = ModuleType("triton.knobs")
    runtime = SimpleNamespace(jit_cache_hook=hook)
    knobs.runtime = runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.knobs", knobs)
    return runtime


def test_triton_compilations_are_counted_and_the_hook_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's hook counts while watched and is what it was before afterwards."""
    runtime = _fake_triton(monkeypatch, None)
    with CompileWatch() as watch:
        before = watch.count
        assert runtime.jit_cache_hook(key="k", repr="kernel[...]") is None
        assert watch.count - before == 1
    assert runtime.jit_cache_hook is None


def test_the_installed_triton_has_the_hook() -> None:
    """The Triton that is installed takes the hook and gives it back."""
    knobs = pytest.importorskip("triton.knobs", reason="Triton 3.4 or later is not installed")
    before = knobs.runtime.jit_cache_hook
    with CompileWatch() as watch:
        assert knobs.runtime.jit_cache_hook == watch._counting_hook
    assert knobs.runtime.jit_cache_hook is before


def test_an_existing_triton_hook_still_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that was there is called with the same arguments, and its answer is passed on."""
    seen: list[dict[str, Any]] = []

    def hook(**kwargs: Any) -> bool:
        seen.append(kwargs)
        return True

    runtime = _fake_triton(monkeypatch, hook)
    with CompileWatch():
        assert runtime.jit_cache_hook(key="k") is True
    assert seen == [{"key": "k"}]
    assert runtime.jit_cache_hook is hook


def test_a_hook_installed_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving does not take away a hook that someone else put in place while watching."""
    runtime = _fake_triton(monkeypatch, None)
    with CompileWatch():
        runtime.jit_cache_hook = print
    assert runtime.jit_cache_hook is print


def test_older_triton_keeps_its_hook_on_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Triton 3.4 the hook is a class attribute of JITFunction."""
    jit = ModuleType("triton.runtime.jit")
    function = type("JITFunction", (), {"cache_hook": None})
    jit.JITFunction = function  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "triton.knobs", raising=False)
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
    with CompileWatch() as watch:
        before = watch.count
        function.cache_hook()  # type: ignore[attr-defined]
        assert watch.count - before == 1
    assert function.cache_hook is None  # type: ignore[attr-defined]

"""Stands packages named aiter on the path, and takes every trace of them away again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernels.aiter import importing
from kernels.aiter.backends import ENTRY_POINTS, MODULES

ROCMS = {"ops/mha.py": "", "jit/optCompilerConfig.json": "{}"}
"""Files by which ROCm's aiter is known."""


@pytest.fixture
def aiter_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Put a package named aiter on the path: {file: text} beside the files of ROCm's, and the text of its __init__."""
    root = tmp_path / "site"
    root.mkdir()
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "aiter"}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(root))

    def put(files: Mapping[str, str] | None = None, init: str = "", *, rocms: bool = True) -> Path:
        package = root / "aiter"
        for name, text in {"__init__.py": init, **(ROCMS if rocms else {}), **(files or {})}.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for folder in {path.parent for path in package.rglob("*.py")}:
            (folder / "__init__.py").touch()
        importlib.invalidate_caches()
        return package

    yield put
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiter"]:
        del sys.modules[name]


LISTED = {(module, point.function) for point in ENTRY_POINTS for module in (point.module, point.old)}
OF_ADAPTERS = {f"test_{module.__name__.rpartition('.')[2]}" for module in MODULES} | {"test_dispatch"}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """What a test imports of an aiter of its own is gone behind it, also for the tests of other folders."""
    before = set(sys.modules)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiter" and name not in before]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def only_what_is_listed(nothing_left: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter takes no function out of aiter that its ENTRY_POINTS lack: contract tests would not look for it."""
    if request.path.stem not in OF_ADAPTERS:
        return
    taken = importing._get_attribute

    def watched(module: ModuleType, name: str, version: str) -> Any:
        found = taken(module, name, version)
        assert (module.__name__, name) in LISTED, f"{module.__name__}.{name} is in no ENTRY_POINTS"
        return found

    monkeypatch.setattr(importing, "_get_attribute", watched)

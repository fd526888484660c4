"""The programs of benchmarks/figures import each other by name, as they do when they are run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FIGURES = Path(__file__).parents[3] / "benchmarks" / "figures"
sys.path[:0] = [str(FIGURES), str(FIGURES / "suite")]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A function stem -> that program of the folder as a module, under a name that nothing else has."""

    def load(stem: str) -> ModuleType:
        name = f"figures_program_{stem}"
        spec = importlib.util.spec_from_file_location(name, FIGURES / f"{stem}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load

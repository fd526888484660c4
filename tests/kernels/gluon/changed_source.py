"""The module of a kernel's source with one mistake in it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_changed(path: Path, right: str, wrong: str, folder: Path) -> Any:
    """The module at `path`, written anew in `folder` and imported, with `wrong` in place of `right`, which must occur
    once; as it is if `right` is empty."""
    source = path.read_text(encoding="utf-8")
    assert source.count(right) == 1 or not right, f"{right!r} occurs {source.count(right)} times in {path.name}"
    changed = folder / f"changed_{path.name}"
    changed.write_text(source.replace(right, wrong) if right else source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(changed.stem, changed)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[changed.stem] = module
    spec.loader.exec_module(module)
    del sys.modules[changed.stem]
    return module

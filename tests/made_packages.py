"""Makes folders with distributions, as `pip install --target` does."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_package(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
) -> None:
    """Writes a distribution with these files (by default a package of its name that knows its version) and a RECORD."""
    given = files if files is not None else {f"{name}/__init__.py": f"version = {version!r}\n"}
    metadata = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {requirement}\n" for requirement in requires]
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    record = [f"{metadata}/RECORD,,"]
    for path, text in {**given, f"{metadata}/METADATA": head + "".join(lines)}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record.append(f"{path},sha256={digest},{len(text)}")
    (folder / metadata / "RECORD").write_text("\n".join(record))


def make_bare_python(folder: Path) -> Path:
    """Makes a virtual environment without any package, and returns its interpreter."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    base = Path(getattr(sys, "_base_executable", sys.executable))
    python.symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    return python

"""What an interrupted run is compared by: files, and variables of the toolchain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.plugin.features.journal.journal_header import EVERYWHERE, folder_digest, toolchain_variables


def put(path: Path, text: str = "new") -> None:
    """Write a file, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("kernels", "kernels/table.json"),
        ("kernels", "kernels/not_imported.py"),
        (EVERYWHERE, "csrc/deep/flash.cu"),
        (EVERYWHERE, "flash.hip"),
        (EVERYWHERE, "build/lib/flash.so"),
    ],
)
def test_code_and_tables_count(tmp_path: Path, folder: str, name: str) -> None:
    """A file that a kernel may be made from changes the digest by coming, and by another content."""
    put(tmp_path / "kernels" / "flash.py")
    seen = [folder_digest(tmp_path, folder)]
    for text in ("a", "b"):
        put(tmp_path / name, text)
        seen.append(folder_digest(tmp_path, folder))
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    "put_there",
    [
        lambda root: put(root / ".venv" / "x.py"),
        lambda root: put(root / "kernels" / "__pycache__" / "x.pyc"),
        lambda root: put(root / "lib" / "site-packages" / "x.py"),
        lambda root: put(root / "results.txt"),
        lambda root: put(root / "kernels" / ".prefill.json.lock"),
    ],
)
def test_what_runs_leave_behind_does_not(tmp_path: Path, put_there: Callable[[Path], None]) -> None:
    """Hidden files, caches, installed packages, and what was printed into the root of the tree."""
    put(tmp_path / "kernels" / "flash.py")
    before = [folder_digest(tmp_path, folder) for folder in ("kernels", EVERYWHERE)]
    put_there(tmp_path)
    assert [folder_digest(tmp_path, folder) for folder in ("kernels", EVERYWHERE)] == before


def test_a_digest_leads_nowhere_else_and_stops_nobody(tmp_path: Path) -> None:
    """A folder outside the tree has none; a link to nothing counts as what it is."""
    put(tmp_path / "tree" / "kernels" / "a.cu")
    put(tmp_path / "other" / "a.cu")
    (tmp_path / "tree" / "kernels" / "gone.cu").symlink_to("nothing")
    root = tmp_path / "tree"
    assert [folder_digest(root, name) for name in ("../other", "..", "", "kernels/..")] == [""] * 4
    assert folder_digest(root, "kernels")


def test_variables_that_change_code_are_known() -> None:
    """Those of compilers and libraries; not which card it is, where caches lie, or what a CI system sets."""
    environ = {
        "TRITON_DEBUG": "1",
        "LD_PRELOAD": "x.so",
        "CUDA_VISIBLE_DEVICES": "1",
        "TRITON_CACHE_DIR": "elsewhere",
        "GITHUB_RUN_ID": "7",
        "HIP_FORCE": "",
    }
    assert toolchain_variables(environ) == {"TRITON_DEBUG": "1", "LD_PRELOAD": "x.so"}

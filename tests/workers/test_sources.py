import hashlib
from pathlib import Path
from types import ModuleType

from pytest_attnperf.workers.sources import loaded_sources


def module(name: str, path: Path) -> ModuleType:
    """A loaded module of that file."""
    made = ModuleType(name)
    made.__file__ = str(path)
    return made


def write(path: Path, text: str) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_loaded_files_of_the_tree_are_hashed(tmp_path: Path) -> None:
    """Each loaded module of the repository is named relative to it, with its content's SHA-256."""
    path = write(tmp_path / "kernels" / "flash.py", "x = 1\n")
    hashes, foreign = loaded_sources(tmp_path, {"kernels.flash": module("kernels.flash", path)})
    assert hashes == {"kernels/flash.py": hashlib.sha256(b"x = 1\n").hexdigest()}
    assert foreign == []


def test_a_changed_file_changes_the_hash(tmp_path: Path) -> None:
    """Hashes follow the content, although they are remembered between cases."""
    path = write(tmp_path / "kernels" / "flash.py", "x = 1\n")
    modules = {"kernels.flash": module("kernels.flash", path)}
    before, _ = loaded_sources(tmp_path, modules)
    path.write_text("x = 22\n")
    after, _ = loaded_sources(tmp_path, modules)
    assert before != after


def test_silent_a_against_a_is_named(tmp_path: Path) -> None:
    """A module whose package stands in this tree but was loaded from another one is reported with both paths."""
    write(tmp_path / "here" / "kernels" / "flash.py", "x = 1\n")
    other = write(tmp_path / "other" / "kernels" / "flash.py", "x = 1\n")
    _, foreign = loaded_sources(tmp_path / "here", {"kernels.flash": module("kernels.flash", other)})
    assert len(foreign) == 1
    assert "kernels.flash was loaded from" in foreign[0]
    assert str(other) in foreign[0]


def test_installed_packages_are_not_the_repository(tmp_path: Path) -> None:
    """A virtual environment inside the tree, the harness itself, and other packages are left out."""
    inside = write(tmp_path / ".venv" / "lib" / "site-packages" / "torch" / "x.py", "")
    harness = write(tmp_path / "pytest_attnperf" / "x.py", "")
    elsewhere = write(tmp_path.parent / "elsewhere" / "scipy.py", "")
    hashes, foreign = loaded_sources(
        tmp_path,
        {
            "torch.x": module("torch.x", inside),
            "pytest_attnperf.x": module("pytest_attnperf.x", harness),
            "scipy": module("scipy", elsewhere),
        },
    )
    assert (hashes, foreign) == ({}, [])

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


def test_a_package_of_another_tree_is_named_once(tmp_path: Path) -> None:
    """With its first module, and the number of the others."""
    write(tmp_path / "here" / "kernels" / "flash.py", "x = 1\n")
    names = ("kernels", "kernels.decode", "kernels.flash")
    others = {name: module(name, write(tmp_path / "other" / f"{name}.py", "")) for name in names}
    _, foreign = loaded_sources(tmp_path / "here", others)
    assert len(foreign) == 1
    assert foreign[0].startswith("module kernels was loaded from")
    assert foreign[0].endswith(", and so were 2 more of kernels")


def test_tests_may_stand_in_a_folder_called_like_an_installed_package(tmp_path: Path) -> None:
    """A folder of nothing but tests is not the package that its tests import."""
    write(tmp_path / "here" / "xformers" / "test_norms.py", "")
    write(tmp_path / "here" / "xformers" / "conftest.py", "")
    installed = {"xformers": module("xformers", write(tmp_path / "installed" / "xformers" / "__init__.py", ""))}
    assert loaded_sources(tmp_path / "here", installed) == ({}, [])


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

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.environments.installed import (
    Inventory,
    PythonEnvironment,
    import_path,
    list_packages,
    parse_environment,
    read_exact_requirement,
    read_listing,
)
from tests.made_packages import make_bare_python, make_package


def test_spellings_of_an_environment(tmp_path: Path) -> None:
    """A virtual environment, its interpreter, a name on PATH, and each with folders; links are not resolved."""
    python = make_bare_python(tmp_path / "env")
    (tmp_path / "a+b").mkdir()
    (tmp_path / "more").mkdir()
    for text, folders in {
        "env": (),
        "env/bin/python": (),
        "env+more": ("more",),
        "env+more+a+b": ("more", "a+b"),
    }.items():
        found = parse_environment(text, tmp_path, "--old")
        assert found == PythonEnvironment(text, python, tuple(tmp_path / name for name in folders))
    assert parse_environment("python3", tmp_path, "--old").python.is_absolute()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere", "--new=nowhere: {}/nowhere is neither a virtual environment .* PYTHON\\+DIR for an interpreter"),
        (
            "docker run IMAGE",
            "is a command: .* --attnperf-against=COMMAND --attnperf-candidate=COMMAND .*containers.md",
        ),
        ("{}+nowhere", "nowhere is no folder; behind \\+ stands a folder with packages"),
        ("empty", "{}/empty is neither a virtual environment"),
    ],
)
def test_what_is_no_environment(tmp_path: Path, text: str, message: str) -> None:
    """Another value, a command and a folder that is not there are named, with what may be given instead."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=message.format(tmp_path)):
        parse_environment(text.format(sys.executable), tmp_path, "--new")


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[], Inventory]:
    """Lists a bare interpreter that has one package, with the folder `added` first on its path."""
    folder = tmp_path / "added"
    folder.mkdir()
    python = make_bare_python(tmp_path / "env")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    make_package(tmp_path / "env" / "lib" / version / "site-packages", "native", "1.0")

    def list_now() -> Inventory:
        return list_packages(PythonEnvironment("env", python, (folder,)), tmp_path)

    return list_now


def test_what_is_installed(tmp_path: Path, listed: Callable[[], Inventory]) -> None:
    """Distributions of a folder and of the interpreter, with what must be linked, and what they require exactly."""
    files = {
        "nvidia/cudnn/__init__.py": "",
        "nvidia/cudnn/lib/libcudnn.so": "",
        "fast.cpython-311.so": "",
        "one.py": "",
    }
    make_package(
        tmp_path / "added", "Some_Lib", "1.0+cu12", files, ["triton==3.6.0; platform_system == 'Linux'", "a>1"]
    )
    found = listed()
    package = found.packages["some-lib"]
    assert (package.version, package.exact, package.is_compiled) == ("1.0+cu12", {"triton"}, True)
    assert package.entries == ("fast.cpython-311.so", "nvidia/cudnn", "one.py")
    assert package.modules == ("fast", "nvidia.cudnn", "one")
    assert package.is_whole
    assert found.is_added(package)
    assert not found.is_added(found.packages["native"])
    assert found.tag == sys.implementation.cache_tag


def test_two_builds_of_one_version_differ(tmp_path: Path, listed: Callable[[], Inventory]) -> None:
    """A package with other files is another one, whatever its version says; one with the same files is the same."""
    make_package(tmp_path / "added", "lib", "1.0", {"lib/__init__.py": "fast = True"})
    first = listed().packages["lib"]
    assert first.is_same(listed().packages["lib"])
    make_package(tmp_path / "added", "lib", "1.0", {"lib/__init__.py": "fast = False"})
    assert not first.is_same(listed().packages["lib"])
    assert not first.is_same(None)


def test_a_package_without_metadata(tmp_path: Path, listed: Callable[[], Inventory]) -> None:
    """A package of an added folder that no distribution lists counts as one of unknown version, before a listed one of
    its name."""
    (tmp_path / "added" / "lib").mkdir()
    (tmp_path / "added" / "lib" / "__init__.py").touch()
    (tmp_path / "added" / "README.md").touch()
    make_package(tmp_path / "added", "LIB", "1.0")
    found = listed()
    assert (found.packages["lib"].version, found.packages["lib"].entries) == ("", ("lib",))
    assert "readme" not in found.packages


def test_an_editable_install_is_not_whole(tmp_path: Path, listed: Callable[[], Inventory]) -> None:
    """Links to it would have no effect: a .pth file acts in the interpreter's own folder only."""
    make_package(tmp_path / "added", "edited", "1.0", {"__editable__.edited.pth": "/src"})
    assert not listed().packages["edited"].is_whole


def test_an_interpreter_that_does_not_answer(tmp_path: Path) -> None:
    """Its exit status and what it printed last are in the error."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(UsageError, match=r"could not list its packages, exit status 3: broken; Python 3.10 or later"):
        list_packages(PythonEnvironment("env", python), tmp_path)


def _describe(**changes: Any) -> dict[str, Any]:
    one = {
        "name": "lib",
        "version": "1",
        "folder": "/x",
        "requires": [],
        "entries": ["lib"],
        "metadata": "",
        "digest": "",
    }
    return {**one, "is_compiled": False, "is_whole": True, **changes}


def test_hostile_names_are_left_out() -> None:
    """Names and versions that no distribution may have are not printed, and entries never lead out of the folder."""
    packages = {
        "lib": _describe(entries=["../evil", "/etc", "a//b", "lib"]),
        "\x1b[2J": _describe(),
        "worse": _describe(version="1\n::error::"),
    }
    listing = {"python": "3.11.7", "tag": "cpython-311", "packages": packages}
    found = read_listing(PythonEnvironment("env", Path("/python")), listing)
    assert {name: package.entries for name, package in found.packages.items()} == {"lib": ("lib",)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("triton==3.6.0", "triton"),
        ("Nvidia_Cudnn.cu12 (==9.1); sys_platform == 'linux'", "nvidia-cudnn-cu12"),
        ("lib[fast]===1.0+local", "lib"),
        ("numpy==1.*", ""),
        ("numpy>=1.0", ""),
        ("numpy>=1.0,==1.5", ""),
        ("numpy==1.0,!=2", ""),
        ("tqdm==4.0; extra == 'progress'", ""),
        ("", ""),
    ],
)
def test_exact_requirements(text: str, name: str) -> None:
    """Only a requirement of one version counts, and none of an extra."""
    assert read_exact_requirement(text) == name


def test_import_path() -> None:
    """Folders come before what PYTHONPATH has."""
    assert import_path([Path("/a"), Path("/b")], {"PYTHONPATH": "/c::/d"}) == "/a:/b:/c:/d"
    assert import_path([], {}) == ""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.workers.environments.components import Component, list_components
from pytest_attnperf.workers.environments.installed import InstalledPackage, Inventory, PythonEnvironment

NATIVE, ADDED = Path("/env/site-packages"), Path("/added")


def _package(name: str, version: str, *exact: str, folder: Path = ADDED, **fields: object) -> InstalledPackage:
    given = {"entries": (name.replace("-", "_"),), **fields}
    return InstalledPackage(name, version, folder, frozenset(exact), **given)  # type: ignore[arg-type]


def _installed(*packages: InstalledPackage, tag: str = "cpython-311") -> Inventory:
    environment = PythonEnvironment("env", Path("/env/bin/python"), (ADDED,))
    return Inventory(environment, "3.11.7", tag, {package.name: package for package in packages})


def _changes(components: list[Component]) -> dict[str, tuple[str, ...]]:
    return {component.name: component.changed for component in components}


def test_only_what_differs_is_listed() -> None:
    """Equal distributions are no components, nor is this plugin; known ones come first, then compiled ones."""
    old = _installed(
        _package("zlib", "1", is_compiled=True), _package("a", "1"), _package("same", "1"), _package("triton", "3.4"),
        _package("pytest-attnperf", "1"),
    )  # fmt: skip
    new = _installed(
        _package("zlib", "2", is_compiled=True), _package("a", "2"), _package("same", "1"), _package("triton", "3.6"),
        _package("pytest-attnperf", "2"),
    )  # fmt: skip
    assert list(_changes(list_components(old, new))) == ["triton", "zlib", "a"]


def test_exact_requirements_join() -> None:
    """What requires one exact version moves with it, over any number of steps."""
    old = _installed(_package("vllm", "1", "xformers"), _package("xformers", "1", "flash"), _package("flash", "1"))
    new = _installed(_package("vllm", "1", "xformers"), _package("xformers", "1", "flash"), _package("flash", "2"))
    (component,) = list_components(old, new)
    assert (component.name, component.changed, set(component.new)) == (
        "flash",
        ("flash",),
        {"vllm", "xformers", "flash"},
    )


def test_torch_moves_with_its_libraries_and_without_triton() -> None:
    """nvidia-* distributions belong to torch even if torch is the same; triton is swapped by itself, though required
    exactly."""
    old = _installed(
        _package("torch", "2.11", "triton"), _package("nvidia-cudnn-cu12", "9.1"), _package("triton", "3.4")
    )
    new = _installed(
        _package("torch", "2.11", "triton"), _package("nvidia-cudnn-cu12", "9.2"), _package("triton", "3.6")
    )
    found = list_components(old, new)
    assert _changes(found) == {"nvidia-cudnn-cu12": ("nvidia-cudnn-cu12",), "triton": ("triton",)}
    assert set(found[0].old) == {"torch", "nvidia-cudnn-cu12"}


def test_one_package_under_two_names() -> None:
    """Distributions of one component have different names in the two environments."""
    old, new = _installed(_package("pytorch-triton-rocm", "3.4")), _installed(_package("triton", "3.6"))
    (component,) = list_components(old, new)
    assert (component.name, component.changed) == ("triton", ("triton", "pytorch-triton-rocm"))


def test_a_shared_package_joins() -> None:
    """Distributions with files in one package would hide each other's part; folders left by mistake do not count."""
    old = _installed(_package("a", "1", entries=("both", "tests")), _package("b", "1", entries=("both",)))
    new = _installed(_package("a", "2", entries=("both", "tests")), _package("b", "1", entries=("both",)))
    assert set(list_components(old, new)[0].old) == {"a", "b"}
    old, new = (
        _installed(*(_package(name, version, entries=(name, "tests")) for name in "ab")) for version in ("1", "2")
    )
    assert _changes(list_components(old, new)) == {"a": ("a",), "b": ("b",)}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            _package("a", "1", is_compiled=True),
            _package("a", "2", is_compiled=True),
            "a is compiled for one Python only",
        ),
        (_package("a", "1"), _package("a", "2"), ""),
        (
            _package("a", "1", is_whole=False),
            _package("a", "2"),
            "a is an editable install, or its files are not listed",
        ),
    ],
)
def test_what_cannot_be_swapped_between_pythons(old: InstalledPackage, new: InstalledPackage, reason: str) -> None:
    """Compiled code fits one Python; pure Python fits both."""
    (component,) = list_components(_installed(old), _installed(new, tag="cpython-312"))
    assert component.fixed == reason


def test_what_only_one_environment_has() -> None:
    """It can be swapped if it lies in an added folder; links cannot hide what the interpreter has itself."""
    (added,) = list_components(_installed(), _installed(_package("a", "1")))
    assert added.fixed == ""
    (native,) = list_components(_installed(_package("a", "1", folder=NATIVE)), _installed())
    assert native.fixed == "a is only in the old environment, and links cannot hide it"


def test_what_was_used() -> None:
    """A component was used if one of its modules was imported."""
    component = Component("a", {"a": _package("a", "1", entries=("nvidia/x", "six.py"))}, {})
    assert component.is_used(frozenset({"six"}))
    assert component.is_used(frozenset({"nvidia.x"}))
    assert not component.is_used(frozenset({"nvidia", "sixty"}))

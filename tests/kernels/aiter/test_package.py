from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernels.aiter.package import Installed, find_installed, missing_aiter, version_entries

SHA = "e4048607a5" + 30 * "0"
IMPORTED = "raise AssertionError('imported')"


def test_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any aiter the reason says which one is meant, and there is no version."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    assert missing_aiter() == [
        "aiter is not installed (it is ROCm/aiter on GitHub; the package `aiter` on PyPI is unrelated)"
    ]
    assert (find_installed(), version_entries()) == (None, {"aiter": "unknown"})


def test_the_asyncio_package_is_recognised_by_its_files(aiter_package: Callable[..., Path]) -> None:
    """PyPI's aiter is named as what it is, and not imported to find out."""
    package = aiter_package({"azip.py": ""}, IMPORTED, rocms=False)
    assert missing_aiter() == [
        f"`aiter` at {package} is PyPI's asyncio package, not ROCm/aiter; uninstall it and install ROCm/aiter"
    ]
    assert find_installed() is None


def test_an_unknown_package_of_that_name(aiter_package: Callable[..., Path]) -> None:
    """A package that is neither is refused with what it lacks."""
    package = aiter_package({}, IMPORTED, rocms=False)
    assert missing_aiter() == [
        f"`aiter` at {package} is an unknown package of that name: ROCm/aiter has ops/mha.py and jit/"
    ]


def test_a_copy_of_parts_is_no_aiter(aiter_package: Callable[..., Path]) -> None:
    """A project that ships aiter's Triton kernels under the same name is told apart."""
    package = aiter_package({"ops/triton/mha.py": ""}, IMPORTED, rocms=False)
    assert missing_aiter() == [
        f"`aiter` at {package} is a copy of parts of ROCm/aiter: it has ops/triton, but no ops/mha.py and jit/"
    ]


def test_the_root_of_a_checkout_is_no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Started beside a clone of ROCm/aiter, Python finds the clone itself under that name."""
    package = tmp_path / "aiter" / "aiter"
    (package / "jit").mkdir(parents=True)
    (package / "ops").mkdir()
    (package / "ops" / "mha.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    (reason,) = missing_aiter()
    assert reason.startswith(f"`aiter` at {tmp_path / 'aiter'} is the root of a checkout of ROCm/aiter")
    assert "python setup.py develop" in reason


def test_a_module_without_a_spec_is_told_by_its_folder(
    aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that something put into sys.modules by hand is judged by its files, too."""
    module = ModuleType("aiter")
    monkeypatch.setitem(sys.modules, "aiter", module)
    assert missing_aiter() == [
        "`aiter` at a module without a file is an unknown package of that name: ROCm/aiter has ops/mha.py and jit/"
    ]
    module.__path__ = [str(aiter_package())]
    assert missing_aiter() == []


def _distribution(root: Path, name: str, version: str, files: dict[str, str] | None = None) -> None:
    folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    for file, text in (files or {}).items():
        (folder / file).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["amd-aiter", "aiter"])
def test_the_version_is_the_distributions(aiter_package: Callable[..., Path], name: str) -> None:
    """Both names that ROCm's distribution has had are read, and nothing is imported."""
    package = aiter_package({}, IMPORTED)
    _distribution(package.parent, name, "0.1.9+rocm7.1.gabcdef012")
    assert missing_aiter() == []
    assert find_installed() == Installed(package, "0.1.9+rocm7.1.gabcdef012", "abcdef012")
    assert version_entries() == {"aiter": "0.1.9+rocm7.1.gabcdef012", "aiter_revision": "abcdef012"}


def test_the_stale_release_on_pypi_is_a_trap(aiter_package: Callable[..., Path]) -> None:
    """What `pip install --pre amd-aiter` gives is refused by its version."""
    package = aiter_package({}, IMPORTED)
    _distribution(package.parent, "amd-aiter", "0.1.7.post2.dev18")
    assert missing_aiter() == [
        f"`aiter` at {package} is amd-aiter 0.1.7.post2.dev18, the stale pre-release on PyPI without compiled modules; "
        "uninstall it and install ROCm/aiter from its GitHub releases or from source"
    ]


def test_another_installation_does_not_lend_its_version(
    aiter_package: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution of that name elsewhere on the path says nothing about the folder in use; its own file does."""
    package = aiter_package({"_version.py": "__version__ = version = '0.1.20.post1'\n"})
    (tmp_path / "other").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    _distribution(tmp_path / "other", "aiter", "0.13.20191203")
    assert version_entries() == {"aiter": "0.1.20.post1"}
    assert find_installed() == Installed(package, "0.1.20.post1", "")


def test_an_editable_installation_owns_its_checkout(
    aiter_package: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distribution of `pip install -e` lies elsewhere, and names the checkout."""
    package = aiter_package()
    (tmp_path / "other").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    url = {"direct_url.json": f'{{"url": "file://{package.parent}", "dir_info": {{"editable": true}}}}'}
    _distribution(tmp_path / "other", "amd-aiter", "0.1.21", url)
    assert version_entries() == {"aiter": "0.1.21"}


def test_half_written_files_are_unknown(aiter_package: Callable[..., Path], tmp_path: Path) -> None:
    """A version file without a version and a broken direct_url.json give 'unknown', no exception."""
    package = aiter_package({"_version.py": "version = "})
    _distribution(package.parent / "aiter", "amd-aiter", "0.1.21", {"direct_url.json": "{"})
    assert version_entries() == {"aiter": "unknown"}


@pytest.mark.parametrize("packed", [False, True])
def test_the_revision_of_a_checkout(aiter_package: Callable[..., Path], packed: bool) -> None:
    """The commit of a branch is read without git, packed or not."""
    root = aiter_package().parent
    (root / "op_tests").mkdir()
    refs = root / ".git" / "refs" / "heads"
    refs.mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    if packed:
        text = f"# pack-refs with: peeled\n{'1' * 40} refs/heads/other\n{SHA} refs/heads/main\n"
        (root / ".git" / "packed-refs").write_text(text, encoding="utf-8")
    else:
        (refs / "main").write_text(SHA + "\n", encoding="utf-8")
    assert version_entries()["aiter_revision"] == SHA


def test_the_revision_of_a_worktree(aiter_package: Callable[..., Path], tmp_path: Path) -> None:
    """A worktree or submodule has a file in place of the folder, and its branches elsewhere."""
    root = aiter_package().parent
    (root / "csrc").mkdir()
    own = tmp_path / "repository" / "worktrees" / "one"
    own.mkdir(parents=True)
    (root / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
    (own / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (own / "commondir").write_text("../..\n", encoding="utf-8")
    (tmp_path / "repository" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "repository" / "refs" / "heads" / "main").write_text(SHA, encoding="utf-8")
    assert version_entries()["aiter_revision"] == SHA


def test_a_repository_around_it_is_not_its_own(aiter_package: Callable[..., Path]) -> None:
    """A folder with a .git that is no checkout of aiter does not lend its commit."""
    root = aiter_package().parent
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text(SHA, encoding="utf-8")
    assert "aiter_revision" not in version_entries()
    (root / "op_tests").mkdir()
    assert version_entries()["aiter_revision"] == SHA

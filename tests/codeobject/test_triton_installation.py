from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_attnperf.codeobject import triton_installation
from pytest_attnperf.codeobject.triton_installation import (
    LINKER,
    installation_hash,
    linker_named,
    load_triton,
    private_cache,
    triton_reasons,
)
from pytest_attnperf.errors import ToolMissingError


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> ModuleType:
    """Put a package triton of that version, which can do nothing, in the place of what is installed."""
    found = ModuleType("triton")
    found.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", found)
    monkeypatch.setitem(sys.modules, "triton.compiler", ModuleType("triton.compiler"))
    return found


def test_absent_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one reason says what is missing, for which interpreter, and how to install it."""
    monkeypatch.setitem(sys.modules, "triton", None)
    (reason,) = triton_reasons("gfx942")
    assert reason.startswith("there is no triton (")
    assert f"install it for {sys.executable}: pip install 'triton>=3.3'" in reason


@pytest.mark.parametrize("version", ["3.2.0", "2.1.0+rocm6", "unknown"])
def test_old_triton_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A version before the oldest that was tried is named with what to install."""
    install(monkeypatch, version)
    with pytest.raises(ToolMissingError, match=rf"triton {version.replace('+', '.')} is too old; install it for"):
        load_triton()


@pytest.mark.parametrize("version", ["3.3.0", "3.10.0", "4.0.1", "3.4.0+git5389ed79"])
def test_newer_triton_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """3.10 is newer than 3.3, and a fork's suffix does no harm."""
    assert load_triton() is not install(monkeypatch, version)
    assert load_triton().__version__ == version


def test_broken_triton_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there but cannot be loaded is told apart from one that is absent."""
    (tmp_path / "triton.py").write_text("raise OSError('libstdc++.so.6: version GLIBCXX_3.4.32 not found')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"triton cannot be imported \(OSError: libstdc\+\+.so.6: version"):
        load_triton()


class NeedsLinker:
    """An AMD backend as up to Triton 3.4, on a machine where it finds no linker."""

    target = SimpleNamespace(backend="hip", arch="gfx942", warp_size=64)

    def path_to_rocm_lld(self) -> Path:
        """Raise, as it does."""
        if os.environ.get(LINKER):
            return Path(os.environ[LINKER])
        raise Exception("ROCm linker /opt/rocm/llvm/bin/ld.lld not found. Set 'TRITON_HIP_LLD_PATH' to its path.")


def use(monkeypatch: pytest.MonkeyPatch, linker: Path | None) -> None:
    """Make an ld.lld the one of this machine."""
    monkeypatch.delenv(LINKER, raising=False)
    monkeypatch.setattr(triton_installation, "find_linker", lambda: linker)


def test_a_linker_is_named_to_a_triton_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton up to 3.4 is told where ld.lld is while it compiles, and the environment is left as it was."""
    use(monkeypatch, Path("/usr/bin/ld.lld-22"))
    with linker_named(NeedsLinker()):
        assert os.environ[LINKER] == "/usr/bin/ld.lld-22"
    assert LINKER not in os.environ


def test_a_linker_is_not_named_where_it_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton that contains its linker, or finds one, is told nothing."""
    use(monkeypatch, Path("/usr/bin/ld.lld-22"))
    with linker_named(object()):
        assert LINKER not in os.environ
    monkeypatch.setenv(LINKER, "/opt/mine/ld.lld")
    with linker_named(NeedsLinker()):
        assert os.environ[LINKER] == "/opt/mine/ld.lld"


def test_a_missing_linker_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where such a Triton has no linker to be told of, the build is unsupported, with what to install."""
    install(monkeypatch, "3.4.0")
    use(monkeypatch, None)
    monkeypatch.setattr(triton_installation, "backend_for", lambda _arch: NeedsLinker())
    monkeypatch.setattr(triton_installation, "_has_arch", lambda _backend, _arch: True)
    (reason,) = triton_reasons("gfx942")
    assert reason.startswith(
        "triton 3.4.0 links AMD kernels with ld.lld, and there is none: set TRITON_HIP_LLD_PATH or"
    )
    assert "apt-get install lld-22" in reason
    use(monkeypatch, Path("/usr/bin/ld.lld-22"))
    assert triton_reasons("gfx942") == []


def test_a_missing_assembler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton without NVIDIA's ptxas cannot compile for NVIDIA GPUs, and says so before it is tried."""

    class WithoutPtxas:
        target = SimpleNamespace(backend="cuda", arch=90, warp_size=32)

        def hash(self) -> str:
            raise RuntimeError("Cannot find ptxas")

    install(monkeypatch, "3.4.0")
    monkeypatch.setattr(triton_installation, "backend_for", lambda _arch: WithoutPtxas())
    assert triton_reasons("sm_90") == ["triton 3.4.0 cannot run the assembler that sm_90 needs: Cannot find ptxas"]


def test_the_private_cache_goes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's cache is a folder of its own while it compiles; then it is gone, and the user's setting is back."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/else")
    with pytest.raises(ZeroDivisionError), private_cache():
        folder = Path(os.environ["TRITON_CACHE_DIR"])
        assert folder.is_dir()
        _ = 1 / 0
    assert not folder.exists()
    assert os.environ["TRITON_CACHE_DIR"] == "/somewhere/else"


def test_an_installation_without_a_hash_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another library, of another size or time, is another installation, although the version is the same."""
    (tmp_path / "_C").mkdir()
    library = tmp_path / "_C/libtriton.so"
    install(monkeypatch, "3.4.0").__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "triton.runtime", ModuleType("triton.runtime"))
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    found = set()
    for content in (b"one", b"other"):
        library.write_bytes(content)
        found.add(installation_hash())
    assert len(found) == 2
    assert all(text.startswith("3.4.0 ") for text in found)

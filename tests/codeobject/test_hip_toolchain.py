from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_attnperf.codeobject import hip_toolchain
from pytest_attnperf.codeobject.hip_toolchain import CLANG, find_linker, find_toolchain, hip_reasons
from pytest_attnperf.errors import ToolMissingError
from pytest_attnperf.kernel_builds import ALL_ARCHS


def write_program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_clang(path: Path, version: str, *, knows: str = "gfx942", lld: bool = True, vendor: str = "") -> Path:
    """A clang of some version that knows an architecture, given as a shell pattern."""
    if lld:
        write_program(path.with_name("lld-beside"), "exit 0")
    return write_program(
        path,
        f"""
case "$*" in
*--version*) echo "{vendor}clang version {version}"; echo "Target: x86_64-pc-linux-gnu"; exit 0 ;;
*-print-prog-name=lld*) echo {path.with_name("lld-beside") if lld else "lld"}; exit 0 ;;
*-fsyntax-only*)
  case "$*" in
  *--offload-arch={knows}*) exit 0 ;;
  *) echo "clang++: error: invalid target ID 'gfx'; format is a processor name" >&2; exit 1 ;;
  esac ;;
esac""",
    )


@pytest.fixture(autouse=True)
def _no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's ROCm and ziglang out of it."""
    monkeypatch.setattr(hip_toolchain, "_ROCM", tmp_path / "opt/rocm")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


def on_path(folder: Path, **more: str) -> dict[str, str]:
    """An environment whose PATH is one folder."""
    return {"PATH": str(folder), **more}


def test_newest_clang_comes_first(tmp_path: Path) -> None:
    """Of clang++-9, clang++-19, clang++-22 and clang++ the newest numbered one is taken, by number, not by text."""
    for name, version in {
        "clang++-9": "9.0.1",
        "clang++-19": "19.1.7",
        "clang++-22": "22.1.8",
        "clang++": "14",
    }.items():
        fake_clang(tmp_path / name, version)
    found = find_toolchain("gfx942", on_path(tmp_path))
    assert found.clang == (str(tmp_path / "clang++-22"),)
    assert (found.name, found.linker) == ("clang 22.1.8", ())


def test_a_clang_that_does_not_know_the_architecture_is_passed_over(tmp_path: Path) -> None:
    """The newest may lack what an older one has, as builds with fewer targets do."""
    fake_clang(tmp_path / "clang++-22", "22.1.8", knows="none")
    fake_clang(tmp_path / "clang++-19", "19.1.7 (3~deb12u1)")
    assert find_toolchain("gfx942", on_path(tmp_path)).name == "clang 19.1.7"


def test_too_old_clang_is_named(tmp_path: Path) -> None:
    """The error names each clang that was found, its version, what it says, and what to install."""
    old = fake_clang(tmp_path / "clang++-19", "19.1.7")
    older = fake_clang(tmp_path / "clang++", "14.0.6")
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain("gfx950", on_path(tmp_path))
    text = str(caught.value)
    assert text.startswith("no clang here compiles HIP for gfx950: ")
    assert f"{old} (clang 19.1.7) says: invalid target ID 'gfx'" in text
    assert f"{older} (clang 14.0.6) says: invalid target ID 'gfx'" in text
    assert "apt-get install clang-22 lld-22 llvm-22; ROCm brings its own" in text


def test_no_clang_at_all(tmp_path: Path) -> None:
    """Where there is none, that is said, with where it was looked for."""
    with pytest.raises(ToolMissingError, match=r"there is no clang\+\+ on PATH, in ROCM_PATH or /opt/rocm"):
        find_toolchain("gfx942", on_path(tmp_path))


def test_clang_without_lld_is_named(tmp_path: Path) -> None:
    """A clang whose linker is not installed cannot make code objects, and says so before it is tried."""
    fake_clang(tmp_path / "clang++-22", "22.1.8", lld=False)
    with pytest.raises(ToolMissingError, match=r"clang\+\+-22 \(clang 22.1.8\) has no lld beside it"):
        find_toolchain("gfx942", on_path(tmp_path))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo gcc 13.2.0", "--version gave status 0, 'gcc 13.2.0'"),
        ("echo broken library >&2; exit 127", "--version gave status 127, 'broken library'"),
        ("exit 3", "--version gave status 3, 'no text'"),
        ("exec sleep 5", "did not finish in 0.2 s"),
    ],
)
def test_what_is_no_clang_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    """A program of that name that is another, is broken or hangs is passed over and named."""
    monkeypatch.setattr(hip_toolchain, "PROBE_LIMIT_S", 0.2 if "sleep" in script else 10.0)
    write_program(tmp_path / "clang++", script)
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain("gfx942", on_path(tmp_path))
    assert "is no clang: " in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """A clang++-NN that is no executable is passed over and named."""
    (tmp_path / "clang++-22").write_text("not a program")
    with pytest.raises(ToolMissingError, match=r"clang\+\+-22 is no clang: .*cannot be started \(Permission denied\)"):
        find_toolchain("gfx942", on_path(tmp_path))


def test_the_named_clang_is_the_only_one(tmp_path: Path) -> None:
    """ATTNPERF_CLANG is taken alone: where it does not do, no other silently stands in."""
    mine = fake_clang(tmp_path / "mine/my-clang", "21.0.0git", knows="gfx90a")
    fake_clang(tmp_path / "clang++-22", "22.1.8")
    environ = on_path(tmp_path, **{CLANG: str(mine)})
    assert find_toolchain("gfx90a", environ).name == "clang 21.0.0git"
    with pytest.raises(
        ToolMissingError, match=r"my-clang \(clang 21.0.0git\) says: .*Please correct or unset ATTNPERF"
    ):
        find_toolchain("gfx942", environ)


def test_rocm_comes_before_the_path(tmp_path: Path) -> None:
    """ROCM_PATH, then /opt/rocm, then PATH; AMD's clang is named with its release, which its version does not tell."""
    build = "19.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-6.4.1 25184 c87081df219c42dc27)"
    chosen = fake_clang(tmp_path / "rocm-6.4.1/llvm/bin/clang++", build, vendor="AMD ")
    fake_clang(tmp_path / "opt/rocm/llvm/bin/clang++", "18.0.0git", vendor="AMD ")
    fake_clang(tmp_path / "clang++-22", "22.1.8")
    found = find_toolchain("gfx942", on_path(tmp_path, ROCM_PATH=str(tmp_path / "rocm-6.4.1")))
    assert (found.clang, found.name) == ((str(chosen),), "AMD clang 19.0.0git roc-6.4.1")
    assert "c87081df219c42dc27" in found.identity
    assert find_toolchain("gfx942", on_path(tmp_path)).name == "AMD clang 18.0.0git"


def test_ziglang_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clang inside the package ziglang is used where no other does, linked by its own ld.lld, and named."""
    zig = fake_clang(tmp_path / "ziglang/zig", "22.1.8", lld=False)
    monkeypatch.undo()
    monkeypatch.setattr(hip_toolchain, "_ROCM", tmp_path / "opt/rocm")
    (tmp_path / "ziglang/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_toolchain("gfx942", on_path(tmp_path / "empty"))
    assert (found.clang, found.linker) == ((str(zig), "clang"), (str(zig), "ld.lld"))
    assert found.name == "clang 22.1.8 (ziglang)"
    fake_clang(tmp_path / "clang++", "19.1.7")
    assert find_toolchain("gfx942", on_path(tmp_path)).name == "clang 19.1.7"


def test_only_amd_architectures(tmp_path: Path) -> None:
    """HIP for an NVIDIA architecture is refused, naming what is taken."""
    with pytest.raises(ToolMissingError, match=r"compiled for AMD architectures, not 'sm_90'; name one, e\.g\. gfx942"):
        find_toolchain("sm_90", on_path(tmp_path))


def test_reasons_are_what_the_search_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reason where a clang is found, and the whole error as the one reason where none is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(CLANG, raising=False)
    monkeypatch.delenv("ROCM_PATH", raising=False)
    (reason,) = hip_reasons("gfx942")
    assert reason.startswith("no clang here compiles HIP for gfx942: there is no clang++")
    fake_clang(tmp_path / "clang++", "22.1.8")
    assert hip_reasons("gfx942") == []


def test_linker_is_found_like_clang(tmp_path: Path) -> None:
    """ROCm's ld.lld first, then the newest numbered one, then ld.lld; none where there is none."""
    assert find_linker(on_path(tmp_path)) is None
    for name in ("ld.lld", "ld.lld-9", "ld.lld-22"):
        write_program(tmp_path / name, "exit 0")
    assert find_linker(on_path(tmp_path)) == tmp_path / "ld.lld-22"
    rocm = write_program(tmp_path / "rocm/llvm/bin/ld.lld", "exit 0")
    assert find_linker(on_path(tmp_path, ROCM_PATH=str(tmp_path / "rocm"))) == rocm


@pytest.mark.skipif(not shutil.which("clang++-22"), reason="needs clang++-22 (Debian: apt-get install clang-22 lld-22)")
def test_a_real_clang_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """clang 22 knows the six architectures that this project compiles for, and no invented one."""
    monkeypatch.setenv(CLANG, shutil.which("clang++-22") or "")
    for arch in ALL_ARCHS:
        assert find_toolchain(arch).name.startswith("clang 22.")
    with pytest.raises(ToolMissingError, match=r"says: unsupported HIP gpu architecture: gfx9999|invalid target ID"):
        find_toolchain("gfx9999")

"""What .ci/setup says when it cannot go on. It runs on a copy, so that no mistake of its own can touch our .venv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE_PYTHON = os.path.realpath(sys.executable)
"""The interpreter behind the virtual environment these tests run in."""


BROWSER = ("chromium", "chromedriver")


class Setup:
    """A copy of the script, in a folder whose `bin` comes first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/setup", folder / ".ci/setup")
        (folder / "bin").mkdir()
        (folder / "modules").mkdir()
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        for name in (*BROWSER, "initdb"):
            self.command(name, "exit 0")

    def command(self, name: str, script: str) -> None:
        """Replace a command that the script calls."""
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def module(self, name: str, source: str) -> None:
        """Replace a module that the interpreter imports."""
        (self.folder / "modules" / f"{name}.py").write_text(source)

    def without(self, *commands: str) -> None:
        """Leave in PATH what the script itself needs, and what was replaced; these commands then are nowhere."""
        for name in ("bash", "sh", "dirname", "id", "cat", "mkdir", "cp"):
            if not (self.folder / "bin" / name).exists():
                (self.folder / "bin" / name).symlink_to(shutil.which(name) or "")
        self.path = str(self.folder / "bin")
        assert not any(shutil.which(command, path=self.path) for command in commands)

    def succeed(self) -> list[str]:
        """Run the script with a Python that does nothing it is told to; the lines it says."""
        make_venv = 'mkdir -p .venv/bin; cp "$0" .venv/bin/python'
        self.command("fakepython", f'case "$*" in *venv\\ --clear*) {make_venv} ;; -) cat >/dev/null ;; esac')
        ran = self.run("fakepython", ROCM_PATH=str(self.folder / "rocm"))
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.splitlines()

    def fail(self, python: str = BASE_PYTHON) -> str:
        """Run the script; what it says on stderr. It must fail, and must not have begun to make .venv."""
        ran = self.run(python)
        assert ran.returncode == 1
        assert not (self.folder / ".venv").exists()
        return ran.stderr

    def run(self, python: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the script with an interpreter to build on."""
        environment = {
            **os.environ,
            "PATH": self.path,
            "PYTHONPATH": str(self.folder / "modules"),
            "PYTHON": python,
            **more,
        }
        return subprocess.run(
            [self.folder / ".ci/setup"], env=environment, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A copy of the script that may be broken in any way."""
    return Setup(tmp_path)


def test_missing_interpreter_is_named(setup: Setup) -> None:
    """An interpreter that does not exist is named, with how to choose another."""
    assert "there is no 'python9'; install Python 3.10 or newer" in setup.fail("python9")


def test_old_interpreter_is_named(setup: Setup) -> None:
    """An interpreter that is too old is named with its version."""
    setup.command("oldpython", 'if [ "$1" = --version ]; then echo Python 3.8.1; else exit 1; fi')
    assert "'oldpython' is Python 3.8.1; Python 3.10 or newer is needed" in setup.fail("oldpython")


def test_broken_torch_is_not_replaced(setup: Setup) -> None:
    """A torch that is installed but cannot be imported stops the setup: another build must not take its place."""
    setup.module("torch", "raise ImportError('libamdhip64.so.6: cannot open shared object file')")
    text = setup.fail()
    assert "libamdhip64.so.6" in text
    assert "torch is installed for" in text
    assert "but cannot be imported (see above); repair it" in text


def test_user_is_told_what_root_must_run(setup: Setup) -> None:
    """Without Python's venv module a user who is not root gets the exact command to run."""
    setup.module("ensurepip", "raise ImportError")
    setup.command("id", "echo 1000")
    assert (
        "run this as root, then make again: "
        "apt-get update && apt-get install -y --no-install-recommends python3-venv" in setup.fail()
    )


def test_root_installs_the_venv_module(setup: Setup) -> None:
    """Without Python's venv module root installs it, and is told when that did not help."""
    setup.module("ensurepip", "raise ImportError")
    setup.command("id", "echo 0")
    setup.command("apt-get", f'echo "$@" >>{setup.folder / "calls"}')
    assert "still has no venv module after installing python3-venv" in setup.fail()
    assert (setup.folder / "calls").read_text().splitlines() == [
        "update -qq",
        "install -y -qq --no-install-recommends python3-venv",
    ]


LLVM = ("clang++-22", "ld.lld-22", "llvm-objdump-22")
INSTALL = "install -y --no-install-recommends clang-22 lld-22 llvm-22"
SKIPPED = "HIP kernels will not be compiled, and code objects read without counting instructions"


def apt_get(setup: Setup, script: str = "") -> Path:
    """Replace apt-get by a script that also writes down how it was called; where it does."""
    calls = setup.folder / "calls"
    setup.command("apt-get", f'echo "$@" >>{calls}\n{script}')
    return calls


def notes(said: list[str]) -> list[str]:
    """The notes among what the script says, but for that on the C compiler, which is nowhere here."""
    return [line for line in said if "note:" in line and "C compiler" not in line]


@pytest.mark.parametrize("place", ["bin", "rocm/llvm/bin"])
def test_llvm_that_is_here_is_left_alone(setup: Setup, place: str) -> None:
    """With LLVM 22, or with ROCm's, nothing is installed, and nothing is said of it."""
    setup.command("id", "echo 0")
    calls = apt_get(setup)
    (setup.folder / place).mkdir(parents=True, exist_ok=True)
    for tool in LLVM if place == "bin" else ("clang++",):
        setup.command(f"../{place}/{tool}", "")
    setup.without()
    said = setup.succeed()
    assert notes(said) == []
    assert not any("LLVM" in line for line in said)
    assert not calls.exists()


@pytest.mark.parametrize("here", [(), LLVM[:1], LLVM[1:]])
def test_root_installs_llvm(setup: Setup, here: tuple[str, ...]) -> None:
    """Where all or part of LLVM 22 is missing root installs it, without updating the lists, and says so."""
    setup.command("id", "echo 0")
    calls = apt_get(setup)
    for tool in here:
        setup.command(tool, "")
    setup.without(*(set(LLVM) - set(here)))
    said = setup.succeed()
    assert "setup: installing LLVM 22" in said
    assert notes(said) == []
    assert calls.read_text().splitlines() == [f"{INSTALL} -qq"]


def test_lists_are_updated_where_the_package_is_not_found(setup: Setup) -> None:
    """A container without package lists: the first attempt fails, the lists are fetched, the second succeeds."""
    setup.command("id", "echo 0")
    tried = setup.folder / "tried"
    calls = apt_get(setup, f'case "$1" in update) exit 0 ;; esac; [ -e {tried} ] || {{ : >{tried}; exit 100; }}')
    setup.without(*LLVM)
    assert notes(setup.succeed()) == []
    assert calls.read_text().splitlines() == [f"{INSTALL} -qq", "update -qq", f"{INSTALL} -qq"]


def test_user_is_told_how_llvm_is_installed(setup: Setup) -> None:
    """A user who is not root gets the exact command, and what is skipped without it; the setup goes on."""
    setup.command("id", "echo 1000")
    calls = apt_get(setup)
    setup.without(*LLVM)
    said = setup.succeed()
    assert notes(said) == [
        f"setup: note: there is no LLVM 22: {SKIPPED}. Run this as root: apt-get update && apt-get {INSTALL}"
    ]
    assert any(line.startswith("setup: ready: ") for line in said)
    assert not calls.exists()


@pytest.mark.parametrize("failing", ["install", "update"])
def test_llvm_that_cannot_be_installed_is_a_note(setup: Setup, failing: str) -> None:
    """Without network, or where the system has no such package, the setup goes on and says what will be skipped."""
    setup.command("id", "echo 0")
    script = f'case "$1" in {failing}|install) echo Reading; echo "E: $1: no clang-22" >&2; exit 100 ;; esac'
    apt_get(setup, script)
    setup.without(*LLVM)
    said = setup.succeed()
    assert notes(said) == [f"setup: note: LLVM 22 cannot be installed (E: {failing}: no clang-22): {SKIPPED}"]
    assert any(line.startswith("setup: ready: ") for line in said)


def test_a_system_without_apt_get_is_told(setup: Setup) -> None:
    """Where there is no apt-get, the note says so."""
    setup.without(*LLVM, "apt-get")
    assert notes(setup.succeed()) == [f"setup: note: there is no LLVM 22, and no apt-get to install it: {SKIPPED}"]


BROWSER_INSTALL = "install -y -qq --no-install-recommends chromium chromium-driver"


def without_browser(setup: Setup, **commands: str) -> list[str]:
    """What is said where there is LLVM, but no browser."""
    for name in BROWSER:
        (setup.folder / "bin" / name).unlink()
    for tool in LLVM:
        setup.command(tool, "exit 0")
    for name, script in commands.items():
        setup.command(name.replace("_", "-"), script)
    setup.without(*BROWSER)
    return setup.succeed()


def test_a_ci_machine_gets_a_browser(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI is set, root installs what the tests of the page need."""
    monkeypatch.setenv("CI", "true")
    said = without_browser(setup, id="echo 0", apt_get=f'[ "$*" = "{BROWSER_INSTALL}" ]')
    assert "setup: installing chromium chromium-driver" in said
    assert notes(said) == []


@pytest.mark.parametrize(("ci", "user"), [("", "0"), ("true", "1000")])
def test_nobody_else_finds_a_new_browser(setup: Setup, monkeypatch: pytest.MonkeyPatch, ci: str, user: str) -> None:
    """Without CI, or without root, it is said that tests will be skipped, and nothing is installed."""
    monkeypatch.setenv("CI", ci)
    said = without_browser(setup, id=f"echo {user}", apt_get="exit 7")
    assert notes(said) == [
        "setup: note: tests that need chromium chromium-driver will be skipped (Debian: apt-get install "
        "--no-install-recommends chromium chromium-driver)"
    ]


def test_a_browser_that_cannot_be_installed(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setup goes on, and says why not."""
    monkeypatch.setenv("CI", "true")
    said = without_browser(setup, id="echo 0", apt_get='echo "E: no network" >&2; exit 100')
    assert notes(said) == [
        "setup: note: chromium chromium-driver cannot be installed (E: no network): tests that need chromium "
        "chromium-driver will be skipped"
    ]

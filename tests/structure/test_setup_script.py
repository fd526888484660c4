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


class Setup:
    """A copy of the script, in a folder whose `bin` comes first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/setup", folder / ".ci/setup")
        (folder / "bin").mkdir()
        (folder / "modules").mkdir()

    def command(self, name: str, script: str) -> None:
        """Replace a command that the script calls."""
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def module(self, name: str, source: str) -> None:
        """Replace a module that the interpreter imports."""
        (self.folder / "modules" / f"{name}.py").write_text(source)

    def fail(self, python: str = BASE_PYTHON) -> str:
        """Run the script; what it says on stderr. It must fail, and must not have begun to make .venv."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "modules"),
            "PYTHON": python,
        }
        ran = subprocess.run(
            [self.folder / ".ci/setup"], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.returncode == 1
        assert not (self.folder / ".venv").exists()
        return ran.stderr


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

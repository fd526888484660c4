import sys
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.base_spec import BaseKind, parse_spec


def _executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_existing_directory_is_a_directory(tmp_path: Path) -> None:
    """A directory is taken before anything else, relative to the current folder."""
    (tmp_path / "base").mkdir()
    (tmp_path / "cwd").mkdir()
    spec = parse_spec("../base", tmp_path / "cwd")
    assert (spec.kind, spec.path, spec.text) == (BaseKind.DIR, tmp_path / "base", "../base")


def test_an_executable_python_is_an_interpreter(tmp_path: Path) -> None:
    """The path is absolute, and the link of a virtual environment is not followed."""
    target = _executable(tmp_path / "usr/python3.12")
    link = tmp_path / "venv/bin/python"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    spec = parse_spec("venv/bin/python", tmp_path)
    assert (spec.kind, spec.path) == (BaseKind.PYTHON, link)


def test_an_interpreter_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare `python3.99` means the one on PATH."""
    found = _executable(tmp_path / "bin/python3.99")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert parse_spec("python3.99", tmp_path).path == found


@pytest.mark.parametrize("text", ["docker run -i image attnperf worker", "docker run -i 'an image' x " + "a" * 5000])
def test_words_of_which_the_first_is_a_command_are_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A command is split as a shell does, however long it is."""
    _executable(tmp_path / "bin/docker")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    spec = parse_spec(text, tmp_path)
    assert spec.kind is BaseKind.COMMAND
    assert spec.argv[:3] == ("docker", "run", "-i")


def test_a_command_may_be_a_file(tmp_path: Path) -> None:
    """A script named by its path is made absolute, because workers start elsewhere."""
    script = _executable(tmp_path / "ci/in_container.sh")
    assert parse_spec("ci/in_container.sh attnperf worker", tmp_path).argv == (str(script), "attnperf", "worker")


@pytest.mark.parametrize("text", ["origin/main", "HEAD~3", "v1.2", "main...", "main@{2 days ago}", ":/a change", "~x"])
def test_everything_else_is_a_revision_and_says_why(tmp_path: Path, text: str) -> None:
    """A revision that no prefix forced carries the reason why it is none of the other three kinds."""
    spec = parse_spec(text, tmp_path)
    assert (spec.kind, spec.text) == (BaseKind.REV, text)
    assert [line.split(":")[0] for line in spec.tried] == ["no directory", "no interpreter", "no command"]


def test_a_prefix_forces_the_kind(tmp_path: Path) -> None:
    """A branch named like a folder, an interpreter by another name and a command of one word can be meant."""
    (tmp_path / "kernels").mkdir()
    pypy = _executable(tmp_path / "pypy")
    assert parse_spec("rev:kernels", tmp_path).kind is BaseKind.REV
    assert parse_spec("dir:kernels", tmp_path).path == tmp_path / "kernels"
    assert parse_spec("python:pypy", tmp_path).path == pypy
    assert parse_spec(f"command:{sys.executable}", tmp_path).argv == (sys.executable,)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (" ", "--attnperf-against is empty; name a revision"),
        ("dir:", "--attnperf-against=dir: names nothing"),
        ("dir:gone", r"--attnperf-against=dir:gone: no directory: .*gone does not exist; leave out the prefix 'dir'"),
        ("dir:file", "no directory: .*file is a file"),
        ("python:gone", "no interpreter: .*gone does not exist"),
        ("python:file", "no interpreter: .*file is not executable"),
        ("command:no-such-command -x", "no command: 'no-such-command' is not on PATH"),
        ("command:./gone -x", "no command: .*gone does not exist"),
        ("command:a 'b", "no command: No closing quotation"),
        ("command:''''", "no command: '' is not on PATH"),
    ],
)
def test_a_forced_kind_that_does_not_fit_is_an_error(tmp_path: Path, value: str, message: str) -> None:
    """The error names the value, what is wrong with it, and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        parse_spec(value, tmp_path)

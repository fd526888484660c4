from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.cli.command_files import list_names
from pytest_attnperf.cli.commands.completion import SHELLS, case_keys, find_completion, render_script
from pytest_attnperf.cli.program import main

KEY = {"suite": "prefill", "backend": "triton.flash", "workload": "prefill-b1-s64-h1-d16-f16", "label": ""}
LINE = "prefill/triton.flash/prefill-b1-s64-h1-d16-f16"
HOSTILE = ("$(touch pwned)", "`touch pwned`", "a;touch pwned", "a b", "\x1b[2J", "*")

TYPED = {
    "command": "attnperf rep",
    "option": "attnperf report --h",
    "choice": "attnperf report --color a",
    "folder": "attnperf report --report f",
    "file": "attnperf report f",
    "second file": "attnperf report file.json f",
    "case": "attnperf history pre",
    "any case": "attnperf history ''",
    "shell": "attnperf completion ''",
}
PROGRAM = """
source "$1"
attnperf() { "$PYTHON" -m pytest_attnperf.cli "$@"; }
while IFS= read -r line; do
  eval "COMP_WORDS=($line)"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
  _shtab_attnperf 2>/dev/null
  printf '%s\\n' "${COMPREPLY[*]}"
done
"""


def _results(path: Path, *keys: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cases": [{"key": key} for key in keys], "code": [{"key": {**KEY, "suite": "code"}}]}))
    return path


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    """What is printed for each shell."""
    return {shell: render_script(shell) for shell in SHELLS}


@pytest.fixture(scope="module")
def completed(scripts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], Path]:
    """What bash offers for each line of TYPED, in a folder with results in it, and that folder."""
    folder = tmp_path_factory.mktemp("completed")
    (folder / "folder").mkdir()
    (folder / "file.json").touch()
    _results(folder / ".attnperf" / "results.json", KEY, *({**KEY, "label": label} for label in HOSTILE))
    loaded = folder / "script.bash"
    loaded.write_text(scripts["bash"])
    ran = subprocess.run(
        ["bash", "-c", PROGRAM, "bash", str(loaded)],
        input="\n".join(TYPED.values()) + "\n",
        cwd=folder,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: line.split() for name, line in zip(TYPED, ran.stdout.splitlines(), strict=True)}, folder


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("command", {"report"}),
        ("option", {"--help", "--history", "--head-sha", "--head-repo"}),
        ("choice", {"auto", "always"}),
        ("folder", {"folder"}),
        ("file", {"file.json", "folder"}),
        ("second file", {"file.json", "folder"}),
        ("case", {LINE}),
        ("shell", set(SHELLS)),
    ],
)
def test_bash_completes(completed: tuple[dict[str, list[str]], Path], typed: str, offered: set[str]) -> None:
    """In a real bash: commands, options, choices, folders where a folder is wanted, files, and keys of cases."""
    assert set(completed[0][typed]) == offered


def test_a_hostile_key_is_not_run(completed: tuple[dict[str, list[str]], Path]) -> None:
    """Keys that a shell would expand are not offered, and nothing in them runs."""
    offered, folder = completed
    assert sorted(offered["any case"]) == [f"code/{LINE.partition('/')[2]}", LINE]
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_knows_every_command(scripts: dict[str, str], shell: str) -> None:
    """Scripts for all shells that are named hold all commands, and ask for case keys only when Tab is pressed."""
    assert [name for name in list_names() if name not in scripts[shell]] == []
    assert "attnperf completion --cases" in scripts[shell]
    if shell == "zsh":
        assert "_attnperf_cases() {" in scripts[shell]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_has_the_shell_s_syntax(scripts: dict[str, str], shell: str) -> None:
    """Each shell reads its script without complaint."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    ran = subprocess.run([shell, "-n"], input=scripts[shell], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_keys_of_another_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf completion --cases --results FILE` prints them sorted, a line each."""
    path = _results(tmp_path / "r" / "results.json", KEY, {**KEY, "label": "tuned"}, KEY)
    assert main(["completion", "--cases", "--results", str(path)]) == 0
    code = f"code/{LINE.partition('/')[2]}"
    assert capsys.readouterr().out.splitlines() == [code, LINE, f"{LINE}/tuned"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"cases": 7}', '{"cases": [7, {"key": 7}, {"key": {"suite": []}}]}', "[" * 100_000]
)
def test_a_file_of_something_else_has_no_keys(tmp_path: Path, text: str) -> None:
    """Nobody is told so while typing."""
    path = tmp_path / "results.json"
    path.write_text(text)
    assert case_keys(path) == []
    assert case_keys(tmp_path / "absent.json") == []


def test_shtab_may_be_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Then one line says what to install."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "which is not installed: pip install 'pytest-attnperf[completion]'" in capsys.readouterr().err


def test_no_shell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The shells that there are are listed."""
    assert main(["completion"]) == 2
    assert "no shell is given; name one of bash, zsh, tcsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"type": Path, "metavar": "RESULTS"}, "file"),
        ({"type": Path, "metavar": "DIR"}, "folder"),
        ({"type": Path, "metavar": "FILE|DIR"}, "file"),
        ({"metavar": "FILE"}, "file"),
        ({"metavar": "CASE"}, "case"),
        ({"metavar": "WHAT"}, "case"),
        ({"metavar": "N", "type": int}, None),
        ({"action": "store_true"}, None),
        ({"choices": ("a", "b")}, None),
    ],
)
def test_what_completes_an_argument(declared: dict[str, object], kind: str | None) -> None:
    """Its type and what stands for its value in the usage say so."""
    action = argparse.ArgumentParser().add_argument("--x", **declared)  # type: ignore[arg-type]
    assert find_completion(action) == kind


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By the parser, which lists those that are known."""
    with pytest.raises(SystemExit):
        main(["completion", "cmd"])
    assert "invalid choice: 'cmd'" in capsys.readouterr().err

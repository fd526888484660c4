"""Commands in printed text: found as a reader sees them, and typed in the project that printed them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands import bisect as bisect_command
from pytest_attnperf.cli.program import main
from pytest_attnperf.testing.project import FakeProject

PROGRAMS = r"(?:pytest (?=-|\"|'|[\w./]+::|suites/|perf/)|attnperf (?=[a-z])|git (?=add|fetch|rm|commit|diff|init))"
WHOLE_LINE = re.compile(rf"\s*(?:commit it: |\$ )?({PROGRAMS}.*)")
IN_TEXT = re.compile(rf"(?:: |`|\(|; |, or |[a-z] by )({PROGRAMS})")
ENDS = re.compile(r"`|; | \(|\)$|\), |, (?=or |then |which |and )|\.$| says | shows | prints |$")
ALLOWED = {
    "pytest --update-baselines": {0},
    "pytest": {0, 1},
    "attnperf bisect": {0, 1},
    "attnperf compare": {0},
    "attnperf explain": {0, 1},
    "attnperf report": {0, 1},
    "attnperf gate": {0, 1},
    "attnperf doctor": {0, 1},
    "attnperf": {0},
    "git": {0},
}
"""Exit statuses by the beginning of a command: the longest that fits counts. 2 and 4 are for what cannot be typed."""

READS_ONLY = ("pytest", "attnperf explain", "attnperf report", "attnperf doctor", "git")
"""Beginnings of commands after which nothing is typed that they print: situations of their own do that."""


@dataclass(frozen=True)
class Answer:
    """What a typed command came to."""

    command: str
    status: int
    text: str

    @property
    def is_allowed(self) -> bool:
        """Whether the exit status is one that the command's purpose has."""
        begin = max((begin for begin in ALLOWED if self.command.startswith(begin)), key=len)
        return self.status in ALLOWED[begin]


def find_commands(text: str) -> list[tuple[str, ...]]:
    """Every command of the text, those that belong together in their order: lines without words between them."""
    found: list[tuple[str, ...]] = []
    text = re.sub(r"\\([\[\]*_<>|`])", r"\1", text)  # as Markdown shows it
    before_was_one = False
    for line in text.splitlines():
        whole = WHOLE_LINE.fullmatch(line)
        if whole is None:
            found += [(_cut(line[match.start(1) :]),) for match in IN_TEXT.finditer(line)]
        elif before_was_one:
            found[-1] += (_cut(whole[1]),)
        else:
            found.append((_cut(whole[1]),))
        before_was_one = whole is not None
    return list(dict.fromkeys(found))


def _cut(text: str) -> str:
    """The text up to where words follow the command. Within quotes nothing ends."""
    outside = re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: "x" * len(quoted[0]), text)
    end = ENDS.search(outside)
    return text[: end.start() if end else None].strip()


def run_attnperf(project: FakeProject, *words: str) -> tuple[int, str]:
    """The exit status and the output of `attnperf WORDS`, typed in the project's folder."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.path)
        patch.setenv("COLUMNS", "80")
        try:
            status = main(list(words))
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, said.getvalue()


@dataclass
class Shell:
    """Types commands in a project, each time in the state that it was in when it was photographed."""

    project: FakeProject
    photograph: Path
    typed: list[Answer] = field(default_factory=list)

    def keep_state(self) -> None:
        """Takes the picture of the project that `restore_state` brings back."""
        shutil.rmtree(self.photograph, ignore_errors=True)
        shutil.copytree(self.project.path, self.photograph, symlinks=True)

    def restore_state(self) -> None:
        """Brings every file back."""
        for path in self.project.path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self.photograph, self.project.path, symlinks=True, dirs_exist_ok=True)

    def type(self, command: str) -> Answer:
        """Types a command, as a shell would read it, and returns what it came to."""
        text, status = "", 0
        for words in _split_chain(command):
            status, said = self._run(words)
            text += said
            if status:
                break
        self.typed.append(Answer(command, status, text))
        return self.typed[-1]

    def type_all(self, text: str) -> None:
        """Types every command of a text once, those that belong together in their order, in the state that was kept.
        The command of the run itself is no advice, and is left out."""
        done = set[tuple[str, ...]]()
        for group in find_commands(text):
            words = tuple(word for command in group for word in shlex.split(command))
            own = any(word.startswith("--basetemp=") for word in words) and "--update-baselines" not in words
            if words in done or own:
                continue
            done.add(words)
            self.restore_state()
            for command in group:
                self.type_with_what_follows(command)

    def type_with_what_follows(self, command: str) -> None:
        """Types a command and, where it changed something, what it prints to be typed next."""
        answer = self.type(command)
        if answer.is_allowed and not command.startswith(READS_ONLY):
            for group in find_commands(answer.text):
                for one in group:
                    self.type(one)

    def _run(self, words: Sequence[str]) -> tuple[int, str]:
        if words[0] == "pytest":
            return self._run_pytest(words[1:])
        if words[0] == "attnperf":
            return self._run_attnperf(words[1:])
        done = subprocess.run(words, cwd=self.project.path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def _run_pytest(self, words: Sequence[str]) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            result = self.project.pytester.runpytest_subprocess("-p", "no:randomly", *words)
        return int(result.ret), f"{result.stdout}\n{result.stderr}"

    def _run_attnperf(self, words: Sequence[str]) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bisect_command, "execute", self._run_in_bisect)
            return run_attnperf(self.project, *words)

    def _run_in_bisect(self, command: Sequence[str], log: Path) -> int:
        status, text = self._run_pytest(command[3:])
        log.write_text(text)
        return status


def _split_chain(command: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        parts[-1].append(word) if word != "&&" else parts.append([])
    return parts

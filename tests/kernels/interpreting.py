"""A process under Triton's interpreter, which stays, and what it finds of cases, each when it is asked for."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = 300

Interpret = Callable[[str, Sequence[str]], Mapping[str, Any]]


class Interpreted(Mapping[str, Any]):
    """What is found of each case, by case; computed when it is first asked for, so that tests left out cost nothing."""

    def __init__(self, run: Callable[[str], Any], cases: Sequence[str]) -> None:
        self._run = run
        self._cases = tuple(cases)
        self._found: dict[str, Any] = {}

    def __getitem__(self, case: str) -> Any:
        if case not in self._cases:
            raise KeyError(case)
        if case not in self._found:
            self._found[case] = self._run(case)
        return self._found[case]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cases)

    def __len__(self) -> int:
        return len(self._cases)


@contextmanager
def interpreting(folder: Path) -> Iterator[Interpret]:
    """`interpret(module, cases)` while the process lives (see `run_interpreted`); its files lie in the folder."""
    import torch

    command = [sys.executable, str(Path(__file__).with_name("run_interpreted.py"))]
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    with (
        (folder / "log").open("w") as log,
        Popen(command, env=env, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=log, text=True, bufsize=1) as process,
    ):

        def run(module: str, case: str) -> Any:
            saved = folder / "found.pt"
            problem = _asked(process, json.dumps([module, str(saved), case]))
            assert problem is None, f"{problem}\n{(folder / 'log').read_text()}"
            return torch.load(saved)

        yield lambda module, cases: Interpreted(partial(run, module), cases)
        process.kill()


def _asked(process: Popen[str], line: str) -> str | None:
    """What the process answers to a line: None, or what went wrong."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line + "\n")
    if not select.select([process.stdout], [], [], LIMIT_S)[0]:
        process.kill()
        return f"no answer within {LIMIT_S} s"
    answer = process.stdout.readline()
    said: str | None = json.loads(answer) if answer else "the process ended"
    return said

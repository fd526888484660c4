"""Commands that have another name since 0.2. Each says its new name on standard error, and does what it did.

They go in 0.3: delete this file, its two lines in program.py, and the hidden options (`add_old_spelling`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_attnperf.errors import UsageError


class NewName(NamedTuple):
    """What an old name is now.

    before, behind   words around the given ones
    renamed          options by their old spelling; a value that they did not have follows a space
    first            options whose values, up to the next option, become the arguments
    needed           an option without which the old command ended
    """

    before: str
    behind: str = ""
    renamed: Mapping[str, str] = {}
    first: str = ""
    needed: str = ""


OLD_NAMES = {
    "stages": NewName("report", "--by stage", {"--markdown": "--markdown -"}),
    "ladder": NewName(
        "report", "--by step", {"--markdown": "--markdown -", "--base": "--over", "--against": "--relative-to"}
    ),
    "merge": NewName("report", "", {"--html": "--report"}, needed="--out"),
    "comment": NewName("report", "--comment", {"--markdown": "--comment-text"}, first="--results"),
    "accept": NewName("baselines accept", "", {"--from": "--results"}),
    "merge-baselines": NewName("baselines merge"),
    "calibrate-device": NewName("doctor --calibrate", "", {"--json": "--json -", "--out": "--baselines"}),
    "run-kernel": NewName("kernel run", "", {"--suite": "--tests"}),
    "build-kernels": NewName("kernel build", "", {"--suite": "--tests"}),
    "warm": NewName("pytest --attnperf-warm"),
}
"""Old name -> what it is now."""


def run_old_name(words: Sequence[str], name: str, run: Callable[[list[str]], int]) -> int:
    """Prints what the command `name` of the typed words is now, runs that, and returns its exit status. Raises
    UsageError without an option that it needs."""
    new = OLD_NAMES[name]
    given = list(words)
    given.remove(name)
    typed = f"{new.before} --out FILE" if new.needed else " ".join(filter(None, (new.before, new.behind)))
    shown = typed if name == "warm" else f"attnperf {typed}"
    sys.stderr.write(f"attnperf {name} is now {shown}; the old name goes in 0.3\n")
    sys.stderr.flush()
    if name == "warm":
        return _warm(given)
    if new.needed and not {"-h", "--help"} & set(given) and not any(_is_option(word, new.needed) for word in given):
        raise UsageError(f"attnperf {name} needs {new.needed} FILE; give it, as {shown}")
    return run(translate(new, given))


def translate(new: NewName, given: Sequence[str]) -> list[str]:
    """Returns the words of the new command: options by their new names, and arguments before all options."""
    arguments, options, collecting = [], [], False
    for word in given:
        flag, equals, value = word.partition("=")
        if flag.startswith("-"):
            collecting = bool(new.first) and flag == new.first
        if collecting:
            arguments += [value] if equals else [] if word == new.first else [word]
        elif flag in new.renamed:
            replaced = new.renamed[flag]
            options += [f"{replaced}={value}"] if equals else replaced.split()
        else:
            options.append(word)
    return [*new.before.split(), *arguments, *options, *new.behind.split()]


def _is_option(word: str, flag: str) -> bool:
    return word == flag or word.startswith(f"{flag}=")


def _warm(given: Sequence[str]) -> int:
    """Runs `pytest --attnperf-warm` with the given words, in suites/ if they name no path and it exists. Returns
    pytest's exit status."""
    named = any(not word.startswith("-") and Path(word.partition("::")[0]).exists() for word in given)
    start = [] if named or not Path("suites").is_dir() else ["suites"]
    return subprocess.call([sys.executable, "-m", "pytest", "--attnperf-warm", *given, *start])

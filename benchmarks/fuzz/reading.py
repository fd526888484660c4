"""What a reader is to the fuzzer: sound files, a way to damage them, and the functions that read them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzz.guard import console
from benchmarks.fuzz.mutations import Mutation

Read = Callable[[Path, Path], object]
"""(the damaged file, a folder of its own that may be written to)"""


@dataclass(frozen=True)
class Reader:
    """One kind of file. share: how many of the files it gets, in proportion; reads: each gets some of them."""

    name: str
    file: str
    sound: Sequence[bytes]
    damage: Mutation
    reads: Sequence[Read]
    share: float = 1.0


def command(*words: str) -> Read:
    """A command line; {file} is the damaged file, {folder} a folder for what is written, {beside} a sound one's."""

    def typed(file: Path, folder: Path) -> None:
        from pytest_attnperf.cli.program import main as cli

        places = {"file": str(file), "folder": str(folder), "beside": str(folder.parent / "beside")}
        console(lambda: cli([word.format(**places) for word in words]))

    return typed


def damaged(reader: Reader, rng: random.Random) -> bytes:
    """One damaged file."""
    return reader.damage(rng, rng.choice(reader.sound), rng.choice(reader.sound))

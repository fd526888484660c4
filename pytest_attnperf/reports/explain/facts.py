"""What an explanation is made of, beside the case: figures that were made again, and what would decide it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.results import CaseResult, RunResult


@dataclass(frozen=True)
class DecisionOption:
    """One way to decide what is not decided: what is measured, its wall seconds (None: not known), its commands."""

    what: str
    seconds: float | None
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The baseline entry that a case was held to, as its folder has it: what differs from it, in words.

    other   why the entry that is there now says nothing of this case; everything else is then empty
    """

    where: str
    other: str = ""
    launches: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    canary: str = ""
    noise: str = ""


@dataclass(frozen=True)
class Facts:
    """Figures of one case that were made again from its samples; None where they cannot be.

    source        file that it was read from, as it was typed
    cases         that the run shares its false-alarm rate among
    tolerated     ratio up to which the policy calls it SAME
    relative_sd   of one process, or one pair
    z             quantile of the noise; `share` of the false-alarm rate that it stands for
    contradicted  what the file says and its samples do not
    options       what would decide it, and `undecidable` why something that is asked for first would not
    counted       what the numbers of processes and pairs in `options` rest on
    """

    source: str = ".attnperf/results.json"
    cases: int = 1
    tolerated: float | None = None
    relative_sd: float | None = None
    z: float | None = None
    share: float | None = None
    contradicted: tuple[str, ...] = ()
    options: tuple[DecisionOption, ...] = ()
    undecidable: str = ""
    counted: str = ""
    stored: Stored | None = None


@dataclass(frozen=True)
class Told:
    """A case, the run it is of, and what was made of it again."""

    case: CaseResult
    run: RunResult
    facts: Facts


@dataclass(frozen=True)
class NextStep:
    """Something to do next: why, and the command, '' where there is none."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class Words:
    """An explanation in plain words: sentences, each whole, and what to do next, most useful first."""

    sentences: tuple[str, ...]
    steps: tuple[NextStep, ...]

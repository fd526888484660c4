"""Data that an explanation uses beside the case: recomputed figures, and what would decide the case."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.results import CaseResult, RunResult


@dataclass(frozen=True)
class DecisionOption:
    """One way to decide an open case: what to measure, its wall time in seconds (None: not known), its commands."""

    what: str
    seconds: float | None
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The baseline entry that a case was compared with, if its folder still has it, and what differs from it, in words.

    other      why the entry that is there now does not apply to this case; everything else is then empty
    source_id  of the sources that it was measured with, see `workers.source_tree`; '' where that is not known
    """

    where: str
    other: str = ""
    launches: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    canary: str = ""
    noise: str = ""
    source_id: str = ""


@dataclass(frozen=True)
class TypingPlace:
    """What the folder has in which the commands of an explanation are typed.

    base         revision that pairs are measured against, '' if no known one exists here
    good, bad    commits of the baseline and of the run, '' unless `bad` comes after `good` here
    dirty        the run's tree had uncommitted changes, and the folder has them still
    same_commit  the baseline and the run are of one commit
    untraced     the commit that the baseline names does not have the code that it was measured with
    baselines    folder of the entry that the case was compared with, '' for the usual one
    history      there is a store of earlier runs
    author       git knows who accepts a change
    """

    base: str = ""
    good: str = ""
    bad: str = ""
    dirty: bool = False
    same_commit: bool = False
    untraced: bool = False
    baselines: str = ""
    history: bool = False
    author: bool = True


@dataclass(frozen=True)
class Facts:
    """Figures of one case that were recomputed from its samples; None if they cannot be.

    source        file that the case was read from, as it was typed
    cases         number of cases that share the run's false-alarm rate
    tolerated     ratio up to which the policy calls it SAME
    relative_sd   relative standard deviation of one process, or of one pair
    z             quantile of the noise; `share` is the part of the false-alarm rate that it stands for
    contradicted  statements in the file that its samples contradict
    options       what would decide the case; `undecidable` says why the first choice would not
    counted       assumptions behind the numbers of processes and pairs in `options`
    here          on which it depends which commands can be typed
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
    here: TypingPlace = TypingPlace()


@dataclass(frozen=True)
class Told:
    """A case, its run, and its recomputed facts."""

    case: CaseResult
    run: RunResult
    facts: Facts


@dataclass(frozen=True)
class NextStep:
    """Something to do next: the reason, and the command, '' if there is none."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class Words:
    """An explanation in plain words: whole sentences, and next steps, the most useful first."""

    sentences: tuple[str, ...]
    steps: tuple[NextStep, ...]

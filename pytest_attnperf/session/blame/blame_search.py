"""Runs the searches of several cases side by side: what several ask for is measured once, by one pytest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.session.blame.blame_result import BlameSettings, CaseBlame
from pytest_attnperf.session.blame.case_search import FIRST_PAIRS, Answer, CaseSearch, NoRatio, Question
from pytest_attnperf.session.blame.effects import OLD

MeasureCases = Callable[[Question, Sequence[str]], Mapping[str, Answer]]
"""Takes (question, node ids) and returns an answer for each; a case that it leaves out has none."""


@dataclass
class BlameSearch:
    """Searches several cases; call `run` once. `results` holds the cases that have ended, also after Ctrl-C.

    first         answers to `first_question`, OLD against the whole new environment, by node id
    components    what may be swapped, the most likely ones first
    seen          called before each measurement, with its question and the number of its cases
    """

    first: Mapping[str, Answer]
    components: Sequence[str]
    measure: MeasureCases
    settings: BlameSettings = field(default_factory=BlameSettings)
    seen: Callable[[Question, int], None] = lambda question, cases: None
    results: dict[str, CaseBlame] = field(default_factory=dict)
    measured: int = 1
    """Number of runs of pytest, with the first one."""

    def run(self) -> dict[str, CaseBlame]:
        """Searches all cases to their ends and returns the results by node id, in the order of `first`."""
        running: dict[str, Generator[Question, Answer, CaseBlame]] = {}
        wanted: dict[str, Question] = {}

        def go_on(nodeid: str, answer: Answer | None) -> None:
            search = running[nodeid]
            try:
                wanted[nodeid] = next(search) if answer is None else search.send(answer)
            except StopIteration as ended:
                wanted.pop(nodeid, None)
                self.results[nodeid] = ended.value

        for nodeid in self.first:
            running[nodeid] = CaseSearch(nodeid, self.components, self.settings).run()
            go_on(nodeid, None)
        for nodeid, answer in self.first.items():
            go_on(nodeid, answer)
        while wanted:
            question, cases = _choose_question(wanted)
            self.seen(question, len(cases))
            answers = self.measure(question, cases)
            self.measured += bool(question.pairs)
            for nodeid in cases:
                go_on(nodeid, answers.get(nodeid, NoRatio("the case was not run")))
        return {nodeid: self.results[nodeid] for nodeid in self.first}


def first_question(components: Sequence[str], settings: BlameSettings) -> Question:
    """Returns the question that `BlameSearch.first` answers."""
    return Question(OLD, frozenset(components), min(FIRST_PAIRS, settings.pairs_max))


def _choose_question(wanted: Mapping[str, Question]) -> tuple[Question, list[str]]:
    """Returns the pair of environments that most cases want, with the most pairs that any of them misses, and these
    cases."""
    counts = Counter((question.base, question.candidate, bool(question.pairs)) for question in wanted.values())
    (base, candidate, measures), _ = counts.most_common(1)[0]
    cases = [
        nodeid
        for nodeid, question in wanted.items()
        if (question.base, question.candidate, bool(question.pairs)) == (base, candidate, measures)
    ]
    return Question(base, candidate, max(wanted[nodeid].pairs for nodeid in cases)), cases

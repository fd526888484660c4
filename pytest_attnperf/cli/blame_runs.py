"""Measures for `attnperf blame`: each question is a pytest over the cases that wait for it, interleaved."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_attnperf.cli.pytest_runs import Execute, describe_no_ratio, describe_no_results, execute
from pytest_attnperf.plugin import imported_modules
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.session.blame.case_search import Answer, NoRatio, Question
from pytest_attnperf.workers.environments.components import REST
from pytest_attnperf.workers.environments.installed import InstalledPackage
from pytest_attnperf.workers.environments.mixing import Mixer, is_same_interpreter, read_imported

NO_TIME = (Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED)
"""Verdicts whose times are not used. INCOMPARABLE is none: another path of a dispatcher may be what is looked for."""


REASON_LENGTH = 300
"""Most characters of why an environment does not start."""


@dataclass
class BlameRuns:
    """Measures questions.

    nodeids    what the user selected, for the first question; later ones name their cases
    options    passed to pytest as they are
    folder     for results and logs
    """

    mixer: Mixer
    nodeids: Sequence[str]
    folder: Path
    options: Sequence[str] = ()
    execute: Execute = field(default_factory=lambda: execute)
    imports: tuple[str, ...] = ()
    _started: dict[frozenset[str], str] = field(default_factory=dict)
    _runs: int = 0

    def measure_ends(self, question: Question) -> tuple[dict[str, Answer], str]:
        """Measures all selected cases in both whole environments. Returns their answers by node id, and why there are
        none, else ''. Then `list_imported` knows what the workers imported."""
        return self._run_pytest(question, self.nodeids, notes_imports=True)

    def list_imported(self) -> frozenset[str]:
        """Returns the modules that the workers of `measure_ends` imported, of both environments; none if unknown."""
        return frozenset().union(*(read_imported(self._imported_folder(side)) for side in ("old", "new")))

    def measure_cases(self, question: Question, cases: Sequence[str]) -> Mapping[str, Answer]:
        """Answers a question for some cases. An environment is first started once, without pytest."""
        for mixture in (question.base, question.candidate):
            if reason := self._start_once(mixture):
                return dict.fromkeys(cases, NoRatio(reason))
        if not question.pairs:
            return dict.fromkeys(cases, ())
        answers, why = self._run_pytest(question, cases)
        return {case: answers.get(case, NoRatio(why or "the case was not run")) for case in cases}

    def _start_once(self, mixture: frozenset[str]) -> str:
        if not mixture or len(mixture) == len(self.mixer.parts):
            return ""
        if mixture not in self._started:
            self._started[mixture] = one_line(self.mixer.find_start_problem(mixture, self.imports), REASON_LENGTH)
        return self._started[mixture]

    def _run_pytest(
        self, question: Question, nodeids: Sequence[str], *, notes_imports: bool = False
    ) -> tuple[dict[str, Answer], str]:
        from pytest_attnperf.reports.files import json_results

        self._runs += 1
        results, log = self.folder / f"{self._runs}.json", self.folder / f"{self._runs}.log"
        command = self.build_command(question, nodeids, results, notes_imports=notes_imports)
        status = self.execute(command, log)
        if not results.exists():
            return {}, describe_no_results(status, log)
        answers: dict[str, Answer] = {}
        for case in json_results.read(results).cases:
            has_time = case.verdict not in NO_TIME and case.pairs
            answers[case.nodeid] = case.pairs if has_time else NoRatio(describe_no_ratio(case))
        return answers, "" if answers else "pytest selected no case"

    def build_command(
        self, question: Question, nodeids: Sequence[str], results: Path, *, notes_imports: bool = False
    ) -> list[str]:
        """Returns the pytest command that answers a question. The user's options come first, so that ours override
        them."""
        base, candidate = (
            self.mixer.worker_command(mixture, self._imported_folder(side) if notes_imports else None)
            for mixture, side in ((question.base, "old"), (question.candidate, "new"))
        )
        return [
            *(sys.executable, "-m", "pytest", *nodeids, *self.options),
            *(("-p", imported_modules.__name__) if notes_imports else ()),
            "--attnperf",
            "--attnperf-interleave=all",
            f"--attnperf-against=command:{base}",
            f"--attnperf-candidate=command:{candidate}",
            f"--attnperf-pairs={question.pairs}",
            f"--attnperf-results={results}",
            "--no-attnperf-strict",
        ]

    def _imported_folder(self, side: str) -> Path:
        return self.folder / "imported" / side


def choose_parts(mixer: Mixer, imported: frozenset[str] | None = None) -> tuple[str, ...]:
    """Returns what is swapped by itself: components that can be and, if `imported` is known, were used, libraries, and
    REST if there may be anything in it."""
    swapped = [one.name for one in mixer.components if not one.fixed and (not imported or one.is_used(imported))]
    has_rest = len(swapped) < len(mixer.components) or not is_same_interpreter(mixer.old, mixer.new)
    return (*swapped, *(library.name for library in mixer.libraries), *((REST,) if has_rest else ()))


def list_imports(mixer: Mixer, imported: frozenset[str]) -> tuple[str, ...]:
    """Returns the modules that a mixed environment must be able to import: those of swapped components that a worker
    imported."""
    modules = [name for one in mixer.components if one.name in mixer.parts for name in sorted(one.modules & imported)]
    return tuple(dict.fromkeys(modules))


def describe_versions(mixer: Mixer) -> dict[str, str]:
    """Returns 'old -> new' for each component, library and REST, with how many other distributions move with it."""
    found = {}
    for one in mixer.components:
        before, after = (_version(side.get(one.name)) for side in (one.old, one.new))
        change = f"{before}, other files" if before == after else f"{before} -> {after}"
        others = len(one.old.keys() | one.new.keys()) - 1
        found[one.name] = f"{change} (and {others} with it)" if others else change
    found |= {library.name: f"{library.old} -> {library.new}" for library in mixer.libraries}
    if mixer.old.python != mixer.new.python:
        found[REST] = f"python {mixer.old.python} -> {mixer.new.python}"
    return found


def _version(package: InstalledPackage | None) -> str:
    return "none" if package is None else package.version or "unknown"

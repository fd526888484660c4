"""Runs probes in parallel with time limits. A probe that raises, hangs or answers wrongly gives an UNKNOWN finding."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_attnperf import __version__
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Probe, Status, Surroundings

TEXT_LIMIT = 400
DETAILS_LIMIT = 40

ASK = "the other lines are still valid; run: attnperf doctor --bundle FILE.zip, and attach the file to a bug report"
TOO_SLOW = "run attnperf doctor again when the machine is idle; if it hangs again, the part that it checks hangs too"

TIMER = "timer"
"""Name of the finding whose value begins with the timer that cases use."""

SCHEMA = 1
"""Version of the JSON report. It changes if a field is renamed or removed, not if one is added."""


@dataclass(frozen=True)
class Examined:
    """The findings of one probe, and the seconds it took."""

    probe: str
    title: str
    findings: tuple[DoctorFinding, ...]
    seconds: float


@dataclass(frozen=True)
class DoctorReport:
    """Results of all probes in their order. `not_run` names those that need a GPU, if there is none."""

    examined: tuple[Examined, ...]
    seconds: float
    not_run: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[DoctorFinding, ...]:
        """Findings of all probes, in their order."""
        return tuple(finding for each in self.examined for finding in each.findings)

    @property
    def counts(self) -> dict[str, int]:
        """Number of findings by status, for all five statuses."""
        return {status.value: sum(each.status is status for each in self.findings) for status in Status}

    @property
    def timer(self) -> str:
        """Name of the timer that will time cases: 'graph', 'event', 'profiler' or 'host'; 'none' if none works, 'not
        known' if no probe found out."""
        found = next((each for each in self.findings if each.name == TIMER and each.status is not Status.UNKNOWN), None)
        word = re.match(r"\w+", found.value) if found else None
        return word[0] if word else "not known"


@dataclass
class _Running:
    """A probe in a daemon thread. A thread cannot be killed, but the doctor does not wait for a daemon when it ends."""

    probe: Probe
    surroundings: Surroundings
    started_s: float = 0.0
    ended_s: float = 0.0
    answer: object = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Starts the probe in a daemon thread and returns; its time limit counts from here."""
        self.started_s = time.monotonic()
        threading.Thread(target=self._run_probe, daemon=True, name=f"doctor-{self.probe.name}").start()

    def _run_probe(self) -> None:
        try:
            self.answer = self.probe.run(self.surroundings)
        except BaseException as error:  # a probed package may even call sys.exit
            self.error = error
        self.ended_s = time.monotonic()
        self.done.set()

    def wait_for_answer(self) -> Examined:
        """Waits for the probe until its time limit and returns its findings. If it is too slow, raised, or answered
        something invalid, this is one UNKNOWN finding."""
        is_done = self.done.wait(max(0.0, self.started_s + self.probe.limit_s - time.monotonic()))
        ended_s = self.ended_s if is_done else time.monotonic()
        findings = self._read_answer() if is_done else (_too_slow(self.probe),)
        return Examined(self.probe.name, self.probe.title, findings, ended_s - self.started_s)

    def _read_answer(self) -> tuple[DoctorFinding, ...]:
        name = self.probe.name
        if self.error is not None:
            said = f"{type(self.error).__name__}: {_format_error(self.error)}"
            return (_unknown_finding(name, f"could not be checked ({said})", ASK),)
        try:
            return clean_answer(self.answer)
        except Exception as error:  # a user-defined sequence may raise anything when it is read
            return (_unknown_finding(name, f"the probe's answer is invalid ({_format_error(error)})", ASK),)


def run_probes(probes: Sequence[Probe], surroundings: Surroundings) -> DoctorReport:
    """Runs probes in parallel and returns their report. On a GPU, probes with `first` run alone before the others,
    because they list its processes; those with `alone` run alone after them, because they time.

    No probe takes longer than its limit; those with the longest limit start first. Without a GPU, probes that need one
    are left out. Errors in a probe do not raise here."""
    started_s = time.monotonic()
    chosen = [probe for probe in probes if surroundings.has_gpu or not probe.needs_gpu]
    left_out = tuple(probe.name for probe in probes if probe not in chosen)
    running = [_Running(probe, surroundings) for probe in chosen]
    on_gpu = surroundings.has_gpu
    first = [each for each in running if each.probe.first and on_gpu]
    alone = [each for each in running if each.probe.alone and on_gpu]
    together = sorted(
        (each for each in running if not (on_gpu and (each.probe.first or each.probe.alone))),
        key=lambda each: -each.probe.limit_s,
    )
    found: dict[str, Examined] = {}
    for batch in (*([each] for each in first), together, *([each] for each in alone)):
        for each in batch:
            each.start()
        for each in batch:
            found[each.probe.name] = each.wait_for_answer()
    examined = tuple(found[probe.name] for probe in chosen)
    return DoctorReport(examined, time.monotonic() - started_s, left_out)


def clean_answer(answer: object) -> tuple[DoctorFinding, ...]:
    """Returns the findings that a probe answered, each text on one line without control characters. Raises TypeError or
    ValueError if the answer is no sequence of findings."""
    if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes)):
        raise TypeError(f"the probe returned a {type(answer).__name__}, not a list of findings")
    return tuple(_clean_finding(each) for each in answer)


def _clean_finding(finding: object) -> DoctorFinding:
    if not isinstance(finding, DoctorFinding):
        raise TypeError(f"a {type(finding).__name__} is no finding")
    texts: dict[str, object] = {
        "name": finding.name, "value": finding.value, "meaning": finding.meaning, "fix": finding.fix
    }  # fmt: skip
    wrong = next((name for name, text in texts.items() if not isinstance(text, str)), "")
    if wrong or not isinstance(finding.status, Status) or not finding.name:
        raise ValueError(f"a finding's {wrong or 'status or name'} is no text, no Status, or empty")
    return replace(
        finding,
        name=_clean_text(finding.name),
        value=_clean_text(finding.value),
        meaning=_clean_text(finding.meaning),
        fix=_clean_text(finding.fix),
        details=tuple(_clean_text(str(line)) for line in finding.details[:DETAILS_LIMIT]),
    )


def _clean_text(text: str) -> str:
    """Returns one printable line of at most TEXT_LIMIT characters: names of devices or variables may hold anything."""
    line = "".join(c if c.isprintable() else " " for c in text)
    if len(line) <= TEXT_LIMIT:
        return line
    kept = line[: TEXT_LIMIT - 3]
    return f"{kept.rpartition(' ')[0] or kept}..."  # redaction would miss half a name or token


def _format_error(error: BaseException) -> str:
    """Returns the first line of an exception's text, a substitute if its __str__ raises or gives none."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        return "an error that cannot be printed"
    return lines[0] if lines else "no text"


def _too_slow(probe: Probe) -> DoctorFinding:
    return _unknown_finding(probe.name, f"did not answer in {probe.limit_s:g} s (time-out)", TOO_SLOW)


def _unknown_finding(name: str, value: str, fix: str) -> DoctorFinding:
    return DoctorFinding(name, Status.UNKNOWN, _clean_text(value), "its state is not known", fix)


def report_json(report: DoctorReport) -> dict[str, Any]:
    """Returns the report as a dict for JSON: version, timer, number of findings by status, probes that did not run, the
    findings, and seconds by probe."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "seconds": round(report.seconds, 3),
        "timer": report.timer,
        "counts": report.counts,
        "not_run": list(report.not_run),
        "findings": [
            {
                "probe": examined.probe,
                "group": examined.title,
                "name": finding.name,
                "status": finding.status.value,
                "value": finding.value,
                "meaning": finding.meaning,
                "fix": finding.fix,
                "details": list(finding.details),
            }
            for examined in report.examined
            for finding in examined.findings
        ],
        "probe_seconds": {examined.probe: round(examined.seconds, 3) for examined in report.examined},
    }

"""What `attnperf judge` has found, as a typed record, as JSON, and as text.

Format: `SCHEMA`, whose number increases when a field is renamed or changes its meaning; fields may be added. Times are
in microseconds per call, sizes in bytes, durations in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, ErrorFigures, Verdict
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.text.figures import format_speedup, one_line, printable_json
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.tools.judging.confinement import LimitState

SCHEMA = "attnperf.judgement/1"
TEXT_LIMIT = 4000
LINES_SHOWN = 10
"""Most lines of a traceback and of a log that are printed; --json has more."""

ALONE, INNER, OUTSIDE = "alone", "inner", "outside"
"""Who found something: the judging worker in the kernel's process alone, the judge inside the kernel's other process,
and this command, which looks at both from outside."""


@dataclass(frozen=True)
class JudgedFile:
    """A file, the functions in it that were called, and the SHA-256 of its content."""

    file: str
    functions: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class JudgedProblem:
    """One thing that is wrong, in words, and `found_by` one of ALONE, INNER and OUTSIDE."""

    found_by: str
    text: str


@dataclass(frozen=True)
class JudgedErrors:
    """Error figures of one output of one checked call, and by whom it was checked."""

    found_by: str
    figures: ErrorFigures


@dataclass(frozen=True)
class JudgedTimes:
    """Microseconds per call.

    kernel_us      median, by a clock in the kernel's process; None if it was not timed, for the reason in `why_not`
    reference_us   median of the reference, in a process without the kernel; None likewise
    speedup        reference_us / kernel_us
    outside_us     shortest time of a call as the judging worker saw it, which includes the transfer of its results
    timer          by which both medians were taken
    """

    kernel_us: float | None = None
    reference_us: float | None = None
    speedup: float | None = None
    outside_us: float | None = None
    timer: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Judgement:
    """A verdict on one kernel's file, and all that it rests on.

    summary      the verdict's reason in one line
    seed         with it, --seed repeats the same inputs; None if the kernel could not even be loaded
    input_seeds  seeds with which inputs were made in the judging worker
    versions     of this package, Python, torch, triton and the driver, by name
    seconds      wall time: 'total' and its parts
    traceback    of an error that the kernel raised, from its file on
    log          end of what the kernel has printed, in the process in which it failed
    """

    verdict: Verdict
    summary: str
    kernel: JudgedFile
    reference: JudgedFile
    problems: tuple[JudgedProblem, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[JudgedErrors, ...] = ()
    times: JudgedTimes = field(default_factory=JudgedTimes)
    limits: tuple[LimitState, ...] = ()
    seed: int | None = None
    input_seeds: tuple[int, ...] = ()
    device: DeviceInfo | None = None
    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    traceback: str = ""
    log: str = ""
    schema: str = SCHEMA

    @property
    def is_right(self) -> bool:
        """Whether the verdict is RIGHT."""
        return self.verdict is Verdict.RIGHT


def encode_judgement(judged: Judgement) -> str:
    """Returns the judgement as one JSON object, `schema` first."""
    values = msgspec.to_builtins(judged)
    return printable_json(json.dumps({"schema": values.pop("schema"), **values}, indent=1))


def decode_judgement(text: str) -> Judgement:
    """Reads what `encode_judgement` has written. Raises UsageError naming the field for anything else."""
    try:
        judged = msgspec.json.decode(text, type=Judgement)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"this is not what attnperf judge --json prints: {error}") from error
    if judged.schema != SCHEMA:
        raise UsageError(f"the judgement has the format {judged.schema[:100]!r}; this version reads {SCHEMA!r}")
    return judged


def render_judgement(judged: Judgement, width: int) -> str:
    """Returns the verdict, its reasons, the times, and which limits were not enforced, as lines for a terminal."""
    lines = [f"{judged.verdict.value}: {one_line(judged.kernel.file, TEXT_LIMIT)}"]
    lines += [one_line(judged.summary, TEXT_LIMIT)] if judged.summary else []
    lines += [one_line(problem.text, TEXT_LIMIT) for problem in judged.problems if problem.text != judged.summary]
    lines += [_format_worst(judged.errors)] if judged.is_right and judged.errors else []
    lines += _list_times(judged.times) if judged.is_right else []
    lines += [f"note: {one_line(note, TEXT_LIMIT)}" for note in judged.notes]
    if judged.verdict is Verdict.ERROR:
        lines += [f"  {one_line(line, 500)}" for line in judged.traceback.splitlines()[-LINES_SHOWN:]]
        shown = judged.log.splitlines()[-LINES_SHOWN:]
        lines += ["its output ends with:", *(f"  {one_line(line, 500)}" for line in shown)] if shown else []
    lines += _list_limits(judged.limits)
    if judged.seed is not None:
        lines.append(f"the same inputs again: --seed {judged.seed}")
    wrapped = [piece for line in lines for piece in (wrap_text(line, width) if line[:1] != " " else [line])]
    return "\n".join(wrapped) + "\n"


def _format_worst(errors: Sequence[JudgedErrors]) -> str:
    """Returns how near to its budget the worst of all errors is."""
    pairs = [pair for one in errors for pair in one.figures.budgets if pair[1] > 0]
    share = max((error / budget for error, budget in pairs), default=0.0)
    return f"errors: at most {share:.0%} of the budget, in {len(errors)} checked outputs"


def _list_times(times: JudgedTimes) -> list[str]:
    if times.kernel_us is None:
        return [f"not timed: {one_line(times.why_not, TEXT_LIMIT)}"] if times.why_not else []
    if times.reference_us is None:
        return [f"{format_time(times.kernel_us)} per call; no time of the reference: {times.why_not}"]
    return [
        f"{format_time(times.kernel_us)} per call, the reference {format_time(times.reference_us)}: "
        f"{format_speedup(times.speedup)} as fast"
    ]


def _list_limits(limits: Sequence[LimitState]) -> list[str]:
    """Returns one line on limits that hold, and one for each that does not."""
    held = [limit.name for limit in limits if limit.enforced]
    lines = [f"limits enforced: {', '.join(held)}"] if held else []
    return lines + [
        f"limit NOT enforced: {limit.name}: {one_line(limit.why, 500)}" for limit in limits if not limit.enforced
    ]

"""Explains the verdict of a compiled kernel, and lists its figures beside the stored ones. No GPU is involved."""

from __future__ import annotations

from collections.abc import Callable

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.reports.explain import steps
from pytest_attnperf.reports.explain.facts import NextStep, Words
from pytest_attnperf.reports.run.code_objects import waves_text
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import ABSENT, one_line

TEXT_LIMIT = 400
AMD = "gfx"
NO_NOISE = "A compiler makes the same machine code of the same source every time: no noise, no second look, no GPU."

MEANS: dict[Verdict, tuple[str, ...]] = {
    Verdict.WORSE: (
        "The compiled kernel breaks a rule, or needs more of the device than the stored one, and its policy makes "
        "that fail the test.",
        NO_NOISE,
        "It is not a measured slowdown: the kernel may run as fast as before, or slower only if occupancy limits it.",
        "Usual causes, most likely first: a change of the kernel's source; other block sizes, warps or stages; another "
        "compiler.",
    ),
    Verdict.INCORRECT: (
        "The machine code was executed by an interpreter on small problems, and its result is wrong, or it did what no "
        "kernel may: read what nothing wrote, left a buffer, raced.",
        "No GPU was involved, so no driver, clock or neighbour can be the cause.",
        "Usual causes, most likely first: a fault in the kernel's source or launcher; a fault of the compiler.",
    ),
    Verdict.SUSPICIOUS: (
        "The compiled kernel cannot do its work: it has no store of any kind, or none of the matrix instructions it "
        "promises.",
        NO_NOISE,
        "A measured time would be that of something else.",
    ),
    Verdict.ERROR: (
        "The kernel did not compile, or its object cannot be read, so nothing is known about it.",
        "Usual causes: an error in its source, settings that the architecture does not support, a missing tool "
        "(attnperf doctor says which).",
        "This does not mean that the kernel changed: nothing was compared.",
    ),
    Verdict.INCOMPARABLE: (
        "Another compiler made the stored kernel, so differences may come from the compiler. Only rules that hold for "
        "every compiler were judged, and it breaks none.",
        "It is neither passed nor failed.",
        "To keep the new compiler, record the kernels with it; if not, compile with the old one.",
    ),
    Verdict.NO_BASELINE: (
        "The kernel compiles and breaks no rule, and no stored kernel exists to compare it with.",
        "It is neither passed nor failed: registers, LDS and occupancy were not compared.",
        "Usual causes: a new configuration, or an architecture that no baseline was recorded for.",
    ),
    Verdict.UNSUPPORTED: (
        "The kernel cannot be compiled for this architecture, and its author says why.",
        "The test is skipped; nothing was compared.",
        "It is no failure, unless a baseline has the kernel.",
    ),
    Verdict.SAME: (
        "The compiled kernel breaks no rule and needs no more than the stored one.",
        NO_NOISE,
        "It says nothing about time: code with the same registers can be slower.",
    ),
    Verdict.RECORDED: (
        "The kernel was compiled, breaks no rule that is not accepted, and is stored.",
        "Later kernels are compared with these figures.",
        "What is worse than in the previous entry is listed; recording accepted it.",
    ),
    Verdict.RIGHT: (
        "The kernel was compiled with settings of the command line and was not compared.",
        "That is for experiments: nothing is gated and nothing is stored.",
        "It says nothing about time.",
    ),
}

FIGURES: tuple[tuple[str, Callable[[KernelCode], object]], ...] = (
    ("VGPRs", lambda code: code.vgprs),
    ("AGPRs", lambda code: code.agprs),
    ("SGPRs", lambda code: code.sgprs),
    ("VGPR spills", lambda code: code.vgpr_spills),
    ("SGPR spills", lambda code: code.sgpr_spills),
    ("scratch bytes", lambda code: code.scratch_bytes),
    ("LDS bytes", lambda code: code.lds_bytes),
    ("code bytes", lambda code: code.code_bytes),
    ("matrix instructions", lambda code: code.instructions.get("matrix", 0) if code.instructions else None),
    ("threads", lambda code: code.workgroup),
    ("ISA hash", lambda code: code.isa_hash[:12]),
)


def explain_code(result: CodeResult) -> Words:
    """Returns sentences and next steps for the verdict on one compiled kernel."""
    sentences = list(MEANS.get(result.verdict, MEANS[Verdict.SAME]))
    sentences.insert(1, f"What was found: {one_line(result.summary, TEXT_LIMIT).rstrip('.')}.")
    if result.unchanged:
        sentences.append("Its machine code and its launch are the stored ones, bit for bit.")
    repeat = format_repeat_command(result.reproduce, result.nodeid) or f"pytest {steps.quote_word(result.nodeid)}"
    next_steps = [NextStep("compile it again:", repeat)]
    if result.verdict in (Verdict.WORSE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE):
        accept = steps.format_recording_command(result, "--attnperf-accept=REASON")
        next_steps.append(NextStep("if it is wanted, record it with the reason:", accept))
    if result.code is not None and result.code.arch.startswith(AMD) and result.verdict is Verdict.WORSE:
        next_steps.append(NextStep("what would raise its occupancy:", _format_occupancy_command(result.code)))
    if result.verdict is Verdict.ERROR:
        next_steps.append(steps.suggest_doctor())
    return Words(tuple(sentences), tuple(next_steps))


def code_inputs(result: CodeResult) -> list[tuple[str, str]]:
    """Returns (figure, 'stored -> now') for every figure that at least one side has."""
    rows = [("compiler", _format_before_after(result.stored_compiler, result.compiler))]
    for name, get in FIGURES:
        before, after = (_format_figure(side, get) for side in (result.stored, result.code))
        if {before, after} - {ABSENT, "0"}:
            rows.append((name, _format_before_after(before if result.stored else "", after)))
    if result.occupancy is not None:
        before = "" if result.stored_occupancy is None else waves_text(result.stored_occupancy)
        rows.append(("waves per SIMD", _format_before_after(before, waves_text(result.occupancy))))
        rows.append(("limited by", one_line(", ".join(result.occupancy.limiters)) or "nothing: full occupancy"))
    rows += [("policy", one_line(f"{name} {value}")) for name, value in sorted(result.policy.items())]
    if result.accepted:
        rows.append(("accepted", one_line(result.accepted)))
    return [(name, value) for name, value in rows if value]


def code_changes(result: CodeResult) -> list[str]:
    """Returns a line per finding on a compiled kernel, failing ones first and then warnings, followed by its notes."""
    findings = sorted(result.findings, key=lambda finding: not finding.fails)
    lines = [f"{'fails' if finding.fails else 'warning'}: {one_line(finding.text, TEXT_LIMIT)}" for finding in findings]
    return lines + [one_line(note, TEXT_LIMIT) for note in result.notes]


def _format_occupancy_command(code: KernelCode) -> str:
    """Returns the `attnperf occupancy` command that shows how many waves of this kernel fit, and why."""
    sizes = {"vgprs": code.vgprs, "agprs": code.agprs, "sgprs": code.sgprs, "lds": code.lds_bytes}
    asked = "".join(f" --{name} {value}" for name, value in sizes.items())
    return f"attnperf occupancy --arch {steps.quote_word(code.arch)}{asked} --threads {code.workgroup}"


def _format_figure(code: KernelCode | None, get: Callable[[KernelCode], object]) -> str:
    value = None if code is None else get(code)
    return ABSENT if value in (None, "") else one_line(str(value))


def _format_before_after(before: str, after: str) -> str:
    clean = [one_line(text) for text in (before, after)]
    return clean[1] if not clean[0] or clean[0] == clean[1] else f"{clean[0]} -> {clean[1] or ABSENT}"

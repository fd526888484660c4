"""Rules that every compiled kernel must meet, whatever is stored and whichever compiler made it.

No spilled registers, no scratch, no more LDS than a workgroup can have, no launch that cannot succeed; and at least one
store, and matrix instructions where they are promised. Spills and scratch pass where the stored entry was accepted with
at least as many, or with any by another compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_attnperf.baselines.code_schema import StoredKernel
from pytest_attnperf.codeobject.arch import lds_limit_bytes
from pytest_attnperf.codeobject.instructions import is_store
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.gate.code.causes import (
    Concerns,
    describe_line_changes,
    describe_lines_holding,
    describe_settings_change,
    join_parts,
    list_count_changes,
)
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeFinding, KernelCode, Occupancy

MATRIX = "matrix"
"""The class of MFMA, WMMA and tensor core instructions."""

SCRATCH = ("scratch_load", "scratch_store")

RESOURCE_WORDS = {
    "vgprs": "VGPRs",
    "sgprs": "SGPRs",
    "lds": "LDS",
    "slots": "wave slots",
    "workgroups": "barriers",
}
"""Names of `Occupancy.limits` in a sentence."""


@dataclass(frozen=True)
class CurrentKernel:
    """A kernel as it was compiled now.

    config     block sizes and options it was compiled with; `where` is the file that sets them
    compiler   name and version, 'triton 3.9.0'
    matrix     whether it promises matrix instructions
    """

    key: CaseKey
    code: KernelCode
    config: dict[str, str] = field(default_factory=dict)
    compiler: str = ""
    matrix: bool = False
    where: str = ""


Said: TypeAlias = CodeFinding | str
"""A finding, or a note."""


def find_broken_rules(
    now: CurrentKernel, stored: StoredKernel | None = None, *, promised: bool | None = None
) -> Iterator[Said]:
    """Yields a finding for each rule that a kernel breaks (no spills, no scratch, LDS and launch limits, instructions
    present), and notes (texts) on what was accepted or could not be checked.

    `promised` says whether matrix instructions are promised; None takes the kernel's own promise.
    """
    yield from _find_spills(now, stored)
    yield from _find_scratch(now, stored)
    yield from _find_lds_excess(now, stored)
    yield from _find_launch_limits(now, stored)
    yield from _find_absent_instructions(now, stored, now.matrix if promised is None else promised)


def occupancy_or_note(code: KernelCode) -> Occupancy | str:
    """Returns the kernel's occupancy, or, as text, a note saying why it is not known."""
    try:
        found = occupancy_of(code)
    except CodeObjectError as error:
        return f"not checked: occupancy ({error})"
    why = "its workgroup's size is not known" if code.arch.startswith("gfx") else f"not known for {code.arch}"
    return found or f"not checked: occupancy ({why})"


def format_count(count: int, word: str) -> str:
    """Returns a count with its word, in the plural unless 1: '1 VGPR', '1,024 lanes'."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def describe_settings(now: CurrentKernel, stored: StoredKernel | None) -> str:
    """Returns settings that differ from the stored ones; with nothing stored 'configured in FILE', or '' if unknown."""
    if stored is None:
        return f"configured in {now.where}" if now.where else ""
    return describe_settings_change(now.config, stored.config, now.where)


def _make_finding(kind: str, before: str, after: str, *parts: str) -> CodeFinding:
    return CodeFinding(kind, True, before, after, join_parts(*parts))


def _find_spills(now: CurrentKernel, stored: StoredKernel | None) -> Iterator[Said]:
    spilled = _spill_counts(now.code)
    unknown = [name for name, count in spilled.items() if count is None]
    if unknown:
        yield f"not checked: spilled {' and '.join(f'{name}s' for name in unknown)} (the object does not say)"
    if not any(spilled.values()):
        return
    before = _spill_counts(stored.code) if stored else {}
    after_text = ", ".join(format_count(count, name) for name, count in spilled.items() if count)
    no_more = all((count or 0) <= (before.get(name) or 0) for name, count in spilled.items())
    if stored and stored.accepted and (no_more or stored.compiler != now.compiler):
        yield (
            f"spills {after_text}, accepted when it was recorded{_name_other_compiler(now, stored)} ({stored.accepted})"
        )
        return
    before_text = ", ".join(format_count(count, name) for name, count in before.items() if count) or "0 registers"
    yield _make_finding(
        "spills",
        before_text if stored else "",
        after_text,
        f"spills {after_text}" + _format_stored(stored, before_text),
        describe_settings(now, stored),
        _describe_scratch_lines(now.code),
    )


def _find_scratch(now: CurrentKernel, stored: StoredKernel | None) -> Iterator[Said]:
    if not now.code.scratch_bytes and not now.code.dynamic_stack:
        return
    after = _format_scratch(now.code)
    if stored and stored.accepted and (stored.compiler != now.compiler or _covers_scratch(stored.code, now.code)):
        yield (
            f"{after} of scratch per lane, accepted when it was recorded{_name_other_compiler(now, stored)} "
            f"({stored.accepted})"
        )
        return
    before = _format_scratch(stored.code) if stored else ""
    stack = "it recurses, calls through pointers or sizes its stack at run time" if now.code.dynamic_stack else ""
    yield _make_finding(
        "scratch",
        before,
        after,
        f"{after} of scratch per lane" + _format_stored(stored, before),
        stack,
        describe_settings(now, stored),
        _describe_scratch_lines(now.code),
    )


def _find_lds_excess(now: CurrentKernel, stored: StoredKernel | None) -> Iterator[Said]:
    arch, asked = now.code.arch, now.code.lds_bytes
    try:
        limit = lds_limit_bytes(arch)
    except CodeObjectError:
        yield f"not checked: LDS against the limit of {arch}, which is not known"
        return
    if asked > limit:
        yield _make_finding(
            "lds_limit",
            format_count(stored.code.lds_bytes, "byte") if stored else "",
            format_count(asked, "byte"),
            f"{asked:,} bytes of LDS, but a workgroup on {arch} has {limit:,}: it compiled without an error, "
            "but no launch would succeed",
            describe_settings(now, stored),
        )


def _find_launch_limits(now: CurrentKernel, stored: StoredKernel | None) -> Iterator[Said]:
    """Yields findings on limits, except LDS size, that make every launch fail; or a note if occupancy is unknown."""
    code = now.code
    if code.threads > code.max_threads > 0:
        yield _make_finding(
            "launch",
            "",
            format_count(code.threads, "lane"),
            f"launched with {format_count(code.threads, 'lane')}, but compiled for at most {code.max_threads:,}: "
            "no launch would succeed",
            describe_settings(now, stored),
        )
    found = occupancy_or_note(code)
    if isinstance(found, str):
        yield found
    elif not found.fits and found.limits.get("lds"):
        waves = format_count(found.waves_per_workgroup, "wave")
        yield _make_finding(
            "occupancy",
            "",
            "no workgroup fits",
            f"not one workgroup of {waves} fits a {found.block}, limited by {join_limiters(found.limiters)}: "
            "no launch would succeed",
            describe_settings(now, stored),
        )


def _find_absent_instructions(now: CurrentKernel, stored: StoredKernel | None, promised: bool) -> Iterator[Said]:
    """Yields findings if stores or `promised` matrix instructions are absent; only a note if code was not decoded."""
    code = now.code
    stores = any(count and is_store(name) for name, count in code.instructions.items())
    matrix = bool(code.instructions.get(MATRIX))
    if code.undecoded or not code.instructions:
        unseen = ["some instructions or loops"] if code.instructions else ["widths of loads", "loops"]
        unseen += [] if stores else ["stores"]
        unseen += ["promised matrix instructions"] if promised and not matrix else []
        yield f"not checked: {', '.join(unseen)} ({code.undecoded or 'it was not disassembled'})"
        return
    total = format_count(sum(code.instructions.values()), "instruction")
    before = stored.code.instructions if stored else {}
    if not stores:
        yield _make_finding(
            "store",
            format_count(sum(count for name, count in before.items() if is_store(name)), "store") if before else "",
            "0 stores",
            f"no store of any kind in {total}: its results never reach memory",
            ", ".join(list_count_changes(code.instructions, before, is_store)) if before else "",
            describe_settings(now, stored),
            describe_line_changes(code.lines, stored.code.lines, is_store) if stored else "",
        )
    if promised and not matrix:
        yield _make_finding(
            "matrix",
            format_count(before.get(MATRIX, 0), "matrix instruction") if before else "",
            "0 matrix instructions",
            f"no matrix instructions in {total}, though it promises them",
            describe_settings(now, stored),
            describe_line_changes(code.lines, stored.code.lines, is_matrix) if stored else "",
        )


def is_matrix(name: str) -> bool:
    """Returns whether `name` is the instruction class of matrix instructions."""
    return name == MATRIX


def join_limiters(limiters: tuple[str, ...]) -> str:
    """Returns the resources that limit occupancy in words: 'VGPRs and LDS'; 'nothing' for none."""
    return " and ".join(RESOURCE_WORDS.get(name, name) for name in limiters) or "nothing"


def _spill_counts(code: KernelCode) -> dict[str, int | None]:
    return {"VGPR": code.vgpr_spills, "SGPR": code.sgpr_spills}


def _format_scratch(code: KernelCode) -> str:
    return format_count(code.scratch_bytes, "byte") + (" and more at run time" if code.dynamic_stack else "")


def _covers_scratch(stored: KernelCode, now: KernelCode) -> bool:
    return now.scratch_bytes <= stored.scratch_bytes and now.dynamic_stack <= stored.dynamic_stack


def _name_other_compiler(now: CurrentKernel, stored: StoredKernel) -> str:
    """Returns ' with COMPILER', naming the stored kernel's compiler, if it is not the current one, because spill counts
    of two compilers are not comparable; else ''."""
    return "" if stored.compiler == now.compiler else f" with {stored.compiler}"


def _format_stored(stored: StoredKernel | None, before: str) -> str:
    if stored is None:
        return ""
    return f" (stored: {before}" + (f", accepted: {stored.accepted})" if stored.accepted else ")")


def _describe_scratch_lines(code: KernelCode) -> str:
    return describe_lines_holding(code.lines, lambda name: name in SCRATCH)


@dataclass(frozen=True)
class Compared:
    """A kernel as compiled now, and as stored."""

    now: CurrentKernel
    stored: StoredKernel
    policy: CodePolicy

    @property
    def new(self) -> KernelCode:
        """Returns the kernel's code as compiled now."""
        return self.now.code

    @property
    def old(self) -> KernelCode:
        """Returns the stored kernel's code."""
        return self.stored.code

    @property
    def same_machine_code(self) -> bool:
        """Whether the hashes of both kernels' instructions are known and equal."""
        return bool(self.new.isa_hash) and self.new.isa_hash == self.old.isa_hash

    @property
    def same_launch(self) -> bool:
        """Whether workgroup size and dynamic LDS equal the stored ones. The grid, set by the caller, does not count."""
        same_size = self.new.workgroup == self.old.workgroup
        return same_size and self.new.lds_dynamic_bytes == self.old.lds_dynamic_bytes

    @property
    def is_comparable(self) -> bool:
        """Whether the two kernels may be compared: their machine code is equal, or the same compiler made both."""
        return self.same_machine_code or self.now.compiler == self.stored.compiler

    def make_finding(
        self, kind: str, before: str, after: str, text: str, concerns: Concerns | None = None, *, warns: bool = False
    ) -> CodeFinding:
        """Returns a finding with the changed settings and, for instruction classes in `concerns`, the source lines that
        changed. It fails by the policy of its `kind`; never with `warns`."""
        lines = describe_line_changes(self.new.lines, self.old.lines, concerns) if concerns else ""
        fails = self.policy.fails_on(kind) and not warns
        return CodeFinding(
            kind, fails, before, after, join_parts(text, describe_settings(self.now, self.stored), lines)
        )

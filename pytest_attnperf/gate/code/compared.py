"""A kernel as compiled now beside what is stored of it: whether both can be compared, and how a finding is written."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.baselines.code_schema import StoredKernel
from pytest_attnperf.gate.code.causes import Concerns, lines_changed, sentence
from pytest_attnperf.gate.code.policy import CodePolicy
from pytest_attnperf.gate.code.rules import Candidate, settings_of
from pytest_attnperf.records.code import CodeFinding, KernelCode


@dataclass(frozen=True)
class Compared:
    """A kernel as compiled now, and as stored."""

    now: Candidate
    stored: StoredKernel
    policy: CodePolicy

    @property
    def new(self) -> KernelCode:
        """What the candidate became."""
        return self.now.code

    @property
    def old(self) -> KernelCode:
        """What is stored."""
        return self.stored.code

    @property
    def same_machine_code(self) -> bool:
        """An unknown hash is equal to none."""
        return bool(self.new.isa_hash) and self.new.isa_hash == self.old.isa_hash

    @property
    def same_launch(self) -> bool:
        """The workgroup's size and what the launch adds to its LDS; the grid is the caller's own."""
        same_size = self.new.workgroup == self.old.workgroup
        return same_size and self.new.lds_dynamic_bytes == self.old.lds_dynamic_bytes

    @property
    def comparable(self) -> bool:
        """Whether differences are the kernel's and not the compiler's."""
        return self.same_machine_code or self.now.compiler == self.stored.compiler

    def finding(
        self, kind: str, before: str, after: str, text: str, concerns: Concerns | None = None, *, warns: bool = False
    ) -> CodeFinding:
        """A finding with the settings that changed and the source lines whose counts of these classes did."""
        lines = lines_changed(self.new.lines, self.old.lines, concerns) if concerns else ""
        fails = self.policy.fails(kind) and not warns
        return CodeFinding(kind, fails, before, after, sentence(text, settings_of(self.now, self.stored), lines))

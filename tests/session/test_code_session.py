"""The session's judge over a scripted compiler: no processes, no objects but where they must be damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore, code_path
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.built import Built, pack_bytes
from pytest_attnperf.errors import BaselineError, CaseFailedError, CodeObjectError, WorkerError
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.session.case_records import note_loosened
from pytest_attnperf.session.code_session import FAILING, CodeCase, CodeSession, new_kernel
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.workers.compile_pool import CompiledBuild

KEY = CaseKey("code_objects", "triton.flash", "d256-f16", "gfx942")
NODEID = "suites/test_code_objects.py::test_code_object[triton.flash-d256-f16-gfx942]"
SOURCE = TritonSource("kernels.triton.flash", "flash_kernel", {}, {"BLOCK_M": 64})
BUILD = KernelBuild(
    "triton.flash", "d256-f16", "gfx942", SOURCE, {"BLOCK_M": "64"}, matrix=True, where="configs/flash.json"
)
BUILT = Built("", "", "k", 256, 8192, "triton 3.9.0", {"num_warps": "4"}, {"flash.py": "b" * 64})
COMPILED = CompiledBuild(BUILT, sources={"conftest.py": "a" * 64})
CODE = KernelCode(
    "k", "gfx942", 120, 0, 120, 60, 0, 0, 0, 0, 8192, 56, 256, 512, 64, None, False, 9000, "a1b2",
    {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4}, {"matrix": 64},
)  # fmt: skip
OTHER = replace(CODE, isa_hash="c3d4")
SPILLING = replace(OTHER, vgpr_spills=140, scratch_bytes=500)
STORELESS = replace(OTHER, instructions={"matrix": 64, "global_load_16B": 8})
NARROW = replace(OTHER, vgprs=136, unified_vgprs=136)
"""A wave of occupancy less than CODE."""

REASON = "measured 20 % faster with it"
STORE_COMMAND = f'pytest --update-baselines --attnperf-arch=gfx942 "{NODEID}"'


@dataclass
class Script:
    """A compiler whose answer is scripted, and the reading of what it made."""

    answer: CompiledBuild | Exception = COMPILED
    code: KernelCode | Exception = CODE
    asked: list[CaseKey] = field(default_factory=list)

    def compile_case(self, key: CaseKey) -> CompiledBuild:
        """The answer, or what it raises."""
        self.asked.append(key)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def analyse(self, built: Built, declared: KernelBuild) -> KernelCode:
        """What the object of the answer holds."""
        assert isinstance(self.answer, CompiledBuild)
        assert built is self.answer.built
        assert declared.id == BUILD.id
        if isinstance(self.code, Exception):
            raise self.code
        return self.code


class Bench:
    """Sessions over one store."""

    def __init__(self, folder: Path) -> None:
        self.store = CodeStore(folder / "baselines")
        self.policy = CodePolicy()
        self.build = BUILD
        self.script = Script()

    def judge(
        self,
        code: KernelCode | Exception = CODE,
        mode: RunMode = RunMode.GATE,
        *,
        answer: CompiledBuild | Exception = COMPILED,
        **settings: Any,
    ) -> CodeResult:
        """The verdict on a kernel of this code, compiled as the answer says."""
        self.script = Script(answer, code)
        times = iter((10.0, 12.5))
        given = {"analyse": self.script.analyse, "clock": lambda: next(times), **settings}
        session = CodeSession(mode, self.script, self.store, **given)
        return session.judge(CodeCase(KEY, NODEID, self.build, self.policy))

    def record(self, code: KernelCode = CODE, **settings: Any) -> CodeResult:
        """Record a kernel and store it."""
        result = self.judge(code, RunMode.UPDATE, **settings)
        self.store.merge(self.store.roots[0], "gfx942", {entry_of(KEY): new_kernel(result, "c0ffee")})
        return result


@pytest.fixture
def empty(tmp_path: Path) -> Bench:
    """Nothing is stored."""
    return Bench(tmp_path)


@pytest.fixture
def stored(empty: Bench) -> Bench:
    """CODE is stored."""
    empty.record()
    return empty


def answer(**changes: Any) -> CompiledBuild:
    """What a compile worker sends, changed."""
    return replace(COMPILED, **changes)


def test_an_unchanged_kernel(stored: Bench) -> None:
    """The stored machine code and launch: SAME, unchanged, with both sides and everything that is known of it."""
    result = stored.judge()
    assert stored.script.asked == [KEY]
    assert result == CodeResult(
        KEY, NODEID, Verdict.SAME, "unchanged", code=CODE, occupancy=result.occupancy, stored=CODE,
        stored_occupancy=result.occupancy, config={"num_warps": "4", "BLOCK_M": "64"}, compiler="triton 3.9.0",
        stored_compiler="triton 3.9.0", unchanged=True, matrix=True, policy=CodePolicy().to_record(),
        sources={"conftest.py": "a" * 64, "flash.py": "b" * 64}, seconds=2.5,
        reproduce=f'pytest --attnperf --attnperf-arch=gfx942 "{NODEID}"',
    )  # fmt: skip
    assert result.occupancy is not None
    assert result.occupancy.waves_per_simd == 4


@pytest.mark.parametrize("mode", [RunMode.CHECK, RunMode.GATE, RunMode.CALIBRATE])
def test_a_worse_kernel_fails(stored: Bench, mode: RunMode) -> None:
    """New spills are WORSE whatever else the run is for: nothing has to be measured for it."""
    result = stored.judge(SPILLING, mode)
    assert (result.verdict, result.fails, result.unchanged) == (Verdict.WORSE, True, False)
    spills = result.findings[0]
    assert (spills.kind, spills.fails, spills.before, spills.after) == ("spills", True, "0 registers", "140 VGPRs")
    assert "spills" in result.summary
    assert (result.code, result.stored) == (SPILLING, CODE)


def test_other_machine_code_of_equal_worth_passes(stored: Bench) -> None:
    """What got no worse is SAME and not unchanged."""
    result = stored.judge(OTHER)
    assert (result.verdict, result.fails, result.unchanged) == (Verdict.SAME, False, False)
    assert result.summary == "other machine code, nothing worse"


def test_the_policy_of_the_item_decides(stored: Bench) -> None:
    """A lost wave fails by default; a policy without it warns of it, with both sides named."""
    strict = stored.judge(NARROW)
    assert (strict.verdict, strict.fails) == (Verdict.WORSE, True)
    assert "occupancy" in [finding.kind for finding in strict.findings if finding.fails]
    stored.policy = CodePolicy(frozenset())
    lax = stored.judge(NARROW)
    assert (lax.verdict, lax.fails) == (Verdict.SAME, False)
    assert {finding.kind: finding.fails for finding in lax.findings} == dict.fromkeys(("occupancy", "vgprs"), False)
    assert all(finding.before and finding.after for finding in lax.findings)
    assert lax.policy == {"fail_on": [], "growth_percent": 1.0}


@pytest.mark.parametrize(("code", "verdict"), [(STORELESS, Verdict.SUSPICIOUS), (SPILLING, Verdict.WORSE)])
def test_no_policy_lets_a_broken_rule_pass(stored: Bench, code: KernelCode, verdict: Verdict) -> None:
    """A kernel that writes nothing, or spills without a reason, fails also where the policy fails on nothing."""
    stored.policy = CodePolicy(frozenset(), 1000.0)
    result = stored.judge(code)
    assert (result.verdict, result.fails) == (verdict, True)


def test_without_a_baseline_the_command_that_makes_one_is_named(empty: Bench) -> None:
    """NO_BASELINE fails nothing; the command holds the architecture, without which pytest would find no such item."""
    result = empty.judge()
    assert (result.verdict, result.fails) == (Verdict.NO_BASELINE, False)
    assert result.summary == f"nothing is stored for triton.flash/d256-f16 on gfx942; store one with: {STORE_COMMAND}"
    assert (result.stored, result.stored_occupancy, result.stored_compiler) == (None, None, "")


def test_rules_hold_without_a_baseline(empty: Bench) -> None:
    """A kernel that spills fails at its first sight; that nothing is stored is a note."""
    result = empty.judge(SPILLING)
    assert (result.verdict, result.fails) == (Verdict.WORSE, True)
    assert any("nothing is stored" in note for note in result.notes)


def test_another_compiler_is_incomparable(stored: Bench) -> None:
    """What another compiler may change is no finding: INCOMPARABLE, with both named; what it may not still fails."""
    newer = answer(built=replace(BUILT, compiler="triton 3.10.0"))
    result = stored.judge(NARROW, answer=newer)
    assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, False)
    assert (result.compiler, result.stored_compiler) == ("triton 3.10.0", "triton 3.9.0")
    assert "triton 3.9.0 made the baseline, triton 3.10.0 this kernel" in result.summary
    assert stored.judge(SPILLING, answer=newer).verdict is Verdict.WORSE
    assert stored.judge(answer=newer).verdict is Verdict.SAME


@pytest.mark.parametrize("mode", list(RunMode))
def test_another_trees_code_is_never_judged(stored: Bench, mode: RunMode) -> None:
    """Code that was loaded from elsewhere is INCOMPARABLE in every mode, so that it is not stored either."""
    loaded = ("module kernels.flash was loaded from /other/kernels/flash.py, not from /tree",)
    result = stored.judge(SPILLING, mode, answer=answer(foreign=loaded))
    assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, False)
    assert result.summary == "code from another tree was compiled"
    assert result.notes == loaded
    assert result.code == SPILLING


def test_unsupported_says_why(stored: Bench) -> None:
    """Every reason that a compile worker gives, or the test when it skips itself; it fails nothing."""
    missing = answer(built=None, unsupported=("Triton is not installed", "install triton>=3.3"))
    result = stored.judge(answer=missing)
    assert (result.verdict, result.fails) == (Verdict.UNSUPPORTED, False)
    assert result.summary == "Triton is not installed; install triton>=3.3"
    skipped = stored.judge(answer=answer(built=None, outcome="skipped", text="not on this architecture"))
    assert (skipped.verdict, skipped.summary) == (Verdict.UNSUPPORTED, "not on this architecture")
    assert skipped.code is None


BROKEN: dict[str, tuple[CompiledBuild | Exception, KernelCode | Exception, str, tuple[str, ...], str]] = {
    "worker death": (
        WorkerError("worker compile0-1 died during 'open': killed by SIGKILL", "LLVM ERROR: out of memory"), CODE,
        "worker compile0-1 died during 'open': killed by SIGKILL", (), "LLVM ERROR: out of memory",
    ),
    "compile error": (
        CaseFailedError("CodeObjectError: flash.hip:7: error: no type\n  7 | floa x;\n    | ^", traceback="Traceback"),
        CODE,
        "CodeObjectError: flash.hip:7: error: no type", ("  7 | floa x;", "    | ^", "Traceback"), "",
    ),
    "unreadable object": (
        COMPILED, CodeObjectError("triton.flash-d256-f16-gfx942: is cut short; compile it again"),
        "triton.flash-d256-f16-gfx942: is cut short; compile it again", (), "",
    ),
    "failing test": (
        answer(outcome="failed", text="call: assert 1 == 2\ndef test():\n>  assert 1 == 2\nE  assert 1 == 2"), CODE,
        "call: assert 1 == 2", ("def test():", ">  assert 1 == 2", "E  assert 1 == 2"), "",
    ),
    "failing test without a word": (answer(built=None, outcome="failed"), CODE, "the test failed", (), ""),
    "test without a gate": (
        answer(built=None), CODE, "the test ended without calling code_object.gate(kernel_build)", (), "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [RunMode.GATE, RunMode.UPDATE])
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_an_error(stored: Bench, case: str, mode: RunMode) -> None:
    """Its first line is the summary, the rest is noted once, the worker's log is apart; and it fails."""
    scripted, code, summary, notes, log = BROKEN[case]
    result = stored.judge(code, mode, answer=scripted)
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert (result.summary, result.notes, result.log) == (summary, notes, log)
    assert (result.code, result.unchanged, result.seconds) == (None, False, 2.5)
    assert NODEID in result.reproduce


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "gfx942/code_objects.json"),
        ('{"schema": 99, "arch": "gfx942"}', "gfx942/code_objects.json"),
        (lambda good: good.replace('"growth_percent": 1.0', '"growth_percent": 2.0'), "gfx942/code_objects.json"),
        (lambda good: good.replace('"vgprs": 120', '"vgprs": 9999'), "vgprs 9999"),
    ],
    ids=["cut", "newer", "edited policy", "impossible kernel"],
)
def test_a_damaged_baseline_is_an_error(stored: Bench, text: str | Callable[[str], str], said: str) -> None:
    """A file that is not sound, or holds a kernel that cannot be, is named, and nothing is held against it."""
    path = code_path(stored.store.roots[0], "gfx942")
    good = path.read_text()
    path.write_text(text if isinstance(text, str) else text(good))
    assert path.read_text() != good
    result = stored.judge()
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert said in result.summary


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no object at all", b"__CLANG_OFFLOAD_BUNDLE__"])
def test_an_object_of_any_kind_is_an_error_and_no_crash(empty: Bench, data: bytes) -> None:
    """What a compiler, or a file, may hand over in place of an object is an ERROR that names the build."""
    result = empty.judge(answer=answer(built=replace(BUILT, object_base64=pack_bytes(data))), analyse=Analyser())
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert "triton.flash-d256-f16-gfx942" in result.summary


def test_a_defect_of_ours_is_not_hidden(empty: Bench) -> None:
    """What nobody raises on purpose is not called an error of the kernel."""
    with pytest.raises(ZeroDivisionError):
        empty.judge(ZeroDivisionError())


def test_recording_needs_nothing_stored(empty: Bench) -> None:
    """RECORDED fails nothing, has no other side, and comes back as it was, with who recorded it under which policy."""
    empty.policy = CodePolicy(frozenset({"lds"}), 3.0)
    result = empty.record()
    assert (result.verdict, result.fails, result.stored) == (Verdict.RECORDED, False, None)
    found = empty.store.find("gfx942", "triton.flash/d256-f16")
    assert found is not None
    kernel = found.kernel
    assert (kernel.code, kernel.compiler, kernel.matrix, kernel.commit) == (CODE, "triton 3.9.0", True, "c0ffee")
    assert (kernel.config, kernel.accepted) == ({"num_warps": "4", "BLOCK_M": "64"}, "")
    assert found.policy == {"fail_on": ["lds"], "growth_percent": 3.0}
    assert empty.judge().unchanged


def test_spills_are_recorded_with_a_reason_only(stored: Bench) -> None:
    """Without one they fail the recording, and the way is named; with one it is stored and covers no more than it was
    given for."""
    refused = stored.judge(SPILLING, RunMode.UPDATE)
    assert (refused.verdict, refused.fails) == (Verdict.WORSE, True)
    assert any("--attnperf-accept=REASON" in note for note in refused.notes)
    recorded = stored.record(SPILLING, accepted=REASON)
    assert (recorded.verdict, recorded.accepted, recorded.fails) == (Verdict.RECORDED, REASON, False)
    again = stored.judge(SPILLING)
    assert (again.verdict, again.unchanged) == (Verdict.SAME, True)
    assert any(REASON in note for note in again.notes)
    assert stored.judge(replace(SPILLING, vgpr_spills=141)).verdict is Verdict.WORSE
    assert stored.record(SPILLING).accepted == REASON
    assert stored.judge(SPILLING).verdict is Verdict.SAME


def test_a_kernel_without_a_purpose_is_never_recorded(empty: Bench) -> None:
    """No reason makes a baseline of a kernel that writes nothing."""
    result = empty.judge(STORELESS, RunMode.UPDATE, accepted=REASON)
    assert (result.verdict, result.fails, result.accepted) == (Verdict.SUSPICIOUS, True, "")


def test_only_what_was_recorded_becomes_a_baseline(stored: Bench) -> None:
    """Any other result is refused by name, also one that carries a kernel."""
    for result in (stored.judge(), stored.judge(SPILLING), stored.judge(answer=answer(built=None))):
        with pytest.raises(BaselineError, match="only a RECORDED result becomes a baseline") as caught:
            new_kernel(result, "c0ffee")
        assert f"{KEY} is {result.verdict.value}" in str(caught.value)


@pytest.mark.parametrize("mode", list(RunMode))
@pytest.mark.parametrize("code", [CODE, SPILLING, STORELESS])
def test_a_trial_neither_fails_nor_is_stored(stored: Bench, mode: RunMode, code: KernelCode) -> None:
    """With other settings everything is said as a gate would, and the verdict is RIGHT whatever the run is for."""
    result = stored.judge(code, mode, trial=True)
    gated = stored.judge(code)
    assert (result.verdict, result.fails) == (Verdict.RIGHT, False)
    assert result.summary == f"compiled with other settings, not gated; {gated.summary}"
    assert (result.findings, result.stored, result.code) == (gated.findings, CODE, code)
    with pytest.raises(BaselineError):
        new_kernel(result, "c0ffee")


def test_a_trial_without_a_baseline(empty: Bench) -> None:
    """Nothing is stored and nothing is asked for: no command that would store a trial."""
    result = empty.judge(trial=True)
    assert (result.verdict, result.fails) == (Verdict.RIGHT, False)
    assert "nothing is stored for triton.flash/d256-f16" in result.summary
    assert "--update-baselines" not in result.summary


def test_a_trial_that_does_not_compile_is_an_error_that_fails_nothing(stored: Bench) -> None:
    """Other settings may be impossible: that is said, and is no failure of the tree."""
    result = stored.judge(answer=CaseFailedError("CodeObjectError: out of resources"), trial=True)
    assert (result.verdict, result.fails) == (Verdict.ERROR, False)


def test_a_loosened_policy_is_noted(stored: Bench) -> None:
    """What lets more through than the stored policy did is a note that the run repeats; what lets less is none."""
    stored.policy = CodePolicy(frozenset({"occupancy"}), 5.0)
    notes = (note_loosened("growth_percent 1 -> 5"), note_loosened("fail_on no longer has wider_loads"))
    assert ((result := stored.judge()).verdict, result.notes) == (Verdict.SAME, notes)
    stored.policy = CodePolicy(frozenset({"occupancy", "wider_loads", "vgprs"}), 0.0)
    assert stored.judge().notes == ()


@pytest.mark.parametrize(
    ("mode", "options", "command"),
    [
        (RunMode.CHECK, (), "pytest --attnperf-arch=gfx942"),
        (RunMode.GATE, (), "pytest --attnperf --attnperf-arch=gfx942"),
        (RunMode.CALIBRATE, (), "pytest --attnperf --attnperf-arch=gfx942"),
        (RunMode.UPDATE, (), "pytest --update-baselines --attnperf-arch=gfx942"),
        (RunMode.GATE, ("--attnperf-arch=all",), "pytest --attnperf --attnperf-arch=all"),
        (
            RunMode.GATE,
            ("--attnperf-code-set=BLOCK_M=64", "--attnperf-override=code_growth=5"),
            "pytest --attnperf --attnperf-code-set=BLOCK_M=64 --attnperf-override=code_growth=5 --attnperf-arch=gfx942",
        ),
    ],
)
def test_the_command_that_repeats_it(empty: Bench, mode: RunMode, options: tuple[str, ...], command: str) -> None:
    """Mode, options as typed, the architecture where they lack it, and the item; for every verdict."""
    expected = f'{command} "{NODEID}"'
    assert empty.judge(mode=mode, options=options).reproduce == expected
    assert empty.judge(mode=mode, options=options, answer=WorkerError("died")).reproduce == expected


def test_what_fails_is_what_is_wrong_with_the_kernel() -> None:
    """Verdicts that need another baseline, another compiler or another machine fail no item."""
    assert {Verdict.INCORRECT, Verdict.WORSE, Verdict.SUSPICIOUS, Verdict.ERROR} == FAILING

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import (
    NOT_EXECUTED,
    RIGHT,
    WRONG,
    CodeExecution,
    CodeFinding,
    CodeResult,
    KernelCode,
    Occupancy,
)
from pytest_attnperf.reports.run.code_objects import (
    COLUMNS,
    LOG_LINES,
    NOTE_LINES,
    ORDER,
    SHOWN_WARNINGS,
    TEXT_LIMIT,
    code_failure_text,
    code_line,
    code_table,
    code_warning_lines,
    list_code_properties,
    waves_text,
)

CODE = KernelCode(
    "k", "gfx942", 104, 0, 104, 60, 0, 0, 0, 0, 16384, 56, 256, 512, 64, None, False, 9216, "a1b2",
    {"matrix": 64, "global_load_16B": 8}, {"matrix": 60},
)  # fmt: skip
LIMITS = {"vgprs": 4, "sgprs": 8, "lds": 4, "slots": 8, "workgroups": 8}
OCCUPANCY = Occupancy(4, 4.0, 8, 4, 4, LIMITS, ("lds", "vgprs"))
SPILLS = CodeFinding(
    "spills", True, "0 registers", "140 VGPRs",
    "spills: 0 registers -> 140 VGPRs; BLOCK_M 64 -> 128 in configs/prefill_forward.json; look at prefill.py:87",
)  # fmt: skip
LDS = CodeFinding("lds", False, "32,768 B", "65,536 B", "LDS: 32,768 B -> 65,536 B (+100.0 %)")
COMMAND = 'pytest --attnperf --attnperf-arch=gfx942 "suites/test_code.py::test_code[triton.flash-d256-gfx942]"'
KEY = "code_objects/triton.flash/d256/gfx942"
HOSTILE = "\x1b[2J\x1b[31mall\nSAME\r\u202e" + "x" * 100_000


def result(kernel: str = "triton.flash", config: str = "d256", arch: str = "gfx942", **fields: Any) -> CodeResult:
    """A kernel that is as it was stored."""
    key = CaseKey("code_objects", kernel, config, arch)
    plain = CodeResult(
        key, f"suites/test_code.py::test_code[{kernel}-{config}-{arch}]", Verdict.SAME, "unchanged",
        code=CODE, occupancy=OCCUPANCY, compiler="triton 3.9.0", unchanged=True,
    )  # fmt: skip
    return replace(plain, **fields)


def worse(**fields: Any) -> CodeResult:
    """A kernel that spills since its tile grew."""
    said: dict[str, Any] = {
        "verdict": Verdict.WORSE,
        "summary": "spills: 0 registers -> 140 VGPRs; warning: LDS: 32,768 B -> 65,536 B",
        "fails": True,
        "unchanged": False,
        "findings": (LDS, SPILLS),
        "stored": CODE,
        "stored_compiler": "triton 3.9.0",
        "reproduce": COMMAND,
    }
    return result(**{**said, **fields})


def table(*results: CodeResult, width: int = 110) -> list[list[str]]:
    """Cells of the table's header and of its rows, the rule left out; a heading is one cell."""
    lines = code_table(results, width=width).split("\n")
    starts = [index for index in range(len(lines[1])) if lines[1][index] == "-" and lines[1][index - 1 : index] != "-"]
    ends = [*starts[1:], None]
    verdicts = ("verdict", *Verdict)
    return [
        [line[begin:end].strip() for begin, end in zip(starts, ends, strict=True)]
        if line.startswith(verdicts)
        else [line]
        for line in (lines[0], *lines[2:])
    ]


def cell(header: str, **fields: Any) -> str | None:
    """What one kernel shows in a column; None where the column is left out. Another kernel fills nothing in."""
    headers, _, row = table(result(**fields))
    return row[headers.index(header)] if header in headers else None


def test_the_table_says_what_a_kernel_asks_for() -> None:
    """One line per configuration under its architecture and kernel, numbers flush right, verdicts readable."""
    spilling = replace(CODE, vgprs=256, agprs=12, vgpr_spills=140, sgpr_spills=0, scratch_bytes=500)
    full = replace(OCCUPANCY, waves_per_simd=8, whole_waves_per_simd=8.0, limiters=())
    assert table(
        result(),
        worse(config="d512", code=spilling),
        result("hip.softmax", "plain", "gfx1100", code=replace(CODE, instructions={"valu": 9}), occupancy=full),
    ) == [
        ["verdict", "config", "VGPRs", "AGPRs", "SGPRs", "spills", "LDS B", "waves/SIMD", "limited by", "matrix",
         "KiB"],
        ["gfx942 triton.flash"],
        ["SAME, unchanged", "d256", "104", "0", "60", "0", "16384", "4 of 8", "lds, vgprs", "64/60", "9.0"],
        ["WORSE", "d512", "256", "12", "60", "140v 0s", "16384", "4 of 8", "lds, vgprs", "64/60", "9.0"],
        ["gfx1100 hip.softmax"],
        ["SAME, unchanged", "plain", "104", "0", "60", "0", "16384", "8 of 8", "full", "0", "9.0"],
    ]  # fmt: skip


def test_one_configuration_of_each_kernel_takes_one_line() -> None:
    """Where no kernel has two, its name stands before the configuration: half as many lines, under the architecture."""
    rows = table(result(), result("hip.softmax", "plain"), result("hip.softmax", "plain", "gfx1100"))
    assert [row[:2] for row in rows[1:]] == [
        ["gfx942"], ["SAME, unchanged", "triton.flash d256"], ["SAME, unchanged", "hip.softmax plain"],
        ["gfx1100"], ["SAME, unchanged", "hip.softmax plain"],
    ]  # fmt: skip


def test_columns_without_anything_are_left_out() -> None:
    """What is 0 or unknown for every kernel has no column; one kernel that has it brings the column for all."""
    assert table(result())[0] == [
        "verdict", "config", "VGPRs", "SGPRs", "LDS B", "waves/SIMD", "limited by", "matrix", "KiB",
    ]  # fmt: skip
    bare = replace(CODE, agprs=0, sgprs=0, lds_dynamic_bytes=0, instructions={"valu": 1}, vgpr_spills=None)
    assert table(result(code=bare, occupancy=None))[0] == ["verdict", "config", "VGPRs", "KiB"]
    assert "spills" in table(result(), result(config="b", code=replace(CODE, vgpr_spills=1)))[0]


def test_a_narrow_table_keeps_spills_and_registers() -> None:
    """At 80 columns SGPRs, AGPRs and code size go first; verdict and config always stay."""
    kernels = [worse(code=replace(CODE, agprs=12, vgpr_spills=140)), result(config="b")]
    narrow = code_table(kernels, width=80).splitlines()
    assert max(map(len, narrow)) <= 80
    assert table(*kernels, width=80)[0] == [
        "verdict", "config", "VGPRs", "spills", "LDS B", "waves/SIMD", "limited by", "matrix",
    ]  # fmt: skip
    assert code_table(kernels, width=30).splitlines()[0].split() == ["verdict", "config"]


def test_a_kernel_that_was_not_compiled_is_in_the_table() -> None:
    """An ERROR and an UNSUPPORTED have a row without figures, also where there is nothing else."""
    gone: dict[str, Any] = {"code": None, "occupancy": None, "unchanged": False}
    rows = table(result(verdict=Verdict.ERROR, **gone), result(config="b", verdict=Verdict.UNSUPPORTED, **gone))
    assert rows == [
        ["verdict", "config"], ["gfx942 triton.flash"], ["ERROR", "d256"], ["UNSUPPORTED", "b"],
    ]  # fmt: skip
    assert code_table([]) == ""


@pytest.mark.parametrize(
    ("vgpr_spills", "sgpr_spills", "scratch_bytes", "shown"),
    [
        (140, 0, 500, "140v 0s"),
        (0, 12, 0, "0v 12s"),
        (0, 0, 64, "64 B scratch"),
        (0, 0, 0, None),
        (None, None, 0, None),
        (None, None, 48, "48 B scratch"),
        (7, None, 48, "7v 0s"),
        (None, 3, 0, "0v 3s"),
    ],
)
def test_spills_are_told_apart(
    vgpr_spills: int | None, sgpr_spills: int | None, scratch_bytes: int, shown: str | None
) -> None:
    """VGPRs and SGPRs apart, scratch where no spill explains it, and a spill also where only one kind is known."""
    code = replace(CODE, vgpr_spills=vgpr_spills, sgpr_spills=sgpr_spills, scratch_bytes=scratch_bytes)
    assert cell("spills", code=code) == shown


@pytest.mark.parametrize(
    ("compilers", "whole", "text"),
    [(2, 2.0, "2 of 8"), (3, 2.0, "3 (2) of 8"), (2, 1.5, "2 (1.5) of 8"), (8, 8, "8 of 8"), (1, 0.0, "1 (0) of 8")],
)
def test_both_forms_of_occupancy(compilers: int, whole: float, text: str) -> None:
    """The compiler's form, and behind it what whole workgroups leave of it where that is less."""
    occupancy = replace(OCCUPANCY, waves_per_simd=compilers, whole_waves_per_simd=whole)
    assert waves_text(occupancy) == text
    assert cell("waves/SIMD", occupancy=occupancy) == text
    assert waves_text(None) == "-"


@pytest.mark.parametrize("verdict", [Verdict.WORSE, Verdict.SUSPICIOUS, Verdict.RIGHT, Verdict.RECORDED])
def test_only_what_is_the_same_is_unchanged(verdict: Verdict) -> None:
    """A kernel that breaks a rule as it did before, or was tried or recorded, is not called SAME for that."""
    assert cell("verdict", verdict=verdict, unchanged=True) == verdict.value
    assert cell("verdict", unchanged=False) == "SAME"


def test_a_failure_says_everything() -> None:
    """Verdict, summary, every finding with before and after, failing ones first, notes, compiler, and the command."""
    assert code_failure_text(worse(notes=("configuration differs: BLOCK_M 64 -> 128",))).split("\n") == [
        f"WORSE: {KEY}",
        "spills: 0 registers -> 140 VGPRs; warning: LDS: 32,768 B -> 65,536 B",
        "  spills: 0 registers -> 140 VGPRs",
        "      BLOCK_M 64 -> 128 in configs/prefill_forward.json",
        "      look at prefill.py:87",
        "  warning: LDS: 32,768 B -> 65,536 B (+100.0 %)",
        "  note: configuration differs: BLOCK_M 64 -> 128",
        "  compiled by triton 3.9.0",
        "reproduce with:",
        COMMAND,
    ]


def test_every_finding_is_in_the_failure() -> None:
    """However many there are: nothing is cut but the length of a single one."""
    findings = tuple(replace(SPILLS, text=f"finding {number}.") for number in range(40))
    text = code_failure_text(worse(findings=findings))
    assert all(f"  finding {number}.\n" in text for number in range(40))


def test_a_cause_of_several_findings_is_said_once() -> None:
    """The setting behind two findings stands below the first; what only the second has stands below that."""
    cause = "BLOCK_M 64 -> 128 in configs/prefill_forward.json"
    findings = (SPILLS, replace(LDS, text=f"LDS: grew; {cause}; look at prefill.py:90"))
    assert code_failure_text(worse(findings=findings)).split("\n")[2:7] == [
        "  spills: 0 registers -> 140 VGPRs",
        f"      {cause}",
        "      look at prefill.py:87",
        "  warning: LDS: grew",
        "      look at prefill.py:90",
    ]


def test_a_quoted_source_line_stays_whole() -> None:
    """The statements of a line are no causes: they are not torn apart, nor left out because another line has them."""
    loops = [
        f"a.hip:{number} `for (int i = 0; i < n; ++i) x[i] = {number};`: global_load_16B 8 -> 0" for number in (8, 9)
    ]
    findings = tuple(replace(SPILLS, text=f"spills; {loop}; look there") for loop in loops)
    assert code_failure_text(worse(findings=findings)).split("\n")[2:7] == [
        "  spills",
        f"      {loops[0]}",
        "      look there",
        "  spills",
        f"      {loops[1]}",
    ]


def test_another_compiler_is_named() -> None:
    """Where another version made the baseline both are named, and where nobody knows who, nobody is."""
    other = code_failure_text(worse(stored_compiler="triton 3.8.1"))
    assert "  compiled by triton 3.9.0, the baseline by triton 3.8.1\n" in other
    assert "the baseline by" not in code_failure_text(worse(stored_compiler=""))
    assert "compiled by" not in code_failure_text(worse(compiler=""))


def test_an_error_shows_the_end_of_the_log() -> None:
    """The log's last lines without their control characters, then the command; the notes before it are limited."""
    log = "\n".join([*(f"line {number}" for number in range(60)), "\x1b[31mKilled\x1b[0m"])
    broken = worse(
        verdict=Verdict.ERROR, summary="the worker died", findings=(), code=None, compiler="", log=log,
        notes=tuple(f"frame {number}" for number in range(50)),
    )  # fmt: skip
    lines = code_failure_text(broken).split("\n")
    assert lines[:3] == [f"ERROR: {KEY}", "the worker died", "  note: frame 0"]
    assert lines[2 + NOTE_LINES] == f"  note: ... and {50 - NOTE_LINES} more"
    assert lines[3 + NOTE_LINES : 5 + NOTE_LINES] == ["end of the worker's log:", "  | ... 21 lines before ..."]
    assert lines[-3:] == ["  |  [31mKilled [0m", "reproduce with:", COMMAND]
    assert len(lines) == 2 + NOTE_LINES + 1 + 1 + LOG_LINES + 1 + 2


def test_hostile_texts_are_made_safe() -> None:
    """Names and texts of an object, a baseline or a pull request neither paint nor break lines, nor go on for ever."""
    key = CaseKey("code_objects", HOSTILE, HOSTILE, HOSTILE)
    finding = CodeFinding("lds", False, HOSTILE, HOSTILE, HOSTILE)
    occupancy = replace(OCCUPANCY, limiters=(HOSTILE,))
    hostile = worse(
        key=key, summary=HOSTILE, notes=(HOSTILE,) * 3, compiler=HOSTILE, stored_compiler=f"{HOSTILE}2", log=HOSTILE,
        reproduce=HOSTILE, findings=(finding, replace(finding, fails=True)), occupancy=occupancy,
    )  # fmt: skip
    text = code_failure_text(hostile)
    assert len(text.split("\n")) == 1 + 1 + 2 + 3 + 1 + (1 + 2) + 2
    warned = replace(hostile, fails=False, verdict=Verdict.SAME)
    parts = [text, code_table([hostile]), code_line([hostile]), *code_warning_lines([warned])]
    assert all(len(line) <= 2 * TEXT_LIMIT for part in parts for line in part.split("\n"))
    assert [len(part.split("\n")) for part in parts[1:]] == [5, 1, 1, 1]
    assert not any(set(part) & set("\x1b\r\u202e") for part in parts)


def test_the_closing_line_counts_every_verdict() -> None:
    """Worst first, with how many of the same are unchanged, on which architectures."""
    results = [
        result(), result(config="b"), result(config="c", unchanged=False), worse(config="d", arch="gfx1100"),
        result(config="e", verdict=Verdict.NO_BASELINE, unchanged=False),
        result(config="f", verdict=Verdict.RIGHT),
        result(config="g", verdict=Verdict.ERROR, code=None, unchanged=False),
    ]  # fmt: skip
    expected = "code objects: 1 error, 1 worse, 1 without baseline, 3 same (2 unchanged), 1 tried, not gated"
    assert code_line(results) == f"{expected} on gfx942, gfx1100"
    assert code_line([worse()]) == "code objects: 1 worse on gfx942"
    assert code_line([result(unchanged=False)]) == "code objects: 1 same on gfx942"
    assert code_line([]) == ""


def test_what_was_executed_is_counted() -> None:
    """The closing line says what executing showed, the table in a column; neither of a run that executed nothing."""
    shown = [result(config=outcome, executed=CodeExecution(outcome)) for outcome in (RIGHT, RIGHT, NOT_EXECUTED, WRONG)]
    assert code_line(shown).endswith("on gfx942; executed: 1 wrong, 2 right, 1 not executed")
    assert "not executed" in code_table(shown)
    assert "executed" not in code_line([result()]) + code_table([result()])
    assert ("attnperf.executed", "wrong") in list_code_properties(shown[-1])


def test_no_verdict_of_a_code_object_is_missing() -> None:
    """The order has each verdict that the session gives, once, and none that needs a time."""
    needs_a_time = {
        *(Verdict.FASTER, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT),
        *(Verdict.MOVED, Verdict.DRIFT, Verdict.STALE, Verdict.GREW),
    }
    assert sorted(ORDER) == sorted(set(Verdict) - needs_a_time)
    line = code_line([result(config=verdict.value, verdict=verdict, unchanged=False) for verdict in ORDER])
    assert line.count("1 ") == len(ORDER)


def test_warnings_are_what_fails_nothing() -> None:
    """Findings of a kernel that passes are warned of; those of a failing one stand in its failure."""
    warned = result(findings=(LDS,), unchanged=False)
    assert code_warning_lines([warned, worse()]) == [f"warning: {KEY}: {LDS.text}"]
    assert code_warning_lines([result(), worse()]) == []


def test_what_a_trial_found_is_said() -> None:
    """A trial fails nothing, so that what would fail is a warning, too."""
    tried = worse(verdict=Verdict.RIGHT, fails=False)
    assert code_warning_lines([tried]) == [f"warning: {KEY}: {LDS.text}", f"warning: {KEY}: {SPILLS.text}"]


@pytest.mark.parametrize("count", [SHOWN_WARNINGS, SHOWN_WARNINGS + 1, 150])
def test_many_warnings_are_cut(count: int) -> None:
    """The first few are shown, and how many more there are."""
    lines = code_warning_lines(result(config=f"c{number}", findings=(LDS,)) for number in range(count))
    assert lines[:SHOWN_WARNINGS] == [
        f"warning: code_objects/triton.flash/c{number}/gfx942: {LDS.text}" for number in range(SHOWN_WARNINGS)
    ]
    more = count - SHOWN_WARNINGS
    assert lines[SHOWN_WARNINGS:] == ([f"warning: {more} more, see the results"] if more else [])


def test_junit_properties_are_what_is_known() -> None:
    """Every figure under a name with its unit, as plain numbers; 0 is known, None is not."""
    assert dict(list_code_properties(worse())) == {
        "attnperf.verdict": "WORSE",
        "attnperf.summary": "spills: 0 registers -> 140 VGPRs; warning: LDS: 32,768 B -> 65,536 B",
        "attnperf.kernel": "triton.flash",
        "attnperf.config": "d256",
        "attnperf.arch": "gfx942",
        "attnperf.compiler": "triton 3.9.0",
        "attnperf.isa_hash": "a1b2",
        "attnperf.vgprs": 104,
        "attnperf.agprs": 0,
        "attnperf.sgprs": 60,
        "attnperf.vgpr_spills": 0,
        "attnperf.sgpr_spills": 0,
        "attnperf.scratch_bytes": 0,
        "attnperf.lds_bytes": 16384,
        "attnperf.code_bytes": 9216,
        "attnperf.waves_per_simd": 4,
        "attnperf.reproduce": COMMAND,
    }
    broken = result(verdict=Verdict.ERROR, summary="died", code=None, occupancy=None, compiler="")
    assert [name for name, _ in list_code_properties(broken)] == [
        f"attnperf.{name}" for name in ("verdict", "summary", "kernel", "config", "arch")
    ]
    assert all(type(value) in (str, int, float) for _, value in list_code_properties(worse()))


def test_columns_have_names_of_their_own() -> None:
    """No two columns share a header."""
    assert len({column.column.header for column in COLUMNS}) == len(COLUMNS)

from __future__ import annotations

import functools
import html
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Verdict
from pytest_attnperf.records.code import CodeFinding, CodeResult
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.reports.files.markdown import (
    LEAST_BYTES,
    LIMIT_BYTES,
    format_marker,
    render_summary,
)
from pytest_attnperf.reports.run.joined import Joined, join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import MIX, sample_run

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

EVIL = (
    "a|b\\|c `x` ``` @octocat @org/team #12 o/r#3 GH-4 4f2c1ab90d11 <!-- pytest-attnperf: x --> </details></table>\n"
    "# PASSED\n| x |\n![i](https://a.b/i.png) [l](https://a.b) www.a.b a@b.c <img src=x onerror=alert(1)>"
    "\x1b[2J\u202e\u200b"
)
OURS = re.compile(r"</?(?:details|summary|code|span)>|<!-- pytest-attnperf: [\w ./-]+ -->")


def outside_of_fences(text: str) -> str:
    """The page without its blocks of code and the inside of its titles, where no Markdown is read."""
    text = re.sub("<summary>.*</summary>", "<summary></summary>", text)
    return re.sub(r"^(`{3,})(?:sh|text)\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def check_form(text: str) -> None:
    """Tags and tables are whole, and nothing but our own tags is HTML."""
    assert text.endswith("\n")
    assert "<" not in "".join(OURS.sub("", line) for line in re.findall("<summary>.*", text))
    plain = outside_of_fences(text)
    assert "```" not in plain.replace("\\`", "")
    assert plain.count("<details>") == plain.count("</details>") == plain.count("<summary>")
    depth = 0
    for tag in re.findall(r"^</?details>$", plain, re.MULTILINE):
        depth += -1 if "/" in tag else 1
        assert depth in (0, 1)
    assert "<" not in OURS.sub("", plain)
    columns = 0
    for line in plain.splitlines():
        strokes = len(re.findall(r"(?<!\\)\|", line))
        columns = (columns or strokes) if line.startswith("|") else 0
        assert not columns or (strokes == columns and line.endswith("|"))


@functools.cache
def sample(cases: int = 1) -> RunResult:
    """A run; of one case, if it is SLOWER."""
    return sample_run(cases, seed=3, verdicts=(Verdict.SLOWER,) if cases == 1 else MIX)


def evil_case(text: str, number: int = 0, **fields: object) -> CaseResult:
    """A case of which everything that may be foreign is."""
    (case,) = sample().cases
    case = replace(
        case,
        key=CaseKey(f"s{text}", f"b{text}", f"w{number}{text}", text),
        nodeid=text,
        summary=text,
        reasons=(text,),
        notes=(text,),
        reproduce=f"pytest --attnperf '{text}'",
        stored_commit=text,
        against=text,
        log=text,
    )
    return replace(case, **fields)  # type: ignore[arg-type]


def evil_run(text: str) -> RunResult:
    """Cases of several verdicts, and a run, a device and a kernel of foreign text."""
    verdicts = (Verdict.SLOWER, Verdict.INCORRECT, Verdict.UNDECIDED, Verdict.UNSUPPORTED, Verdict.SAME)
    key = CaseKey("code_objects", text, text, text)
    finding = CodeFinding("spills", True, text, text, text)
    return replace(
        sample(),
        version=text,
        mode=text,
        started=text,
        command=text,
        commit=text,
        against=text,
        device=DeviceInfo("cuda", text, text, text),
        cases=tuple(evil_case(text, number, verdict=verdict) for number, verdict in enumerate(verdicts)),
        findings=(text, text[::-1]),
        notes=(text,),
        fingerprint=Fingerprint({text: text}, {text: text}),
        device_state=DeviceState({"power_w": text}, {"power_w": text}, {text: 3.0}, (text,), (text,)),
        provenance={text: text, "ci_url": "https://evil.example/x"},
        code=(CodeResult(key, text, Verdict.WORSE, text, fails=True, findings=(finding,), reproduce=text),),
    )


def test_the_first_line_says_it_all(case: CaseFactory, run: RunFactory) -> None:
    """Verdict, counts, device and base are in the first line; the slowest case with its interval comes next."""
    same = case("hip.flash", verdict=Verdict.SAME, fails=False, ratio=1.001)
    first, _, second, *_ = render_summary(join_single(run(case(), same, against="main"))).splitlines()
    assert first == "### attnperf: FAILED: 1 slower, 1 same on `sm_90/h200` against `main`"
    assert second == (
        "Slowest: `prefill/triton.flash/prefill-b4-s512-h8-d256-f16-causal` +6.1 % "
        "(24.60 -> 26.10 us; 95 %: +5.2 % .. +7.0 %)."
    )


def test_findings_are_counted(case: CaseFactory, run: RunFactory) -> None:
    """In the plural where there are several."""
    for findings, title in ((("one",), "1 finding"), (("one", "two"), "2 findings")):
        assert f"<summary>{title}</summary>" in render_summary(join_single(run(case(), findings=findings)))


def test_what_compared_nothing_has_not_passed(case: CaseFactory, run: RunFactory) -> None:
    """The first line says what a run is that judged nothing."""
    recorded = case(verdict=Verdict.RECORDED, fails=False)
    for mode, word in (("update", "RECORDED"), ("baselines", "STORED BASELINES"), ("gate", "NOT COMPARED")):
        assert render_summary(join_single(run(recorded, mode=mode))).startswith(f"### attnperf: {word}: 1 recorded")


def test_runs_without_cases(run: RunFactory) -> None:
    """No run and no case are said, and are no pass."""
    assert render_summary(join_runs([])).startswith("### attnperf: NO CASES: no cases\n")
    text = render_summary(join_single(run()))
    assert text.startswith("### attnperf: NO CASES: no cases on `sm_90/h200`\n")
    assert "Nothing was compared with a baseline." in text
    check_form(text)


def test_what_is_wrong_is_a_table_worst_first(case: CaseFactory, run: RunFactory) -> None:
    """Failing cases before open ones, the slowest of a verdict first; what is well is not in the first table."""
    cases = [
        case("a", verdict=Verdict.SAME, fails=False),
        case("b", ratio=1.05, interval=(1.04, 1.06)),
        case("c", verdict=Verdict.UNDECIDED, fails=False, summary="needs a quieter device"),
        case("d", ratio=1.5),
        case("e", verdict=Verdict.INCORRECT, median_us=None, ratio=None, summary="'out' is wrong"),
    ]
    text = render_summary(join_single(run(*cases)))
    table = text.replace("\u00a0", " ").partition("\n<details>")[0].partition("| verdict")[2].splitlines()
    assert [re.findall(r"prefill/(\w)/", line) for line in table[2:]] == [["e"], ["d"], ["b"], ["c"]]
    assert table[4] == (
        "| **SLOWER** | `prefill/b/prefill-b4-s512-h8-d256-f16-causal` | +5.0 % (24.60 → 26.10 us) "
        "| +4.0 % .. +6.0 % | +2.0 % |  |"
    )
    assert table[5].endswith("| needs a quieter device |")
    check_form(text)


def test_a_slower_case_that_does_not_fail_is_shown(case: CaseFactory, run: RunFactory) -> None:
    """Where the policy only warns, what it warns of is still first."""
    text = render_summary(join_single(run(case(fails=False))))
    assert text.startswith("### attnperf: PASSED: 1 slower")
    assert "| SLOWER | `prefill/triton.flash/" in text.partition("<details>")[0]


def test_details_hold_everything(case: CaseFactory, run: RunFactory) -> None:
    """All cases, findings, provenance, conditions and commands to repeat it are there, each behind a click."""
    made = run(
        case(),
        case("b", verdict=Verdict.SAME, fails=False),
        findings=("a case vanished",),
        fingerprint=Fingerprint({"arch": "sm_90"}, {"torch": "2.11.0"}),
        device_state=DeviceState(other_processes=("77 python",)),
        provenance={"branch": "main"},
        notes=("a note",),
    )
    text = render_summary(join_single(made))
    titles = re.findall("<summary>(.*)</summary>", text)
    assert titles == [
        "<code>prefill</code> on <code>sm_90/h200</code>: 1 slower, 1 same",
        "how to explain or accept",
        "how to reproduce",
        "1 finding",
        "provenance and conditions",
    ]
    assert "| SAME | `b/prefill-b4-s512-h8-d256-f16-causal` |" in text
    for part in ("- a case vanished", "commit 4f2c1ab,", "torch 2.11.0", "branch `main`", "77 python", "- a note"):
        assert part in text
    assert '```sh\npytest --attnperf "suites/test_prefill.py::test_prefill[triton.flash-prefill-b4' in text


def test_a_suite_s_rows_have_its_own_unit_and_columns(case: CaseFactory, run: RunFactory) -> None:
    """Microseconds of one suite stay microseconds beside another's milliseconds, under the headings above them."""
    key = CaseKey("decode", "hip.decode", "decode-b1-kv9-h2-d16-f16")
    slow = {"median_us": 3500.0, "baseline_us": None, "ratio": None, "interval": None, "threshold": None}
    made = run(
        case(verdict=Verdict.SAME, fails=False, summary=""),
        case(key=key, verdict=Verdict.NO_BASELINE, fails=False, summary="none", **slow),
    )
    details = render_summary(join_single(made)).replace("\u00a0", " ").partition("<details>")[2]
    tables = re.findall(r"^\| verdict .*\n\|.*\n\| .*$", details, re.MULTILINE)
    cells = [[[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()] for table in tables]
    found = [dict(zip(heads, row, strict=True)) for heads, _, row in cells]
    by_case = {row["case"].partition("/")[0]: row for row in found}
    assert by_case["`triton.flash"]["change (before → now)"] == "+6.1 % (24.60 → 26.10 us)"
    assert by_case["`hip.decode"]["time"] == "3.500 ms"
    assert "95 %" not in by_case["`hip.decode"]


def test_several_devices(case: CaseFactory, run: RunFactory) -> None:
    """Each device has a line and a table, cases say theirs, and a case told twice is a finding."""
    other = run(case(verdict=Verdict.SAME, fails=False), device=DeviceInfo("rocm", "gfx942", "mi300x"))
    text = render_summary(join_runs([("a.json", run(case())), ("b.json", other), ("c.json", run(case()))]))
    assert text.startswith("### attnperf: FAILED: 1 slower, 1 same on `sm_90/h200`, `gfx942/mi300x`")
    assert "\n- `sm_90/h200`: 1 slower\n- `gfx942/mi300x`: 1 same\n" in text
    assert "| verdict | case | device | change (before → now) |" in text
    assert text.count("<summary><code>prefill</code> on") == 2
    assert "occurs twice, SLOWER in a.json and SLOWER in c.json" in text


def test_compiled_kernels(run: RunFactory) -> None:
    """A kernel that became worse fails the whole, and stands in the first table with what was found."""
    key = CaseKey("code_objects", "triton.flash", "BLOCK_M=128", "gfx942")
    finding = CodeFinding("spills", True, "0", "4", "4 VGPRs are spilled, 0 before")
    worse = CodeResult(key, "n", Verdict.WORSE, "worse", fails=True, findings=(finding,), reproduce="pytest -k x")
    text = render_summary(
        join_single(run(code=(worse, replace(worse, key=replace(key, backend="b"), verdict=Verdict.SAME, fails=False))))
    )
    assert text.startswith("### attnperf: FAILED: code objects: 1 worse, 1 same on gfx942\n")
    assert (
        "| **WORSE** | `code_objects/triton.flash/BLOCK_M=128/gfx942` | 4 VGPRs are spilled, 0 before |"
        in text.partition("<details>")[0]
    )
    assert "compiled kernels: 1 worse, 1 same" in text
    check_form(text)


@pytest.mark.parametrize("limit", [LEAST_BYTES, 5_000, 20_000, LIMIT_BYTES])
@pytest.mark.parametrize("link", ["", "https://ci.example/run/7?x=1&y=2"])
def test_what_does_not_fit_is_counted(limit: int, link: str) -> None:
    """Whole rows are left out, the worst are kept, the verdict always, and the number of the others is right."""
    joined = join_single(sample(250))
    text = render_summary(joined, limit_bytes=limit, link=link)
    assert len(text) <= len(text.encode()) <= limit
    assert text.startswith("### attnperf: FAILED: ")
    check_form(text)
    tables = re.split(r"^\| :--.*\n", text, flags=re.MULTILINE)[1:]
    assert tables[0].startswith("| **INCORRECT** |")
    left_out = [int(count) for count in re.findall(r"_(\d+) more rows are in the \[?report", text)]
    counted = [table.partition("\n\n")[0].partition("</details>")[0].count("| `") for table in tables]
    if limit < LIMIT_BYTES:
        assert left_out
    if len(tables) == 2:
        assert counted[1] + (left_out[-1] if counted[1] < 250 else 0) == 250
    assert (f"[report]({link})" in text) is bool(link)


@pytest.mark.parametrize("limit", [LEAST_BYTES + 30, LIMIT_BYTES])
@pytest.mark.parametrize("text", [EVIL, EVIL * 500, "`" * 100_000, "@" * 300, "|", "\\", "", "\ud800"])
def test_foreign_text_is_only_shown(text: str, limit: int) -> None:
    """Nothing in any field ends a cell or a tag, is an image or a link, names anybody, or gets beyond the limit."""
    made = render_summary(join_runs([(text, evil_run(text)), (text, evil_run(text))]), limit_bytes=limit, title=text)
    assert len(made.encode()) <= limit
    assert made.startswith("### ")
    assert ": FAILED: 1 incorrect, 1 slower" in made.splitlines()[0]
    assert "<!--" not in made
    check_form(made)
    plain = outside_of_fences(made)
    outside_of_code = html.unescape(re.sub(r"`[^`\n]*`|<code>.*?</code>", "", plain.replace("\\`", "")))
    assert not re.search(r"@\w|\bGH-\d|#\d|://|\bwww\.|(?<!\\)!?\[", outside_of_code)
    assert "\x1b" not in made
    assert "\u202e" not in made


def test_odd_commands_are_not_shown(case: CaseFactory, run: RunFactory) -> None:
    """Half a command, or one that looks unlike what it is, is not offered for copying; others are."""
    cases = (case("a", reproduce="pytest\nrm -rf /"), case("b", reproduce="x" * 9_000), case("c", reproduce="pytest c"))
    text = render_summary(join_single(run(*cases)))
    assert "```sh\npytest c\n```" in text
    assert "rm -rf" not in text
    assert "how to reproduce the worst 1 of 3" in text


def test_the_marker() -> None:
    """A name finds its comment again; one that could end the marker, or hold a second one, is refused."""
    assert format_marker("sm_90/h200 nightly-2") == "<!-- pytest-attnperf: sm_90/h200 nightly-2 -->"
    for name in ("", "a--b", "a -->", "a\nb", "-", " a", "a ", "x" * 200, "<b>"):
        with pytest.raises(UsageError, match="a comment's name is "):
            format_marker(name)


def test_refused_arguments() -> None:
    """A limit that the verdict may not fit, and a link that is none, are refused by value."""
    with pytest.raises(UsageError, match="limit_bytes is 10; give at least 3000, for the verdict alone"):
        render_summary(join_runs([]), limit_bytes=10)
    for link in ("javascript:alert(1)", "https://a.b/)x", "https://a b"):
        with pytest.raises(UsageError, match="must be an http"):
            render_summary(join_runs([]), link=link)
    assert "The whole [report](report.html)." in render_summary(join_runs([]), link="report.html")


def test_the_same_runs_give_the_same_text() -> None:
    """No time, no order of a set, gets into the page."""
    joined: Joined = join_single(sample(250))
    assert render_summary(joined) == render_summary(joined)


def test_thousands_of_cases_are_quick() -> None:
    """Only rows that are shown are made."""
    run = sample(250)
    cases = tuple(replace(case, key=replace(case.key, label=str(n))) for n in range(12) for case in run.cases)
    joined = join_single(replace(run, cases=cases))
    started = time.process_time()
    text = render_summary(joined)
    assert time.process_time() - started < 2
    assert len(text.encode()) <= LIMIT_BYTES


def test_quarantined_cases_have_a_part_of_their_own(case: CaseFactory, run: RunFactory) -> None:
    """They are counted and listed with issue and date, not among what is open, and no text of theirs is a link; a test
    that fails because its quarantine is over says so beside its figures."""
    held = case("a", fails=False, quarantined=f"{EVIL} until 2026-02-10")
    text = render_summary(join_single(run(held, case("b", verdict=Verdict.SAME, fails=False))))
    check_form(text)
    assert text.startswith("### attnperf: PASSED: 1 quarantined, 1 same on ")
    assert "<summary>1 quarantined case</summary>" in text
    assert text.index("quarantined case") > text.index("prefill")
    assert not text.partition("<details>")[0].count("SLOWER")
    over = case("c", summary="quarantine expired on 2026-02-10: x", policy={"quarantine": "x"})
    assert "quarantine expired on 2026-02-10: x" in render_summary(join_single(run(over)))


def test_microseconds_stand_beside_each_change(case: CaseFactory, run: RunFactory) -> None:
    """In the table of the worst, in that of all, and in the picture; a case without a baseline has its time alone."""
    new = case("b", verdict=Verdict.NO_BASELINE, fails=False, baseline_us=None, ratio=None, interval=None)
    text = render_summary(join_single(run(case(), new))).replace("\u00a0", " ")
    assert text.count("| +6.1 % (24.60 → 26.10 us) |") == 2
    assert text.count("| 26.10 us |") == 2
    assert "+6.1 %  24.60 -> 26.10 us  prefill/triton.flash/" in text


@pytest.mark.parametrize(
    ("verdict", "ratio", "parts"),
    [
        (Verdict.SAME, 1.0, (False, False)),
        (Verdict.UNDECIDED, 1.03, (True, True)),
        (Verdict.NO_BASELINE, None, (False, True)),
    ],
)
def test_runs_of_one_verdict(
    verdict: Verdict, ratio: float | None, parts: tuple[bool, bool], case: CaseFactory, run: RunFactory
) -> None:
    """Without a change there is no picture, with nothing open nothing to explain, and no empty block is left."""
    cases = [
        case(str(number), verdict=verdict, fails=False, ratio=ratio, interval=None, stored_us=()) for number in range(3)
    ]
    text = render_summary(join_single(run(*cases)))
    assert ("```text" in text, "how to explain or accept" in text) == parts
    assert not re.search(r"^```\w+\n```$", text, re.MULTILINE)
    check_form(text)


def test_ten_thousand_cases(case: CaseFactory, run: RunFactory) -> None:
    """The picture keeps its few lines, and counts the rest; the text keeps its limit."""
    cases = [case(f"b{number}", ratio=1.0 + number / 1e4) for number in range(1, 10_001)]
    text = render_summary(join_single(run(*cases)))
    assert len(text.encode()) <= LIMIT_BYTES
    picture = re.search("^```text\n.*?^```$", text, re.MULTILINE | re.DOTALL)
    assert picture is not None
    assert picture[0].count("\n") + 1 == 29
    assert "(9976 more between)" in picture[0]
    assert "\n_9976 more cases are in the report_\n" in text
    assert "how to explain or accept the worst 5 of 10000" in text
    check_form(text)

"""The page on profiling has commands that exist: ours as the parser takes them, rocprofv3's as its source has them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import build_whole_parser, main
from pytest_attnperf.records.rooflines import BoundClass
from pytest_attnperf.tools.profilers.file_forms import FORMS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "profiling.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROOFLINE = ROOT / "docs" / "roofline.md"

OPTIONS = {
    **dict.fromkeys(("--kernel-trace", "--memory-copy-trace", "--hip-trace", "--stats", "--output-format"), "6.2"),
    **dict.fromkeys(("-d", "-o", "-i", "-L", "-M", "-T", "--truncate-kernels"), "6.2"),
    **dict.fromkeys(("--kernel-include-regex", "--kernel-exclude-regex", "--kernel-iteration-range"), "6.3"),
    **dict.fromkeys(("--pmc", "--list-avail"), "6.3"),
    "--version": "7.0",
}
"""The first ROCm whose source/bin/rocprofv3.py has the option.

6.2: ROCm/rocprofiler-sdk, tag rocm-6.2.0 (b2b99d4). Of ROCm/rocm-systems: 6.3: eb15bcd, the last commit of SDK 0.5.0;
6.4: 1461695, the last of 0.6.0; 7.0: branch release/rocm-rel-7.0 (64cf36d).
"""

FORMATS = {"csv": "6.2", "rocpd": "7.0"}
"""Values of --output-format, from the same files."""

GFX9, GFX94, GFX11, GFX12 = "gfx90a", "gfx94x", "gfx1100 to gfx1102", "gfx1200, gfx1201"
EVERYWHERE = frozenset({GFX9, GFX94, GFX11, GFX12})
MATRIX = frozenset({GFX9, GFX94})
COUNTERS = {
    **dict.fromkeys(("FETCH_SIZE", "SQ_WAVES", "LDSBankConflict", "GRBM_GUI_ACTIVE"), EVERYWHERE),
    **dict.fromkeys(("WRITE_SIZE", "OccupancyPercent"), EVERYWHERE - {GFX12}),
    "L2CacheHit": EVERYWHERE - {GFX94},
    **dict.fromkeys(("TCC_HIT_sum", "TCC_MISS_sum", "MfmaUtil", "MfmaFlopsF16"), MATRIX),
}
"""Where counter_defs.yaml of release/rocm-rel-7.0 (64cf36d) defines each; gfx94x where gfx942 and gfx950 both do."""


def fenced(text: str) -> list[str]:
    """Commands of the bash blocks, a line each."""
    return [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines() if line]


def inline(text: str) -> list[str]:
    """What stands in single backticks outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def own_commands() -> list[str]:
    """Commands of ours with arguments, from blocks, from behind a profiler's `--`, and from the text."""
    behind = [line.rpartition(" -- ")[2] if line.startswith("rocprofv3") else line for line in fenced(TEXT)]
    return [line for line in dict.fromkeys([*behind, *inline(TEXT)]) if re.match(r"attnperf [\w-]+ ", line)]


def section(name: str) -> str:
    """The text below a heading of the second level."""
    return re.split(r"^## ", TEXT.partition(f"\n## {name}")[2], maxsplit=1, flags=re.MULTILINE)[0]


def options_of(command: str) -> list[str]:
    """Options of rocprofv3 in a command: those before `--`."""
    return [word for word in command.partition(" -- ")[0].split()[1:] if word.startswith("-")]


@pytest.mark.parametrize("command", own_commands())
def test_our_commands_are_taken(command: str) -> None:
    """Every command of ours on the page is one that the parser takes."""
    words = shlex.split(command)[1:]
    assert build_whole_parser().parse_args(words).command == words[0]


def test_the_page_shows_every_way_in() -> None:
    """A profile alone, a second one, claims, JSON, Markdown, a rocpd database, a trace, and a backend on its own."""
    said = " ; ".join(own_commands())
    wanted = (
        "profile out ",
        "--against",
        "--claims",
        "--json",
        "--markdown",
        "_results.db",
        "trace.json",
        "kernel run",
    )
    assert [part for part in wanted if part not in f"{said} "] == []


def test_options_of_rocprofv3_exist_in_the_version() -> None:
    """Below a version's heading every option and format is one that this version has."""
    parts = re.split(r"<!-- rocprofv3: ([\d.]+) -->", section("Recording with rocprofv3"))
    versions = dict(zip(parts[1::2], (part.partition("\n### ")[0] for part in parts[2::2]), strict=True))
    assert list(versions) == ["6.2", "6.3", "7.0"]
    for version, text in versions.items():
        commands = [line for line in fenced(text) if line.startswith("rocprofv3 ")]
        assert commands, version
        for command in commands:
            used = [OPTIONS[option] for option in options_of(command)]
            used += [FORMATS[name] for name in re.findall(r"--output-format (\w+)", command)]
            assert [since for since in used if since > version] == [], command


def test_every_option_of_rocprofv3_has_a_source() -> None:
    """Options on the page, in commands and in the text on recording and counters, are in the list, and none is left."""
    text = section("Recording with rocprofv3") + section("Counters")
    named = {word for word in inline(text) if re.fullmatch(r"--?[A-Za-z][\w-]*", word)}
    quoted = [*fenced(TEXT), *inline(TEXT)]
    named |= {option for line in quoted if line.startswith("rocprofv3 ") for option in options_of(line)}
    ours = {"--no-check"}
    assert named - ours == set(OPTIONS)


def test_counters_are_where_the_table_has_them() -> None:
    """Each counter stands in the columns of the architectures that define it, and in no other."""
    lines = TEXT.partition("<!-- counters: begin -->\n")[2].partition("<!-- counters: end -->")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found: dict[str, set[str]] = {}
    for row in cells[2:]:
        for column, cell in zip(cells[0], row, strict=True):
            for counter in inline(cell):
                found.setdefault(counter, set()).add(column)
    for pair in ("TCC_HIT_sum", "TCC_MISS_sum"):
        # On gfx90a the table has the quotient, which rocprofv3 computes there.
        assert found.pop(pair) == {GFX94}
    assert found == {name: where for name, where in COUNTERS.items() if name in found}
    assert set(COUNTERS) - set(found) == {"TCC_HIT_sum", "TCC_MISS_sum"}


def test_files_of_the_table_are_read() -> None:
    """Each CSV of the table of files is one whose ending a reader knows."""
    endings = {ending for form in FORMS for ending in form.endings}
    named = re.findall(r"`\*_(\w+)\.csv`", section("What each file answers"))
    assert len(named) == 8
    assert set(named) <= endings


def test_bound_classes_are_those_of_the_code() -> None:
    """The table of classes that the page links to has each class once, in the words that are printed."""
    assert "](roofline.md)" in section("Reading it")
    classes = ROOFLINE.read_text(encoding="utf-8").partition("\n## The class")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w/ -]+) \| [^|]+ \| that ", classes, re.MULTILINE)
    assert sorted(rows) == sorted(bound.value for bound in BoundClass)


def test_files_and_links_exist() -> None:
    """Pages and files of this repository that the page names are there."""
    links = [link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT)]
    named = [name for name in inline(TEXT) if name.startswith("pytest_attnperf/")]
    assert links
    assert named
    assert [link for link in links if not (PAGE.parent / link).is_file()] == []
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("shown", re.findall(r"```text\n\$ (attnperf .*?)```", TEXT, re.DOTALL))
def test_outputs_are_what_is_printed(
    shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output on the page is what its command prints on 120 columns; '...' stands for lines that are left out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    command, _, output = shown.partition("\n")
    assert main(shlex.split(command)[1:]) in (0, 1)
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    parts = [part for part in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE) if part]
    assert parts
    at = 0
    for part in parts:
        assert part in printed
        at = printed.index(part, at) + len(part)


def test_the_page_shows_a_profile_a_comparison_and_claims() -> None:
    """There is an output for each way of reading a profile."""
    shown = section("Reading it") + section("Claims of a report")
    assert len(re.findall(r"```text\n\$ attnperf profile ", shown)) == 3
    assert "<!-- output" not in TEXT

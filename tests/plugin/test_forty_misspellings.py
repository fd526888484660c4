"""What a user may misspell: every message names the right word, in one line, with pytest's or the command's status."""

from __future__ import annotations

import contextlib
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

MARKERS = {
    "family": ("family='prefil', workloads=W", "known: prefill"),
    "family_of_rows": ("family='row_sofmax', workloads=W", "known: row_softmax"),
    "backend": ("**PAIR, backends=['fake.flsh']", "known: fake.flash"),
    "without": ("**PAIR, without=['fake.flahs']", "known: fake.flash"),
    "workloads": ("family='prefill', workload=W", "did you mean 'workloads'?"),
    "backends": ("**PAIR, backend=['fake.a']", "did you mean 'backends'?"),
    "threshold": ("**PAIR, treshold=0.1", "did you mean 'threshold'?"),
    "breakdown": ("**PAIR, brakedown=True", "did you mean 'breakdown'?"),
    "quarantine": ("**PAIR, quarantene='#1'", "did you mean 'quarantine'?"),
    "timed": ("**PAIR, time=False", "did you mean 'timed'?"),
    "label": ("**PAIR, lable='x'", "did you mean 'label'?"),
    "floor": ("**PAIR, floor_ms=3", "did you mean 'floor_us'?"),
    "tier": ("**PAIR, tier='nightli'", "did you mean 'nightly'?"),
    "id_family": ("family='prefill', workloads=['prefil-b1-s64-h1-d16-f16']", "not with 'prefill'"),
    "id_flag": ("family='prefill', workloads=[W[0] + '-casual']", "did you mean 'causal'?"),
    "id_dtype": ("family='prefill', workloads=['prefill-b1-s64-h1-d16-bf61']", "did you mean 'bf16'?"),
    "id_number": ("family='prefill', workloads=['prefill-b1-s64-hh1-d16']", "did you mean 'h'?"),
    "nightly": ("**PAIR, nightly=['prefill-b1-s65-h1-d16-f16']", f"it has: {WORKLOAD}"),
}
"""Name -> a marker with one misspelt word, and the words that name the right one."""

FIXTURES = {"attnperff": "attnperf", "worklod": "workload", "backendd": "backend", "gpu_timmer": "gpu_timer"}
"""Misspelt fixture -> the right one."""

CALLS = {
    "refrence": "did you mean 'reference'?",
    "input": "did you mean 'inputs'?",
    "tolerence": "did you mean 'tolerance'?",
    "inplace": "did you mean 'in_place'?",
    "flop": "did you mean 'flops'?",
    "cachestate": "did you mean 'cache_state'?",
}
"""Misspelt argument of `attnperf.gate` -> the words that name the right one."""

OPTIONS = {
    "--attnperf-backend=fake.flsh": "known: fake.flash",
    "--attnperf-backend=kafe": "known: fake.a",
    "--attnperf-workload=prefil-b1-s64-h1-d16-f16": "known: prefill",
    "--attnperf-workload=b=1,s=64,hh=1,d=16": "did you mean 'h'?",
    "--attnperf-workload=prefill-b1-s64-h1-d16-casual": "did you mean 'causal'?",
    "--attnperf-timer=grph": "did you mean 'graph'?",
    "--attnperf-timer=host_cld": "did you mean 'host_cold'?",
    "--attnperf-device=gup": "did you mean 'gpu'?",
    "--attnperf-tier=nightli": "did you mean 'nightly'?",
    "--attnperf-isolate=bakend": "did you mean 'backend'?",
    "--attnperf-budget=10minutes": "e.g. 90s, 10m or 1h",
    "--attnperf-override=treshold=0.1": "'threshold'",
}
"""Option with a misspelt value -> the words that name the right one."""

COMMANDS = {
    "reprot": "did you mean 'report'?",
    "explian": "did you mean 'explain'?",
    "histroy": "did you mean 'history'?",
    "docter": "did you mean 'doctor'?",
    "run_kernel x": "did you mean 'kernel'?",
    "mergebaselines": "did you mean 'baselines'?",
    "report x --markdwn f": "did you mean --markdown?",
    "report x --colour always": "did you mean --color?",
    "explain a --reslts x": "did you mean --results?",
    "doctor --quik": "did you mean --quick?",
    "history --plt x": "did you mean --plot?",
    "report reslts.json": "did you mean results.json?",
    "compare reslts.json results.json": "did you mean results.json?",
    "explain --results reslts.json": "did you mean results.json?",
    "gate --results reslts.json": "did you mean results.json?",
    "merge --out o.json reslts.json": "did you mean results.json?",
    "accept a --reason b --from reslts.json": "did you mean results.json?",
    "dispatch reslts.json": "did you mean results.json?",
    "profile trce.json": "did you mean trace.json?",
    "history --import reslts.json": "did you mean results.json?",
    "list famlies": "known: families",
}
"""Words of a command -> the words that name the right one."""


def _write_suite(project: FakeProject) -> None:
    lines = ["import pytest", f"W = [{WORKLOAD!r}]", "PAIR = {'family': 'prefill', 'workloads': W}"]
    for name, (marker, _) in MARKERS.items():
        lines += [f"@pytest.mark.attnperf({marker})", f"def test_{name}(attnperf, backend, workload):"]
        lines += ["    attnperf.run(backend, workload)"]
    lines += [f"def test_{name}({name}):\n    pass" for name in FIXTURES]
    lines += [
        f"def test_{name}(attnperf):\n    attnperf.gate('mine', print, reference=print, inputs=print, {name}=1)"
        for name in CALLS
    ]
    (project.path / "suites" / "test_prefill.py").write_text("\n".join(lines))


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Two backends."""
    for name in ("fake.a", "fake.flash"):
        attnperf_project.backend(name)
    return attnperf_project


def test_a_misspelt_word_of_a_test_fails_that_test_alone(project: FakeProject) -> None:
    """Each is one failure of one line that has the right word."""
    _write_suite(project)
    result = project.run("--junitxml=report.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=len(MARKERS) + len(FIXTURES), failed=len(CALLS))
    said = {}
    for case in ET.parse(project.path / "report.xml").iter("testcase"):
        said[case.get("name", "").removeprefix("test_")] = "".join(part.text or "" for part in case)
    right = {name: says for name, (_, says) in MARKERS.items()} | CALLS
    assert {name: said[name] for name, says in right.items() if says not in said[name]} == {}
    for wrong, name in FIXTURES.items():
        assert f"fixture '{wrong}' not found" in said[wrong]
        assert name in said[wrong].partition("available fixtures: ")[2].replace("\n>", ",").split(", ")
    for name in MARKERS:
        assert len(said[name].splitlines()) == 1, said[name]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_misspelt_value_of_an_option_is_one_line(option: str, project: FakeProject) -> None:
    """With pytest's status for a usage error, before any test runs."""
    result = project.run("--attnperf", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert OPTIONS[option] in line


def test_an_architecture_is_named_by_the_nearest() -> None:
    """Compiled kernels are asked for by it."""
    with pytest.raises(CodeObjectError, match=r"'gfx94' are not known \(did you mean 'gfx942'\?\); known: gfx906, "):
        limits_of("gfx94")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_misspelt_word_of_a_command_is_named(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command, an option or a file: status 2, and neither a traceback nor a number of the system's error."""
    monkeypatch.chdir(tmp_path)
    for name in ("results.json", "trace.json"):
        (tmp_path / name).write_text('{"schema": 4}')
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(words.split())
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else -1
    assert status == 2
    assert COMMANDS[words] in said.getvalue()
    assert "Errno" not in said.getvalue()

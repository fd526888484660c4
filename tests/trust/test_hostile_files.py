"""Files that once did what no file may: each found by benchmarks/fuzz_files.py, and cut to what is needed."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import zlib
from dataclasses import replace
from email.message import Message
from pathlib import Path

import pytest

from kernels.configs import KernelConfigError, Space
from pytest_attnperf.baselines.ceilings_store import read_ceilings
from pytest_attnperf.cli.program import main as cli
from pytest_attnperf.codeobject import built
from pytest_attnperf.codeobject.object_manifest import read_manifest
from pytest_attnperf.errors import AttnperfError, CodeObjectError, UsageError, WorkloadError, quote_nodeid
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.text.figures import format_bytes
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.ci import github
from pytest_attnperf.tools.ci.comments import fetch_login, parse_stamp
from pytest_attnperf.tools.ci.pulls import fetch_pull
from pytest_attnperf.tools.profilers.contradictions import _half_digit
from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.workers import protocol
from pytest_attnperf.workers.command_plan import StartLine
from pytest_attnperf.workers.protocol import Channel, MalformedMessageError
from pytest_attnperf.workloads.families import FAMILIES, parse_workload, workloads_from_text

DEEP = b"[" * 100_000
MANY_DIGITS = b"9" * 5_000
NO_UTF8 = b"b=1,s=\xff"
LONG = b"b=1,s=" + b"A" * 100_000


@pytest.mark.parametrize("name", ["w.csv", "w.jsonl"])
@pytest.mark.parametrize("content", [NO_UTF8, DEEP, MANY_DIGITS, LONG, b"b=1,s=" + MANY_DIGITS, b'"\n', b"\0"])
def test_a_file_of_workloads(tmp_path: Path, name: str, content: bytes) -> None:
    """Other letters than UTF-8, nesting, numbers without end, one long line: refused in a message that can be read."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WorkloadError) as refused:
        workloads_from_text(str(tmp_path / name), FAMILIES.get("prefill"))
    assert len(str(refused.value)) < 3_000 + len(str(tmp_path))


@pytest.mark.parametrize("text", ["prefill-" + "b" * 100_000, "f" * 15_000, "prefill-b" + "9" * 5_000])
def test_a_workload_id(text: str) -> None:
    """One without end, an unknown family of any length, a number of 5,000 digits."""
    with pytest.raises(UsageError) as refused:
        parse_workload(text)
    assert len(str(refused.value)) < 3_000


@pytest.mark.parametrize("content", [DEEP, MANY_DIGITS, b'{"schema": ' + MANY_DIGITS + b"}"])
def test_json_that_exhausts_its_reader(tmp_path: Path, content: bytes) -> None:
    """Nesting and numbers without end: rules of kernel families, a tuning journal, a comment, a configuration."""
    (tmp_path / "rules.json").write_bytes(content)
    with pytest.raises(UsageError, match="is no JSON"):
        FamilyRules.load(tmp_path / "rules.json")
    start = b'{"attnperf_tune_journal": 1, "header": {}}\n'
    for number, lines in enumerate((content + b"\n", start + content + b"\n")):
        (tmp_path / f"{number}.jsonl").write_bytes(lines)
        with pytest.raises(UsageError):
            TrialJournal.open(tmp_path / f"{number}.jsonl", {})
    assert parse_stamp(f"<!-- attnperf-run: {{{content.decode()}}} -->") is None
    assert parse_stamp('<!-- attnperf-run: {"sha": "", "run": Infinity, "attempt": 1, "measured": 1} -->') is None
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "default.json").write_bytes(content)
    with pytest.raises(KernelConfigError):
        Space("k", {}, (), tmp_path).load_rules("gfx942")


@pytest.mark.parametrize("part", ["when", "config"])
def test_a_rule_of_a_configuration_is_made_of_objects(tmp_path: Path, part: str) -> None:
    """A list where a rule's conditions or values should be is named."""
    rule = {"when": {}, "config": {}, "source": "s", part: []}
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "default.json").write_text(json.dumps({"schema": 2, "rules": [rule]}))
    with pytest.raises(KernelConfigError, match=rf"{part} must be an object, got list"):
        Space("k", {}, (), tmp_path).load_rules("gfx942")


def _sent(line: bytes) -> Channel:
    """A channel on which this was sent, and its other end closed."""
    reading, writing = os.pipe()
    os.write(writing, line)
    os.close(writing)
    return Channel.from_fds(reading, os.open(os.devnull, os.O_WRONLY))


def test_a_line_from_behind_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nesting without end is no message, and neither is a line without end: a container must not fill our memory."""
    for line in (b"[" * 60_000 + b"\n", MANY_DIGITS + b"\n"):
        with pytest.raises(MalformedMessageError):
            _sent(line).receive(5.0)
    monkeypatch.setattr(protocol, "_CHUNK", 8)
    channel = _sent(b'{"a": 1}\n{"b": "long enough"}\n')
    assert [channel.receive(5.0), channel.receive(5.0)] == [{"a": 1}, {"b": "long enough"}]
    monkeypatch.setattr(protocol, "MESSAGE_BYTES_MOST", 100)
    with pytest.raises(MalformedMessageError, match="a message between worker and controller is longer than 100 bytes"):
        _sent(b"a" * 300).receive(5.0)


def test_an_object_that_unpacks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that claim to be gigabytes are damaged, as one that was cut short is; a sound one comes back."""
    monkeypatch.setattr(built, "UNPACKED_BYTES_MOST", 1_000)
    assert built.unpack_bytes(built.pack_bytes(b"x" * 999), "it") == b"x" * 999
    whole = zlib.compress(b"\0" * 10_000)
    for data in (whole, zlib.compress(b"ab" * 100)[:-6]):
        with pytest.raises(CodeObjectError, match="it came back damaged"):
            built.unpack_bytes(base64.b64encode(data).decode(), "it")


def test_messages_are_short_whatever_a_file_holds(tmp_path: Path) -> None:
    """A manifest of objects, ceilings, a worker's first line: no message repeats 100,000 letters of them."""
    long = "A" * 100_000
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "arch": "a", "objects": [{long: 1}]}))
    (tmp_path / "1.json").write_text(json.dumps({"schema": 1, "ceilings": {"arch": "a", "product": "b",
                                     "compute_units": 1, "processes": 1}, long: 1}))  # fmt: skip
    reads = (
        lambda: read_manifest(tmp_path, "a"),
        lambda: read_ceilings(tmp_path / "1.json"),
        lambda: StartLine.parse(json.dumps({"start": {"name": "n", "files": long}}).encode()),
    )
    for read in reads:
        with pytest.raises(AttnperfError) as refused:
            read()
        assert len(str(refused.value)) < 2_000 + 3 * len(str(tmp_path))


@pytest.mark.parametrize("body", ["[]", "3", "{}", '{"number": "x"}', '{"number": 1, "head": "h"}', '{"errors": 1.5}'])
@pytest.mark.parametrize("status", [200, 422])
def test_an_answer_that_is_not_githubs(monkeypatch: pytest.MonkeyPatch, body: str, status: int) -> None:
    """JSON of another form, as a proxy may give it, is a GitHubError."""
    monkeypatch.setattr(github.GitHub, "_send_once", lambda *_: github._Answer(status, Message(), body.encode()))
    client = github.GitHub("token")
    for ask in (lambda: fetch_pull(client, "o/r", 1), lambda: fetch_login(client)):
        with pytest.raises(github.GitHubError):
            ask()
    if status == 200:
        assert list(client.list_items("x")) == []


def test_figures_that_no_device_has() -> None:
    """More bytes than fit a float, a percentage below nothing."""
    assert format_bytes(10**400) == "2^1308 or more"
    assert format_bytes(2**21) == "2.0"
    assert _half_digit(-1.5) == 0.0


def test_columns_of_a_profile_are_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem beside a comparison repeats a column's name without what a terminal acts on."""
    monkeypatch.chdir(tmp_path)  # a long folder's name is wrapped, and the word "problem" with it
    sound = (
        'Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,"\x1b[2J"\n"k",1,10,10,100,10,10,1\n"j",x,,,,,,\n'
    )
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(sound)
    assert cli(["profile", "a.csv", "--against", "b.csv"]) == 0
    said = capsys.readouterr().out
    assert "problem: " in said
    assert "\x1b" not in said


def test_a_database_with_a_damaged_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite quotes the name in a message that Python cannot decode: damaged, and said so."""
    path = tmp_path / "a.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rocpd_kernel_dispatch (id INTEGER)")
    connection.commit()
    connection.close()
    damaged = path.read_bytes().replace(b"TABLE rocpd_k", b"TABLE rocpd_\xc5")
    path.write_bytes(damaged)
    assert cli(["profile", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


READERS = {
    "report": "report {}", "compare": "compare {} {}", "dispatch": "dispatch {}", "stages": "report --by stage {}",
    "ladder": "report --by step {}", "profile": "profile {}", "claims": "profile --claims {}",
    "gate": "gate --results {}",
    "import": "history --import {}", "merge": "report {} --out o.json", "driver": "baselines merge {} {} {}",
    "rewrite": "baselines merge --rewrite {}", "explain": "explain --results {}", "occupancy": "occupancy {}",
    "accept": "baselines accept X --results {} --reason r --author a", "device": "doctor --calibrate --against {}",
    "comment": "report --comment --repo o/r --pull 1 --run-number 1 --dry-run --verdict passed --comment-text {}",
}  # fmt: skip
"""Commands that read the file in place of {}."""


@pytest.mark.parametrize("command", READERS)
def test_a_pipe_keeps_no_command_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A pipe in place of a file is refused at once by every command that reads one."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("f.json")
    assert cli(READERS[command].replace("{}", "f.json").split()) == 2
    said = capsys.readouterr().err
    assert any(words in said for words in ("f.json is a pipe", "f.json is no file", "f.json is neither a file"))


@pytest.mark.parametrize("command", sorted(READERS.keys() - {"claims", "profile"}))
def test_a_file_without_end_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A sparse file of 64 GB is refused by its size; the message has the size and the limit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.json").touch()
    os.truncate("f.json", 1 << 36)
    assert cli(READERS[command].replace("{}", "f.json").split()) == 2
    assert "f.json has 68,719,476,736 bytes; at most " in capsys.readouterr().err


def test_pipes_among_baselines_and_stores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe in a folder of baselines, or in place of a history, keeps nobody waiting."""
    monkeypatch.chdir(tmp_path)
    json_results.write(Path("r.json"), sample_run(2))
    folder = tmp_path / "base" / "sm_90" / "sample"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "prefill.json")
    assert cli(["gate", "--results", "r.json", "--against", "./base", "--no-strict"]) == 1
    assert "prefill.json is a pipe" in capsys.readouterr().out
    pytest.importorskip("sqlalchemy", reason="the history needs it")
    monkeypatch.setenv("ATTNPERF_HISTORY", str(folder / "prefill.json"))
    assert cli(["history"]) == 2
    assert "prefill.json is a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "explain --results", "explain --json --results", "compare r.json"])
def test_results_give_a_ci_system_no_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """No line that a command prints of results begins a command of the job's log, wherever the text is wrapped."""
    monkeypatch.chdir(tmp_path)
    run = sample_run(2, verdicts=[Verdict.SLOWER])
    evil = "::stop-commands::x ##[add-mask]y"
    said = tuple(" ".join(["w" * count, evil]) for count in range(70))
    cases = tuple(replace(case, key=replace(case.key, suite=evil), summary=said[60], notes=said, reasons=said)
                  for case in run.cases)  # fmt: skip
    json_results.write(Path("r.json"), replace(run, cases=cases, findings=said, notes=said))
    cli([*command.split(), "r.json"])
    printed = capsys.readouterr().out
    assert "stop-commands" in printed
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in printed.splitlines())


def test_a_tests_id_is_one_word_of_a_command() -> None:
    """What acts inside of double quotes is put into single ones."""
    assert quote_nodeid("t.py::t[a b]") == '"t.py::t[a b]"'
    assert quote_nodeid("t.py::t[$(id)]") == "'t.py::t[$(id)]'"

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from docs import make_commands
from pytest_attnperf import __version__
from pytest_attnperf.cli import commands
from pytest_attnperf.cli.command_files import UNLISTED, list_names, read_commands, render_list
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

WORKLOAD = "prefill-b1-s64-h1-d16-f16"
Written = Callable[..., Path]


def _case(suite: str, verdict: Verdict, ratio: float, *, fails: bool) -> CaseResult:
    key = CaseKey(suite, "fake.a", WORKLOAD)
    return CaseResult(
        key, "test_prefill", verdict, "", fails=fails, median_us=100 * ratio, baseline_us=100.0, ratio=ratio
    )


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes the results.json of a gating run over two suites; `fails` says whether its last case failed."""

    def write(*, fails: bool) -> Path:
        last = Verdict.SLOWER if fails else Verdict.SAME
        ratio = 1.061 if fails else 1.0
        run = RunResult(
            schema=RESULTS_SCHEMA,
            version=__version__,
            mode="gate",
            started="2026-01-01T00:00:00Z",
            command="pytest --attnperf",
            commit="c0",
            device=DeviceInfo("cpu", "fake", "fake1"),
            fingerprint=None,
            cases=(_case("prefill", Verdict.SAME, 1.0, fails=False), _case("varlen", last, ratio, fails=fails)),
            gated=2,
            selected=2,
        )
        path = tmp_path / "results.json"
        json_results.write(path, run)
        return path

    return write


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf --version` prints the package's version."""
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"pytest-attnperf {__version__}\n"


def test_report_of_a_clean_run(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf report FILE` prints a table per suite and the closing line, and exits 0 where nothing failed."""
    path = written(fails=False)
    assert main(["report", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in ("prefill", "varlen")] == ["prefill", "varlen"]
    assert sum("fake.a" in line and "SAME" in line for line in lines) == 2
    assert lines[-2] == "2 same on fake/fake1"
    assert lines[-1] == f"results: {path}"


def test_report_of_a_failed_run(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed case makes the exit status 1, and its row says by how much."""
    assert main(["report", str(written(fails=True))]) == 1
    printed = capsys.readouterr().out
    assert "+6.1 %" in printed
    assert "1 slower, 1 same on fake/fake1" in printed


def _newer(text: str) -> str:
    return text.replace(f'"schema": {RESULTS_SCHEMA}', f'"schema": {RESULTS_SCHEMA + 1}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_newer, f"field 'schema' is {RESULTS_SCHEMA + 1}, this version reads up to {RESULTS_SCHEMA}; upgrade"),
        (lambda text: text[: len(text) // 2], "is not a results file of this version"),
        (lambda text: "[]", "has no integer field 'schema'"),
    ],
)
def test_unreadable_results(
    written: Written, capsys: pytest.CaptureFixture[str], change: Callable[[str], str], message: str
) -> None:
    """A file that cannot be read exits 2 with one line that names it, and prints no table."""
    path = written(fails=False)
    path.write_text(change(path.read_text()))
    assert main(["report", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"attnperf: {path}")
    assert message in printed.err


def test_a_missing_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No such file: exit status 2, the path in the message, and what writes one."""
    assert main(["report", str(tmp_path / "absent.json")]) == 2
    assert "absent.json; a run writes .attnperf/results.json" in capsys.readouterr().err


def test_a_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """A command without what it needs exits 2 with its own usage."""
    with pytest.raises(SystemExit) as stopped:
        main(["compare"])
    assert stopped.value.code == 2
    assert "usage: attnperf compare" in capsys.readouterr().err


def test_nothing_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf` alone lists the commands on standard error, and exits 2."""
    assert main([]) == 2
    printed = capsys.readouterr()
    assert (printed.out, render_list() in printed.err) == ("", True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("reprot", "there is no command 'reprot'; did you mean 'report'?\ncommands: "),
        ("chekc", "there is no command 'chekc'; did you mean 'baselines check'?\ncommands: "),
        ("fastest", "there is no command 'fastest'; did you mean 'dispatch'?"),
        ("code-objects", "there is no command 'code-objects'; did you mean 'occupancy'?"),
        ("run", "there is no command 'run'; pytest runs benchmarks: pytest --attnperf"),
        ("xyzzy", "there is no command 'xyzzy'\ncommands: "),
        ("re\x1b[2J", "there is no command 're\\x1b[2J'"),
    ],
)
def test_an_unknown_command(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name is offered where one is near, all are listed, and the exit status is 2."""
    with pytest.raises(SystemExit) as stopped:
        main([typed])
    err = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in err
    assert "\x1b" not in err


@pytest.mark.parametrize("words", [["help", "report"], ["help", "baselines", "accept"]])
def test_help_as_a_word(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf help COMMAND` is `attnperf COMMAND --help`."""
    with pytest.raises(SystemExit, match=r"^0$"):
        main(words)
    assert f"usage: attnperf {' '.join(words[1:])}" in capsys.readouterr().out


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf --help` lists what can be typed by purpose, names what rarely is, and has exit codes."""
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    listed = {name: command for name, command in read_commands().items() if command.group != UNLISTED}
    assert all(f" {name} {command.summary}" in printed for name, command in listed.items())
    assert " also: completion, worker " in printed
    assert "exit status: 0 done" in printed
    assert "exit status of pytest --attnperf: 0 nothing failed" in printed


def test_the_order_of_the_screen() -> None:
    """Groups stand in the order of a user's needs, and so do the commands of each."""
    listed: dict[str, list[str]] = {}
    for name, command in read_commands().items():
        listed.setdefault(command.group, []).append(name)
    assert listed == {
        "first hour": ["init", "doctor", "list", "report"],
        "every day": ["explain", "judge", "baselines", "compare", "history", "bisect", "blame"],
        "in CI": ["gate", "export"],
        "deeper": ["profile", "occupancy", "tune", "dispatch", "kernel"],
        "also": ["completion", "worker"],
    }
    assert list(read_commands("baselines")) == ["check", "accept", "merge", "pool"]
    assert list(read_commands("kernel")) == ["run", "build"]


def test_help_fits_two_screens(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`attnperf --help` has at most 48 lines of 80 columns, each command on a line of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("  ") and line.split()[0] in list_names() for line in lines) == 18


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["baselines"], "attnperf baselines: an action is needed\n"),
        (["baselines", "chekc"], "attnperf baselines: there is no action 'chekc'; did you mean 'check'?\n"),
        (["kernel", "--arch", "x"], "attnperf kernel: an action is needed\n"),
        (["kernel", "x\x1b"], "attnperf kernel: there is no action 'x\\x1b'\n"),
    ],
)
def test_an_action_that_is_not_there(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing or unknown action ends with status 2, the actions with what each does, and the nearest name."""
    assert main(typed) == 2
    printed = capsys.readouterr()
    assert printed.err == f"usage: attnperf {typed[0]} ACTION [options]\n\n{render_list(typed[0])}\n\n{said}"
    assert all(f"  {name} " in printed.err for name in list_names(typed[0]))


@pytest.mark.parametrize("behind", [["--help"], ["-h", "check"]])
@pytest.mark.parametrize("name", ["baselines", "kernel"])
def test_help_of_a_command_with_actions(name: str, behind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf NAME --help` begins with a sentence, lists the actions with what each does, and has examples."""
    with pytest.raises(SystemExit) as stopped:
        main([name, *behind])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: attnperf {name} ACTION [options]\n\n")
    assert render_list(name) in printed
    assert f"\nexamples:\n  attnperf {name} " in printed


THROW_AWAY = """
GROUP = "deeper"
SUMMARY = "count to three"
DESCRIPTION = "Counts."
EPILOG = "exit status: 0 counted\\n\\nexamples:\\n  attnperf throw-away --far   further\\n"


def add_arguments(parser):
    parser.add_argument("--far", action="store_true", help="count further")


def run(options):
    return 3 + options.far
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder whose files are commands, too."""
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(f"{commands.__name__}.throw_away")]:
        del sys.modules[name]


def test_a_command_is_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is put among the commands can be typed, is listed and completed, and stands on the docs page."""
    (folder / "throw_away.py").write_text(THROW_AWAY)
    assert main(["throw-away", "--far"]) == 4
    assert list(read_commands())[-3:] == ["throw-away", "completion", "worker"]
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "\n  throw-away  count to three\n" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    assert re.search(r"throw_away_option_strings=\(.*--far", capsys.readouterr().out)
    section = make_commands.listed().partition("### attnperf throw-away\n")[2].partition("\n## ")[0]
    assert section.startswith("\nCounts.\n\n- `--far`: count further\n")
    assert "attnperf throw-away --far  # further\n" in section


def test_a_command_that_does_not_say_where_it_stands(folder: Path) -> None:
    """Its file is named, and other commands are not kept from their work."""
    (folder / "throw_away.py").write_text('SUMMARY = "count to three"\n')
    with pytest.raises(UsageError, match=rf"{folder}/throw_away\.py:1: a command needs GROUP = .* and SUMMARY = "):
        render_list()
    assert build_parser(["report"]).parse_args(["report", "r.json"]).command == "report"


def test_an_action_is_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder among the commands is a command, and each file in it an action, without a group of its own; nothing of
    the others is imported."""
    (folder / "throw_away").mkdir()
    (folder / "throw_away" / "__init__.py").write_text(
        'GROUP = "deeper"\nSUMMARY = "count"\nDESCRIPTION = "Counts."\nEPILOG = ""\n'
    )
    (folder / "throw_away" / "to_three.py").write_text(THROW_AWAY.replace('GROUP = "deeper"\n', ""))
    (folder / "throw_away" / "broken.py").write_text('SUMMARY = "fail"\nraise SystemExit(7)\n')
    assert main(["throw-away", "to-three", "--far"]) == 4
    with pytest.raises(SystemExit):
        main(["throw-away", "--help"])
    assert "\nactions:\n  broken      fail\n  to-three    count to three\n" in capsys.readouterr().out


def test_help_loads_no_command() -> None:
    """`attnperf --help` waits for no command's imports: it loads this file and the errors, and nothing installed."""
    program = (
        "import atexit, sys\n"
        "wanted = ('pytest_attnperf', 'msgspec', 'filelock', 'torch', 'pytest', 'json', 'dataclasses')\n"
        "atexit.register(lambda: print('LOADED', *sorted(m for m in sys.modules if m.startswith(wanted))))\n"
        "from pytest_attnperf.cli.program import main\n"
        "main(['--help'])\n"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = ran.stdout.rpartition("LOADED ")[2].split()
    assert [name for name in loaded if "__editable__" not in name] == [
        *("pytest_attnperf", "pytest_attnperf.cli", "pytest_attnperf.cli.command_files"),
        *("pytest_attnperf.cli.commands", "pytest_attnperf.cli.program", "pytest_attnperf.errors"),
    ]


def test_a_worker_needs_none_of_our_dependencies() -> None:
    """A far interpreter that has pytest only can run `attnperf worker`, and no command needs more to be declared."""
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['msgspec', 'filelock', 'torch', 'shtab']))\n"
        "from pytest_attnperf.cli.program import main, build_whole_parser\n"
        "build_whole_parser()\n"
        "sys.exit(main(['worker']))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, check=False)
    assert result.stderr.startswith("attnperf: standard input ended before the start line")
    assert result.returncode == 2


def test_an_error_repaints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of a file that is not there may hold an escape sequence."""
    assert main(["report", "no\x1b[2Jfile.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("attnperf: ")
    assert "\x1b" not in said


def _into_a_closed_pipe(*arguments: str, both: bool = False) -> tuple[int, str]:
    """Exit status and standard error of a command whose standard output nobody reads."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest_attnperf.cli", *arguments],
            stdout=write_fd,
            stderr=write_fd if both else subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write_fd)
    return ran.returncode, (ran.stderr or b"").decode()


def test_a_reader_that_has_gone(written: Written) -> None:
    """Into a closed pipe a table ends with 141; of it, of --help and of an error nothing is complained of at exit."""
    assert _into_a_closed_pipe("report", str(written(fails=False))) == (141, "")
    assert _into_a_closed_pipe("--help")[1] == ""
    assert _into_a_closed_pipe("report", "absent.json", both=True)[0] == 2


def test_a_full_disk(written: Written) -> None:
    """What cannot be written for another reason is an error, said once."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "report", str(written(fails=False))]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "attnperf: [Errno 28] No space left on device\n")


def _with_a_command(monkeypatch: pytest.MonkeyPatch, run: Callable[[object], int]) -> None:
    """`attnperf report` does something else."""
    module = import_module(f"{commands.__name__}.report")
    monkeypatch.setattr(module, "add_arguments", lambda parser: None)
    monkeypatch.setattr(module, "run", run)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "Broken pipe"), 2, "attnperf: [Errno 32] Broken pipe\n"),
    ],
)
def test_a_command_that_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], raised: BaseException, status: int, said: str
) -> None:
    """Ctrl-C is 130 without a word; a broken pipe that is not our output is an error like others."""

    def run(options: object) -> int:
        raise raised

    _with_a_command(monkeypatch, run)
    assert main(["report"]) == status
    assert capfd.readouterr().err == said


def test_letters_that_a_stream_cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of ASCII gets what is legible, and '?' for the rest."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    _with_a_command(monkeypatch, lambda options: 0 * sys.stdout.write("≥ 2 µs ± 1 … é\udc80"))
    assert main(["report"]) == 0
    assert written.getvalue() == b">= 2 us +- 1 ... ??"

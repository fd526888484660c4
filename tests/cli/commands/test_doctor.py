from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.commands import doctor as doctor_here
from pytest_attnperf.cli.commands.doctor import (
    find_vendor,
    format_summary_line,
    has_gpu,
    next_step,
    report_lines,
    surroundings_here,
)
from pytest_attnperf.cli.program import main
from pytest_attnperf.environment.gpu_tokens import visible_gpus_here
from pytest_attnperf.environment.system import System
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.tools.doctor.engine import DoctorReport, Examined
from pytest_attnperf.tools.doctor.probes import NOISE, PROBES, DoctorFinding, Probe, Status, Surroundings

DOCS = Path(__file__).parents[3] / "docs/doctor.md"

NODE = "sys/class/kfd/kfd/topology/nodes/1"

FINE = DoctorFinding("torch", Status.OK, "2.13.0+rocm7.0, ROCm build", details=("detail of torch",))
WRONG = DoctorFinding(
    "aiter", Status.PROBLEM, "the asyncio package", "ck is UNSUPPORTED", "pip uninstall aiter", ("in x",)
)
ODD = DoctorFinding("HIP_LAUNCH_BLOCKING", Status.WARNING, "=1", "every launch waits", "unset HIP_LAUNCH_BLOCKING")
FAILED = DoctorFinding("power", Status.UNKNOWN, "could not be checked (OSError: no)", "its state is not known", "ask")
TIMER = DoctorFinding("timer", Status.OK, "graph; right")


@dataclass(frozen=True)
class Done:
    """One run of the command."""

    status: int
    out: str
    err: str
    folder: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """`attnperf doctor` as it is typed, here, once; GPUs are hidden, for they would take a minute."""
    folder = tmp_path_factory.mktemp("doctor")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    environ |= {"COLUMNS": "100", "SECRET_NAME_TOKEN": "correct-horse-battery"}
    command = [sys.executable, "-m", "pytest_attnperf.cli", "doctor", "-v", "--bundle", "b.zip", "--json", "d.json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environ, timeout=60, check=False)
    return Done(ran.returncode, ran.stdout, ran.stderr, folder)


def test_report_without_a_gpu(done: Done) -> None:
    """Without a GPU no probe of one runs, the report ends with its sum and a next step, and nothing is a traceback."""
    assert "Traceback" not in done.out + done.err
    assert done.status == (1 if "  problem  " in done.out else 0)
    assert "not checked without a GPU: partitions, power, GPU processes, noise" in done.out
    assert re.search(r"\ndoctor: \d+ ok, .* 0 unknown in [\d.]+ s; timer: host\nnext: ", done.out)
    assert max(map(len, done.out.splitlines())) <= 100
    assert "\x1b" not in done.out


def test_json_and_bundle_say_the_same(done: Done) -> None:
    """The file for programs has every line that was printed; the bundle has it, too, without this folder's place."""
    written = json.loads((done.folder / "d.json").read_text())
    assert f"doctor: {written['counts']['ok']} ok" in done.out
    assert all(finding["name"] in done.out for finding in written["findings"])
    with zipfile.ZipFile(done.folder / "b.zip") as archive:
        packed = json.loads(archive.read("doctor.json"))
        everything = "".join(archive.read(name).decode() for name in archive.namelist())
    assert [each["status"] for each in packed["findings"]] == [each["status"] for each in written["findings"]]
    assert str(done.folder) not in everything
    assert "correct-horse-battery" not in everything
    assert "check\nit before you send it" in done.err


def test_fields_of_the_json_are_documented(done: Done) -> None:
    """Every field that a program may read stands in docs/doctor.md, and so does every group and every status."""
    written, text = json.loads((done.folder / "d.json").read_text()), DOCS.read_text()
    fields = {*written, *written["findings"][0], *written["counts"]}
    assert [name for name in sorted(fields) if f"`{name}`" not in text] == []
    assert [each["group"] for each in written["findings"] if each["group"] not in text] == []


def typed(monkeypatch: pytest.MonkeyPatch, probes: Sequence[Probe], here: Surroundings, *arguments: str) -> int:
    """Exit status of the command over other probes and surroundings."""
    monkeypatch.setattr("pytest_attnperf.cli.commands.doctor.PROBES", tuple(probes))
    monkeypatch.setattr("pytest_attnperf.cli.commands.doctor.surroundings_here", lambda: here)
    monkeypatch.setenv("COLUMNS", "80")
    return main(["doctor", *arguments])


def machine(vendor: str = "") -> Surroundings:
    """This one, with a GPU of that vendor, or with none."""
    return replace(doctor_here.surroundings_here(), vendor=vendor, has_gpu=bool(vendor))


def probe(name: str, status: Status) -> Probe:
    """A probe that finds one thing."""
    return Probe(name, "T", lambda here: [DoctorFinding(name, status, "seen", "means", "mend it")])


@pytest.mark.parametrize(
    ("status", "exit_status"),
    [(Status.OK, 0), (Status.WARNING, 0), (Status.UNKNOWN, 0), (Status.PROBLEM, 1)],
)
def test_only_a_problem_fails(monkeypatch: pytest.MonkeyPatch, status: Status, exit_status: int) -> None:
    """The exit status is 1 where there is a problem, and 0 for warnings and for what could not be looked at."""
    assert typed(monkeypatch, [probe("p", status)], machine()) == exit_status


def broken(here: Surroundings) -> Sequence[DoctorFinding]:
    """A probe that raises."""
    raise OSError("the driver is gone")


@pytest.mark.parametrize("run", [broken, lambda here: None], ids=["raises", "nonsense"])
def test_all_probes_may_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: Callable[..., Any]
) -> None:
    """Where every probe fails, every line is UNKNOWN and says what to do; the exit status is 0, and no traceback."""
    probes = [replace(each, run=run) for each in PROBES]
    assert typed(monkeypatch, probes, machine("nvidia")) == 0
    out, err = capsys.readouterr()
    assert out.count("  unknown  ") == len(probes)
    assert "Traceback" not in out + err


def test_quick_leaves_out_the_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --quick the noise of three cases is not measured."""
    ran: list[str] = []

    def note(name: str) -> Probe:
        return Probe(name, "T", lambda here: ran.append(name) or [])

    assert typed(monkeypatch, [note("cpu"), note(NOISE)], machine("amd"), "--quick") == 0
    assert ran == ["cpu"]


def test_json_alone_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--json - prints nothing else on standard output."""
    typed(monkeypatch, [probe("p", Status.OK)], machine(), "--json", "-")
    assert json.loads(capsys.readouterr().out)["findings"][0]["name"] == "p"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--bundle", "b.tar.gz"), "name it FILE.zip"),
        (("--bundle", "none/b.zip"), "there is no folder none"),
        (("--json", "none/d.json"), "there is no folder none"),
        (("--json", "."), "this is a folder"),
    ],
)
def test_bad_files_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: Any, said: str
) -> None:
    """A file that cannot be written is exit status 2, said before a minute of measuring is lost."""
    assert typed(monkeypatch, [Probe("p", "T", broken)], machine(), *arguments) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_stopping_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends the doctor with one line and exit status 2."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_attnperf.cli.commands.doctor.run_probes", stop)
    assert typed(monkeypatch, [], machine()) == 2
    assert capsys.readouterr().err.startswith("attnperf doctor: stopped")


@pytest.mark.gpu
def test_doctor_with_a_gpu_is_as_fast_as_promised() -> None:
    """With a GPU the whole doctor takes less than 75 s, and says which timer cases get."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "doctor", "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    written = json.loads(ran.stdout)
    statuses = {finding["name"]: finding["status"] for finding in written["findings"]}
    assert visible_gpus_here()
    assert written["seconds"] < 75
    assert written["timer"] == "graph"
    assert written["not_run"] == []
    # What a container keeps from nvidia-smi may be unknown; what is measured, and what would be a fault of ours, not.
    unknown = [each for each in written["findings"] if each["status"] == "unknown"]
    assert [each for each in unknown if each["group"] == "Measuring" or each["name"] == each["probe"]] == []
    assert {"noise of softmax", "noise of attention", "noise of gemm"} <= statuses.keys()


def system_with(root: Path, *files: str) -> System:
    """A machine with these files; an AMD node says gfx942."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("gfx_target_version 90402\n" if name.endswith("properties") else "7\n")
    return System(root)


@pytest.mark.parametrize(
    ("files", "vendor", "seen"),
    [
        ((), "", False),
        (("dev/nvidia0", "dev/nvidiactl"), "nvidia", True),
        (("dev/nvidiactl",), "", False),
        (("dev/kfd", f"{NODE}/gpu_id", f"{NODE}/properties"), "amd", True),
        ((f"{NODE}/gpu_id", f"{NODE}/properties"), "amd", False),
        (("proc/driver/nvidia/gpus/0000:01:00.0/information",), "nvidia", False),
    ],
)
def test_vendor_is_the_drivers_and_a_gpu_is_a_node(
    tmp_path: Path, files: tuple[str, ...], vendor: str, seen: bool
) -> None:
    """A container without device nodes still shows whose driver the machine has, and has no GPU."""
    system = system_with(tmp_path, *files)
    assert find_vendor(system) == vendor
    assert has_gpu(system, {}) is seen


def test_hidden_gpu_is_none(tmp_path: Path) -> None:
    """A variable that hides the GPU hides it from the doctor, too."""
    assert not has_gpu(system_with(tmp_path, "dev/nvidia0"), {"CUDA_VISIBLE_DEVICES": ""})


def test_project_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor looks at the folder that it is started in, and at this process's environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNPERF_DOCTOR_TEST", "1")
    here = surroundings_here()
    assert here.root == tmp_path.resolve()
    assert here.environ["ATTNPERF_DOCTOR_TEST"] == "1"


def report(*findings: DoctorFinding, not_run: tuple[str, ...] = ()) -> DoctorReport:
    """Of two groups; the second holds the timer."""
    examined = (Examined("p", "Packages", findings, 0.1), Examined("t", "Measuring", (TIMER,), 1.0))
    return DoctorReport(examined, 2.14, not_run)


def lines(found: DoctorReport, *, verbose: bool = False, width: int = 80, ink: Ink = PLAIN) -> list[str]:
    """As they are printed."""
    return report_lines(found, width=width, ink=ink, verbose=verbose)


def test_worst_stands_first_with_meaning_and_fix() -> None:
    """Within a group problems come first; what is not OK says what it means and what mends it."""
    assert lines(report(FINE, ODD, FAILED, WRONG)) == [
        "Packages",
        "  problem  aiter                the asyncio package",
        "             ck is UNSUPPORTED",
        "             fix: pip uninstall aiter",
        "  unknown  power                could not be checked (OSError: no)",
        "             its state is not known",
        "             fix: ask",
        "  warning  HIP_LAUNCH_BLOCKING  =1",
        "             every launch waits",
        "             fix: unset HIP_LAUNCH_BLOCKING",
        "  ok       torch                2.13.0+rocm7.0, ROCm build",
        "",
        "Measuring",
        "  ok       timer                graph; right",
        "",
        "doctor: 2 ok, 0 notes, 1 warning, 1 problem, 1 unknown in 2.1 s; timer: graph",
        "next: aiter: pip uninstall aiter",
    ]


def test_verbose_shows_details_of_everything() -> None:
    """With -v details stand below each line, also of what is OK."""
    shown = lines(report(FINE, WRONG), verbose=True)
    assert [line.strip() for line in shown if "detail of torch" in line or "in x" in line] == [
        "in x",
        "detail of torch",
    ]
    assert not [line for line in lines(report(FINE, WRONG)) if "in x" in line]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Long values and meanings are wrapped to the width; a word of a command, which is copied, stays whole."""
    long = DoctorFinding(
        "n" * 40, Status.PROBLEM, "value " * 30, "meaning " * 30, "pip install " + "x" * 200, ("d " * 100,)
    )
    shown = lines(
        report(long, ODD, not_run=("partitions", "power", "GPU processes", "noise")), verbose=True, width=width
    )
    assert max(len(line) for line in shown if len(line.split()) > 1 and "n" * 40 not in line) <= width
    assert any("x" * 200 in line for line in shown)


def test_words_carry_what_colours_show() -> None:
    """Colours only stand around words that are there without them."""
    found = report(FINE, ODD, WRONG)
    coloured = "\n".join(lines(found, ink=Ink.ansi()))
    assert "\x1b[1;31mproblem" in coloured
    plain = coloured
    for style in ("\x1b[1;31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"):
        plain = plain.replace(style, "")
    assert plain.split("\n") == lines(found)


def test_next_step_fits_what_was_found() -> None:
    """A problem's fix comes first; then how to get cases; else a run that this machine can do."""
    assert next_step(report(FINE, WRONG)) == ("aiter: pip uninstall aiter",)
    no_cases = DoctorFinding("suites", Status.NOTE, "none", "nothing to measure", "change to your project")
    assert next_step(report(no_cases)) == ("change to your project",)
    assert next_step(report(FINE)) == ("pytest --attnperf",)
    assert next_step(report(FINE, not_run=("power",))) == ("pytest (proofs; nothing is timed without a GPU)",)
    for files, where in (
        (("a/test_x.py", "suites/test_y.py", "a/test_z.py"), "suites/"),
        (("a/test_x.py", "my cases/test_y.py", "my cases/test_z.py"), "'my cases/'"),
        (("test_x.py",), "test_x.py"),
    ):
        suites = DoctorFinding("suites", Status.OK, "files with cases", details=files)
        assert next_step(report(suites)) == (f"pytest --attnperf {where}",)
    assert format_summary_line(DoctorReport((), 0.0)).endswith(
        "0 ok, 0 notes, 0 warnings, 0 problems, 0 unknown in 0.0 s; timer: not known"
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--processes 3", "--processes needs --calibrate; add that, or drop --processes"),
        ("--device cpu --quick", "--device needs --calibrate; add that, or drop --device"),
        ("--calibrate --quick", "--quick has no effect with --calibrate, which checks nothing; drop one of the two"),
        ("--calibrate -v", "--verbose has no effect with --calibrate, which checks nothing; drop one of the two"),
        ("--calibrate --json no/such/f", "--json no/such/f: there is no folder no/such; make it first"),
    ],
)
def test_options_of_calibrating(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Options of --calibrate without it, and of the checks with it, are one line each, status 2."""
    assert main(["doctor", *typed.split()]) == 2
    assert capsys.readouterr() == ("", f"attnperf: {said}\n")

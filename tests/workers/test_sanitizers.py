"""Sanitizers are found, wrapped around a worker, and their logs are read; a log that proves nothing is no proof."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, Fingerprint, Role
from pytest_attnperf.records.sanitizers import SanitizerFinding
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.sanitizers import (
    ASAN_FILE,
    NVIDIA_TOOLS,
    ONLY_COMPILED,
    PROGRAM,
    PROGRAM_VARIABLE,
    Sanitizer,
    find_sanitizer,
    parse_compute_sanitizer,
    read_tools,
)
from pytest_attnperf.workers.template import may_fork

DATA = Path(__file__).parents[1] / "data" / "sanitizers"
PLAN = LaunchPlan(("suites/test_a.py",), Path("/src"), Path("/src/logs"), Role.DEVICE)

FOUND = {
    "memcheck.log": [
        SanitizerFinding(
            "Invalid __global__ write of size 4 bytes",
            "scale_kernel",
            "/src/kernels/scale.py:17",
            "thread (18,0,0) in block (3,0,0)",
            "Access to 0x7f4500000404 is out of bounds and is 5 bytes after the nearest allocation at 0x7f4500000000 "
            "of size 1,024 bytes",
            2,
        ),
        SanitizerFinding(
            "Invalid __shared__ read of size 2 bytes",
            "attention<(int)64>",
            "/src/tile.cuh:9",
            "thread (0,0,0) in block (0,0,0)",
            "Address 0x400 is out of bounds",
        ),
    ],
    "memcheck_2021.log": [
        SanitizerFinding(
            "Invalid __global__ read of size 16 bytes",
            "moe_kernel",
            "/src/kernels/moe.py:175",
            "thread (96,0,0) in block (44,0,0)",
            "Address 0x7639950f9000 is out of bounds",
        ),
        SanitizerFinding(
            "Invalid __global__ write of size 1 bytes",
            "iota",
            "",
            "thread (63,0,0) in block (0,0,0)",
            "Address 0x7f004700004f is out of bounds",
        ),
    ],
    "racecheck.log": [
        SanitizerFinding(
            "Race reported between Write access",
            "sum_kernel",
            "/src/sum.cu:41",
            "",
            "and Read access at sum_kernel(int *, int *)+0x100 in /src/sum.cu:51 [508 hazards]",
        )
    ],
    "initcheck.log": [
        SanitizerFinding(
            "Uninitialized __global__ memory read of size 4 bytes",
            "vector_add",
            "/src/memset_error.cu:41",
            "thread (31,0,0) in block (1,0,0)",
            "Address 0x7f3c7ec000fc",
        )
    ],
    "synccheck.log": [
        SanitizerFinding(
            "Barrier error detected. Divergent thread(s) in block",
            "illegal_sync",
            "/src/sync.cu:61",
            "thread (19,0,0) in block (0,0,0)",
        )
    ],
    "clean.log": [],
    "racecheck_warning.log": [],
}


def ready(arch: str, pid: int = 1) -> Ready:
    """What a worker on such a device says first."""
    return Ready(pid, Role.DEVICE, DeviceInfo("cuda", arch, "test"), Fingerprint({}, {}), ())


@pytest.mark.parametrize("name", list(FOUND))
def test_a_log_is_read(name: str) -> None:
    """Every fault once, with kernel, place, thread and address; nothing speaks against the tool's word."""
    tool = name.partition(".")[0].partition("_")[0]
    report = parse_compute_sanitizer(tool, [(DATA / name).read_text()])
    assert list(report.findings) == FOUND[name]
    assert report.failures == ()


def test_warnings_are_no_findings() -> None:
    """The tool says itself that such a race may be meant."""
    report = parse_compute_sanitizer("racecheck", [(DATA / "racecheck_warning.log").read_text()])
    assert report.warnings == (
        "Warning: Race reported between Write access at fold(float *)+0x550 in /src/fold.cu:100",
    )


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("not_instrumented.log", "Error: Target application terminated before first instrumented API call"),
        ("internal.log", "Internal Sanitizer Error: The Sanitizer encountered an error and must terminate"),
        ("unreadable.log", "memcheck counts 4 errors, none of which could be read from its log"),
    ],
)
def test_a_log_that_proves_nothing_says_so(name: str, failure: str) -> None:
    """The tool broke, saw no kernel, or says what nobody can read: that is no clean bill."""
    report = parse_compute_sanitizer("memcheck", [(DATA / name).read_text()])
    assert failure in report.failures
    assert not report.findings


@pytest.mark.parametrize(
    ("text", "failure"),
    [("", "memcheck wrote no log"), ("========= COMPUTE-SANITIZER\n", "memcheck wrote no summary"), ("\x00\xff", "no")],
)
def test_a_log_without_a_summary_is_no_proof(text: str, failure: str) -> None:
    """A tool that died, or was killed at a limit, leaves one."""
    (found,) = parse_compute_sanitizer("memcheck", [text]).failures
    assert failure in found


def test_findings_before_a_tool_died_count() -> None:
    """What was written before it was cut off is true."""
    text = (DATA / "memcheck.log").read_text().partition("ERROR SUMMARY")[0]
    report = parse_compute_sanitizer("memcheck", [text])
    assert len(report.findings) == 2
    assert report.failures == ("memcheck wrote no summary",)


def test_a_hostile_log_ends() -> None:
    """Control characters, a name of 100,000 characters and 20,000 equal errors."""
    name = "k\x1b[31m<script>" * 10_000
    block = f"========= Invalid __global__ read of size 2 bytes\n=========     at {name}+0x1 in a b.cu:1\n"
    (finding,) = parse_compute_sanitizer("memcheck", [block * 20]).findings
    assert finding.count == 20
    assert finding.place == "a b.cu:1"
    short = "========= Invalid __global__ read of size 2 bytes\n=========     at k+0x1\n"
    assert parse_compute_sanitizer("memcheck", [short * 20_000]).findings[0].count == 20_000


def test_the_tool_runs_the_worker() -> None:
    """Its words come first; the log is the case's own, and torch gives each tensor memory of its own."""
    log = Path("/src/logs/memcheck-1.log")
    plan = Sanitizer("memcheck", Path("/opt/cs")).wrap(PLAN, log)
    command = plan.make_command(7, "w")
    assert command[:8] == [
        *("/opt/cs", "--tool", "memcheck", "--target-processes", "all", "--log-file", str(log)),
        "--error-exitcode",
    ]
    assert command[command.index(plan.python) :] == PLAN.make_command(7, "w")
    assert plan.make_environment({}, "w", None)["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert not may_fork(plan)
    assert plan.exit_seconds > PLAN.exit_seconds


def test_the_address_sanitizer_is_loaded_first(tmp_path: Path) -> None:
    """The worker's command stays; its environment names the runtime, the log and what ROCm's manual asks for."""
    program = tmp_path / "lib/llvm/lib/clang/20/lib/linux" / ASAN_FILE
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "lib/asan").mkdir()
    found = find_sanitizer("asan", {"ROCM_PATH": str(tmp_path)})
    assert found.program == program
    plan = found.wrap(PLAN, tmp_path / "asan-1.log")
    assert plan.make_command(7, "w") == PLAN.make_command(7, "w")
    environment = plan.make_environment({}, "w", None)
    assert environment["LD_PRELOAD"] == str(program)
    assert environment["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(tmp_path / "lib/asan")
    assert environment["HSA_XNACK"] == environment["TRITON_ENABLE_ASAN"] == "1"
    assert f"log_path={tmp_path / 'asan-1.log'}" in environment["ASAN_OPTIONS"]
    assert not may_fork(plan)


def test_the_address_sanitizers_log_is_read(tmp_path: Path) -> None:
    """It has the process's number in its name; without one nothing was found."""
    asan = Sanitizer("asan", Path(ASAN_FILE))
    shutil.copy(DATA / "asan.log.3141", tmp_path)
    assert asan.read_report(tmp_path / "asan.log").findings == (
        SanitizerFinding(
            "heap-buffer-overflow on the GPU, WRITE of size 4",
            "set1",
            "/src/mini.cpp:7",
            "workgroup (10,0,0)",
            "0x7fb14371d190 is located 0 bytes after 400-byte region [0x7fb14371d000,0x7fb14371d190)",
        ),
    )
    assert not asan.read_report(tmp_path / "other.log").findings
    assert asan.read_report(tmp_path / "other.log").warnings == (ONLY_COMPILED,)


@pytest.mark.parametrize(
    ("tool", "arch", "obstacle"),
    [
        ("memcheck", "sm_90", ""),
        ("memcheck", "gfx942", "it watches kernels on NVIDIA devices; this one is gfx942"),
        ("asan", "sm_90", "kernels are instrumented on gfx908, gfx90a, gfx942, gfx950 only; this device is sm_90"),
        ("asan", "gfx1100", "kernels are instrumented on gfx908, gfx90a, gfx942, gfx950 only; this device is gfx1100"),
        ("asan", "gfx942", f"its runtime /r/{ASAN_FILE} is not loaded in process {os.getpid()}"),
    ],
)
def test_a_tool_that_cannot_see_the_device_is_no_proof(tool: str, arch: str, obstacle: str) -> None:
    """Neither is a runtime that the loader has left out."""
    assert Sanitizer(tool, Path("/r") / ASAN_FILE).find_obstacle(ready(arch, os.getpid())) == obstacle


def test_a_process_that_cannot_be_read_is_no_proof() -> None:
    """Whether the runtime is loaded is not known then."""
    said = Sanitizer("asan", Path(ASAN_FILE)).find_obstacle(ready("gfx942", 2**30))
    assert said.startswith("whether its runtime is loaded cannot be read: ")


def test_the_named_program_is_taken_first(tmp_path: Path) -> None:
    """Else that of PATH, then those of CUDA's folders."""
    for name in ("named", "path", "home/bin"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / PROGRAM).touch(mode=0o755)
    environ = {
        PROGRAM_VARIABLE: str(tmp_path / "named" / PROGRAM),
        "PATH": str(tmp_path / "path"),
        "CUDA_HOME": str(tmp_path / "home"),
    }
    for name, variable in (("named", PROGRAM_VARIABLE), ("path", "PATH"), ("home/bin", "CUDA_HOME")):
        assert find_sanitizer("memcheck", environ).program == tmp_path / name / PROGRAM
        del environ[variable]


@pytest.mark.parametrize("tool", [*NVIDIA_TOOLS, "asan"])
def test_a_missing_tool_is_refused_with_where_it_was_looked_for(tool: str, tmp_path: Path) -> None:
    """And with how to install it; nothing passes silently."""
    environ = {PROGRAM_VARIABLE: str(tmp_path / "gone"), "ROCM_PATH": str(tmp_path)}
    with pytest.raises(
        UsageError, match=rf"--attnperf-sanitize={tool}: .* is not installed; looked for {tmp_path}.*"
    ) as e:
        find_sanitizer(tool, environ)
    assert "Nothing was checked; install " in str(e.value)


def test_names_of_tools_are_read() -> None:
    """Each once, in the order given; another one is named with what exists."""
    assert read_tools("--x", "racecheck, memcheck,racecheck") == ("racecheck", "memcheck")
    with pytest.raises(UsageError, match=r"unknown tool of --x 'memchek'.*memcheck"):
        read_tools("--x", "memchek")


def test_a_finding_says_all_that_is_known() -> None:
    """And leaves out what is not."""
    finding = FOUND["memcheck.log"][0]
    assert finding.sentence == (
        "Invalid __global__ write of size 4 bytes in kernel scale_kernel, at /src/kernels/scale.py:17, by thread "
        f"(18,0,0) in block (3,0,0), {finding.memory}, 2 times"
    )
    assert replace(finding, kernel="", place="", thread="", memory="", count=1).sentence == finding.kind

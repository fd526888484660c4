import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.records import Role
from pytest_attnperf.workers.command_plan import CommandPlan, StartLine, container_image
from pytest_attnperf.workers.launch import LaunchPlan

GOOD: dict[str, Any] = {"files": ["suites/test_a.py"], "options": ["-v"], "name": "base0-1", "role": "device"}
ECHO = "import os, sys; line = sys.stdin.readline(); print(line.replace('start', os.environ['SEEN'], 1), flush=True)"
"""A command that sends its start line back, with what it sees in the environment."""


@pytest.fixture
def plan(tmp_path: Path) -> CommandPlan:
    """A plan whose command sends the start line back."""
    return CommandPlan(
        argv=(sys.executable, "-c", ECHO),
        files=("suites/test_a.py",),
        role=Role.DEVICE,
        scratch=tmp_path / "scratch",
        options=("-v",),
    )


@contextmanager
def answer(plan: CommandPlan, gpu: str | None) -> Iterator[dict[str, Any]]:
    """What the plan's command answers first."""
    channel, process = plan.start("base0-1", gpu, plan.scratch / "base0-1.log")
    try:
        yield channel.receive(20.0)
    finally:
        channel.close()
        process.kill()
        process.wait()


def test_a_start_line_arrives_as_it_was_sent() -> None:
    """Every field survives the way through JSON."""
    line = StartLine(("a.py", "b.py"), ("-o", "x=1"), "base0-1", Role.INTERPRET, {"CUDA_VISIBLE_DEVICES": "2"})
    assert StartLine.parse(json.dumps(line.to_message()).encode()) == line


def test_the_environment_may_be_left_out() -> None:
    """A start line without variables sets none."""
    assert StartLine.parse(json.dumps({"start": GOOD}).encode()).environment == {}


@pytest.mark.parametrize("line", [b"hello\n", b"[1]\n", b"\xff\n", b"{}\n", b'{"start": 1}\n'])
def test_what_is_no_start_line_is_quoted(line: bytes) -> None:
    """Anything else on the first line is shown beside what is expected."""
    with pytest.raises(UsageError, match=r'must be like \{"start".*it is b') as caught:
        StartLine.parse(line)
    assert repr(line) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("files", [], "'files' is []; it must be at least one path, relative"),
        ("files", ["suites/test_a.py", "/suites/test_b.py"], "it must be at least one path, relative to the rootdir"),
        ("files", "suites", "'files' is 'suites'; it must be a list of strings"),
        ("options", [1], "'options' is [1]; it must be a list of strings"),
        ("name", "../up", "'name' is '../up'; it must be a word"),
        ("name", "", "'name' is ''; it must be a word"),
        ("role", "gpu", "'role' is 'gpu'; it must be one of interpret, compile, device"),
        ("environment", {"A": 1}, "'environment' is {'A': 1}; it must be an object of strings"),
    ],
)
def test_a_field_that_is_off_is_named(field: str, value: object, expected: str) -> None:
    """The error names the field, what it holds and what it must hold."""
    with pytest.raises(UsageError) as caught:
        StartLine.parse(json.dumps({"start": {**GOOD, field: value}}).encode())
    assert expected in str(caught.value)


def test_the_command_gets_the_start_line_and_the_gpu(plan: CommandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is set for the command and, for a container that does not pass it on, named in the start line."""
    monkeypatch.setenv("SEEN", "start")
    code = ECHO.replace("os.environ['SEEN']", "os.environ['HIP_VISIBLE_DEVICES']")
    with answer(replace(plan, argv=(sys.executable, "-c", code)), "3") as message:
        devices = {"CUDA_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "3"}
        assert message == {"3": {**GOOD, "environment": devices}}


def test_what_an_index_is_counted_within_is_passed_on(plan: CommandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index 0 within ROCR_VISIBLE_DEVICES=2 is another card in a container that was not told; without a GPU none is."""
    monkeypatch.setenv("SEEN", "start")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2")
    with answer(plan, "0") as message:
        assert message["start"]["environment"].pop("ROCR_VISIBLE_DEVICES") == "2"
    with answer(plan, None) as message:
        assert message["start"]["environment"] == {}


DOCKER = ("docker", "run", "-i", "--volume=/suite:/src:ro")


@pytest.mark.parametrize(
    ("argv", "image"),
    [
        ((*DOCKER, "--gpus", "all", "rocm/pytorch:7.0", "attnperf", "worker", "--rootdir", "/src"), "rocm/pytorch:7.0"),
        (("/usr/bin/podman", "run", "a/b", "/opt/bin/python3.12", "-m", "pytest_attnperf.cli", "worker"), "a/b"),
        ((*DOCKER, "--entrypoint=python3", "old:1", "-m", "pytest_attnperf.cli", "worker", "--rootdir=/src"), "old:1"),
        (("apptainer", "exec", "--nv", "/images/new.sif", "attnperf", "worker"), "/images/new.sif"),
        ((*DOCKER, "attnperf", "worker"), ""),
        ((*DOCKER, "rocm/pytorch:7.0", "sh", "-c", "attnperf worker"), ""),
        (("docker", "exec", "-i", "a-container", "attnperf", "worker"), ""),
        (("docker", "compose", "run", "a-service", "attnperf", "worker"), ""),
        (("ssh", "host", "attnperf", "worker"), ""),
        ((), ""),
    ],
)
def test_the_image_of_a_command(argv: tuple[str, ...], image: str) -> None:
    """It is found before what runs inside, whatever the runtime's options are; '' where it cannot be told."""
    assert container_image(argv) == image


def test_a_long_command_is_titled_by_its_image(plan: CommandPlan) -> None:
    """Messages hold what is started in which image, not twenty options; a short command is shown whole."""
    options = [f"--env=NAME_{number}=a value" for number in range(10)]
    inside = ("rocm/pytorch:7.0", "attnperf", "worker", "--rootdir=/src")
    long = replace(plan, argv=("docker", "run", *options, *inside))
    assert long.title == "docker run ... rocm/pytorch:7.0 attnperf worker --rootdir=/src"
    assert replace(plan, argv=("docker", "run", *inside)).title == f"docker run {' '.join(inside)}"


def test_the_user_s_environment_reaches_the_command(plan: CommandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables a command needs (DOCKER_HOST) are kept; without a GPU nothing is said of devices."""
    monkeypatch.setenv("SEEN", "from the user")
    with answer(plan, None) as message:
        assert message == {"from the user": {**GOOD, "environment": {}}}


def test_a_command_may_choose_the_gpu_itself(plan: CommandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without names of variables a worker's GPU is set nowhere."""
    monkeypatch.setenv("SEEN", "start")
    with answer(replace(plan, visible_devices=()), "3") as message:
        assert message["start"]["environment"] == {}


def test_standard_error_goes_to_the_log(plan: CommandPlan) -> None:
    """What the command prints there can be quoted."""
    log = plan.scratch / "w.log"
    channel, process = replace(plan, argv=("sh", "-c", "echo no such image >&2")).start("w", None, log)
    process.wait(20)
    channel.close()
    assert log.read_text() == "no such image\n"


def test_a_command_that_does_not_exist_is_named(plan: CommandPlan) -> None:
    """Nothing to start: the command and the reason are in the error, and no descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WorkerError, match=r"`no-such-command 'a b'` could not be started: .*No such file"):
        replace(plan, argv=("no-such-command", "a b")).start("w", None, plan.scratch / "w.log")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_command_that_does_not_read_does_not_block(plan: CommandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start line beyond the pipe's size is given up at a limit; whoever waits for the answer reports it."""
    monkeypatch.setattr("pytest_attnperf.workers.command_plan.START_LINE_LIMIT_SECONDS", 0.05)
    many = tuple(f"suites/test_{number:06d}.py" for number in range(10_000))
    channel, process = replace(plan, argv=("sleep", "60"), files=many).start("w", None, plan.scratch / "w.log")
    assert process.poll() is None
    channel.close()
    process.kill()
    process.wait()


def test_a_plan_beside_a_local_one(tmp_path: Path) -> None:
    """Files become relative to the rootdir, and the far pytest gets the same import mode, options and role."""
    local = LaunchPlan(
        files=[str(tmp_path / "suites" / "test_a.py"), "suites/test_b.py"],
        rootdir=tmp_path,
        scratch=tmp_path / "s",
        role=Role.INTERPRET,
        import_mode="importlib",
        passed_options=("--attnperf-device=cpu",),
    )
    plan = CommandPlan.from_launch_plan(local, ["attnperf", "worker"])
    assert plan.files == ("suites/test_a.py", "suites/test_b.py")
    assert plan.options == ("--import-mode=importlib", "--attnperf-device=cpu")
    assert (plan.argv, plan.role, plan.scratch) == (("attnperf", "worker"), Role.INTERPRET, tmp_path / "s")


def test_a_file_outside_the_tree_cannot_be_found_behind_a_command(tmp_path: Path) -> None:
    """Such a file has no path there; the error names it and the rootdir."""
    local = LaunchPlan(files=["/elsewhere/test_a.py"], rootdir=tmp_path, scratch=tmp_path, role=Role.DEVICE)
    with pytest.raises(UsageError, match=r"/elsewhere/test_a\.py lies outside .*move the file there"):
        CommandPlan.from_launch_plan(local, ["attnperf", "worker"])


def test_a_first_line_that_is_nested_too_deep_is_named() -> None:
    """JSON that exhausts its reader is a usage error."""
    with pytest.raises(UsageError, match="the first line on standard input must be like"):
        StartLine.parse(b'{"start":' * 100_000)

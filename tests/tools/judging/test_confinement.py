"""Limits that a process sets for itself: what a program tries under them, and without them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_attnperf.tools.judging import confinement
from pytest_attnperf.tools.judging.confinement import (
    FILES,
    MEMORY,
    NETWORK,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    Confinement,
    ConfinementError,
    LimitState,
    choose_readable,
    make_command,
    read_landlock_version,
    read_report,
    refuse_calls,
    write_spec,
)

needs_landlock = pytest.mark.skipif(read_landlock_version() < 6, reason="this kernel has no Landlock of version 6")

ATTEMPTS = {
    "a TCP socket": "socket.socket()",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "a UDP socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a pair of sockets that send anywhere": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "reading a file": "open(outside + '/secret').read()",
    "listing a folder": "os.listdir(outside)",
    "writing to a file": "open(outside + '/secret', 'w').write('forged')",
    "shortening a file": "os.truncate(outside + '/secret', 0)",
    "making a file": "open(outside + '/new', 'w')",
    "removing a file": "os.remove(outside + '/secret')",
    "moving a file": "os.rename(outside + '/secret', home + '/mine')",
    "a link to a file": "os.link(outside + '/secret', home + '/mine')",
    "reading through a link": "os.symlink(outside + '/secret', home + '/link'); open(home + '/link').read()",
    "the parent's memory": "open(f'/proc/{os.getppid()}/mem', 'rb').read(0); open(f'/proc/{os.getppid()}/maps').read()",
    "the parent's environment": "open(f'/proc/{os.getppid()}/environ').read()",
    "the parent's command": "open(f'/proc/{os.getppid()}/cmdline').read()",
    "a signal to the parent": "os.kill(os.getppid(), 0)",
    "a signal to the parent's group": "os.killpg(os.getpgid(os.getppid()), 0)",
    "tracing the parent": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "limits of the parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
    "shared memory of System V": "check(libc.shmget(0, 4096, 0o1600))",
    "a file that is too large": "open(home + '/large', 'wb').write(bytes(3 << 20))",
    "too much memory": "bytearray(1 << 30)",
    "a child that reads": "subprocess.run(['/bin/cat', outside + '/secret'], check=True, capture_output=True)",
    "naming a thread, without a GPU": "open(f'/proc/self/task/{threading.get_native_id()}/comm', 'wb')",
    "a mount": "check(libc.mount(b'none', home.encode(), b'tmpfs', 0, 0))",
}
"""What a program tries -> how, in Python."""

HARMLESS = {
    "its own file": "open(home + '/own', 'w').write('a'); open(home + '/own').read()",
    "a pair of sockets": "socket.socketpair()",
    "a child": "subprocess.run(['/bin/true'], check=True)",
    "a signal to a child": "child = subprocess.Popen(['/bin/sleep', '60']); child.kill(); child.wait()",
    "nowhere": "open('/dev/null', 'w').write('a')",
    "a pair of sockets for messages": "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "its own limits": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "its own mode": "open(home + '/own', 'w'); os.chmod(home + '/own', 0o600)",
    "memory": "bytearray(1 << 20)",
    "a library": "import ssl, sqlite3, decimal",
}

BESIDE_A_GPU = {
    "listening as CUDA's driver does": (
        "a = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC); "
        "a.bind(b'\\0cuda-uvmfd-test-' + str(os.getpid()).encode()); a.listen(16)",
        "done",
    ),
    "naming a thread as CUDA's driver does": (
        "open(f'/proc/self/task/{threading.get_native_id()}/comm', 'wb').write(b'cuda00001400006')",
        "done",
    ),
    "naming the parent": ("open(f'/proc/{os.getppid()}/task/{os.getppid()}/comm', 'wb')", "refused"),
    "writing beside its threads": ("open('/proc/self/oom_score_adj', 'wb')", "refused"),
    "a connection": ("socket.socket(socket.AF_UNIX).connect(outside + '/socket')", "refused [Errno 13]"),
    "a message to anybody": ("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)", "refused"),
    "a raw socket of this machine": ("socket.socket(socket.AF_UNIX, socket.SOCK_RAW)", "refused"),
    "a TCP socket": ("socket.socket()", "refused"),
    "a socket in another's folder": ("socket.socket(socket.AF_UNIX).bind(outside + '/new')", "refused"),
}
"""What a program tries where a GPU is used -> (how, in Python; how it ends)."""

PROGRAM = """
import ctypes, os, resource, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
outside, home = sys.argv[1:]
def check(code):
    if code < 0:
        raise OSError(ctypes.get_errno(), 'refused')
try:
    {}
except (OSError, MemoryError, subprocess.CalledProcessError) as error:
    print('refused', error)
else:
    print('done')
"""


def type_program(tmp_path: Path, code: str, *, limited: bool, on_gpu: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs one attempt in Python, under limits or without."""
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    (outside / "secret").write_text("secret")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM).format(code), str(outside), str(home)]
    if limited:
        readable, listable = choose_readable([str(outside / "secret")])
        limits = Confinement(
            readable=tuple(readable),
            listable=tuple(listable),
            writable=(str(home),),
            devices=tuple(confinement.list_devices()),
            data_bytes=1 << 29,
            file_bytes=2 << 20,
            parent=os.getpid(),
            on_gpu=on_gpu,
        )
        write_spec(str(tmp_path / "limits.json"), limits)
        command = make_command(str(tmp_path / "limits.json"), str(tmp_path / "report.json"), command)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, start_new_session=True)


@needs_landlock
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_reaches_beyond_a_process_is_refused(tmp_path: Path, attempt: str) -> None:
    """And what it aimed at is as it was."""
    ran = type_program(tmp_path, ATTEMPTS[attempt], limited=True)
    assert ran.stdout.startswith("refused"), (ran.stdout, ran.stderr)
    assert (tmp_path / "outside" / "secret").read_text() == "secret"
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


@needs_landlock
@pytest.mark.parametrize("attempt", HARMLESS)
def test_what_a_kernel_needs_is_allowed(tmp_path: Path, attempt: str) -> None:
    """Its own files, children and pipes, the libraries of Python."""
    ran = type_program(tmp_path, HARMLESS[attempt], limited=True)
    assert ran.stdout == "done\n", (ran.stdout, ran.stderr)


@needs_landlock
@pytest.mark.parametrize("attempt", BESIDE_A_GPU)
def test_beside_a_gpu_a_driver_may_listen_and_nobody_be_reached(tmp_path: Path, attempt: str) -> None:
    """CUDA starts only where its driver can listen on a socket of this machine and name its threads."""
    code, ending = BESIDE_A_GPU[attempt]
    ran = type_program(tmp_path, code, limited=True, on_gpu=True)
    assert ran.stdout.startswith(ending), (ran.stdout, ran.stderr)


@pytest.mark.parametrize("attempt", ["a Unix socket", "reading a file", "a signal to the parent", "too much memory"])
def test_without_limits_all_that_is_possible(tmp_path: Path, attempt: str) -> None:
    """So the attempts above fail by the limits."""
    assert type_program(tmp_path, ATTEMPTS[attempt], limited=False).stdout == "done\n"


@needs_landlock
def test_a_mode_is_not_changed(tmp_path: Path) -> None:
    """It is ignored without an error, inside and outside: copying a file sets modes."""
    ran = type_program(tmp_path, "os.chmod(outside + '/secret', 0o777)", limited=True)
    assert ran.stdout == "done\n"
    assert (tmp_path / "outside" / "secret").stat().st_mode & 0o111 == 0


@needs_landlock
def test_every_limit_is_reported(tmp_path: Path) -> None:
    """Each with its name, as enforced; a process that never came so far has none."""
    type_program(tmp_path, "pass", limited=True)
    states = read_report(str(tmp_path / "report.json"))
    names = {FILES, MEMORY, NETWORK, "signals", "processes", "file size", "rights"}
    assert {state.name for state in states} == names
    assert [state for state in states if not state.enforced] == []
    assert read_report(str(tmp_path / "absent.json")) == ()


def test_a_limit_that_is_missing_is_reported_with_its_reason(tmp_path: Path) -> None:
    """On a kernel without Landlock: files can be read, and the report says so."""
    program = (
        "import sys; from pytest_attnperf.tools.judging import confinement as c; "
        "c.refuse_calls({'landlock_create_ruleset': 444}); "
        "print([state for state in c.apply_limits(c.Confinement()) if not state.enforced])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    missing = eval(ran.stdout, {"LimitState": LimitState})
    assert [state.name for state in missing] == [FILES, "signals", "processes"]
    assert missing[0].why == "this kernel has no Landlock, or it is switched off"
    assert missing[1].why == "Landlock of version 6 is needed, this kernel has none"


def test_memory_is_not_limited_beside_a_gpu() -> None:
    """The state says what watches it instead."""
    why = confinement._limit_memory(0)
    assert why == "watched from outside only: the driver of a GPU reserves more than any limit of a process"


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of its system calls are not known here; nothing is refused instead of the wrong calls."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfinementError, match="known for aarch64 and x86_64, this machine is riscv64"):
        refuse_calls()


def test_a_hidden_file_is_left_out_of_its_folder(tmp_path: Path) -> None:
    """What is beside it stays readable, at every level; a link beside it is left out, because it may lead to it."""
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    for path in (inside / "ref.py", inside / "other.py", tmp_path / "a" / "c.py"):
        path.touch()
    (inside / "link.py").symlink_to(inside / "ref.py")
    readable, listable = choose_readable([str(inside / "ref.py")], [str(tmp_path / "a")])
    below = sorted(one.removeprefix(f"{tmp_path}/") for one in readable if one.startswith(f"{tmp_path}/"))
    assert below == ["a/b/other.py", "a/c.py"]
    assert [one.removeprefix(f"{tmp_path}/") for one in listable if one.startswith(f"{tmp_path}/")] == ["a", "a/b"]


def test_what_every_process_may_read_holds_no_secrets() -> None:
    """No home, no folder of temporary files, no other process."""
    names = {*SYSTEM_FILES, *SYSTEM_FOLDERS}
    assert not names & {"/", "/home", "/tmp", "/var", "/proc", "/etc", "/dev", "/dev/shm", "/run"}
    assert all(os.path.isabs(name) for name in names)

"""Limits of a process that runs a kernel which nobody trusts, set by the process itself before it loads anything.

Run as a program, `python -I confinement.py SPEC REPORT -- COMMAND...` sets the limits of SPEC, a `Confinement` as JSON,
writes a `LimitState` per limit into REPORT, and becomes COMMAND. All limits stay over that and in every child process,
and cannot be lifted. Each comes from the kernel and needs no rights:

- files: Landlock. What is not named cannot be opened, made or removed, whoever owns it. Only processes under the same
  limits can be traced, signalled, or reached by an abstract socket (the last two with Landlock from version 6 on).
- network: a seccomp filter refuses every socket but connected pairs, and io_uring, which could open one unseen. Beside
  a GPU it lets sockets of this machine be made and listened on, without which CUDA does not start (its driver hands
  out a descriptor there), but no connection to another. The filter also refuses what reaches other processes (ptrace,
  shared memory of System V, limits of another process) and what Landlock does not cover (owners, modes and attributes
  of files).
- memory: RLIMIT_DATA where no GPU is used. CUDA and HIP reserve more than any limit, so there only `process_tree`
  watches, which also adds up the processes.

Standard library only: it runs before the plugin can be imported, and may be the only file of it that can be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

FILES, PROCESSES, SIGNALS, NETWORK = "files", "processes", "signals", "network"
MEMORY, FILE_SIZE, RIGHTS = "memory", "file size", "rights"
"""Names of limits that a process sets for itself."""

_libc = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 1, 22, 24, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Version of Landlock -> number of rights on files that it knows."""
_TRUNCATION_FROM, _NETWORK_FROM, _SCOPES_FROM = 3, 4, 6


class ConfinementError(Exception):
    """A limit that this kernel does not have or did not accept; the text says which, and why."""


@dataclass(frozen=True)
class LimitState:
    """One limit: `enforced` in full or not, and why not, or what remains open."""

    name: str
    enforced: bool
    why: str = ""


@dataclass(frozen=True)
class Confinement:
    """What a process may do.

    readable      files and folders that may be read and executed
    listable      folders of which only the names may be read
    writable      folders in which anything may be done
    devices       files and folders that may be read and written, as drivers need it
    data_bytes    limit of private memory of each process; 0 for none
    file_bytes    limit of each file
    parent        process id without which this process ends at once; 0 for none
    on_gpu        whether the driver of a GPU is used, which listens on a socket of this machine, and names its threads
    """

    readable: tuple[str, ...] = ()
    listable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    data_bytes: int = 0
    file_bytes: int = 0
    parent: int = 0
    on_gpu: bool = False


def apply_limits(confinement: Confinement) -> list[LimitState]:
    """Sets all limits for this thread and what it starts from now on; returns the state of each."""
    _set_control(_SET_PDEATHSIG, signal.SIGKILL)
    if confinement.parent and os.getppid() != confinement.parent:
        raise SystemExit("the process that started this one has ended")
    states = [
        _try_limit(FILE_SIZE, lambda: _limit_sizes(confinement)),
        _try_limit(MEMORY, lambda: _limit_memory(confinement.data_bytes)),
        _try_limit(RIGHTS, _drop_rights),
    ]
    version = read_landlock_version()
    states.append(_try_limit(FILES, lambda: restrict_files(confinement)))
    restricted = states[-1].enforced
    scoped = restricted and version >= _SCOPES_FROM
    why = "" if scoped else f"Landlock of version {_SCOPES_FROM} is needed, this kernel has {version or 'none'}"
    states.append(LimitState(SIGNALS, scoped, why))
    filtered = _try_limit(NETWORK, lambda: refuse_calls(listening=confinement.on_gpu))
    states.append(filtered)
    hidden = restricted and filtered.enforced
    states.append(LimitState(PROCESSES, hidden, "" if hidden else states[3].why or filtered.why))
    return states


def _try_limit(name: str, apply: Callable[[], str | None]) -> LimitState:
    try:
        return LimitState(name, True, apply() or "")
    except (ConfinementError, OSError, ValueError) as error:
        return LimitState(name, False, str(error))


def read_landlock_version() -> int:
    """Returns the version of Landlock (its ABI) of this kernel; 0 without it."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def restrict_files(confinement: Confinement) -> str:
    """Lets this thread, and what it starts, open only the files of `confinement`; may be called again to allow less.
    Returns what remains open, in words. Raises ConfinementError if the kernel has no Landlock."""
    version = read_landlock_version()
    if not version:
        raise ConfinementError("this kernel has no Landlock, or it is switched off")
    handled = (1 << _RIGHTS_BY_VERSION[min(version, max(_RIGHTS_BY_VERSION))]) - 1
    network = 3 if version >= _NETWORK_FROM else 0
    scopes = 3 if version >= _SCOPES_FROM else 0
    attributes = struct.pack("=QQQ", handled, network, scopes)
    size = 24 if version >= _SCOPES_FROM else 16 if version >= _NETWORK_FROM else 8
    rules = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if rules < 0:
        raise ConfinementError(f"Landlock refuses rules: {os.strerror(ctypes.get_errno())}")
    try:
        for paths, rights in (
            (confinement.readable, _READ),
            (confinement.listable, _READ_DIR),
            ((*confinement.devices, *(OWN_THREADS if confinement.on_gpu else ())), _DEVICE),
            (confinement.writable, handled),
        ):
            for path in paths:
                _allow_below(rules, path, rights & handled)
        _set_control(_SET_NO_NEW_PRIVS, 1)
        if _libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0)):
            raise ConfinementError(f"Landlock refuses to restrict: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(rules)
    return "" if version >= _TRUNCATION_FROM else "files that may not be written may be made shorter"


def list_devices() -> list[str]:
    """Returns the devices that a kernel's process may use: those of DEVICES, and each NVIDIA GPU's own."""
    return [
        *DEVICES,
        *(f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()),
    ]


def _allow_below(rules: int, path: str, rights: int) -> None:
    """Adds a rule for a file or folder that exists; a file gets only the rights that files have."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        folder = os.path.isdir(path)
        attributes = struct.pack("=Qi", rights if folder else rights & _OF_FILES, fd)
        if _libc.syscall(_ADD_RULE, rules, ctypes.c_int(1), attributes, ctypes.c_uint32(0)):
            raise ConfinementError(f"Landlock refuses a rule for {path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


def _limit_sizes(confinement: Confinement) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if confinement.file_bytes:
        _lower_limit(resource.RLIMIT_FSIZE, confinement.file_bytes)


def _limit_memory(data_bytes: int) -> str:
    if not data_bytes:
        return "watched from outside only: the driver of a GPU reserves more than any limit of a process"
    _lower_limit(resource.RLIMIT_DATA, data_bytes)
    return ""


def _lower_limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def _drop_rights() -> None:
    """Gives up all capabilities, so that root is an ordinary user, and the chance to gain any. Raises ConfinementError
    if one is left."""
    _set_control(_SET_NO_NEW_PRIVS, 1)
    for number in range(64):
        _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # without the right to it, there is none to give up
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    if _libc.capset(header, none):
        raise ConfinementError(f"capabilities are kept: {os.strerror(ctypes.get_errno())}")


def _set_control(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise ConfinementError(f"prctl({option}, {value}): {os.strerror(ctypes.get_errno())}")


_DENIED = {
    "x86_64": (
        0xC000003E,
        {"socket": 41, "socketpair": 53, "connect": 42, "io_uring_setup": 425, "ptrace": 101, "process_vm_readv": 310,
         "process_vm_writev": 311,
         "pidfd_getfd": 438, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "unshare": 272, "setns": 308,
         "mount": 165, "umount2": 166, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "add_key": 248,
         "request_key": 249, "keyctl": 250, "prlimit64": 302, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93,
         "lchown": 94, "fchownat": 260, "fchmodat": 268, "fchmodat2": 452, "setxattr": 188, "lsetxattr": 189,
         "fsetxattr": 190},
    ),
    "aarch64": (
        0xC00000B7,
        {"socket": 198, "socketpair": 199, "connect": 203, "io_uring_setup": 425, "ptrace": 117,
         "process_vm_readv": 270, "process_vm_writev": 271,
         "pidfd_getfd": 438, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "unshare": 97, "setns": 268,
         "mount": 40, "umount2": 39, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "add_key": 217,
         "request_key": 218, "keyctl": 219, "prlimit64": 261, "fchmod": 52, "fchown": 55, "fchownat": 54,
         "fchmodat": 53, "fchmodat2": 452, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7},
    ),
}  # fmt: skip
"""Machine -> (its number in seccomp, system calls that are refused with their numbers)."""

_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_ANSWERS = {
    **dict.fromkeys(("socket", "socketpair", "connect"), _EACCES),
    **dict.fromkeys(("io_uring_setup", "fchmodat2"), _ENOSYS),
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat"), 0),
}
"""Errors other than EPERM. Modes and owners are left as they are without an error: copying a file sets them."""
_X32 = 0x40000000


class _AllowedArgument(NamedTuple):
    """An argument of a system call passes if those of its bits that are in `mask` are `value`."""

    number: int
    mask: int
    value: int


_WITH_CONNECTION = _AllowedArgument(1, 0xB, 1)
"""SOCK_STREAM (1) or SOCK_SEQPACKET (5), with flags: what is sent on others can be addressed to any socket."""
_ALLOWED = {"prlimit64": (_AllowedArgument(0, 0xFFFFFFFF, 0),), "socketpair": (_WITH_CONNECTION,)}
"""Calls that pass with these arguments: limits of the calling process, and pairs."""
_ALLOWED_LISTENING = {"socket": (_AllowedArgument(0, 0xFFFFFFFF, 1), _WITH_CONNECTION)}
"""The same where a driver listens: sockets of this machine (AF_UNIX is 1), which `connect` does not connect."""


def refuse_calls(numbers: dict[str, int] | None = None, *, listening: bool = False) -> None:
    """Refuses system calls, by name and number, for this thread and what it starts; by default those that reach beyond
    a process. `listening` allows sockets of this machine. Raises ConfinementError on other machines."""
    known = _DENIED.get(platform.machine())
    if known is None:
        machines = " and ".join(sorted(_DENIED))
        raise ConfinementError(f"system calls are known for {machines}, this machine is {platform.machine()}")
    allowed = {**_ALLOWED, **(_ALLOWED_LISTENING if listening else {})}
    program = b"".join(_build_filter(known[0], known[1] if numbers is None else numbers, allowed))
    buffer = ctypes.create_string_buffer(program)
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _set_control(_SET_NO_NEW_PRIVS, 1)
    if _libc.prctl(_SET_SECCOMP, 2, ctypes.c_char_p(described), 0, 0):
        raise ConfinementError(f"seccomp refuses the filter: {os.strerror(ctypes.get_errno())}")


_LOAD, _AND, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def _build_filter(
    machine: int, denied: dict[str, int], allowed: dict[str, tuple[_AllowedArgument, ...]]
) -> Iterator[bytes]:
    """Yields the instructions of the filter (classic BPF): another machine's calls end the process, those of `denied`
    return an error unless their arguments are `allowed`, all others pass."""

    def make(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    yield from (make(_LOAD, 4), make(_EQUAL, machine, 1), make(_ANSWER, _KILL), make(_LOAD, 0))
    if machine == _DENIED["x86_64"][0]:
        yield from (make(_AT_LEAST, _X32, 0, 1), make(_ANSWER, _ERROR | _ENOSYS))
    for name, number in denied.items():
        tests = allowed.get(name, ())
        refuse = make(_ANSWER, _ERROR | _ANSWERS.get(name, _EPERM))
        yield make(_EQUAL, number, 0, 3 * len(tests) + (2 if tests else 1))
        for place, test in enumerate(tests):
            rest = 3 * (len(tests) - place - 1)
            yield from (make(_LOAD, 16 + 8 * test.number), make(_AND, test.mask), make(_EQUAL, test.value, 0, rest + 1))
        yield from ([make(_ANSWER, _ALLOW)] if tests else [])
        yield refuse
    yield make(_ANSWER, _ALLOW)


SYSTEM_FOLDERS = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/nix/store",
    "/run/opengl-driver",
    "/sys",
)
SYSTEM_FILES = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/passwd", "/etc/group"),
    *("/etc/nsswitch.conf", "/etc/os-release", "/etc/alternatives", "/etc/OpenCL", "/etc/vulkan", "/etc/nvidia"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems"),
    *("/proc/uptime", "/proc/loadavg", "/proc/devices", "/proc/modules", "/proc/driver", "/proc/sys"),
)
DEVICES = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/kfd", "/dev/dri", "/dev/nvidiactl"),
    *("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps", "/dev/nvidia-nvswitchctl"),
)
OWN_THREADS = ("/proc/self/task",)
"""CUDA's driver writes the names of its threads (TID/comm), and does not start where it cannot."""
_GIVEN_BY = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME", "PYTHONPATH")
"""Environment variables with folders that Python, torch and compilers read."""


def choose_readable(hidden: Sequence[str], more: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Returns (files and folders to read, folders to list): what Python, torch and compilers need, and `more`, without
    the files of `hidden`. A folder that holds one of these is replaced by what is beside it."""
    given = [one for name in _GIVEN_BY for one in os.environ.get(name, "").split(os.pathsep)]
    path = [entry for entry in sys.path[1:] if entry and os.path.exists(entry)]
    folders = [*SYSTEM_FOLDERS, *SYSTEM_FILES, sys.prefix, sys.base_prefix, sys.exec_prefix, *path, *given, *more]
    readable: list[str] = []
    listable: list[str] = []
    own = "/proc/self"  # of the process that will be confined, not of this one
    for folder in dict.fromkeys(one if one == own else os.path.realpath(one) for one in folders if one.strip(os.sep)):
        _add_without(folder, {os.path.realpath(one) for one in hidden}, readable, listable)
    return readable, listable


def _add_without(path: str, hidden: set[str], readable: list[str], listable: list[str]) -> None:
    if path in hidden:
        return
    if not any(os.path.commonpath((one, path)) == path for one in hidden):
        readable.append(path)
        return
    listable.append(path)
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir(path)):
            below = os.path.join(path, entry)
            if not os.path.islink(below):  # it could lead to a hidden one
                _add_without(below, hidden, readable, listable)


def make_command(spec: str, report: str, command: Sequence[str]) -> list[str]:
    """Returns the command that runs `command` under the limits in file `spec`, and reports on them in file `report`."""
    return [sys.executable, "-I", os.path.abspath(__file__), spec, report, "--", *command]


def write_spec(path: str, confinement: Confinement) -> None:
    """Writes the limits into a file, for `make_command`."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(confinement), file)


def parse_confinement(given: dict[str, Any]) -> Confinement:
    """Returns the limits that were written as JSON."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Confinement(**values)


def read_report(path: str) -> tuple[LimitState, ...]:
    """Returns what a confined process has reported on its limits; empty if it has not come that far."""
    try:
        with open(path, encoding="utf-8") as file:
            return tuple(LimitState(**state) for state in json.load(file))
    except (OSError, ValueError):
        return ()


def main(arguments: Sequence[str]) -> None:
    """Sets the limits and becomes the command; see the module's text."""
    spec, report, _, *command = arguments
    with open(spec, encoding="utf-8") as file:
        asked = parse_confinement(json.load(file))
    with open(report, "w", encoding="utf-8") as told:  # before the limits: afterwards it could not be opened
        json.dump([dataclasses.asdict(state) for state in apply_limits(asked)], told)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Finds and runs the disassemblers: llvm-objdump for AMD, nvdisasm and cuobjdump for NVIDIA.

The found tools are cached until the process ends.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pytest_attnperf.errors import CodeObjectError, ToolMissingError

LLVM_OBJDUMP_VARIABLE = "ATTNPERF_LLVM_OBJDUMP"
SYSTEM_ROCM = Path("/opt/rocm")
SYSTEM_CUDA = Path("/usr/local/cuda")
TIME_LIMIT_S = 60.0
"""Time limit in seconds, so that a hung tool does not block the test run. A kernel takes well under a second."""

_MINIMUM_LLVM = {
    "gfx90a": 13,
    "gfx942": 17,
    "gfx950": 20,
    "gfx1100": 15,
    "gfx1101": 15,
    "gfx1102": 15,
    "gfx1103": 15,
    "gfx1150": 17,
    "gfx1151": 17,
    "gfx1152": 19,
    "gfx1153": 20,
    "gfx1200": 18,
    "gfx1201": 18,
}
"""First LLVM release with the architecture, by the dates of the commits to `AMDGPUUsage.rst` and of the releases.

Tried: 14.0.6 has gfx90a only; 15.0.6 and 16.0.6 lack gfx942, gfx950, gfx115x and gfx120x; 19.1.7 lacks gfx950 and
gfx1153; 22.1.8 has all. Only a message uses this table: a tool that does not list an architecture is refused anyway.
"""

_LIST_ARCHS = ("-d", "--triple=amdgcn-amd-amdhsa", "--mcpu=help", "-")
_EMPTY_OBJECT = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x40", 1, 224, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)
"""The header of an ELF object for AMDGPU: llvm-objdump lists its architectures only for an object."""


@dataclass(frozen=True)
class Tool:
    """A program and its version, e.g. '22.1.8'."""

    path: Path
    version: str

    def __str__(self) -> str:
        return f"{self.path} {self.version}".rstrip()


@dataclass(frozen=True)
class _Objdump:
    tool: Tool
    archs: frozenset[str]


def find_objdump(arch: str) -> Tool:
    """Returns the best llvm-objdump for `arch` ('gfx942'). ToolMissingError names tools found and what to install."""
    return find_objdumps(arch)[0]


def find_objdumps(arch: str) -> tuple[Tool, ...]:
    """Returns every installed llvm-objdump that knows `arch`, best first; at least one.

    Only the one that ATTNPERF_LLVM_OBJDUMP names, if set; else those of $ROCM_PATH, of /opt/rocm, llvm-objdump-NN on
    PATH from the newest on, and llvm-objdump. Raises ToolMissingError naming what was found and what to install.
    """
    found: list[Tool] = []
    refused: list[str] = []
    for path in _objdump_paths():
        known = _examine_objdump(path)
        if isinstance(known, str):
            refused.append(known)
        elif arch not in known.archs:
            refused.append(f"{known.tool} does not know {arch}")
        else:
            found.append(known.tool)
    if found:
        return tuple(found)
    needed = f" (LLVM {_MINIMUM_LLVM[arch]} or newer)" if arch in _MINIMUM_LLVM else ""
    raise ToolMissingError(
        f"no llvm-objdump that disassembles {arch}{needed}: {'; '.join(refused) or 'none is installed'}. "
        f"Install one (Debian: apt-get install llvm-22; ROCm brings its own) or name it in {LLVM_OBJDUMP_VARIABLE}"
    )


def cuda_tools(name: Literal["nvdisasm", "cuobjdump"]) -> tuple[Tool, ...]:
    """Returns every installed NVIDIA tool of that name, best first; at least one.

    Only the one that ATTNPERF_NVDISASM or ATTNPERF_CUOBJDUMP names, if set; else those of $CUDA_HOME, of PATH, of
    /usr/local/cuda, and the one that Triton's wheel brings. Raises ToolMissingError naming what was found, and what
    to install.
    """
    variable = f"ATTNPERF_{name.upper()}"
    examined = [_read_version(path) for path in _cuda_paths(name, os.environ.get(variable))]
    found = tuple(tool for tool in examined if isinstance(tool, Tool))
    if found:
        return found
    refused = "; ".join(str(reason) for reason in examined) or "none is installed"
    raise ToolMissingError(
        f"no {name}: {refused}. Install the CUDA toolkit or Triton, which brings one, or name it in {variable}"
    )


def run(tool: Path, arguments: Sequence[str], *, folder: Path | None = None) -> str:
    """Runs the tool in `folder` and returns its output.

    Raises CodeObjectError with its exit status and the first line of its standard error if it failed, could not be
    started, or ran longer than `TIME_LIMIT_S`.
    """
    status, output, errors = _run_to_end(tool, arguments, folder, b"")
    if status != 0:
        first = next((line.strip() for line in errors.splitlines() if line.strip()), "no message")
        signals = {int(one): f" ({one.name})" for one in signal.Signals}
        raise CodeObjectError(f"{tool.name} exited with status {status}{signals.get(-status, '')}: {first}")
    return output


def _run_to_end(tool: Path, arguments: Sequence[str], folder: Path | None, stdin: bytes) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error. Raises CodeObjectError if there is no exit status."""
    try:
        process = subprocess.Popen(
            [str(tool), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise CodeObjectError(f"{tool} cannot be started: {error.strerror or error}; repair or reinstall it") from error
    with process:
        try:
            output, errors = process.communicate(stdin, timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            # A wrapper script's child keeps the pipes open too.
            os.killpg(process.pid, signal.SIGKILL)
            raise CodeObjectError(f"{tool.name} was stopped after {TIME_LIMIT_S:g} s; run it by hand") from None
    return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def _objdump_paths() -> list[Path]:
    named = os.environ.get(LLVM_OBJDUMP_VARIABLE)
    if named:
        return [Path(named)]
    set_root = os.environ.get("ROCM_PATH")
    roots = [*([Path(set_root)] if set_root else []), SYSTEM_ROCM]
    paths = [root / "llvm/bin/llvm-objdump" for root in roots]
    plain = shutil.which("llvm-objdump")
    return _distinct_files([*paths, *_versioned_on_path("llvm-objdump"), *([Path(plain)] if plain else [])])


def _versioned_on_path(name: str) -> list[Path]:
    """Returns the programs `name`-NN in the folders of PATH, newest first."""
    found: dict[int, Path] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for path in sorted(Path(folder or ".").glob(f"{name}-*")):
            number = path.name[len(name) + 1 :]
            if number.isdecimal() and os.access(path, os.X_OK):
                found.setdefault(int(number), path)
    return [found[number] for number in sorted(found, reverse=True)]


def _cuda_paths(name: str, named: str | None) -> list[Path]:
    if named:
        return [Path(named)]
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    on_path = shutil.which(name)
    wheel = importlib.util.find_spec("triton")
    brought = [Path(wheel.origin).parent / "backends/nvidia/bin" / name] if wheel and wheel.origin else []
    return _distinct_files(
        [
            *(Path(home) / "bin" / name for home in homes if home),
            *([Path(on_path)] if on_path else []),
            SYSTEM_CUDA / "bin" / name,
            *brought,
        ]
    )


def _distinct_files(paths: Iterable[Path]) -> list[Path]:
    """Returns the existing files, each once: `llvm-objdump` is often a link to a numbered one."""
    by_file = {path.resolve(): path for path in reversed(list(paths)) if path.is_file()}
    return list(reversed(by_file.values()))


@cache
def _read_version(path: Path) -> Tool | str:
    """Returns the tool with its version ('' if its output has none), or a text that says why it cannot be used."""
    try:
        text = run(path, ["--version"])
    except CodeObjectError as error:
        return str(error)
    version = re.search(r"LLVM version (\d[\w.]*)|\bV(\d[\d.]*)", text)
    return Tool(path, (version[1] or version[2]) if version else "")


@cache
def _examine_objdump(path: Path) -> _Objdump | str:
    """Returns the llvm-objdump with the architectures that it lists, or a text that says why it cannot be used."""
    tool = _read_version(path)
    if isinstance(tool, str):
        return tool
    try:
        # The exit status is ignored: it prints the list, then fails on the empty file.
        _, output, errors = _run_to_end(path, _LIST_ARCHS, None, _EMPTY_OBJECT)
    except CodeObjectError as error:
        return str(error)
    archs = frozenset(re.findall(r"^\s+(gfx[0-9a-f]+)\s+- ", output + errors, re.MULTILINE))
    return _Objdump(tool, archs) if archs else f"{tool} was built without AMD GPUs"

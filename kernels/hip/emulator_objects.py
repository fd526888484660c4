"""Compiles kernels of this folder for the emulator, and maps addresses to source lines. Standard library only.

A kernel and the runtime of emulated/ become one shared object, cached on disk under a hash of all its inputs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.hip.faces import EMULATED_ARCH, emulated_arch
from kernels.hip.kernel_source import ROOT
from kernels.hip.sources import FOLDER, HipKernel
from pytest_attnperf.codeobject.hip_toolchain import Toolchain, find_toolchain, run_tool
from pytest_attnperf.codeobject.object_cache import ObjectCache, cache_key
from pytest_attnperf.errors import AttnperfError, ToolMissingError, UsageError

CACHE = ROOT / ".attnperf" / "cache" / "emulated"
RUNTIME = FOLDER / "emulated"
COMPILE_LIMIT_S = 120.0
OLDEST_ARCH = "gfx90a"
"""Compiler flags that every clang knows that can compile the sources."""

_FACES = (
    ("gfx90a", 942, 64),
    ("gfx942", 942, 64),
    ("gfx950", 950, 64),
    ("gfx10", 1030, 32),
    ("gfx11", 1100, 32),
    ("gfx12", 1201, 32),
    ("sm_", 90, 32),
)
"""(prefix of an architecture's name, its value of GPU_EMULATED, lanes per wave)."""

_LANGUAGE = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-ffreestanding")
_CPU = {"x86_64": ("-march=x86-64-v3",)}
_KERNEL_FLAGS = (
    "-O2", "-fno-threadsafe-statics", "-fno-math-errno", "-ffp-contract=fast", "-gline-tables-only",
    "-Werror=uninitialized", "-Werror=sometimes-uninitialized", "-Wno-pass-failed",
    # Loops that a GPU must have unrolled need not be here, and take seconds to compile.
    "-mllvm", "-pragma-unroll-threshold=1",
)  # fmt: skip
_CHECKS = (
    # Accesses of more than 16 bytes would not be reported, and vectors only hide whose access one was.
    "-fno-vectorize", "-fno-slp-vectorize", "-fsanitize=thread",
    "-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-read-before-write=1",
    # Not `bounds`, which has local-bounds in it: that ends the process by an illegal instruction.
    "-fsanitize=array-bounds,alignment,signed-integer-overflow,shift-exponent,integer-divide-by-zero",
    "-ftrivial-auto-var-init=pattern",
)  # fmt: skip
_KERNEL = re.compile(r"\bKERNEL\((?P<threads>[^;{}]*?)\)\s*(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ERROR_LINES = 6


class EmulationError(AttnperfError):
    """A kernel has a bug, does not compile, or gets an argument it cannot take; names the file and line."""


@dataclass(frozen=True)
class EmulatedGpu:
    """The GPU that the emulator imitates.

    number   the value of GPU_EMULATED
    wave     lanes of a wave
    """

    number: int
    wave: int


@dataclass(frozen=True)
class EmulatorObject:
    """A kernel as a shared object.

    data         the file's bytes
    key          what it is cached under
    parameters   names of the kernel's parameters
    """

    data: bytes
    key: str
    parameters: tuple[str, ...]


def emulated_gpu_of(arch: str | None) -> EmulatedGpu:
    """Returns the GPU to imitate for an architecture; None takes that of ATTNPERF_HIP_EMULATE. Raises UsageError if
    unknown."""
    arch = arch or emulated_arch()
    for prefix, number, wave in _FACES:
        if arch.startswith(prefix):
            return EmulatedGpu(number, wave)
    raise UsageError(
        f"the emulator does not know {arch!r}; it imitates gfx90a, gfx942 and gfx950 (waves of 64, MFMA), gfx10.., "
        f"gfx11.., gfx12.. and sm_..; correct it or {EMULATED_ARCH}"
    )


def missing_tools() -> list[str]:
    """Returns why no kernel can be compiled for the emulator here; empty if kernels can be compiled."""
    if platform.machine() not in _CPU:
        return [f"the HIP emulator runs on x86-64, not on {platform.machine()}"]
    if not _has_half_floats():
        return ["the HIP emulator needs a CPU with AVX2, FMA and F16C; /proc/cpuinfo names none"]
    try:
        find_toolchain(OLDEST_ARCH)
    except ToolMissingError as error:
        return [f"the HIP emulator compiles with clang: {error}"]
    return []


def compile_emulated(kernel: HipKernel, face: EmulatedGpu, checked: bool, cache: Path) -> EmulatorObject:
    """Returns the kernel compiled for the emulator to imitate the GPU `face`; taken from the folder `cache` if it is
    there. `checked` adds tests of every memory access. Raises EmulationError if it does not compile, ToolMissingError
    without clang."""
    stated, parameters = _read_declaration(kernel)
    toolchain = find_toolchain(OLDEST_ARCH)
    entry = {"EMULATED_KERNEL": kernel.function, "EMULATED_THREADS": stated}
    defines = {**kernel.defines, "GPU_EMULATED": str(face.number), **entry}
    flags = (
        *_LANGUAGE, *_CPU.get(platform.machine(), ()), *_KERNEL_FLAGS, *(_CHECKS if checked else ()),
        f"-I{FOLDER}", f"-I{RUNTIME}", *(f"-D{name}={value}" for name, value in defines.items()),
    )  # fmt: skip
    store = ObjectCache(cache)
    identity = (toolchain.identity, *toolchain.clang, _hash_of_headers(), platform.machine())
    key = cache_key("hip emulator", *identity, kernel.path.read_text(), str(kernel.path), json.dumps(flags))
    data = store.load(key)
    if data is None:
        runtime = _compile_runtime(toolchain, store, cache_key("hip emulator runtime", *identity))
        text = f'#include "{kernel.path}"\n#include "kernel_entry.h"\n'
        link = ("-shared", "-nostdlib", *(() if toolchain.linker else ("-fuse-ld=lld",)), "-Wl,-Bsymbolic")
        data = _compile_object(
            toolchain, (*flags, *link), text, runtime, f"{_format_path(kernel.path)}: {kernel.function}"
        )
        store.store(key, data)
    return EmulatorObject(data, key, parameters)


def _read_declaration(kernel: HipKernel) -> tuple[str, tuple[str, ...]]:
    """Returns (the text in the kernel's KERNEL(...), the names of its parameters). Raises EmulationError if the file or
    the kernel is missing."""
    try:
        text = _COMMENT.sub("", kernel.path.read_text())
    except OSError as error:
        raise EmulationError(
            f"there is no file {kernel.path} ({error.strerror}); correct the kernel's `file`"
        ) from error
    found = {match["name"]: match for match in _KERNEL.finditer(text)}
    if kernel.function not in found:
        known = ", ".join(sorted(found)) or "none"
        raise EmulationError(f"{_format_path(kernel.path)} has no kernel {kernel.function!r}; it has: {known}")
    declared = found[kernel.function]
    names = (re.findall(r"\w+", parameter) for parameter in declared["parameters"].split(","))
    return " ".join(declared["threads"].split()), tuple(words[-1] for words in names if words)


def _compile_runtime(toolchain: Toolchain, store: ObjectCache, key: str) -> bytes:
    data = store.load(key)
    if data is None:
        flags = (*_LANGUAGE, *_CPU.get(platform.machine(), ()), "-O2", f"-I{RUNTIME}", "-c")
        data = _compile_object(toolchain, flags, '#include "runtime.cpp"\n', None, "the emulator's runtime")
        store.store(key, data)
    return data


def _compile_object(toolchain: Toolchain, flags: tuple[str, ...], text: str, runtime: bytes | None, what: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="attnperf-emulator-") as folder:
        source, made, part = Path(folder, "source.cpp"), Path(folder, "object"), Path(folder, "runtime.o")
        source.write_text(text)
        if runtime is not None:
            part.write_bytes(runtime)
        parts = () if runtime is None else (str(part),)
        done = run_tool([*toolchain.clang, *flags, str(source), *parts, "-o", str(made)], COMPILE_LIMIT_S)
        if done.returncode:
            lines = done.stderr.splitlines()
            first = next((index for index, line in enumerate(lines) if "error:" in line), 0)
            said = "\n".join(lines[first : first + _ERROR_LINES]).replace(f"{ROOT}/", "")
            raise EmulationError(f"{what} does not compile for the emulator ({toolchain.name}): {said}")
        return made.read_bytes()


def _hash_of_headers() -> str:
    """Returns a hash of all headers of kernels/hip and of the emulator's runtime, which any object may include."""
    digest = hashlib.sha256()
    for path in sorted([*FOLDER.glob("*.h"), *RUNTIME.glob("*.h"), *RUNTIME.glob("*.cpp")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def _has_half_floats() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return {"avx2", "fma", "f16c"} <= set(flags)


def _format_path(path: Path) -> str:
    """Returns the path as text, relative to the checkout if it is inside."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


class SourceLines:
    """Source positions of the addresses in one object, from llvm-symbolizer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, tuple[tuple[str, int, int], ...]] = {}

    def find_frames(self, address: int) -> tuple[tuple[str, int, int], ...]:
        """Returns (file, line, column) of the call with return address `address`, then those of the calls that it was
        inlined through; () if unknown."""
        if address not in self._known:
            self._known[address] = _parse_frames(self._ask_symbolizer(f"CODE {hex(address - 1)}")[0])
        return self._known[address]

    def format_position(self, address: int) -> str:
        """Returns e.g. 'kernels/hip/03_flash.hip:57', the source position of `address`, and the caller's if that is in
        another file."""
        frames = [frame for frame in self.find_frames(address) if not _is_api(Path(frame[0]))] or self.find_frames(
            address
        )[:1]
        if not frames:
            return "an unknown line (llvm-symbolizer is missing: install llvm-22)"
        file, line, _ = frames[0]
        caller = next((f"{_format_path(Path(name))}:{number}" for name, number, _ in frames if name != file), "")
        # Code that the compiler merged from several lines has no line.
        return f"{_format_path(Path(file))}:{line or self._line_before(address, file)}" + (
            f" (called at {caller})" if caller else ""
        )

    def _line_before(self, address: int, file: str) -> str:
        """Returns e.g. 'near 57': the last line of `file` with code in the 129 bytes before `address`; else '0'."""
        questions = [f"CODE {hex(before)}" for before in range(address - 2, max(address - 130, 0), -1)]
        frames = (found[0] for found in map(_parse_frames, self._ask_symbolizer(*questions)) if found)
        return next((f"near {line}" for name, line, _ in frames if line and name == file), "0")

    def is_same_position(self, one: int, other: int) -> bool:
        """Returns whether two addresses have the same source position, inlined in the same calls. Unknown positions
        count as the same."""
        first, second = self.find_frames(one), self.find_frames(other)
        unknown = not first or not second or any(line == 0 for _, line, _ in (*first, *second))
        return unknown or first == second

    def find_variable(self, address: int) -> str:
        """Returns e.g. 'byte 4 of tile': the offset in the variable at `address`, and its name; '?' if unknown."""
        found = self._ask_symbolizer(f"DATA {hex(address)}")[0].get("Data", {})
        name = str(found.get("Name", "")).rpartition("::")[2]
        return f"byte {address - int(found['Start'], 16)} of {name}" if name else "?"

    def _ask_symbolizer(self, *questions: str) -> list[dict[str, Any]]:
        """Returns llvm-symbolizer's answer to each question, parsed JSON; {} for each if it is missing or fails."""
        program = find_symbolizer()
        if not program:
            return [{} for _ in questions]
        with tempfile.NamedTemporaryFile(prefix="attnperf-emulator-", suffix=".so") as file:
            file.write(self._data)
            file.flush()
            command = [program, f"--obj={file.name}", "--output-style=JSON", "--no-debuginfod", *questions]
            done = run_tool(command, COMPILE_LIMIT_S)
        # A line of JSON for each question; all in one list by older versions.
        answers = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
        found = [answer for each in answers for answer in (each if isinstance(each, list) else [each])]
        return found if len(found) == len(questions) else [{} for _ in questions]


def _parse_frames(answer: dict[str, Any]) -> tuple[tuple[str, int, int], ...]:
    return tuple(
        (each["FileName"], each["Line"], each["Column"]) for each in answer.get("Symbol", []) if each["FileName"]
    )


def _is_api(path: Path) -> bool:
    """Returns whether a file is gpu.h or part of the emulator. Messages name the line that calls into such a file."""
    return path.name in ("gpu.h", "gpu_emulated.h") or RUNTIME in path.parents


@functools.cache
def find_symbolizer() -> str:
    """Returns the path of llvm-symbolizer: the one beside clang, else any version on PATH; '' if there is none."""
    beside = run_tool([*find_toolchain(OLDEST_ARCH).clang, "-print-prog-name=llvm-symbolizer"], COMPILE_LIMIT_S)
    names = (beside.stdout.strip(), "llvm-symbolizer", *(f"llvm-symbolizer-{number}" for number in range(30, 15, -1)))
    return next((path for path in map(shutil.which, filter(None, names)) if path), "")

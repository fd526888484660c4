"""Flattens a .hip file to one text for runtime compilers, reads a kernel's parameters, and words compile errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernels.hip.sources import FOLDER, HipKernel
from pytest_attnperf.errors import CodeObjectError

ROOT = FOLDER.parents[1]
"""Folder that file names in messages and line tables are relative to, so that two checkouts give equal objects."""

STANDARD = "-std=c++17"
ERROR_LINES = 12
_ERROR = re.compile(r"\berror\b")

EMULATOR_HEADER = "gpu_emulated.h"
"""Header for the CPU only. It is skipped here, because the emulator compiles the files directly."""

_INCLUDE = re.compile(r'\s*#\s*include\s+"(?P<name>[^"]+)"')
_ONCE = re.compile(r"\s*#\s*pragma\s+once\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    type       its type, or the type that it points to, without qualifiers: 'element', 'float', 'int'
    pointer    whether it takes a tensor
    """

    name: str
    type: str
    pointer: bool


def flatten_includes(path: Path) -> str:
    """Returns the file's text with each include inserted once, and line directives with names relative to the project.

    Raises CodeObjectError for a missing file.
    """
    return "".join(_flatten_lines(path, set()))


def parse_parameters(text: str, function: str) -> tuple[Parameter, ...] | None:
    """Returns the parameters of `KERNEL(...) function(...)` in order; None where the text lacks this form."""
    plain = _COMMENT.sub("", text)
    found = re.search(rf"\bKERNEL\([^\n]*\)\s+{re.escape(function)}\s*\((?P<list>[^(){{}}#]*)\)\s*\{{", plain)
    if found is None:
        return None
    return tuple(_parse_parameter(declared) for declared in found["list"].split(",") if declared.strip())


def _parse_parameter(declared: str) -> Parameter:
    words = re.findall(r"\w+|\*", declared)
    qualifiers = {"const", "volatile", "__restrict__", "*"}
    types = [word for word in words[:-1] if word not in qualifiers]
    return Parameter(words[-1], " ".join(types), "*" in words)


def format_path(path: Path) -> str:
    """Returns a file's name for messages and line tables, relative to `root_of`."""
    return path.resolve().relative_to(root_of(path)).as_posix()


def root_of(path: Path) -> Path:
    """Returns the folder that file names are relative to: the checkout; for a file outside of it the file's folder."""
    return ROOT if path.resolve().is_relative_to(ROOT) else path.resolve().parent


def _flatten_lines(path: Path, seen: set[Path]) -> list[str]:
    if not path.is_file():
        raise CodeObjectError(f"there is no file {path}; correct the kernel's file, or the #include that names it")
    seen.add(path.resolve())
    name = format_path(path)
    result = [f'#line 1 "{name}"\n']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        include = _INCLUDE.match(line)
        if include is None:
            result.append("\n" if _ONCE.match(line) else f"{line}\n")
            continue
        beside = path.parent / include["name"]
        wanted = beside if beside.is_file() else FOLDER / include["name"]
        if include["name"] == EMULATOR_HEADER or wanted.resolve() in seen:
            result.append("\n")
        else:
            result += [*_flatten_lines(wanted, seen), f'#line {number + 1} "{name}"\n']
    return result


def defines_of(kernel: HipKernel) -> list[str]:
    """Returns the kernel's macros as compiler options, e.g. '-DHEAD_DIM=128', sorted by name."""
    return [f"-D{name}={value}" for name, value in sorted(kernel.defines.items())]


def compile_message(kernel: HipKernel, arch: str, said: str, version: str) -> str:
    """Returns the message for a kernel that does not compile: text of the compiler (`said`) from the first error on,
    its version, and the macros."""
    lines = said.replace(f"{ROOT}/", "").splitlines()
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
    excerpt = "\n".join(lines[first : first + ERROR_LINES])
    macros = " ".join(defines_of(kernel)) or "no macros"
    return (
        f"{kernel.function} in {format_path(kernel.path)} does not compile for "
        f"{arch}:\n{excerpt}\n({version}, {macros})"
    )

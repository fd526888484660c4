"""Finds a clang and compiles HIP without its AMD GPU. Runs in a compile worker: standard library only.

Only clang and lld are needed: no ROCm, no HIP headers, no device libraries. Each clang is tested for its abilities.
16.0.6 is the oldest Debian one that takes `--offload-device-only` and knows gfx90a and gfx1100, 19.1.7 knows gfx942,
gfx1151 and gfx1201 but not gfx950, 20.1.2 and later know gfx950 (all tested).

The compiler runs in the project's folder with relative paths, so that two checkouts give equal objects.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.codeobject.built import (
    Built,
    as_texts,
    format_label,
    pack_bytes,
    project_root,
    source_hashes,
    through_cache,
)
from pytest_attnperf.codeobject.object_cache import cache_key
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

CLANG = "ATTNPERF_CLANG"
"""Environment variable that names the clang to use; then no other is searched."""

INSTALL = "install one (Debian: apt-get install clang-22 lld-22 llvm-22; ROCm brings its own)"
PROBE_LIMIT_S = 60.0

DEVICE_ONLY = ("-x", "hip", "-nogpuinc", "-nogpulib", "--offload-device-only")
"""Options for device code only, without HIP's headers and device libraries."""

_ROCM = Path("/opt/rocm")
_VERSION = re.compile(r"(?P<vendor>\S+ )?clang version (?P<version>\S+)(?P<build>.*)")
_ROCM_BUILD = re.compile(r"roc-\S+")


@dataclass(frozen=True)
class Toolchain:
    """A clang that compiles for the requested architecture.

    clang      its command
    linker     the command of ld.lld if clang cannot start it itself, else empty
    name       name and version for the comparison with a baseline, e.g. 'clang 22.1.8'
    identity   its whole version text, for cache keys
    """

    clang: tuple[str, ...]
    linker: tuple[str, ...]
    name: str
    identity: str


def find_toolchain(arch: str, environ: Mapping[str, str] | None = None) -> Toolchain:
    """Returns the first clang that compiles for `arch`. Only ATTNPERF_CLANG is tried if it is set; else ROCm's,
    clang++-NN from the newest on, clang++, and the PyPI package ziglang. Raises ToolMissingError naming each one found,
    what it lacks, and what to install."""
    environ = os.environ if environ is None else environ
    if not arch.startswith("gfx"):
        raise ToolMissingError(f"HIP sources are compiled for AMD architectures, not {arch!r}; name one, e.g. gfx942")
    lacking = []
    for clang, linker in _list_candidates(environ):
        found = _inspect_toolchain(clang, linker)
        lacks = found if isinstance(found, str) else _reason_unusable(found, arch)
        if not isinstance(found, str) and not lacks:
            return found
        lacking.append(f"{' '.join(clang)} {lacks}")
    listed = "; ".join(lacking) or "there is no clang++ on PATH, in ROCM_PATH or /opt/rocm"
    advice = f"correct or unset {CLANG}" if environ.get(CLANG) else INSTALL
    raise ToolMissingError(f"no clang here compiles HIP for {arch}: {listed}. Please {advice}")


def hip_reasons(arch: str) -> list[str]:
    """Returns why no HIP source can be compiled for `arch` here; empty if it can."""
    try:
        find_toolchain(arch)
    except ToolMissingError as error:
        return [str(error)]
    return []


def find_linker(environ: Mapping[str, str] | None = None) -> Path | None:
    """Returns the path of an ld.lld: ROCm's, ld.lld-NN from the newest on, ld.lld. None if there is none."""
    environ = os.environ if environ is None else environ
    return next(_find_programs("ld.lld", environ), None)


def run_tool(command: Sequence[str], limit_s: float, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a compiler with English messages and a fixed `__DATE__`; returns its exit status and output. Raises
    ToolMissingError if it cannot be started or takes longer than `limit_s`."""
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit_s, cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except OSError as error:
        raise ToolMissingError(f"{command[0]} cannot be started ({error.strerror}); {INSTALL}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolMissingError(f"{' '.join(command[:2])} did not finish in {limit_s:g} s; run it by hand") from error


def _list_candidates(environ: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yields (clang, linker) commands in the order in which they are tried."""
    named = environ.get(CLANG)
    if named:
        yield (named,), ()
        return
    for program in _find_programs("clang++", environ):
        yield (str(program),), ()
    zig = importlib.util.find_spec("ziglang")
    if zig is not None and zig.submodule_search_locations:
        program = Path(next(iter(zig.submodule_search_locations))) / "zig"
        # Its clang cannot start its lld, which is a separate command.
        yield (str(program), "clang"), (str(program), "ld.lld")


def _find_programs(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields programs of that name: ROCm's, then on PATH with a version, newest first, then without one."""
    rocm = [Path(environ["ROCM_PATH"])] if environ.get("ROCM_PATH") else []
    for root in (*rocm, _ROCM):
        if (root / "llvm/bin" / name).is_file():
            yield root / "llvm/bin" / name
    folders = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    versioned: dict[int, Path] = {}
    for path in (path for folder in folders for path in folder.glob(f"{name}-*")):
        number = path.name.removeprefix(f"{name}-")
        if number.isdecimal():
            versioned.setdefault(int(number), path)
    yield from (versioned[number] for number in sorted(versioned, reverse=True))
    plain = shutil.which(name, path=environ.get("PATH", ""))
    if plain:
        yield Path(plain)


@functools.cache
def _inspect_toolchain(clang: tuple[str, ...], linker: tuple[str, ...]) -> Toolchain | str:
    """Returns the toolchain of a command, or a text that says why it is not a clang."""
    try:
        said = run_tool([*clang, "--version"], PROBE_LIMIT_S)
    except ToolMissingError as error:
        return f"is no clang: {error}"
    found = _VERSION.search(said.stdout)
    if said.returncode or not found:
        answer = (said.stderr or said.stdout).strip().splitlines()
        return f"is no clang: --version gave status {said.returncode}, {answer[0] if answer else 'no text'!r}"
    rocm = _ROCM_BUILD.search(found["build"])
    parts = [
        "AMD clang" if found["vendor"] == "AMD " else "clang",
        found["version"],
        *([rocm[0].rstrip(")")] if rocm else []),
        *(["(ziglang)"] if linker else []),
    ]
    return Toolchain(clang, linker, " ".join(parts), " ".join(found[0].split()))


@functools.cache
def _reason_unusable(toolchain: Toolchain, arch: str) -> str:
    """Returns what the toolchain lacks for `arch`, '' for nothing; tested with an empty program."""
    try:
        command = [*toolchain.clang, *DEVICE_ONLY, f"--offload-arch={arch}", "-fsyntax-only", os.devnull]
        tried = run_tool(command, PROBE_LIMIT_S)
        if tried.returncode:
            errors = [line for line in tried.stderr.splitlines() if "error:" in line]
            said = errors[0].partition("error: ")[2].partition(";")[0] if errors else f"status {tried.returncode}"
            return f"({toolchain.name}) says: {said}"
        if toolchain.linker:
            return ""
        lld = run_tool([*toolchain.clang, "-print-prog-name=lld"], PROBE_LIMIT_S).stdout.strip()
    except ToolMissingError as error:
        return f"({toolchain.name}): {error}"
    return "" if shutil.which(lld) else f"({toolchain.name}) has no lld beside it"


COMPILE_LIMIT_S = 300.0
OPTIMISATION = "-O3"

_REPRODUCIBLE = ("-fdebug-compilation-dir=.", "-fuse-cuid=none")
"""Options that keep the compile folder, and a hash of the file's path, out of the object."""

_MARKER = re.compile(r'^# \d+ "(?P<path>[^"<][^"]*)"(?P<flags>[ \d]*)$', re.MULTILINE)
"""A line marker of the preprocessor; the flag 3 says that the file is a system header."""

_ERROR = re.compile(r"(?:^|[\s:])(?:fatal )?error: ")
_EXCERPT_LINES = 3
"""Lines of a compiler's output that are quoted from the first error on: message, source line, position."""


def compile_hip(declared: KernelBuild, source: HipSource, cache: Path) -> Built:
    """Compiles the kernel, or takes it from the cache if the same preprocessed text was compiled equally before.

    Relative paths in `source.flags` are relative to the project's folder. Raises ToolMissingError if no clang
    compiles for the architecture, CodeObjectError if the file is missing or does not compile.
    """
    who = format_label(declared)
    try:
        toolchain = find_toolchain(declared.arch)
    except ToolMissingError as error:
        raise ToolMissingError(f"{who}: {error}") from error
    path = source.path.resolve()
    if not path.is_file():
        raise CodeObjectError(f"{who}: there is no file {source.path}; correct the path")
    root = project_root(path)
    defines = (f"-D{name}={value}" for name, value in source.defines.items())
    arguments = (
        *DEVICE_ONLY, f"--offload-arch={declared.arch}", OPTIMISATION, "-gline-tables-only", *_REPRODUCIBLE,
        *defines, *source.flags, path.relative_to(root).as_posix(),
    )  # fmt: skip
    compiler = _Compiler(who, toolchain, root)
    text = compiler.preprocess_source(arguments)
    key = cache_key("hip", toolchain.identity, *toolchain.clang, compiler.without_root(json.dumps(arguments)), text)

    def compile_now() -> Built:
        return Built(
            object_base64=pack_bytes(compiler.compile_source(arguments, declared.arch)),
            assembly_base64="",
            kernel=source.kernel,
            threads=source.threads,
            lds_dynamic_bytes=source.dynamic_lds_bytes,
            compiler=toolchain.name,
            options=as_texts({**source.defines, "flags": " ".join((OPTIMISATION, *source.flags))}),
        )

    built = through_cache(cache, key, compile_now)
    return replace(
        built,
        kernel=source.kernel,
        threads=source.threads,
        lds_dynamic_bytes=source.dynamic_lds_bytes,
        sources=source_hashes(_list_files(text, root), root),
        source_root=str(root),
    )


@dataclass(frozen=True)
class _Compiler:
    """One toolchain that runs in a project's folder; its errors begin with `who`."""

    who: str
    toolchain: Toolchain
    root: Path

    def preprocess_source(self, arguments: tuple[str, ...]) -> str:
        """Returns the preprocessed source with its includes; paths in its line markers are relative to the project's
        root."""
        return self.without_root(self._run_command((*self.toolchain.clang, *arguments, "-E", "-o", "-")))

    def without_root(self, text: str) -> str:
        """Returns `text` without the path of the project's root, wherever it occurs."""
        return text.replace(f"{self.root}/", "")

    def compile_source(self, arguments: tuple[str, ...], arch: str) -> bytes:
        """Returns the linked code object that clang makes with `arguments`. CodeObjectError with its first error."""
        with tempfile.TemporaryDirectory(prefix="attnperf-hip-") as folder:
            linked = Path(folder, "kernel.co")
            here = (*self.toolchain.clang, *arguments, f"-ffile-prefix-map={self.root}/=", "--no-gpu-bundle-output")
            if not self.toolchain.linker:
                self._run_command((*here, "-o", str(linked)))
                return linked.read_bytes()
            # A clang that cannot start its linker makes text, the only output that is not linked; the rest are the
            # driver's own steps.
            text, unlinked = Path(folder, "kernel.s"), Path(folder, "kernel.o")
            assemble = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", str(text), "-o", str(unlinked))
            self._run_command((*here, "-S", "-o", str(text)))
            self._run_command((*self.toolchain.clang, *assemble))
            link = ("-m", "elf64_amdgpu", "-shared", "--no-undefined", str(unlinked), "-o", str(linked))
            self._run_command((*self.toolchain.linker, *link))
            return linked.read_bytes()

    def _run_command(self, command: tuple[str, ...]) -> str:
        """Runs a command in the project's root; returns its standard output. CodeObjectError quotes the first error if
        it fails."""
        done = run_tool(command, COMPILE_LIMIT_S, self.root)
        if done.returncode == 0:
            return done.stdout
        lines = done.stderr.splitlines()
        first = next((index for index, line in enumerate(lines) if _ERROR.search(line)), 0)
        said = "\n".join(lines[first : first + _EXCERPT_LINES]) or f"exit status {done.returncode}, no message"
        raise CodeObjectError(
            f"{self.who}: {said}\n"
            f"(compiled by {self.toolchain.name} in {self.root}, without HIP headers and device libraries)"
        )


def _list_files(preprocessed: str, root: Path) -> set[Path]:
    """Returns the source file and all its includes except system headers, by the markers in the preprocessed text."""
    markers = _MARKER.finditer(preprocessed)
    paths = {root / found["path"] for found in markers if "3" not in found["flags"].split()}
    return {path for path in paths if path.is_file()}

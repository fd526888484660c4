"""Compiling a HIP kernel for a GPU that is not there. Runs in a compile worker: standard library.

The compiler runs in the project's folder and is given relative paths, so that two checkouts give equal objects.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.codeobject.built import Built, as_texts, label, packed, project_root, source_hashes, through_cache
from pytest_attnperf.codeobject.hip_toolchain import DEVICE_ONLY, Toolchain, find_toolchain, run_tool
from pytest_attnperf.codeobject.object_cache import cache_key
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

COMPILE_LIMIT_S = 300.0
OPTIMISATION = "-O3"

_REPRODUCIBLE = ("-fdebug-compilation-dir=.", "-fuse-cuid=none")
"""Keeps the folder it was compiled in, and a hash of the file's path, out of the object."""

_MARKER = re.compile(r'^# \d+ "(?P<path>[^"<][^"]*)"(?P<flags>[ \d]*)$', re.MULTILINE)
"""A line marker of the preprocessor; the flag 3 says that the file is a system header."""

_ERROR = re.compile(r"(?:^|[\s:])(?:fatal )?error: ")
_EXCERPT_LINES = 3
"""Of a compiler's messages from the first error on: the message, the line, and where in the line."""


def compile_hip(declared: KernelBuild, source: HipSource, cache: Path) -> Built:
    """The kernel's object, from the cache where the same preprocessed text was compiled in the same way before.

    Relative paths in `source.flags` are relative to the project's folder. Raises ToolMissingError where no clang
    compiles for the architecture, CodeObjectError where the file is missing or does not compile.
    """
    who = label(declared)
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
    text = compiler.preprocessed(arguments)
    key = cache_key("hip", toolchain.identity, *toolchain.clang, compiler.without_root(json.dumps(arguments)), text)

    def compile_now() -> Built:
        return Built(
            object_base64=packed(compiler.compiled(arguments, declared.arch)),
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
        sources=source_hashes(_files(text, root), root),
        source_root=str(root),
    )


@dataclass(frozen=True)
class _Compiler:
    """One toolchain, run in a project's folder; `who` begins its errors."""

    who: str
    toolchain: Toolchain
    root: Path

    def preprocessed(self, arguments: tuple[str, ...]) -> str:
        """The source with its includes, its line markers relative to the root."""
        return self.without_root(self._run((*self.toolchain.clang, *arguments, "-E", "-o", "-")))

    def without_root(self, text: str) -> str:
        """`text` without the path of the checkout."""
        return text.replace(f"{self.root}/", "")

    def compiled(self, arguments: tuple[str, ...], arch: str) -> bytes:
        """The linked object."""
        with tempfile.TemporaryDirectory(prefix="attnperf-hip-") as folder:
            linked = Path(folder, "kernel.co")
            here = (*self.toolchain.clang, *arguments, f"-ffile-prefix-map={self.root}/=", "--no-gpu-bundle-output")
            if not self.toolchain.linker:
                self._run((*here, "-o", str(linked)))
                return linked.read_bytes()
            # A clang that cannot start its linker makes text, the only output that is not linked; the rest are the
            # driver's own steps.
            text, unlinked = Path(folder, "kernel.s"), Path(folder, "kernel.o")
            assemble = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", str(text), "-o", str(unlinked))
            self._run((*here, "-S", "-o", str(text)))
            self._run((*self.toolchain.clang, *assemble))
            link = ("-m", "elf64_amdgpu", "-shared", "--no-undefined", str(unlinked), "-o", str(linked))
            self._run((*self.toolchain.linker, *link))
            return linked.read_bytes()

    def _run(self, command: tuple[str, ...]) -> str:
        """What it prints. Raises CodeObjectError with the first error of what it complains of."""
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


def _files(preprocessed: str, root: Path) -> set[Path]:
    """The file and what it includes, system headers aside."""
    markers = _MARKER.finditer(preprocessed)
    paths = {root / found["path"] for found in markers if "3" not in found["flags"].split()}
    return {path for path in paths if path.is_file()}

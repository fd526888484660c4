"""Compiles a Triton kernel without its GPU, and turns compile errors into a few lines.

Runs in a compile worker: standard library and Triton only. Triton's front end raises with the syntax node. Its passes
print a diagnostic and hundreds of lines of IR to file descriptor 2 and raise 'PassManager::run failed'.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

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
from pytest_attnperf.codeobject.triton_function import (
    jit_function,
    reachable_functions,
    source_class,
    specialise_arguments,
)
from pytest_attnperf.codeobject.triton_installation import (
    backend_for,
    installation_hash,
    linker_named,
    load_triton,
    private_cache,
    triton_reasons,
)
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource

RECORDED = ("num_warps", "num_stages", "waves_per_eu", "enable_fp_fusion")
"""Options that are always recorded, because their defaults differ between versions of Triton."""

POINTER_RANGE = "tt.pointer_range"
"""Attribute of a pointer to a tensor below 2 GiB, whose offsets fit 32 bits, as AMD buffer instructions require."""

_CODE_VARIABLES = ("TRITON_", "AMDGCN_", "LLVM_", "MLIR_", "NVPTX_", "PTXAS_", "DISABLE_", "USE_IR_LOC")
_WITHOUT_EFFECT = frozenset(
    {"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "TRITON_DEFAULT_FP_FUSION"}
)
"""Options that are not recorded: folders, and an option that is always passed."""

TEXT_LIMIT = 800
"""Most characters of a compiler's message that are kept."""

_READ_BYTES = 1 << 18
_DIAGNOSTIC = re.compile(r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: error: (?P<text>.+)$", re.MULTILINE)
_LLVM = re.compile(r"^(?:LLVM ERROR|error): (?P<text>.+)$", re.MULTILINE)
_SUMMARY = "Failures have been detected"
_UNSUPPORTED = "unsupported target"


def compile_triton(declared: KernelBuild, source: TritonSource, cache: Path) -> Built:
    """Compiles the kernel as a launch with these arguments and options would, or takes it from the cache.

    FP fusion is on unless the options disable it, independent of Triton's default and TRITON_DEFAULT_FP_FUSION.
    Raises ToolMissingError if `triton_reasons` is not empty; CodeObjectError for a declaration that does not fit the
    function, an option that this Triton does not know, a process in which Triton interprets, and a kernel that does
    not compile.
    """
    who = format_label(declared)
    reasons = triton_reasons(declared.arch)
    if reasons:
        raise ToolMissingError(f"{who}: {'; '.join(reasons)}")
    backend = backend_for(declared.arch)
    function = jit_function(source, who)
    known = specialise_arguments(source, function, backend, who)
    ast = source_class(function)(
        fn=function, signature=known.signature, constexprs=known.constants, attrs=known.attributes
    )
    job = _Job(who, backend, ast, _choose_options(source, function, backend, who), reachable_functions(function))
    with linker_named(backend):
        return through_cache(cache, job.compute_key(), lambda: job.compile_kernel({*RECORDED, *source.options}))


@dataclass(frozen=True)
class _Job:
    """All inputs of one compilation; its errors begin with `who`."""

    who: str
    backend: Any
    ast: Any
    options: dict[str, object]
    functions: list[Any]

    def compute_key(self) -> str:
        """Returns a cache key of everything that changes the object, including file paths, which are in its line table.
        The key has files and constants in addition to Triton's hash of the function, which lacks globals in 3.3. Raises
        CodeObjectError if Triton refuses to hash the function."""
        try:
            hashed = self.ast.hash()
        except Exception as error:  # to hash a function, Triton parses all of it, and refuses some code
            raise self._make_error(error, "") from error
        variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_CODE_VARIABLES) and name not in _WITHOUT_EFFECT
        }
        constants = sorted((name, repr(value)) for (name, _), (value, _) in self.ast.fn.used_global_vals.items())
        options = self.backend.parse_options(dict(self.options)).hash()
        files = [sorted(map(str, self._list_files())), self._hash_sources()]
        given = json.dumps([constants, sorted(variables.items()), files])
        return cache_key("triton", installation_hash(), hashed, self.backend.hash(), options, given)

    def compile_kernel(self, recorded: set[str]) -> Built:
        """Compiles the kernel, not through the cache. `recorded` names the options whose values the result keeps.
        Raises CodeObjectError with the compiler's message."""
        triton = load_triton()
        with private_cache(), StandardError() as said:
            try:
                kernel = triton.compile(self.ast, target=self.backend.target, options=self.options)
            except Exception as error:
                raise self._make_error(error, said.read_text()) from error
        metadata = kernel.metadata
        assembly = kernel.asm.get("amdgcn", "")
        return Built(
            object_base64=pack_bytes(kernel.kernel),
            assembly_base64=pack_bytes(assembly.encode()) if assembly else "",
            kernel=metadata.name,
            threads=metadata.num_warps * self.backend.target.warp_size,
            lds_dynamic_bytes=metadata.shared,
            compiler=f"triton {triton.__version__}",
            options=self._used_settings(metadata, recorded),
            sources=self._hash_sources(),
            source_root=str(self._find_root()),
        )

    def _used_settings(self, metadata: Any, recorded: set[str]) -> dict[str, str]:
        """Returns settings that determine the code, as texts: environment variables that Triton names, the options in
        `recorded` with their values in `metadata`, and the pointer range if the arguments declare one."""
        from triton._C.libtriton import get_cache_invalidating_env_vars

        variables = get_cache_invalidating_env_vars()
        used = {name: value for name, value in variables.items() if name not in _WITHOUT_EFFECT}
        used |= {name: getattr(metadata, name, None) for name in recorded}
        for name, value in (known for all_known in self.ast.attrs.values() for known in all_known):
            if name == POINTER_RANGE:
                used["pointer_range"] = value
        return as_texts({name: value for name, value in used.items() if value is not None})

    def _list_files(self) -> set[Path]:
        return {Path(each.fn.__code__.co_filename) for each in self.functions}

    def _find_root(self) -> Path:
        return project_root(Path(self.ast.fn.fn.__code__.co_filename))

    def _hash_sources(self) -> dict[str, str]:
        return source_hashes(self._list_files(), self._find_root())

    def _make_error(self, error: Exception, said: str) -> CodeObjectError:
        return make_compile_error(error, said, self.who, self.functions, f"triton {load_triton().__version__}")


def _choose_options(source: TritonSource, function: Any, backend: Any, who: str) -> dict[str, object]:
    """Returns the declared options, with FP fusion and debug set as a launch sets them. Raises CodeObjectError for an
    unknown option or an invalid value."""
    known = sorted(vars(backend.parse_options({"enable_fp_fusion": True})))
    unknown = sorted(source.options.keys() - set(known))
    if unknown:
        raise CodeObjectError(f"{who}: triton has no option {', '.join(unknown)} for it; it has: {', '.join(known)}")
    # As in a launch, debug is the value of @triton.jit(debug=True).
    options = {"enable_fp_fusion": True, "debug": bool(function.debug), **source.options}
    try:
        backend.parse_options(dict(options))
    except Exception as error:
        shown = ", ".join(f"{name}={value}" for name, value in source.options.items())
        raise CodeObjectError(f"{who}: triton refuses the options {shown}: {error}") from error
    return options


class StandardError:
    """Reads what is written to file descriptor 2 inside a `with` block, also by a C++ library.

    It reads the file behind the descriptor (a worker's log, pytest's capture) and redirects nothing, so that output
    survives a compiler that aborts the process. If the descriptor is a terminal or a pipe, the text is ''.
    """

    def __enter__(self) -> StandardError:
        sys.stderr.flush()
        self._start = _file_size()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def read_text(self) -> str:
        """Returns the first 256 KiB written to standard error (descriptor 2) since the `with` block began; '' if they
        cannot be read."""
        if self._start is None:
            return ""
        try:
            with open("/proc/self/fd/2", "rb") as stream:
                stream.seek(self._start)
                return stream.read(_READ_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return ""


def _file_size() -> int | None:
    status = os.fstat(2)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def make_compile_error(
    error: Exception, said: str, who: str, functions: Sequence[Any], compiler: str
) -> CodeObjectError:
    """Returns the error to raise: who, the source line, the compiler's message, and the compiler's version.

    It is a ToolMissingError if the compiler does not know the architecture. `functions` are the compiled functions, to
    find lines in; `said` is the printed text.
    """
    place, line, text = _find_front_end_error(error, functions) or _find_diagnostic(said) or ("", "", "")
    text = text or f"{type(error).__name__}: {error}"
    shown = "\n".join(
        filter(None, (f"{who}: {place}{': ' if place else ''}{_shorten_text(text)}", line and f"    {line}"))
    )
    if _UNSUPPORTED in text:
        return ToolMissingError(f"{shown}\n{compiler} has no code generator for it; install a newer Triton")
    return CodeObjectError(f"{shown}\n(compiled by {compiler})")


def _find_front_end_error(error: BaseException, functions: Sequence[Any]) -> tuple[str, str, str] | None:
    """Returns (file:line, the line, message) of the front end's innermost error, because it wraps one error per call;
    None if `error` has none."""
    from triton.compiler.errors import CompilationError

    innermost = None
    cause: BaseException | None = error
    while cause is not None:
        innermost = cause if isinstance(cause, CompilationError) else innermost
        last, cause = cause, cause.__cause__ or cause.__context__
    if innermost is None:
        return None
    message = innermost.error_message or (f"{type(last).__name__}: {last}" if last is not innermost else str(innermost))
    number = getattr(innermost.node, "lineno", None)
    if number is None or innermost.src is None:
        return "", "", str(message)
    lines = innermost.src.splitlines()
    line = lines[number - 1].strip() if number <= len(lines) else ""
    owner = next((each for each in functions if getattr(each, "src", None) == innermost.src), None)
    return _format_place(owner, number), line, str(message)


def _format_place(owner: Any, number: int) -> str:
    """Returns file:line for line `number` of `owner`, a JITFunction; Triton counts from its `def`, after the
    decorators. 'line 5 of a function' if `owner` is None."""
    if owner is None:
        return f"line {number} of a function"
    lines, start = inspect.getsourcelines(owner.fn)
    before = next((index for index, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return f"{owner.fn.__code__.co_filename}:{start + before + number - 1}"


def _find_diagnostic(said: str) -> tuple[str, str, str] | None:
    """Returns (file:line, '', message) of the first diagnostic in the printed text that says more than that a pass
    failed; None if there is none."""
    for found in _DIAGNOSTIC.finditer(said):
        if not found["text"].startswith(_SUMMARY):
            return found["place"], "", found["text"]
    fatal = _LLVM.search(said)
    return ("", "", fatal["text"]) if fatal else None


def _shorten_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT].rstrip()} ... ({len(text):,} characters in all)"

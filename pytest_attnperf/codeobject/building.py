"""Compiles a declared kernel to machine code in a compile worker. Standard library only.

The worker only compiles; the controller reads the object. The worker's interpreter may have no package but Triton.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.codeobject.built import (
    OBJECT_LIMIT_BYTES,
    Built,
    format_label,
    pack_bytes,
    project_root,
    source_hashes,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild, ObjectFile, TritonSource


def build_object(declared: KernelBuild, cache: Path) -> Built:
    """Returns the code object of the declared build: compiled, or from the folder `cache`, or the object file that it
    names. Raises ToolMissingError if `unsupported_reasons` is not empty, CodeObjectError if it cannot be compiled or
    read."""
    started = time.perf_counter()
    return replace(_build_source(declared, cache), seconds=time.perf_counter() - started)


def _build_source(declared: KernelBuild, cache: Path) -> Built:
    # Each compiler's module is loaded only when it is needed.
    source = declared.source
    if isinstance(source, TritonSource):
        from pytest_attnperf.codeobject.compile_triton import compile_triton

        return compile_triton(declared, source, cache)
    if isinstance(source, HipSource):
        from pytest_attnperf.codeobject.hip_toolchain import compile_hip

        return compile_hip(declared, source, cache)
    return _read_existing(declared, source)


def unsupported_reasons(declared: KernelBuild) -> list[str]:
    """Returns why `declared` cannot be compiled here: no compiler, too old, or without the architecture; empty if it
    can."""
    if isinstance(declared.source, TritonSource):
        from pytest_attnperf.codeobject.triton_installation import triton_reasons

        return triton_reasons(declared.arch)
    if isinstance(declared.source, HipSource):
        from pytest_attnperf.codeobject.hip_toolchain import hip_reasons

        return hip_reasons(declared.arch)
    return []


def _read_existing(declared: KernelBuild, source: ObjectFile) -> Built:
    """Returns an existing object file unchanged, as a build. CodeObjectError if it is too large or cannot be read."""
    try:
        size = source.path.stat().st_size
        if size > OBJECT_LIMIT_BYTES:
            raise CodeObjectError(
                f"{format_label(declared)}: {source.path} has {size:,} bytes, and at most "
                f"{OBJECT_LIMIT_BYTES:,} are read; "
                "name the code object itself, not an archive or a library"
            )
        data = source.path.read_bytes()
    except OSError as error:
        raise CodeObjectError(
            f"{format_label(declared)}: {source.path} cannot be read ({error.strerror}); make it first, or "
            f"correct the path"
        ) from error
    root = project_root(source.path)
    return Built(
        object_base64=pack_bytes(data),
        assembly_base64="",
        kernel=source.kernel,
        threads=source.threads,
        lds_dynamic_bytes=source.dynamic_lds_bytes,
        compiler=source.compiler or "unknown",
        sources=source_hashes([source.path], root),
        source_root=str(root),
    )

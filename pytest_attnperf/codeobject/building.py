"""From a declaration to machine code: what a compile worker does, and what it sends back. Standard library.

The worker compiles and reads nothing: its interpreter may lack everything but Triton. The controller reads the object.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from pytest_attnperf.codeobject.object_cache import ObjectCache, cache_key
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild, ObjectFile, TritonSource

OBJECT_LIMIT_BYTES = 64 * 1024 * 1024
"""A larger object file is refused: a message to the controller has to hold it."""
UNPACKED_BYTES_MOST = 4 * OBJECT_LIMIT_BYTES
"""Of an object or an assembler text that came back: a few bytes may claim to hold gigabytes."""

_ROOT_MARKS = (".git", "pyproject.toml")


@dataclass(frozen=True)
class Built:
    """One compiled kernel as plain data.

    object_base64       base64 of zlib of the code object
    assembly_base64     the same of the compiler's assembler text, '' where there is none
    kernel              its symbol; '' means the only one of an object that existed already
    threads             lanes of a workgroup as launched, 0 where nobody said
    lds_dynamic_bytes   LDS that the launch adds
    compiler            name and version, 'triton 3.9.0', 'clang 22.1.8'
    options             every option that changes code, as it was used
    sources             path -> SHA-256 of what was compiled; relative to `source_root` where below it
    source_root         folder of the project that the sources belong to. Relative paths in the line table of a HIP
                        object are relative to it; Triton's are absolute
    seconds             that this build took, cache included
    cached              whether the object came from the cache
    """

    object_base64: str
    assembly_base64: str
    kernel: str
    threads: int
    lds_dynamic_bytes: int
    compiler: str
    options: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    source_root: str = ""
    seconds: float = 0.0
    cached: bool = False


def build(declared: KernelBuild, cache: Path) -> Built:
    """Compile `declared`, or read what stands for it in the folder `cache`, or the object file it names.

    Raises ToolMissingError where `unsupported_reasons` has some, CodeObjectError where it cannot be compiled or read.
    """
    started = time.perf_counter()
    return replace(_build(declared, cache), seconds=time.perf_counter() - started)


def _build(declared: KernelBuild, cache: Path) -> Built:
    # Each compiler's module is loaded where it is needed only, and both need the record above.
    source = declared.source
    if isinstance(source, TritonSource):
        from pytest_attnperf.codeobject.compile_triton import compile_triton

        return compile_triton(declared, source, cache)
    if isinstance(source, HipSource):
        from pytest_attnperf.codeobject.compile_hip import compile_hip

        return compile_hip(declared, source, cache)
    return _existing(declared, source)


def unsupported_reasons(declared: KernelBuild) -> list[str]:
    """Why this interpreter and machine cannot build it: a compiler absent, too old, or without its architecture."""
    if isinstance(declared.source, TritonSource):
        from pytest_attnperf.codeobject.triton_installation import triton_reasons

        return triton_reasons(declared.arch)
    if isinstance(declared.source, HipSource):
        from pytest_attnperf.codeobject.hip_toolchain import hip_reasons

        return hip_reasons(declared.arch)
    return []


def object_bytes(built: Built) -> bytes:
    """The code object. Raises CodeObjectError where the text is no base64 of zlib."""
    return unpacked(built.object_base64, f"the object of {built.kernel or 'a kernel'}")


def assembly_text(built: Built) -> str:
    """The compiler's assembler text, '' where there is none. Raises CodeObjectError as `object_bytes` does."""
    if not built.assembly_base64:
        return ""
    return unpacked(built.assembly_base64, f"the assembler text of {built.kernel}").decode("utf-8", errors="replace")


def packed(data: bytes) -> str:
    """Base64 of zlib of `data`."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpacked(text: str, what: str) -> bytes:
    """What `packed` was given. Raises CodeObjectError naming `what`."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(text, validate=True), UNPACKED_BYTES_MOST)
        if not unpacking.eof:
            raise ValueError(f"cut short, or more than {UNPACKED_BYTES_MOST:,} bytes")
    except (binascii.Error, ValueError, zlib.error) as error:
        raise CodeObjectError(
            f"{what} came back damaged ({error}; {len(text):,} characters): compile it again"
        ) from error
    return data


def through_cache(cache: Path, key: str, compile_it: Callable[[], Built]) -> Built:
    """What is stored under `key` in the folder `cache`, or else what `compile_it` makes, which is then stored."""
    store = ObjectCache(cache)
    key = cache_key(key, *(column.name for column in fields(Built)))
    text = store.load(key)
    if text is not None:
        return replace(Built(**json.loads(text)), cached=True)
    built = compile_it()
    store.store(key, json.dumps(asdict(built)).encode())
    return built


def project_root(path: Path) -> Path:
    """The nearest folder above `path` that looks like a checkout or a project; its own folder where none does."""
    above = path.resolve().parents
    return next((folder for folder in above if any((folder / mark).exists() for mark in _ROOT_MARKS)), above[0])


def source_hashes(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Path, relative to `root` where below it, -> SHA-256. Raises OSError for a file that cannot be read."""
    hashes = {}
    for path in sorted({path.resolve() for path in paths}):
        name = path.relative_to(root) if path.is_relative_to(root) else path
        hashes[name.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def label(declared: KernelBuild) -> str:
    """How messages name a build."""
    return f"{declared.kernel}, configuration {declared.config!r}, for {declared.arch}"


def as_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as they are shown and compared."""
    return {name: str(value) for name, value in sorted(options.items())}


def _existing(declared: KernelBuild, source: ObjectFile) -> Built:
    """An object file, read as it is."""
    try:
        size = source.path.stat().st_size
        if size > OBJECT_LIMIT_BYTES:
            raise CodeObjectError(
                f"{label(declared)}: {source.path} has {size:,} bytes, and at most {OBJECT_LIMIT_BYTES:,} are read; "
                "name the code object itself, not an archive or a library"
            )
        data = source.path.read_bytes()
    except OSError as error:
        raise CodeObjectError(
            f"{label(declared)}: {source.path} cannot be read ({error.strerror}); make it first, or correct the path"
        ) from error
    root = project_root(source.path)
    return Built(
        object_base64=packed(data),
        assembly_base64="",
        kernel=source.kernel,
        threads=source.threads,
        lds_dynamic_bytes=source.dynamic_lds_bytes,
        compiler=source.compiler or "unknown",
        sources=source_hashes([source.path], root),
        source_root=str(root),
    )

"""The packed result that a compile worker returns for one kernel, and helpers of its compilers. Standard library."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from pytest_attnperf.codeobject.object_cache import ObjectCache, cache_key
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild

OBJECT_LIMIT_BYTES = 64 * 1024 * 1024
"""Largest accepted object file: it must fit a message to the controller."""
UNPACKED_BYTES_MOST = 4 * OBJECT_LIMIT_BYTES
"""Most bytes of an unpacked object or assembler text: a few bytes may claim to unpack to gigabytes."""

_ROOT_MARKS = (".git", "pyproject.toml")


@dataclass(frozen=True)
class Built:
    """One compiled kernel as plain data.

    object_base64       base64 of zlib of the code object
    assembly_base64     base64 of zlib of the compiler's assembler text, '' where there is none
    kernel              its symbol; '' means the only one of an object that existed already
    threads             lanes of a workgroup as launched, 0 where not known
    lds_dynamic_bytes   LDS that the launch adds
    compiler            name and version, 'triton 3.9.0', 'clang 22.1.8'
    options             every option that changes code, with the value used
    sources             path -> SHA-256 of the compiled files; relative to `source_root` if below it
    source_root         folder of the project that the sources belong to. Relative paths in the line table of a HIP
                        object are relative to it; Triton's are absolute
    seconds             duration of this build, including the cache lookup
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


def object_bytes(built: Built) -> bytes:
    """Returns the bytes of a build's code object. Raises CodeObjectError if its text is not base64 of zlib."""
    return unpack_bytes(built.object_base64, f"the object of {built.kernel or 'a kernel'}")


def assembly_text(built: Built) -> str:
    """Returns the assembler text of a build's compiler, '' if there is none. Raises CodeObjectError as `object_bytes`
    does."""
    if not built.assembly_base64:
        return ""
    return unpack_bytes(built.assembly_base64, f"the assembler text of {built.kernel}").decode(
        "utf-8", errors="replace"
    )


def pack_bytes(data: bytes) -> str:
    """Returns `data` compressed by zlib, as base64 text."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpack_bytes(text: str, what: str) -> bytes:
    """Returns the data that `pack_bytes` packed. Raises CodeObjectError, which names `what`, if it is damaged or too
    large."""
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
    """Returns the build that the folder `cache` has under `key`, marked as cached; else calls `compile_it` and stores
    its result."""
    store = ObjectCache(cache)
    key = cache_key(key, *(column.name for column in fields(Built)))
    text = store.load(key)
    if text is not None:
        return replace(Built(**json.loads(text)), cached=True)
    built = compile_it()
    store.store(key, json.dumps(asdict(built)).encode())
    return built


def project_root(path: Path) -> Path:
    """Returns the nearest folder above `path` with .git or pyproject.toml, else the file's own folder."""
    above = path.resolve().parents
    return next((folder for folder in above if any((folder / mark).exists() for mark in _ROOT_MARKS)), above[0])


def source_hashes(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Returns path (relative to `root` if below it) -> SHA-256. Raises OSError for a file that cannot be read."""
    hashes = {}
    for path in sorted({path.resolve() for path in paths}):
        name = path.relative_to(root) if path.is_relative_to(root) else path
        hashes[name.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def format_label(declared: KernelBuild) -> str:
    """Returns kernel, configuration and architecture of a build as a text for messages."""
    return f"{declared.kernel}, configuration {declared.config!r}, for {declared.arch}"


def as_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Returns the options sorted by name with their values as texts, for display and comparison."""
    return {name: str(value) for name, value in sorted(options.items())}
